/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The lead's side of saves: who has written, and the commit. Two leads may come to
 * commit the same save, one after the other: who finds that it is a checkpoint
 * already says so. A save that cannot become whole any more is removed.
 */
#include <config.h>

#include "launcher/agent_snap.h"

#include "base/cleanup.h"
#include "base/str.h"
#include "ckpt/gather.h"
#include "ckpt/io_direct.h"
#include "ckpt/snap.h"
#include "ckpt/step.h"
#include "launcher/jsonw.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum {
    LOOK_MS = 2000,
    STALE_MS = 600000, /* without a word of any rank */
    MAX_RANKS = 1 << 20,
    KEEP_SETTLED = 16, /* for agents that have not heard */
};

struct lead_save {
    struct lead_save *next;
    struct lead_snap *lead;
    char uuid[COMMIT_UUID_BYTES];
    char root[SNAP_ROOT_BYTES];
    uint64_t step, token;
    uint32_t generation;
    uint32_t n_ranks, n_held, n_written;
    uint8_t *stages; /* of ranks */
    uint64_t heard_ms;
    bool is_working, is_settled;

    /* The thread's, while there is one. */
    uv_work_t work;
    unsigned keep;
    struct error error; /* set before it: the save has failed, and is removed */
};

struct lead_snap {
    struct agent *agent;
    const struct lead_snap_ops *ops;
    void *arg;
    struct lead_save *saves; /* newest first */
    uv_timer_t *timer;
    unsigned n_works;
    bool is_dying;
};

/* --- threads --- */

static bool is_committed(struct io *io, int root, const struct lead_save *s)
{
    _step_ struct step found = {0};
    char name[STEP_NAME_BYTES];

    step_name(s->step, s->uuid, name);
    return step_open(io, root, name, &found, NULL) == 0 &&
           strcmp(found.commit.uuid, s->uuid) == 0;
}

static void commit_in(struct io *io, int root, struct lead_save *s)
{
    const struct gather g = {.step = s->step, .uuid = s->uuid,
                             .generation = s->generation, .token = s->token,
                             .n_ranks = s->n_ranks};
    _cleanup_(step_save) struct step_save *save = NULL;
    char name[STEP_NAME_BYTES];

    step_name(s->step, s->uuid, name);
    if (step_save_join(io, root, name, &save, &s->error) < 0 ||
        gather_commit(save, &g, &s->error) == 0) {
        return;
    }
    if (is_committed(io, root, s)) {
        s->error = (struct error){0}; /* by one that leads no more, just now */
    } else {
        step_save_abort(save);
    }
}

/* The newest stay, as many as are to be kept; what is no checkpoint is not ours to
 * judge: somebody may be saving it. */
static void tidy(struct io *io, int root, unsigned keep)
{
    _free_ struct step_entry *entries = NULL;
    size_t n = 0;
    unsigned n_seen = 0;

    if (keep == 0 || step_list(io, root, &entries, &n, NULL) < 0) {
        return;
    }
    for (size_t i = 0; i < n; i++) {
        struct step found = {0};

        if (step_open(io, root, entries[i].name, &found, NULL) < 0) {
            continue;
        }
        step_close(&found);
        if (++n_seen > keep) {
            step_remove(io, root, entries[i].name, NULL);
        }
    }
}

static void remove_save(struct io *io, int root, const struct lead_save *s)
{
    char name[STEP_NAME_BYTES];

    step_name(s->step, s->uuid, name);
    step_remove(io, root, name, NULL);
}

static void work_on(uv_work_t *work)
{
    struct lead_save *s = work->data;
    struct io *io = io_direct();
    _close_ int root = open(s->root, O_RDONLY | O_DIRECTORY | O_CLOEXEC);

    if (root < 0) {
        error_set(&s->error, errno, "open %s", s->root);
        return;
    }
    /* Also for one that was thought to be cut: those who have heard from the lead
     * before this one do not tell again. */
    if (is_committed(io, root, s)) {
        s->error = (struct error){0};
    } else if (s->error.code == 0) {
        commit_in(io, root, s);
    }
    if (s->error.code == 0) {
        tidy(io, root, s->keep);
    } else {
        remove_save(io, root, s);
    }
}

