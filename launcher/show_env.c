/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "launcher/show_env.h"

#include "base/cleanup.h"
#include "launcher/commands.h"
#include "launcher/exec.h"
#include "launcher/jsonw.h"
#include "launcher/outfit.h"

#include <stdio.h>
#include <string.h>
#include <sys/resource.h>

struct origin {
    const char *word; /* for programs */
    const char *text; /* for people */
};

static const struct origin origins[] = {
    [CONTRACT_USER] = {"user", "passed on"},
    [CONTRACT_JOB] = {"job", "the job"},
    [CONTRACT_HINT] = {"hint", "muster, for the network"},
    [CONTRACT_DEFAULT] = {"default", "muster, as nobody else sets it"},
    [CONTRACT_OWN] = {"muster", "muster"},
};

/* Limits that training programs meet. */
static const struct {
    int what;
    const char *name;
} limits[] = {
    {RLIMIT_NOFILE, "open files"},
    {RLIMIT_MEMLOCK, "locked memory"},
    {RLIMIT_CORE, "core file"},
    {RLIMIT_NPROC, "processes"},
    {RLIMIT_STACK, "stack"},
    {RLIMIT_AS, "address space"},
    {RLIMIT_FSIZE, "file size"},
    {RLIMIT_CPU, "CPU seconds"},
};

/* The place where the job sets a variable; NULL for all others. */
static const char *place_of(const struct show_env *s, const struct env_var *v)
{
    _buf_ struct buf path = {0};

    if (v->origin != CONTRACT_JOB) {
        return NULL;
    }
    buf_printf(&path, "env.%s", v->name);
    return spec_origin_of(s->spec, buf_str(&path));
}

/* What muster-exec makes of a limit of this process. */
static bool read_limit(size_t i, struct rlimit *ret, bool *ret_is_raised)
{
    if (getrlimit((__rlimit_resource_t)limits[i].what, ret) < 0) {
        return false;
    }
    *ret_is_raised = false;
    for (size_t k = 0; k < EXEC_N_LIMITS; k++) {
        if (exec_limits[k].what == limits[i].what) {
            ret->rlim_cur = exec_limit_soft(&exec_limits[k], ret);
            *ret_is_raised = true;
        }
    }
    return true;
}

static const char *cwd_origin(const struct show_env *s)
{
    const char *place = spec_origin_of(s->spec, "workdir");

    return !s->spec->job->workdir ? "where muster run is started"
           : place ? place : "the job";
}

/* --- JSON --- */

static void add_vars(struct jsonw *w, const struct show_env *s,
                     const struct env_worker *one)
{
    jsonw_array(w, "env");
    for (size_t i = 0; i < one->n_vars; i++) {
        const struct env_var *v = &one->vars[i];
        const char *place = place_of(s, v);

        jsonw_object(w, NULL);
        jsonw_str(w, "name", v->name);
        jsonw_str(w, "value", v->value);
        jsonw_str(w, "from", origins[v->origin].word);
        if (place) {
            jsonw_str(w, "place", place);
        }
        jsonw_end_object(w);
    }
    jsonw_end_array(w);
}

static void add_worker(struct jsonw *w, const struct show_env *s,
                       const struct env_worker *one)
{
    jsonw_object(w, NULL);
    jsonw_int(w, "rank", one->rank);
    jsonw_int(w, "local_rank", one->local_rank);
    jsonw_int(w, "node", one->node);
    jsonw_str(w, "host", one->host);
    jsonw_array(w, "argv");
    for (size_t i = 0; i < one->argv.n; i++) {
        jsonw_str(w, NULL, one->argv.items[i]);
    }
    jsonw_end_array(w);
    add_vars(w, s, one);
    jsonw_end_object(w);
}

static void add_lost(struct jsonw *w, const struct strlist *lost)
{
    jsonw_array(w, "not_passed_on");
    for (size_t i = 0; i < lost->n; i++) {
        const char *item = lost->items[i];
        size_t len = strcspn(item, "=");

        jsonw_object(w, NULL);
        jsonw_bytes(w, "name", item, len);
        jsonw_str(w, "why", item + len + 1);
        jsonw_end_object(w);
    }
    jsonw_end_array(w);
}

static void add_limit_value(struct jsonw *w, const char *key, rlim_t v)
{
    if (v == RLIM_INFINITY) {
        jsonw_str(w, key, "unlimited");
    } else {
        jsonw_int(w, key, (int64_t)v);
    }
}

static void add_limits(struct jsonw *w)
{
    struct rlimit l;
    bool is_raised;

    jsonw_array(w, "limits");
    for (size_t i = 0; i < ARRAY_SIZE(limits); i++) {
        if (read_limit(i, &l, &is_raised)) {
            jsonw_object(w, NULL);
            jsonw_str(w, "name", limits[i].name);
            add_limit_value(w, "soft", l.rlim_cur);
            add_limit_value(w, "hard", l.rlim_max);
            jsonw_bool(w, "raised", is_raised);
            jsonw_end_object(w);
        }
    }
    jsonw_end_array(w);
}

