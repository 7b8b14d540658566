/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "launcher/screen_priv.h"

#include "base/cleanup.h"
#include "base/clock.h"
#include "launcher/commands.h"

#include <errno.h>
#include <jansson.h>
#include <limits.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* What mpirun gives a rank for its output is a terminal, wherever that goes. */
static bool wants_color(int fd)
{
    const char *no = getenv("NO_COLOR");
    const char *term = getenv("TERM");

    return isatty(fd) && !getenv("OMPI_COMM_WORLD_RANK") && !(no && no[0]) &&
           !(term && !strcmp(term, "dumb"));
}

static void put(void *arg, int fd, struct buf *data)
{
    writer_take(arg, fd, data);
}

static struct progress *start_progress(struct screen *s)
{
    struct progress *p = progress_create(1, 2);

    if (p) {
        progress_set_sink(p, put, s->writer);
    }
    return p;
}

int screen_create(const struct front_config *config, struct writer *writer,
                  struct screen **ret, struct error *e)
{
    struct screen *s = calloc(1, sizeof(*s));

    if (s) {
        s->config = config;
        s->writer = writer;
        s->progress = start_progress(s);
    }
    if (!s || !s->progress || !screen_output_start(s)) {
        screen_destroy(s);
        return error_set(e, ENOMEM, "show the run");
    }
    s->color_out = wants_color(1);
    s->color_err = wants_color(2);
    *ret = s;
    return 0;
}

void screen_destroy(struct screen *s)
{
    if (s) {
        progress_destroy(s->progress);
        screen_output_release(s);
        run_status_destroy(s->status);
        free(s->shown);
        free(s->told);
        free(s);
    }
}

/* --- what happens --- */

void screen_note(struct screen *s, const char *fmt, ...)
{
    char text[2048];
    va_list ap;

    va_start(ap, fmt);
    vsnprintf(text, sizeof(text), fmt, ap);
    va_end(ap);
    progress_note(s->progress, "%s", text);
}

void screen_block(struct screen *s, const char *title, const char *text)
{
    screen_note(s, "%s:", title);
    while (*text) {
        size_t len = strcspn(text, "\n");

        progress_note(s->progress, "    %.*s", (int)len, text);
        text += len + (text[len] == '\n');
    }
}

const struct run_status *screen_status(struct screen *s, const void *json,
                                     size_t len)
{
    struct run_status *fresh = NULL;

    if (run_status_from_json(json, len, &fresh, NULL) < 0) {
        return NULL;
    }
    run_status_destroy(s->status);
    s->status = fresh;
    screen_output_status(s);
    return fresh;
}

const struct run_status *screen_last(const struct screen *s)
{
    return s->status;
}

/* Those that a person wants to know of as they happen. */
static bool is_news(const char *event)
{
    static const char *const dull[] = {
        "nodes_gathered", "generation_preparing", "generation_running",
        "checkpoint_saved", "checkpoint_removed", "checkpoint_copied",
        "checkpoint_stored",
        "ended", "front_back",
    };

    for (size_t i = 0; i < ARRAY_SIZE(dull); i++) {
        if (strcmp(event, dull[i]) == 0) {
            return false;
        }
    }
    return true;
}

/* A run that stops gives as its reason what happened just before, with more to
 * it sometimes, which comes again with the last words. */
static bool is_told(const struct screen *s, const char *event, const char *text)
{
    return strcmp(event, "stopping") == 0 && s->told &&
           strncmp(text, s->told, strlen(s->told)) == 0;
}

static void keep(char **at, const char *text)
{
    free(*at);
    *at = strdup(text);
}

/* Both may be NULL. */
static void tell_failure(struct screen *s, const char *lines,
                         const char *advice)
{
    if (lines) {
        screen_block(s, "its last lines", lines);
        keep(&s->shown, lines);
    }
    if (advice) {
        screen_note(s, "advice: %s", advice);
    }
}

void screen_event(struct screen *s, const json_t *o)
{
    const char *event = json_string_value(json_object_get(o, "event"));
    const char *text = json_string_value(json_object_get(o, "text"));
    const json_t *failure = json_object_get(o, "failure");
    const char *lines = json_string_value(json_object_get(failure, "lines"));

    if (!event || !text || !is_news(event) || is_told(s, event, text)) {
        return;
    }
    screen_output_unfold(s); /* it may have led to this */
    screen_note(s, "%s", text);
    keep(&s->told, text);
    if (strcmp(event, "worker_failed") == 0) {
        tell_failure(s, lines,
                     json_string_value(json_object_get(failure, "advice")));
    }
}

void screen_progress(struct screen *s, uint64_t elapsed_ms, uint64_t now_ms)
{
    struct progress_view v;

    if (s->config->is_quiet || !s->status) {
        return;
    }
    v = progress_view(s->status, elapsed_ms);
    progress_update(s->progress, &v, now_ms);
}

/* --- the end --- */

static const char *word_for(int status, const struct run_status *s)
{
    switch (status) {
    case EXIT_OK:
        return "succeeded";
    case EXIT_RESUMABLE:
        return s && s->state == STATUS_SUSPENDED ? "suspended"
                                                 : "stopped, can be resumed";
    case EXIT_CANCELLED:
        return "cancelled";
    case EXIT_DEADLINE:
        return "stopped at its deadline";
    case EXIT_NOT_GATHERED:
        return "did not start";
    default:
        return "failed";
    }
}

/* A run that ends soon after its directory was removed ends before the agent
 * can tell of that. */
static void tell_place(struct screen *s)
{
    const char *dir = s->config->dir->path;

    if (access(dir, F_OK) == 0) {
        screen_note(s, "logs and records are in %s", dir);
    } else {
        screen_note(s, "the run's records cannot be written: %s is gone, and "
                    "its logs with it", dir);
    }
}

/* Nothing else comes after this. False without memory. */
static bool end_progress(struct screen *s)
{
    screen_output_flush(s);
    progress_flush(s->progress);
    progress_destroy(s->progress);
    s->progress = start_progress(s);
    return s->progress;
}

void screen_leave(struct screen *s, const char *text)
{
    if (end_progress(s)) {
        screen_note(s, "%s", text);
    }
}

void screen_end(struct screen *s, int status, const char *reason,
              uint64_t elapsed_ms)
{
    const struct run_status *st = s->status;
    char span[16];

    if (!end_progress(s)) {
        return;
    }
    clock_format_span(elapsed_ms, span, sizeof(span));
    screen_note(s, "%s %s after %s (%d restart%s)%s%s", s->config->dir->id,
              word_for(status, st), span, st ? st->restarts : 0,
              st && st->restarts == 1 ? "" : "s", *reason && status ? ": " : "",
              status ? reason : "");
    if (st && st->failure.is_set && status != EXIT_OK &&
        status != EXIT_CANCELLED && st->failure.lines &&
        st->failure.lines[0] &&
        !(s->shown && strcmp(s->shown, st->failure.lines) == 0)) {
        screen_block(s, "last lines of the worker that failed first",
                   st->failure.lines);
    }
    tell_place(s);
}
