/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "launcher/agent_copy.h"

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/fs.h"
#include "launcher/ckpt_child.h"
#include "launcher/outfit.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct lead_copy {
    struct agent *agent;
    struct record *record;
    uv_timer_t timer;
    struct ckpt_child *child; /* or NULL */
    char to[PATH_MAX];
    char newest[PATH_MAX], copied[PATH_MAX], under_way[PATH_MAX];
};

static void event(struct lead_copy *c, const char *name, const char *text)
{
    record_event(c->record, name,
                 (uint32_t)record_status(c->record)->generation, text, NULL, 0);
}

static void on_end(void *arg, const struct ckpt_child_end *end)
{
    struct lead_copy *c = arg;
    _buf_ struct buf text = {0};
    char span[32];

    c->child = NULL;
    if (end->is_ok) {
        str_copy(c->copied, sizeof(c->copied), c->under_way);
        clock_format_span(end->ms, span, sizeof(span));
        buf_printf(&text, "%s was copied to %s in %s", c->under_way, c->to, span);
        event(c, "checkpoint_copied", buf_str(&text));
        return;
    }
    buf_printf(&text, "%s was not copied to %s: %s", c->under_way, c->to, end->why);
    event(c, "checkpoint_trouble", buf_str(&text));
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

static void on_timer(uv_timer_t *t)
{
    struct lead_copy *c = t->data;
    char span[32], text[128];
    struct error e = {0};

    if (c->child) {
        clock_format_span(ckpt_child_ms(c->child), span, sizeof(span));
        snprintf(text, sizeof(text), "the copy of a checkpoint has been going on "
                 "for %s", span);
        event(c, "checkpoint_trouble", text);
        return;
    }
    if (!c->newest[0] || strcmp(c->newest, c->copied) == 0) {
        return;
    }
    str_copy(c->under_way, sizeof(c->under_way), c->newest);
    if (start_copy(c, &e) < 0) {
        event(c, "checkpoint_trouble", e.text);
    }
}

/* One without a step is written again under its name. */
void lead_copy_saved(struct lead_copy *c, const char *path)
{
    if (c) {
        str_copy(c->newest, sizeof(c->newest), path);
        if (strcmp(c->copied, path) == 0) {
            c->copied[0] = '\0';
        }
    }
}

static void free_copy(uv_handle_t *h)
{
    free(h->data);
}

/* A copy that is not finished is not there. */
void lead_copy_destroy(struct lead_copy *c)
{
    if (c) {
        ckpt_child_stop(c->child);
        uv_close((uv_handle_t *)&c->timer, free_copy);
    }
}

int lead_copy_create(struct agent *a, struct record *record,
                     struct lead_copy **ret, struct error *e)
{
    const struct job_checkpoint *k = &a->config.job->checkpoint;
    struct lead_copy *c;
    int rc;

    if (!k->copy_to || !k->watch) {
        return 0;
    }
    c = calloc(1, sizeof(*c));
    if (!c) {
        return error_set(e, ENOMEM, "copy checkpoints");
    }
    rc = strstr(k->copy_to, "://")
             ? fs_path(c->to, sizeof(c->to), e, "%s", k->copy_to)
             : outfit_path(a->config.job, a->config.cwd, k->copy_to, c->to,
                           sizeof(c->to), e);
    if (rc < 0) {
        free(c);
        return rc;
    }
    c->agent = a;
    c->record = record;
    uv_timer_init(&a->loop, &c->timer);
    c->timer.data = c;
    uv_timer_start(&c->timer, on_timer, k->copy_every_ms, k->copy_every_ms);
    *ret = c;
    return 0;
}
