/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "launcher/bucket_bed.h"

#include "base/fs.h"
#include "base/str.h"
#include "launcher/ckpt_child.h"
#include "launcher/last_wait.h"
#include "launcher/lead_bed.h"
#include "tests/lib/tap.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

uint64_t __wrap_uv_now(const uv_loop_t *loop);
int __wrap_uv_timer_start(uv_timer_t *t, uv_timer_cb cb, uint64_t timeout, uint64_t repeat);
int __wrap_uv_timer_stop(uv_timer_t *t);
int __wrap_ckpt_child_start(struct agent *a, const struct strlist *argv, uint64_t limit_ms,
                            ckpt_child_f *on_end, void *arg, struct ckpt_child **ret,
                            struct error *e);
void __wrap_ckpt_child_stop(struct ckpt_child *c);
struct last_wait *__wrap_last_wait_create(uv_loop_t *loop, last_wait_f *say, void *arg);
void __wrap_last_wait_close(struct last_wait *w);
void __wrap_last_wait_begin(struct last_wait *w, uint64_t limit_ms);
void __wrap_last_wait_shorten(struct last_wait *w, uint64_t limit_ms);
void __wrap_last_wait_end(struct last_wait *w);
void __wrap_record_eventv(struct record *r, const char *name, uint32_t generation,
                          const char *fmt, va_list ap) __attribute__((format(printf, 4, 0)));
void __wrap_record_storing(struct record *r, const char *path);
void __wrap_record_busy(struct record *r, enum interval_level_id level, bool is_busy);
struct run_status *__wrap_record_status(struct record *r);
void __wrap_record_touch(struct record *r);

uint64_t __wrap_uv_now(const uv_loop_t *loop)
{
    (void)loop;
    return bucket_bed.now_ms;
}

int __wrap_uv_timer_start(uv_timer_t *t, uv_timer_cb cb, uint64_t timeout, uint64_t repeat)
{
    (void)repeat;
    bucket_bed.timer = t;
    bucket_bed.due = cb;
    bucket_bed.due_ms = bucket_bed.now_ms + timeout;
    return 0;
}

int __wrap_uv_timer_stop(uv_timer_t *t)
{
    (void)t;
    bucket_bed.due = NULL;
    return 0;
}

int __wrap_ckpt_child_start(struct agent *a, const struct strlist *argv, uint64_t limit_ms,
                            ckpt_child_f *on_end, void *arg, struct ckpt_child **ret,
                            struct error *e)
{
    size_t len = 0;

    (void)a;
    if (bucket_bed.is_refused) {
        return error_text(e, EAGAIN, "no process");
    }
    for (size_t i = 0; i < argv->n; i++) {
        len += (size_t)snprintf(bucket_bed.argv + len, sizeof(bucket_bed.argv) - len, "%s%s",
                                i ? " " : "", argv->items[i]);
    }
    bucket_bed.n_started++;
    bucket_bed.child_ms = limit_ms;
    bucket_bed.child = (struct ckpt_child){on_end, arg};
    *ret = &bucket_bed.child;
    return 0;
}

void __wrap_ckpt_child_stop(struct ckpt_child *c)
{
    bucket_bed.n_stopped += c != NULL;
}

struct last_wait *__wrap_last_wait_create(uv_loop_t *loop, last_wait_f *say, void *arg)
{
    (void)loop;
    bucket_bed.wait = (struct last_wait){say, arg};
    return &bucket_bed.wait;
}

void __wrap_last_wait_close(struct last_wait *w)
{
    (void)w;
}

void __wrap_last_wait_begin(struct last_wait *w, uint64_t limit_ms)
{
    (void)w;
    bucket_bed.waits = true;
    bucket_bed.limit_ms = limit_ms;
}

void __wrap_last_wait_shorten(struct last_wait *w, uint64_t limit_ms)
{
    (void)w;
    bucket_bed.shortened_ms = limit_ms;
}

void __wrap_last_wait_end(struct last_wait *w)
{
    (void)w;
    bucket_bed.waits = false;
}

