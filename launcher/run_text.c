/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "launcher/run_text.h"

#include "base/cleanup.h"
#include "base/clock.h"
#include "ckpt/interval.h"
#include "launcher/show.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

enum { LAST_LINES = 20, MAX_SLOW = 4, FEW_HELD = 8 };

static const char *state_colour(const struct run_view *v)
{
    if (v->is_stale || v->status->state == STATUS_FAILED || run_view_is_unheard(v)) {
        return "\x1b[31m";
    }
    return v->status->state == STATUS_RUNNING ||
           v->status->state == STATUS_SUCCEEDED ? "\x1b[32m" : "\x1b[33m";
}

static void put_span(struct buf *b, const char *before, uint64_t from_ns,
                     uint64_t to_ns)
{
    char span[32];

    if (from_ns && to_ns >= from_ns) {
        clock_format_span((to_ns - from_ns) / 1000000u, span, sizeof(span));
        buf_printf(b, "%s%s", before, span);
    }
}

static void put_text(struct buf *b, const char *label, const char *text)
{
    buf_puts(b, label);
    show_clean(b, text, strlen(text));
    buf_putc(b, '\n');
}

static void put_until(struct buf *b, const char *label, uint64_t at_ns,
                      const struct run_status *s)
{
    uint64_t now_ns = clock_wall_ns();

    if (!at_ns || status_run_is_over(s->state)) {
        return;
    }
    buf_puts(b, label);
    if (at_ns > now_ns) {
        put_span(b, "in ", now_ns, at_ns);
        buf_putc(b, '\n');
    } else {
        buf_puts(b, "now\n");
    }
}

static void put_times(struct buf *b, const struct run_status *s)
{
    if (s->starts > 1) {
        char span[32];

        clock_format_span(s->ran_ms, span, sizeof(span));
        buf_printf(b, "  started %d times, ran for %s in all\n", s->starts,
                   span);
    }
    put_until(b, "  deadline    ", s->deadline_ns, s);
    put_until(b, "  time limit  ", s->time_limit_ns, s);
}

/* "3 nodes, 1 spare, 1 lost": those in whose place others have come as well. */
static void put_nodes(struct buf *b, const struct run_status *s)
{
    size_t n_lost = 0, n_spares = 0, n_excluded = 0, n;

    for (size_t i = 0; i < s->n_nodes; i++) {
        n_lost += s->nodes[i].state == STATUS_NODE_LOST;
        n_spares += s->nodes[i].state == STATUS_NODE_SPARE;
        n_excluded += s->nodes[i].state == STATUS_NODE_EXCLUDED;
    }
    n = s->n_nodes - n_lost - n_spares - n_excluded;
    buf_printf(b, "%zu node%s", n, n == 1 ? "" : "s");
    if (s->min_nodes != s->max_nodes && !status_run_is_over(s->state)) {
        buf_printf(b, " of %d wanted (%d to %d)", s->want_nodes, s->min_nodes,
                   s->max_nodes);
    }
    buf_puts(b, ", ");
    if (n_spares) {
        buf_printf(b, "%zu spare%s, ", n_spares, n_spares == 1 ? "" : "s");
    }
    if (n_excluded) {
        buf_printf(b, "%zu excluded, ", n_excluded);
    }
    if (n_lost) {
        buf_printf(b, "%zu lost, ", n_lost);
    }
}

static void put_elapsed(struct buf *b, const struct run_status *s)
{
    char span[32];

    if (s->started_ns) {
        clock_format_span(run_status_elapsed_ms(s, clock_wall_ns()), span, sizeof(span));
        buf_printf(b, ", %s %s", status_run_is_over(s->state) ? "took" : "for", span);
    }
}

static void put_progress(struct buf *b, const struct run_status *s)
{
    size_t n_alive = 0;

    for (size_t i = 0; i < s->n_workers; i++) {
        n_alive += s->workers[i].state == STATUS_WORKER_RUNNING ||
                   s->workers[i].state == STATUS_WORKER_STOPPING;
    }
    buf_printf(b, "  generation %d, %zu of %zu worker%s alive, ", s->generation,
               n_alive, s->n_workers, s->n_workers == 1 ? "" : "s");
    put_nodes(b, s);
    buf_printf(b, "restarts %d of %d", s->restarts, s->max_restarts);
    put_elapsed(b, s);
    buf_putc(b, '\n');
    put_times(b, s);
    if (s->step >= 0) {
        buf_printf(b, "  step %" PRId64, s->step);
        for (size_t i = 0; i < s->n_metrics; i++) {
            buf_puts(b, ", ");
            show_clean(b, s->metrics[i].name, strlen(s->metrics[i].name));
            buf_printf(b, " %.6g", s->metrics[i].value);
        }
        buf_putc(b, '\n');
    }
}

