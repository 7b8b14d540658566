/* SPDX-License-Identifier: Apache-2.0 */
/* When Slurm is asked for the time limit of its job, what is told of the answer, and when the
 * run is stopped for it. Slurm and the clocks are made up, by the linker's hand. */
#include <config.h>

#include "launcher/agent.h"

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/fs.h"
#include "launcher/lead_bed.h"
#include "launcher/slurm_ask.h"
#include "tests/lib/tap.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { GRACE_MS = 20000, MARGIN_MS = 10000, BEFORE_MS = GRACE_MS + MARGIN_MS, WALL_S = 1000000 };

static struct {
    uint64_t now_ms;
    uv_timer_cb due; /* NULL: nothing is */
    uv_timer_t *timer;
    uint64_t due_ms;
    bool is_refused; /* no process */
    int n_asked, n_forgotten;
    char words[256];
    void (*on_answer)(void *arg, bool ok, const char *text);
    void *arg;
    int n_notes, n_ends, n_stops;
    char note[256], stop[256];
    uint64_t end_ms;
} w;

uint64_t __wrap_uv_now(const uv_loop_t *loop);
uint64_t __wrap_clock_wall_ns(void);
int __wrap_uv_timer_start(uv_timer_t *t, uv_timer_cb cb, uint64_t timeout, uint64_t repeat);
int __wrap_slurm_ask(struct slurm_ask *q, uv_loop_t *loop, struct child_table *children,
                     const char *const *words, const struct strlist *env,
                     void (*on_answer)(void *arg, bool ok, const char *text), void *arg,
                     struct error *e);
void __wrap_slurm_ask_forget(struct slurm_ask *q);
void __wrap_agent_note(struct agent *a, const char *fmt, ...)
    __attribute__((format(printf, 2, 3)));

uint64_t __wrap_uv_now(const uv_loop_t *loop)
{
    (void)loop;
    return w.now_ms;
}

/* It goes with the other one. */
uint64_t __wrap_clock_wall_ns(void)
{
    return (WALL_S * UINT64_C(1000) + w.now_ms) * 1000000;
}

int __wrap_uv_timer_start(uv_timer_t *t, uv_timer_cb cb, uint64_t timeout, uint64_t repeat)
{
    (void)repeat;
    w.timer = t;
    w.due = cb;
    w.due_ms = w.now_ms + timeout;
    return 0;
}

int __wrap_slurm_ask(struct slurm_ask *q, uv_loop_t *loop, struct child_table *children,
                     const char *const *words, const struct strlist *env,
                     void (*on_answer)(void *arg, bool ok, const char *text), void *arg,
                     struct error *e)
{
    (void)q, (void)loop, (void)children, (void)env;
    if (w.is_refused) {
        return error_text(e, ENOENT, "no squeue");
    }
    w.words[0] = '\0';
    for (size_t i = 0; words[i]; i++) {
        size_t n = strlen(w.words);

        snprintf(w.words + n, sizeof(w.words) - n, "%s%s", i ? " " : "", words[i]);
    }
    w.n_asked++;
    w.on_answer = on_answer;
    w.arg = arg;
    return 0;
}

void __wrap_slurm_ask_forget(struct slurm_ask *q)
{
    (void)q;
    w.n_forgotten++;
}

void __wrap_agent_note(struct agent *a, const char *fmt, ...)
{
    va_list ap;

    (void)a;
    va_start(ap, fmt);
    vsnprintf(w.note, sizeof(w.note), fmt, ap);
    va_end(ap);
    w.n_notes++;
}

/* --- */

static void on_end(void *arg, uint64_t end_ms)
{
    (void)arg;
    w.n_ends++;
    w.end_ms = end_ms;
}

static void on_stop(void *arg, const char *text)
{
    (void)arg;
    w.n_stops++;
    snprintf(w.stop, sizeof(w.stop), "%s", text);
}

static const struct agent_limit_ops ops = {.on_end = on_end, .on_stop = on_stop};

struct bed {
    struct agent agent;
    struct agent_limit *limit;
};

static void open_bed(struct bed *b, const char *env)
{
    struct error e = {0};

    memset(b, 0, sizeof(*b));
    memset(&w, 0, sizeof(w));
    lead_bed_make(&b->agent);
    b->agent.config.job->limits.grace_ms = GRACE_MS;
    b->agent.config.job->slurm.margin_ms = MARGIN_MS;
    strlist_add(&b->agent.config.env, "SLURM_JOB_ID=815");
    if (env) {
        strlist_add(&b->agent.config.env, env);
    }
    w.now_ms = 5000;
    w.due = NULL;
    if (agent_limit_create(&b->agent, &ops, NULL, &b->limit, &e) < 0) {
        bail_out("%s", e.text);
    }
}

static void close_bed(struct bed *b)
{
    agent_limit_destroy(b->limit);
    strlist_release(&b->agent.config.env);
    fs_remove_tree(b->agent.run.dir, NULL);
    lead_bed_release(&b->agent);
}

static int due_in(void)
{
    return w.due ? (int)(w.due_ms - w.now_ms) : -1;
}

static void turn(void)
{
    uv_timer_cb cb = w.due;

    if (!cb) {
        bail_out("nothing is due");
    }
    w.now_ms = w.due_ms;
    w.due = NULL;
    cb(w.timer);
}

static void answer(bool is_ok, const char *text)
{
    w.on_answer(w.arg, is_ok, text);
}

