/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "rendezvous/order.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define ORDER_FORMAT 5

static const char *const step_names[] = {
    [ORDER_PREPARE] = "prepare",
    [ORDER_RUN] = "run",
    [ORDER_END] = "end",
    [ORDER_LEAVE] = "leave",
    [ORDER_VIEW] = "view",
};

static const char *const state_names[] = {
    [REPORT_JOINED] = "joined", [REPORT_STOPPED] = "stopped",
    [REPORT_RUNNING] = "running", [REPORT_DONE] = "done",
    [REPORT_ENDED] = "ended",
};

const char *order_step_name(enum order_step step)
{
    return step_names[step];
}

const char *report_state_name(enum report_state state)
{
    return state_names[state];
}

void order_release(struct order *o)
{
    free(o->n_procs);
    free(o->gone);
    view_release(&o->view);
    *o = (struct order){0};
}

/* NULL for nothing to copy. */
static void *copy_array(const void *from, size_t n, size_t size, bool *failed)
{
    void *to = from ? calloc(n + 1, size) : NULL;

    if (to) {
        memcpy(to, from, n * size);
    }
    *failed = *failed || (from && !to);
    return to;
}

int order_copy(struct order *to, const struct order *from)
{
    bool failed = false;
    uint16_t *n_procs = copy_array(from->n_procs, from->n_nodes,
                                   sizeof(*n_procs), &failed);
    uint32_t *gone = copy_array(from->gone, from->n_gone, sizeof(*gone),
                                &failed);
    struct view view = {0};

    failed = view_copy(&view, &from->view) < 0 || failed;
    order_release(to);
    if (failed) {
        free(n_procs);
        free(gone);
        view_release(&view);
        return -ENOMEM;
    }
    *to = *from;
    to->view = view;
    to->n_procs = n_procs;
    to->gone = gone;
    return 0;
}

bool order_is_gone(const struct order *o, uint32_t rank)
{
    for (uint32_t i = 0; i < o->n_gone; i++) {
        if (o->gone[i] == rank) {
            return true;
        }
    }
    return false;
}

static void put_marks(struct buf *b, const struct past *p)
{
    wire_put_u32(b, p->n_marks);
    for (uint32_t i = 0; i < p->n_marks; i++) {
        wire_put_u32(b, p->marks[i].rank);
        wire_put_u32(b, p->marks[i].n_causes);
        wire_put_u8(b, p->marks[i].excluded);
    }
}

static void get_marks(struct wire_reader *r, struct past *p)
{
    uint32_t n = wire_get_u32(r), next = 0;

    r->bad = r->bad || n > PAST_MAX_MARKS;
    for (uint32_t i = 0; !r->bad && i < n; i++) {
        struct past_mark *m = &p->marks[i];
        uint8_t excluded;

        m->rank = wire_get_u32(r);
        m->n_causes = wire_get_u32(r);
        excluded = wire_get_u8(r);
        m->excluded = (enum exclusion)excluded;
        r->bad = r->bad || m->rank < next || m->rank >= ORDER_MAX_NODES ||
                 excluded > EXCLUSION_LAST || (!excluded && !m->n_causes);
        next = m->rank + 1;
        p->n_marks = i + 1;
    }
}

void past_put(struct buf *b, const struct past *p)
{
    wire_put_u32(b, p->ran);
    wire_put_u32(b, p->n_restarts);
    wire_put_u32(b, p->n_losses);
    wire_put_u32(b, p->want_nodes);
    wire_put_u32(b, p->saved_generation);
    wire_put_i64(b, p->resume_step);
    wire_put_str(b, p->resume_path);
    avoid_put(b, &p->avoid);
    wire_put_u8(b, p->has_end);
    wire_put_u8(b, p->status);
    wire_put_str(b, p->reason);
    wire_put_u8(b, p->suspended);
    put_marks(b, p);
}

void past_get(struct wire_reader *r, struct past *ret)
{
    uint8_t has_end, suspended;

    ret->ran = wire_get_u32(r);
    ret->n_restarts = wire_get_u32(r);
    ret->n_losses = wire_get_u32(r);
    ret->want_nodes = wire_get_u32(r);
    ret->saved_generation = wire_get_u32(r);
    ret->resume_step = wire_get_i64(r);
    wire_get_str(r, ret->resume_path, sizeof(ret->resume_path));
    avoid_get(r, &ret->avoid);
    has_end = wire_get_u8(r);
    ret->has_end = has_end;
    ret->status = wire_get_u8(r);
    wire_get_str(r, ret->reason, sizeof(ret->reason));
    suspended = wire_get_u8(r);
    ret->suspended = suspended;
    r->bad = r->bad || has_end > 1 || suspended > 1;
    get_marks(r, ret);
}

