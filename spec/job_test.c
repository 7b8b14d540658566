/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "base/cleanup.h"
#include "spec/job.h"
#include "spec/testing.h"
#include "tests/lib/tap.h"

#include <errno.h>
#include <string.h>
#include <time.h>

static void test_defaults(void)
{
    _cleanup_(job) struct job *job = job_create();

    ok(job != NULL, "made");
    is_int(job->nodes.min, 1, "one node");
    is_int(job->procs.mode, JOB_PROCS_AUTO, "auto");
    is_int(job->restart.policy, JOB_RESTART_ON_FAILURE, "OnFailure");
    is_int(job->restart.max, 3, "three restarts");
    is_int((intmax_t)job->restart.backoff_max_ms, 60000, "backoff");
    is_int((intmax_t)job->gang_timeout_ms, 300000, "gang timeout");
    is_int((intmax_t)job->heartbeat_timeout_ms, 10000, "heartbeat");
    is_int((intmax_t)job->hang_timeout_ms, JOB_OFF, "no hang watch");
    ok(job->detach_timeout_ms == JOB_AUTO, "detach auto");
    is_int(job->checkpoint.levels, 7, "all levels");
    ok(!job->name && !job->command.n, "no name and command");
    job_destroy(NULL);
}

/* The table of exit codes that users of Kubernetes expect. */
static void test_exits(void)
{
    static const int codes[] = {0, 1, 127, 130, 137, 143, 134, 139, 138, 255, 128};
    static const struct {
        const char *keys;
        const char *retried; /* one letter a code */
    } cases[] = {
        {"restart: {policy: Never}", "-----------"},
        {"restart: {policy: OnFailure}", "-yyyyyyyyyy"},
        {"restart: {policy: Always}", "yyyyyyyyyyy"},
        {"restart: {policy: ExitCode}", "---yyyyyyyy"},
        {"restart: {policy: ExitCode, exitCodes: t9k}", "---yyy--y--"},
        {"restart: {policy: ExitCode, exitCodes: [1, 139]}", "-y-----y---"},
    };

    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        _outcome_ struct outcome o = outcome_of_keys(cases[i].keys);
        char got[ARRAY_SIZE(codes) + 1] = "";

        is_int(o.rc, 0, "resolves");
        for (size_t k = 0; o.rc == 0 && k < ARRAY_SIZE(codes); k++) {
            got[k] = job_exit_is_retried(o.result.job, codes[k]) ? 'y' : '-';
        }
        is_str(got, cases[i].retried, "%s", cases[i].keys);
        ok(job_exit_is_retried(o.result.job, 256) ==
                   job_exit_is_retried(o.result.job, 255) &&
               job_exit_is_retried(o.result.job, -1) ==
                   job_exit_is_retried(o.result.job, 255),
           "what is no exit code counts as 255");
    }
}

static void test_secret_names(void)
{
    static const char *const secret[] = {
        "HF_TOKEN",       "TOKEN",          "AWS_SECRET_ACCESS_KEY",
        "AWS_ACCESS_KEY_ID", "db_password", "WANDB_API_KEY",
        "MY_SECRET_NAME", "SSH_PRIVATE_KEY", "LISTED", "KEY", "DB_PWD",
        NULL};
    static const char *const plain[] = {
        "TOKENIZERS_PARALLELISM", "PATH", "KEYBOARD", "MONKEY", "LR",
        "PWD", "OLDPWD", NULL};
    struct job job = {0};

    strlist_add(&job.secrets, "LISTED");
    for (size_t i = 0; secret[i]; i++) {
        ok(job_env_is_secret(&job, secret[i]), "%s is secret", secret[i]);
    }
    for (size_t i = 0; plain[i]; i++) {
        ok(!job_env_is_secret(&job, plain[i]), "%s is not", plain[i]);
    }
    strlist_release(&job.secrets);
}

