/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The threads and the loop share a box of answers, under a mutex. The box belongs
 * to the arbiter and to each thread that is not done; the last of them frees it.
 */
#include <config.h>

#include "launcher/arbiter.h"

#include "base/cleanup.h"
#include "base/str.h"
#include "base/thread.h"
#include "launcher/rundir.h"

#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_ASKED = 8 }; /* threads at once */

enum arbiter_kind {
    ASK_CLAIM,
    ASK_NONCE,
};

struct box {
    uv_mutex_t mutex;
    unsigned n_owners;
    struct request *done;
    uv_async_t *news; /* NULL: the arbiter is gone */
};

struct request {
    struct request *next;
    struct box *box;
    char run_dir[PATH_MAX];
    char run_id[128];
    uint32_t start;
    enum arbiter_kind kind;
    uint32_t number;
    uint8_t nonce[RUNDIR_NONCE_BYTES];
    struct view claim;
    struct view found;
    int rc;
    struct error e;
    struct wait *wait;
};

/* The loop's side of a request: until it is answered. */
struct wait {
    struct wait *next;
    struct arbiter *arbiter;
    uint32_t number;
    uv_timer_t timer;
};

struct arbiter {
    uv_loop_t *loop;
    char run_dir[PATH_MAX];
    char run_id[128];
    uint32_t start;
    uint8_t nonce[RUNDIR_NONCE_BYTES];
    uint64_t timeout_ms;
    arbiter_f *on_answer;
    void *arg;
    struct box *box;
    struct wait *waits;
    unsigned n_asked;
    uint32_t claimed; /* the newest claim, until it is won or lost; or 0 */
};

static void request_free(struct request *r)
{
    view_release(&r->claim);
    view_release(&r->found);
    free(r);
}

/* With the mutex held, which is given up. */
static void leave_box(struct box *b)
{
    bool is_last = --b->n_owners == 0;

    uv_mutex_unlock(&b->mutex);
    if (!is_last) {
        return;
    }
    while (b->done) {
        struct request *r = b->done;

        b->done = r->next;
        request_free(r);
    }
    uv_mutex_destroy(&b->mutex);
    free(b);
}

/* --- a thread --- */

static void look(void *arg)
{
    struct request *r = arg;
    struct view_place at = {r->run_dir, r->run_id, r->start, r->nonce};

    switch (r->kind) {
    case ASK_CLAIM:
        r->rc = view_file_claim(&at, &r->claim, &r->found, &r->e);
        break;
    case ASK_NONCE:
        r->rc = rundir_check_nonce(r->run_dir, r->nonce, &r->e);
        break;
    }
}

static void *ask(void *arg)
{
    struct request *r = arg;
    struct box *b = r->box;

    thread_apart(look, r, -1);
    uv_mutex_lock(&b->mutex);
    r->next = b->done;
    b->done = r;
    if (b->news) {
        uv_async_send(b->news);
    }
    leave_box(b);
    return NULL;
}

/* --- the loop --- */

static void on_wait_closed(uv_handle_t *h)
{
    free(h->data);
}

static void end_wait(struct wait *w)
{
    struct wait **at = &w->arbiter->waits;

    while (*at != w) {
        at = &(*at)->next;
    }
    *at = w->next;
    uv_close((uv_handle_t *)&w->timer, on_wait_closed);
}

/* Of a claim that was made again, one answer is enough; of one that another took the
 * place of, none is wanted. */
static bool is_wanted(const struct arbiter *a, uint32_t number)
{
    return number == 0 || number == a->claimed;
}

static void answer(struct arbiter *a, const struct request *r)
{
    static const enum arbiter_answer yes[][2] = {
        [ASK_CLAIM] = {ARBITER_LOST, ARBITER_WON},
        [ASK_NONCE] = {ARBITER_OTHER, ARBITER_SHARED},
    };
    enum arbiter_answer what = ARBITER_UNKNOWN;

    if (!is_wanted(a, r->number)) {
        return;
    }
    if (r->rc >= 0) {
        what = yes[r->kind][r->rc > 0];
        a->claimed = r->number ? 0 : a->claimed;
    }
    a->on_answer(a->arg, what, r->number,
                 what == ARBITER_WON ? &r->claim : &r->found, r->e.text);
}

static struct request *take_done(struct box *b)
{
    struct request *r;

    uv_mutex_lock(&b->mutex);
    r = b->done;
    b->done = NULL;
    uv_mutex_unlock(&b->mutex);
    return r;
}

static void on_news(uv_async_t *async)
{
    struct arbiter *a = async->data;
    struct request *r = take_done(a->box);

    while (r) {
        struct request *next = r->next;

        a->n_asked--;
        end_wait(r->wait);
        answer(a, r);
        request_free(r);
        r = next;
    }
}

