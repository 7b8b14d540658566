/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What is known of a run: the lead's agent fills it, journal writes it as
 * status.json, commands read it back. Pure: no clock, no files. Times are wall
 * clock nanoseconds, 0 where not yet.
 */
#ifndef MUSTER_LAUNCHER_STATUS_H
#define MUSTER_LAUNCHER_STATUS_H

#include "base/buf.h"
#include "base/cleanup.h"
#include "base/error.h"
#include "ckpt/interval_levels.h"
#include "launcher/jsonw.h"
#include "rendezvous/avoid.h"
#include "rendezvous/exclusion.h"

#include <jansson.h>
#include <limits.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
    STATUS_VERSION = 1,
    STATUS_MAX_NODES = 65536,
    STATUS_MAX_WORKERS = 1048576,
    STATUS_MAX_METRICS = 64,
    STATUS_MAX_HELD = 4096,
    STATUS_MAX_ASKED = 16,
    STATUS_ASKED_ID_BYTES = 33,
    STATUS_MAX_LINES_BYTES = 16384,
    STATUS_MAX_JSON_BYTES = 256 << 20,
    STATUS_REFRESH_MS = 5000, /* the lead writes a status at least so often */
    STATUS_STALE_MS = 15000,  /* one older than this is shown as stale */
};

enum status_run_state {
    STATUS_CREATED,    /* the run directory is there */
    STATUS_JOINING,    /* nodes are gathering */
    STATUS_RUNNING,    /* workers run */
    STATUS_RESTARTING, /* a generation ended, the next is being prepared */
    STATUS_STOPPING,   /* workers were told to save and leave */
    STATUS_SUCCEEDED,  /* from here on: over */
    STATUS_FAILED,
    STATUS_STOPPED,    /* cancelled, preempted, deadline: resumable */
    STATUS_SUSPENDED,  /* the same, until somebody wants it to go on */
    STATUS_N_STATES,
};

enum status_node_state {
    STATUS_NODE_JOINING,
    STATUS_NODE_READY,   /* joined, workers not (yet, any more) running */
    STATUS_NODE_RUNNING,
    STATUS_NODE_SPARE,
    STATUS_NODE_LOST,
    STATUS_NODE_LEFT,    /* said goodbye */
    STATUS_NODE_EXCLUDED, /* there, and not used any more */
    STATUS_NODE_N_STATES,
};

enum status_worker_state {
    STATUS_WORKER_WAITING, /* not started in this generation */
    STATUS_WORKER_RUNNING,
    STATUS_WORKER_STOPPING,
    STATUS_WORKER_EXITED,  /* `exit_code` or `signal` says how */
    STATUS_WORKER_LOST,    /* with its node */
    STATUS_WORKER_N_STATES,
};

struct status_node {
    int rank;
    enum status_node_state state;
    int64_t agent_pid;
    int n_procs;
    char host[256];
    char why[128]; /* it is lost or excluded; "" else */
    enum exclusion excluded; /* what it is not used for any more, also while it still has
                                workers */
};

struct status_worker {
    int rank;
    int node; /* rank of the node */
    int64_t pid;
    enum status_worker_state state;
    int exit_code; /* where EXITED; 0 where a signal ended it */
    int signal;
    uint32_t slow_percent; /* its step time, of the median; 0: not slow */
    uint64_t started_ns, ended_ns;
};

struct status_metric {
    char name[65];
    double value;
    int64_t step;
    int rank;
};

struct status_failure {
    bool is_set;
    int generation;
    int rank;       /* the worker that failed first; -1: a node or none */
    int node;       /* -1 unknown */
    char host[256];
    int64_t pid;
    int exit_code;
    int signal;
    uint64_t at_ns;
    char reason[1024]; /* one line: what happened */
    char advice[512];  /* what may help, or "" */
    char error_file[512];
    char *lines;       /* its last lines of output; owned; NULL for none */
};

struct status_verdict {
    bool is_set;
    int exit_status;
    bool is_resumable;
    char reason[1024];
};

