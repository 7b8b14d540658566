/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "launcher/lead_snap_bed.h"

#include "base/cleanup.h"
#include "base/fs.h"
#include "base/str.h"
#include "launcher/lead_bed.h"
#include "rendezvous/tree_priv.h"
#include "tests/lib/tap.h"

#include <errno.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* --- whose it is --- */

static struct lead_snap_bed *bed_of_loop(const uv_loop_t *loop)
{
    return (void *)((char *)loop - offsetof(struct lead_snap_bed, agent.loop));
}

static struct lead_snap_bed *bed_of_office(const struct office *o)
{
    return ((struct lead_snap *)((char *)o - offsetof(struct lead_snap, office)))->arg;
}

static struct lead_snap_bed *bed_of_gate(const struct reread_gate *g)
{
    return ((struct lead_snap *)((char *)g - offsetof(struct lead_snap, check.gate)))->arg;
}

/* --- the linker's hand --- */

uint64_t __wrap_uv_now(const uv_loop_t *loop);
void __wrap_tree_ask(struct tree *t, const void *data, size_t len);
void __wrap_agent_asked(struct agent *a, const void *json, size_t len);
void __wrap_agent_note(struct agent *a, const char *fmt, ...)
    __attribute__((format(printf, 2, 3)));
int __wrap_snap_commit(const struct snap_commit *c, struct io *io, const struct error *why,
                       struct error *e);
void __wrap_snap_tidy(const struct snap_commit *c, struct io *io);
bool __wrap_snap_is_short(const struct snap_commit *c, struct io *io, unsigned n);
int __wrap_snap_reread(const char *root, const char *name, struct reread_gate *g,
                       bool is_urgent, struct error *e);
void __wrap_reread_gate_leave(struct reread_gate *g);
void __real_reread_gate_destroy(struct reread_gate *g);
void __wrap_reread_gate_destroy(struct reread_gate *g);
int __real_snap_lease_create(const char *root, const struct lease_note *own,
                             const struct office *office, struct snap_lease **ret,
                             struct error *e);
int __wrap_snap_lease_create(const char *root, const struct lease_note *own,
                             const struct office *office, struct snap_lease **ret,
                             struct error *e);

uint64_t __wrap_uv_now(const uv_loop_t *loop)
{
    return bed_of_loop(loop)->now_ms;
}

static void put(char *to, size_t size, const char *line, size_t len)
{
    size_t n = strlen(to);

    if (n + len + 2 > size) {
        bail_out("more is said than the bed has room for");
    }
    memcpy(to + n, line, len);
    memcpy(to + n + len, "\n", 2);
}

void __wrap_tree_ask(struct tree *t, const void *data, size_t len)
{
    struct lead_snap_bed *bed = bed_of_loop(t->config.loop);

    put(bed->said, sizeof(bed->said), data, len);
}

void __wrap_agent_asked(struct agent *a, const void *json, size_t len)
{
    struct lead_snap_bed *bed = bed_of_loop(&a->loop);
    void (*answer)(struct lead_snap_bed *b) = bed->answer;

    put(bed->heard, sizeof(bed->heard), json, len);
    bed->answer = NULL;
    if (answer) {
        answer(bed);
    }
}

void __wrap_agent_note(struct agent *a, const char *fmt, ...)
{
    struct lead_snap_bed *bed = bed_of_loop(&a->loop);
    char line[1024];
    va_list ap;

    va_start(ap, fmt);
    vsnprintf(line, sizeof(line), fmt, ap);
    va_end(ap);
    put(bed->noted, sizeof(bed->noted), line, strlen(line));
}

static void copy_name(char to[STEP_NAME_BYTES], const char *from)
{
    str_copy(to, STEP_NAME_BYTES, from ? from : "");
}

static void take(struct bed_order *o, const struct snap_commit *c)
{
    o->n++;
    o->facts = *c;
    str_copy(o->uuid, sizeof(o->uuid), c->gather.uuid);
    copy_name(o->pinned, c->pinned);
    copy_name(o->copied, c->copied);
    copy_name(o->source, c->source);
    copy_name(o->verified, c->verified);
    copy_name(o->checking, c->checking);
    str_copy(o->avoided, sizeof(o->avoided), c->avoided);
}

int __wrap_snap_commit(const struct snap_commit *c, struct io *io, const struct error *why,
                       struct error *e)
{
    struct lead_snap_bed *bed = bed_of_office(c->office);

