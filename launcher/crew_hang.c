/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What this node does about hangs, where the job has hang.timeout: looks at its
 * workers again and again and tells the lead what it saw (launcher/hang.h), takes
 * their stacks when the lead asks for them, and says which of them has failed
 * when the lead names one.
 */
#include <config.h>

#include "launcher/crew.h"

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/loop_timer.h"
#include "base/proc_env.h"
#include "launcher/hang.h"
#include "launcher/hang_cpu.h"
#include "launcher/jsonw.h"
#include "launcher/stacks.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum {
    BUSY_PERCENT = 10, /* of a look's time: no thread that only polls takes so much */
    EXCERPT_BYTES = FAILURE_TEXT_BYTES,
    MAX_AT_ONCE = 8, /* of debuggers, which are large */
};

struct watched {
    struct crew *crew;
    struct hang_seen seen;
    uint64_t printed_ms;
    struct hang_cpu cpu;
    uint64_t ticks;        /* of CPU time, at the last look */
    uint64_t polled_ticks; /* of these, when that was last looked at */
    bool wants_stack;
    struct stacks *stacks; /* being taken */
    char *stack;           /* was taken: the part that is shown */
};

struct crew_hang {
    uv_timer_t *timer;
    uint64_t interval_ms;
    struct proc_list procs; /* of the last look */
    int *owners;            /* of each of them: a local rank, or -1 */
    bool has_asked;         /* stacks are taken once */
    struct watched *list;   /* layout.n_local */
};

/* --- looking --- */

static int owner_of(const struct crew *c, const struct proc_list *l,
                    const int *owners, size_t at)
{
    const struct proc *p = &l->items[at];

    for (uint32_t i = 0; i < c->layout.n_local; i++) {
        pid_t pid = worker_pid(c->workers, i);

        if (pid > 0 && (p->pid == pid || p->session == pid)) {
            return (int)i;
        }
    }
    /* One that has left the session: as its parent, which is before it. */
    for (size_t k = 0; k < at; k++) {
        if (l->items[k].pid == p->parent) {
            return owners[k];
        }
    }
    return -1;
}

/* The program of an MPI rank is no descendant of ours: it is known by its
 * socket. */
static void add_seated(const struct crew *c, uint32_t i, struct proc_list *l,
                       bool *any_silent)
{
    _buf_ struct buf entry = {0};
    bool silent = false;

    buf_printf(&entry, "MUSTER_SOCKET=%s",
               worker_socket_path(c->list[i].socket));
    proc_env_list(&c->agent->workers_host.env, buf_str(&entry), l, &silent,
                  NULL);
    *any_silent = *any_silent || silent;
}

/* All processes of all workers, with their owners, and whether there may be
 * others: they are in the kernel. */
static int list_procs(const struct crew *c, struct proc_list *l, int **owners,
                      bool *any_silent)
{
    bool seated = c->agent->config.job->program == JOB_MPI;
    size_t n = 0;

    if (seated) {
        *owners = NULL;
        for (uint32_t i = 0; i < c->layout.n_local; i++) {
            int *grown;

            add_seated(c, i, l, any_silent);
            grown = reallocarray(*owners, l->n + 1, sizeof(**owners));
            if (!grown) {
                return -ENOMEM;
            }
            *owners = grown;
            for (; n < l->n; n++) {
                grown[n] = (int)i;
            }
        }
        return 0;
    }
    if (proc_descendants(getpid(), l, NULL) < 0 ||
        !(*owners = calloc(l->n + 1, sizeof(**owners)))) {
        return -ENOMEM;
    }
    for (; n < l->n; n++) {
        (*owners)[n] = owner_of(c, l, *owners, n);
    }
    return 0;
}

static const struct proc *find_proc(const struct proc_list *l,
                                    const struct proc *like)
{
    for (size_t i = 0; i < l->n; i++) {
        if (l->items[i].pid == like->pid && l->items[i].start == like->start) {
            return &l->items[i];
        }
    }
    return NULL;
}

/* Stopped by somebody, or by a debugger; or in the kernel, where it was at the
 * last look already, and has not run since. */
