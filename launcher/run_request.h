/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A request to a run, for commands: over a socket of it on this host, else by a
 * file for its lead. What comes of it is told here. Blocks.
 */
#ifndef MUSTER_LAUNCHER_RUN_REQUEST_H
#define MUSTER_LAUNCHER_RUN_REQUEST_H

#include "launcher/options.h"
#include "launcher/runview.h"

#include <jansson.h>
#include <stdbool.h>

enum { RUN_REQUEST_IS_OVER = -1, RUN_REQUEST_FAILED = -2 };

/* For the table of commands that take a run and may be forced; and what they start
 * with: a negative number to go on, else the exit status, as of options_start(). */
extern const struct option_def run_request_table[];
int run_request_start(const struct options *options, int argc, char **argv,
                      bool *ret_force, struct run_view *ret);

/* The run that `arg` means. One whose directory does not answer can still be asked
 * where somebody of it is on this host: `is_silent` then. */
int run_request_view(const char *arg, struct run_view *ret, struct error *e);

/* `op` is as in doc/formats.md, `doing` what is said where the run says nothing
 * ("cancelling"). An exit status, or RUN_REQUEST_IS_OVER: the run is over, and
 * nothing was said. `v` is as new as that. */
int run_request(struct run_view *v, const char *op, bool force,
                const char *doing);

/* The same with a whole request, an object; its reference is the caller's. */
int run_request_json(struct run_view *v, const json_t *request,
                     const char *doing);

/* That, and nothing is said: 0, and `ret_text` is what came of it, for people;
 * RUN_REQUEST_IS_OVER; RUN_REQUEST_FAILED, worded in `e`. */
int run_request_ask(struct run_view *v, const json_t *request, const char *doing,
                    struct buf *ret_text, struct error *e);

#endif