    (void)io;
    take(&bed->commit, c);
    *c->ret_was_there = bed->was_there;
    *c->ret_is_last = bed->is_last;
    if (!bed->was_there && (why || bed->commit_code)) { /* all as the real one does */
        return !why ? error_text(e, bed->commit_code, "by order")
                    : error_text(e, why->code == ESTALE ? EIO : why->code, "%s", why->text);
    }
    *e = (struct error){0};
    return 0;
}

void __wrap_snap_tidy(const struct snap_commit *c, struct io *io)
{
    struct lead_snap_bed *bed = bed_of_office(c->office);

    (void)io;
    take(&bed->tidy, c);
    bed->n_saved_when_tidied = bed->n_saved;
    if (c->ret_is_due) {
        *c->ret_is_due = bed->is_due && !bed->tidy.verified[0];
    }
    if (c->ret_lacks_best) {
        *c->ret_lacks_best = bed->lacks_best;
    }
}

bool __wrap_snap_is_short(const struct snap_commit *c, struct io *io, unsigned n)
{
    (void)io;
    return n > bed_of_office(c->office)->room_for;
}

int __wrap_snap_reread(const char *root, const char *name, struct reread_gate *g,
                       bool is_urgent, struct error *e)
{
    struct lead_snap_bed *bed = bed_of_gate(g);

    (void)root, (void)name, (void)is_urgent;
    bed->n_reread++;
    return bed->reread_code ? error_text(e, bed->reread_code, "by order") : 0;
}

void __wrap_reread_gate_leave(struct reread_gate *g)
{
    bed_of_gate(g)->n_left++;
}

void __wrap_reread_gate_destroy(struct reread_gate *g)
{
    bed_of_gate(g)->n_freed++;
    __real_reread_gate_destroy(g);
}

int __wrap_snap_lease_create(const char *root, const struct lease_note *own,
                             const struct office *office, struct snap_lease **ret,
                             struct error *e)
{
    struct lead_snap_bed *bed = bed_of_office(office);

    if (bed->has_no_lease) {
        return error_set(e, ENOMEM, "no lease of %s", root);
    }
    if (!bed->lease) {
        return __real_snap_lease_create(root, own, office, ret, e);
    }
    *ret = bed->lease(root, own);
    return 0;
}

/* --- what the lead is answered, and tells --- */

static void on_saved(void *arg, const char *path, int64_t step, uint32_t generation,
                     bool is_new, bool is_later)
{
    struct lead_snap_bed *b = arg;

    (void)generation, (void)is_later;
    b->n_saved++;
    b->saved_step = step;
    b->is_new = is_new;
    str_copy(b->path, sizeof(b->path), path);
    str_copy(b->copied, sizeof(b->copied), b->copies ? path : "");
}

static void on_failed(void *arg, const char *name, const char *why)
{
    struct lead_snap_bed *b = arg;

    b->n_failed++;
    str_copy(b->failed, sizeof(b->failed), name);
    str_copy(b->why, sizeof(b->why), why);
}

static void on_saving(void *arg, uint64_t step, uint32_t written, uint32_t ranks)
{
    struct lead_snap_bed *b = arg;

    b->saving_step = step;
    b->saving_written = written;
    b->saving_ranks = ranks;
}

static void on_took(void *arg, enum interval_level_id level, double seconds)
{
    struct lead_snap_bed *b = arg;

    b->n_took[level]++;
    b->took = seconds;
}

static void on_busy(void *arg, enum interval_level_id level, bool is_busy)
{
    ((struct lead_snap_bed *)arg)->is_busy[level] = is_busy;
}

static uint64_t every(void *arg, enum interval_level_id level)
{
    return ((struct lead_snap_bed *)arg)->every_ms[level];
}

static void on_held(void *arg, int64_t step, uint32_t ranks,
                    const struct status_held *held, size_t n)
{
    struct lead_snap_bed *b = arg;

    b->held_step = step;
    b->held_ranks = ranks;
    b->n_held = n;
    memcpy(b->held, held, (n < STATUS_MAX_HELD ? n : 0) * sizeof(*held));
}

static uint32_t started(void *arg)
{
    return ((struct lead_snap_bed *)arg)->started;
}

static bool is_lost(void *arg, uint32_t agent)
{
    const struct lead_snap_bed *b = arg;

    return b->lost == agent || b->also_lost == agent || agent >= b->lost_from;
}

static const char *pinned(void *arg)
{
    return ((struct lead_snap_bed *)arg)->pinned;
}

static const char *copied(void *arg)
{
    return ((struct lead_snap_bed *)arg)->copied;
}