void __wrap_record_eventv(struct record *r, const char *name, uint32_t generation,
                          const char *fmt, va_list ap)
{
    char text[1024];

    (void)r, (void)generation;
    vsnprintf(text, sizeof(text), fmt, ap);
    bucket_bed.n_events++;
    snprintf(bucket_bed.event, sizeof(bucket_bed.event), "%s: %s", name, text);
}

void __wrap_record_storing(struct record *r, const char *path)
{
    (void)r;
    str_copy(bucket_bed.storing, sizeof(bucket_bed.storing), path);
}

void __wrap_record_busy(struct record *r, enum interval_level_id level, bool is_busy)
{
    (void)r;
    bucket_bed.is_busy = level == INTERVAL_STORE && is_busy;
}

struct run_status *__wrap_record_status(struct record *r)
{
    (void)r;
    return &bucket_bed.status;
}

void __wrap_record_touch(struct record *r)
{
    (void)r;
    bucket_bed.n_touched++;
}

/* --- */

static void on_fetched(void *arg, const char *path, int64_t step)
{
    struct bucket_bed *b = arg;

    b->n_fetched++;
    str_copy(b->fetched, sizeof(b->fetched), path);
    b->fetched_step = step;
}

static void on_stored(void *arg, const char *path, const char *uuid, int error, const char *why)
{
    struct bucket_bed *b = arg;

    b->n_stored++;
    b->error = error;
    snprintf(b->stored, sizeof(b->stored), "%s %s %s", path, uuid, why);
}

static void on_finished(void *arg)
{
    struct bucket_bed *b = arg;

    b->n_finished++;
}

static const struct lead_bucket_ops ops = {
    .on_fetched = on_fetched, .on_stored = on_stored, .on_finished = on_finished,
};

void bucket_bed_again(struct bucket_bed *b)
{
    struct error e = {0};

    lead_bucket_destroy(b->bucket);
    b->bucket = NULL;
    if (lead_bucket_create(&b->agent, NULL, &ops, b, &b->bucket, &e) < 0) {
        bail_out("%s", e.text);
    }
}

void bucket_bed_open(struct bucket_bed *b)
{
    struct job_checkpoint *k;

    memset(b, 0, sizeof(*b));
    lead_bed_make(&b->agent);
    k = &b->agent.config.job->checkpoint;
    k->store = strdup(BUCKET_URI);
    k->watch = strdup("/ck");
    k->store_every_ms = BUCKET_EVERY_MS;
    b->now_ms = 1000;
    b->due = NULL;
    bucket_bed_again(b);
}

void bucket_bed_close(struct bucket_bed *b)
{
    lead_bucket_destroy(b->bucket);
    fs_remove_tree(b->agent.run.dir, NULL);
    strlist_release(&b->agent.config.env);
    lead_bed_release(&b->agent);
}

int bucket_bed_due_in(const struct bucket_bed *b)
{
    return b->due ? (int)(b->due_ms - b->now_ms) : -1;
}

void bucket_bed_turn(struct bucket_bed *b)
{
    uv_timer_cb cb = b->due;

    if (!cb) {
        bail_out("nothing is due");
    }
    b->now_ms = b->due_ms;
    b->due = NULL;
    cb(b->timer);
}

void bucket_bed_push(struct bucket_bed *b, const char *path)
{
    lead_bucket_saved(b->bucket, path, true);
    bucket_bed_turn(b);
}

static void end(struct bucket_bed *b, const struct ckpt_child_end *how)
{
    struct ckpt_child c = b->child;

    b->now_ms += how->ms;
    c.on_end(c.arg, how);
}

void bucket_bed_end(struct bucket_bed *b, const char *out)
{
    end(b, &(struct ckpt_child_end){.is_ok = true, .ms = 3000, .out = out, .why = ""});
}

void bucket_bed_fail(struct bucket_bed *b, bool may_pass)
{
    end(b, &(struct ckpt_child_end){.may_pass = may_pass, .ms = 3000, .out = "",
                                    .why = "it is shut"});
}

void bucket_bed_wait(struct bucket_bed *b, const char *span, bool is_late)
{
    b->wait.say(b->wait.arg, span, is_late);
}