/* The first few, as they may be half of many. */
static void put_slow(struct buf *b, const struct run_status *s)
{
    size_t n = 0;

    for (size_t i = 0; i < s->n_workers; i++) {
        uint32_t percent = s->workers[i].slow_percent;

        if (!percent || status_run_is_over(s->state)) {
            continue;
        }
        if (n++ < MAX_SLOW) {
            buf_printf(b, "%s rank %d (%u.%02u times the median step)",
                       n == 1 ? "  slow       " : ",", s->workers[i].rank,
                       percent / 100, percent % 100);
        }
    }
    if (n > MAX_SLOW) {
        buf_printf(b, ", %zu more", n - MAX_SLOW);
    }
    buf_puts(b, n ? "\n" : "");
}

/* The last LAST_LINES lines, each behind a margin. */
static void put_lines(struct buf *b, const char *lines)
{
    size_t len = strlen(lines);
    size_t from = len, n = 0;

    while (from > 0 && (from == len || lines[from - 1] != '\n' ||
                        ++n < LAST_LINES)) {
        from--;
    }
    for (const char *line = lines + from; *line;) {
        size_t n_bytes = strcspn(line, "\n");

        buf_puts(b, "    | ");
        show_clean(b, line, n_bytes);
        buf_putc(b, '\n');
        line += n_bytes + (line[n_bytes] == '\n');
    }
}

static void put_failure(struct buf *b, const struct status_failure *f)
{
    if (!f->is_set) {
        return;
    }
    buf_printf(b, "  first failure, in generation %d", f->generation);
    put_span(b, ", ", f->at_ns, clock_wall_ns());
    buf_puts(b, f->at_ns ? " ago:\n" : ":\n");
    put_text(b, "    ", f->reason);
    if (f->advice[0]) {
        put_text(b, "    advice: ", f->advice);
    }
    if (f->lines) {
        put_lines(b, f->lines);
    }
    if (f->error_file[0]) {
        put_text(b, "    error file ", f->error_file);
    }
}

/* The first few: why they take no part. */
static void put_excluded(struct buf *b, const struct run_status *s)
{
    size_t n = 0;

    for (size_t i = 0; i < s->n_nodes; i++) {
        if (s->nodes[i].state != STATUS_NODE_EXCLUDED || n++ >= MAX_SLOW) {
            continue;
        }
        buf_printf(b, "  excluded    node %d (", s->nodes[i].rank);
        show_clean(b, s->nodes[i].host, strlen(s->nodes[i].host));
        put_text(b, "): ", s->nodes[i].why);
    }
}

/* Workers that share muster's collectives between nodes wait for it. */
static void put_world(struct buf *b, const struct run_status *s)
{
    if (s->mpi_late > s->mpi_epoch && !s->verdict.is_set) {
        buf_puts(b, "  MPI world   mpirun has not made one in time, and is run again; see "
                 "mpirun.log\n");
    }
}

static void put_late(struct buf *b, const struct run_status *s)
{
    uint64_t now_ns = clock_wall_ns();
    char span[32];

    if (!s->checkpoint_is_late || s->verdict.is_set) {
        return;
    }
    if (s->saved_ns && s->saved_ns <= now_ns) {
        clock_format_span((now_ns - s->saved_ns) / 1000000, span, sizeof(span));
        buf_printf(b, "  late        the last checkpoint came %s ago\n", span);
    } else {
        buf_puts(b, "  late        no checkpoint has come yet\n");
    }
}

