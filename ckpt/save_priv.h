/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A `struct muster_ckpt`, and the ways in which a save leaves the process. Private to
 * the parts of the C API:
 *
 *   ckpt_api.c      the public calls
 *   ckpt_due.c      whether a save is due
 *   ckpt_open.c     opening, closing, and how all ranks meet
 *   ckpt_tables.c   what all ranks have, and who writes what
 *   ckpt_differ.c   what is not the same on all ranks, and should be
 *   ckpt_alike.c    what ranks have alike, and is not the same
 *   ckpt_check.c    what is changed while it is copied
 *   ckpt_saving.c   what one rank puts of a save
 *   ckpt_save.c     a save, all ranks together
 *   ckpt_lazy.c     one that goes on behind the caller's back, up to the fence
 *   save_direct.c   written by the ranks themselves
 *   save_agent.c    handed to the agents of the ranks
 *   save_ahead.c    the memory of the second save is mapped before that comes
 *   ckpt_choose.c   choosing a checkpoint together
 *   ckpt_load.c     loading it
 *   ckpt_map.c      mapping what one has
 */
#ifndef MUSTER_CKPT_SAVE_PRIV_H
#define MUSTER_CKPT_SAVE_PRIV_H

#include "base/cleanup.h"
#include "base/errand.h"
#include "base/error.h"
#include "ckpt/gather.h"
#include "ckpt/group.h"
#include "ckpt/image.h"
#include "ckpt/keep.h"
#include "ckpt/load.h"
#include "ckpt/part.h"
#include "ckpt/registry.h"
#include "ckpt/share.h"
#include "comm/client.h"
#include "muster_ckpt.h"

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#define PUBLIC __attribute__((visibility("default")))

/* One rank's part of a save. */
struct save_job {
    struct io *io;
    int root;              /* the directory of checkpoints, and its path */
    const char *root_path; /* absolute */
    uint32_t rank;
    struct gather gather;  /* step, uuid, generation, token, ranks */
    const struct image *image;
    const struct part *part; /* all but its file's digests */
    uint64_t plan;         /* saves of one have the same pieces in the same places */
    unsigned n_threads;
    unsigned flags;        /* of muster_ckpt_save() */
    bool may_stay;         /* in memory of the node, by what the job says */
    bool is_chosen;        /* it was muster that found it due, and nobody else */
};

/* A way to save. Calls come in this order: reserve on every rank; if all could, put,
 * send and hand on every rank; if all could, commit on rank 0. If anything failed
 * anywhere, abort on every rank, else done. Between them all ranks hear how it went
 * for all. Where commit has succeeded and a rank cannot be heard of afterwards, done
 * is called. All but put and send come from the thread that saves. 0 or a negative code. */
struct save_ops {
    /* Room for the image and its part; on rank 0 also what is made once. */
    int (*reserve)(void *self, const struct save_job *job, struct error *e);
    /* Takes image and part: registered memory may change when it has returned. From
     * any thread, while nothing else but help is called. */
    int (*put)(void *self, const struct save_job *job, struct error *e);
    /* Takes a share of put's work, while another thread is at it. NULL: it cannot
     * be shared. */
    void (*help)(void *self, unsigned n_threads);
    /* Gives away what was put, and waits for nothing: from any thread, while help and
     * whatever else uses the connection may be called. NULL: nobody else is told. */
    int (*send)(void *self, const struct save_job *job, struct error *e);
    /* Who was told has it when this returns. NULL where send is. */
    int (*hand)(void *self, const struct save_job *job, struct error *e);
    /* NULL: somebody else commits, when it has all of it. */
    int (*commit)(void *self, const struct save_job *job, struct error *e);
    void (*abort)(void *self, const struct save_job *job);
    /* It went well everywhere. */
    void (*done)(void *self, const struct save_job *job);
    /* How far the save of that uuid is: 1, 0, or what it failed of; with
     * `timeout_ms` it waits, for ever if negative. */
    int (*reached)(void *self, const char *uuid, enum muster_ckpt_level level,
                   int64_t timeout_ms, struct error *e);
    /* It stays in memory, and nobody writes it. NULL: that never is. */
    bool (*stays)(void *self, const char *uuid);
    void (*destroy)(void *self);
};

