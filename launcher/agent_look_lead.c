/* SPDX-License-Identifier: Apache-2.0 */
/*
 *   NEAR    this node looks            -> it is there, or ALL
 *   ALL     all that take part do      -> it is there, or another is taken, or none
 *   PAUSE   nobody can tell, again     -> NEAR, once more
 *
 * Where an older one is looked for, ALL comes first, and is the end of it.
 *
 * Where nobody can tell the order goes out as it is: workers may see what agents do
 * not, or say it better. What fails for that is a failure of theirs, in their budget;
 * but from the second time on there is a pause before, which doubles, so that a budget
 * without an end makes no storm of restarts.
 */
#include <config.h>

#include "launcher/agent_look.h"

#include "base/cleanup.h"
#include "base/loop_timer.h"
#include "base/str.h"
#include "base/utf8.h"
#include "launcher/jsonw.h"
#include "launcher/look.h"

#include <errno.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    NEAR_MS = 2000,
    ALL_MS = 5000,
    PAUSE_MIN_MS = 1000,
    PAUSE_MAX_MS = 60000,
    SHOWN = 4, /* hosts, by name */
    VIEW_SHIFT = 31, /* what is said in JSON is an int64_t */
};

enum phase { IDLE, NEAR, ALL, PAUSE };

/* What a node has to do with it. */
enum part {
    NO_PART,  /* it has no workers */
    AWAITED,
    ANSWERED,
    BLIND,    /* likewise: it does not even see the directory */
};

/* A child of ours; it may outlive the question, in a call that hangs. */
struct near {
    struct lead_look *lead; /* NULL: nobody waits */
};

struct lead_look {
    struct agent *agent;
    struct record *record;
    const struct lead_look_ops *ops;
    void *arg;
    uv_timer_t *timer;
    enum phase phase;
    uint32_t generation;
    char path[ORDER_PATH_BYTES];
    int64_t step;
    char avoided[AVOID_LINES_BYTES]; /* "": it is `path` that is wanted */
    struct near *near;
    pid_t pid;
    int64_t serial; /* of the question to all; answers to others do not count, nor
                       to a lead before */
    struct look answers;
    enum part *parts; /* by rank */
    uint32_t n_nodes;
    bool has_paused;
    unsigned n_unknown; /* in a row, of the same path */
    char unknown[ORDER_PATH_BYTES];
};

static void tell(struct lead_look *l, const char *fmt, ...)
    __attribute__((format(printf, 2, 3)));

static void tell(struct lead_look *l, const char *fmt, ...)
{
    _buf_ struct buf b = {0};
    va_list ap;

    va_start(ap, fmt);
    buf_vprintf(&b, fmt, ap);
    va_end(ap);
    record_event(l->record, "checkpoint_gone", l->generation, buf_str(&b), NULL, 0);
}

static void leave_child(struct lead_look *l)
{
    if (l->near) {
        l->near->lead = NULL;
        l->near = NULL;
        child_kill(l->agent->children, l->pid, SIGKILL);
    }
}

static void finish(struct lead_look *l, const char *path, int64_t step)
{
    l->phase = IDLE;
    uv_timer_stop(l->timer);
    leave_child(l);
    l->ops->on_found(l->arg, path, step);
}

/* --- what comes out --- */

/* "n2, n3 and 5 more", of those. */
static void name_blind(const struct lead_look *l, struct buf *b)
{
    unsigned n = 0, n_blind = 0;

    for (uint32_t i = 0; i < l->n_nodes; i++) {
        n_blind += l->parts[i] == BLIND;
    }
    for (uint32_t i = 0; i < l->n_nodes && n < SHOWN; i++) {
        if (l->parts[i] == BLIND) {
            buf_printf(b, "%s%s", n ? n + 1 == n_blind ? " and " : ", " : "",
                       l->agent->roster.entries[i].host);
            n++;
        }
    }
    if (n < n_blind) {
        buf_printf(b, " and %u more", n_blind - n);
    }
}

static void take_other(struct lead_look *l)
{
    const struct look_answer *best = &l->answers.best;

    tell(l, "no node sees %s, which generation %u was to start from: it starts from %s,"
         " the newest beside it%s", l->path, l->generation, best->path,
         best->is_whole ? "" : " (in a format that muster cannot verify)");
    l->n_unknown = 0;
    finish(l, best->path, best->step);
}

