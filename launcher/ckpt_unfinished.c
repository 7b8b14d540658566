/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "launcher/ckpt_unfinished.h"

#include "base/clock.h"
#include "base/str.h"
#include "ckpt/held.h"
#include "ckpt/saver.h"
#include "ckpt/step.h"
#include "ckpt/unfinished.h"
#include "launcher/ckpt_report.h"
#include "spec/value.h"

#include <errno.h>
#include <stdio.h>

int ckpt_unfinished_begin(struct ckpt_unfinished *u, struct error *e)
{
    int rc = 0;

    u->now_ns = (int64_t)clock_wall_ns();
    if (u->still_ms == 0) {
        return 0;
    }
    if (!u->is_dry) {
        rc = unfinished_clock(io_system(), u->dir, &u->now_ns);
    }
    if (rc < 0) {
        return error_set(e, -rc, "ask the filesystem for its time");
    }
    rc = unfinished_has_run(io_system(), u->dir, u->now_ns, u->run, e);
    return rc < 0 ? rc : 0;
}

/* "written to 5m ago", or by a clock that was wrong. */
static void say_age(struct buf *to, int64_t ms)
{
    buf_printf(to, "written to ");
    if (ms < 0) {
        buf_printf(to, "after now");
    } else {
        value_write_span(to, ms < 1000 ? (uint64_t)ms : (uint64_t)ms / 1000 * 1000);
        buf_printf(to, " ago");
    }
}

static bool is_still(const struct ckpt_unfinished *u, const struct unfinished *found)
{
    int64_t ms = u->now_ns / 1000000 - found->changed_ns / 1000000;

    return ms >= 0 && (uint64_t)ms >= u->still_ms;
}

/* Why it stays. */
static void refuse(const struct ckpt_unfinished *u, const char *name,
                   const struct unfinished *found, struct error *ret)
{
    _buf_ struct buf age = {0}, least = {0};

    if (u->run[0]) {
        error_text(ret, EBUSY, "%s: run %s saves there", name,
                   u->run + sizeof(LEASE_PREFIX) - 1);
    } else if (held_is(u->dir, name)) {
        error_text(ret, EBUSY, "%s: somebody saves or copies it", name);
    } else if (!is_still(u, found)) {
        say_age(&age, u->now_ns / 1000000 - found->changed_ns / 1000000);
        value_write_span(&least, u->still_ms);
        error_text(ret, EBUSY, "%s: it was %s, and who saves may be at it: expected %s without "
                   "a change", name, buf_str(&age), buf_str(&least));
    }
}

bool ckpt_unfinished_may_go(struct ckpt_unfinished *u, const char *name,
                            const struct error *why)
{
    struct unfinished found = {0};
    struct error e = {0};
    int rc = unfinished_look(io_system(), u->dir, name, &found, &e);

    if (rc == -ENOENT) {
        return false; /* it has come to its end meanwhile */
    }
    if (rc == 0 && saver_look(io_system(), u->dir, name, u->now_ns) == SAVER_ENDED) {
        return true; /* whatever was said */
    }
    if (rc == 0 && u->still_ms > 0) {
        refuse(u, name, &found, &e);
    } else if (rc == 0) {
        e = *why;
    }
    if (e.code) {
        ckpt_tell("left alone", "unfinished", &e);
        u->n++;
        u->bytes += found.bytes;
    }
    return !e.code;
}

int ckpt_unfinished_remove(const struct ckpt_unfinished *u, const char *name, struct error *e)
{
    struct unfinished found = {0};
    int rc = saver_remove(io_system(), u->dir, name, e);

    if (rc != 0) {
        return rc < 0 ? rc : 0;
    }
    rc = unfinished_look(io_system(), u->dir, name, &found, e);
    if (rc < 0) {
        return rc == -ENOENT ? 0 : rc;
    }
    if (u->still_ms == 0 || !is_still(u, &found) || held_is(u->dir, name)) {
        return error_text(e, EBUSY, "%s: somebody is at it now", name);
    }
    return step_remove_all(io_system(), u->dir, name, e);
}

void ckpt_unfinished_hint(const struct ckpt_unfinished *u)
{
    char bytes[32];

    if (u->still_ms == 0 && u->bytes > 0) {
        ckpt_format_bytes(u->bytes, bytes, sizeof(bytes));
        fprintf(stderr, "muster: %zu unfinished take%s %s: --unfinished 1h removes those to which "
                "nobody has written for an hour\n", u->n, u->n == 1 ? "s" : "", bytes);
    }
}