/* --- what is said --- */

static void tell_all(struct lead_snap *l, const struct lead_save *s)
{
    struct agent *a = l->agent;
    _buf_ struct buf b = {0};
    struct jsonw w = jsonw_start(&b);

    jsonw_object(&w, NULL);
    jsonw_str(&w, "ask", "snap");
    jsonw_str(&w, "uuid", s->uuid);
    jsonw_int(&w, "error", s->error.code);
    jsonw_str(&w, "why", s->error.text);
    jsonw_end_object(&w);
    if (!b.failed && a->tree) {
        tree_ask(a->tree, b.data, b.len);
        agent_asked(a, b.data, b.len);
    }
}

static void announce(struct lead_snap *l, const struct lead_save *s)
{
    char path[PATH_MAX], name[STEP_NAME_BYTES];

    if (s->error.code) {
        agent_note(l->agent, "the checkpoint of step %llu is none: %s",
                   (unsigned long long)s->step, s->error.text);
        return;
    }
    step_name(s->step, s->uuid, name);
    snprintf(path, sizeof(path), "%s/%s", s->root, name);
    l->ops->on_saved(l->arg, path, (int64_t)s->step);
}

static void free_save(struct lead_save *s)
{
    free(s->stages);
    free(s);
}

static void free_lead(struct lead_snap *l)
{
    while (l->saves) {
        struct lead_save *s = l->saves;

        l->saves = s->next;
        free_save(s);
    }
    free(l);
}

static void after_work(uv_work_t *work, int status)
{
    struct lead_save *s = work->data;
    struct lead_snap *l = s->lead;

    l->n_works--;
    if (l->is_dying) {
        if (l->n_works == 0) {
            free_lead(l);
        }
        return;
    }
    if (status < 0 && s->error.code == 0) {
        error_text(&s->error, ECANCELED, "no thread to commit it");
    }
    s->is_working = false;
    s->is_settled = true;
    announce(l, s);
    tell_all(l, s);
}

/* Commits it, or with an error removes it. */
static void finish(struct lead_save *s)
{
    struct lead_snap *l = s->lead;

    if (s->is_working || s->is_settled) {
        return;
    }
    s->is_working = true;
    s->keep = l->agent->config.job->checkpoint.keep;
    s->work.data = s;
    l->n_works++;
    uv_queue_work(&l->agent->loop, &s->work, work_on, after_work);
}

/* --- what is heard --- */

static struct lead_save *find(struct lead_snap *l, const char *uuid)
{
    struct lead_save *s = l->saves;

    while (s && strcmp(s->uuid, uuid) != 0) {
        s = s->next;
    }
    return s;
}

static int64_t number(const json_t *fact, const char *name)
{
    return json_integer_value(json_object_get(fact, name));
}

static const char *text(const json_t *fact, const char *name)
{
    const char *s = json_string_value(json_object_get(fact, name));

    return s ? s : "";
}

static struct lead_save *add(struct lead_snap *l, const json_t *fact)
{
    struct lead_save *s = calloc(1, sizeof(*s));

    if (!s) {
        return NULL;
    }
    s->lead = l;
    str_copy(s->uuid, sizeof(s->uuid), text(fact, "uuid"));
    str_copy(s->root, sizeof(s->root), text(fact, "root"));
    s->step = (uint64_t)number(fact, "step");
    s->token = (uint64_t)number(fact, "token");
    s->generation = (uint32_t)number(fact, "generation");
    s->n_ranks = (uint32_t)number(fact, "ranks");
    s->stages = calloc(s->n_ranks, 1);
    if (!s->stages) {
        free(s);
        return NULL;
    }
    s->next = l->saves;
    l->saves = s;
    return s;
}

