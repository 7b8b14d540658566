/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "ckpt/sweep_bed.h"

#include "base/cleanup.h"
#include "base/fs.h"
#include "base/str.h"
#include "tests/lib/sync_order.h"
#include "tests/lib/tap.h"
#include "tests/lib/tracer.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

enum { MAX_CALLS = 100000 };

static const struct {
    int error;
    const char *name;
} errors[] = {
    {EIO, "EIO"},       {ENOSPC, "ENOSPC"}, {EDQUOT, "EDQUOT"},
    {EROFS, "EROFS"},   {ENOMEM, "ENOMEM"}, {ESTALE, "ESTALE"},
    {EINTR, "EINTR"},   {TRACER_SHORT, "half"},
};

/* One run of the program. */
struct scene {
    const struct sweep_case *c;
    char path[PATH_MAX];
    unsigned run;
    struct sweep_told *told;
};

/* What an undisturbed program has called. */
struct script {
    struct tracer_call *calls;
    uint64_t n;
};

void sweep_tell(struct sweep_told *told, uint64_t step)
{
    if (step <= told->newest) {
        return;
    }
    told->newest = step;
    if (told->on_tell) {
        told->on_tell(step);
    }
}

static void *shared(size_t size)
{
    void *m = mmap(NULL, size, PROT_READ | PROT_WRITE,
                   MAP_SHARED | MAP_ANONYMOUS, -1, 0);

    if (m == MAP_FAILED) {
        bail_out("no shared memory");
    }
    return m;
}

static void scene_begin(struct scene *s, const struct sweep_case *c)
{
    const char *tmp = getenv("TMPDIR");

    *s = (struct scene){.c = c, .run = 1, .told = shared(sizeof(*s->told))};
    snprintf(s->path, sizeof(s->path), "%s/sweep.XXXXXX", tmp ? tmp : "/tmp");
    if (!mkdtemp(s->path)) {
        bail_out("no directory %s", s->path);
    }
    if (c->prepare) {
        c->prepare(s->path, s->told);
    }
}

static void scene_end(struct scene *s)
{
    fs_remove_tree(s->path, NULL);
    munmap(s->told, sizeof(*s->told));
}

static void play(void *arg)
{
    struct scene *s = arg;

    s->c->play(s->path, s->run, s->told);
}

/* Untraced, in a process of its own all the same: it starts as it did before. */
static int play_again(struct scene *s)
{
    s->run = 2;
    return tracer_let(play, s);
}

/* --- the order --- */

struct ordered {
    struct sync_order *order;
    struct sweep_told *told;
    uint64_t newest;
};

static void look_at_order(void *arg, const struct tracer_call *call)
{
    struct ordered *o = arg;

    if (o->told->newest != o->newest) {
        o->newest = o->told->newest;
        sync_order_promise(o->order);
    }
    sync_order_call(o->order, call);
}

int sweep_order(const struct sweep_case *c, char **ret_first)
{
    const struct tracer_harm none = {0};
    struct scene s;
    struct ordered o;
    struct tracer_run run = {.look = look_at_order, .arg = &o};
    const char *first;
    int n;

    scene_begin(&s, c);
    o = (struct ordered){.order = sync_order_create(s.path, c->except, "COMMIT"),
                         .told = s.told, .newest = s.told->newest};
    if (c->left) {
        char left[PATH_MAX + 64];

        snprintf(left, sizeof(left), "%s/%.60s", s.path, c->left);
        sync_order_left(o.order, left);
    }
    tracer_run(play, &s, &none, &run);
    sync_order_end(o.order);
    n = (int)sync_order_faults(o.order, &first);
    *ret_first = strdup(first);
    if (run.status != 0 || s.told->newest != c->newest) {
        n = -1;
    }
    sync_order_destroy(o.order);
    scene_end(&s);
    return n;
}

/* --- kills and errors --- */

static void note(void *arg, const struct tracer_call *call)
{
    struct script *s = arg;

    if (!call->is_done && s->n < MAX_CALLS) {
        s->calls[s->n++] = *call;
    }
}

static bool read_script(const struct sweep_case *c, struct script *ret)
{
    const struct tracer_harm none = {0};
    struct tracer_run run = {.look = note, .arg = ret};
    struct scene s;
    bool is_well;

    ret->n = 0;
    scene_begin(&s, c);
    tracer_run(play, &s, &none, &run);
    is_well = run.status == 0 && s.told->newest == c->newest &&
              c->is_kept(s.path, s.told);
    scene_end(&s);
    return is_well;
}

