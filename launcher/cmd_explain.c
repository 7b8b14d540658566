/* SPDX-License-Identifier: Apache-2.0 */
/* muster explain: every value of a job, and who said so. */
#include <config.h>

#include "launcher/commands.h"

#include "base/cleanup.h"
#include "launcher/job_options.h"
#include "launcher/jsonw.h"
#include "launcher/options.h"
#include "launcher/show.h"
#include "spec/spec.h"

#include <stdio.h>
#include <string.h>

struct explain_options {
    struct job_options job;
    struct strlist keys;
    enum show_format format;
};

static const struct option_def table[] = {
    JOB_OPTIONS(struct explain_options, job),
    {"key", "KEY", "show only KEY and what is below it, e.g. restart; may be "
     "repeated", OPTION_LIST, offsetof(struct explain_options, keys), NULL,
     'k'},
    SHOW_OPTION(struct explain_options, format),
    {0},
};

static const struct options options = {
    .command = "explain",
    .usage = "[OPTION...] SPEC\n[OPTION...] -- PROGRAM [ARG...]",
    .about = "Shows every value of the job that muster run would start with the "
             "same words, and where it comes from: a place in a file, a "
             "runtime, an option, the environment, or the default. Nothing is "
             "started. With -o wide the meaning of each key is shown too.",
    .table = table,
    .max_args = 1,
    .takes_rest = true,
    .n_values_elsewhere = spec_torchrun_option,
};

/* Whether `path` is `key` or below it. */
static bool is_within(const char *path, const char *key)
{
    size_t len = strlen(key);

    return strncmp(path, key, len) == 0 &&
           (path[len] == '\0' || path[len] == '.');
}

static bool is_wanted(const struct explain_options *o, const char *path)
{
    for (size_t i = 0; i < o->keys.n; i++) {
        if (is_within(path, o->keys.items[i])) {
            return true;
        }
    }
    return o->keys.n == 0;
}

/* A key that nothing has is a mistake of the user, not an empty answer. */
static int check_keys(const struct explain_options *o,
                      const struct spec_result *r, struct error *e)
{
    for (size_t i = 0; i < o->keys.n; i++) {
        const char *key = o->keys.items[i];
        _buf_ struct buf unused = {0};
        bool is_known = spec_describe_key(key, &unused);

        for (size_t j = 0; j < r->n_origins && !is_known; j++) {
            is_known = is_within(r->origins[j].path, key);
        }
        if (!is_known) {
            return error_text(e, ERR_USAGE, "option --key: a job has no '%.100s'"
                              " (muster-job(5) lists the keys)", key);
        }
    }
    return 0;
}

static void add_row(struct strlist *cells, const struct spec_origin *one,
                    const char *value, bool is_wide)
{
    strlist_add(cells, one->path);
    strlist_add(cells, value);
    strlist_add(cells, one->origin);
    if (is_wide) {
        _buf_ struct buf meaning = {0};

        spec_describe_key(one->path, &meaning);
        strlist_add(cells, buf_str(&meaning));
    }
}

static void add_object(struct jsonw *w, const struct spec_origin *one,
                       const char *value)
{
    _buf_ struct buf meaning = {0};

    spec_describe_key(one->path, &meaning);
    jsonw_object(w, NULL);
    jsonw_str(w, "key", one->path);
    jsonw_str(w, "value", value);
    jsonw_str(w, "from", one->origin);
    jsonw_opt_str(w, "meaning", buf_str(&meaning));
    jsonw_end_object(w);
}

static int show(const struct explain_options *o, const struct spec_result *r)
{
    static const char *const head[] = {"KEY", "VALUE", "FROM", "MEANING"};
    size_t n_columns = o->format == SHOW_WIDE ? 4 : 3;
    _strlist_ struct strlist cells = {0};
    _buf_ struct buf text = {0}, json = {0};
    struct jsonw w = jsonw_start(&json);

    for (size_t i = 0; i < n_columns; i++) {
        strlist_add(&cells, head[i]);
    }
    jsonw_array(&w, NULL);
    for (size_t i = 0; i < r->n_origins; i++) {
        const struct spec_origin *one = &r->origins[i];
        _buf_ struct buf value = {0};

        if (is_wanted(o, one->path) &&
            job_write_value(r->job, one->path, &value)) {
            add_row(&cells, one, buf_str(&value), o->format == SHOW_WIDE);
            add_object(&w, one, buf_str(&value));
        }
    }
    jsonw_end_array(&w);
    if (o->format == SHOW_JSON || o->format == SHOW_YAML) {
        return show_json(&json, o->format);
    }
    show_table(&cells, n_columns, &text);
    fputs(buf_str(&text), stdout);
    return EXIT_OK;
}

static int explain(const struct explain_options *o,
                   const struct option_args *args, struct spec_result *r)
{
    static const struct spec_request lenient = {.accept_runtime = true};
    struct error e = {0};
    int rc = job_options_resolve(&o->job, args, &lenient, r, &e);

    if (rc < 0) {
        for (size_t i = 0; i < r->n_messages; i++) {
            fprintf(stderr, "%s\n", r->messages[i].text);
        }
        return r->n_errors ? EXIT_USAGE : command_fail(&e);
    }
    rc = check_keys(o, r, &e);
    return rc < 0 ? command_fail(&e) : show(o, r);
}

int cmd_explain(int argc, char **argv)
{
    _option_args_ struct option_args args = {0};
    struct explain_options set = {0};
    struct spec_result result = {0};
    int rc = options_start(&options, argc, argv, &set, &args);

    if (rc < 0) {
        rc = explain(&set, &args, &result);
    }
    spec_result_release(&result);
    job_options_release(&set.job);
    strlist_release(&set.keys);
    return rc;
}
