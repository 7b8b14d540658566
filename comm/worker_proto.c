/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "comm/worker_proto.h"

#include "base/wire.h"

#include <stdbool.h>
#include <math.h>
#include <string.h>

int worker_name_is_valid(const char *name)
{
    static const char allowed[] = "abcdefghijklmnopqrstuvwxyz"
                                  "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
                                  "0123456789_./-";
    size_t len = strspn(name, allowed);

    return len > 0 && len < WORKER_NAME_SIZE && name[len] == '\0';
}

static void put_hello(struct buf *b, const struct worker_msg *m)
{
    wire_put_u16(b, m->hello.version);
    wire_put_u32(b, m->hello.pid);
}

static void get_hello(struct wire_reader *r, struct worker_msg *m)
{
    m->hello.version = wire_get_u16(r);
    if (!r->bad && m->hello.version != WORKER_PROTO_VERSION) {
        r->at = r->len; /* whatever follows in that version */
        return;
    }
    m->hello.pid = wire_get_u32(r);
}

static void put_welcome(struct buf *b, const struct worker_msg *m)
{
    const struct worker_welcome *w = &m->welcome;

    wire_put_u16(b, w->version);
    wire_put_u32(b, w->rank);
    wire_put_u32(b, w->world);
    wire_put_u32(b, w->local_rank);
    wire_put_u32(b, w->local_world);
    wire_put_u32(b, w->node);
    wire_put_u32(b, w->n_nodes);
    wire_put_u32(b, w->generation);
    wire_put_str(b, w->run_dir);
    wire_put_str(b, w->resume_path);
}

static void get_welcome(struct wire_reader *r, struct worker_msg *m)
{
    struct worker_welcome *w = &m->welcome;

    w->version = wire_get_u16(r);
    w->rank = wire_get_u32(r);
    w->world = wire_get_u32(r);
    w->local_rank = wire_get_u32(r);
    w->local_world = wire_get_u32(r);
    w->node = wire_get_u32(r);
    w->n_nodes = wire_get_u32(r);
    w->generation = wire_get_u32(r);
    wire_get_str(r, w->run_dir, sizeof(w->run_dir));
    wire_get_str(r, w->resume_path, sizeof(w->resume_path));
    if (w->world > INT32_MAX || w->rank >= w->world ||
        w->local_world > w->world || w->local_rank >= w->local_world ||
        w->n_nodes > w->world || w->node >= w->n_nodes ||
        w->generation > INT32_MAX) {
        r->bad = true;
    }
}

static void put_refused(struct buf *b, const struct worker_msg *m)
{
    wire_put_u16(b, m->refused.version);
    wire_put_str(b, m->refused.why);
}

static void get_refused(struct wire_reader *r, struct worker_msg *m)
{
    m->refused.version = wire_get_u16(r);
    wire_get_str(r, m->refused.why, sizeof(m->refused.why));
}

static void put_comm(struct buf *b, const struct worker_msg *m)
{
    wire_put_u64(b, m->comm.segment_bytes);
    wire_put_str(b, m->comm.why);
}

static void get_comm(struct wire_reader *r, struct worker_msg *m)
{
    m->comm.segment_bytes = wire_get_u64(r);
    wire_get_str(r, m->comm.why, sizeof(m->comm.why));
}

static void put_report(struct buf *b, const struct worker_msg *m)
{
    wire_put_i64(b, m->report.step);
    wire_put_u16(b, (uint16_t)m->report.n_metrics);
    for (size_t i = 0; i < m->report.n_metrics; i++) {
        wire_put_str(b, m->report.metrics[i].name);
        wire_put_f64(b, m->report.metrics[i].value);
    }
}

static void get_report(struct wire_reader *r, struct worker_msg *m)
{
    struct worker_report *p = &m->report;

    p->step = wire_get_i64(r);
    p->n_metrics = wire_get_u16(r);
    if (p->n_metrics > WORKER_METRICS_MAX) {
        p->n_metrics = 0;
        r->bad = true;
    }
    for (size_t i = 0; i < p->n_metrics && !r->bad; i++) {
        wire_get_str(r, p->metrics[i].name, sizeof(p->metrics[i].name));
        p->metrics[i].value = wire_get_f64(r);
        if (!worker_name_is_valid(p->metrics[i].name)) {
            r->bad = true;
        }
    }
}