struct save_way {
    const struct save_ops *ops; /* NULL: there is no such way */
    void *self;
};

/* By the ranks themselves: durable when commit returns. 0 or -ENOMEM. */
int save_direct_create(struct save_way *ret);

/* Through the agent of a worker, which commits, too. No way (and 0) without an
 * agent; -ENOMEM. */
int save_agent_create(struct muster *m, struct save_way *ret,
                      struct load_source *ret_source);
/* `step` is about to be loaded: the agent is asked what it holds of it, as that is needed
 * (struct load_source). */
void save_agent_look(void *self, const struct step *step);
/* It was loaded: nothing of the agent's stays mapped. */
void save_agent_looked(void *self);
/* A file of that checkpoint that this rank has saved, and this node's agent has in
 * memory, behind SNAP_PAGE_BYTES: to be read. A descriptor, or -ENOENT. */
int save_agent_open(void *self, uint32_t rank, const struct step *step, uint32_t file);
/* What all handles of the connection have mapped (ckpt/view.h). */
struct client_place *save_agent_place(void *self);

enum { CKPT_N_RECENT = 64 };

/* A save of which may be asked. */
struct recent {
    uint64_t number;
    char uuid[COMMIT_UUID_BYTES];
    const struct save_way *way;
    struct error why; /* a lazy one that failed; code 0: it has not */
};

/* What one rank puts of a save, from its planning to its end. */
struct saving {
    struct part table; /* what is registered here */
    uint64_t n_calls;  /* of the registry, when that was made */
    bool is_as_before; /* the table is that of the save before: all that it points to is
                          where it was */
    struct part part;  /* what of it is written here; borrows */
    struct part_piece *part_pieces;
    struct image_piece *pieces;
    char **keys;
    size_t n;
    uint64_t plan;     /* its number */
    struct image image;
    struct save_job job; /* points into the others */
    const struct save_way *way;
    int64_t held_up_ns; /* the caller, so far */
    uint64_t *sums;     /* owned: of what is registered; NULL: not to be checked */

    /* A lazy one's. */
    uint64_t number;
    pid_t pid;         /* who copies; a child that was forked since does not */
    bool is_behind;    /* a thread does it */
    _Atomic bool is_put; /* and has, all but */
    bool is_sent, is_handed, is_checked;
    int rc;            /* of put, of send, and then of hand */
    struct error error;
};

/* Where the job leaves it to muster when to save. */
struct ckpt_auto {
    bool is_on;
    int64_t opened_ns;
    double ran_s;        /* the run, before that */
    uint32_t n_failures;
    double cost_s;       /* of a save, newer ones count for more; 0: none yet */
    bool is_told;        /* what muster status shows of it ... */
    int64_t told_ns;     /* ... was told then; 0: never */
};

/* Which checkpoints count. Those that are avoided (ckpt/avoided.h) have their turn when
 * there is no other one. */
enum ckpt_choice { CKPT_ALL = 0, CKPT_NOT_AVOIDED, CKPT_ONLY_AVOIDED };

struct muster_ckpt {
    struct muster *m; /* borrowed; may be NULL */
    struct group group;
    pid_t pid; /* who has opened it: with others, whom a child of it is not known to */
    struct io *io;
    int root; /* -1: not open */
    bool root_is_borrowed;
    char *root_path;
    const char *avoided; /* MUSTER_AVOID_PATHS, borrowed from the environment; NULL */
    enum ckpt_choice choice; /* of the choice that is being made */
    struct muster_ckpt_options options; /* of any size; keep_best NULL, it is in keep */
    struct ckpt_keep keep;
    struct registry registry;
    struct save_way direct;
    struct save_way agent; /* asked first, where there is one */

    /* Who writes what, as long as no rank's table changes. */
    uint64_t table_digest;
    uint64_t table_changes; /* of the registry, when it was made */
    bool has_shares;
    struct share *shares;
    size_t n_shares;
    struct share_sum sum;