static void take_none(struct lead_look *l)
{
    tell(l, "no node sees %s, which generation %u was to start from, nor another "
         "checkpoint in its directory: it starts without one. Where that is not meant, "
         "stop the run, put the checkpoint back, and resume it", l->path,
         l->generation);
    l->n_unknown = 0;
    finish(l, "", -1);
}

static uint64_t pause_ms(const struct lead_look *l)
{
    uint64_t ms = PAUSE_MIN_MS;

    for (unsigned i = 1; i < l->n_unknown && ms < PAUSE_MAX_MS; i++) {
        ms *= 2;
    }
    return l->n_unknown == 0 ? 0 : ms < PAUSE_MAX_MS ? ms : PAUSE_MAX_MS;
}

static void on_timer(uv_timer_t *t);

static void take_unknown(struct lead_look *l)
{
    _buf_ struct buf blind = {0};
    uint64_t ms;

    if (strcmp(l->unknown, l->path) != 0) {
        l->n_unknown = 0;
        str_copy(l->unknown, sizeof(l->unknown), l->path);
    }
    ms = l->has_paused ? 0 : pause_ms(l);
    if (ms > 0) {
        l->has_paused = true;
        l->phase = PAUSE;
        uv_timer_start(l->timer, on_timer, ms, 0);
        return;
    }
    l->n_unknown++;
    name_blind(l, &blind);
    tell(l, "no node sees %s, which generation %u starts from; %s%s: mount it, or "
         "tell muster of checkpoints by a path that nodes see", l->path, l->generation,
         blind.len ? "its directory is not there on "
                   : "not all of them could look",
         blind.len ? buf_str(&blind) : "");
    finish(l, l->path, l->step);
}

static void judge(struct lead_look *l, bool is_late)
{
    enum look_verdict verdict = look_judge(&l->answers, is_late);

    if (l->avoided[0] && verdict != LOOK_WAIT) {
        bool is_other = verdict == LOOK_OTHER;

        finish(l, is_other ? l->answers.best.path : "",
               is_other ? l->answers.best.step : -1);
        return;
    }
    switch (verdict) {
    case LOOK_WAIT:
        break;
    case LOOK_ITSELF:
        l->n_unknown = 0;
        finish(l, l->path, l->step);
        break;
    case LOOK_OTHER:
        take_other(l);
        break;
    case LOOK_NONE:
        take_none(l);
        break;
    case LOOK_UNKNOWN:
        take_unknown(l);
        break;
    }
}

/* --- all --- */

static void ask_all(struct lead_look *l)
{
    struct agent *a = l->agent;
    int64_t first = (int64_t)a->view << VIEW_SHIFT;
    _buf_ struct buf b = {0};
    struct jsonw w = jsonw_start(&b);

    l->serial = (l->serial < first ? first : l->serial) + 1;
    l->phase = ALL;
    l->answers = (struct look){0};
    for (uint32_t i = 0; i < l->n_nodes; i++) {
        l->parts[i] = l->parts[i] == NO_PART ? NO_PART : AWAITED;
        l->answers.n_asked += l->parts[i] == AWAITED;
    }
    jsonw_object(&w, NULL);
    jsonw_str(&w, "ask", "look");
    jsonw_int(&w, "serial", l->serial);
    jsonw_str(&w, "path", l->path);
    jsonw_opt_str(&w, "avoided", l->avoided);
    jsonw_end_object(&w);
    uv_timer_start(l->timer, on_timer, ALL_MS, 0);
    if (!b.failed && a->tree) {
        tree_ask(a->tree, b.data, b.len);
        agent_asked(a, b.data, b.len);
    }
}

static bool read_state(const json_t *fact, enum beside_state *ret)
{
    const char *name = json_string_value(json_object_get(fact, "state"));

    for (enum beside_state s = BESIDE_ITSELF; name && s <= BESIDE_NO_DIR; s++) {
        if (strcmp(name, beside_state_name(s)) == 0) {
            *ret = s;
            return true;
        }
    }
    return false;
}

static struct look_answer read_fact(const json_t *fact)
{
    struct look_answer r = {0};
    const char *path = json_string_value(json_object_get(fact, "path"));
    const json_t *step = json_object_get(fact, "step");