static int show_as_json(const struct show_env *s)
{
    _buf_ struct buf json = {0};
    struct jsonw w = jsonw_start(&json);
    char mask[16];

    snprintf(mask, sizeof(mask), "%04o", (unsigned)s->config->umask);
    jsonw_object(&w, NULL);
    jsonw_int(&w, "v", 1);
    jsonw_int(&w, "world", s->plan->world);
    jsonw_array(&w, "workers");
    for (size_t i = 0; i < s->plan->n_workers; i++) {
        add_worker(&w, s, &s->plan->workers[i]);
    }
    jsonw_end_array(&w);
    add_lost(&w, &s->plan->lost);
    jsonw_str(&w, "cwd", outfit_cwd(s->spec->job, s->config->cwd));
    jsonw_str(&w, "umask", mask);
    jsonw_str(&w, "stdin", "/dev/null");
    jsonw_int(&w, "oom_score_adj", OUTFIT_OOM_SCORE_ADJ);
    add_limits(&w);
    jsonw_end_object(&w);
    return show_json(&json, s->format);
}

/* --- tables --- */

static void put_table(const struct strlist *cells, size_t n_columns,
                      struct buf *to)
{
    if (cells->n > n_columns) {
        show_table(cells, n_columns, to);
    }
}

/* Values last: they may be long. */
static void add_head(struct strlist *cells)
{
    strlist_add(cells, "NAME");
    strlist_add(cells, "FROM");
    strlist_add(cells, "VALUE");
}

static void add_row(struct strlist *cells, const struct show_env *s,
                    const struct env_var *v)
{
    const char *place = place_of(s, v);

    strlist_add(cells, v->name);
    if (place) {
        strlist_addf(cells, "%s, %s", origins[v->origin].text, place);
    } else {
        strlist_add(cells, origins[v->origin].text);
    }
    strlist_add(cells, v->value);
}

/* Those that all workers have alike, or else the rest of `one`. */
static void put_vars(const struct show_env *s, const struct env_worker *one,
                     bool is_common, struct buf *to)
{
    _strlist_ struct strlist cells = {0};

    add_head(&cells);
    for (size_t i = 0; i < one->n_vars; i++) {
        if (s->plan->n_workers == 1 ||
            env_plan_is_common(s->plan, &one->vars[i]) == is_common) {
            add_row(&cells, s, &one->vars[i]);
        }
    }
    put_table(&cells, 3, to);
}

static void put_title(const struct env_worker *one, struct buf *to)
{
    _free_ char *line = str_shell_join(one->argv.items);

    buf_printf(to, "# rank %u: worker %u of node %u, on %s\n# %s\n", one->rank,
               one->local_rank, one->node, one->host, line ? line : "");
}

static void put_lost(const struct strlist *lost, struct buf *to)
{
    _strlist_ struct strlist cells = {0};

    strlist_add(&cells, "NAME");
    strlist_add(&cells, "WHY");
    for (size_t i = 0; i < lost->n; i++) {
        size_t len = strcspn(lost->items[i], "=");

        strlist_addf(&cells, "%.*s", (int)len, lost->items[i]);
        strlist_add(&cells, lost->items[i] + len + 1);
    }
    buf_puts(to, "\n# of this environment, and not passed on\n");
    put_table(&cells, 2, to);
    buf_puts(to, lost->n ? "" : "# (nothing)\n");
    buf_puts(to, "# of other hosts: nothing, whatever their shells and their "
                 "mpirun set\n");
}

static void add_fact(struct strlist *cells, const char *name, const char *from,
                     const char *value)
{
    strlist_add(cells, name);
    strlist_add(cells, from);
    strlist_add(cells, value);
}

static void add_limit(struct strlist *cells, size_t i)
{
    struct rlimit l;
    bool is_raised;
    char value[32] = "unlimited";

    if (!read_limit(i, &l, &is_raised)) {
        return;
    }
    if (l.rlim_cur != RLIM_INFINITY) {
        snprintf(value, sizeof(value), "%llu", (unsigned long long)l.rlim_cur);
    }
    add_fact(cells, limits[i].name,
             is_raised ? "its host, raised by muster" : "its host", value);
}

static void put_rest(const struct show_env *s, struct buf *to)
{
    _strlist_ struct strlist cells = {0};
    char mask[16], score[16];

    snprintf(mask, sizeof(mask), "%04o", (unsigned)s->config->umask);
    snprintf(score, sizeof(score), "%d", OUTFIT_OOM_SCORE_ADJ);
    add_head(&cells);
    add_fact(&cells, "directory", cwd_origin(s),
             outfit_cwd(s->spec->job, s->config->cwd));
    add_fact(&cells, "umask", "passed on", mask);
    add_fact(&cells, "stdin", "muster", "/dev/null");
    add_fact(&cells, "oom_score_adj", "muster", score);
    for (size_t i = 0; i < ARRAY_SIZE(limits); i++) {
        add_limit(&cells, i);
    }
    buf_puts(to, "\n# besides; limits as they are on this host\n");
    put_table(&cells, 3, to);
}

int show_env(const struct show_env *s)
{
    const struct env_plan *p = s->plan;
    _buf_ struct buf text = {0};

    if (s->format == SHOW_JSON || s->format == SHOW_YAML) {
        return show_as_json(s);
    }
    if (p->n_workers > 1) {
        buf_printf(&text, "# all %zu workers\n", p->n_workers);
        put_vars(s, &p->workers[0], true, &text);
    }
    for (size_t i = 0; i < p->n_workers; i++) {
        buf_puts(&text, i || p->n_workers > 1 ? "\n" : "");
        put_title(&p->workers[i], &text);
        put_vars(s, &p->workers[i], false, &text);
    }
    put_lost(&p->lost, &text);
    put_rest(s, &text);
    fputs(buf_str(&text), stdout);
    return EXIT_OK;
}