static bool is_held(const struct crew_hang *h, const struct proc *p)
{
    const struct proc *before;

    if (p->state == 'T' || p->state == 't') {
        return true;
    }
    before = p->state == 'D' ? find_proc(&h->procs, p) : NULL;
    return before && before->state == 'D' &&
           before->cpu_ticks == p->cpu_ticks;
}

/* Gloo's thread looks for messages a hundred times a second as long as it lives, which on
 * a virtual machine can be a hundredth of a processor and more. */
static const char polling_thread[] = "gloo_tcp_loop";

static uint64_t polled_ticks(const struct crew_hang *h, uint32_t i)
{
    uint64_t ticks = 0;

    for (size_t k = 0; k < h->procs.n; k++) {
        if (h->owners[k] == (int)i) {
            ticks += proc_thread_ticks(h->procs.items[k].pid, polling_thread);
        }
    }
    return ticks;
}

/* One that could run is at work, however little the host lets it. Threads are read only
 * where they can make the difference. */
static void see_cpu(struct crew *c, uint32_t i, uint64_t ticks, bool runs)
{
    struct watched *w = &c->hang->list[i];
    uint64_t hz = (uint64_t)sysconf(_SC_CLK_TCK);
    uint64_t used = ticks > w->ticks ? ticks - w->ticks : 0;

    if (used && used * 1000 * 100 < c->hang->interval_ms * hz * BUSY_PERCENT) {
        w->polled_ticks = polled_ticks(c->hang, i);
    }
    w->ticks = ticks;
    ticks -= w->polled_ticks < ticks ? w->polled_ticks : ticks;
    if (hang_cpu_see(&w->cpu, ticks, uv_now(&c->agent->loop), hz) || runs) {
        w->seen.cpu++;
    }
}

/* What the processes at the last look say of a worker. */
static void look_at_cpu(struct crew *c, uint32_t i)
{
    const struct crew_hang *h = c->hang;
    uint64_t ticks = 0;
    bool runs = false;

    for (size_t k = 0; k < h->procs.n; k++) {
        if (h->owners[k] == (int)i) {
            ticks += h->procs.items[k].cpu_ticks;
            runs = runs || h->procs.items[k].state == 'R';
        }
    }
    see_cpu(c, i, ticks, runs);
}

/* Looks at all processes; true if one is held. */
static bool look_at_procs(struct crew *c)
{
    struct crew_hang *h = c->hang;
    struct proc_list now = {0};
    int *owners = NULL;
    bool held = false;

    if (list_procs(c, &now, &owners, &held) < 0) {
        proc_list_release(&now);
        free(owners);
        return true; /* nothing is known of this time */
    }
    for (size_t k = 0; k < now.n; k++) {
        held = held || (owners[k] >= 0 && is_held(h, &now.items[k]));
    }
    proc_list_release(&h->procs);
    free(h->owners);
    h->procs = now;
    h->owners = owners;
    for (uint32_t i = 0; i < c->layout.n_local; i++) {
        look_at_cpu(c, i);
    }
    return held;
}

static uint64_t calls_of(const struct crew *c, uint32_t i)
{
    const struct segment *s = c->world->segment;

    if (!s) {
        return 0;
    }
    return segment_is_finished(s, i)
               ? UINT64_MAX : atomic_load(&s->head->workers[i].entered);
}

static void look_at_worker(struct crew *c, uint32_t i)
{
    struct watched *w = &c->hang->list[i];
    uint64_t printed_ms = worker_printed_ms(c->workers, i);

    w->seen.is_alive = worker_pid(c->workers, i) > 0;
    w->seen.entered = calls_of(c, i);
    if (printed_ms != w->printed_ms) {
        w->printed_ms = printed_ms;
        w->seen.outputs++;
    }
}

static void put_seen(struct jsonw *w, const struct hang_seen *seen)
{
    jsonw_array(w, NULL);
    jsonw_int(w, NULL, seen->is_alive);
    jsonw_int(w, NULL, seen->reports);
    jsonw_int(w, NULL, seen->outputs);
    jsonw_int(w, NULL, seen->cpu);
    jsonw_int(w, NULL, seen->step);
    jsonw_int(w, NULL, seen->entered > INT64_MAX ? -1 : (int64_t)seen->entered);
    jsonw_int(w, NULL, seen->turns);
    jsonw_end_array(w);
}

