/* SPDX-License-Identifier: Apache-2.0 */
/*
 * muster checkpoint: asks the workers of a run to save now, and to go on; and waits, if
 * that is wanted, until there is a checkpoint of a save that began after that.
 *
 * Who waits has made an id, by which the lead says in its status what has come of the
 * request (launcher/asked.h), so that one who asks by a file, or by an agent that passes it
 * on, hears of it as well. Where workers are started anew before they have saved, or a lead
 * that is lost has not told the next one, they are asked again.
 */
#include <config.h>

#include "launcher/commands.h"

#include "base/clock.h"
#include "base/str.h"
#include "launcher/asked.h"
#include "launcher/ckpt_progress.h"
#include "launcher/jsonw.h"
#include "launcher/run_request.h"
#include "launcher/runview.h"
#include "launcher/show.h"
#include "spec/value.h"

#include <errno.h>
#include <inttypes.h>
#include <poll.h>
#include <stdio.h>
#include <sys/random.h>

enum {
    TIMEOUT_MS = 10 * 60 * 1000,
    LOOK_MS = 300,  /* between two looks, of which reading takes a part ... */
    LOOK_SHARE = 5, /* ... as small as this, at most */
    LOST_MS = 5000, /* for the lead to say that it was asked: by file it takes a second */
    MORE_MS = 3000, /* between two refusals */
    ID_DIGITS = 16,
};

struct checkpoint_options {
    bool waits, has_timeout;
    uint64_t timeout_ms;
    enum show_format format;
};

static int take_timeout(void *into, const struct option_def *def,
                        const char *value, struct error *e)
{
    struct checkpoint_options *o = into;

    (void)def;
    if (value_span(value, &o->timeout_ms) < 0 || o->timeout_ms < 1) {
        return error_text(e, ERR_USAGE, "\"%.40s\" is no span to wait, such as 90s or 5m",
                          value);
    }
    o->has_timeout = true;
    return 0;
}

static const struct option_def table[] = {
    {"wait", NULL, "wait until a checkpoint that was begun after this is on the disk, and "
     "print its path", OPTION_FLAG, offsetof(struct checkpoint_options, waits), NULL, 'w'},
    {"timeout", "SPAN", "with --wait: how long, 10m unless given", OPTION_CALL, 0,
     take_timeout, 0},
    {"output", "FORMAT", "with --wait: print as json or yaml", OPTION_CALL,
     offsetof(struct checkpoint_options, format), show_set_format, 'o'},
    {0},
};

static const struct options options = {
    .command = "checkpoint",
    .usage = "RUN [--wait [--timeout SPAN] [-o json|yaml]]",
    .about = "Asks the workers of a run to save a checkpoint now, and to go on. "
             "RUN is a run directory, a run id or a name.",
    .table = table,
    .min_args = 1,
    .max_args = 1,
};

struct waiting {
    struct run_view *view;
    enum show_format format;
    char id[ID_DIGITS + 1];
    uint64_t began_ms, until_ms;
    uint64_t asked_ms; /* the last time */
    bool is_silent;    /* its directory does not answer */
    struct ckpt_line line;
};

/* --- asking --- */

static int make_id(struct waiting *w, struct error *e)
{
    uint64_t random;

    if (getrandom(&random, sizeof(random), 0) != (ssize_t)sizeof(random)) {
        return error_set(e, errno ? errno : EIO, "make an id");
    }
    snprintf(w->id, sizeof(w->id), "%016" PRIx64, random);
    return 0;
}

static int ask(struct waiting *w, struct error *e)
{
    json_t *request = json_pack("{s:i,s:s,s:s}", "v", 1, "op", "checkpoint", "id", w->id);
    _buf_ struct buf text = {0};
    int rc = run_request_ask(w->view, request, "asking its workers to save", &text, e);

    json_decref(request);
    w->asked_ms = clock_mono_ms();
    return rc;
}

/* Whether nobody does anything for it any more: its workers are others by now, or it came to
 * a lead that had just begun to lead, and had none. */
