/* SPDX-License-Identifier: Apache-2.0 */
/* muster nodes: hosts, what they have, and which run uses what. */
#include <config.h>

#include "launcher/commands.h"

#include "base/cleanup.h"
#include "launcher/jsonw.h"
#include "launcher/node_view.h"
#include "launcher/options.h"
#include "launcher/show.h"
#include "launcher/ssh.h"
#include "launcher/live.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

enum { DEFAULT_SECONDS = 15, MAX_SECONDS = 3600, PERIOD_MS = 10000 };

struct nodes_options {
    const char *hosts, *hostfile, *ssh;
    int64_t seconds;
    enum show_format format;
    bool watch;
};

static const struct option_def table[] = {
    {"hosts", "A,B,...", "hosts to look at; ranges like n[1-4] are allowed",
     OPTION_STR, offsetof(struct nodes_options, hosts), NULL, 'H'},
    {"hostfile", "FILE", "a file with one host a line", OPTION_STR,
     offsetof(struct nodes_options, hostfile), NULL, 0},
    {"ssh", "COMMAND", "remote shell, instead of ssh", OPTION_STR,
     offsetof(struct nodes_options, ssh), NULL, 0},
    {"timeout", "SECONDS", "how long hosts may take to answer (15)",
     OPTION_INT, offsetof(struct nodes_options, seconds), NULL, 't'},
    SHOW_OPTION(struct nodes_options, format),
    WATCH_OPTION(struct nodes_options, watch, "go on showing what changes, with "
                 "a look every 10 s"),
    {0},
};

static const struct options options = {
    .command = "nodes",
    .usage = "[-H A,B,...] [-w] [-o json|yaml|wide]",
    .about = "Shows the hosts of --hosts or --hostfile, else those of the Slurm "
             "job around, else this machine: slots, CPUs, memory, GPUs, and the "
             "runs of this user that are alive there. With -o wide each GPU is "
             "shown too.",
    .table = table,
};

static size_t count_free(const struct node_view *v)
{
    size_t n = 0;

    for (size_t i = 0; i < v->gpus.n; i++) {
        n += !node_view_gpu_is_taken(&v->gpus.items[i]);
    }
    return n;
}

static int count_workers(const struct node_view *v)
{
    int n = 0;

    for (size_t i = 0; i < v->n_uses; i++) {
        n += v->uses[i].n_workers;
    }
    return n;
}

/* --- JSON --- */

static void add_gpu(struct jsonw *w, const struct node_view *v, size_t i)
{
    const struct gpu *g = &v->gpus.items[i];

    jsonw_object(w, NULL);
    jsonw_int(w, "index", g->index);
    if (v->gpus.is_detailed) {
        jsonw_str(w, "uuid", g->uuid);
        jsonw_str(w, "name", g->name);
        jsonw_int(w, "used_bytes", (int64_t)g->used_bytes);
        jsonw_int(w, "total_bytes", (int64_t)g->total_bytes);
        jsonw_bool(w, "taken", node_view_gpu_is_taken(g));
        jsonw_array(w, "pids");
        for (size_t k = 0; k < g->n_pids; k++) {
            jsonw_int(w, NULL, g->pids[k]);
        }
        jsonw_end_array(w);
    }
    if (v->gpu_use[i] >= 0) {
        jsonw_str(w, "run", v->uses[v->gpu_use[i]].id);
    }
    jsonw_end_object(w);
}

static void add_known(struct jsonw *w, const struct node_view *v)
{
    jsonw_int(w, "cpus", v->cpus);
    jsonw_num(w, "load", v->load);
    jsonw_int(w, "memory_bytes", (int64_t)v->memory_bytes);
    jsonw_int(w, "memory_free_bytes", (int64_t)v->memory_free_bytes);
    if (v->gpus.is_detailed) {
        jsonw_int(w, "gpus_free", (int64_t)count_free(v));
    }
    jsonw_array(w, "gpus");
    for (size_t i = 0; i < v->gpus.n; i++) {
        add_gpu(w, v, i);
    }
    jsonw_end_array(w);
    jsonw_int(w, "n_workers", count_workers(v));
    jsonw_array(w, "runs");
    for (size_t i = 0; i < v->n_uses; i++) {
        jsonw_object(w, NULL);
        jsonw_str(w, "name", v->uses[i].name);
        jsonw_str(w, "id", v->uses[i].id);
        jsonw_int(w, "n_workers", v->uses[i].n_workers);
        jsonw_end_object(w);
    }
    jsonw_end_array(w);
}

