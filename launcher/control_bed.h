/* SPDX-License-Identifier: Apache-2.0 */
/* For the tests of requests to a run: who takes them. */
#ifndef MUSTER_LAUNCHER_CONTROL_BED_H
#define MUSTER_LAUNCHER_CONTROL_BED_H

#include "launcher/control.h"

#include <stdbool.h>
#include <uv.h>

enum { BED_WAIT_MS = 20000 };

struct seen {
    int n;
    char last[64];
    bool force;
};

/* A control_request_f whose `arg` is a struct seen; "fail" fails. */
int bed_on_request(void *arg, const char *op, const json_t *body,
                   struct jsonw *reply, struct error *e);
/* A test case. */
void bed_close_loop(uv_loop_t *loop);

#endif