/* How often workers save, as muster has chosen, and by what: see ckpt/interval.h. */
struct status_plan {
    bool is_set;
    bool is_assumed; /* the cost: there was no save yet */
    double every_s, cost_s, mtbf_s, ran_s;
    uint64_t n_failures;
};

/* Ranks of a save that a node has in memory, and where a copy of them is. */
struct status_held {
    uint32_t first, n;
    int node;
    int copied_to; /* -1: there is none */
    bool has_parity; /* all of them */
};

/* How far a request for a checkpoint is. */
enum status_asked_state {
    STATUS_ASKED_TOLD,   /* workers were told, and have not asked */
    STATUS_ASKED_HEARD,  /* one has */
    STATUS_ASKED_SAVING, /* a save has begun since they were told */
    STATUS_ASKED_SAVED,  /* from here on: over */
    STATUS_ASKED_FAILED,
    STATUS_ASKED_REFUSED,
    STATUS_ASKED_N_STATES,
};

struct status_asked {
    char id[STATUS_ASKED_ID_BYTES]; /* whoever asks has made it */
    enum status_asked_state state;
    int generation;
    uint64_t at_ns;
    int64_t step;        /* that is saved, or was; -1 before */
    char save[64];       /* the directory that is being saved to, or "" */
    char path[PATH_MAX]; /* SAVED: the checkpoint */
    char why[256];       /* FAILED, REFUSED */
};

struct run_status {
    char id[64];
    char name[64];
    char version[64]; /* of the muster that runs it */
    char run_dir[PATH_MAX];
    char resume_path[PATH_MAX]; /* last accepted checkpoint; "" for none */
    int64_t resume_step;        /* -1 unknown */
    struct avoid avoid;         /* from which nobody starts */
    char stored_path[PATH_MAX]; /* the last one that is in checkpoint.store; or "" */
    int64_t stored_step;        /* -1 unknown */
    char storing_path[PATH_MAX]; /* on its way there, or waited for; or "" */
    uint64_t saved_ns;          /* when a checkpoint came last; 0: none did */
    bool checkpoint_is_late;    /* checkpoint.alarm */
    /* The oldest save that is on its way to the disk: its step, how many ranks have
     * written it, and how many are to; 0: there is none. */
    int64_t saving_step;
    uint32_t saving_written, saving_ranks;
    /* The newest save that nodes have in memory: its step, how many ranks it has, 0
     * where there is none, and who has them. */
    int64_t held_step;
    uint32_t held_ranks;
    struct status_held *held;   /* owned */
    size_t n_held;
    /* Requests for a checkpoint that somebody waits for, in order (launcher/asked.h). */
    struct status_asked asked[STATUS_MAX_ASKED];
    size_t n_asked;
    struct status_plan save_plan;
    unsigned levels;            /* that saves go to: 1 << enum interval_level_id */
    double took_s[INTERVAL_N_LEVELS]; /* until one was there; 0: not known */
    unsigned slower_known;      /* 1 << level: by so much steps are slower meanwhile */
    double slower[INTERVAL_N_LEVELS];
    enum status_run_state state;
    int generation;             /* 0 before the first */
    int lead;                   /* rank of the node that leads */
    int restarts, max_restarts;
    int node_failures;
    int min_nodes, max_nodes;   /* that the job needs, and may have */
    int want_nodes;             /* how many of them are to take part; 0: not
                                   known */
    int starts;                 /* of the run: 1, and one more each time that it
                                   was gone on with */
    uint64_t ran_ms;            /* in all of them together, until `updated_ns` */
    uint64_t elapsed_ms;        /* in this one; 0: not known */
    uint64_t deadline_ns;       /* when limits.deadline will have passed; 0: none */
    uint64_t time_limit_ns;     /* when the batch system ends the job; 0: not
                                   known, or never */
    uint32_t mpi_epoch;         /* the newest MPI world that a node was in */
    uint32_t mpi_lost;          /* the newest that a node has lost; 0: none */
    uint32_t mpi_late;          /* the newest that did not come in time; 0: none */
    int64_t step;               /* -1 before the first report */
    uint64_t created_ns, started_ns, updated_ns, ended_ns;
    struct status_node *nodes;  /* owned */
    size_t n_nodes;
    struct status_worker *workers; /* owned, by rank */
    size_t n_workers;
    struct status_metric metrics[STATUS_MAX_METRICS];
    size_t n_metrics;
    struct status_failure failure;
    struct status_verdict verdict;
    char trouble[256]; /* why this is not all that is known; "" for none */
};

