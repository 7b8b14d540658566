/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What an agent tells: facts to the lead, as JSON, and lines of its own log.
 */
#include <config.h>

#include "launcher/agent.h"

#include "base/cleanup.h"
#include "base/clock.h"
#include "launcher/jsonw.h"

#include <stdarg.h>
#include <stdio.h>

void agent_log(const struct agent *a, const char *fmt, ...)
{
    char when[32];
    va_list ap;

    clock_format(clock_wall_ns(), when, sizeof(when));
    fprintf(stderr, "%s agent %u on %s: ", when, a->index, a->host);
    va_start(ap, fmt);
    vfprintf(stderr, fmt, ap);
    va_end(ap);
    fputc('\n', stderr);
}

struct jsonw agent_fact_begin(struct buf *b, const char *kind)
{
    struct jsonw w = jsonw_start(b);

    jsonw_object(&w, NULL);
    jsonw_str(&w, "fact", kind);
    return w;
}

void agent_fact_send(struct agent *a, struct jsonw *w)
{
    jsonw_end_object(w);
    if (!w->to->failed && a->tree) {
        tree_event(a->tree, w->to->data, w->to->len);
    }
}

void agent_note(struct agent *a, const char *fmt, ...)
{
    _buf_ struct buf b = {0};
    struct jsonw w;
    char text[1024];
    va_list ap;

    va_start(ap, fmt);
    vsnprintf(text, sizeof(text), fmt, ap);
    va_end(ap);
    agent_log(a, "%s", text);
    w = agent_fact_begin(&b, "note");
    jsonw_str(&w, "text", text);
    agent_fact_send(a, &w);
}
