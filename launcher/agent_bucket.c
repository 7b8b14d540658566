/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "launcher/agent_bucket.h"

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/loop_timer.h"
#include "base/str.h"
#include "launcher/ckpt_child.h"
#include "launcher/last_wait.h"
#include "launcher/outfit.h"

#include <errno.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    LIMIT_MS = 3600 * 1000,    /* of one child: the next one goes on where it was */
    AGAIN_MIN_MS = 10 * 1000,  /* after a failure that may pass, and twice as long ... */
    AGAIN_MAX_MS = 600 * 1000, /* ... after each one more */
    LOOK_LIMIT_MS = 30 * 1000, /* for what there hardly ever is */
};

struct lead_bucket {
    struct agent *agent;
    struct record *record;
    const struct lead_bucket_ops *ops;
    void *arg;
    const char *uri;
    uv_timer_t *timer; /* the next push */
    struct last_wait *wait; /* somebody waits */
    struct ckpt_child *child; /* or NULL */
    bool has_fetched, is_fetching;
    struct strlist damaged; /* names in `dir`, when something was fetched last */
    char dir[PATH_MAX];
    char newest[PATH_MAX], under_way[PATH_MAX], stored[PATH_MAX];
    bool is_in_doubt;    /* whether `newest` is: there may be one that nobody told of */
    bool is_looking;     /* the push under way is for that one */
    bool is_again;       /* the one under way was written anew since that began */
    bool is_hopeless;    /* to try again with the one that was under way */
    uint64_t began_ms;   /* the last push; 0: there was none */
    uint64_t failed_ms, again_ms; /* when, and until the next one; 0: it did not */
    bool is_awaited;
};

static void event(struct lead_bucket *b, const char *name, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));

static void event(struct lead_bucket *b, const char *name, const char *fmt, ...)
{
    va_list ap;

    va_start(ap, fmt);
    record_eventv(b->record, name, 0, fmt, ap);
    va_end(ap);
}

/* In the status: what is under way, or is waited for. */
static void show(struct lead_bucket *b)
{
    bool is_push = b->child && !b->is_fetching;

    record_busy(b->record, INTERVAL_STORE, is_push);
    record_storing(b->record, is_push ? b->under_way : b->is_awaited ? b->newest : "");
}

/* --- who waits --- */

static void end_wait(struct lead_bucket *b)
{
    b->is_awaited = b->is_fetching = false;
    last_wait_end(b->wait);
    show(b);
}

static void finish(struct lead_bucket *b)
{
    end_wait(b);
    b->ops->on_finished(b->arg);
}

static void drop_child(struct lead_bucket *b)
{
    ckpt_child_stop(b->child);
    b->child = NULL;
    b->is_looking = false;
}

/* What is waited for, before its name. */
static const char *what_is(const struct lead_bucket *b)
{
    return b->is_awaited && strcmp(b->newest, b->stored) == 0 ? "what may be newer than "
                                                              : "";
}

static void on_wait(void *arg, const char *span, bool is_late)
{
    struct lead_bucket *b = arg;

    if (b->is_awaited && is_late) {
        event(b, "checkpoint_trouble", "%s%s is not in %s after %s: the run ends "
              "without; muster ckpt push takes it there", what_is(b), b->newest, b->uri,
              span);
        drop_child(b);
        finish(b);
        return;
    }
    event(b, "checkpoint_waits", b->is_awaited
          ? "the run ends once %s%s is in %s (for %s; Ctrl-C ends it without)"
          : "the run starts once %s%s has what is newer in %s (for %s)", what_is(b),
          b->is_awaited ? b->newest : b->dir, b->uri, span);
}

/* --- pushes --- */

static bool has_more(const struct lead_bucket *b)
{
    return b->newest[0] && strcmp(b->newest, b->stored) != 0 &&
           !(b->is_hopeless && strcmp(b->newest, b->under_way) == 0);
}

/* Once what is known is there, or cannot be. */
static bool has_to_look(const struct lead_bucket *b)
{
    return b->is_in_doubt && b->newest[0];
}

static void on_due(uv_timer_t *t);
static void on_look(uv_timer_t *t);