static void add_node(struct jsonw *w, const struct node_view *v)
{
    jsonw_object(w, NULL);
    jsonw_str(w, "name", v->name);
    jsonw_opt_str(w, "host", v->host);
    jsonw_str(w, "state", v->problem[0] ? "Unknown" : "Up");
    jsonw_opt_str(w, "problem", v->problem);
    if (v->slots) {
        jsonw_int(w, "slots", v->slots);
    }
    if (!v->problem[0]) {
        add_known(w, v);
    }
    jsonw_end_object(w);
}

/* --- tables --- */

static void add_bytes(struct strlist *cells, uint64_t free, uint64_t total)
{
    const double gib = 1024.0 * 1024 * 1024;

    strlist_addf(cells, "%.1f/%.1f GiB", (double)free / gib,
                 (double)total / gib);
}

static void add_runs(struct strlist *cells, const struct node_view *v)
{
    _buf_ struct buf b = {0};

    for (size_t i = 0; i < v->n_uses; i++) {
        buf_printf(&b, "%s%s %s (%d)", i ? ", " : "", v->uses[i].name,
                   v->uses[i].id, v->uses[i].n_workers);
    }
    strlist_add(cells, b.len ? buf_str(&b) : "-");
}

static void add_row(struct strlist *cells, const struct node_view *v)
{
    strlist_add(cells, v->name);
    strlist_add(cells, v->problem[0] ? "Unknown" : "Up");
    if (v->slots) {
        strlist_addf(cells, "%u", v->slots);
    } else {
        strlist_add(cells, "-");
    }
    if (v->problem[0]) {
        for (int i = 0; i < 5; i++) {
            strlist_add(cells, "-");
        }
        strlist_add(cells, v->problem);
        return;
    }
    strlist_addf(cells, "%u", v->cpus);
    strlist_addf(cells, "%.1f", v->load);
    add_bytes(cells, v->memory_free_bytes, v->memory_bytes);
    strlist_addf(cells, "%zu", v->gpus.n);
    if (v->gpus.n && !v->gpus.is_detailed) {
        strlist_add(cells, "?");
    } else {
        strlist_addf(cells, "%zu", count_free(v));
    }
    add_runs(cells, v);
}

static void add_gpu_row(struct strlist *cells, const struct node_view *v,
                        size_t i)
{
    const struct gpu *g = &v->gpus.items[i];

    strlist_add(cells, v->name);
    strlist_addf(cells, "%u", g->index);
    strlist_add(cells, g->name[0] ? g->name : "?");
    if (!v->gpus.is_detailed) {
        strlist_add(cells, "?");
        strlist_add(cells, "?");
        return;
    }
    add_bytes(cells, g->total_bytes - g->used_bytes, g->total_bytes);
    if (v->gpu_use[i] >= 0) {
        strlist_add(cells, v->uses[v->gpu_use[i]].id);
    } else if (g->n_pids) {
        strlist_addf(cells, "pid %ld", (long)g->pids[0]);
    } else {
        strlist_add(cells, node_view_gpu_is_taken(g) ? "somebody" : "-");
    }
}

static void put_gpus(const struct node_view *v, size_t n, struct buf *to)
{
    static const char *const head[] = {"HOST", "GPU", "KIND", "FREE MEMORY",
                                       "USED BY"};
    _strlist_ struct strlist cells = {0};

    for (size_t i = 0; i < ARRAY_SIZE(head); i++) {
        strlist_add(&cells, head[i]);
    }
    for (size_t i = 0; i < n; i++) {
        for (size_t k = 0; k < v[i].gpus.n; k++) {
            add_gpu_row(&cells, &v[i], k);
        }
    }
    if (cells.n > ARRAY_SIZE(head)) {
        buf_putc(to, '\n');
        show_table(&cells, ARRAY_SIZE(head), to);
    }
}

enum { N_COLUMNS = 9, NAME_COLUMN = 0, LOAD_COLUMN = 4, MEMORY_COLUMN = 5 };

static void list_nodes(const struct node_view *v, size_t n,
                       struct strlist *cells)
{
    static const char *const head[N_COLUMNS] = {
        "HOST", "STATE", "SLOTS", "CPUS", "LOAD", "FREE MEMORY", "GPUS",
        "FREE", "RUNS (WORKERS)"};

    for (size_t i = 0; i < N_COLUMNS; i++) {
        strlist_add(cells, head[i]);
    }
    for (size_t i = 0; i < n; i++) {
        add_row(cells, &v[i]);
    }
}

