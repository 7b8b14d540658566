/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the user of `muster run` sees: the live line, the workers' labelled
 * output, what happens to the run, and how it ended.
 */
#ifndef MUSTER_LAUNCHER_SCREEN_H
#define MUSTER_LAUNCHER_SCREEN_H

#include "launcher/front.h"
#include "launcher/status.h"
#include "launcher/writer.h"
#include "rendezvous/tree_msg.h"

#include <jansson.h>

struct screen;

/* Everything is written by `writer` (borrowed). */
int screen_create(const struct front_config *config, struct writer *writer,
                  struct screen **ret, struct error *e);
void screen_destroy(struct screen *s);

void screen_output(struct screen *s, const struct tree_output *o);
/* To be called several times a second: shows output that has waited long enough
 * for more of its like. */
void screen_tick(struct screen *s);

/* Takes a status as JSON; returns it, borrowed until the next call, or NULL if
 * it does not parse. */
const struct run_status *screen_status(struct screen *s, const void *json,
                                     size_t len);

/* The newest one, borrowed likewise; NULL: none has come. */
const struct run_status *screen_last(const struct screen *s);

/* An event of the lead; NULL is none. */
void screen_event(struct screen *s, const json_t *event);

void screen_note(struct screen *s, const char *fmt, ...)
    __attribute__((format(printf, 2, 3)));

/* Several lines under a title, indented. */
void screen_block(struct screen *s, const char *title, const char *text);

void screen_progress(struct screen *s, uint64_t elapsed_ms, uint64_t now_ms);

/* The last words where the run is left to itself. */
void screen_leave(struct screen *s, const char *text);

/* The last words. */
void screen_end(struct screen *s, int status, const char *reason,
              uint64_t elapsed_ms);

#endif
