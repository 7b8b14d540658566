/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The end of a set, step by step: TERM to the groups; KILL to the groups when
 * the grace is over; once the last worker has been reaped, whatever is left of
 * it among the agent's descendants is swept until there is nothing.
 */
#include <config.h>

#include "launcher/workers_set.h"

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/str.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum {
    TAIL_LINES = 100,
    STUCK_MS = 5000,
    FIRST_LOOK_MS = 2, /* after a kill; then twice as long each time */
    LAST_LOOK_MS = 500,
    MAX_UNCLEAR = 9, /* looks, about 1 s in all: an exec may take that on a
                        loaded machine */
};

/* --- the end of the set --- */

static void on_handle_closed(uv_handle_t *h)
{
    struct workers *w = h->data;

    if (--w->n_handles == 0 && w->destroyed) {
        for (unsigned i = 0; i < w->n; i++) {
            free(w->all[i].program);
        }
        buf_release(&w->status);
        free(w->all);
        free(w);
    }
}

void workers_close_status(struct workers *w)
{
    if (w->status_fd >= 0) {
        uv_poll_stop(&w->status_poll);
        uv_close((uv_handle_t *)&w->status_poll, on_handle_closed);
        close_fd(&w->status_fd);
    }
}

static void leave_host(struct workers *w)
{
    struct workers **at = &w->host->sets;

    while (*at != w) {
        at = &(*at)->next;
    }
    *at = w->next;
    child_watch_remove(w->host->children, &w->watch);
}

static void close_output(struct worker *k)
{
    if (k->out) {
        output_close(k->out, NULL, NULL);
    }
    if (k->err) {
        output_close(k->err, NULL, NULL);
    }
    k->out = k->err = NULL;
}

static void become_gone(struct workers *w)
{
    uv_timer_stop(&w->grace);
    uv_timer_stop(&w->look);
    workers_close_status(w);
    close_fd(&w->gate_fd);
    for (unsigned i = 0; i < w->n; i++) {
        close_output(&w->all[i]);
    }
    leave_host(w);
    w->gone = true;
    if (w->abandoned) {
        workers_destroy(w);
    } else if (w->events.on_gone) {
        w->events.on_gone(w->events.arg);
    }
}

/* Whether it is time to tell (again) that some have not gone. */
static bool is_stuck(struct workers *w, uint64_t now)
{
    if (now - w->killed_at_ms < (w->n_told_stuck + 1) * STUCK_MS) {
        return false;
    }
    w->n_told_stuck++;
    return true;
}

static void tell_stuck(struct workers *w, const struct proc_list *left)
{
    size_t n = left->n + w->n_alive, at = 0;
    _free_ struct worker_survivor *who = calloc(n, sizeof(*who));
    struct proc p;

    if (!who || !w->events.on_stuck || w->abandoned) {
        return;
    }
    for (unsigned i = 0; i < w->n; i++) {
        if (w->all[i].pid > 0 && proc_read(w->all[i].pid, &p) == 0) {
            who[at].pid = p.pid;
            who[at].state = p.state;
            str_copy(who[at++].name, sizeof(who->name), p.name);
        }
    }
    for (size_t i = 0; i < left->n; i++) {
        who[at].pid = left->items[i].pid;
        who[at].state = left->items[i].state;
        who[at].is_silent = workers_is_silent(w, &left->items[i]);
        str_copy(who[at++].name, sizeof(who->name), left->items[i].name);
    }
    w->events.on_stuck(w->events.arg, who, at);
}

static void on_look(uv_timer_t *t);

static void look_in(struct workers *w, uint64_t ms)
{
    uv_timer_start(&w->look, on_look, ms, 0);
}

/* After a kill: soon, then less and less often. */
static void look_again(struct workers *w)
{
    look_in(w, w->look_ms);
    w->look_ms = w->look_ms * 2 < LAST_LOOK_MS ? w->look_ms * 2 : LAST_LOOK_MS;
}

static void begin_killing(struct workers *w)
{
    if (!w->killing) {
        w->killing = true;
        w->killed_at_ms = clock_mono_ms();
        w->look_ms = FIRST_LOOK_MS;
    }
}

/* No worker lives. What is left? */
static void settle(struct workers *w, uint64_t now)
{
    _proc_list_ struct proc_list left = {0};
    bool unclear;

    unclear = workers_left(w, &left);
    if (left.n == 0 && unclear && w->n_unclear < MAX_UNCLEAR) {
        look_in(w, (uint64_t)FIRST_LOOK_MS << w->n_unclear++);
        return;
    }
    /* A process whose parent ends while /proc is being read can be missed: it
     * counts only if the next look finds nobody either. That one can be at once,
     * as by then whoever was missed has a parent that lives. */
    if (left.n == 0 && !w->seen_empty) {
        w->seen_empty = true;
        look_in(w, 0);
        return;
    }
    if (left.n == 0) {
        become_gone(w);
        return;
    }
    w->seen_empty = false;
    if (!w->killing && now < w->linger_until_ms) {
        look_in(w, w->linger_until_ms - now);
        return;
    }
    begin_killing(w);
    proc_sweep(getpid(), workers_own, w, NULL);
    if (is_stuck(w, now)) {
        tell_stuck(w, &left);
    }
    look_again(w);
}

static void on_look(uv_timer_t *t)
{
    struct workers *w = t->data;
    uint64_t now = clock_mono_ms();

    if (w->n_alive == 0) {
        settle(w, now);
    } else if (w->killing) {
        if (is_stuck(w, now)) {
            _proc_list_ struct proc_list left = {0};

            workers_left(w, &left);
            tell_stuck(w, &left);
        }
        look_again(w);
    }
}

