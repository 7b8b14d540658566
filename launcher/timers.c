/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "launcher/timers.h"

#include "base/cleanup.h"
#include "base/proc.h"

#include <errno.h>
#include <jansson.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum {
    MAX_SIGNAL = 64,
    CHUNK = 64, /* timers for which memory is got at once */
};

/* Of this year and the next thousand; a time beyond is never. */
static const double MAX_SECONDS = 4e10;

struct timers {
    struct timer *items;
    size_t n, cap;
    char line[TIMERS_LINE_BYTES + 1]; /* the begun one */
    size_t len;
    bool is_long; /* that line is: what comes of it is left out */
};

void timer_release(struct timer *t)
{
    free(t->scope);
    *t = (struct timer){0};
}

struct timers *timers_create(void)
{
    return calloc(1, sizeof(struct timers));
}

void timers_destroy(struct timers *t)
{
    if (!t) {
        return;
    }
    for (size_t i = 0; i < t->n; i++) {
        timer_release(&t->items[i]);
    }
    free(t->items);
    free(t);
}

size_t timers_count(const struct timers *t)
{
    return t->n;
}

/* --- the table --- */

static void drop(struct timers *t, size_t i)
{
    timer_release(&t->items[i]);
    t->items[i] = t->items[--t->n];
}

static bool has_ended(const struct timer *timer, timers_start_f *start)
{
    uint64_t began;

    return !start(timer->pid, &began) || began != timer->start;
}

static bool make_room(struct timers *t, timers_start_f *start)
{
    if (t->n == TIMERS_MAX) {
        for (size_t i = t->n; i-- > 0;) {
            if (has_ended(&t->items[i], start)) {
                drop(t, i);
            }
        }
    }
    if (t->n == t->cap && t->n < TIMERS_MAX) {
        struct timer *items = reallocarray(t->items, t->cap + CHUNK,
                                           sizeof(*items));

        if (items) {
            t->items = items;
            t->cap += CHUNK;
        }
    }
    return t->n < t->cap;
}

static void release(struct timers *t, pid_t pid, const char *scope)
{
    for (size_t i = t->n; i-- > 0;) {
        if (t->items[i].pid == pid && strcmp(t->items[i].scope, scope) == 0) {
            drop(t, i);
        }
    }
}

/* --- requests --- */

struct request {
    const char *scope;
    pid_t pid;
    int signal;
    double expires; /* seconds since 1970; negative: it is released */
};

static bool get_int(const json_t *o, const char *key, json_int_t min,
                    json_int_t max, json_int_t *ret)
{
    const json_t *value = json_object_get(o, key);

    *ret = json_integer_value(value);
    return json_is_integer(value) && *ret >= min && *ret <= max;
}

/* `scope` is borrowed from the object. */
static int read_request(const json_t *o, struct request *ret, struct error *e)
{
    const json_t *expires = json_object_get(o, "expiration_time");
    json_int_t pid, sig;

    ret->scope = json_string_value(json_object_get(o, "scope_id"));
    ret->expires = json_number_value(expires);
    if (!ret->scope) {
        return error_text(e, EINVAL, "a request without a scope_id");
    }
    if (!get_int(o, "pid", 1, PROC_PID_LIMIT, &pid)) {
        return error_text(e, EINVAL, "a request without a pid");
    }
    if (!get_int(o, "signal", -MAX_SIGNAL, MAX_SIGNAL, &sig)) {
        return error_text(e, EINVAL, "a request without a signal");
    }
    if (!json_is_number(expires) || !isfinite(ret->expires)) {
        return error_text(e, EINVAL, "a request without an expiration_time");
    }
    ret->pid = (pid_t)pid;
    ret->signal = (int)sig;
    return 0;
}

static uint64_t due_ms(double expires, struct timers_now now)
{
    double left = (expires > MAX_SECONDS ? MAX_SECONDS : expires) * 1e3 -
                  (double)now.wall_ms;

    return left <= 0 ? now.mono_ms : now.mono_ms + (uint64_t)left + 1;
}

static int set(struct timers *t, const struct request *r, struct timers_now now,
               timers_start_f *start, struct error *e)
{
    struct timer timer = {.pid = r->pid, .signal = r->signal,
                          .due_ms = due_ms(r->expires, now)};

    release(t, r->pid, r->scope);
    if (!start(r->pid, &timer.start)) {
        return 0; /* it has ended: nothing is to be guarded any more */
    }
    if (!make_room(t, start)) {
        return error_text(e, ENOSPC, "no room for more than %d timers",
                          TIMERS_MAX);
    }
    timer.scope = strdup(r->scope);
    if (!timer.scope) {
        return error_set(e, ENOMEM, "set a timer");
    }
    t->items[t->n++] = timer;
    return 0;
}

static int take_line(struct timers *t, struct timers_now now,
                     timers_start_f *start, struct error *e)
{
    json_t *o = json_loadb(t->line, t->len, JSON_REJECT_DUPLICATES, NULL);
    struct request r = {0};
    int rc = json_is_object(o) ? read_request(o, &r, e)
                               : error_text(e, EINVAL, "no JSON object");

    if (rc == 0 && r.expires < 0) {
        release(t, r.pid, r.scope);
    } else if (rc == 0) {
        rc = set(t, &r, now, start, e);
    }
    json_decref(o);
    return rc;
}

unsigned timers_feed(struct timers *t, const void *data, size_t len,
                     struct timers_now now, timers_start_f *start,
                     struct error *e)
{
    const char *at = data;
    unsigned n_bad = 0;

    for (const char *end = at + len; at < end; at++) {
        if (*at != '\n') {
            if (t->len < TIMERS_LINE_BYTES) {
                t->line[t->len++] = *at;
            } else {
                t->is_long = true;
            }
            continue;
        }
        if (t->is_long) {
            n_bad++;
            error_text(e, EMSGSIZE, "a line of more than %d bytes",
                       TIMERS_LINE_BYTES);
        } else if (take_line(t, now, start, e) < 0) {
            n_bad++;
        }
        t->len = 0;
        t->is_long = false;
    }
    return n_bad;
}

/* --- time --- */

bool timers_next(const struct timers *t, uint64_t *ret_ms)
{
    for (size_t i = 0; i < t->n; i++) {
        if (i == 0 || t->items[i].due_ms < *ret_ms) {
            *ret_ms = t->items[i].due_ms;
        }
    }
    return t->n > 0;
}

/* Whether `a` is the one to be given, of two that are over. */
static bool comes_first(const struct timer *a, const struct timer *b)
{
    if ((a->signal > 0) != (b->signal > 0)) {
        return a->signal > 0;
    }
    return a->due_ms < b->due_ms;
}

bool timers_expire(struct timers *t, uint64_t mono_ms, struct timer *ret)
{
    const struct timer *first = NULL;
    pid_t pid;

    for (size_t i = 0; i < t->n; i++) {
        const struct timer *timer = &t->items[i];

        if (timer->due_ms <= mono_ms &&
            (!first || comes_first(timer, first))) {
            first = timer;
        }
    }
    if (!first) {
        return false;
    }
    pid = first->pid;
    *ret = *first;
    t->items[first - t->items].scope = NULL;
    for (size_t i = t->n; i-- > 0;) {
        if (t->items[i].pid == pid) {
            drop(t, i);
        }
    }
    return true;
}
