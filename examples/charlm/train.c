/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Every worker has the same weights, and computes the gradient of its share of
 * each batch. The sum over all workers is the gradient of the whole batch, so
 * every worker takes the same step and the weights stay the same. Worker 0 also
 * talks and saves, unless all save together.
 */
#include <config.h>

#include "train.h"

#include "batch.h"
#include "checkpoint.h"
#include "dump.h"
#include "group.h"
#include "sample.h"
#include "state.h"
#include "together.h"

#include <errno.h>
#include <inttypes.h>
#include <limits.h>
#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { GROUP_SEQUENCES = 4, PROGRESS_STEPS = 50 };

/* What is summed over all workers beside the gradient. */
enum { TALLY_LOSS, TALLY_SEQUENCES, N_TALLY };

struct trainer {
    struct muster *m;
    const struct options *o;
    struct text text;
    struct state state;
    struct weights weights; /* in `state` */
    struct pass *pass;
    real *gradient; /* one number for each weight, then the tally */
    struct weights gradients;
    char checkpoint_dir[PATH_MAX];
    struct together *together; /* NULL: worker 0 saves */
    uint64_t saved_step; /* of the newest checkpoint; 0 if there is none */
    double loss;         /* of the last step */
    uint64_t sequences;  /* that went into it */
};

static bool is_first(const struct trainer *t)
{
    return muster_rank(t->m) == 0;
}