/* From which no generation starts for now, and why. */
static void put_avoided(struct buf *b, const struct avoid *a)
{
    for (uint32_t i = 0; i < a->n; i++) {
        buf_puts(b, "  avoided     ");
        show_clean(b, a->list[i].path, strlen(a->list[i].path));
        buf_printf(b, " (%u start%s from it died)\n", a->list[i].n_deaths,
                   a->list[i].n_deaths == 1 ? "" : "s");
    }
}

static void put_saving(struct buf *b, const struct run_status *s)
{
    if (s->saving_ranks && !s->verdict.is_set) {
        buf_printf(b, "  saving      step %" PRId64 ": %u of %u ranks are on the "
                   "disk\n", s->saving_step, s->saving_written,
                   s->saving_ranks);
    }
}

/* One line, and where they are few, who has which. */
static void put_held(struct buf *b, const struct run_status *s)
{
    uint64_t n = 0, copied = 0, parity = 0;

    if (!s->held_ranks || s->verdict.is_set) {
        return;
    }
    for (size_t i = 0; i < s->n_held; i++) {
        n += s->held[i].n;
        copied += s->held[i].copied_to >= 0 ? s->held[i].n : 0;
        parity += s->held[i].has_parity ? s->held[i].n : 0;
    }
    buf_printf(b, "  in memory   step %" PRId64 ": %" PRIu64 " of %u ranks, %" PRIu64
               " of them %s\n", s->held_step, n, s->held_ranks,
               parity ? parity : copied,
               parity ? "with parity on other nodes" : "copied to another node");
    for (size_t i = 0; i < s->n_held && s->n_held <= FEW_HELD; i++) {
        const struct status_held *h = &s->held[i];

        buf_printf(b, "              rank%s %u", h->n == 1 ? "" : "s", h->first);
        if (h->n > 1) {
            buf_printf(b, "-%u", h->first + h->n - 1);
        }
        buf_printf(b, ": memory of node %d", h->node);
        if (h->copied_to >= 0) {
            buf_printf(b, ", copied to node %d", h->copied_to);
        }
        buf_puts(b, "\n");
    }
}

static void put_plan(struct buf *b, const struct status_plan *p)
{
    struct interval_facts facts = {p->is_assumed ? 0 : p->cost_s, p->ran_s,
                                   p->n_failures, 0};
    struct interval chosen = {p->every_s, p->cost_s, p->mtbf_s};
    char text[INTERVAL_TEXT_BYTES];

    interval_explain(&facts, &chosen, text);
    buf_printf(b, "  saves       every %s\n", text);
}

/* What each level would cost least at, below what saves themselves do. */
static void put_levels(struct buf *b, const struct run_status *s)
{
    struct interval_level l[INTERVAL_N_LEVELS];
    struct interval_levels_facts f;
    char text[INTERVAL_TEXT_BYTES];

    run_status_levels(s, &f, l);
    for (size_t i = 0; i < INTERVAL_N_LEVELS; i++) {
        if (l[i].is_there) {
            interval_level_explain(&f, i, &l[i], text);
            buf_printf(b, "              %-8s %s\n", interval_level_name(i), text);
        }
    }
}

void run_text_head(struct buf *b, const struct run_view *v)
{
    const struct run_status *s = v->status;
    bool colour = show_has_colour(stdout);
    char state[512];

    run_view_state(v, state, sizeof(state));
    show_clean(b, s->name, strlen(s->name));
    buf_putc(b, '/');
    show_clean(b, s->id, strlen(s->id));
    buf_printf(b, ": %s", colour ? state_colour(v) : "");
    show_clean(b, state, strlen(state));
    buf_puts(b, colour ? "\x1b[0m\n" : "\n");
    put_progress(b, s);
    put_slow(b, s);
    put_excluded(b, s);
    put_world(b, s);
    if (s->verdict.is_set) {
        buf_printf(b, "  exit status %d%s", s->verdict.exit_status,
                   s->verdict.is_resumable ? ", resumable" : "");
        put_text(b, s->verdict.reason[0] ? ": " : "", s->verdict.reason);
    }
    if (s->state == STATUS_SUSPENDED) {
        buf_printf(b, "  muster resume %s goes on with it\n", v->dir->id);
    }
    if (run_view_is_unheard(v)) {
        buf_printf(b, "  front end   none, nor is anybody of the run heard on this host: "
                   "muster resume %s goes on with it\n", v->dir->id);
    } else if (v->has_status && run_view_is_alive(v) && !v->is_locked) {
        buf_printf(b, "  front end   none: muster attach %s takes the run "
                   "over\n", v->dir->id);
    }
    put_failure(b, &s->failure);
    if (s->trouble[0]) {
        put_text(b, "  ", s->trouble);
    }
    if (s->resume_path[0]) {
        put_text(b, "  checkpoint  ", s->resume_path);
    }
    put_avoided(b, &s->avoid);
    if (s->stored_path[0]) {
        put_text(b, "  stored      ", s->stored_path);
    }
    if (s->storing_path[0]) {
        put_text(b, "  storing     ", s->storing_path);
    }
    put_saving(b, s);
    put_held(b, s);
    if (s->save_plan.is_set && !s->verdict.is_set) {
        put_plan(b, &s->save_plan);
        put_levels(b, s);
    }
    put_late(b, s);
    put_text(b, "  directory   ", v->dir->path);
}