static void on_timer(uv_timer_t *t)
{
    struct crew *c = t->data;
    struct crew_hang *h = c->hang;
    _buf_ struct buf b = {0};
    struct jsonw w;
    bool held = look_at_procs(c);

    if (c->stopping || c->is_gone) {
        return;
    }
    w = crew_fact_begin(&b, "pulse", c);
    jsonw_int(&w, "first", c->layout.first_rank);
    jsonw_bool(&w, "held", held || output_is_held(c->agent->output));
    jsonw_array(&w, "workers");
    for (uint32_t i = 0; i < c->layout.n_local; i++) {
        look_at_worker(c, i);
        put_seen(&w, &h->list[i].seen);
    }
    jsonw_end_array(&w);
    agent_fact_send(c->agent, &w);
}

void crew_hang_report(struct crew *c, uint32_t local_rank, int64_t step)
{
    struct hang_seen *seen = c->hang ? &c->hang->list[local_rank].seen : NULL;

    if (seen) {
        seen->turns += seen->reports && step < seen->step;
        seen->reports++;
        seen->step = step;
    }
}

/* --- stacks --- */

static void tell_dumped(struct crew *c, uint32_t i, enum hang_wait wait)
{
    _buf_ struct buf b = {0};
    struct jsonw w = crew_fact_begin(&b, "dumped", c);

    jsonw_int(&w, "rank", c->layout.first_rank + i);
    jsonw_int(&w, "wait", wait);
    agent_fact_send(c->agent, &w);
}

static void dump_some(struct crew *c);

static void on_stacks(void *arg, const char *text)
{
    struct watched *w = arg;
    struct crew *c = w->crew;
    uint32_t i = (uint32_t)(w - c->hang->list);
    uint32_t rank = c->layout.first_rank + i;
    _buf_ struct buf b = {0};
    char name[64], when[32];

    w->stacks = NULL;
    w->stack = calloc(1, EXCERPT_BYTES);
    if (w->stack) {
        stacks_excerpt(text, w->stack, EXCERPT_BYTES);
    }
    clock_format(clock_wall_ns(), when, sizeof(when));
    buf_printf(&b, "rank %u, generation %u, on %s, %s\n", rank, c->generation,
               c->agent->host, when);
    buf_puts(&b, text);
    agent_stack_name(c->generation, rank, name, sizeof(name));
    agent_keep(c->agent, name, "a stack", buf_take(&b));
    tell_dumped(c, i, stacks_wait(text));
    dump_some(c);
}

/* The processes of a worker, what has worked most first: a shell around the
 * program tells nothing. */
static size_t pick_pids(const struct crew_hang *h, uint32_t i,
                        pid_t pids[STACKS_MAX_PIDS])
{
    uint64_t ticks[STACKS_MAX_PIDS];
    size_t n = 0;

    for (size_t k = 0; k < h->procs.n && n < STACKS_MAX_PIDS; k++) {
        const struct proc *p = &h->procs.items[k];
        size_t at = n;

        if (h->owners[k] != (int)i) {
            continue;
        }
        for (; at > 0 && ticks[at - 1] < p->cpu_ticks; at--) {
            ticks[at] = ticks[at - 1];
            pids[at] = pids[at - 1];
        }
        ticks[at] = p->cpu_ticks;
        pids[at] = p->pid;
        n++;
    }
    return n;
}

static void dump_worker(struct crew *c, uint32_t i)
{
    struct crew_hang *h = c->hang;
    struct watched *w = &h->list[i];
    pid_t pids[STACKS_MAX_PIDS];
    char prefix[PATH_MAX];
    struct error e = {0};
    struct stacks_config config = {
        .loop = &c->agent->loop, .children = c->agent->children,
        .prefix = prefix, .pids = pids, .done = on_stacks, .arg = w,
    };

    config.n_pids = pick_pids(h, i, pids);
    if (crew_stacks_path(c, i, prefix, sizeof(prefix), &e) < 0 ||
        stacks_start(&config, &w->stacks, &e) < 0) {
        agent_note(c->agent, "no stack of rank %u: %s",
                   c->layout.first_rank + i, e.text);
        tell_dumped(c, i, HANG_WAIT_UNKNOWN);
    }
}

