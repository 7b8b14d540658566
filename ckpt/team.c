/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "ckpt/team.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

struct team {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    int world;
    bool in_turns;
    int n_left;   /* bodies that have returned */
    int n_come;   /* to the meeting that is now */
    uint64_t n_meetings;
    int turn;     /* who may run, in turns */
    bool is_here[TEAM_MAX];
    bool has_left[TEAM_MAX];
    const void *mine[TEAM_MAX];
    int n_taken;  /* who have all of the last meeting */
    void (*body)(void *, const struct muster_ckpt_group *);
    void *arg;
};

struct member {
    struct team *team;
    int rank;
};

/* The next who runs: who is not in a meeting, and has not left. */
static void pass_on(struct team *t)
{
    for (int i = 0; i < t->world; i++) {
        t->turn = (t->turn + 1) % t->world;
        if (!t->is_here[t->turn] && !t->has_left[t->turn]) {
            break;
        }
    }
    pthread_cond_broadcast(&t->changed);
}

static void await_turn(struct member *m)
{
    struct team *t = m->team;

    while (t->in_turns && t->turn != m->rank) {
        if (t->has_left[t->turn]) {
            pass_on(t);
        } else {
            pthread_cond_wait(&t->changed, &t->lock);
        }
    }
}

/* All are here, or nobody will be. */
static void end_meeting(struct team *t)
{
    t->n_meetings++;
    t->n_taken = 0;
    pthread_cond_broadcast(&t->changed);
}

static int meet(struct member *m, const void *mine, void *all, size_t len)
{
    struct team *t = m->team;
    uint64_t meeting = t->n_meetings;

    if (t->n_left > 0) {
        return -ECONNABORTED;
    }
    t->mine[m->rank] = mine;
    t->is_here[m->rank] = true;
    if (++t->n_come == t->world) {
        end_meeting(t);
    } else {
        pass_on(t);
    }
    while (t->n_meetings == meeting && t->n_left == 0) {
        pthread_cond_wait(&t->changed, &t->lock);
    }
    if (t->n_meetings == meeting) {
        t->is_here[m->rank] = false;
        t->n_come--;
        return -ECONNABORTED;
    }
    for (int r = 0; r < t->world; r++) {
        memcpy((char *)all + (size_t)r * len, t->mine[r], len);
    }
    /* What was given is the others' until all have it. */
    if (++t->n_taken == t->world) {
        memset(t->is_here, 0, sizeof(t->is_here));
        t->n_come = 0;
        t->turn = 0;
        pthread_cond_broadcast(&t->changed);
    }
    while (t->n_meetings == meeting + 1 && t->n_taken < t->world) {
        pthread_cond_wait(&t->changed, &t->lock);
    }
    return 0;
}

static int allgather(void *arg, const void *mine, void *all, size_t len)
{
    struct member *m = arg;
    int rc;

    pthread_mutex_lock(&m->team->lock);
    rc = meet(m, mine, all, len);
    await_turn(m);
    pthread_mutex_unlock(&m->team->lock);
    return rc;
}

static void leave(struct member *m)
{
    struct team *t = m->team;

    pthread_mutex_lock(&t->lock);
    t->has_left[m->rank] = true;
    t->n_left++;
    pass_on(t);
    pthread_mutex_unlock(&t->lock);
}

static void *run(void *arg)
{
    struct member *m = arg;
    struct muster_ckpt_group group = {.rank = m->rank, .world = m->team->world,
                                      .allgather = allgather, .arg = m};

    pthread_mutex_lock(&m->team->lock);
    await_turn(m);
    pthread_mutex_unlock(&m->team->lock);
    m->team->body(m->team->arg, &group);
    leave(m);
    return NULL;
}

void team_run(int world, bool in_turns,
              void (*body)(void *arg, const struct muster_ckpt_group *group),
              void *arg)
{
    struct team t = {.lock = PTHREAD_MUTEX_INITIALIZER,
                     .changed = PTHREAD_COND_INITIALIZER,
                     .world = world, .in_turns = in_turns,
                     .body = body, .arg = arg};
    struct member members[TEAM_MAX];
    pthread_t threads[TEAM_MAX];

    for (int r = 0; r < world; r++) {
        members[r] = (struct member){&t, r};
        if (pthread_create(&threads[r], NULL, run, &members[r]) != 0) {
            abort();
        }
    }
    for (int r = 0; r < world; r++) {
        pthread_join(threads[r], NULL);
    }
}