    struct saving *lazy; /* owned; NULL: none is under way */
    struct errand *copier; /* of lazy saves; NULL: there was none yet */
    struct saving *planned; /* owned: the save before; NULL: by other shares */
    uint64_t n_saves, n_plans;
    struct recent recent[CKPT_N_RECENT]; /* by number */
    struct load load; /* of the last read(); load.index NULL: none */
    bool has_read; /* blobs of that: the next load of its step begins with it */
    int n_newer;   /* damaged ones of its step, and what is wrong with them */
    struct error newer;
    struct load_source source; /* file NULL: none */
    struct client_place views; /* without an agent, which has them else */

    int64_t last_save_ns; /* by this rank's clock; due() uses that of rank 0 */
    struct ckpt_auto automatic;
    uint32_t n_requests; /* that this rank has seen, and ... */
    uint32_t n_answered; /* ... that all ranks were told of */
    bool is_stopping;
    int reasons;         /* of the last due() that found some, until a save */
    bool is_checking; /* MUSTER_CKPT_CHECK */
    int n_passed;        /* damaged ones that the last load or latest passed over, */
    struct error passed; /* and what was wrong with them */
    bool has_told_best;  /* that no checkpoint has the metric of the best, */
    struct error note;   /* which the next save or fence that goes well says; text "": nothing */
    struct error error;
};

/* What all ranks tell each other first in every call that they make together. */
enum ckpt_call { CALL_OPEN = 1, CALL_DUE, CALL_SAVE, CALL_LATEST, CALL_LOAD };
struct opening {
    uint32_t call, flags;
    int64_t step;
    int32_t rc;           /* what this rank failed of already */
    int32_t reasons;      /* of due() */
    uint32_t n_requests;  /* likewise */
    uint32_t is_checking; /* of save() */
    uint32_t has_any;     /* likewise: something is registered here */
    uint64_t table, common; /* of save(): digests */
    char uuid[COMMIT_UUID_BYTES]; /* rank 0's */
    char text[300];
};

/* Exchanges it; *ret_all, which the caller frees, has all of them. Fails on all
 * ranks with the first that has failed, or where they make different calls. */
int ckpt_meet(struct muster_ckpt *ck, struct opening *mine, int rc,
              struct opening **ret_all, struct error *e);

/* What is at the path of the directory by now is its directory from here on; what was open
 * of another one is closed. -ESTALE: there is none. No lazy save is under way. */
int ckpt_find_root(struct muster_ckpt *ck, struct error *e);

/* After a save that went well: what there is to say of it is the text of its error. */
void ckpt_say_note(struct muster_ckpt *ck);

/* A random uuid. */
int ckpt_make_uuid(char to[COMMIT_UUID_BYTES], struct error *e);

/* With an io of tests, and a root that is open; `options` may be NULL. */
int ckpt_create(struct muster *m, const struct muster_ckpt_group *group,
                struct io *io, int root, const char *root_path,
                const struct muster_ckpt_options *options,
                struct muster_ckpt **ret);

/* Makes ck->shares true for the tables of all, of which this rank's is `table`; `all`
 * says whether they are as they were. On all ranks together. */
int ckpt_share(struct muster_ckpt *ck, const struct opening *all,
               const struct part *table, struct error *e);

/* Blobs of rank 0 and of that one, which is another, are not the same: finds out which, on
 * all ranks together. Always fails, with -EINVAL if not for another reason. */
int ckpt_differ(struct muster_ckpt *ck, uint32_t rank, struct error *e);

/* What the job says, where the program says nothing. 0 or a negative code. */
int ckpt_due_open(struct muster_ckpt *ck, struct error *e);
int ckpt_due_all(struct muster_ckpt *ck, int64_t step);
/* Of a save that begins: whether it may stay in memory, see struct save_job. On all ranks
 * alike. */
void ckpt_due_begins(struct muster_ckpt *ck, struct save_job *job);
/* A save has held this rank up for so long. */
void ckpt_due_saved(struct muster_ckpt *ck, double cost_s);

/* What is registered: the table of the save before, where nothing has been registered
 * since. 0, and errors of registry_table(). */
int saving_list(struct muster_ckpt *ck, struct saving *s, struct error *e);
/* The pieces that this rank writes by ck->shares, and their places in its file. */
int saving_plan(struct muster_ckpt *ck, const struct opening *first,
                     struct saving *s, struct error *e);
