/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "launcher/screen_priv.h"

#include "base/cleanup.h"
#include "base/clock.h"
#include "launcher/label.h"
#include "launcher/output.h"
#include "spec/rank_set.h"
#include "spec/stream_set.h"

#include <limits.h>
#include <string.h>

enum {
    /* Ranks that do the same print within this of each other. */
    FOLD_WINDOW_MS = 500,
    FOLD_MAX_LINES = 1000,
    FOLD_MAX_BYTES = 1 << 20,
};

static void fold_line(void *arg, const struct tree_output *from,
                      const char *line, size_t len, bool is_part);
static void show_folded(void *arg, const struct fold_line *line);

static bool start_fold(struct screen *s)
{
    s->lines = line_join_create(fold_line, s);
    s->fold = fold_create(&(struct fold_config){
        .show = show_folded, .arg = s, .window_ms = FOLD_WINDOW_MS,
        .max_lines = FOLD_MAX_LINES, .max_bytes = FOLD_MAX_BYTES});
    return s->lines && s->fold;
}

bool screen_output_start(struct screen *s)
{
    const struct job_logs *logs = &s->config->run->job->logs;

    if (logs->format == JOB_LOG_JSON) {
        s->json = json_output_create();
        return s->json;
    }
    return !logs->fold || start_fold(s);
}

void screen_output_release(struct screen *s)
{
    json_output_destroy(s->json);
    line_join_destroy(s->lines);
    fold_destroy(s->fold);
}

/* The label with what the run knows, in its rank's colour. */
static void add_label(const struct screen *s, struct label l, struct buf *to)
{
    static const char *const colors[] = {"36", "32", "35", "33", "34", "31"};
    _buf_ struct buf text = {0};

    l.prefix = s->config->run->job->logs.prefix;
    l.run = s->config->dir->id;
    l.status = s->status;
    label_write(&l, &text);
    if (text.len && (l.is_err ? s->color_err : s->color_out)) {
        buf_printf(to, "\033[%sm%s\033[0m",
                   colors[l.rank % ARRAY_SIZE(colors)], buf_str(&text));
    } else {
        buf_append(to, text.data, text.len);
    }
}

/* --- as text --- */

static void output_text(struct screen *s, const struct tree_output *o)
{
    const struct progress_source from = {
        .generation = o->generation, .stream = o->rank * 2 + o->which,
        .is_err = o->which,
    };
    _buf_ struct buf label = {0};

    add_label(s, (struct label){.wall_ns = clock_wall_ns(),
                                .generation = o->generation, .node = o->node,
                                .rank = o->rank, .is_err = o->which}, &label);
    progress_output(s->progress, &from, buf_str(&label), o->data, o->len);
    if (o->piece == OUTPUT_END) {
        progress_output(s->progress, &from, buf_str(&label), "\n", 1);
    }
}

/* --- folded --- */

/* Whole lines, of a source of its own that holds none. */
static void print_lines(struct screen *s, bool is_err, const struct buf *lines)
{
    const struct progress_source from = {.stream = UINT_MAX, .is_err = is_err};

    if (lines->len) {
        progress_output(s->progress, &from, "", lines->data, lines->len);
    }
}

static void show_folded(void *arg, const struct fold_line *l)
{
    struct screen *s = arg;
    _buf_ struct buf ranks = {0}, text = {0};

    fold_write_ranks(l, &ranks);
    add_label(s, (struct label){.wall_ns = l->wall_ns,
                                .generation = l->generation, .node = l->node,
                                .rank = l->rank, .is_err = l->is_err,
                                .ranks = l->n_ranks > 1 ? buf_str(&ranks)
                                                        : NULL,
                                .n_ranks = l->n_ranks,
                                .has_many_nodes = l->has_many_nodes}, &text);
    buf_append(&text, l->data, l->len);
    buf_putc(&text, '\n');
    print_lines(s, l->is_err, &text);
}

static void fold_line(void *arg, const struct tree_output *from,
                      const char *line, size_t len, bool is_part)
{
    struct screen *s = arg;

    (void)is_part;
    fold_put(s->fold, &(struct fold_line){.generation = from->generation,
                                          .rank = from->rank,
                                          .node = from->node,
                                          .is_err = from->which,
                                          .wall_ns = clock_wall_ns(),
                                          .data = line, .len = len},
             clock_mono_ms());
}

/* Only those of a running generation are known: an elastic job may have more of
 * them in the next one, so that this is no error. */
static void note_ranks(struct screen *s)
{
    const char *show = s->config->run->job->logs.show;
    size_t n = s->status->n_workers;

    if (s->has_noted_ranks || n == 0 || !show || strcmp(show, "none") == 0) {
        return;
    }
    for (size_t i = 0; i < n; i++) {
        if (rank_set_has(show, (uint32_t)i)) {
            return;
        }
    }
    s->has_noted_ranks = true;
    if (n == 1) {
        screen_note(s, "no output is shown: no worker has a rank of '%.100s', "
                    "there is rank 0 alone (--logs)", show);
    } else {
        screen_note(s, "no output is shown: no worker has a rank of '%.100s', "
                    "there are ranks 0 to %zu (--logs)", show, n - 1);
    }
}

void screen_output_status(struct screen *s)
{
    const struct job_logs *logs = &s->config->run->job->logs;
    const struct status_worker *w = s->status->workers;
    uint32_t n = 0, local = 0;

    for (size_t i = 0; s->fold && i < s->status->n_workers; i++) {
        local = i && w[i].node == w[i - 1].node ? local + 1 : 0;
        n += rank_set_has(logs->show, (uint32_t)i) &&
             stream_set_of(logs->streams, local);
    }
    if (s->fold) {
        fold_set_ranks(s->fold, n);
    }
    note_ranks(s);
}

void screen_tick(struct screen *s)
{
    if (s->fold) {
        fold_tick(s->fold, clock_mono_ms());
    }
}

void screen_output_unfold(struct screen *s)
{
    if (s->fold) {
        fold_flush(s->fold);
    }
}

/* --- as JSON --- */

static void output_json(struct screen *s, const struct tree_output *o)
{
    _buf_ struct buf objects = {0};

    json_output_put(s->json, o, clock_wall_ns(), &objects);
    print_lines(s, false, &objects);
}

static void flush_json(struct screen *s)
{
    _buf_ struct buf objects = {0};

    json_output_flush(s->json, clock_wall_ns(), &objects);
    print_lines(s, false, &objects);
}

/* --- all of them --- */

void screen_output(struct screen *s, const struct tree_output *o)
{
    if (s->json) {
        output_json(s, o);
    } else if (s->fold) {
        line_join_put(s->lines, o);
    } else {
        output_text(s, o);
    }
}

void screen_output_flush(struct screen *s)
{
    if (s->json) {
        flush_json(s);
    } else if (s->fold) {
        line_join_flush(s->lines);
        fold_flush(s->fold);
    }
}