static void put_checkpoint(struct buf *b, const struct worker_msg *m)
{
    wire_put_i64(b, m->checkpoint.step);
    wire_put_str(b, m->checkpoint.path);
}

static void get_checkpoint(struct wire_reader *r, struct worker_msg *m)
{
    m->checkpoint.step = wire_get_i64(r);
    wire_get_str(r, m->checkpoint.path, sizeof(m->checkpoint.path));
    if (m->checkpoint.path[0] == '\0') {
        r->bad = true;
    }
}

static void put_state(struct buf *b, const struct worker_msg *m)
{
    wire_put_u8(b, m->state.should_stop);
    wire_put_u32(b, m->state.checkpoint_requests);
}

static void get_state(struct wire_reader *r, struct worker_msg *m)
{
    m->state.should_stop = wire_get_u8(r);
    m->state.checkpoint_requests = wire_get_u32(r);
    if (m->state.should_stop > 1) {
        r->bad = true;
    }
}

/* Those of saves; "" where there need be none. */
static void get_uuid(struct wire_reader *r, char uuid[WORKER_UUID_SIZE],
                     bool may_be_empty)
{
    size_t n;

    wire_get_str(r, uuid, WORKER_UUID_SIZE);
    n = strspn(uuid, "0123456789abcdef");
    if (uuid[n] != '\0' ||
        (n != WORKER_UUID_SIZE - 1 && !(may_be_empty && n == 0))) {
        r->bad = true;
    }
}

static void put_heard(struct buf *b, const struct worker_msg *m)
{
    wire_put_u32(b, m->heard.requests);
    wire_put_i64(b, m->heard.step);
    wire_put_str(b, m->heard.uuid);
}

static void get_heard(struct wire_reader *r, struct worker_msg *m)
{
    m->heard.requests = wire_get_u32(r);
    m->heard.step = wire_get_i64(r);
    get_uuid(r, m->heard.uuid, true);
    if (m->heard.requests == 0 || m->heard.step < 0) {
        r->bad = true;
    }
}

static void put_snap_begin(struct buf *b, const struct worker_msg *m)
{
    wire_put_u64(b, m->snap_begin.step);
    wire_put_u64(b, m->snap_begin.bytes);
    wire_put_str(b, m->snap_begin.uuid);
    wire_put_str(b, m->snap_begin.root);
}

static void get_snap_begin(struct wire_reader *r, struct worker_msg *m)
{
    m->snap_begin.step = wire_get_u64(r);
    m->snap_begin.bytes = wire_get_u64(r);
    get_uuid(r, m->snap_begin.uuid, false);
    wire_get_str(r, m->snap_begin.root, sizeof(m->snap_begin.root));
    if (m->snap_begin.root[0] != '/' || m->snap_begin.step > INT64_MAX) {
        r->bad = true;
    }
}

static void put_snap(struct buf *b, const struct worker_msg *m)
{
    wire_put_u32(b, m->snap.error);
    wire_put_u64(b, m->snap.bytes);
    wire_put_u8(b, m->snap.is_bare);
    wire_put_u64(b, m->snap.step);
    wire_put_u64(b, m->snap.image_bytes);
    wire_put_u64(b, m->snap.part_bytes);
    wire_put_str(b, m->snap.uuid);
    wire_put_str(b, m->snap.why);
}

static void get_snap(struct wire_reader *r, struct worker_msg *m)
{
    m->snap.error = wire_get_u32(r);
    m->snap.bytes = wire_get_u64(r);
    m->snap.is_bare = wire_get_u8(r);
    m->snap.step = wire_get_u64(r);
    m->snap.image_bytes = wire_get_u64(r);
    m->snap.part_bytes = wire_get_u64(r);
    get_uuid(r, m->snap.uuid, true);
    wire_get_str(r, m->snap.why, sizeof(m->snap.why));
    if (m->snap.is_bare > 1) {
        r->bad = true;
    }
}

