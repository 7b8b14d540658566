/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Which document of a file is the job: the only one, or the one that was asked
 * for by name. Runtimes stay in the file for the job to name; what is of other
 * kinds is told and skipped.
 */
#include <config.h>

#include "base/buf.h"
#include "base/cleanup.h"
#include "spec/resolve.h"

#include <stdlib.h>
#include <string.h>

struct found {
    struct node *jobs[YAML_MAX_DOCUMENTS];
    const struct form *forms[YAML_MAX_DOCUMENTS];
    size_t n;
    struct node *runtime; /* the last one */
    const struct form *runtime_form;
};

static void note_skipped(struct resolving *s, const struct node *doc)
{
    const struct form *near = form_nearest(doc);
    const char *kind = node_get(doc, "kind")->text;

    if (near) {
        report_warn(&s->report, &doc->place,
                    "kind %.60s is skipped; did you mean %s of %s?", kind,
                    near->kind, near->api_version);
    } else {
        report_note(&s->report, &doc->place, "kind %.60s is skipped: it %s",
                    kind, form_why_not(doc));
    }
}

static void sort_documents(struct resolving *s, struct found *f)
{
    for (size_t i = 0; i < s->docs.n; i++) {
        struct node *doc = s->docs.docs[i];
        const struct form *form = form_of(&s->c, doc, s->docs.n > 1);

        if (form && form->is_runtime) {
            f->runtime = doc;
            f->runtime_form = form;
        } else if (form) {
            f->jobs[f->n] = doc;
            f->forms[f->n++] = form;
        } else if (s->docs.n > 1 && s->report.n_errors == 0) {
            note_skipped(s, doc);
        }
    }
}

static void report_no_job(struct resolving *s, const struct found *f)
{
    struct place at = {.file = s->file};
    const struct node *likely = NULL;

    for (size_t i = 0; i < s->docs.n && !likely; i++) {
        likely = form_nearest(s->docs.docs[i]) ? s->docs.docs[i] : NULL;
    }
    if (s->docs.n == 0) {
        report_error(&s->report, &at,
                     "no job in it; expected one, such as apiVersion: "
                     "muster/v1 and kind: Job");
    } else if (f->runtime && !likely) {
        const char *name = form_doc_name(f->runtime);

        report_error(&s->report, &f->runtime->place,
                     "only the runtime %.60s; expected a job that refers to "
                     "it",
                     name ? name : "without a name");
    } else {
        form_of(&s->c, likely ? likely : s->docs.docs[0], false);
    }
}

/* All names, for the error about a choice. */
static char *list_jobs(struct resolving *s, const struct found *f)
{
    _buf_ struct buf names = {0};

    for (size_t i = 0; i < f->n; i++) {
        const char *name = form_doc_name(f->jobs[i]);

        buf_printf(&names, "%s%.60s", i ? ", " : "", name ? name : "(none)");
    }
    return arena_strdup(&s->arena, buf_str(&names));
}

static void pick_job(struct resolving *s, const struct found *f)
{
    struct place at = {.file = s->file};
    const char *want = s->c.request->job;

    if (f->n == 1 && !want) {
        s->document = f->jobs[0];
        s->form = f->forms[0];
        return;
    }
    for (size_t i = 0; want && i < f->n; i++) {
        const char *name = form_doc_name(f->jobs[i]);

        if (!name || strcmp(name, want) != 0) {
            continue;
        }
        if (s->document) {
            report_error(&s->report, &f->jobs[i]->place,
                         "job %.60s again, first on line %u; expected one of "
                         "that name",
                         want, s->document->place.line);
            return;
        }
        s->document = f->jobs[i];
        s->form = f->forms[i];
    }
    if (s->document) {
        return;
    }
    if (want) {
        report_error(&s->report, &at, "no job %.60s in it; expected one of %s",
                     want, list_jobs(s, f));
    } else {
        report_error(&s->report, &at,
                     "%zu jobs in it; expected the name of one of %s", f->n,
                     list_jobs(s, f));
    }
}

void resolve_choose(struct resolving *s)
{
    _free_ struct found *f = calloc(1, sizeof(*f));

    if (!f) {
        s->report.failed = true;
        return;
    }
    sort_documents(s, f);
    if (s->report.n_errors) {
        return;
    }
    if (f->n == 0 && f->runtime && s->c.request->accept_runtime) {
        s->document = f->runtime;
        s->form = f->runtime_form;
    } else if (f->n == 0) {
        report_no_job(s, f);
    } else {
        pick_job(s, f);
    }
}