static void put_prepare(struct buf *b, const struct order *o)
{
    wire_put_u32(b, o->store_rank);
    wire_put_u32(b, o->n_gone);
    for (uint32_t i = 0; i < o->n_gone; i++) {
        wire_put_u32(b, o->gone[i]);
    }
}

static void put_run(struct buf *b, const struct order *o)
{
    wire_put_u32(b, o->n_nodes);
    for (uint32_t i = 0; i < o->n_nodes; i++) {
        wire_put_u16(b, o->n_procs[i]);
    }
    wire_put_str(b, o->master_addr);
    wire_put_u16(b, o->master_port);
    wire_put_u32(b, o->max_restarts);
    wire_put_str(b, o->previous);
    wire_put_i64(b, o->resume_step);
    wire_put_str(b, o->resume_path);
}

void order_encode(const struct order *o, struct buf *b)
{
    assert(o->step >= ORDER_PREPARE && o->step <= ORDER_VIEW);
    wire_put_u8(b, ORDER_FORMAT);
    wire_put_u64(b, o->serial);
    wire_put_u32(b, o->generation);
    wire_put_u8(b, (uint8_t)o->step);
    wire_put_u8(b, (uint8_t)o->stop);
    wire_put_u32(b, o->grace_ms);
    wire_put_u8(b, o->broken);
    switch (o->step) {
    case ORDER_PREPARE:
        put_prepare(b, o);
        break;
    case ORDER_RUN:
        put_run(b, o);
        break;
    case ORDER_END:
    case ORDER_LEAVE:
        wire_put_u8(b, o->status);
        wire_put_str(b, o->reason);
        break;
    case ORDER_VIEW:
        break;
    }
    view_put(b, &o->view);
    past_put(b, &o->past);
}

static int get_prepare(struct wire_reader *r, struct order *o)
{
    uint32_t next = 0;

    o->store_rank = wire_get_u32(r);
    o->n_gone = wire_get_u32(r);
    /* Never allocate more than the message can fill. */
    if (o->generation == 0 || o->store_rank >= ORDER_MAX_NODES ||
        o->n_gone > (r->len - r->at) / 4) {
        r->bad = true;
        return 0;
    }
    o->gone = o->n_gone ? calloc(o->n_gone, sizeof(*o->gone)) : NULL;
    if (o->n_gone && !o->gone) {
        return -ENOMEM;
    }
    for (uint32_t i = 0; i < o->n_gone; i++) {
        o->gone[i] = wire_get_u32(r);
        r->bad = r->bad || o->gone[i] < next || o->gone[i] >= ORDER_MAX_NODES;
        next = o->gone[i] + 1;
    }
    return 0;
}

static int get_run(struct wire_reader *r, struct order *o)
{
    o->n_nodes = wire_get_u32(r);
    /* Never allocate more than the message can fill. */
    if (o->n_nodes < 1 || o->n_nodes > ORDER_MAX_NODES ||
        o->n_nodes > (r->len - r->at) / 2) {
        r->bad = true;
        return 0;
    }
    o->n_procs = calloc(o->n_nodes, sizeof(*o->n_procs));
    if (!o->n_procs) {
        return -ENOMEM;
    }
    for (uint32_t i = 0; i < o->n_nodes; i++) {
        o->n_procs[i] = wire_get_u16(r);
    }
    wire_get_str(r, o->master_addr, sizeof(o->master_addr));
    o->master_port = wire_get_u16(r);
    o->max_restarts = wire_get_u32(r);
    wire_get_str(r, o->previous, sizeof(o->previous));
    o->resume_step = wire_get_i64(r);
    wire_get_str(r, o->resume_path, sizeof(o->resume_path));
    return 0;
}

/* What follows the head, by step. */
static int get_body(struct wire_reader *r, struct order *o)
{
    switch (o->step) {
    case ORDER_PREPARE:
        return get_prepare(r, o);
    case ORDER_RUN:
        if (o->generation == 0) {
            r->bad = true;
        }
        return get_run(r, o);
    case ORDER_END:
    case ORDER_LEAVE:
        o->status = wire_get_u8(r);
        wire_get_str(r, o->reason, sizeof(o->reason));
        return 0;
    case ORDER_VIEW:
        r->bad = r->bad || o->generation != 0;
        return 0;
    }
    r->bad = true;
    return 0;
}