/* An empty one; NULL without memory. The caller owns it. */
struct run_status *run_status_create(void);
void run_status_destroy(struct run_status *s);
DEFINE_CLEANUP(run_status);

/* A deep copy, or NULL without memory: what the loop thread gives the journal. */
struct run_status *run_status_copy(const struct run_status *s);

/* Makes the arrays this long; new entries are zero but for their rank. 0, or
 * -ENOMEM, -E2BIG. */
int run_status_set_nodes(struct run_status *s, size_t n);
int run_status_set_workers(struct run_status *s, size_t n);
int run_status_set_held(struct run_status *s, size_t n);

/* Takes the newest value of a metric; rank 0's are preferred over others'. One
 * that does not fit any more is left out. */
void run_status_metric(struct run_status *s, const char *name, double value,
                       int64_t step, int rank);

/* Remembers a failure's last lines (the last STATUS_MAX_LINES_BYTES). */
int run_status_set_lines(struct run_status *s, const char *lines, size_t len);

/* How long this start has run, at `now_ns`, or ran: by a clock of the lead that nobody
 * sets, and since it was told by that of the caller. */
uint64_t run_status_elapsed_ms(const struct run_status *s, uint64_t now_ns);

/* Over, with the exit status of muster (commands.h), now; `is_suspended`: one that can
 * be resumed is, until somebody wants that. */
void run_status_end(struct run_status *s, int status, bool is_suspended,
                    const char *reason);

bool status_run_is_over(enum status_run_state state);
const char *status_run_name(enum status_run_state state);
const char *status_node_name(enum status_node_state state);
const char *status_worker_name(enum status_worker_state state);
const char *status_asked_name(enum status_asked_state state);

/* As JSON, with a newline at its end; doc/formats.md has the keys. */
void run_status_to_json(const struct run_status *s, struct buf *to);

/* Reads JSON back. Unknown keys are ignored, missing ones are zero; wrong types
 * and sizes beyond the bounds are -ERR_FORMAT, a newer version -ERR_VERSION. The
 * caller owns *ret. */
int run_status_from_json(const char *json, size_t len, struct run_status **ret,
                         struct error *e);

/* Its fields, in what agents say and in status.json; and read. Unset where `o` is
 * none. */
void status_put_plan(struct jsonw *w, const struct status_plan *p);
void status_read_plan(const json_t *o, struct status_plan *ret);

/* --- status_levels.c --- */

/* One more was measured. */
void run_status_took(struct run_status *s, enum interval_level_id level,
                     double seconds);
/* What is there of the run, and what follows; nothing is there without a plan. */
void run_status_levels(const struct run_status *s, struct interval_levels_facts *f,
                       struct interval_level ret[INTERVAL_N_LEVELS]);
/* How far apart pushes to the store begin: `every_ms`, or where that is JOB_AUTO as is
 * planned; 0 without a plan. */
uint64_t run_status_store_ms(const struct run_status *s, uint64_t every_ms);
/* Some nodes are partners of each other. */
bool run_status_has_partner(const struct run_status *s);
/* The same of saves that go to that level; a save is a bit early where that is nearer to
 * the plan than the next one would be. */
uint64_t run_status_save_ms(const struct run_status *s, enum interval_level_id level,
                            uint64_t every_ms);
void status_put_levels(struct jsonw *w, const struct run_status *s);
void status_read_levels(const json_t *array, struct run_status *s);

#endif
