/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "launcher/agent_copy.h"

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/fs.h"
#include "base/loop_timer.h"
#include "base/str.h"
#include "launcher/ckpt_child.h"
#include "launcher/last_wait.h"
#include "launcher/outfit.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct lead_copy {
    struct agent *agent;
    struct record *record;
    const struct lead_copy_ops *ops;
    void *arg;
    uv_timer_t *timer;
    struct last_wait *wait;
    bool is_awaited;
    bool is_again; /* the one under way was written to since that began */
    struct ckpt_child *child; /* or NULL */
    char to[PATH_MAX];
    char newest[PATH_MAX], copied[PATH_MAX], under_way[PATH_MAX];
};

static void event(struct lead_copy *c, const char *name, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));

static void event(struct lead_copy *c, const char *name, const char *fmt, ...)
{
    va_list ap;

    va_start(ap, fmt);
    record_eventv(c->record, name, 0, fmt, ap);
    va_end(ap);
}

/* --- who waits --- */

static void wait_for(struct lead_copy *c, bool is_awaited)
{
    c->is_awaited = is_awaited;
    record_storing(c->record, is_awaited ? c->newest : "");
}

static void finish(struct lead_copy *c)
{
    last_wait_end(c->wait);
    wait_for(c, false);
    c->ops->on_finished(c->arg);
}

static void drop_child(struct lead_copy *c)
{
    ckpt_child_stop(c->child); /* a copy that is not finished is not there */
    if (c->child) {
        c->child = NULL;
        c->ops->on_reading(c->arg, "");
    }
}

static void on_wait(void *arg, const char *span, bool is_late)
{
    struct lead_copy *c = arg;

    if (is_late) {
        event(c, "checkpoint_trouble", "%s is not in %s after %s: the run ends without; "
              "muster ckpt cp copies it", c->newest, c->to, span);
        drop_child(c);
        finish(c);
        return;
    }
    event(c, "checkpoint_waits", "the run ends once %s is in %s (for %s; Ctrl-C ends it "
          "without)", c->newest, c->to, span);
}

/* --- copies --- */

static bool has_more(const struct lead_copy *c)
{
    return strcmp(c->newest, c->copied) != 0; /* both are "" at first */
}

static bool begin(struct lead_copy *c);

static void on_end(void *arg, const struct ckpt_child_end *end)
{
    struct lead_copy *c = arg;
    bool is_last = !c->is_again && strcmp(c->under_way, c->newest) == 0;
    char span[32];

    c->child = NULL;
    c->ops->on_reading(c->arg, "");
    if (end->is_ok) {
        str_copy(c->copied, sizeof(c->copied), c->is_again ? "" : c->under_way);
        clock_format_span(end->ms, span, sizeof(span));
        event(c, "checkpoint_copied", "%s was copied to %s in %s", c->under_way, c->to,
              span);
    } else {
        event(c, "checkpoint_trouble", "%s was not copied to %s: %s", c->under_way, c->to,
              end->why);
    }
    if (c->is_awaited && (is_last || !begin(c))) {
        finish(c);
    }
}

static int start_copy(struct lead_copy *c, struct error *e)
{
    bool is_store = strstr(c->to, "://") != NULL;
    uint32_t keep = c->agent->config.job->checkpoint.copy_keep;
    _strlist_ struct strlist argv = {0};

    strlist_add(&argv, "muster");
    strlist_add(&argv, is_store ? "ckpt" : "ckpt-copy");
    if (is_store) {
        strlist_add(&argv, "push");
    }
    if (keep) {
        strlist_addf(&argv, "--keep=%u", keep);
    }
    strlist_add(&argv, "--");
    strlist_add(&argv, c->under_way);
    strlist_add(&argv, c->to);
    return ckpt_child_start(c->agent, &argv, 0, on_end, c, &c->child, e);
}

static bool begin(struct lead_copy *c)
{
    struct error e = {0};

    str_copy(c->under_way, sizeof(c->under_way), c->newest);
    c->is_again = false;
    c->ops->on_reading(c->arg, c->under_way); /* before anybody else takes it away */
    if (start_copy(c, &e) < 0) {
        c->ops->on_reading(c->arg, "");
        event(c, "checkpoint_trouble", "%s was not copied to %s: %s", c->under_way, c->to,
              e.text);
        return false;
    }
    return true;
}

static void on_timer(uv_timer_t *t)
{
    struct lead_copy *c = t->data;
    char span[32];

    if (c->child) {
        clock_format_span(ckpt_child_ms(c->child), span, sizeof(span));
        event(c, "checkpoint_trouble", "the copy of a checkpoint has been going on for %s",
              span);
    } else if (has_more(c)) {
        begin(c);
    }
}

/* One without a step is written again under its name, and a script's own may get another
 * file. */
void lead_copy_saved(struct lead_copy *c, const char *path)
{
    if (c) {
        str_copy(c->newest, sizeof(c->newest), path);
        if (strcmp(c->copied, path) == 0) {
            c->copied[0] = '\0';
        }
        c->is_again |= strcmp(lead_copy_under_way(c), path) == 0;
    }
}

const char *lead_copy_under_way(const struct lead_copy *c)
{
    return c && c->child ? c->under_way : "";
}

bool lead_copy_finish(struct lead_copy *c, uint64_t limit_ms)
{
    if (!c || limit_ms == 0 || !(c->child || (has_more(c) && begin(c)))) {
        return false;
    }
    wait_for(c, true);
    last_wait_begin(c->wait, limit_ms);
    return true;
}

bool lead_copy_forget(struct lead_copy *c)
{
    if (!lead_copy_is_awaited(c)) {
        return false;
    }
    event(c, "checkpoint_trouble", "%s is not in %s: the run ends without it", c->newest,
          c->to);
    drop_child(c);
    last_wait_end(c->wait);
    wait_for(c, false);
    return true;
}

bool lead_copy_is_awaited(const struct lead_copy *c)
{
    return c && c->is_awaited;
}

/* --- life --- */

void lead_copy_destroy(struct lead_copy *c)
{
    if (c) {
        ckpt_child_stop(c->child); /* whoever would hear of it may be gone */
        loop_timer_close(c->timer);
        last_wait_close(c->wait);
        free(c);
    }
}

static int find_place(struct lead_copy *c, struct error *e)
{
    const struct agent *a = c->agent;
    const char *to = a->config.job->checkpoint.copy_to;

    return strstr(to, "://") ? fs_path(c->to, sizeof(c->to), e, "%s", to)
                             : outfit_path(a->config.job, a->config.cwd, to, c->to,
                                           sizeof(c->to), e);
}

int lead_copy_create(struct agent *a, struct record *record,
                     const struct lead_copy_ops *ops, void *arg, struct lead_copy **ret,
                     struct error *e)
{
    const struct job_checkpoint *k = &a->config.job->checkpoint;
    struct lead_copy *c;
    int rc = 0;

    if (!k->copy_to || !k->watch) {
        return 0;
    }
    c = calloc(1, sizeof(*c));
    if (c) {
        c->agent = a;
        c->record = record;
        c->ops = ops;
        c->arg = arg;
        c->timer = loop_timer_create(&a->loop, c);
        c->wait = last_wait_create(&a->loop, on_wait, c);
    }
    rc = c && c->timer && c->wait ? find_place(c, e)
                                  : error_set(e, ENOMEM, "copy checkpoints");
    if (rc < 0) {
        lead_copy_destroy(c);
        return rc;
    }
    uv_timer_start(c->timer, on_timer, k->copy_every_ms, k->copy_every_ms);
    *ret = c;
    return 0;
}
