/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "spec/runtimes.h"

#include "base/buf.h"
#include "base/cleanup.h"
#include "base/fs.h"
#include "base/str.h"

#include <dirent.h>
#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

enum { MAX_FILES = 1000, MAX_DIRS = 8 };

static const struct {
    const char *name;
    const char *text;
} built_in[] = {
    {"pytorch-runtime",
     "apiVersion: muster/v1\n"
     "kind: Runtime\n"
     "name: pytorch-runtime\n"
     "procsPerNode: auto\n"},
    {"pytorch-distributed-runtime",
     "apiVersion: muster/v1\n"
     "kind: Runtime\n"
     "name: pytorch-distributed-runtime\n"
     "procsPerNode: auto\n"
     "gang: {timeout: 300s}\n"
     "restart: {policy: OnFailure, max: 3}\n"},
    {"mpi-runtime",
     "apiVersion: muster/v1\n"
     "kind: Runtime\n"
     "name: mpi-runtime\n"
     "program: mpi\n"},
};

/* What is done with every runtime that is found; true ends the search. */
typedef bool visit_f(void *ctx, const char *name, struct node *doc,
                     const struct form *form, const char *where);

struct walk {
    const struct context *c;
    visit_f *visit;
    void *ctx;
};

static bool visit_docs(const struct walk *w, const struct yaml_docs *docs,
                       const char *where)
{
    struct report ignored = {0};
    struct context quiet = {.arena = w->c->arena,
                            .report = &ignored,
                            .request = w->c->request};
    bool found = false;

    for (size_t i = 0; i < docs->n && !found; i++) {
        const struct form *form = form_of(&quiet, docs->docs[i], true);
        const char *name = form_doc_name(docs->docs[i]);

        if (form && form->is_runtime && name) {
            found = w->visit(w->ctx, name, docs->docs[i], form, where);
        }
    }
    report_release(&ignored);
    return found;
}

static bool visit_file(const struct walk *w, const char *path)
{
    _free_ char *text = NULL;
    struct report report = {0};
    struct error e = {0};
    struct yaml_docs docs;
    struct stat st;
    const char *why = NULL;
    size_t len;
    bool found;

    if (stat(path, &st) == 0 && !S_ISREG(st.st_mode)) {
        error_text(&e, EINVAL, "%s is not a file", path);
        why = e.text; /* a pipe would be waited for */
    } else if (fs_read(path, YAML_MAX_BYTES, &text, &len, &e) < 0) {
        why = e.text;
    } else if (yaml_load(w->c->arena, path, text, len, NULL, &docs, &report) <
               0) {
        why = report.n ? report.items[0].text : "out of memory";
    }
    if (why) {
        report_warn(w->c->report, NULL, "a file of runtimes is skipped: %s",
                    why);
    }
    found = !why && visit_docs(w, &docs, path);
    report_release(&report);
    return found;
}

static bool is_spec_name(const char *name)
{
    return name[0] != '.' && (str_ends(name, ".yaml") ||
                              str_ends(name, ".yml") ||
                              str_ends(name, ".json"));
}