static void put_json(const struct node_view *v, size_t n, struct buf *to)
{
    struct jsonw w = jsonw_start(to);

    jsonw_array(&w, NULL);
    for (size_t i = 0; i < n; i++) {
        add_node(&w, &v[i]);
    }
    jsonw_end_array(&w);
}

static int show(const struct node_view *v, size_t n, enum show_format format)
{
    _strlist_ struct strlist cells = {0};
    _buf_ struct buf text = {0};

    if (format == SHOW_JSON || format == SHOW_YAML) {
        put_json(v, n, &text);
        return show_json(&text, format);
    }
    list_nodes(v, n, &cells);
    show_table(&cells, N_COLUMNS, &text);
    if (format == SHOW_WIDE) {
        put_gpus(v, n, &text);
    }
    fputs(buf_str(&text), stdout);
    return EXIT_OK;
}

/* 1 where a host did not answer, for scripts that want all of them. */
static int status_of(const struct node_view *v, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        if (v[i].problem[0]) {
            return EXIT_FAILED;
        }
    }
    return EXIT_OK;
}

struct looking {
    const struct nodes_options *set;
    struct host_list hosts;
    struct strlist ssh;
};

static int ask(const struct looking *l, struct node_view **ret,
               struct error *e)
{
    int rc = node_views_ask(&l->hosts, l->ssh.items,
                            (unsigned)l->set->seconds * 1000, ret, e);

    return rc < 0 ? rc : node_views_add_runs(*ret, l->hosts.n, e);
}

static int show_once(const struct looking *l, struct error *e)
{
    _free_ struct node_view *views = NULL;
    int rc = ask(l, &views, e);

    rc = rc < 0 ? rc : show(views, l->hosts.n, l->set->format);
    return rc ? rc : status_of(views, l->hosts.n);
}

/* Load and memory are no news by themselves. */
static int look(void *arg, struct live_look *ret, struct error *e)
{
    static const char *const restless[] = {"load", "memory_free_bytes", NULL};
    const struct looking *l = arg;
    _free_ struct node_view *views = NULL;
    _strlist_ struct strlist cells = {0};
    _buf_ struct buf json = {0};
    int rc = ask(l, &views, e);

    if (rc < 0) {
        return rc;
    }
    if (l->set->format == SHOW_JSON) {
        put_json(views, l->hosts.n, &json);
        live_add_objects(ret, &json, "name", restless);
        return 0;
    }
    list_nodes(views, l->hosts.n, &cells);
    live_add_table(ret, &cells, N_COLUMNS, NAME_COLUMN,
                    1u << LOAD_COLUMN | 1u << MEMORY_COLUMN);
    if (l->set->format == SHOW_WIDE) {
        put_gpus(views, l->hosts.n, &ret->screen);
    }
    return 0;
}

static int run(struct looking *l, struct error *e)
{
    const struct nodes_options *o = l->set;
    struct live w = {.look = look, .arg = l, .period_ms = PERIOD_MS,
                      .has_lines = o->format == SHOW_JSON};
    int rc;

    if (o->seconds < 1 || o->seconds > MAX_SECONDS) {
        return error_text(e, ERR_USAGE, "option --timeout: expected 1 to %d "
                          "seconds, found %lld", MAX_SECONDS,
                          (long long)o->seconds);
    }
    rc = show_check_watch(o->watch, o->format, e);
    rc = rc < 0 ? rc : hosts_find(o->hosts, o->hostfile, &l->hosts, e);
    if (rc < 0) {
        e->code = o->hostfile ? ERR_USAGE : e->code;
        return rc;
    }
    hosts_add_slurm_slots(&l->hosts);
    ssh_argv(o->ssh, &l->ssh);
    if (l->ssh.failed) {
        return error_set(e, ENOMEM, "ask hosts");
    }
    return o->watch ? live_run(&w, e) : show_once(l, e);
}

int cmd_nodes(int argc, char **argv)
{
    _option_args_ struct option_args args = {0};
    struct nodes_options set = {.seconds = DEFAULT_SECONDS};
    struct looking l = {.set = &set};
    struct error e = {0};
    int rc = options_start(&options, argc, argv, &set, &args);

    if (rc < 0) {
        rc = run(&l, &e);
        rc = rc < 0 ? command_fail(&e) : rc;
    }
    host_list_release(&l.hosts);
    strlist_release(&l.ssh);
    return rc;
}
