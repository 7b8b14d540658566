/* SPDX-License-Identifier: Apache-2.0 */
/* What a spec takes from outside: the environment, and files. */
#include <config.h>

#include "base/buf.h"
#include "base/cleanup.h"
#include "base/fs.h"
#include "spec/testing.h"
#include "tests/lib/tap.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static const char head[] = "apiVersion: muster/v1\nkind: Job\n";

static void write_text(const char *path, const char *text)
{
    struct error e = {0};

    if (fs_write_replace(path, text, strlen(text), &e) < 0) {
        bail_out("%s", e.text);
    }
}

/* What would be waited for, and what would end in the middle. */
static void check_no_text(const char *path, const char *text)
{
    static const char zero[] = "A=1\nB=2\0\nC=3\n";

    {
        _outcome_ struct outcome o = {0};
        FILE *f = fopen(path, "w");

        if (!f || fwrite(zero, 1, sizeof(zero) - 1, f) != sizeof(zero) - 1 ||
            fclose(f)) {
            bail_out("write %s", path);
        }
        o = outcome_of_text(text);
        like(o.error.text, "has a zero byte; expected text", "a zero byte");
    }
    unlink(path);
    if (mkfifo(path, 0600) < 0) {
        bail_out("mkfifo %s", path);
    }
    {
        _outcome_ struct outcome o = outcome_of_text(text);

        like(o.error.text, "expected a regular file", "a FIFO is not waited for");
    }
}

static void test_secrets(void)
{
    static const char *const env[] = {"TOKX=no", "TOK=from$(P_ONE)outer", NULL};
    char dir[] = "/tmp/muster-spec-XXXXXX";
    _buf_ struct buf text = {0};
    _outcome_ struct outcome o = {0};
    _free_ char *got = NULL, *yaml = NULL;
    char path[64];

    if (!mkdtemp(dir)) {
        bail_out("mkdtemp");
    }
    snprintf(path, sizeof(path), "%s/vars", dir);
    write_text(path, "# c\n\nONE=1$(X)\n TWO= b c\n");
    buf_printf(&text,
               "%scommand: [a]\nenvFrom: [{file: %s, prefix: P_}]\n"
               "env: [{name: TOK, valueFrom: {secretKeyRef: {name: s, key: k}}}"
               ", {name: P_ONE, value: mine}]\n",
               head, path);
    o = outcome_of(&(struct spec_request){
        .text = buf_str(&text),
        .text_name = "t",
        .env = (char *const *)(uintptr_t)env});
    is_int(o.rc, 0, "resolves: %s", o.error.text);
    if (o.rc == 0) {
        got = joined(&o.result.job->env);
        is_str(got, "P_ONE=mine P_TWO= b c TOK=from$$(P_ONE)outer",
               "env beats envFrom; a secret comes from outside");
        ok(job_env_is_secret(o.result.job, "TOK"), "and is known as one");
        ok(job_env_is_secret(o.result.job, "P_TWO"), "as are a file's values");
        yaml = job_write_yaml(o.result.job);
        ok(!strstr(yaml, "outer") && !strstr(yaml, "b c"), "none is shown");
    }
    for (size_t i = 0; i < 2; i++) {
        write_text(path, i ? "A=1\n\nB=2\n=x\n" : "A=1\n\nB=2\nnovalue");
        outcome_release(&o);
        o = outcome_of_text(buf_str(&text));
        like(o.error.text, "vars:4:1: no assignment; expected NAME=VALUE",
             "a bad file is placed");
    }
    check_no_text(path, buf_str(&text));
    fs_remove_tree(dir, NULL);
}

static void test_environment(void)
{
    static const struct {
        const char *env[4];
        const char *keys;
        const char *want; /* nodes, processes, restarts; or the error */
    } cases[] = {
        {{"PET_NNODES=2:4", "PET_NPROC_PER_NODE=3", "PET_MAX_RESTARTS=9"}, "",
         "2..4 x 3 r9"},
        {{"PET_NNODES=4", "PET_NPROC_PER_NODE=", NULL}, "nodes: 2",
         "2..2 x auto r3"},
        {{"PET_NNODES=4", "PET_NPROC_PER_NODE=2", NULL},
         "command: [torchrun, --nnodes=3, t.py]", "3..3 x 2 r3"},
        {{"PET_NNODES=4", "MUSTER_RUN_ID=x", NULL}, "", "1..1 x auto r3"},
        {{"XPET_NNODES=4", "PET_NNODES_=5", NULL}, "", "1..1 x auto r3"},
        {{"PET_NNODES=many", NULL}, "",
         "environment PET_NNODES: nodes is \"many\"; expected"},
    };

    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        const char *env[5] = {cases[i].env[0], cases[i].env[1],
                              cases[i].env[2]};
        bool has_command = strstr(cases[i].keys, "command");
        _buf_ struct buf text = {0}, got = {0};
        _outcome_ struct outcome o = {0};
        const struct job *job;

        buf_printf(&text, "%s%s%s\n", head,
                   has_command ? "" : "command: [a]\n", cases[i].keys);
        o = outcome_of(&(struct spec_request){
            .text = buf_str(&text), .text_name = "t",
            .env = (char *const *)(uintptr_t)env});
        job = o.result.job;
        if (!job) {
            like(o.error.text, cases[i].want, "refused: %s", env[0]);
            continue;
        }
        buf_printf(&got, "%u..%u x ", job->nodes.min, job->nodes.max);
        if (job->procs.mode == JOB_PROCS_FIXED) {
            buf_printf(&got, "%u", job->procs.n);
        } else {
            buf_puts(&got, "auto");
        }
        buf_printf(&got, " r%u", job->restart.max);
        is_str(buf_str(&got), cases[i].want, "%s with \"%s\"", env[0],
               cases[i].keys);
        if (i == 0) {
            is_str(spec_origin_of(&o.result, "nodes"),
                   "environment PET_NNODES", "the origin is");
        }
    }
}