static bool is_forgotten(const struct waiting *w, const struct status_asked *x)
{
    const struct run_status *s = w->view->status;
    uint64_t for_ms = clock_mono_ms() - w->asked_ms;

    if (s->state != STATUS_RUNNING || w->is_silent) {
        return false;
    }
    return !x ? for_ms >= LOST_MS
              : (x->generation < s->generation || x->state == STATUS_ASKED_REFUSED) &&
                    for_ms >= MORE_MS;
}

/* By another id where others are asked. What it is refused of is told by the status, or is
 * over the next time. */
static int ask_again(struct waiting *w, const struct status_asked *x, struct error *e)
{
    int rc = x ? make_id(w, e) : 0;

    if (rc == 0) {
        ask(w, NULL);
    }
    return rc == 0 && !w->view->status
               ? error_text(e, EIO, "run %s: its status cannot be read", w->view->dir->id) : rc;
}

/* --- how far it is --- */

static void put_saving(const struct run_status *s, const struct status_asked *x,
                       struct buf *to)
{
    buf_printf(to, "the save of step %" PRId64, x->step);
    if (s->saving_ranks && s->saving_step == x->step) {
        buf_printf(to, " is on its way: %u of %u ranks are on the disk", s->saving_written,
                   s->saving_ranks);
    } else {
        buf_puts(to, " has begun, and is not on the disk");
    }
}

static void put_progress(const struct waiting *w, struct buf *to)
{
    const struct run_status *s = w->view->status;
    const struct status_asked *x = asked_find(s, w->id);

    if (w->is_silent) {
        buf_printf(to, "%s does not answer", w->view->dir->path);
    } else if (!x) {
        buf_puts(to, s->state == STATUS_RUNNING
                 ? "its lead has not taken the request yet"
                 : "its workers are to be asked again once they run");
    } else if (x->state == STATUS_ASKED_SAVING) {
        put_saving(s, x, to);
    } else if (x->state == STATUS_ASKED_REFUSED) {
        buf_printf(to, "it was refused, and is asked again once workers run: %s", x->why);
    } else {
        buf_puts(to, x->state == STATUS_ASKED_HEARD
                 ? "the program has heard of it, and has told of no save since"
                 : "the program has not asked whether somebody wants a checkpoint");
    }
}

static void show_progress(struct waiting *w)
{
    _buf_ struct buf text = {0};

    if (ckpt_line_is_due(&w->line)) {
        buf_printf(&text, "run %s: ", w->view->dir->id);
        put_progress(w, &text);
        ckpt_line_text(&w->line, buf_str(&text));
    }
}

/* A directory that answers nobody is no end. */
static int look(struct waiting *w, uint64_t left_ms, struct error *e)
{
    unsigned ms = left_ms < RUN_VIEW_PATIENCE_MS ? (unsigned)left_ms : RUN_VIEW_PATIENCE_MS;
    struct run_view now = {0};
    int rc = run_view_load_within(w->view->dir->path, ms, &now, e);

    w->is_silent = rc == -ETIMEDOUT && (w->is_silent || ms >= RUN_VIEW_BRIEF_MS);
    if (rc == 0) {
        run_view_release(w->view);
        *w->view = now;
    }
    return rc == -ETIMEDOUT ? 0 : rc;
}

/* To read the status of a large run takes its time. */
static void pause_after(uint64_t took_ms, uint64_t left_ms)
{
    uint64_t ms = took_ms * LOOK_SHARE > LOOK_MS ? took_ms * LOOK_SHARE : LOOK_MS;

    poll(NULL, 0, (int)(ms < left_ms ? ms : left_ms));
}

/* --- what has come of it --- */

static int show_saved(const struct waiting *w, const struct status_asked *x)
{
    _buf_ struct buf text = {0};
    struct jsonw j = jsonw_start(&text);

    if (w->format != SHOW_JSON && w->format != SHOW_YAML) {
        printf("%s\n", x->path);
        return EXIT_OK;
    }
    jsonw_object(&j, NULL);
    jsonw_str(&j, "run", w->view->dir->id);
    jsonw_str(&j, "path", x->path);
    jsonw_int(&j, "step", x->step);
    jsonw_num(&j, "waited", (double)(clock_mono_ms() - w->began_ms) / 1e3);
    jsonw_end_object(&j);
    return show_json(&text, w->format);
}