static const char full[] =
    "apiVersion: muster/v1\n"
    "kind: Job\n"
    "name: full\n"
    "nodes: 2..8\n"
    "procsPerNode: 4\n"
    "command: [python, -c, 'print(\"\xc3\xa4\\n\")', $$(A), none, '', '5']\n"
    "env: {A: x y, API_KEY: s3cretvalue, U: 'pre-$(API_KEY)-post', Z: ''}\n"
    "workdir: /data\n"
    "container: img:1\n"
    "restart: {policy: ExitCode, max: 9, backoff: 250ms..1.5s, exitCodes: [1]}\n"
    "elastic: {spares: 1, growInterval: 90s}\n"
    "hang: {timeout: 5m}\n"
    "limits: {deadline: 1d, grace: 1s, nodeFailures: 0}\n"
    "checkpoint: {every: off, everySteps: 5, keep: 1, levels: [disk], store: s3://bkt/c,\n"
    "  keepEvery: 100, keepBest: m.loss, keepGoal: maximize,\n"
    "  watch: out, resumeArg: --resume, alarm: {after: 2h, then: stop},\n"
    "  prune: {keep: 2, every: 500, best: eval_loss, goal: maximize},\n"
    "  copy: {to: /b, every: 1h, keep: 9}}\n"
    "inputs: [{from: s3://b/d, to: data, credential: k,\n"
    "          parameters: {region: eu}}]\n"
    "outputs: [{from: out, to: s3://b/e}]\n"
    "search: {method: random, maxTrials: 5, metric: {name: loss,\n"
    "  goal: maximize}, parameters: {lr: {type: double, min: 1e-5,\n"
    "  max: 0.1, scale: log}, b: {type: int, values: [8, 16]}, c: yes}}\n"
    "resources: {cpus: 2500m, memory: 64Gi, gpus: 8}\n"
    "binding: core\n"
    "preflight: full\n"
    "logs: {show: [0, 3-5], prefix: '{rank} ', fold: yes, format: json, files: node,\n"
    "       maxSize: 64Mi, keep: 7, generations: 3}\n"
    "store: tree\n"
    "heartbeat: {timeout: 3s}\n"
    "detach: {timeout: never}\n"
    "slurm: {partition: p, time: 2h, margin: 45s, requeue: true, extra: "
    "[--exclusive, 'a b']}\n"
    "labels: {team: 'null', 'a/b': '1'}\n"
    "annotations: {n: 0755}\n"
    "suspend: true\n";

static void test_json(void)
{
    _outcome_ struct outcome o = outcome_of_text(full);
    _cleanup_(job) struct job *back = NULL;
    _free_ char *once = NULL, *twice = NULL;
    struct error e = {0};

    is_int(o.rc, 0, "all keys resolve: %s", o.error.text);
    if (o.rc < 0) {
        return;
    }
    once = job_encode(o.result.job);
    is_int(job_decode(once, strlen(once), &back, &e), 0, "decodes: %s",
           e.text);
    twice = back ? job_encode(back) : NULL;
    is_str(twice, once, "to the same job");
    like(once, "s3cretvalue", "secrets are in it");
}

static void test_yaml(void)
{
    static const char *const with[] = {"API_KEY=s3cretvalue", NULL};
    _outcome_ struct outcome o = outcome_of_text(full);
    _outcome_ struct outcome again = {0}, without = {0};
    _free_ char *yaml = NULL, *first = NULL, *second = NULL;

    if (o.rc < 0) {
        return;
    }
    yaml = job_write_yaml(o.result.job);
    ok(!strstr(yaml, "s3cret"), "no secret in the resolved spec");
    like(yaml, "API_KEY: \"<hidden>\"", "but that there is one");
    like(yaml, "pre-$(API_KEY)-post", "and where it is used");
    again = outcome_of(&(struct spec_request){
        .text = yaml,
        .text_name = "y",
        .env = (char *const *)(uintptr_t)with});
    is_int(again.rc, 0, "it loads again: %s", again.error.text);
    first = job_encode(o.result.job);
    second = again.rc == 0 ? job_encode(again.result.job) : NULL;
    is_str(second, first, "to the same job");

    without = outcome_of(
        &(struct spec_request){.text = yaml, .text_name = "y"});
    is_int(without.rc, 0, "it loads without the secret");
    like(without.all, "variable API_KEY is not set", "with a warning");
}