static void schedule(struct lead_bucket *b)
{
    uint64_t now = uv_now(&b->agent->loop), due = now;
    uint64_t every_ms =
        run_status_store_ms(record_status(b->record),
                            b->agent->config.job->checkpoint.store_every_ms);
    uint64_t pause_ms = b->is_awaited && b->again_ms > AGAIN_MIN_MS ? AGAIN_MIN_MS
                                                                    : b->again_ms;

    uv_timer_stop(b->timer);
    if (b->child) {
        return;
    }
    if (!has_more(b)) {
        if (b->is_awaited && has_to_look(b)) {
            uv_timer_start(b->timer, on_look, 0, 0);
        } else if (b->is_awaited) {
            finish(b);
        }
        return;
    }
    if (b->began_ms && !b->is_awaited) {
        due = b->began_ms + every_ms;
    }
    if (b->again_ms && b->failed_ms + pause_ms > due) {
        due = b->failed_ms + pause_ms;
    }
    uv_timer_start(b->timer, on_due, due > now ? due - now : 0, 0);
}

/* What was sent may be another one of that directory, which is the newest then. */
static void take_name(struct lead_bucket *b, const char *name)
{
    const char *slash = strrchr(b->under_way, '/');
    char path[PATH_MAX];
    int n = name && slash ? snprintf(path, sizeof(path), "%.*s/%s",
                                     (int)(slash - b->under_way), b->under_way, name)
                          : -1;

    if (n > 0 && (size_t)n < sizeof(path)) {
        str_copy(b->newest, sizeof(b->newest), path);
        str_copy(b->under_way, sizeof(b->under_way), path);
    }
}

static void keep_stored(struct lead_bucket *b, const json_t *o)
{
    struct run_status *s = record_status(b->record);
    const char *name = json_string_value(json_object_get(o, "name"));
    const char *uuid = json_string_value(json_object_get(o, "uuid"));
    const json_t *step = json_object_get(o, "step");

    str_copy(b->stored, sizeof(b->stored), b->is_again ? "" : b->under_way);
    if (name) {
        str_copy(s->stored_path, sizeof(s->stored_path), name);
        s->stored_step = step ? json_integer_value(step) : -1;
        record_touch(b->record);
    }
    b->ops->on_stored(b->arg, b->under_way, uuid ? uuid : "", 0, "");
}

static void fail(struct lead_bucket *b, const struct ckpt_child_end *end)
{
    char again[64] = "; the next one will be tried", span[32];

    b->is_hopeless = !end->may_pass;
    b->failed_ms = uv_now(&b->agent->loop);
    b->again_ms = !end->may_pass                     ? 0
                  : b->again_ms == 0                 ? AGAIN_MIN_MS
                  : b->again_ms * 2 < AGAIN_MAX_MS ? b->again_ms * 2
                                                     : AGAIN_MAX_MS;
    if (b->again_ms) {
        clock_format_span(b->again_ms, span, sizeof(span));
        snprintf(again, sizeof(again), "; again in %s", span);
    }
    event(b, "checkpoint_trouble", "%s was not taken to %s: %s%s", b->under_way,
          b->uri, end->why, b->is_awaited ? "" : again);
    if (b->is_hopeless) {
        b->ops->on_stored(b->arg, b->under_way, "", EIO, end->why);
    }
}

static void take_pushed(struct lead_bucket *b, const struct ckpt_child_end *end)
{
    json_t *o = json_loads(end->out, 0, NULL);
    char span[32];

    if (b->is_looking) {
        take_name(b, json_string_value(json_object_get(o, "from")));
    }
    if (!b->is_looking || strcmp(b->under_way, b->stored) != 0) {
        keep_stored(b, o);
        clock_format_span(end->ms, span, sizeof(span));
        event(b, "checkpoint_stored", "%s was taken to %s in %s", b->under_way, b->uri,
              span);
    }
    json_decref(o);
}

static void on_pushed(void *arg, const struct ckpt_child_end *end)
{
    struct lead_bucket *b = arg;

    b->child = NULL;
    if (end->is_ok) {
        b->is_hopeless = false;
        b->again_ms = 0;
        run_status_took(record_status(b->record), INTERVAL_STORE,
                        (double)(uv_now(&b->agent->loop) - b->began_ms) / 1e3);
        take_pushed(b, end);
    } else if (b->is_looking) {
        event(b, "checkpoint_trouble", "what the lead before may have saved after %s was "
              "not taken to %s: %s", b->newest, b->uri, end->why);
    } else {
        fail(b, end);
    }
    b->is_looking = false;
    show(b);
    schedule(b);
}

