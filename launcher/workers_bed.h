/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The bed of the workers' tests: one agent's host on a loop, whose workers are
 * the test program itself with a verb as its argument (workers_bed_verbs.c).
 */
#ifndef MUSTER_LAUNCHER_WORKERS_BED_H
#define MUSTER_LAUNCHER_WORKERS_BED_H

#include "base/buf.h"
#include "base/clock.h"
#include "launcher/workers.h"

struct bed {
    uv_loop_t loop;
    struct workers_host host;
    struct blanks *blanks; /* NULL: workers start plainly */
    char dir[64];
    char self[4096]; /* the program */
    struct buf printed; /* what the sink got, of all sets */
    int n_wrong_stream;
    char *fds_before;
};

/* What a test sees of one set. */
struct view {
    struct workers *set;
    int n_started, n_exits, n_gone, n_stuck;
    struct worker_survivor stuck; /* the first of those told last */
    struct worker_end ends[64];
    char text[64][300];
    char tail[64][300];
    void (*then)(struct view *v); /* from inside on_gone */
    bool stop_on_failure;
};

struct launch_args {
    unsigned n;
    const char *verb;
    int arg;
    const int *args;    /* one each instead */
    const char *program; /* instead of ourselves */
    const char *cwd;
    const char *logs_dir;
    bool hold;
    unsigned linger_ms;
};

/* From now on workers are made of blanks. */
void bed_use_blanks(struct bed *bed);
/* So many are ready; bed_start() does that by itself. */
void bed_fill(struct bed *bed, unsigned n);

/* main() of a worker. */
int bed_act(int argc, char **argv);

void bed_open(struct bed *bed);
/* Two test cases: nothing is left behind. */
void bed_close(struct bed *bed);

/* bed_try_start() returns what workers_start() does; bed_start() starts from an
 * empty view, or gives up. */
int bed_try_start(struct bed *bed, struct view *v, struct launch_args a,
                  struct error *e);
void bed_start(struct bed *bed, struct view *v, struct launch_args a);

/* How often the workers have printed `word`. */
int bed_count(const struct bed *bed, const char *word);
/* A test case: nobody is left of anything that a test started. */
void bed_check_nobody(const struct bed *bed, const char *what);

/* A timer's, that only wakes the loop. */
void bed_on_tick(uv_timer_t *t);

#define bed_turn_until(bed, cond)                               \
    do {                                                        \
        uint64_t until_ = clock_mono_ms() + 60000;              \
        uv_timer_t tick_;                                       \
        uv_timer_init(&(bed)->loop, &tick_);                    \
        uv_timer_start(&tick_, bed_on_tick, 5, 5);              \
        while (!(cond) && clock_mono_ms() < until_) {           \
            uv_run(&(bed)->loop, UV_RUN_ONCE);                  \
        }                                                       \
        uv_close((uv_handle_t *)&tick_, NULL);                  \
        uv_run(&(bed)->loop, UV_RUN_NOWAIT);                    \
    } while (0)

#endif