void workers_on_orphan(void *arg, const struct child_exit *how)
{
    struct workers *w = arg;

    (void)how;
    /* Once a turn, however many ended in it. */
    if (w->n_alive == 0) {
        look_in(w, 0);
    }
}

static void signal_groups(struct workers *w, int sig)
{
    for (unsigned i = 0; i < w->n; i++) {
        if (w->all[i].pid > 0) {
            child_kill_group(w->host->children, w->all[i].pid, sig);
        }
    }
}

static void kill_now(struct workers *w)
{
    uv_timer_stop(&w->grace);
    begin_killing(w);
    signal_groups(w, SIGKILL);
    look_in(w, w->n_alive ? w->look_ms : 0);
}

static void on_grace_over(uv_timer_t *t)
{
    kill_now(t->data);
}

void workers_stop(struct workers *w, unsigned grace_ms)
{
    uint64_t at = clock_mono_ms() + grace_ms;
    bool first = !w->stopping;

    if (w->gone || w->killing) {
        return;
    }
    w->stopping = true;
    if (grace_ms == 0) {
        kill_now(w);
        return;
    }
    if (first) {
        signal_groups(w, SIGTERM);
        signal_groups(w, SIGCONT);
    }
    if (first || at < w->kill_at_ms) {
        w->kill_at_ms = at;
        uv_timer_start(&w->grace, on_grace_over, grace_ms, 0);
    }
    if (w->linger_until_ms > at) {
        w->linger_until_ms = at;
    }
}

/* --- one worker --- */

static void word_end(const struct worker *k, const struct worker_end *end,
                     char *to, size_t size)
{
    const char *node = k->set->host->node;
    char who[300];

    snprintf(who, sizeof(who), "worker %u%s%s", k->rank, node ? " on " : "",
             node ? node : "");
    if (end->exec_failed) {
        char why[700];

        exec_report_text(&k->report, k->program, why, sizeof(why));
        snprintf(to, size, "%s: %s", who, why);
    } else if (end->how.signal) {
        snprintf(to, size, "%s was %s by %s%s", who,
                 end->stopped ? "stopped" : "killed",
                 child_signal_name(end->how.signal),
                 end->how.core ? " (core dumped)" : "");
    } else if (end->how.code) {
        snprintf(to, size, "%s exited with status %d", who, end->how.code);
    } else {
        snprintf(to, size, "%s finished", who);
    }
}

static void collect_tail(struct worker *k, struct buf *b)
{
    struct output_stream *const both[] = {k->err, k->out};

    for (int i = 0; i < 2; i++) {
        if (both[i]) {
            output_drain(both[i]);
        }
        if (both[i] && b->len == 0) {
            output_tail(both[i], TAIL_LINES, b);
        }
    }
    /* It is text from here on: a zero byte would end it. */
    for (size_t at = 0; at < b->len; at++) {
        b->data[at] = b->data[at] ? b->data[at] : ' ';
    }
}

void workers_on_exit(void *arg, const struct child_exit *how)
{
    struct worker *k = arg;
    struct workers *w = k->set;
    _buf_ struct buf tail = {0};
    struct worker_end end = {
        .local_rank = k->local_rank,
        .rank = k->rank,
        .how = *how,
        .at_mono_ns = clock_mono_ns(),
        .at_wall_ns = clock_wall_ns(),
        .stopped = w->stopping,
        .status = child_shell_status(how),
    };
    char text[1200];

    /* Its report may be there and not read yet. */
    workers_read_status(w);
    end.exec_failed = k->exec_failed;
    collect_tail(k, &tail);
    word_end(k, &end, text, sizeof(text));
    end.text = text;
    end.tail = buf_str(&tail);
    k->pid = -1;
    w->n_alive--;
    if (w->killing) {
        child_kill_group(w->host->children, how->pid, SIGKILL);
    }
    if (w->n_alive == 0) {
        /* Their pipe may not have ended: a blank that was lost dies when it can. */
        workers_tell_started(w);
        w->linger_until_ms = clock_mono_ms() + w->linger_ms;
        if (w->stopping && w->kill_at_ms < w->linger_until_ms) {
            w->linger_until_ms = w->kill_at_ms;
        }
        look_in(w, 0);
    }
    if (!w->abandoned && w->events.on_exit) {
        w->events.on_exit(w->events.arg, &end);
    }
}

/* --- questions --- */

pid_t worker_pid(const struct workers *w, unsigned local_rank)
{
    return local_rank < w->n ? w->all[local_rank].pid : -1;
}

uint64_t worker_printed_ms(const struct workers *w, unsigned local_rank)
{
    const struct worker *k = &w->all[local_rank];
    uint64_t out = k->out ? output_last_ms(k->out) : 0;
    uint64_t err = k->err ? output_last_ms(k->err) : 0;

    return out > err ? out : err;
}

unsigned workers_count(const struct workers *w)
{
    return w->n;
}

unsigned workers_alive(const struct workers *w)
{
    return w->n_alive;
}

void worker_tail(struct workers *w, unsigned local_rank, struct buf *b)
{
    if (local_rank < w->n) {
        collect_tail(&w->all[local_rank], b);
    }
}

void workers_destroy(struct workers *w)
{
    if (!w || w->destroyed) {
        return;
    }
    w->destroyed = true;
    uv_close((uv_handle_t *)&w->grace, on_handle_closed);
    uv_close((uv_handle_t *)&w->look, on_handle_closed);
}
