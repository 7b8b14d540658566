/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the parts of the front end share. Private to front*.c.
 *
 *   front.c          life; what time makes of it
 *   front_end.c      the verdict, and how long it takes until all is gone
 *   front_request.c  what the user wants, by signals and commands
 *   front_output.c   what workers print, and who is slow to read it
 *   front_lead.c     the link to the lead
 *   front_mpirun.c   mpirun, again and again: one MPI world each
 *   front_late.c     one that makes no MPI world in time
 *   front_hosts.c    which hosts are there
 *   front_ask.c      asking hosts that are not
 *   front_reach.c    which hosts the next world is made of
 *   front_grow.c     hosts that are wanted and not there
 *   front_hung.c     hosts at which mpirun hangs, or fails
 *   front_failed.c   an mpirun that ends without an MPI world
 *   front_step.c     Slurm: the step that the agents live in
 *   front_requeue.c  Slurm: the job is put back into the queue
 *   front_attach.c   taking over from a front end that is gone
 *   front_old.c      the mpirun that it has left
 */
#ifndef MUSTER_LAUNCHER_FRONT_PRIV_H
#define MUSTER_LAUNCHER_FRONT_PRIV_H

#include "launcher/front.h"

#include "base/buf.h"
#include "base/channel.h"
#include "base/child.h"
#include "base/error.h"
#include "base/link.h"
#include "base/proc.h"
#include "launcher/agent_step.h"
#include "launcher/control.h"
#include "launcher/screen.h"
#include "launcher/slurm_ask.h"
#include "launcher/writer.h"

#include <jansson.h>
#include <limits.h>
#include <sys/types.h>
#include <uv.h>

enum {
    FRONT_LEAD_END_MS = 45000,  /* for the lead to deliver what it has */
    FRONT_SAVE_END_MS = 1260000, /* likewise, to the disk, and into checkpoint.store */
    FRONT_MPIRUN_END_MS = 5000, /* for mpirun to go by itself after that */
};

struct attach_request;

/* A host of the run, in the order in which they were given. */
struct reach_host {
    bool is_out;     /* not in the next world */
    bool is_asked;   /* by the question that is out */
    bool came_later; /* it was not in the first world */
    uint64_t answered_ms;
    bool is_tried;   /* it is asked by an mpirun of its own */
    uint64_t again_ms, pause_ms; /* it is not asked before that; the last pause */
    unsigned n_hung;   /* worlds in a row that were late for it, or failed ... */
    bool fails;        /* ... as the last one did */
    unsigned n_failed; /* the same, of worlds that were made to have it back */
    unsigned n_blamed; /* how often it was left out for that, in a row */
    uint64_t told_ms;  /* the lead was told of that */
    char name[HOSTS_NAME_BYTES]; /* as it calls itself, once it has answered */
};

struct front_reach {
    pid_t pid;  /* of muster reach; 0: none */
    int answer; /* what it has printed */
    bool is_for_world; /* which waits for it */
    bool is_suspect;   /* a world was late, or has failed, nothing tells for whom, ... */
    bool has_failed;   /* ... and it is the latter */
    bool is_trial;     /* ... which is asked for */
    struct reach_host *hosts;
    char path[PATH_MAX]; /* of the list for mpirun */
    struct host_list world; /* the hosts of the newest one ... */
    unsigned n_agents;      /* ... and its agents */
    size_t n_missing;    /* as it was told last */
};

enum front_phase {
    FRONT_STARTING, /* the lead has not connected yet */
    FRONT_RUNNING,
    FRONT_OVER,     /* the verdict is known: mpirun has to go */
};

struct front {
    const struct front_config *config;
    uv_loop_t loop;
    uv_timer_t tick;
    uv_signal_t signals[6];
    struct child_table *children;
    struct screen *screen;
    struct control_server *control; /* or NULL */
    enum front_phase phase;
    pid_t starter;         /* by hand: muster-mpi, whose child this is */
    uint64_t started_ms;   /* the run; may be before this host was up: only differences
                              count */
    bool is_timed;         /* that is as its lead says, not as its record does */
    int nth_start;         /* of the run; a verdict of one before is not ours */
    unsigned n_ticks;
    unsigned n_signals;
    bool was_noticed;      /* by any of them that the run is to stop */