static double seconds(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

static int choose_directory(struct trainer *t, struct failure *f)
{
    const char *run_dir = muster_run_dir(t->m);
    int n;

    if (t->o->checkpoint_dir) {
        n = snprintf(t->checkpoint_dir, PATH_MAX, "%s", t->o->checkpoint_dir);
    } else if (run_dir) {
        n = snprintf(t->checkpoint_dir, PATH_MAX, "%s/ckpt", run_dir);
    } else {
        n = snprintf(t->checkpoint_dir, PATH_MAX, ".");
    }
    if (n >= PATH_MAX) {
        return failure_errno(f, ENAMETOOLONG, "directory for checkpoints");
    }
    return 0;
}

/* Reads the text and makes the model that fits it. */
static int create(struct trainer *t, struct failure *f)
{
    const struct options *o = t->o;
    struct shape shape = {
        .context = o->context,
        .width = o->width,
        .heads = o->heads,
        .layers = o->layers,
    };
    int rc = text_load(o->data, o->n_data, &t->text, f);

    if (rc < 0) {
        return rc;
    }
    if (t->text.length <= o->context) {
        return failure_set(f, "the text has %zu characters: expected more "
                              "than --context %u", t->text.length,
                           o->context);
    }
    shape.vocab = t->text.n_symbols;
    rc = state_create(&t->state, shape, &t->text, o->seed, o->batch, f);
    if (rc < 0) {
        return rc;
    }
    t->weights = weights_map(shape, t->state.values);
    t->pass = pass_create(shape, GROUP_SEQUENCES);
    t->gradient = calloc(t->state.n_weights + N_TALLY, sizeof(*t->gradient));
    if (!t->pass || !t->gradient) {
        return failure_errno(f, ENOMEM, "a model of %zu weights",
                             t->state.n_weights);
    }
    t->gradients = weights_map(shape, t->gradient);
    return choose_directory(t, f);
}

/* What worker 0 does before everybody begins. */
static int prepare(struct trainer *t, const char *resume, struct failure *f)
{
    const struct options *o = t->o;
    int rc = 0;

    if (o->checkpoint_every > 0) {
        rc = checkpoint_directory(t->checkpoint_dir, f);
    }
    if (rc < 0 || !resume) {
        return rc;
    }
    rc = checkpoint_load(resume, &t->state, f);
    if (rc < 0) {
        return rc;
    }
    if (t->state.seed != o->seed || t->state.batch != o->batch) {
        return failure_set(f, "checkpoint %s was made with --seed %" PRIu64
                              " --batch %u: expected %" PRIu64 ", %u",
                           resume, t->state.seed, t->state.batch, o->seed,
                           o->batch);
    }
    printf("charlm: resumed from step %" PRIu64 " (%s)\n", t->state.step,
           resume);
    return 0;
}

/* Everybody loads the same. */
static int start_together(struct trainer *t, struct failure *f)
{
    bool found = false;
    int rc = together_open(t->m, t->checkpoint_dir, t->o, &t->state,
                           &t->together, f);

    rc = rc < 0 ? rc : together_load(t->together, &found, f);
    if (rc == 0 && found) {
        t->saved_step = t->state.step;
        if (is_first(t)) {
            printf("charlm: resumed from step %" PRIu64 " (%s)\n",
                   t->state.step, t->checkpoint_dir);
        }
    }
    return rc;
}

/* Everybody begins with the state of worker 0. */
static int start_from_first(struct trainer *t, struct failure *f)
{
    struct muster *m = t->m;
    const char *resume = t->o->resume ? t->o->resume : muster_resume_path(m);
    size_t bytes = 3 * t->state.n_weights * sizeof(*t->state.values);
    int rc;

    rc = group_agree(m, is_first(t) ? prepare(t, resume, f) : 0, f);
    if (rc < 0) {
        return rc;
    }
    rc = group_copy(m, &t->state.step, sizeof(t->state.step),
                    "broadcast the step", f);
    if (rc < 0) {
        return rc;
    }
    rc = group_copy(m, t->state.values, bytes, "broadcast the weights", f);
    t->saved_step = resume ? t->state.step : 0;
    return rc;
}

static int start(struct trainer *t, struct failure *f)
{
    struct muster *m = t->m;
    int rc = group_check_text(m, &t->text, f);

    if (rc < 0) {
        return rc;
    }
    rc = t->o->save_together ? start_together(t, f) : start_from_first(t, f);
    if (rc == 0 && is_first(t)) {
        printf("charlm: %zu weights, %zu characters of text (%u different), "
               "%d workers, generation %d\n", t->state.n_weights,
               t->text.length, t->text.n_symbols, muster_world(m),
               muster_generation(m));
    }
    return rc;
}

/* The gradient of the whole batch of the next step, and its loss. */
static int compute_gradient(struct trainer *t, struct failure *f)
{
    struct state *s = &t->state;
    struct batch batch = {
        .text = &t->text,
        .seed = s->seed,
        .step = s->step,
        .n_sequences = s->batch,
        .length = s->shape.context,
    };
    struct share share = batch_share(s->batch, (uint32_t)muster_rank(t->m),
                                     (uint32_t)muster_world(t->m));
    real *tally = t->gradient + s->n_weights;
    char what[64];
    int rc;

    memset(t->gradient, 0, s->n_weights * sizeof(*t->gradient));
    tally[TALLY_LOSS] = (real)batch_gradient(batch, share, t->pass,
                                             &t->weights, &t->gradients);
    tally[TALLY_SEQUENCES] = (real)share.count;
    snprintf(what, sizeof(what), "add up the gradient of step %" PRIu64,
             s->step + 1);
    rc = group_sum(t->m, t->gradient, s->n_weights + N_TALLY, what, f);
    t->loss = (double)tally[TALLY_LOSS];
    t->sequences = (uint64_t)tally[TALLY_SEQUENCES];
    return rc;
}

static int take_step(struct trainer *t, struct failure *f)
{
    struct state *s = &t->state;
    struct schedule schedule = {
        .peak = t->o->rate,
        .warmup_steps = t->o->warmup,
        .n_steps = t->o->steps,
    };
    double length;
    int rc = compute_gradient(t, f);

    if (rc < 0) {
        return rc;
    }
    /* Before the step, so that what is saved can be gone on from. */
    length = gradient_clip(t->gradient, s->n_weights, 1.0);
    if (!isfinite(length) || !isfinite(t->loss)) {
        return failure_set(f, "step %" PRIu64 " diverged (loss %g, gradient "
                              "%g): try a --rate below %g", s->step + 1,
                           t->loss, length, t->o->rate);
    }
    adam_step(state_adam(s), t->gradient, schedule_rate(schedule, s->step),
              s->step);
    s->step++;
    rc = history_add(&s->history, (uint32_t)muster_generation(t->m),
                     (uint32_t)muster_world(t->m), s->step, t->sequences);
    return rc == 0 ? 0 : failure_errno(f, -rc, "history");
}

/* A step takes at least as long as --step-time says. */
static void wait_for_time(const struct trainer *t, double begin)
{
    double left = t->o->step_time / 1e3 - (seconds() - begin);

    if (left > 0) {
        usleep((useconds_t)(left * 1e6));
    }
}

/* Muster may be told less often than every step: a report that is lost is no
 * reason to stop. */
static void report(struct trainer *t, double step_time)
{
    double characters = (double)t->state.batch * t->state.shape.context;
    struct muster_metric metrics[] = {
        {"loss", t->loss},
        {"step_time", step_time},
        {"throughput", characters / step_time},
    };
    uint64_t step = t->state.step;

    if (!is_first(t)) {
        return;
    }
    muster_report(t->m, (int64_t)step, metrics,
                  sizeof(metrics) / sizeof(metrics[0]));
    if (step % PROGRESS_STEPS == 0 || step == t->o->steps) {
        printf("charlm: step %" PRIu64 "/%u: loss %.4f, %.0f characters/s\n",
               step, t->o->steps, t->loss, characters / step_time);
    }
}

static int save(struct trainer *t, struct failure *f)
{
    char path[PATH_MAX];
    int rc = 0;

    if (t->saved_step == t->state.step) {
        return 0;
    }
    if (t->together) {
        t->saved_step = t->state.step;
        return together_save(t->together, f);
    }
    if (!is_first(t)) {
        return 0;
    }
    if (t->o->checkpoint_every == 0) {
        /* Not expected, so not prepared at the start. */
        rc = checkpoint_directory(t->checkpoint_dir, f);
    }
    if (rc == 0) {
        rc = checkpoint_save(t->checkpoint_dir, &t->state, path, f);
    }
    if (rc < 0) {
        return rc;
    }
    t->saved_step = t->state.step;
    rc = muster_checkpoint_saved(t->m, path, (int64_t)t->state.step);
    if (rc < 0) {
        failure_set(f, "announce checkpoint %s: %s", path,
                    muster_error_text(t->m));
        return rc;
    }
    return checkpoint_tidy(path, t->o->keep, f);
}

/* What the workers were told, which may reach them at different steps: if one
 * was told, all act. */
struct wishes {
    int32_t stop;
    int32_t checkpoint;
};

static int ask(struct trainer *t, struct wishes *ret, struct failure *f)
{
    int32_t asked[] = {
        muster_should_stop(t->m) > 0,
        muster_checkpoint_requested(t->m) > 0,
    };
    char what[64];
    int rc;

    snprintf(what, sizeof(what), "agree on stopping after step %" PRIu64,
             t->state.step);
    rc = group_max(t->m, asked, 2, what, f);
    *ret = (struct wishes){.stop = asked[0], .checkpoint = asked[1]};
    return rc;
}

/* They agree by themselves. */
static int ask_together(struct trainer *t, struct wishes *ret,
                        struct failure *f)
{
    bool save = false, stop = false;
    int rc = together_ask(t->together, &save, &stop, f);

    *ret = (struct wishes){.stop = stop, .checkpoint = save};
    return rc;
}

static bool checkpoint_is_due(const struct trainer *t, struct wishes wishes)
{
    const struct options *o = t->o;

    if (wishes.stop || wishes.checkpoint || o->checkpoint_every == 0) {
        return wishes.stop || wishes.checkpoint;
    }
    return t->state.step >= o->steps ||
           t->state.step % o->checkpoint_every == 0;
}

/* Sets *ret_stopped if it was asked to stop before the last step. */
static int loop(struct trainer *t, bool *ret_stopped, struct failure *f)
{
    struct wishes wishes = {0};

    while (t->state.step < t->o->steps && !wishes.stop) {
        double begin = seconds();
        int rc = take_step(t, f);

        if (rc == 0) {
            wait_for_time(t, begin);
            report(t, seconds() - begin);
            rc = t->together ? ask_together(t, &wishes, f)
                             : ask(t, &wishes, f);
        }
        if (rc == 0 && checkpoint_is_due(t, wishes)) {
            rc = save(t, f);
        }
        if (rc < 0) {
            return rc;
        }
    }
    *ret_stopped = t->state.step < t->o->steps;
    return 0;
}

static int show_result(struct trainer *t, struct failure *f)
{
    char *sample = malloc((size_t)t->o->sample + 1);

    if (!sample) {
        return failure_errno(f, ENOMEM, "a sample");
    }
    sample_text(t->pass, &t->weights, &t->text, t->state.seed, sample,
                t->o->sample);
    printf("charlm: done after step %" PRIu64 ": final loss %.4f\n"
           "charlm: sample:\n%s\n", t->state.step, t->loss, sample);
    free(sample);
    return 0;
}

static int dump(struct trainer *t, struct failure *f)
{
    int rc = compute_gradient(t, f);

    if (rc < 0 || !is_first(t)) {
        return rc;
    }
    printf("charlm: gradient of step %" PRIu64 ": loss %.6f\n",
           t->state.step + 1, t->loss);
    return dump_write(t->o->dump_gradients, t->state.shape, t->gradient, f);
}

static int run(struct trainer *t, struct failure *f)
{
    bool stopped = false;
    int rc = create(t, f);

    if (rc < 0) {
        return rc;
    }
    rc = start(t, f);
    if (rc < 0) {
        return rc;
    }
    if (t->o->dump_gradients) {
        return dump(t, f);
    }
    rc = loop(t, &stopped, f);
    if (rc < 0 || !is_first(t)) {
        return rc;
    }
    if (stopped) {
        printf("charlm: asked to stop: leaving after step %" PRIu64 "\n",
               t->state.step);
        return 0;
    }
    return show_result(t, f);
}

int train(struct muster *m, const struct options *o, struct failure *f)
{
    struct trainer *t = calloc(1, sizeof(*t));
    int rc;

    if (!t) {
        return failure_errno(f, ENOMEM, "start");
    }
    t->m = m;
    t->o = o;
    rc = run(t, f);
    together_close(t->together);
    pass_destroy(t->pass);
    free(t->gradient);
    state_release(&t->state);
    text_release(&t->text);
    free(t);
    return rc;
}