static void put_snap_fill(struct buf *b, const struct worker_msg *m)
{
    wire_put_u64(b, m->snap_fill.image_bytes);
    wire_put_u8(b, m->snap_fill.may_stay);
    wire_put_u8(b, m->snap_fill.is_chosen);
    wire_put_u8(b, m->snap_fill.is_crowded);
    wire_put_str(b, m->snap_fill.uuid);
}

static void get_snap_fill(struct wire_reader *r, struct worker_msg *m)
{
    m->snap_fill.image_bytes = wire_get_u64(r);
    m->snap_fill.may_stay = wire_get_u8(r);
    m->snap_fill.is_chosen = wire_get_u8(r);
    m->snap_fill.is_crowded = wire_get_u8(r);
    get_uuid(r, m->snap_fill.uuid, false);
    if (m->snap_fill.may_stay > 1 || m->snap_fill.is_chosen > 1 ||
        m->snap_fill.is_crowded > 1) {
        r->bad = true;
    }
}

static void put_snap_done(struct buf *b, const struct worker_msg *m)
{
    wire_put_u64(b, m->snap_done.image_bytes);
    wire_put_u64(b, m->snap_done.part_bytes);
    wire_put_str(b, m->snap_done.uuid);
}

static void get_snap_done(struct wire_reader *r, struct worker_msg *m)
{
    m->snap_done.image_bytes = wire_get_u64(r);
    m->snap_done.part_bytes = wire_get_u64(r);
    get_uuid(r, m->snap_done.uuid, false);
}

static void put_snap_status(struct buf *b, const struct worker_msg *m)
{
    wire_put_u8(b, m->snap_status.level);
    wire_put_u32(b, m->snap_status.error);
    wire_put_str(b, m->snap_status.uuid);
    wire_put_str(b, m->snap_status.why);
}

static void get_snap_status(struct wire_reader *r, struct worker_msg *m)
{
    m->snap_status.level = wire_get_u8(r);
    m->snap_status.error = wire_get_u32(r);
    get_uuid(r, m->snap_status.uuid, false);
    wire_get_str(r, m->snap_status.why, sizeof(m->snap_status.why));
    if (m->snap_status.level > WORKER_SNAP_REMOTE) {
        r->bad = true;
    }
}

static void put_snap_find(struct buf *b, const struct worker_msg *m)
{
    wire_put_u32(b, m->snap_find.rank);
    wire_put_str(b, m->snap_find.uuid);
}

static void get_snap_find(struct wire_reader *r, struct worker_msg *m)
{
    m->snap_find.rank = wire_get_u32(r);
    get_uuid(r, m->snap_find.uuid, true);
}

static void put_snap_want(struct buf *b, const struct worker_msg *m)
{
    wire_put_u8(b, m->snap_want.level);
    wire_put_u8(b, m->snap_want.is_chosen);
    wire_put_str(b, m->snap_want.uuid);
}

static void get_snap_want(struct wire_reader *r, struct worker_msg *m)
{
    m->snap_want.level = wire_get_u8(r);
    m->snap_want.is_chosen = wire_get_u8(r);
    get_uuid(r, m->snap_want.uuid, false);
    if (m->snap_want.level < WORKER_SNAP_HELD ||
        m->snap_want.level > WORKER_SNAP_DURABLE || m->snap_want.is_chosen > 1) {
        r->bad = true;
    }
}

static void put_save_plan(struct buf *b, const struct worker_msg *m)
{
    wire_put_f64(b, m->save_plan.every_s);
    wire_put_f64(b, m->save_plan.cost_s);
    wire_put_f64(b, m->save_plan.mtbf_s);
    wire_put_f64(b, m->save_plan.ran_s);
    wire_put_u32(b, m->save_plan.n_failures);
    wire_put_u8(b, m->save_plan.is_assumed);
}

static double get_seconds(struct wire_reader *r)
{
    double v = wire_get_f64(r);

    r->bad = r->bad || !isfinite(v) || v < 0;
    return v;
}

static void get_save_plan(struct wire_reader *r, struct worker_msg *m)
{
    m->save_plan.every_s = get_seconds(r);
    m->save_plan.cost_s = get_seconds(r);
    m->save_plan.mtbf_s = get_seconds(r);
    m->save_plan.ran_s = get_seconds(r);
    m->save_plan.n_failures = wire_get_u32(r);
    m->save_plan.is_assumed = wire_get_u8(r);
    r->bad = r->bad || m->save_plan.is_assumed > 1;
}