    int status;            /* the verdict, with `reason` */
    char reason[1024];     /* before it: why the lead has gone */
    uint64_t over_ms;      /* since when only mpirun is waited for */
    bool in_order;         /* the lead itself gave the verdict */
    bool lost_node;        /* it says that it has lost one */
    uint64_t leaves_ms;    /* since when who reads has little time left; 0: any time */
    bool skips_store;      /* the lead was told not to wait for checkpoint.store */
    bool is_ending;        /* only that is left */
    bool has_left;         /* the run goes on, or may do so, without us */

    struct writer *writer;
    size_t n_owed;         /* bytes of output without credit for them yet */
    bool told_unread;

    struct link_listener *listener;
    struct link *lead;
    uint32_t lead_rank;    /* who that is, or was ... */
    uint32_t lead_view;    /* ... in this view */
    struct buf run_bytes;  /* the run's configuration, encoded */
    bool began;            /* the lead has connected once */
    uint64_t heard_ms;     /* from the lead, the last time */
    struct {               /* of it, the last time: "" for nothing yet */
        char op[16];
        bool force;
        int64_t n_nodes;
        char id[STATUS_ASKED_ID_BYTES];
        uint64_t ms;
    } asked;
    uint64_t ticked_ms;
    uint64_t lead_gone_ms; /* since when; 0 while it is there */
    bool told_no_lead;     /* for so long that the user was told */

    pid_t mpirun_pid;      /* -1 while none runs */
    uint64_t mpirun_at_ms; /* when it was started */
    uint64_t epoch;
    unsigned n_repeats;
    uint64_t repeat_at_ms; /* 0: no need */
    uint64_t end_mpirun_at_ms; /* its world is lost; 0: it is not */
    bool is_short;         /* a node was lost since it was made */
    uint64_t joined_epoch; /* the newest world that a node is known to be in */
    uint64_t late_ms;      /* so long mpirun has had for its own */
    uint64_t late_seen_ms; /* until then that was counted */
    unsigned n_late;       /* in a row that had not made one in time */
    unsigned n_failed;     /* in a row that have ended without one */
    uint64_t failed_ms;    /* hosts were to be tried for that, the last time; or 0 */
    size_t log_from;       /* where in mpirun.log its words begin */
    struct front_reach *reach;
    char log_path[PATH_MAX];

    struct slurm_ask slurm;  /* of front_requeue.c */
    struct agent_step *step; /* or NULL */
    struct agent_step_config step_config;
    char step_log[PATH_MAX];
    char step_nodes[PATH_MAX];
    bool is_kept;          /* agents live in that step */

    struct attach_request *request; /* to the lead; or NULL */
    uint64_t attach_ms;    /* since when the lead is waited for */
    uint64_t asked_ms;     /* when it was asked last */
    bool asked_by_file;
    char refused[256];     /* the last answer that was a no */
    struct proc old_mpirun; /* of the front end before, here; pid 0: none */
    uint64_t end_old_at_ms; /* its world is lost; 0: it is not */
    uint64_t old_killed_at_ms; /* 0: it was not */
    bool old_is_elsewhere; /* and was not asked to end yet */
    pid_t old_ender;       /* who does that; -1 while nobody does */
    uint64_t old_ender_until_ms;
    bool told_no_mpirun;
};

static inline uint64_t front_now_ms(const struct front *f)
{
    return uv_now(&f->loop);
}

/* --- front_end.c --- */

/* The verdict; the first one stands. */
void front_settle(struct front *f, int status, const char *reason);
/* The run is left alone: `text` is the last word, and `status` that of the
 * command. mpirun and what else belongs to the run stays. */
void front_leave(struct front *f, int status, const char *text);
/* By the record of the run, where the lead may have ended in order while nobody
 * here could hear it. False if it has not. */