static void on_late(uv_timer_t *t)
{
    struct wait *w = t->data;
    static const struct view none;
    char text[96];

    if (!is_wanted(w->arbiter, w->number)) {
        return;
    }
    snprintf(text, sizeof(text), "the run directory does not answer for %llu ms",
             (unsigned long long)w->arbiter->timeout_ms);
    w->arbiter->on_answer(w->arbiter->arg, ARBITER_UNKNOWN, w->number, &none,
                          text);
}

static struct wait *start_wait(struct arbiter *a, uint32_t number)
{
    struct wait *w = calloc(1, sizeof(*w));

    if (w) {
        w->arbiter = a;
        w->number = number;
        uv_timer_init(a->loop, &w->timer);
        w->timer.data = w;
        uv_timer_start(&w->timer, on_late, a->timeout_ms, 0);
        w->next = a->waits;
        a->waits = w;
    }
    return w;
}

static int start(struct arbiter *a, struct request *r, struct error *e)
{
    pthread_t thread;
    int rc;

    r->wait = start_wait(a, r->number);
    if (!r->wait) {
        return error_set(e, ENOMEM, "ask for view %u", r->number);
    }
    r->box = a->box;
    uv_mutex_lock(&a->box->mutex);
    rc = thread_start(&thread, ask, r);
    a->box->n_owners += rc == 0;
    uv_mutex_unlock(&a->box->mutex);
    if (rc) {
        end_wait(r->wait);
        return error_set(e, rc, "start a thread");
    }
    pthread_detach(thread);
    a->n_asked++;
    return 0;
}

static struct request *make_request(struct arbiter *a, enum arbiter_kind kind,
                                    uint32_t number, struct error *e)
{
    struct request *r;

    if (a->n_asked >= MAX_ASKED) {
        error_text(e, EBUSY, "the run directory has not answered %u times",
                   a->n_asked);
        return NULL;
    }
    r = calloc(1, sizeof(*r));
    if (!r) {
        error_set(e, ENOMEM, "ask for a view");
        return NULL;
    }
    r->kind = kind;
    r->number = number;
    r->start = a->start;
    memcpy(r->nonce, a->nonce, sizeof(r->nonce));
    str_copy(r->run_dir, sizeof(r->run_dir), a->run_dir);
    str_copy(r->run_id, sizeof(r->run_id), a->run_id);
    return r;
}

static int submit(struct arbiter *a, struct request *r, struct error *e)
{
    int rc = start(a, r, e);

    if (rc < 0) {
        request_free(r);
    }
    return rc;
}

int arbiter_claim(struct arbiter *a, const struct view *v, struct error *e)
{
    struct request *r;

    a->claimed = v->number;
    r = make_request(a, ASK_CLAIM, v->number, e);
    if (!r) {
        return -EBUSY;
    }
    if (view_copy(&r->claim, v) < 0) {
        request_free(r);
        return error_set(e, ENOMEM, "claim view %u", v->number);
    }
    return submit(a, r, e);
}

int arbiter_check(struct arbiter *a, struct error *e)
{
    struct request *r = make_request(a, ASK_NONCE, 0, e);

    return r ? submit(a, r, e) : -EBUSY;
}

/* --- life --- */

static void free_handle(uv_handle_t *h)
{
    free(h);
}

int arbiter_create(uv_loop_t *loop, const struct view_place *at,
                   uint64_t timeout_ms, arbiter_f *on_answer, void *arg,
                   struct arbiter **ret, struct error *e)
{
    struct arbiter *a = calloc(1, sizeof(*a));
    struct box *b = calloc(1, sizeof(*b));
    uv_async_t *news = calloc(1, sizeof(*news));

    if (!a || !b || !news || uv_async_init(loop, news, on_news) < 0) {
        free(a);
        free(b);
        free(news);
        return error_set(e, ENOMEM, "ask for views");
    }
    uv_unref((uv_handle_t *)news);
    news->data = a;
    uv_mutex_init(&b->mutex);
    b->n_owners = 1;
    b->news = news;
    a->loop = loop;
    str_copy(a->run_dir, sizeof(a->run_dir), at->run_dir);
    str_copy(a->run_id, sizeof(a->run_id), at->run_id);
    a->start = at->start;
    memcpy(a->nonce, at->nonce, sizeof(a->nonce));
    a->timeout_ms = timeout_ms;
    a->on_answer = on_answer;
    a->arg = arg;
    a->box = b;
    *ret = a;
    return 0;
}

void arbiter_destroy(struct arbiter *a)
{
    uv_async_t *news;

    if (!a) {
        return;
    }
    while (a->waits) {
        end_wait(a->waits);
    }
    uv_mutex_lock(&a->box->mutex);
    news = take_ptr(&a->box->news);
    leave_box(a->box);
    uv_close((uv_handle_t *)news, free_handle);
    free(a);
}
