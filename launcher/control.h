/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How commands reach a run. On its hosts: a Unix socket (0600, the peer's uid is
 * checked) of any agent or front end, <runtime dir>/<run id>/NAME.ctl; one JSON
 * object a line in, one out:
 *
 *     {"v":1,"op":"cancel","force":false}
 *     {"v":1,"ok":true,"text":"..."}       or  {"v":1,"ok":false,"text":"..."}
 *
 * From elsewhere: a 0600 file <run dir>/control/ID.json with the same object,
 * which the lead looks for every second, and which gets no answer.
 *
 * Everything is bounded: a request is at most 64 KiB, an answer 16 MiB, a server
 * serves 32 peers at once, and a peer that is silent for 10 s is closed.
 */
#ifndef MUSTER_LAUNCHER_CONTROL_H
#define MUSTER_LAUNCHER_CONTROL_H

#include "base/error.h"
#include "launcher/jsonw.h"

#include <jansson.h>
#include <stdbool.h>
#include <uv.h>

struct control_server;
struct control_watch;

/* One request, on the loop thread. `op` and `body` are borrowed during the call.
 * Returns 0 or a negative code worded in `e`; either way the peer is answered:
 * `ok`, and what was added to `reply` (an open object; "text" is for people)
 * or the error's text. The callee must not destroy the server or the watch
 * inside. `reply` is NULL for a request by file. */
typedef int control_f(void *arg, const char *op, const json_t *body,
                      struct jsonw *reply, struct error *e);

/* Listens as <runtime dir>/<run_id>/<name>.ctl; a dead predecessor's socket of
 * that name is replaced. The caller owns *ret; destroy before the loop is
 * closed (it needs one more turn of the loop to finish). */
int control_server_create(uv_loop_t *loop, const char *run_id, const char *name,
                          control_f *on_request, void *arg,
                          struct control_server **ret, struct error *e);

/* Stops, removes the socket. NULL is allowed. */
void control_server_destroy(struct control_server *s);

/* Looks into <run_dir>/control every second (on libuv's thread pool: the loop
 * never touches the filesystem), hands over and removes what it finds. Files of
 * other users are ignored. */
int control_watch_create(uv_loop_t *loop, const char *run_dir,
                         control_f *on_request, void *arg,
                         struct control_watch **ret, struct error *e);
void control_watch_destroy(struct control_watch *w);

/* For commands; both block. Asks over a socket of the run on this host, and the next
 * one where the answer has "alone": true, which is from one that knows of no lead:
 * *ret_reply (the caller decrefs it) is the answer object. -ENOENT when nobody of
 * that run listens here, -ERR_LOST when the peer went away, -ETIMEDOUT. */
int control_ask(const char *run_id, const json_t *request, unsigned timeout_ms,
                json_t **ret_reply, struct error *e);

/* The same, of the agents on this host in turn, until one says yes. Where none
 * does the error is the last answer, as -EPERM. */
int control_ask_agents(const char *run_id, const json_t *request,
                       unsigned timeout_ms, json_t **ret_reply,
                       struct error *e);

/* Drops a request file; its path goes to `ret_path` (PATH_MAX bytes), which may
 * be NULL. */
int control_drop(const char *run_dir, const json_t *request, char *ret_path,
                 struct error *e);

/* Whether an agent or front end of the run takes connections on this host. */
bool control_is_heard(const char *run_id);

#endif