/* As many as may be under way. */
static void dump_some(struct crew *c)
{
    struct watched *list = c->hang->list;
    uint32_t n = 0;

    for (uint32_t i = 0; i < c->layout.n_local; i++) {
        n += list[i].stacks != NULL;
    }
    for (uint32_t i = 0; i < c->layout.n_local && n < MAX_AT_ONCE; i++) {
        if (list[i].wants_stack) {
            list[i].wants_stack = false;
            dump_worker(c, i);
            n++;
        }
    }
}

void crew_hang_dump(struct agent *a, uint32_t generation)
{
    struct crew *c = a->crew;

    if (!c || c->generation != generation || !c->hang || c->hang->has_asked ||
        c->stopping) {
        return;
    }
    c->hang->has_asked = true;
    look_at_procs(c);
    for (uint32_t i = 0; i < c->layout.n_local; i++) {
        c->hang->list[i].wants_stack = worker_pid(c->workers, i) > 0;
    }
    dump_some(c);
}

/* --- blame --- */

void crew_hang_blame(struct agent *a, uint32_t generation, uint32_t rank,
                     const char *why)
{
    struct crew *c = a->crew;
    uint32_t i = c ? rank - c->layout.first_rank : 0;
    struct failure f = {0};
    struct member_event event = {.type = MEMBER_FAILED, .failure = &f,
                                 .generation = generation};
    char name[64];

    if (!c || c->generation != generation || !c->hang || c->stopping ||
        i >= c->layout.n_local || c->list[i].is_accused ||
        worker_pid(c->workers, i) <= 0) {
        return; /* one that has ended meanwhile does not hang */
    }
    c->list[i].is_accused = true;
    crew_identify(c, i, &f);
    f.kind = FAILURE_HANG;
    f.grade = FAILURE_OWN;
    f.signal = SIGKILL;
    f.pid = worker_pid(c->workers, i);
    f.wall_ns = clock_wall_ns();
    agent_stack_name(generation, rank, name, sizeof(name));
    snprintf(f.what, sizeof(f.what), "%.180s (stacks: %.40s)", why, name);
    str_copy(f.text, sizeof(f.text), c->hang->list[i].stack
             ? c->hang->list[i].stack : "");
    agent_member_soon(a, &event);
}

/* --- life --- */

int crew_hang_start(struct crew *c, struct error *e)
{
    uint64_t timeout_ms = c->agent->config.job->hang_timeout_ms;
    struct crew_hang *h;

    if (timeout_ms == JOB_OFF) {
        return 0;
    }
    h = calloc(1, sizeof(*h));
    if (h) {
        h->list = calloc(c->layout.n_local + 1, sizeof(*h->list));
        h->timer = loop_timer_create(&c->agent->loop, c);
    }
    if (!h || !h->list || !h->timer) {
        free(h ? h->list : NULL);
        loop_timer_close(h ? h->timer : NULL);
        free(h);
        return error_set(e, ENOMEM, "watch workers");
    }
    for (uint32_t i = 0; i < c->layout.n_local; i++) {
        h->list[i].crew = c;
        h->list[i].seen.step = -1;
    }
    h->interval_ms = hang_interval_ms(timeout_ms);
    uv_timer_start(h->timer, on_timer, h->interval_ms, h->interval_ms);
    c->hang = h;
    return 0;
}

void crew_hang_end(struct crew *c)
{
    struct crew_hang *h = c->hang;
    char prefix[PATH_MAX];

    if (!h) {
        return;
    }
    for (uint32_t i = 0; i < c->layout.n_local; i++) {
        stacks_cancel(h->list[i].stacks);
        free(h->list[i].stack);
        if (crew_stacks_path(c, i, prefix, sizeof(prefix), NULL) == 0) {
            stacks_remove(prefix);
        }
    }
    loop_timer_close(h->timer);
    proc_list_release(&h->procs);
    free(h->owners);
    free(h->list);
    free(h);
    c->hang = NULL;
}
