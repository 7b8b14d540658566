/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What is written down and told: when and to whom (agent_record.c), and what nodes
 * say of it (agent_record_fact.c). Private to those two. On the loop's thread.
 */
#ifndef MUSTER_LAUNCHER_AGENT_RECORD_PRIV_H
#define MUSTER_LAUNCHER_AGENT_RECORD_PRIV_H

#include "base/waker.h"
#include "ckpt/slowdown.h"
#include "launcher/agent_record.h"
#include "launcher/asked.h"
#include "launcher/journal.h"
#include "launcher/slow.h"

enum {
    MAX_EARLY = 64, /* events kept for a front end that is on its way */
};

struct record {
    struct agent *agent;
    struct journal *journal;
    struct run_status *status;
    uv_timer_t *timer;
    struct waker *word; /* the journal's thread has something to tell */
    uv_mutex_t mutex; /* guards what it tells */
    char trouble[1024];
    int written; /* the newest generation on disk; -1: none of this start */
    uv_timer_t *patience; /* with who waits for that */
    record_written_f *on_written;
    void *on_written_arg;
    bool dirty;
    bool is_over;         /* and what it took is told */
    uint64_t deadline_ms; /* on the loop's clock; 0: none */
    uint64_t limit_ms;    /* likewise, of the batch system */
    struct asked asked;
    struct slowdown slowdown; /* by saves on their way */
    struct slow *slow; /* of this generation; NULL without memory */
    uint64_t slow_ms;  /* the last look at it */
    uint64_t until_ms; /* another may lead from then on, on the loop's clock */
    bool keeps_early;  /* the front end of the lead before is looked for */
    struct buf early[MAX_EARLY];
    size_t n_early;
};

#endif
