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

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

enum { DEFAULT_SECONDS = 15, MAX_SECONDS = 3600 };

struct nodes_options {
    const char *hosts, *hostfile, *ssh;
    int64_t seconds;
    enum show_format format;
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
    {0},
};

static const struct options options = {
    .command = "nodes",
    .usage = "[-H A,B,...] [-o json|yaml|wide]",
    .about = "Shows the hosts of --hosts or --hostfile, else those of the Slurm "
             "job around, else this machine: CPUs, memory, GPUs, and the runs "
             "of this user that are alive there. With -o wide each GPU is "
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
    if (v->problem[0]) {
        strlist_add(cells, "Unknown");
        for (int i = 0; i < 5; i++) {
            strlist_add(cells, "-");
        }
        strlist_add(cells, v->problem);
        return;
    }
    strlist_add(cells, "Up");
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

static void put_nodes(const struct node_view *v, size_t n, struct buf *to)
{
    static const char *const head[] = {
        "HOST", "STATE", "CPUS", "LOAD", "FREE MEMORY", "GPUS", "FREE",
        "RUNS (WORKERS)"};
    _strlist_ struct strlist cells = {0};

    for (size_t i = 0; i < ARRAY_SIZE(head); i++) {
        strlist_add(&cells, head[i]);
    }
    for (size_t i = 0; i < n; i++) {
        add_row(&cells, &v[i]);
    }
    show_table(&cells, ARRAY_SIZE(head), to);
}

static int show(const struct node_view *v, size_t n, enum show_format format)
{
    _buf_ struct buf text = {0};
    struct jsonw w = jsonw_start(&text);

    if (format == SHOW_JSON || format == SHOW_YAML) {
        jsonw_array(&w, NULL);
        for (size_t i = 0; i < n; i++) {
            add_node(&w, &v[i]);
        }
        jsonw_end_array(&w);
        return show_json(&text, format);
    }
    put_nodes(v, n, &text);
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

static int look(const struct nodes_options *o, struct error *e)
{
    _host_list_ struct host_list hosts = {0};
    _free_ struct node_view *views = NULL;
    _strlist_ struct strlist ssh = {0};
    int rc;

    if (o->seconds < 1 || o->seconds > MAX_SECONDS) {
        return error_text(e, ERR_USAGE, "option --timeout: expected 1 to %d "
                          "seconds, found %lld", MAX_SECONDS,
                          (long long)o->seconds);
    }
    rc = hosts_find(o->hosts, o->hostfile, &hosts, e);
    if (rc < 0) {
        e->code = o->hostfile ? ERR_USAGE : e->code;
        return rc;
    }
    ssh_argv(o->ssh, &ssh);
    rc = ssh.failed ? error_set(e, ENOMEM, "ask hosts")
                    : node_views_ask(&hosts, ssh.items,
                                     (unsigned)o->seconds * 1000, &views, e);
    rc = rc < 0 ? rc : node_views_add_runs(views, hosts.n, e);
    if (rc < 0) {
        return rc;
    }
    rc = show(views, hosts.n, o->format);
    return rc ? rc : status_of(views, hosts.n);
}

int cmd_nodes(int argc, char **argv)
{
    _option_args_ struct option_args args = {0};
    struct nodes_options set = {.seconds = DEFAULT_SECONDS};
    struct error e = {0};
    int rc = options_start(&options, argc, argv, &set, &args);

    if (rc >= 0) {
        return rc;
    }
    rc = look(&set, &e);
    return rc < 0 ? command_fail(&e) : rc;
}
