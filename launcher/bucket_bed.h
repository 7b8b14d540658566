/* SPDX-License-Identifier: Apache-2.0 */
/*
 * An agent that leads a run with checkpoint.store. The clock, what is due, and whoever is to
 * push or pull, are the linker's hand: the test is linked with --wrap, see Makefile.am.inc,
 * and what is said to all of them is put down here.
 */
#ifndef MUSTER_LAUNCHER_BUCKET_BED_H
#define MUSTER_LAUNCHER_BUCKET_BED_H

#include "launcher/agent_bucket.h"
#include "launcher/ckpt_child.h"
#include "launcher/last_wait.h"

enum { BUCKET_EVERY_MS = 60000, BUCKET_LONG_MS = 3600000 };

#define BUCKET_URI "s3://bucket/x"
#define BUCKET_PUSH "muster ckpt push --output=json -- "
#define BUCKET_LOOK "muster ckpt push --newer --output=json -- "
#define BUCKET_PULL "muster ckpt pull --newer --output=json -- " BUCKET_URI " "

/* Of which there is one at a time. */
struct ckpt_child {
    ckpt_child_f *on_end;
    void *arg;
};

struct last_wait {
    last_wait_f *say;
    void *arg;
};

struct bucket_bed {
    struct agent agent;
    struct lead_bucket *bucket;
    uint64_t now_ms;
    bool is_refused; /* no child can be started */
    /* What is to come. */
    uv_timer_cb due; /* of the timer; NULL: it is not set */
    uv_timer_t *timer;
    uint64_t due_ms;
    struct ckpt_child child;
    struct last_wait wait;
    /* What it did. */
    int n_started, n_stopped; /* children */
    char argv[1024];          /* of the last one */
    uint64_t child_ms;        /* that it may take */
    bool waits;
    uint64_t limit_ms, shortened_ms; /* for as long as that, or that */
    struct run_status status;
    int n_touched;
    bool is_busy;
    char storing[1024];
    int n_events;
    char event[2048]; /* said last */
    int n_fetched, n_stored, n_finished;
    char fetched[1024];
    int64_t fetched_step;
    char stored[1024]; /* the path, the save, and why not */
    int error;
};

/* Of the test, which defines it: the linker's hand knows no other one. */
extern struct bucket_bed bucket_bed;

/* A job that has its checkpoints in /ck. */
void bucket_bed_open(struct bucket_bed *b);
void bucket_bed_close(struct bucket_bed *b);
/* Another one, of the same job. */
void bucket_bed_again(struct bucket_bed *b);

/* Milliseconds until something is due; -1: nothing is. */
int bucket_bed_due_in(const struct bucket_bed *b);
/* Its time has come. */
void bucket_bed_turn(struct bucket_bed *b);
/* One is saved, and on its way. */
void bucket_bed_push(struct bucket_bed *b, const char *path);
/* The child comes to its end, after three seconds: it has printed that, ... */
void bucket_bed_end(struct bucket_bed *b, const char *out);
/* ... or finds the store shut. */
void bucket_bed_fail(struct bucket_bed *b, bool may_pass);
/* It has been waited for that long. */
void bucket_bed_wait(struct bucket_bed *b, const char *span, bool is_late);

#endif
