/* SPDX-License-Identifier: Apache-2.0 */
/* What an agent and muster-exec tell each other. */
#include <config.h>

#include "base/cleanup.h"
#include "base/str.h"
#include "launcher/exec.h"
#include "tests/lib/tap.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

/* The command line of muster-exec: all of what a worker gets set up. */
static void test_line(void)
{
    static char *const program[] = {(char *)"prog", (char *)"--cwd=x", NULL};
    const int keep[] = {8, 9};
    struct exec_options all = {
        .id = 3, .cwd = "/w", .cpus = "0-3", .umask = "027", .core = "0",
        .oom_score_adj = 500, .python_only = true, .same_session = true,
        .find = "other", .status_fd = 5, .gate_fd = 6, .keep = keep,
        .n_keep = 2};
    struct exec_options none = {.status_fd = -1, .gate_fd = -1};
    _strlist_ struct strlist a = {0}, b = {0};
    _free_ char *got_all = NULL, *got_none = NULL;
    char want[256];

    exec_argv(&a, &all, program);
    exec_argv(&b, &none, program);
    got_all = str_shell_join(a.items);
    got_none = str_shell_join(b.items);
    snprintf(want, sizeof(want), "muster-exec --parent=%d --id=3 --status=5 "
             "--gate=6 --keep=8 --keep=9 --same-session --cwd=/w --find=other "
             "--cpus=0-3 --umask=027 --core=0 --python-only --oom=500 -- prog --cwd=x", getpid());
    is_str(got_all, want, "every option");
    snprintf(want, sizeof(want), "muster-exec --parent=%d --id=0 -- prog "
             "--cwd=x", getpid());
    is_str(got_none, want, "none but those that are always there");
}

static void test_status(void)
{
    static const struct {
        enum exec_stage stage;
        int code, want;
    } cases[] = {
        {EXEC_FIND, ENOENT, 127},  {EXEC_FIND, EACCES, 126},
        {EXEC_FIND, EISDIR, 126},  {EXEC_INTERPRETER, ENOENT, 126},
        {EXEC_CWD, ENOENT, 126},   {EXEC_RUN, ENOENT, 126},
        {EXEC_FORMAT, ENOEXEC, 126},
    };

    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        struct exec_report r = {.stage = cases[i].stage,
                                .code = cases[i].code};

        is_int(exec_report_status(&r), cases[i].want, "stage %d, errno %d",
               cases[i].stage, cases[i].code);
    }
}

static void test_texts(void)
{
    struct exec_report r = {.id = 7, .stage = EXEC_CWD, .code = ENOENT,
                            .detail = "/x"}, got;
    _buf_ struct buf b = {0};
    char text[256];

    exec_report_encode(&b, &r);
    ok(b.len <= EXEC_RECORD_MAX + 4, "a record has its bounds");
    for (size_t cut = 0; cut < b.len; cut++) {
        struct buf part = {0};

        buf_append(&part, b.data, cut);
        is_int(exec_report_decode(&part, &got), 0, "cut to %zu: wait", cut);
        buf_release(&part);
    }
    is_int(exec_report_decode(&b, &got), 1, "whole");
    is_int((int)b.len, 0, "taken off");
    exec_report_text(&got, "prog", text, sizeof(text));
    is_str(text, "cannot run prog: working directory /x: No such file or "
           "directory", "words");
    for (int stage = 1; stage < EXEC_N_STAGES; stage++) {
        r.stage = (enum exec_stage)stage;
        exec_report_text(&r, "prog", text, sizeof(text));
        ok(!strstr(text, "null"), "stage %d: %s", stage, text);
    }
    buf_append(&b, "\xff\xff\xff\xff", 4);
    ok(exec_report_decode(&b, &got) < 0, "too long a record");
    buf_clear(&b);
    buf_append(&b, "\0\0\0\4\0\0\0\1", 8);
    ok(exec_report_decode(&b, &got) < 0, "too short a record");
}

/* Of a muster-exec of another release, perhaps. */
static void test_stages(void)
{
    for (int stage = 0; stage <= EXEC_N_STAGES; stage++) {
        bool is_one = stage > 0 && stage < EXEC_N_STAGES;
        struct exec_report r = {.id = 1, .stage = (enum exec_stage)stage}, got;
        _buf_ struct buf b = {0};

        exec_report_encode(&b, &r);
        is_int(exec_report_decode(&b, &got), is_one ? 1 : -ERR_FORMAT,
               "stage %d is%s one", stage, is_one ? "" : " not");
    }
}

int main(void)
{
    test_line();
    test_status();
    test_texts();
    test_stages();
    return tap_done();
}