static int push(struct lead_bucket *b, struct error *e)
{
    uint32_t keep = b->agent->config.job->checkpoint.store_keep;
    _strlist_ struct strlist argv = {0};

    strlist_add(&argv, "muster");
    strlist_add(&argv, "ckpt");
    strlist_add(&argv, "push");
    if (keep) {
        strlist_addf(&argv, "--keep=%u", keep);
    }
    if (b->is_looking) {
        strlist_add(&argv, "--newer");
    }
    strlist_add(&argv, "--output=json");
    strlist_add(&argv, "--");
    strlist_add(&argv, b->under_way);
    strlist_add(&argv, b->uri);
    return ckpt_child_start(b->agent, &argv, LIMIT_MS, on_pushed, b, &b->child, e);
}

static void begin(struct lead_bucket *b)
{
    struct error e = {0};

    str_copy(b->under_way, sizeof(b->under_way), b->newest);
    b->began_ms = uv_now(&b->agent->loop);
    b->is_again = false;
    if (push(b, &e) < 0) {
        on_pushed(b, &(struct ckpt_child_end){.may_pass = true, .why = e.text});
    }
    show(b);
}

static void on_due(uv_timer_t *t)
{
    begin(t->data);
}

/* Once: whatever comes of it. */
static void on_look(uv_timer_t *t)
{
    struct lead_bucket *b = t->data;

    last_wait_shorten(b->wait, LOOK_LIMIT_MS);
    b->is_in_doubt = false;
    b->is_looking = true;
    begin(b);
}

void lead_bucket_saved(struct lead_bucket *b, const char *path, bool is_new)
{
    if (b && path[0]) {
        if (is_new && strcmp(b->stored, path) == 0) {
            b->stored[0] = '\0';
        }
        b->is_again |= is_new && strcmp(lead_bucket_under_way(b), path) == 0;
        str_copy(b->newest, sizeof(b->newest), path);
        schedule(b);
    }
}

void lead_bucket_doubt(struct lead_bucket *b, bool is_in_doubt)
{
    if (b) {
        b->is_in_doubt = is_in_doubt;
    }
}

bool lead_bucket_finish(struct lead_bucket *b, uint64_t limit_ms)
{
    if (!b || limit_ms == 0 || (!b->child && !has_more(b) && !has_to_look(b))) {
        return false;
    }
    b->is_awaited = true;
    b->again_ms = 0; /* at once, once more */
    last_wait_begin(b->wait, limit_ms);
    show(b);
    schedule(b);
    return true;
}

/* --- what is there at the start --- */

static void keep_damaged(struct lead_bucket *b, const json_t *names)
{
    json_t *name;
    size_t i;

    strlist_release(&b->damaged);
    b->damaged = (struct strlist){0};
    json_array_foreach(names, i, name) {
        const char *text = json_string_value(name);

        if (text) {
            strlist_add(&b->damaged, text);
            event(b, "checkpoint_broken", "%s/%s is damaged: passed over", b->dir, text);
        }
    }
}

bool lead_bucket_is_damaged(const struct lead_bucket *b, const char *path)
{
    size_t n = b ? strlen(b->dir) : 0;

    for (size_t i = 0; b && i < b->damaged.n; i++) {
        if (strncmp(path, b->dir, n) == 0 && path[n] == '/' &&
            strcmp(path + n + 1, b->damaged.items[i]) == 0) {
            return true;
        }
    }
    return false;
}

static void on_pulled(void *arg, const struct ckpt_child_end *end)
{
    struct lead_bucket *b = arg;
    json_t *o = end->is_ok ? json_loads(end->out, 0, NULL) : NULL;
    const char *name = json_string_value(json_object_get(o, "name"));
    const json_t *step = json_object_get(o, "step");
    int64_t at = step ? json_integer_value(step) : -1;
    char span[32];

    b->child = NULL;
    end_wait(b);
    keep_damaged(b, json_object_get(o, "damaged"));
    if (!end->is_ok) {
        event(b, "checkpoint_trouble", "nothing was fetched from %s: %s; the run "
              "starts from what is in %s", b->uri, end->why, b->dir);
    } else if (name && name[0]) {
        clock_format_span(end->ms, span, sizeof(span));
        str_copy(b->stored, sizeof(b->stored), name);
        event(b, "checkpoint_fetched", "%s was fetched from %s in %s: nothing there "
              "was as new", name, b->uri, span);
    }
    b->ops->on_fetched(b->arg, name ? name : "", at);
    json_decref(o);
}