/* A resolved job does not look for its runtime again. */
static void test_runtime(void)
{
    _outcome_ struct outcome o = outcome_of_text(
        "apiVersion: muster/v1\nkind: Runtime\nname: r\nworkdir: /w\n"
        "env: {A: b}\n---\n"
        "apiVersion: muster/v1\nkind: Job\nruntime: r\ncommand: [a]\n");
    _outcome_ struct outcome again = {0};
    _free_ char *yaml = o.rc == 0 ? job_write_yaml(o.result.job) : NULL;

    like(yaml, "# made with the runtime \"r\"", "it is told");
    again = outcome_of_text(yaml ? yaml : "");
    is_int(again.rc, 0, "and not needed: %s", again.error.text);
    is_str(again.rc == 0 ? again.result.job->workdir : "", "/w",
           "what it gave is there");
}

/* Many secrets and a long command, both full of near misses. */
static void test_hard_search(void)
{
    struct job *job = NULL;
    size_t n = 100000;
    char *a = NULL;
    clock_t start = clock();
    _free_ char *yaml = NULL;

    if (tap_valgrind()) {
        skip("valgrind brings a search of its own");
        return;
    }
    job = job_create();
    a = malloc(n + 1);
    memset(a, 'a', n);
    a[n] = '\0';
    for (int i = 0; i < 300; i++) {
        strlist_addf(&job->env, "T%d_TOKEN=%.1000sb", i, a);
    }
    for (int i = 0; i < 10; i++) {
        strlist_add(&job->command, a);
    }
    yaml = job_write_yaml(job);
    ok(yaml != NULL, "written");
    /* Of this process alone: how busy the machine is does not count. */
    ok((clock() - start) / CLOCKS_PER_SEC < 20, "with little work");
    free(a);
    job_destroy(job);
}

static void test_decode_bad(void)
{
    static const struct {
        const char *json, *error;
    } cases[] = {
        {"", "no JSON"},
        {"[]", "no object"},
        {"{", "no JSON"},
        {"{\"name\":\"a\"}", "without name or command"},
        {"{\"command\":[\"a\"]}", "without name or command"},
        {"{\"name\":\"a\",\"command\":[\"\"]}", "without name or command"},
        {"{\"name\":\"a\",\"name\":\"b\",\"command\":[\"a\"]}", "no JSON"},
        {"{\"name\":\"a\",\"command\":[\"a\"],\"x\":1}", "unknown key \"x\""},
        {"{\"name\":\"A_\",\"command\":[\"a\"]}", "name is \"A_\""},
        {"{\"name\":\"a\",\"command\":[\"a\"],\"nodes\":0}", "nodes is \"0\""},
        {"{\"name\":\"a\",\"command\":[[]]}", "command is a list"},
        {"{\"name\":\"a\",\"command\":\"a\"}", "command is \"a\""},
        {"{\"name\":\"a\",\"command\":[\"a\"],\"env\":{\"A=B\":\"c\"}}",
         "env has the name"},
        {"{\"name\":\"a\\u0000b\",\"command\":[\"a\"]}", "no JSON"},
    };

    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        struct error e = {0};
        struct job *job = NULL;

        is_int(job_decode(cases[i].json, strlen(cases[i].json), &job, &e),
               -ERR_FORMAT, "refused: %s", cases[i].json);
        like(e.text, cases[i].error, "and says why");
        ok(!job, "nothing is returned");
    }

    size_t n = 5u << 20;
    _free_ char *big = calloc(1, n);
    struct job *job = NULL;
    struct error e = {0};

    memset(big, '[', n);
    is_int(job_decode(big, n, &job, &e), -ERR_FORMAT, "too large");
    is_int(job_decode(big, 4u << 20, &job, &e), -ERR_FORMAT, "too deep");
    memcpy(big, "{\"name\":", 8);
    memset(big + 8, '[', 1000);
    memset(big + 1008, ']', 1000);
    big[2008] = '}';
    is_int(job_decode(big, 2009, &job, &e), -ERR_FORMAT, "deep");
    like(e.text, "too large or nested", "which is told");
}

int main(void)
{
    test_defaults();
    test_exits();
    test_secret_names();
    test_json();
    test_yaml();
    test_runtime();
    test_hard_search();
    test_decode_bad();
    return tap_done();
}