static void test_none(struct bed *b)
{
    struct agent_limit *l = (struct agent_limit *)&w;
    struct strlist env;

    open_bed(b, NULL);
    env = b->agent.config.env;
    b->agent.config.env = (struct strlist){0};
    ok(agent_limit_create(&b->agent, &ops, NULL, &l, NULL) == 0 && !l,
       "without a job of Slurm there is no limit");
    b->agent.config.env = env;
    b->agent.config.job->slurm.margin_ms = JOB_OFF;
    l = (struct agent_limit *)&w;
    ok(agent_limit_create(&b->agent, &ops, NULL, &l, NULL) == 0 && !l,
       "nor where nobody is to look at it");
    agent_limit_destroy(NULL);
    close_bed(b);
}

static void test_stop(struct bed *b)
{
    open_bed(b, NULL);
    ok(due_in() == 0 && w.n_asked == 0, "it is asked for when the run begins");
    turn();
    is_str(w.words, "squeue --noheader --jobs=815 --format=%L", "of this job");
    is_int(due_in(), -1, "one question at a time");
    answer(true, "1:00:00");
    ok(w.n_ends == 1 && w.end_ms == 5000 + 3600000, "when it ends is told");
    is_int(due_in(), 300000, "it is asked for again, for it may change");
    turn();
    w.now_ms += 1000;
    answer(true, "2:00");
    is_int((int)(w.end_ms - w.now_ms), 120000, "it has");
    is_int(w.n_stops, 0, "there is time still");
    while (w.n_stops == 0 && w.n_asked < 100) {
        uint64_t left_s;
        char text[32];

        turn();
        left_s = (w.end_ms - w.now_ms + 999) / 1000;
        snprintf(text, sizeof(text), "%u:%02u", (unsigned)(left_s / 60), (unsigned)(left_s % 60));
        answer(true, text);
    }
    is_int(w.n_stops, 1, "until the run has to save, and to end");
    ok(w.end_ms - w.now_ms <= BEFORE_MS && w.end_ms - w.now_ms > BEFORE_MS - 2000,
       "in the time that it has: %u ms", (unsigned)(w.end_ms - w.now_ms));
    like(w.stop, "left of the time limit of Slurm job 815", "and why: %s", w.stop);
    is_int(due_in(), -1, "nobody asks any more");
    is_int(w.n_notes, 0, "nor has anything been in the way");
    close_bed(b);
    is_int(w.n_forgotten, 1, "nor is an answer waited for");
}

/* It may be over before anybody has asked. */
static void test_over(struct bed *b)
{
    open_bed(b, NULL);
    turn();
    answer(true, "0:00");
    is_int(w.n_stops, 1, "where nothing is left the run stops");
    like(w.stop, "0s left of", "which is said: %s", w.stop);
    close_bed(b);
    open_bed(b, NULL);
    turn();
    answer(true, "1:00:00");
    turn();
    w.now_ms += 2 * 3600000;
    answer(false, "");
    is_int(w.n_stops, 1, "nor where Slurm has hung until long after its end");
    like(w.stop, "0s left of", "which is said: %s", w.stop);
    close_bed(b);
}

static void test_unlimited(struct bed *b)
{
    open_bed(b, NULL);
    turn();
    answer(true, "UNLIMITED");
    ok(w.n_ends == 1 && w.end_ms == 0 && w.n_stops == 0, "one without an end has none");
    is_int(due_in(), 300000, "but may get one");
    close_bed(b);
}

static void test_unknown(struct bed *b)
{
    open_bed(b, NULL);
    turn();
    answer(false, "Unable to contact slurm controller");
    is_str(w.note, "the time limit of Slurm job 815 is not known: Unable to contact slurm "
           "controller", "one that nobody knows");
    ok(w.n_ends == 0 && w.n_stops == 0 && due_in() > 0, "stops nothing, and is asked for again");
    turn();
    answer(true, "what");
    is_int(w.n_notes, 1, "it is told once");
    turn();
    answer(true, "1:00:00");
    is_int(w.n_ends, 1, "until it is known");
    turn();
    answer(false, "1:00");
    is_int(w.n_ends, 1, "what a command has said that failed does not count");
    close_bed(b);
    open_bed(b, NULL);
    turn();
    answer(true, "");
    like(w.note, "is not known: squeue says nothing", "an answer may be empty");
    close_bed(b);
}

/* Slurm is not there to be asked. */
static void test_env(struct bed *b)
{
    char end[64];

    snprintf(end, sizeof(end), "SLURM_JOB_END_TIME=%d", WALL_S + 5 + 600);
    open_bed(b, end);
    w.is_refused = true;
    turn();
    ok(w.n_ends == 1 && w.end_ms == 5000 + 600000,
       "what it told at the start is better than nothing");
    ok(w.n_notes == 0 && due_in() > 0, "and it is asked again");
    w.is_refused = false;
    turn();
    answer(true, "30:00");
    is_int((int)(w.end_ms - w.now_ms), 1800000, "what it says later counts for more");
    w.is_refused = true;
    turn();
    is_int(w.n_ends, 2, "and is not forgotten");
    ok(w.n_notes == 0 && due_in() > 0, "nor told of");
    close_bed(b);
    open_bed(b, NULL);
    w.is_refused = true;
    turn();
    like(w.note, "is not known: no squeue", "where nothing was told that is said");
    ok(w.n_ends == 0 && due_in() > 0, "and it is asked again");
    close_bed(b);
    open_bed(b, "SLURM_JOB_END_TIME=soon");
    w.is_refused = true;
    turn();
    ok(w.n_ends == 0 && w.n_notes == 1, "or where it makes no sense");
    close_bed(b);
}

int main(void)
{
    static struct bed b;

    test_none(&b);
    test_stop(&b);
    test_over(&b);
    test_unlimited(&b);
    test_unknown(&b);
    test_env(&b);
    return tap_done();
}