/* What workers see as the directory of their checkpoints; NULL: nobody knows yet. */
static const char *directory_of(const struct run_config *config)
{
    const struct job *job = config->job;
    const char *dir = strlist_getenv(&job->env, "MUSTER_CHECKPOINT_DIR");

    if (job->checkpoint.watch) {
        return job->checkpoint.watch;
    }
    dir = dir ? dir : strlist_getenv(&config->env, "MUSTER_CHECKPOINT_DIR");
    if (dir && str_starts(dir, "dir:")) {
        dir += strlen("dir:");
    }
    return dir && dir[0] && !strchr(dir, '$') ? dir : NULL;
}

static bool find_dir(struct lead_bucket *b, struct error *e)
{
    const struct agent *a = b->agent;
    const char *dir = directory_of(&a->config);
    char *slash;

    if (dir) {
        return outfit_path(a->config.job, a->config.cwd, dir, b->dir,
                           sizeof(b->dir), e) == 0;
    }
    str_copy(b->dir, sizeof(b->dir), a->config.resume_path);
    slash = strrchr(b->dir, '/');
    if (!slash || slash == b->dir) {
        error_text(e, ENOENT, "where the checkpoints of this run are is not known "
                   "before it has one: set MUSTER_CHECKPOINT_DIR");
        return false;
    }
    *slash = '\0';
    return true;
}

static int pull(struct lead_bucket *b, struct error *e)
{
    _strlist_ struct strlist argv = {0};

    strlist_add(&argv, "muster");
    strlist_add(&argv, "ckpt");
    strlist_add(&argv, "pull");
    strlist_add(&argv, "--newer");
    strlist_add(&argv, "--output=json");
    strlist_add(&argv, "--");
    strlist_add(&argv, b->uri);
    strlist_add(&argv, b->dir);
    return ckpt_child_start(b->agent, &argv, LIMIT_MS, on_pulled, b, &b->child, e);
}

bool lead_bucket_fetch(struct lead_bucket *b, bool is_in_doubt)
{
    struct error e = {0};

    if (!b || (b->has_fetched && !is_in_doubt)) {
        return false;
    }
    if (is_in_doubt && !find_dir(b, &e)) {
        return false; /* that was told before */
    }
    uv_timer_stop(b->timer);
    drop_child(b); /* a push: it goes on later, with what is there then */
    b->has_fetched = true;
    if (!find_dir(b, &e) || pull(b, &e) < 0) {
        event(b, "checkpoint_trouble", "nothing is fetched from %s: %s", b->uri,
              e.text);
        return false;
    }
    b->is_fetching = true;
    last_wait_begin(b->wait, LIMIT_MS);
    return true;
}

/* --- life --- */

bool lead_bucket_forget(struct lead_bucket *b)
{
    bool was_awaited = b && b->is_awaited;

    if (b && b->is_fetching) {
        drop_child(b);
        b->has_fetched = false;
    }
    if (was_awaited) {
        drop_child(b);
        uv_timer_stop(b->timer);
        event(b, "checkpoint_trouble", "%s%s is not in %s: the run ends without it",
              what_is(b), b->newest, b->uri);
    }
    if (b) {
        end_wait(b);
    }
    return was_awaited;
}

bool lead_bucket_is_awaited(const struct lead_bucket *b)
{
    return b && b->is_awaited;
}

const char *lead_bucket_under_way(const struct lead_bucket *b)
{
    return b && b->child && !b->is_fetching ? b->under_way : "";
}

void lead_bucket_destroy(struct lead_bucket *b)
{
    if (b) {
        drop_child(b);
        loop_timer_close(b->timer);
        last_wait_close(b->wait);
        strlist_release(&b->damaged);
        free(b);
    }
}

int lead_bucket_create(struct agent *a, struct record *record,
                       const struct lead_bucket_ops *ops, void *arg,
                       struct lead_bucket **ret, struct error *e)
{
    struct lead_bucket *b;

    if (!a->config.job->checkpoint.store) {
        return 0;
    }
    b = calloc(1, sizeof(*b));
    if (b) {
        b->timer = loop_timer_create(&a->loop, b);
        b->wait = last_wait_create(&a->loop, on_wait, b);
    }
    if (!b || !b->timer || !b->wait) {
        lead_bucket_destroy(b);
        return error_set(e, ENOMEM, "take checkpoints to a store");
    }
    b->agent = a;
    b->record = record;
    b->ops = ops;
    b->arg = arg;
    b->uri = a->config.job->checkpoint.store;
    *ret = b;
    return 0;
}