static void put_nothing(struct buf *b, const struct worker_msg *m)
{
    (void)b;
    (void)m;
}

static void get_nothing(struct wire_reader *r, struct worker_msg *m)
{
    (void)r;
    (void)m;
}

static const struct codec {
    const char *name;
    void (*put)(struct buf *b, const struct worker_msg *m);
    void (*get)(struct wire_reader *r, struct worker_msg *m);
} codecs[] = {
    [WORKER_HELLO] = {"hello", put_hello, get_hello},
    [WORKER_WELCOME] = {"welcome", put_welcome, get_welcome},
    [WORKER_REFUSED] = {"refused", put_refused, get_refused},
    [WORKER_JOIN_COMM] = {"join comm", put_nothing, get_nothing},
    [WORKER_COMM] = {"comm", put_comm, get_comm},
    [WORKER_REPORT] = {"report", put_report, get_report},
    [WORKER_CHECKPOINT_SAVED] = {"checkpoint saved", put_checkpoint,
                                 get_checkpoint},
    [WORKER_STATE] = {"state", put_state, get_state},
    [WORKER_SNAP_BEGIN] = {"snapshot begin", put_snap_begin, get_snap_begin},
    [WORKER_SNAP] = {"snapshot", put_snap, get_snap},
    [WORKER_SNAP_FILL] = {"snapshot fill", put_snap_fill, get_snap_fill},
    [WORKER_SNAP_DONE] = {"snapshot done", put_snap_done, get_snap_done},
    [WORKER_SNAP_STATUS] = {"snapshot status", put_snap_status,
                            get_snap_status},
    [WORKER_SNAP_FIND] = {"snapshot find", put_snap_find, get_snap_find},
    [WORKER_SAVE_PLAN] = {"save plan", put_save_plan, get_save_plan},
    [WORKER_STORE] = {"store", put_nothing, get_nothing},
    [WORKER_SNAP_WANT] = {"snapshot want", put_snap_want, get_snap_want},
    [WORKER_CHECKPOINT_HEARD] = {"checkpoint heard", put_heard, get_heard},
};

void worker_msg_encode(struct buf *b, const struct worker_msg *m)
{
    size_t start = b->len;
    size_t len;

    wire_put_u32(b, 0);
    wire_put_u16(b, (uint16_t)m->type);
    codecs[m->type].put(b, m);
    if (b->failed) {
        return;
    }
    len = b->len - start - WORKER_FRAME_HEAD;
    for (int i = 0; i < 4; i++) {
        b->data[start + (size_t)i] = (char)(len >> (24 - 8 * i));
    }
}

int worker_frame_next(const void *data, size_t len, size_t *ret_len,
                      struct error *e)
{
    struct wire_reader r = wire_reader(data, len);
    size_t body = wire_get_u32(&r);

    if (r.bad) {
        return 0;
    }
    if (body < 2 || body > WORKER_FRAME_MAX) {
        return error_set(e, ERR_FORMAT,
                         "worker socket: a frame of %zu bytes, expected 2 to %d",
                         body, WORKER_FRAME_MAX);
    }
    if (len - WORKER_FRAME_HEAD < body) {
        return 0;
    }
    *ret_len = WORKER_FRAME_HEAD + body;
    return 1;
}

int worker_msg_decode(const void *frame, size_t len, struct worker_msg *ret,
                      struct error *e)
{
    struct wire_reader r = wire_reader(frame, len);
    size_t type;

    wire_get_u32(&r);
    type = wire_get_u16(&r);
    if (!r.bad && (type >= sizeof(codecs) / sizeof(codecs[0]) ||
                   !codecs[type].get)) {
        ret->type = WORKER_UNKNOWN;
        return 0;
    }
    ret->type = (enum worker_msg_type)type;
    if (!r.bad) {
        codecs[type].get(&r, ret);
    }
    if (!wire_done(&r)) {
        return error_set(e, ERR_FORMAT, "worker socket: malformed %s message",
                         r.bad && type == 0 ? "short" : codecs[type].name);
    }
    return 0;
}
