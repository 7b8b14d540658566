/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "rendezvous/failure.h"

#include <signal.h>
#include <stdio.h>
#include <string.h>

static bool get_bool(struct wire_reader *r)
{
    uint8_t v = wire_get_u8(r);

    if (v > 1) {
        r->bad = true;
    }
    return v == 1;
}

/* A number that is -1 or more. */
static int32_t get_index(struct wire_reader *r)
{
    int32_t v = (int32_t)wire_get_u32(r);

    if (v < -1) {
        r->bad = true;
    }
    return v;
}

void failure_put(struct buf *b, const struct failure *f)
{
    wire_put_u8(b, (uint8_t)f->kind);
    wire_put_u8(b, (uint8_t)f->grade);
    wire_put_u32(b, f->generation);
    wire_put_u32(b, f->node);
    wire_put_u32(b, (uint32_t)f->rank);
    wire_put_u32(b, (uint32_t)f->local_rank);
    wire_put_u32(b, (uint32_t)f->pid);
    wire_put_u8(b, f->exit_code);
    wire_put_u8(b, f->signal);
    wire_put_u8(b, f->core_dumped);
    wire_put_u8(b, f->killed_by_us);
    wire_put_u8(b, f->has_file);
    wire_put_u64(b, f->wall_ns);
    wire_put_u32(b, f->age_ms);
    wire_put_str(b, f->host);
    wire_put_str(b, f->program);
    wire_put_str(b, f->what);
    wire_put_str(b, f->text);
}

void failure_get(struct wire_reader *r, struct failure *ret)
{
    uint8_t kind = wire_get_u8(r);
    uint8_t grade = wire_get_u8(r);

    if (kind < FAILURE_EXIT || kind > FAILURE_HANG || grade > FAILURE_ECHO) {
        r->bad = true;
    }
    ret->kind = kind;
    ret->grade = grade;
    ret->generation = wire_get_u32(r);
    ret->node = wire_get_u32(r);
    ret->rank = get_index(r);
    ret->local_rank = get_index(r);
    ret->pid = get_index(r);
    ret->exit_code = wire_get_u8(r);
    ret->signal = wire_get_u8(r);
    ret->core_dumped = get_bool(r);
    ret->killed_by_us = get_bool(r);
    ret->has_file = get_bool(r);
    ret->wall_ns = wire_get_u64(r);
    ret->age_ms = wire_get_u32(r);
    wire_get_str(r, ret->host, sizeof(ret->host));
    wire_get_str(r, ret->program, sizeof(ret->program));
    wire_get_str(r, ret->what, sizeof(ret->what));
    wire_get_str(r, ret->text, sizeof(ret->text));
}

void failure_signal_name(int signal, char *to, size_t size)
{
    const char *name = NULL;

    if (signal > 0 && signal < SIGRTMIN) {
        name = sigabbrev_np(signal);
    }
    if (name) {
        snprintf(to, size, "SIG%s", name);
    } else if (signal >= SIGRTMIN && signal <= SIGRTMAX) {
        snprintf(to, size, "SIGRTMIN+%d", signal - SIGRTMIN);
    } else {
        snprintf(to, size, "signal %d", signal);
    }
}

static void describe_who(const struct failure *f, char *to, size_t size)
{
    if (f->rank < 0) {
        snprintf(to, size, "node %u (%s)", f->node, f->host);
    } else {
        snprintf(to, size, "rank %d (node %u, %s)", (int)f->rank, f->node,
                 f->host);
    }
}

/* The first line of the text, for failures that have nothing else to say. */
static int first_line(const struct failure *f)
{
    return (int)strcspn(f->text, "\n");
}

bool failure_has_lines(const struct failure *f)
{
    return f->text[0] && f->kind != FAILURE_EXEC && f->kind != FAILURE_AGENT;
}

void failure_describe(const struct failure *f, char *to, size_t size)
{
    char who[FAILURE_HOST_BYTES + 64];
    char name[32];
    const char *core = f->core_dumped ? ", core dumped" : "";
    const char *colon = f->what[0] ? ": " : "";

    describe_who(f, who, sizeof(who));
    failure_signal_name(f->signal, name, sizeof(name));
    switch (f->kind) {
    case FAILURE_EXIT:
        snprintf(to, size, "%s exited with code %u%s%s", who, f->exit_code,
                 colon, f->what);
        return;
    case FAILURE_SIGNAL:
        snprintf(to, size, "%s was killed by signal %u (%s)%s%s%s", who,
                 f->signal, name, core, colon, f->what);
        return;
    case FAILURE_OOM:
        snprintf(to, size, "%s was killed by the kernel for lack of memory",
                 who);
        return;
    case FAILURE_EXEC:
    case FAILURE_AGENT:
        snprintf(to, size, "%s: %.*s", who, first_line(f), f->text);
        return;
    case FAILURE_SAID:
        snprintf(to, size, "%s failed, and had not ended yet%s%s", who, colon,
                 f->what);
        return;
    case FAILURE_HANG:
        snprintf(to, size, "%s hangs%s%s", who, colon, f->what);
        return;
    case FAILURE_NONE:
        break;
    }
    snprintf(to, size, "%s has not failed", who);
}