static int fail_over(const struct waiting *w, struct error *e)
{
    const struct run_view *v = w->view;
    char state[512];

    run_view_state(v, state, sizeof(state));
    return status_run_is_over(v->status->state)
               ? error_text(e, ERR_LOST, "run %s is over: %s; it has told of no checkpoint "
                            "since it was asked", v->dir->id, state)
               : error_text(e, ERR_LOST, "run %s is not alive: %s; it has told of no "
                            "checkpoint since it was asked", v->dir->id, state);
}

static int fail_late(const struct waiting *w, struct error *e)
{
    _buf_ struct buf text = {0};
    char span[32];

    clock_format_span(clock_mono_ms() - w->began_ms, span, sizeof(span));
    put_progress(w, &text);
    return error_text(e, ERR_DEADLINE, "run %s: no checkpoint after %s: %s", w->view->dir->id,
                      span, buf_str(&text));
}

/* 1: it is there, as *ret says; 0: not yet. */
static int judge(struct waiting *w, const struct status_asked **ret, struct error *e)
{
    const struct run_view *v = w->view;
    const struct status_asked *x = asked_find(v->status, w->id);

    *ret = x;
    if (x && x->state == STATUS_ASKED_SAVED) {
        return 1;
    }
    if (x && x->state == STATUS_ASKED_FAILED) {
        return error_text(e, EIO, "run %s: the save of step %" PRId64 " has failed: %s",
                          v->dir->id, x->step, x->why);
    }
    if (!w->is_silent && !run_view_is_alive(v)) {
        return fail_over(w, e);
    }
    return is_forgotten(w, x) ? ask_again(w, x, e) : 0;
}

static int await(struct waiting *w, const struct status_asked **ret, struct error *e)
{
    for (;;) {
        uint64_t now_ms = clock_mono_ms(), took_ms;
        int rc = now_ms < w->until_ms ? look(w, w->until_ms - now_ms, e) : fail_late(w, e);

        rc = rc < 0 ? rc : judge(w, ret, e);
        if (rc != 0) {
            return rc;
        }
        show_progress(w);
        took_ms = clock_mono_ms() - now_ms;
        now_ms = clock_mono_ms();
        pause_after(took_ms, now_ms < w->until_ms ? w->until_ms - now_ms : 0);
    }
}

static int wait_for_it(struct run_view *v, const struct checkpoint_options *o)
{
    struct waiting w = {.view = v, .format = o->format, .began_ms = clock_mono_ms()};
    const struct status_asked *x = NULL;
    struct error e = {0};
    int rc = make_id(&w, &e);

    w.until_ms = w.began_ms + (o->has_timeout ? o->timeout_ms : TIMEOUT_MS);
    rc = rc < 0 ? rc : ask(&w, &e);
    if (rc == RUN_REQUEST_IS_OVER) {
        return rc;
    }
    rc = rc < 0 ? rc : await(&w, &x, &e);
    ckpt_line_end(&w.line);
    return rc < 0 ? command_fail(&e) : show_saved(&w, x);
}

static int check(const struct checkpoint_options *o, struct error *e)
{
    if (!o->waits && (o->has_timeout || o->format != SHOW_TABLE)) {
        return error_text(e, ERR_USAGE, "%s is for --wait, which is not given",
                          o->has_timeout ? "--timeout" : "--output");
    }
    return 0;
}

int cmd_checkpoint(int argc, char **argv)
{
    _option_args_ struct option_args args = {0};
    struct checkpoint_options set = {0};
    _run_view_ struct run_view v = {0};
    struct error e = {0};
    int rc = options_start(&options, argc, argv, &set, &args);

    if (rc >= 0) {
        return rc;
    }
    if (check(&set, &e) < 0 || run_request_view(args.words.items[0], &v, &e) < 0) {
        return command_fail(&e);
    }
    rc = set.waits ? wait_for_it(&v, &set)
                   : run_request(&v, "checkpoint", false, "asking its workers to save");
    if (rc == RUN_REQUEST_IS_OVER) {
        fprintf(stderr, "muster: run %s is over: %s\n", v.dir->id,
                status_run_name(v.status->state));
        return EXIT_FAILED;
    }
    return rc;
}
