/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "launcher/exec.h"

#include "base/cleanup.h"
#include "base/wire.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Some programs walk over all descriptors that there could be. */
enum {
    MAX_OPEN_FILES = 1 << 20,
    MIN_STACK = 8 << 20, /* what programs are written for */
};

const struct exec_limit exec_limits[EXEC_N_LIMITS] = {
    {RLIMIT_NOFILE, "open files", MAX_OPEN_FILES},
    {RLIMIT_MEMLOCK, "locked memory", RLIM_INFINITY},
    {RLIMIT_STACK, "stack", MIN_STACK},
};

rlim_t exec_limit_soft(const struct exec_limit *l, const struct rlimit *was)
{
    rlim_t want = was->rlim_max < l->most ? was->rlim_max : l->most;

    return was->rlim_cur >= want ? was->rlim_cur : want;
}

void exec_argv(struct strlist *to, const struct exec_options *o,
               char *const *argv)
{
    strlist_add(to, "muster-exec");
    strlist_addf(to, "--parent=%d", (int)getpid());
    strlist_addf(to, "--id=%u", (unsigned)o->id);
    if (o->status_fd >= 0) {
        strlist_addf(to, "--status=%d", o->status_fd);
    }
    if (o->gate_fd >= 0) {
        strlist_addf(to, "--gate=%d", o->gate_fd);
    }
    for (size_t i = 0; i < o->n_keep; i++) {
        strlist_addf(to, "--keep=%d", o->keep[i]);
    }
    if (o->same_session) {
        strlist_add(to, "--same-session");
    }
    if (o->cwd) {
        strlist_addf(to, "--cwd=%s", o->cwd);
    }
    if (o->find) {
        strlist_addf(to, "--find=%s", o->find);
    }
    if (o->cpus) {
        strlist_addf(to, "--cpus=%s", o->cpus);
    }
    if (o->umask) {
        strlist_addf(to, "--umask=%s", o->umask);
    }
    if (o->core) {
        strlist_addf(to, "--core=%s", o->core);
    }
    if (o->python_only) {
        strlist_add(to, "--python-only");
    }
    if (o->oom_score_adj) {
        strlist_addf(to, "--oom=%d", o->oom_score_adj);
    }
    strlist_add(to, "--");
    strlist_add_all(to, argv);
}

void exec_wait_argv(struct strlist *to, int fd)
{
    strlist_add(to, "muster-exec");
    strlist_addf(to, "--parent=%d", (int)getpid());
    strlist_addf(to, "--wait=%d", fd);
}

void exec_report_encode(struct buf *b, const struct exec_report *r)
{
    size_t at = b->len;
    uint32_t len;

    wire_put_u32(b, 0);
    wire_put_u32(b, r->id);
    wire_put_u32(b, (uint32_t)r->stage);
    wire_put_u32(b, (uint32_t)r->code);
    wire_put_str(b, r->detail);
    if (b->failed) {
        return;
    }
    len = (uint32_t)(b->len - at - 4);
    for (int i = 0; i < 4; i++) {
        b->data[at + (size_t)i] = (char)(len >> (24 - 8 * i));
    }
}

int exec_report_decode(struct buf *b, struct exec_report *ret)
{
    struct wire_reader r = wire_reader(b->data, b->len);
    struct exec_report got = {0};
    uint32_t len, stage;

    if (b->len < 4) {
        return 0;
    }
    len = wire_get_u32(&r);
    if (len > EXEC_RECORD_MAX) {
        return -ERR_FORMAT;
    }
    if (b->len < 4 + (size_t)len) {
        return 0;
    }
    r = wire_reader(b->data + 4, len);
    got.id = wire_get_u32(&r);
    stage = wire_get_u32(&r);
    got.code = (int)wire_get_u32(&r);
    wire_get_str(&r, got.detail, sizeof(got.detail));
    if (!wire_done(&r) || stage < EXEC_OPTIONS || stage >= EXEC_N_STAGES) {
        return -ERR_FORMAT;
    }
    got.stage = (enum exec_stage)stage;
    buf_consume(b, 4 + (size_t)len);
    *ret = got;
    return 1;
}

static const char *const stage_words[EXEC_N_STAGES] = {
    [EXEC_OPTIONS] = "bad option",
    [EXEC_PARENT] = "its agent is gone",
    [EXEC_SESSION] = "start a session",
    [EXEC_CWD] = "working directory",
    [EXEC_CPUS] = "bind to CPUs",
    [EXEC_LIMITS] = "set the limit",
    [EXEC_FDS] = "pass descriptor",
    [EXEC_STDIN] = "open an empty stdin",
    [EXEC_GATE] = "it was called off before it began",
    [EXEC_RUN] = "execute",
};

void exec_report_text(const struct exec_report *r, const char *program,
                      char *to, size_t size)
{
    char reason[128] = "";

    if (r->stage == EXEC_FIND || r->stage == EXEC_INTERPRETER ||
        r->stage == EXEC_FORMAT) {
        snprintf(to, size, "cannot run %s: %s", program, r->detail);
        return;
    }
    if (r->stage == EXEC_PYTHON) {
        snprintf(to, size, "%s", r->detail);
        return;
    }
    if (r->code == E2BIG) {
        snprintf(to, size, "cannot run %s: its arguments and environment are "
                 "too long together", program);
        return;
    }
    if (r->code) {
        snprintf(reason, sizeof(reason), ": %s", strerror(r->code));
    }
    snprintf(to, size, "cannot run %s: %s%s%s%s", program,
             stage_words[r->stage], r->detail[0] ? " " : "", r->detail,
             reason);
}

int exec_report_status(const struct exec_report *r)
{
    return r->stage == EXEC_FIND && r->code == ENOENT ? 127 : 126;
}