    r.is_known = read_state(fact, &r.state);
    r.is_whole = json_is_true(json_object_get(fact, "whole"));
    r.step = json_is_integer(step) ? json_integer_value(step) : -1;
    r.changed_ns = json_integer_value(json_object_get(fact, "changed"));
    if (r.state == BESIDE_OTHER) {
        r.is_known = r.is_known && path && path[0] == '/' &&
                     strlen(path) < sizeof(r.path);
        str_copy(r.path, sizeof(r.path), r.is_known ? path : "");
    }
    return r;
}

void lead_look_fact(struct lead_look *l, uint32_t rank, const json_t *fact)
{
    struct look_answer answer;

    if (!l || l->phase != ALL || rank >= l->n_nodes || l->parts[rank] != AWAITED ||
        json_integer_value(json_object_get(fact, "serial")) != l->serial) {
        return;
    }
    answer = read_fact(fact);
    l->parts[rank] = answer.is_known && answer.state == BESIDE_NO_DIR ? BLIND
                                                                     : ANSWERED;
    look_take(&l->answers, &answer);
    judge(l, false);
}

/* --- here --- */

static void on_near(void *arg, const struct child_exit *how)
{
    struct near *near = arg;
    struct lead_look *l = near->lead;

    free(near);
    if (!l) {
        return;
    }
    l->near = NULL;
    uv_timer_stop(l->timer);
    if (how->signal == 0 && how->code == 0) {
        l->n_unknown = 0;
        finish(l, l->path, l->step);
    } else {
        ask_all(l);
    }
}

static bool ask_near(struct lead_look *l)
{
    struct near *near = calloc(1, sizeof(*near));

    if (!near || agent_look_start(l->agent, l->path, on_near, near, &l->pid) < 0) {
        free(near);
        return false;
    }
    near->lead = l;
    l->near = near;
    l->phase = NEAR;
    uv_timer_start(l->timer, on_timer, NEAR_MS, 0);
    return true;
}

static void on_timer(uv_timer_t *t)
{
    struct lead_look *l = t->data;

    switch (l->phase) {
    case IDLE:
        break;
    case NEAR: /* it hangs here: who starts there can tell */
        finish(l, l->path, l->step);
        break;
    case ALL:
        judge(l, true);
        break;
    case PAUSE:
        if (!ask_near(l)) {
            finish(l, l->path, l->step);
        }
        break;
    }
}

/* --- for the lead --- */

static int set_nodes(struct lead_look *l, const struct order *run)
{
    enum part *parts = calloc(run->n_nodes + 1, sizeof(*parts));

    if (!parts) {
        return -ENOMEM;
    }
    free(l->parts);
    l->parts = parts;
    l->n_nodes = run->n_nodes;
    for (uint32_t r = 0; r < run->n_nodes; r++) {
        parts[r] = run->n_procs[r] > 0 ? AWAITED : NO_PART;
    }
    return 0;
}

bool lead_look_ask(struct lead_look *l, const struct order *run, const char *path,
                   int64_t step, const char *avoided)
{
    avoided = avoided ? avoided : "";
    if (!l || path[0] != '/' || !utf8_is_valid(path) || !utf8_is_valid(avoided) ||
        set_nodes(l, run) < 0) {
        return false;
    }
    l->generation = run->generation;
    str_copy(l->path, sizeof(l->path), path);
    l->step = step;
    l->has_paused = false;
    str_copy(l->avoided, sizeof(l->avoided), avoided);
    if (avoided[0]) {
        ask_all(l);
        return true;
    }
    return ask_near(l);
}

void lead_look_forget(struct lead_look *l)
{
    if (l && l->phase != IDLE) {
        l->phase = IDLE;
        uv_timer_stop(l->timer);
        leave_child(l);
    }
}

/* --- life --- */

int lead_look_create(struct agent *a, struct record *record,
                     const struct lead_look_ops *ops, void *arg,
                     struct lead_look **ret, struct error *e)
{
    struct lead_look *l = calloc(1, sizeof(*l));

    if (l) {
        l->timer = loop_timer_create(&a->loop, l);
    }
    if (!l || !l->timer) {
        free(l);
        return error_set(e, ENOMEM, "look for checkpoints");
    }
    l->agent = a;
    l->record = record;
    l->ops = ops;
    l->arg = arg;
    *ret = l;
    return 0;
}

void lead_look_destroy(struct lead_look *l)
{
    if (l) {
        lead_look_forget(l);
        loop_timer_close(l->timer);
        free(l->parts);
        free(l);
    }
}
