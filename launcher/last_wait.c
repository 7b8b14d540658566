/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "launcher/last_wait.h"

#include "base/clock.h"
#include "base/loop_timer.h"

#include <stdlib.h>

enum { FIRST_MS = 2000, AGAIN_MS = 30000 };

struct last_wait {
    uv_timer_t *timer;
    last_wait_f *say;
    void *arg;
    uint64_t since_ms, until_ms;
};

static void on_timer(uv_timer_t *t);

static void sleep_for(struct last_wait *w, uint64_t ms)
{
    uint64_t now = uv_now(w->timer->loop), left = w->until_ms > now ? w->until_ms - now : 0;

    uv_timer_start(w->timer, on_timer, left < ms ? left : ms, 0);
}

static void on_timer(uv_timer_t *t)
{
    struct last_wait *w = t->data;
    uint64_t now = uv_now(t->loop);
    bool is_late = now >= w->until_ms;
    char span[32];

    if (!is_late) {
        sleep_for(w, AGAIN_MS);
    }
    clock_format_span(now - w->since_ms, span, sizeof(span));
    w->say(w->arg, span, is_late); /* last: it may be freed */
}

void last_wait_begin(struct last_wait *w, uint64_t limit_ms)
{
    w->since_ms = uv_now(w->timer->loop);
    w->until_ms = limit_ms < UINT64_MAX - w->since_ms ? w->since_ms + limit_ms : UINT64_MAX;
    sleep_for(w, FIRST_MS);
}

void last_wait_shorten(struct last_wait *w, uint64_t limit_ms)
{
    uint64_t until_ms = uv_now(w->timer->loop) + limit_ms;

    if (until_ms < w->until_ms) {
        w->until_ms = until_ms;
        sleep_for(w, AGAIN_MS);
    }
}

void last_wait_end(struct last_wait *w)
{
    uv_timer_stop(w->timer);
}

struct last_wait *last_wait_create(uv_loop_t *loop, last_wait_f *say, void *arg)
{
    struct last_wait *w = calloc(1, sizeof(*w));

    if (!w) {
        return NULL;
    }
    w->timer = loop_timer_create(loop, w);
    if (!w->timer) {
        free(w);
        return NULL;
    }
    w->say = say;
    w->arg = arg;
    return w;
}

void last_wait_close(struct last_wait *w)
{
    if (w) {
        loop_timer_close(w->timer);
        free(w);
    }
}