/* The same, from what was kept of the save before, where that had the same tables on
 * all ranks. False: it has to be planned. */
bool saving_plan_again(struct muster_ckpt *ck, const struct opening *first,
                       struct saving *s);
/* Takes `s`, which is over. What it points to is looked at again only where nothing was
 * registered since (registry.h, n_calls), or after it was planned again. */
void saving_keep_plan(struct muster_ckpt *ck, struct saving *s);
void saving_forget_plan(struct muster_ckpt *ck);
void saving_destroy(struct saving *s);
DEFINE_CLEANUP(saving);

/* Together: what was put everywhere becomes a checkpoint, or is given up. */
int ckpt_save_end(struct muster_ckpt *ck, const struct saving *s,
                  struct error *e);
/* Gives a save its number. */
struct recent *ckpt_number(struct muster_ckpt *ck, const struct saving *s);

/* --- ckpt_check.c --- */

/* Tells of what was put; waits until that is taken. Once each, where all went well so far. */
void saving_send(struct saving *s);
void saving_hand(struct saving *s);

bool ckpt_check_is_on(void);
/* A digest of each piece that is registered, however it lies, to be freed. 0, -ENOMEM, or
 * -EREMOTEIO of a GPU. */
int ckpt_sum_memory(const struct muster_ckpt *ck, const struct saving *s, uint64_t **ret,
                    struct error *e);
/* Before what is registered is copied. Fails as that. */
int ckpt_note_memory(const struct muster_ckpt *ck, struct saving *s, struct error *e);
/* And behind it. -EINVAL: it has been changed meanwhile; 0 also where it was not
 * noted. */
int ckpt_check_memory(const struct muster_ckpt *ck, const struct saving *s,
                      struct error *e);

/* Together: what several ranks have of a tensor alike is the same. -EINVAL: it is not. */
int ckpt_check_alike(struct muster_ckpt *ck, const struct saving *s, struct error *e);

/* Takes `s` over, of which all is reserved. */
void ckpt_lazy_begin(struct muster_ckpt *ck, struct saving *s);
/* Registered memory may change when this returns. Not together. */
void ckpt_lazy_await(struct muster_ckpt *ck);
/* Another handle is about to ask the agent for memory: what others of the connection have
 * on its way is handed over first, as the agent gives what is not done to who asks. */
void ckpt_lazy_await_others(struct muster_ckpt *ck);
/* Together: the end of the lazy save, if there is one. */
int ckpt_lazy_end(struct muster_ckpt *ck, struct error *e);
/* Without the others: what of it is not theirs, too, is given up. */
void ckpt_lazy_close(struct muster_ckpt *ck);

/* How far a save has come; see muster_ckpt_test(). */
int ckpt_reached(struct muster_ckpt *ck, const struct recent *r,
                 enum muster_ckpt_level level, int64_t timeout_ms,
                 struct error *e);
/* The same for MUSTER_CKPT_REMOTE. */
int ckpt_reached_store(struct muster_ckpt *ck, const struct recent *r,
                       int64_t timeout_ms, struct error *e);

/* -ESTALE, with the save that went there instead of `r`. */
int ckpt_passed_over(struct muster_ckpt *ck, const struct recent *r,
                     enum muster_ckpt_level level, struct error *e);

int ckpt_save_all(struct muster_ckpt *ck, int64_t step, unsigned flags,
                  uint64_t *ret_save);
int ckpt_latest_all(struct muster_ckpt *ck, int64_t below, int64_t *ret_step);
int ckpt_load_all(struct muster_ckpt *ck, int64_t step, unsigned flags,
                  int64_t *ret_step);
int ckpt_read_one(struct muster_ckpt *ck, int64_t step,
                  const struct muster_ckpt_tensor *box);
/* That checkpoint is in ck->load. */
int ckpt_open_step(struct muster_ckpt *ck, int64_t step, struct error *e);
int ckpt_map_one(struct muster_ckpt *ck, int64_t step,
                 const struct muster_ckpt_tensor *box, unsigned flags,
                 struct muster_ckpt_view **ret);
int ckpt_read_blob_one(struct muster_ckpt *ck, int64_t step, const char *name,
                       void *to, size_t size, size_t *ret_len);

#endif