/* Of those that are settled the newest are remembered. */
static void forget_old(struct lead_snap *l)
{
    unsigned n = 0;

    for (struct lead_save **at = &l->saves; *at;) {
        struct lead_save *s = *at;

        if (s->is_settled && ++n > KEEP_SETTLED) {
            *at = s->next;
            free_save(s);
        } else {
            at = &s->next;
        }
    }
}

static bool makes_sense(const json_t *fact)
{
    const char *uuid = text(fact, "uuid");
    int64_t ranks = number(fact, "ranks"), rank = number(fact, "rank");
    int64_t stage = number(fact, "stage");

    return strlen(uuid) == COMMIT_UUID_BYTES - 1 &&
           text(fact, "root")[0] == '/' &&
           strlen(text(fact, "root")) < SNAP_ROOT_BYTES && ranks > 0 &&
           ranks <= MAX_RANKS && rank >= 0 && rank < ranks &&
           stage > SNAP_STAGE_NONE && stage <= SNAP_STAGE_FAILED &&
           number(fact, "step") >= 0;
}

static void take_stage(struct lead_save *s, const json_t *fact)
{
    uint32_t rank = (uint32_t)number(fact, "rank");
    uint8_t stage = (uint8_t)number(fact, "stage");

    if (rank >= s->n_ranks || stage <= s->stages[rank]) {
        return;
    }
    s->n_held += s->stages[rank] == SNAP_STAGE_NONE;
    s->n_written += stage == SNAP_STAGE_WRITTEN;
    s->stages[rank] = stage;
    s->heard_ms = uv_now(&s->lead->agent->loop);
    if (stage == SNAP_STAGE_FAILED && !s->is_working && !s->is_settled) {
        int code = (int)number(fact, "error");

        error_text(&s->error, code > 0 ? code : EIO, "rank %u: %s", rank,
                   text(fact, "why"));
        finish(s);
    } else if (s->n_written == s->n_ranks) {
        finish(s);
    }
}

void lead_snap_fact(struct lead_snap *l, const json_t *fact)
{
    struct lead_save *s;

    if (!l || !makes_sense(fact)) {
        return;
    }
    s = find(l, text(fact, "uuid"));
    if (s && s->is_settled) {
        tell_all(l, s); /* who says so has not heard */
        return;
    }
    s = s ? s : add(l, fact);
    if (s) {
        take_stage(s, fact);
        forget_old(l);
    }
}

/* Workers of an earlier generation do not copy any more; and nobody waits for ever
 * for what went with a node. */
static void on_timer(uv_timer_t *t)
{
    struct lead_snap *l = t->data;
    uint32_t generation = l->ops->generation(l->arg);

    for (struct lead_save *s = l->saves; s; s = s->next) {
        bool is_cut = s->generation < generation && s->n_held < s->n_ranks;

        if (s->is_working || s->is_settled ||
            (!is_cut && uv_now(t->loop) - s->heard_ms < STALE_MS)) {
            continue;
        }
        error_text(&s->error, ECONNABORTED, "%u of %u ranks have written it, and "
                   "no other one will", s->n_written, s->n_ranks);
        finish(s);
    }
}

/* --- life --- */

static void free_timer(uv_handle_t *h)
{
    free(h);
}

int lead_snap_create(struct agent *a, const struct lead_snap_ops *ops, void *arg,
                     struct lead_snap **ret, struct error *e)
{
    struct lead_snap *l = calloc(1, sizeof(*l));

    if (l) {
        l->timer = calloc(1, sizeof(*l->timer));
    }
    if (!l || !l->timer) {
        free(l);
        return error_set(e, ENOMEM, "lead checkpoints");
    }
    l->agent = a;
    l->ops = ops;
    l->arg = arg;
    uv_timer_init(&a->loop, l->timer);
    l->timer->data = l;
    uv_timer_start(l->timer, on_timer, LOOK_MS, LOOK_MS);
    *ret = l;
    return 0;
}

void lead_snap_destroy(struct lead_snap *l)
{
    if (!l) {
        return;
    }
    uv_close((uv_handle_t *)l->timer, free_timer);
    l->is_dying = true;
    if (l->n_works == 0) {
        free_lead(l);
    }
}