static const char *host_of(const struct run_status *s, int node)
{
    for (size_t i = 0; i < s->n_nodes; i++) {
        if (s->nodes[i].rank == node) {
            return s->nodes[i].host;
        }
    }
    return "?";
}

/* Workers alive of each node rank; NULL without memory. */
static size_t *count_alive(const struct run_status *s)
{
    size_t *n = calloc(STATUS_MAX_NODES + 1, sizeof(*n));

    for (size_t i = 0; n && i < s->n_workers; i++) {
        n[s->workers[i].node] += s->workers[i].state == STATUS_WORKER_RUNNING ||
                                 s->workers[i].state == STATUS_WORKER_STOPPING;
    }
    return n;
}

void run_text_nodes(struct buf *b, const struct run_status *s)
{
    static const char *const head[] = {
        "NODE", "HOST", "STATE", "WORKERS", "AGENT",
    };
    _free_ size_t *n_alive = count_alive(s);
    _strlist_ struct strlist cells = {0};

    if (!s->n_nodes || !n_alive) {
        return;
    }
    for (size_t i = 0; i < ARRAY_SIZE(head); i++) {
        strlist_add(&cells, head[i]);
    }
    for (size_t i = 0; i < s->n_nodes; i++) {
        const struct status_node *n = &s->nodes[i];

        strlist_addf(&cells, "%d%s", n->rank, n->rank == s->lead ? "*" : "");
        strlist_add(&cells, n->host[0] ? n->host : "-"); /* nobody who is left knows */
        strlist_add(&cells, status_node_name(n->state));
        strlist_addf(&cells, "%zu/%d", n_alive[n->rank], n->n_procs);
        strlist_addf(&cells, "%" PRId64, n->agent_pid);
    }
    buf_putc(b, '\n');
    show_table(&cells, ARRAY_SIZE(head), b);
}

static void add_pid(struct strlist *cells, int64_t pid)
{
    if (pid > 0) {
        strlist_addf(cells, "%" PRId64, pid);
    } else {
        strlist_add(cells, "-");
    }
}

static void add_exit(struct strlist *cells, const struct status_worker *w)
{
    if (w->state != STATUS_WORKER_EXITED) {
        strlist_add(cells, "-");
    } else if (w->signal) {
        strlist_addf(cells, "signal %d (%s)", w->signal, strsignal(w->signal));
    } else {
        strlist_addf(cells, "%d", w->exit_code);
    }
}

void run_text_workers(struct buf *b, const struct run_status *s)
{
    static const char *const head[] = {
        "RANK", "NODE", "HOST", "STATE", "PID", "EXIT",
    };
    _strlist_ struct strlist cells = {0};

    for (size_t i = 0; i < ARRAY_SIZE(head); i++) {
        strlist_add(&cells, head[i]);
    }
    for (size_t i = 0; i < s->n_workers; i++) {
        const struct status_worker *w = &s->workers[i];

        strlist_addf(&cells, "%d", w->rank);
        strlist_addf(&cells, "%d", w->node);
        strlist_add(&cells, host_of(s, w->node));
        strlist_add(&cells, status_worker_name(w->state));
        add_pid(&cells, w->pid);
        add_exit(&cells, w);
    }
    buf_putc(b, '\n');
    show_table(&cells, ARRAY_SIZE(head), b);
}