/* Whether all is well after that harm; *ret_done: whether there was any. */
static bool is_well_after(const struct sweep_case *c,
                          const struct tracer_harm *harm, uint64_t n_calls,
                          bool *ret_done)
{
    struct tracer_run run = {.max_calls = 20 * n_calls + 1000};
    struct scene s;
    const char *wrong = NULL;
    uint64_t told;

    scene_begin(&s, c);
    tracer_run(play, &s, harm, &run);
    *ret_done = run.n_harmed > 0;
    told = s.told->newest;
    if (run.is_stuck) {
        wrong = "it is stuck";
    } else if (!run.is_killed && run.status != 0 &&
               !(c->is_threaded && harm->error == ENOMEM)) {
        wrong = "it has crashed";
    } else if (!c->is_kept(s.path, s.told)) {
        wrong = "what is left is not what was told";
    }
    if (!wrong) {
        wrong = play_again(&s) != 0        ? "started again, it has crashed"
                : s.told->newest < told ||
                        s.told->newest != c->newest
                    ? "started again, it does not come to its end"
                : !c->is_kept(s.path, s.told)
                    ? "started again, it leaves what was not told"
                : c->is_tidy && !c->is_tidy(s.path)
                    ? "started again, it does not remove what was left" : NULL;
    }
    if (wrong) {
        diag("%s, call %llu, error %d%s: %s (told of %llu)", c->name,
             (unsigned long long)harm->at, harm->error,
             harm->stays ? ", from then on" : "", wrong,
             (unsigned long long)told);
    }
    scene_end(&s);
    return !wrong;
}

static void kill_at_each(const struct sweep_case *c, uint64_t n_calls,
                         unsigned stride, uint64_t *n)
{
    unsigned n_wrong = 0;
    uint64_t n_done = 0, n_tried = 0;

    for (uint64_t at = 1; at <= n_calls; at += stride, n_tried++) {
        struct tracer_harm harm = {.at = at, .error = TRACER_KILL};
        bool is_done;

        n_wrong += !is_well_after(c, &harm, n_calls, &is_done);
        n_done += is_done;
    }
    is_int(n_wrong, 0, "%s: killed at %llu of %llu calls", c->name,
           (unsigned long long)n_done, (unsigned long long)n_calls);
    /* Some calls depend on how full the heap is, or on threads. */
    ok(n_done + n_tried / 20 + 1 >= n_tried, "%s: these are the calls that it makes", c->name);
    *n += n_done;
}

/* A call that is interrupted again and again may be tried for ever. */
static bool may_stay(int error)
{
    return error != EINTR;
}

static void fail_each(const struct sweep_case *c, const struct script *s,
                      size_t kind, unsigned stride, uint64_t *n)
{
    unsigned n_wrong = 0, turn = (unsigned)kind;
    uint64_t n_done = 0;

    for (uint64_t at = 1; at <= s->n; at++) {
        for (int stays = 0; stays <= may_stay(errors[kind].error); stays++) {
            struct tracer_harm harm = {.at = at, .error = errors[kind].error,
                                       .stays = stays};
            bool is_done;

            if (!tracer_may_fail(&s->calls[at - 1], harm.error) ||
                turn++ % stride != 0) {
                continue;
            }
            n_wrong += !is_well_after(c, &harm, s->n, &is_done);
            n_done += is_done;
        }
    }
    is_int(n_wrong, 0, "%s: %s at %llu calls, once or from then on", c->name,
           errors[kind].name, (unsigned long long)n_done);
    *n += n_done;
}

void sweep_run(const struct sweep_case *c, unsigned stride, uint64_t *kills,
               uint64_t *n_errors)
{
    _free_ char *first = NULL;
    struct script s = {.calls = calloc(MAX_CALLS, sizeof(*s.calls))};

    if (!s.calls) {
        bail_out("no memory");
    }
    /* Twice: whoever looks at what is left learns what each program that is forked from
     * it knows from then on, such as where no library is, and calls less often for. */
    if (!ok(read_script(c, &s) && read_script(c, &s), "%s: undisturbed", c->name)) {
        free(s.calls);
        return;
    }
    if (!is_int(sweep_order(c, &first), 0, "%s: in the right order", c->name)) {
        diag("%s", first);
    }
    kill_at_each(c, s.n, stride, kills);
    for (size_t i = 0; i < ARRAY_SIZE(errors); i++) {
        fail_each(c, &s, i, stride, n_errors);
    }
    free(s.calls);
}

const char *sweep_why_not(bool is_long)
{
    const char *why = NULL;

    if (is_long && (tap_valgrind() || getenv("MUSTER_INSTRUMENTED"))) {
        return "what takes long there";
    }
    return tracer_works(&why) ? NULL : why;
}

unsigned sweep_stride(int argc, char **argv, unsigned usual)
{
    const char *text = argc > 1 ? argv[1] : getenv("MUSTER_SWEEP_STRIDE");
    unsigned long n = text ? strtoul(text, NULL, 10) : 0;

    return n ? (unsigned)n : usual;
}