static int compare_names(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

static bool visit_dir(const struct walk *w, const char *dir)
{
    _strlist_ struct strlist names = {0};
    DIR *d = opendir(dir);
    struct dirent *entry;
    bool found = false;

    if (!d) {
        return false;
    }
    while (names.n < MAX_FILES && (entry = readdir(d))) {
        if (is_spec_name(entry->d_name)) {
            strlist_addf(&names, "%s/%s", dir, entry->d_name);
        }
    }
    closedir(d);
    if (names.failed) {
        return false;
    }
    if (names.n) {
        qsort(names.items, names.n, sizeof(names.items[0]), compare_names);
    }
    for (size_t i = 0; i < names.n && !found; i++) {
        found = visit_file(w, names.items[i]);
    }
    return found;
}

static bool visit_built_in(const struct walk *w)
{
    for (size_t i = 0; i < ARRAY_SIZE(built_in); i++) {
        const char *text = built_in[i].text;
        const char *where =
            arena_printf(w->c->arena, "runtime %s (built in)",
                         built_in[i].name);
        struct yaml_docs docs;

        if (where &&
            yaml_load(w->c->arena, where, text, strlen(text), NULL, &docs,
                      w->c->report) == 0 &&
            visit_docs(w, &docs, "built in")) {
            return true;
        }
    }
    return false;
}

static const char *user_dir(const struct context *c)
{
    const char *config = form_getenv(c, "XDG_CONFIG_HOME");
    const char *home = form_getenv(c, "HOME");

    if (config && config[0]) {
        return arena_printf(c->arena, "%s/muster/runtimes", config);
    }
    return home && home[0]
               ? arena_printf(c->arena, "%s/.config/muster/runtimes", home)
               : NULL;
}

/* The directories in order; of a cluster's runtime the site's come first. */
static size_t list_dirs(const struct context *c, const char *kind,
                        const char **dirs)
{
    const char *user = user_dir(c);
    bool site_first = kind && str_starts(kind, "Cluster");
    size_t n = 0;

    if (c->request->runtime_dirs) {
        while (n < MAX_DIRS && c->request->runtime_dirs[n]) {
            dirs[n] = c->request->runtime_dirs[n];
            n++;
        }
        return n;
    }
    if (user && !site_first) {
        dirs[n++] = user;
    }
    dirs[n++] = "/etc/muster/runtimes";
    dirs[n++] = PKGDATADIR "/runtimes";
    if (user && site_first) {
        dirs[n++] = user;
    }
    return n;
}

static bool visit_all(const struct walk *w, const char *kind)
{
    const char *dirs[MAX_DIRS];
    size_t n = list_dirs(w->c, kind, dirs);

    for (size_t i = 0; i < n; i++) {
        if (visit_dir(w, dirs[i])) {
            return true;
        }
    }
    return visit_built_in(w);
}

struct search {
    const char *name;
    const char *kind; /* as the job names it, or NULL */
    struct node *doc;
    const struct form *form;
    const struct node *again; /* another one that is as good */
    struct strlist seen;
};

/* Of two of a name, the one of the kind that the job names, else the one that a
 * namespace would have; muster's own are of either. */
static bool is_preferred(const struct form *form, const char *kind)
{
    bool wants_cluster = kind && str_starts(kind, "Cluster");

    return strcmp(form->kind, "Runtime") == 0 ||
           str_starts(form->kind, "Cluster") == wants_cluster;
}

static bool match_in_file(void *ctx, const char *name, struct node *doc,
                          const struct form *form, const char *where)
{
    struct search *s = ctx;
    bool better;

    (void)where;
    if (strcmp(s->name, name) != 0) {
        strlist_add(&s->seen, name);
        return false;
    }
    better = !s->doc || (is_preferred(form, s->kind) &&
                         !is_preferred(s->form, s->kind));
    if (better) {
        s->doc = doc;
        s->form = form;
        s->again = NULL;
    } else if (is_preferred(form, s->kind) ==
               is_preferred(s->form, s->kind)) {
        s->again = doc;
    }
    return false;
}

static bool match(void *ctx, const char *name, struct node *doc,
                  const struct form *form, const char *where)
{
    struct search *s = ctx;

    (void)where;
    if (strcmp(s->name, name) != 0) {
        strlist_add(&s->seen, name);
        return false;
    }
    s->doc = doc;
    s->form = form;
    return true;
}

static void report_missing(const struct context *c, const struct search *s,
                           const struct place *at)
{
    const char *near =
        s->seen.items
            ? str_nearest(s->name, (const char *const *)s->seen.items)
            : NULL;
    _buf_ struct buf names = {0};

    for (size_t i = 0; i < s->seen.n && i < 12; i++) {
        buf_printf(&names, "%s%s", i ? ", " : "", s->seen.items[i]);
    }
    report_error(c->report, at, "runtime %.80s is not known; %s%s", s->name,
                 near ? "did you mean " : "expected one of ",
                 near ? near : buf_str(&names));
}

struct node *runtimes_load(const struct context *c,
                           const struct yaml_docs *same_file, const char *name,
                           const char *kind, const struct place *at)
{
    struct search s = {.name = name, .kind = kind};
    struct walk w = {.c = c, .visit = match_in_file, .ctx = &s};
    struct node *tree = NULL;

    if (same_file) {
        visit_docs(&w, same_file, "the same file");
    }
    w.visit = match;
    if (s.again) {
        report_error(c->report, &s.again->place,
                     "runtime %.60s again, first on line %u; expected one of "
                     "that name",
                     name, s.doc->place.line);
    } else if (s.doc || visit_all(&w, kind)) {
        tree = s.form->read(c, s.doc);
    } else {
        report_missing(c, &s, at);
    }
    strlist_release(&s.seen);
    return tree;
}

static bool print(void *ctx, const char *name, struct node *doc,
                  const struct form *form, const char *where)
{
    (void)doc;
    (void)form;
    buf_printf(ctx, "%s\t%s\n", name, where);
    return false;
}

void runtimes_list(const struct context *c, struct buf *to)
{
    struct walk w = {.c = c, .visit = print, .ctx = to};

    visit_all(&w, NULL);
}
