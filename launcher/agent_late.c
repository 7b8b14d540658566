/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "launcher/agent_late.h"

#include "base/clock.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

struct lead_late {
    struct agent *agent;
    struct record *record;
    void (*on_stop)(void *arg, const char *text);
    void *arg;
    uv_timer_t timer;
    uint64_t since_ms; /* the last one, or the start of the generation */
    bool is_running;
};

static void set_late(struct lead_late *l, bool is_late)
{
    struct run_status *s = record_status(l->record);

    if (s->checkpoint_is_late != is_late) {
        s->checkpoint_is_late = is_late;
        record_touch(l->record);
    }
}

static void on_timer(uv_timer_t *t)
{
    struct lead_late *l = t->data;
    const struct job *job = l->agent->config.job;
    char span[32], limit[32], text[160];

    clock_format_span(uv_now(&l->agent->loop) - l->since_ms, span, sizeof(span));
    clock_format_span(job->checkpoint.alarm_ms, limit, sizeof(limit));
    snprintf(text, sizeof(text), "no checkpoint for %s, and checkpoint.alarm.after "
             "is %s", span, limit);
    set_late(l, true);
    record_event(l->record, "checkpoint_late",
                 (uint32_t)record_status(l->record)->generation, text, NULL, 0);
    if (job->checkpoint.alarm_then == JOB_ALARM_STOP) {
        uv_timer_stop(t);
        l->on_stop(l->arg, text);
    }
}

static void restart(struct lead_late *l)
{
    uint64_t ms = l->agent->config.job->checkpoint.alarm_ms;

    set_late(l, false);
    uv_update_time(&l->agent->loop);
    l->since_ms = uv_now(&l->agent->loop);
    uv_timer_start(&l->timer, on_timer, ms, ms); /* and again, while it lasts */
}

void lead_late_saved(struct lead_late *l)
{
    if (l && l->is_running) {
        restart(l);
    }
}

void lead_late_note(struct lead_late *l, enum lead_note_type type)
{
    if (!l) {
        return;
    }
    switch (type) {
    case LEAD_NOTE_RUNNING:
        l->is_running = true;
        restart(l);
        break;
    case LEAD_NOTE_SAVED:
        lead_late_saved(l);
        break;
    case LEAD_NOTE_PREPARING:
    case LEAD_NOTE_STOPPING:
    case LEAD_NOTE_ENDED:
        l->is_running = false;
        uv_timer_stop(&l->timer);
        break;
    default:
        break;
    }
}

static void free_late(uv_handle_t *h)
{
    free(h->data);
}

void lead_late_destroy(struct lead_late *l)
{
    if (l) {
        uv_close((uv_handle_t *)&l->timer, free_late);
    }
}

int lead_late_create(struct agent *a, struct record *record,
                     void (*on_stop)(void *arg, const char *text), void *arg,
                     struct lead_late **ret, struct error *e)
{
    struct lead_late *l;

    if (a->config.job->checkpoint.alarm_ms == JOB_OFF) {
        return 0;
    }
    l = calloc(1, sizeof(*l));
    if (!l) {
        return error_set(e, ENOMEM, "watch for checkpoints");
    }
    l->agent = a;
    l->record = record;
    l->on_stop = on_stop;
    l->arg = arg;
    uv_timer_init(&a->loop, &l->timer);
    l->timer.data = l;
    *ret = l;
    return 0;
}