/* In a pod a little of the time is left. */
static void test_grace(void)
{
    static const struct {
        const char *env, *keys;
        int want_ms;
        const char *want_origin;
    } cases[] = {
        {"KUBERNETES_SERVICE_HOST=10.0.0.1", "", 25000,
         "environment KUBERNETES_SERVICE_HOST"},
        {"KUBERNETES_SERVICE_HOST=10.0.0.1", "limits: {deadline: 1h}", 25000,
         "environment KUBERNETES_SERVICE_HOST"},
        {"KUBERNETES_SERVICE_HOST=10.0.0.1", "limits: {grace: 30s}", 30000, "t:"},
        {"KUBERNETES_SERVICE_HOST=", "", 30000, "default"},
        {"KUBERNETES_SERVICE_PORT=443", "", 30000, "default"},
    };

    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        const char *env[] = {cases[i].env, NULL};
        _buf_ struct buf text = {0};
        _outcome_ struct outcome o = {0};

        buf_printf(&text, "%scommand: [a]\n%s\n", head, cases[i].keys);
        o = outcome_of(&(struct spec_request){
            .text = buf_str(&text), .text_name = "t",
            .env = (char *const *)(uintptr_t)env});
        is_int(o.result.job ? (int)o.result.job->limits.grace_ms : -1,
               cases[i].want_ms, "%s with \"%s\"", cases[i].env, cases[i].keys);
        like(o.result.job ? spec_origin_of(&o.result, "limits.grace") : "",
             cases[i].want_origin, "and why");
    }
}

static void test_log_format(void)
{
    static const struct {
        const char *env, *keys;
        enum job_log_format want;
    } cases[] = {
        {"LOG_FORMAT=json", "", JOB_LOG_JSON},
        {"LOG_FORMAT=JSON", "logs: {files: node}", JOB_LOG_JSON},
        {"LOG_FORMAT=json", "logs: {format: text}", JOB_LOG_TEXT},
        {"LOG_FORMAT=logfmt", "", JOB_LOG_TEXT},
        {"LOG_FORMAT=", "logs: {format: json}", JOB_LOG_JSON},
    };

    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        const char *env[] = {cases[i].env, NULL};
        _buf_ struct buf text = {0};
        _outcome_ struct outcome o = {0};

        buf_printf(&text, "%scommand: [a]\n%s\n", head, cases[i].keys);
        o = outcome_of(&(struct spec_request){
            .text = buf_str(&text), .text_name = "t",
            .env = (char *const *)(uintptr_t)env});
        is_int(o.result.job ? (int)o.result.job->logs.format : -1,
               cases[i].want, "%s with \"%s\"", cases[i].env, cases[i].keys);
    }
}

static void test_files(void)
{
    char dir[] = "/tmp/muster-spec-XXXXXX";
    const char *dirs[] = {dir, NULL};
    _outcome_ struct outcome o = {0};
    char path[64], bad[64];

    if (!mkdtemp(dir)) {
        bail_out("mkdtemp");
    }
    snprintf(path, sizeof(path), "%s/b.yaml", dir);
    snprintf(bad, sizeof(bad), "%s/a.yaml", dir);
    write_text(bad, "a: [");
    write_text(path, "apiVersion: muster/v1\nkind: Runtime\nname: site\n"
                     "workdir: /w\n");
    o = outcome_of(&(struct spec_request){
        .text = "apiVersion: muster/v1\nkind: Job\nruntime: site\n"
                "command: [a]\n",
        .text_name = "t",
        .runtime_dirs = dirs});
    is_int(o.rc, 0, "a runtime in a directory: %s", o.error.text);
    is_str(o.rc == 0 ? o.result.job->workdir : "", "/w", "is used");
    like(o.all, "warning: a file of runtimes is skipped", "a bad one is told");
    fs_remove_tree(dir, NULL);
}

/* What is given to users as an example resolves, without a warning. */
static void test_examples(void)
{
    static const struct {
        const char *file, *command;
    } examples[] = {
        {"charlm.yaml", "charlm --steps 300 --checkpoint-every 50 --save-together"},
        {"ddp.yaml", "python3 examples/ddp.py --steps 300"},
        {"ome-job.yaml", "python3 -u examples/ddp.py --steps 300"},
    };
    const char *srcdir = getenv("MUSTER_SRCDIR");
    char path[4096];

    for (size_t i = 0; i < ARRAY_SIZE(examples); i++) {
        _outcome_ struct outcome o = {0};
        _free_ char *command = NULL;

        fs_path(path, sizeof(path), NULL, "%s/examples/%s",
                srcdir ? srcdir : "..", examples[i].file);
        o = outcome_of(&(struct spec_request){.path = path});
        is_int(o.rc, 0, "%s resolves: %s", examples[i].file, o.error.text);
        command = o.rc == 0 ? joined(&o.result.job->command) : NULL;
        is_str(command, examples[i].command, "to its command");
        ok(!strstr(o.all, "warning"), "without a warning");
    }
}

int main(void)
{
    test_secrets();
    test_environment();
    test_grace();
    test_log_format();
    test_files();
    test_examples();
    return tap_done();
}
