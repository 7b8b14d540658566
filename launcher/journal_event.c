/* SPDX-License-Identifier: Apache-2.0 */
/* Lines of a journal: events and metrics. */
#include <config.h>

#include "launcher/journal.h"

#include "base/cleanup.h"

enum { JOURNAL_VERSION = 1 };

struct jsonw journal_event_begin(struct buf *line, uint64_t wall_ns,
                                 const char *event, int generation)
{
    struct jsonw w = jsonw_start(line);

    jsonw_object(&w, NULL);
    jsonw_int(&w, "v", JOURNAL_VERSION);
    jsonw_time(&w, "t", wall_ns);
    jsonw_str(&w, "event", event);
    jsonw_int(&w, "generation", generation);
    return w;
}

void journal_event_end(struct journal *j, struct jsonw *w)
{
    jsonw_end_object(w);
    if (!w->to->failed) {
        journal_line(j, JOURNAL_EVENTS, w->to->data, w->to->len);
    }
    buf_release(w->to);
}

void journal_metric(struct journal *j, uint64_t wall_ns, int generation,
                    int rank, int64_t step, const char *name, double value)
{
    _buf_ struct buf line = {0};
    struct jsonw w = jsonw_start(&line);

    jsonw_object(&w, NULL);
    jsonw_int(&w, "v", JOURNAL_VERSION);
    jsonw_time(&w, "t", wall_ns);
    jsonw_int(&w, "generation", generation);
    jsonw_int(&w, "rank", rank);
    jsonw_int(&w, "step", step);
    jsonw_str(&w, "name", name);
    jsonw_num(&w, "value", value);
    jsonw_end_object(&w);
    if (!line.failed) {
        journal_line(j, JOURNAL_METRICS, line.data, line.len);
    }
}
