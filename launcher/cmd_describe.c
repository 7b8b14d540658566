/* SPDX-License-Identifier: Apache-2.0 */
/* muster describe: all that is known of a run, on one page. */
#include <config.h>

#include "launcher/commands.h"

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/fs.h"
#include "launcher/options.h"
#include "launcher/run_events.h"
#include "launcher/run_text.h"
#include "launcher/runview.h"
#include "launcher/show.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_EVENTS = 10000, MAX_SPEC_BYTES = 4 << 20 };

struct describe_options {
    int64_t events;
    enum show_format format;
};

static const struct option_def table[] = {
    {"events", "N", "show at most the N newest events (30); 0 shows none",
     OPTION_INT, offsetof(struct describe_options, events), NULL, 'n'},
    SHOW_OPTION(struct describe_options, format),
    {0},
};

static const struct options options = {
    .command = "describe",
    .usage = "[RUN] [-n N] [-o json|yaml|wide]",
    .about = "Shows all of a run: its state and first failure, its job as it "
             "was resolved, every node and worker, and what happened when. RUN "
             "is a run directory, a run id or a name (its newest run); without "
             "it the newest run is shown.",
    .table = table,
    .max_args = 1,
};

/* What is known, beside the view: owned. */
struct page {
    struct run_view view;
    char *spec; /* NULL: none was written */
    json_t *events;
};

static void page_release(struct page *p)
{
    run_view_release(&p->view);
    free(p->spec);
    json_decref(p->events);
}

static int load(const char *arg, size_t max_events, struct page *p,
                struct error *e)
{
    char path[PATH_MAX];
    int rc = run_view_load(arg, &p->view, e);

    rc = rc < 0 ? rc : rundir_path(p->view.dir, path, sizeof(path), e,
                                   "spec.yaml");
    if (rc < 0) {
        return rc;
    }
    fs_read_regular(path, MAX_SPEC_BYTES, &p->spec, NULL, NULL);
    rc = rundir_path(p->view.dir, path, sizeof(path), e, "events.jsonl");
    return rc < 0 ? rc : run_events_read(path, max_events, &p->events, e);
}

static void put_job(struct buf *b, const char *spec)
{
    buf_puts(b, "\nJOB\n");
    while (*spec) {
        size_t len = strcspn(spec, "\n");

        buf_puts(b, "  ");
        show_clean(b, spec, len);
        buf_putc(b, '\n');
        spec += len + (spec[len] == '\n');
    }
}

static const char *text_of(const json_t *event)
{
    const char *text = json_string_value(json_object_get(event, "text"));

    return text ? text : "";
}

/* When each event was, counted from the start of the run. */
static void put_events(struct buf *b, const struct page *p)
{
    static const char *const head[] = {"AFTER", "GENERATION", "EVENT", ""};
    _strlist_ struct strlist cells = {0};
    const json_t *event;
    size_t i;

    if (json_array_size(p->events) == 0) {
        return;
    }
    for (i = 0; i < ARRAY_SIZE(head); i++) {
        strlist_add(&cells, head[i]);
    }
    json_array_foreach(p->events, i, event) {
        double t = json_number_value(json_object_get(event, "t"));
        double start = (double)p->view.dir->created_ns / 1e9;

        strlist_addf(&cells, "%.3fs", t > start ? t - start : 0.0);
        strlist_addf(&cells, "%" JSON_INTEGER_FORMAT,
                     json_integer_value(json_object_get(event, "generation")));
        strlist_add(&cells,
                    json_string_value(json_object_get(event, "event")));
        strlist_add(&cells, text_of(event));
    }
    buf_putc(b, '\n');
    show_table(&cells, ARRAY_SIZE(head), b);
}

static int print_json(const struct page *p, enum show_format format)
{
    _buf_ struct buf status = {0}, text = {0};
    json_t *o;
    char *dump;

    run_view_json(&p->view, &status);
    o = json_pack("{s:o?, s:s?, s:O}", "status",
                  json_loadb(buf_str(&status), status.len, 0, NULL), "spec",
                  p->spec, "events", p->events);
    dump = o ? json_dumps(o, JSON_COMPACT) : NULL;
    if (dump) {
        buf_puts(&text, dump);
    }
    free(dump);
    json_decref(o);
    return show_json(&text, format);
}

static int print_page(const struct page *p)
{
    _buf_ struct buf text = {0};

    run_text_head(&text, &p->view);
    if (p->spec) {
        put_job(&text, p->spec);
    }
    run_text_nodes(&text, p->view.status);
    if (p->view.status->n_workers) {
        run_text_workers(&text, p->view.status);
    }
    put_events(&text, p);
    fputs(buf_str(&text), stdout);
    return EXIT_OK;
}

int cmd_describe(int argc, char **argv)
{
    _option_args_ struct option_args args = {0};
    struct describe_options set = {.events = 30};
    struct page page = {0};
    struct error e = {0};
    int rc = options_start(&options, argc, argv, &set, &args);

    if (rc >= 0) {
        return rc;
    }
    if (set.events < 0 || set.events > MAX_EVENTS) {
        error_text(&e, ERR_USAGE, "option --events: expected 0 to %d, found "
                   "%" PRId64, MAX_EVENTS, set.events);
        return command_fail(&e);
    }
    if (load(args.words.n ? args.words.items[0] : NULL, (size_t)set.events,
             &page, &e) < 0) {
        rc = command_fail(&e);
    } else {
        rc = set.format == SHOW_JSON || set.format == SHOW_YAML
                 ? print_json(&page, set.format) : print_page(&page);
    }
    page_release(&page);
    return rc;
}
