/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "together.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Blobs: what model this is, and its history, a line a stretch. */
#define MODEL "charlm.model"
#define HISTORY "charlm.history"

struct together {
    struct muster_ckpt *ck;
    struct state *s; /* borrowed */
    char *model, *history; /* registered */
    size_t history_len;
};

static int check(struct together *t, int rc, const char *what,
                 struct failure *f)
{
    if (rc < 0) {
        failure_set(f, "%s: %s", what, muster_ckpt_error_text(t->ck));
    }
    return rc;
}

/* --- as text --- */

static char *model_text(const struct state *s)
{
    const struct shape *shape = &s->shape;
    char *text = NULL;
    size_t len = 0;
    FILE *to = open_memstream(&text, &len);

    if (!to) {
        return NULL;
    }
    fprintf(to, "context %" PRIu32 ", width %" PRIu32 ", heads %" PRIu32
                ", layers %" PRIu32 ", --seed %" PRIu64 " --batch %" PRIu32
                ", characters ", shape->context, shape->width, shape->heads,
            shape->layers, s->seed, s->batch);
    for (uint32_t i = 0; i < shape->vocab; i++) {
        fprintf(to, "%02x", s->symbols[i]);
    }
    if (fclose(to) != 0) {
        free(text);
        return NULL;
    }
    return text;
}

static char *history_text(const struct history *h, size_t *ret_len)
{
    char *text = NULL;
    FILE *to = open_memstream(&text, ret_len);

    if (!to) {
        return NULL;
    }
    for (size_t i = 0; i < h->n; i++) {
        const struct stretch *s = &h->stretches[i];

        fprintf(to, "%" PRIu32 " %" PRIu32 " %" PRIu64 " %" PRIu64 " %" PRIu64
                    "\n", s->generation, s->workers, s->first, s->last,
                s->sequences);
    }
    if (fclose(to) != 0) {
        free(text);
        return NULL;
    }
    return text;
}

static int history_parse(const char *text, struct history *ret,
                         struct failure *f)
{
    struct history h = {0};

    for (; *text; text += strcspn(text, "\n") + 1) {
        struct stretch s;
        struct stretch *grown = realloc(h.stretches,
                                        (h.n + 1) * sizeof(*grown));

        if (!grown) {
            history_release(&h);
            return failure_errno(f, ENOMEM, "history");
        }
        h.stretches = grown;
        if (!strchr(text, '\n') ||
            sscanf(text, "%" SCNu32 " %" SCNu32 " %" SCNu64 " %" SCNu64
                         " %" SCNu64, &s.generation, &s.workers, &s.first,
                   &s.last, &s.sequences) != 5) {
            history_release(&h);
            return failure_set(f, "blob '" HISTORY "' is not understood");
        }
        h.stretches[h.n++] = s;
    }
    history_release(ret);
    *ret = h;
    return 0;
}

/* --- opening --- */

/* All workers have the same numbers: each registers all, and writes a share. */
static int register_tensors(struct together *t, struct failure *f)
{
    static const char *const names[] = {"weights", "adam.mean", "adam.square"};
    uint64_t shape[] = {t->s->n_weights};
    int rc = 0;

    for (size_t i = 0; i < 3 && rc == 0; i++) {
        struct muster_ckpt_tensor tensor = {
            .name = names[i],
            .dtype = MUSTER_F32,
            .n_dims = 1,
            .shape = shape,
            .data = t->s->values + i * t->s->n_weights,
        };

        rc = check(t, muster_ckpt_tensor(t->ck, &tensor), names[i], f);
    }
    return rc;
}

int together_open(struct muster *m, const char *dir, const struct options *o,
                  struct state *s, struct together **ret, struct failure *f)
{
    struct muster_ckpt_options options = {
        .size = sizeof(options),
        .every_steps = o->checkpoint_every,
        .keep = (int)o->keep,
    };
    struct together *t = calloc(1, sizeof(*t));
    int rc;

    if (!t) {
        return failure_errno(f, ENOMEM, "checkpoints");
    }
    *ret = t;
    t->s = s;
    t->model = model_text(s);
    if (!t->model) {
        return failure_errno(f, ENOMEM, "checkpoints");
    }
    rc = check(t, muster_ckpt_open(m, NULL, dir, &options, &t->ck),
               "open the checkpoints", f);
    return rc < 0 ? rc : register_tensors(t, f);
}

void together_close(struct together *t)
{
    if (t) {
        muster_ckpt_close(t->ck);
        free(t->model);
        free(t->history);
        free(t);
    }
}

/* --- loading --- */

/* A blob as a string, which the caller frees. */
static int read_text(struct together *t, int64_t step, const char *name,
                     char **ret, struct failure *f)
{
    size_t len = 0;
    int rc = muster_ckpt_read_blob(t->ck, step, name, NULL, 0, &len);
    char *text;

    if (rc < 0) {
        return check(t, rc, name, f);
    }
    text = calloc(1, len + 1);
    if (!text) {
        return failure_errno(f, ENOMEM, "%s", name);
    }
    rc = check(t, muster_ckpt_read_blob(t->ck, step, name, text, len, NULL),
               name, f);
    if (rc < 0) {
        free(text);
        return rc;
    }
    *ret = text;
    return 0;
}

static int read_model(struct together *t, int64_t step, struct failure *f)
{
    char *model = NULL;
    int rc = read_text(t, step, MODEL, &model, f);

    if (rc == 0 && strcmp(model, t->model) != 0) {
        rc = failure_set(f, "the checkpoint of step %" PRId64 " is of a model "
                            "of %.300s: expected %.300s", step, model,
                         t->model);
    }
    free(model);
    return rc;
}

int together_load(struct together *t, bool *ret_found, struct failure *f)
{
    char *history = NULL;
    int64_t step = 0;
    int rc = muster_ckpt_load(t->ck, MUSTER_CKPT_LATEST, 0, &step);

    *ret_found = rc >= 0;
    if (rc == -ENOENT) {
        return 0;
    }
    rc = check(t, rc, "load a checkpoint", f);
    rc = rc < 0 ? rc : read_model(t, step, f);
    rc = rc < 0 ? rc : read_text(t, step, HISTORY, &history, f);
    rc = rc < 0 ? rc : history_parse(history, &t->s->history, f);
    free(history);
    if (rc == 0) {
        t->s->step = (uint64_t)step;
    }
    return rc;
}

/* --- saving --- */

int together_ask(struct together *t, bool *ret_save, bool *ret_stop,
                 struct failure *f)
{
    int due = muster_ckpt_due(t->ck, (int64_t)t->s->step);

    *ret_save = due > 0;
    *ret_stop = muster_ckpt_should_stop(t->ck, NULL) > 0;
    return due < 0 ? check(t, due, "agree on a checkpoint", f) : 0;
}

int together_save(struct together *t, struct failure *f)
{
    int rc;

    free(t->history);
    t->history = history_text(&t->s->history, &t->history_len);
    if (!t->history) {
        return failure_errno(f, ENOMEM, "history");
    }
    rc = muster_ckpt_blob(t->ck, MODEL, t->model, strlen(t->model),
                          MUSTER_REPLICATED);
    rc = rc < 0 ? rc : muster_ckpt_blob(t->ck, HISTORY, t->history,
                                        t->history_len, MUSTER_REPLICATED);
    rc = rc < 0 ? rc : muster_ckpt_save(t->ck, (int64_t)t->s->step, 0, NULL);
    return check(t, rc, "save a checkpoint", f);
}