bool front_settle_from_record(struct front *f);
/* The lead takes a checkpoint to a store, or waits to. */
/* The lead, which is there, says that checkpoints are on their way. */
bool front_is_storing(const struct front *f);
bool front_is_saving(const struct front *f);
/* Stops the loop once there is a verdict and all that belongs to the run has
 * gone; what is late is killed. */
void front_finish_if_done(struct front *f);
/* Writes status.json, where no lead did. */
void front_record_end(struct front *f);
/* The last lines on the screen: returns when they are read. */
void front_say_end(struct front *f);

/* --- front_request.c --- */

/* Asks the lead; where there is none, or it is lost before it can have heard, the one
 * that comes next. */
void front_send_request(struct front *f, const char *op, bool force);
/* A lead has come; that before was heard last then. */
void front_ask_again(struct front *f, uint64_t heard_ms);
void front_on_signal(uv_signal_t *s, int sig);
/* From now on commands on this host can ask it. */
void front_take_commands(struct front *f);

/* --- front_output.c --- */

void front_take_output(struct front *f, const struct channel_frame *frame);
/* For output that has been read since, or nearly. */
void front_give_credit(struct front *f);
/* The writer has room again; `arg` is the front end. */
void front_on_room(void *arg);
/* Says once that standard output fails. */
void front_tell_unread(struct front *f);
/* Until everything is read; for two seconds, where it hurries. */
void front_drain_output(struct front *f);
/* There is perhaps nobody left who reads: the run is left, or a signal says so. */
void front_hurry(struct front *f);

/* --- front_lead.c --- */

/* Encodes what the lead gets as the first thing. */
int front_encode_run(struct front *f, struct error *e);
/* What the lead says. */
void front_take_frame(struct front *f, const struct channel_frame *frame);
/* A link that shows the key; `ctx` is the front end. */
void front_on_peer(struct link *l, const struct channel_frame *first,
                   void *ctx);
void front_beat(struct front *f);
/* Whether it is silent, or gone for too long: call it at every tick. */
void front_check_lead(struct front *f);

/* --- front_mpirun.c --- */

int front_start_mpirun(struct front *f, struct error *e);
/* Where this front end listens, see addr_ways_print(). */
int front_address(const struct front *f, struct buf *to, struct error *e);
/* Writes down what a next front end has to know. */
int front_save(const struct front *f, struct error *e);
/* There is no MPI world: make a new one, soon, or later where that was done often.
 * `why` is told. */
void front_remake_world(struct front *f, uint64_t after_ms, const char *why);
/* The lead says that a node has left the MPI world of `epoch`. */
void front_on_mpi_lost(struct front *f, uint64_t epoch);
/* An event of the run: the loss of a node, with which the run goes on, makes a new
 * world needed. */
void front_see_loss(struct front *f, const char *event);
/* The hosts for that are known now. */
void front_repeat_mpirun(struct front *f);
/* Ends a world that is lost, makes the next one: call it at every tick. */
void front_tick_mpirun(struct front *f);
/* `waited` milliseconds after the end. */
bool front_mpirun_is_gone(struct front *f, uint64_t waited);
void front_show_mpirun_log(struct front *f);

/* --- front_late.c --- */

/* A node is in the MPI world of `epoch`. */
void front_see_joined(struct front *f, uint64_t epoch);
/* mpirun was started. */
void front_late_begin(struct front *f);
/* Gives it up where its time is over: call it at every tick. */
void front_tick_late(struct front *f);

/* --- front_gather.c --- */

/* Hosts of the newest world of whose muster-mpi nothing was heard, some by name; how
 * many they are. */
size_t front_name_unheard(const struct front *f, struct buf *names);
/* The same, by host of the run. */
size_t front_find_unheard(const struct front *f, bool *unheard);

/* Why the lead has not come in time. */
void front_word_late(const struct front *f, char *to, size_t size);

/* --- front_hosts.c --- */

/* How many a host has in a plan: those of one host follow each other. */
unsigned front_agents_of(const struct mpirun_plan *plan, size_t host);
/* What a host calls itself, which may be another name than it was given by; NULL
 * if that is not known. */
const char *front_host_name(const struct front *f, const struct run_status *s,
                            size_t host);