static int check_format(const void *data, size_t len, const char *what,
                        struct error *e)
{
    const uint8_t *bytes = data;

    if (len == 0) {
        return error_text(e, ERR_FORMAT, "empty %s", what);
    }
    if (bytes[0] != ORDER_FORMAT) {
        return error_text(e, ERR_VERSION, "%s of format %u, expected %d", what,
                          bytes[0], ORDER_FORMAT);
    }
    return 0;
}

int order_decode(const void *data, size_t len, struct order *ret,
                 struct error *e)
{
    struct wire_reader r = wire_reader(data, len);
    _order_ struct order o = {0};
    int rc = check_format(data, len, "order", e);
    uint8_t stop, broken;

    if (rc < 0) {
        return rc;
    }
    (void)wire_get_u8(&r);
    o.serial = wire_get_u64(&r);
    o.generation = wire_get_u32(&r);
    o.step = wire_get_u8(&r);
    stop = wire_get_u8(&r);
    o.stop = stop;
    o.grace_ms = wire_get_u32(&r);
    broken = wire_get_u8(&r);
    o.broken = broken;
    if (o.serial == 0 || stop > ORDER_STOP_FORCE || broken > 1) {
        r.bad = true;
    }
    rc = get_body(&r, &o);
    rc = rc == 0 ? view_get(&r, &o.view) : rc;
    r.bad = r.bad || (o.step == ORDER_VIEW && !o.view.number);
    past_get(&r, &o.past);
    if (rc < 0) {
        return error_set(e, -rc, "order for %u nodes", o.n_nodes);
    }
    if (!wire_done(&r)) {
        return error_text(e, ERR_FORMAT, "malformed order of %zu bytes", len);
    }
    *ret = o;
    o = (struct order){0};
    return 0;
}

void report_encode(const struct report *r, struct buf *b)
{
    assert(r->state <= REPORT_ENDED);
    wire_put_u8(b, ORDER_FORMAT);
    wire_put_u32(b, r->rank);
    wire_put_u64(b, r->serial);
    wire_put_u32(b, r->generation);
    wire_put_u8(b, (uint8_t)r->state);
    wire_put_u32(b, r->floor);
    wire_put_u32(b, r->fenced);
    wire_put_u64(b, r->heard_ago_ms);
    wire_put_u16(b, r->n_procs);
    wire_put_u16(b, r->n_alive);
    wire_put_u16(b, r->store_port);
    wire_put_str(b, r->store_addr);
    wire_put_u32(b, r->saved_generation);
    wire_put_i64(b, r->saved_step);
    wire_put_str(b, r->saved_path);
    wire_put_u8(b, r->failed);
    if (r->failed) {
        failure_put(b, &r->failure);
    }
}

static bool report_is_sane(const struct report *r)
{
    bool has_store = r->store_addr[0] != '\0';

    return r->rank < ORDER_MAX_NODES && r->serial != 0 &&
           has_store == (r->store_port != 0) &&
           (r->state == REPORT_JOINED || r->state == REPORT_ENDED ||
            r->generation != 0);
}

int report_decode(const void *data, size_t len, struct report *ret,
                  struct error *e)
{
    struct wire_reader r = wire_reader(data, len);
    struct report report = {0};
    int rc = check_format(data, len, "report", e);
    uint8_t state;
    uint8_t failed;

    if (rc < 0) {
        return rc;
    }
    (void)wire_get_u8(&r);
    report.rank = wire_get_u32(&r);
    report.serial = wire_get_u64(&r);
    report.generation = wire_get_u32(&r);
    state = wire_get_u8(&r);
    report.state = state;
    report.floor = wire_get_u32(&r);
    report.fenced = wire_get_u32(&r);
    report.heard_ago_ms = wire_get_u64(&r);
    report.n_procs = wire_get_u16(&r);
    report.n_alive = wire_get_u16(&r);
    report.store_port = wire_get_u16(&r);
    wire_get_str(&r, report.store_addr, sizeof(report.store_addr));
    report.saved_generation = wire_get_u32(&r);
    report.saved_step = wire_get_i64(&r);
    wire_get_str(&r, report.saved_path, sizeof(report.saved_path));
    failed = wire_get_u8(&r);
    report.failed = failed == 1;
    if (report.failed) {
        failure_get(&r, &report.failure);
    }
    if (failed > 1 || state > REPORT_ENDED || !report_is_sane(&report) ||
        !wire_done(&r)) {
        return error_text(e, ERR_FORMAT, "malformed report of %zu bytes", len);
    }
    *ret = report;
    return 0;
}