static const char *source(void *arg)
{
    return ((struct lead_snap_bed *)arg)->source;
}

static const char *resume(void *arg, int64_t *ret_step)
{
    struct lead_snap_bed *b = arg;

    *ret_step = b->resume_step;
    return b->resume;
}

static const char *avoided(void *arg)
{
    return ((struct lead_snap_bed *)arg)->avoided;
}

static void on_quiet(void *arg)
{
    ((struct lead_snap_bed *)arg)->n_quiet++;
}

/* --- life --- */

struct lead_snap_bed *lead_snap_bed_make(void)
{
    struct lead_snap_bed *b = calloc(1, sizeof(*b));

    if (!b) {
        bail_out("memory");
    }
    lead_bed_make(&b->agent);
    return b;
}

void lead_snap_bed_free(struct lead_snap_bed *b)
{
    fs_remove_tree(b->agent.run.dir, NULL);
    lead_bed_release(&b->agent);
    free(b);
}

void lead_snap_bed_open(struct lead_snap_bed *b)
{
    static const struct lead_snap_ops ops = {
        .on_saved = on_saved, .on_failed = on_failed, .on_saving = on_saving,
        .on_took = on_took, .on_busy = on_busy, .every = every, .on_held = on_held,
        .started = started, .is_lost = is_lost, .pinned = pinned, .copied = copied,
        .source = source, .resume = resume, .avoided = avoided, .on_quiet = on_quiet,
    };
    struct error e = {0};

    memset((char *)b + sizeof(b->agent), 0, sizeof(*b) - sizeof(b->agent));
    b->now_ms = 1000000;
    b->started = 1;
    b->lost = b->also_lost = b->lost_from = UINT32_MAX;
    b->resume_step = -1;
    b->room_for = 9;
    b->agent.config.first_generation = 1;
    if (lead_snap_create(&b->agent, &ops, b, &b->lead, &e) < 0) {
        bail_out("%s", e.text);
    }
    lead_snap_good(b->lead, UINT64_MAX);
}

void lead_snap_bed_run(struct lead_snap_bed *b)
{
    while (b->lead->n_works > 0 || b->lead->check.is_running) {
        uv_run(&b->agent.loop, UV_RUN_ONCE);
    }
}

void lead_snap_bed_close(struct lead_snap_bed *b)
{
    lead_snap_bed_run(b);
    lead_snap_destroy(b->lead);
    b->lead = NULL;
}

void lead_snap_bed_look(struct lead_snap_bed *b)
{
    b->lead->timer->timer_cb(b->lead->timer);
}

/* --- what agents say --- */

static void put_number(json_t *fact, const char *key, int64_t value)
{
    json_object_set_new(fact, key, json_integer(value));
}

void lead_snap_bed_say(struct lead_snap_bed *b, uint32_t agent, struct bed_word w)
{
    json_t *fact = json_pack("{s:s, s:s, s:s}", "uuid", w.uuid, "root",
                             w.root ? w.root : b->agent.run.dir, "why", w.why ? w.why : "");

    put_number(fact, "step", w.step ? w.step : 10);
    put_number(fact, "generation", w.generation ? w.generation : 1);
    put_number(fact, "token", w.token ? w.token : 1);
    put_number(fact, "rank", w.rank);
    put_number(fact, "ranks", w.ranks ? w.ranks : 2);
    put_number(fact, "stage", w.stage ? w.stage : SNAP_STAGE_HELD);
    put_number(fact, "error", w.code);
    put_number(fact, "again", w.again);
    put_number(fact, "waits", w.waits);
    put_number(fact, "wanted", w.is_wanted);
    if (w.moves) {
        json_object_set_new(fact, "moves", json_true());
    }
    if (w.is_copy) {
        put_number(fact, "from", w.from);
    }
    lead_snap_fact(b->lead, agent, fact);
    json_decref(fact);
}

void lead_snap_bed_say_all(struct lead_snap_bed *b, struct bed_word w)
{
    for (w.rank = 0; w.rank < (w.ranks ? w.ranks : 2); w.rank++) {
        lead_snap_bed_say(b, w.rank, w);
    }
}

bool lead_snap_bed_has_said(const struct lead_snap_bed *b, const char *part)
{
    return strstr(b->said, part) && strstr(b->heard, part);
}

void lead_snap_bed_hush(struct lead_snap_bed *b)
{
    b->said[0] = b->heard[0] = b->noted[0] = '\0';
}