/* Not all agents of it live, or it hangs: a world is made with it to have it back. */
bool front_is_newcomer(const struct front *f, size_t host);
/* How many hosts there are that take part, or may. */
size_t front_count_hosts(struct front *f);

/* --- front_ask.c --- */

/* Those that `is_asked`, in one question; comes to front_on_asked(). */
int front_ask_hosts(struct front *f, struct error *e);
/* What they have answered: these are in, and not asked any more. */
void front_read_answer(struct front *f);

/* --- front_reach.c --- */

void front_on_asked(void *arg, const struct child_exit *how);

/* Before anything else here; those that are absent are not in the first world.
 * 0 or -ENOMEM. */
int front_know_hosts(struct front *f, const bool *absent);
/* Asks hosts that are not there, unless it is too soon for all of them; comes to
 * front_take_newcomers(), from inside this call where only this machine is due. True:
 * they are being asked. */
bool front_look_for_hosts(struct front *f);
/* Whether hosts have just answered, and which; `names` may be NULL. */
bool front_has_newcomers(struct front *f, struct buf *names);

/* Comes to front_repeat_mpirun(), now or soon. */
void front_choose_hosts(struct front *f);
/* Leaves those out of `plan` that were lost and do not answer. */
int front_plan_world(struct front *f, struct mpirun_plan *plan,
                     struct error *e);
/* Ends what still asks; true once it is gone. */
bool front_reach_is_gone(struct front *f);
void front_forget_reach(struct front *f);

/* --- front_grow.c --- */

/* Looks for hosts that are wanted and not there: call it at every tick. */
void front_tick_grow(struct front *f);
/* Some may have answered. */
void front_take_newcomers(struct front *f);

/* --- front_hung.c --- */

/* The lead has excluded it for that. */
bool front_host_hangs(const struct front *f, size_t host);
/* The newest world is late: by whom is found out, and told. */
void front_blame_late(struct front *f);
/* Whether it was made for newcomers. They are left alone for a while, those at least to
 * which it has happened `times` times in a row. */
bool front_blame_newcomers(struct front *f, unsigned times);
/* Whether hosts are to be tried before there is another one; marks them. */
bool front_choose_suspects(struct front *f);
/* They have answered, or not; another world is made then. */
void front_judge_trial(struct front *f);
/* Whether one of them takes part until the next generation. */
bool front_awaits_exclusion(struct front *f);
/* The newest world is there. */
void front_clear_hung(struct front *f);
/* A command wants more: no pause counts. */
void front_ask_at_once(struct front *f);

/* --- front_failed.c --- */

/* mpirun has ended. */
void front_see_failed(struct front *f);

/* --- front_step.c --- */

/* Starts mpirun as soon as the step is there, or is known not to come. */
int front_start_step(struct front *f, struct error *e);
/* `waited` milliseconds after the end. */
bool front_step_is_gone(struct front *f, uint64_t waited);

/* --- front_requeue.c --- */

/* After the last words, where the job asks for it. Blocks, and what it does may
 * end this process. */
void front_requeue(struct front *f);

/* --- front_attach.c --- */

/* Begins to ask the lead to come here. */
int front_attach_start(struct front *f, struct error *e);
/* It has come. */
void front_attach_done(struct front *f);
/* Call it at every tick. */
void front_attach_tick(struct front *f);
/* What the lead says of the run. */
void front_attach_see(struct front *f, const struct run_status *s);
/* Forgets a request that nobody has taken. */
void front_attach_drop(struct front *f);
/* What the lead says of MPI worlds, which others may have made. */
void front_see_world(struct front *f, const struct run_status *s);

/* --- front_old.c --- */

/* Looks for it. */
void front_old_find(struct front *f);
/* It is of no use any more, and has to end: by itself, within that time. */
void front_old_end(struct front *f, uint64_t wait_ms);
/* Call it at every tick. */
void front_old_tick(struct front *f);
/* At the end: signals it with `sig`, unless that is 0 or it has gone. */
bool front_old_is_gone(struct front *f, int sig);
/* On this host, and it has been told: the record has room for one, so the next is
 * not started before this one is gone. */
bool front_old_is_ending(const struct front *f);

#endif
