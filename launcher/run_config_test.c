/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "base/cleanup.h"
#include "launcher/run_config.h"
#include "tests/lib/tap.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

static void make(struct run_config *c)
{
    c->job = job_create();
    c->job->name = strdup("tiny");
    strlist_add(&c->job->command, "python");
    strlist_add(&c->job->command, "train.py");
    strlist_add(&c->env, "HOME=/home/u");
    strlist_add(&c->env, "EMPTY=");
    strlist_add(&c->env, "ODD=a=b\n\xff");
    str_copy(c->cwd, sizeof(c->cwd), "/work dir");
    str_copy(c->resume_path, sizeof(c->resume_path), "/ckpt/7");
    c->umask = 027;
    c->by_hand = true;
    c->detach_ms = UINT64_MAX;
    c->resume_step = INT64_MIN;
    c->avoid = (struct avoid){.n_deaths = 1, .n = 1,
                              .list = {{.path = "/ckpt/9", .step = 9, .n_deaths = 2}}};
    c->first_generation = 9;
    c->n_restarts = UINT32_MAX;
    c->n_starts = 4;
    c->n_node_failures = 2;
    c->want_nodes = 5;
    c->n_nodes = 6;
    c->ran_ms = UINT64_MAX;
    strlist_add(&c->excluded, "1 node3 cause it was the cause");
    strlist_add(&c->slots, "n1:1");
    strlist_add(&c->slots, "n2");
    memset(c->nonce, 7, sizeof(c->nonce));
}

static void test_there_and_back(void)
{
    _run_config_ struct run_config c = {0}, got = {0};
    _buf_ struct buf b = {0};
    struct error e = {0};

    make(&c);
    run_config_encode(&c, &b);
    ok(!b.failed, "encoded");
    is_int(run_config_decode(b.data, b.len, &got, &e), 0, "decoded");
    is_str(got.job ? got.job->name : "", "tiny", "the job");
    is_int((intmax_t)got.env.n, 3, "the environment");
    is_str(got.env.items[2], "ODD=a=b\n\xff", "byte for byte");
    is_str(got.cwd, "/work dir", "the directory");
    is_int(got.umask, 027, "the umask");
    ok(got.by_hand && got.detach_ms == UINT64_MAX, "how it was started");
    is_str(got.resume_path, "/ckpt/7", "what to resume from");
    ok(memcmp(&got.avoid, &c.avoid, sizeof(c.avoid)) == 0, "and from what not");
    ok(got.resume_step == INT64_MIN && got.first_generation == 9 &&
       got.n_restarts == UINT32_MAX, "where it was");
    ok(got.n_starts == 4 && got.n_node_failures == 2 &&
       got.want_nodes == 5 && got.n_nodes == 6 &&
       got.ran_ms == UINT64_MAX, "and how long");
    ok(got.excluded.n == 1 && strcmp(got.excluded.items[0], c.excluded.items[0]) == 0,
       "and who is not to take part");
    ok(got.slots.n == 2 && strcmp(got.slots.items[0], "n1:1") == 0 &&
       strcmp(got.slots.items[1], "n2") == 0, "and how many workers hosts have");
    is_int(memcmp(got.nonce, c.nonce, sizeof(c.nonce)), 0, "its nonce");
}

static void test_cuts(void)
{
    _run_config_ struct run_config c = {0};
    _buf_ struct buf b = {0};
    size_t n_taken = 0;

    make(&c);
    run_config_encode(&c, &b);
    for (size_t len = 0; len < b.len; len++) {
        struct run_config got = {0};
        struct error e = {0};
        /* A copy of its own, so that reading past it is seen. */
        _free_ char *cut = malloc(len + 1);

        memcpy(cut, b.data, len);
        if (run_config_decode(cut, len, &got, &e) == 0) {
            run_config_release(&got);
            n_taken++;
        } else if (!e.text[0] || got.job || got.env.items) {
            n_taken++;
        }
    }
    is_int((intmax_t)n_taken, 0, "no part of it is taken, and each says why");
    buf_putc(&b, 'x');
    ok(run_config_decode(b.data, b.len, &c, NULL) < 0, "nor more than it");
}

static void test_capture(void)
{
    _run_config_ struct run_config c = {0};
    char *env[] = {(char *)"A=1", (char *)"B=2", NULL};
    struct error e = {0};
    mode_t before = umask(037), after;

    is_int(run_config_capture(&c, env, &e), 0, "taken from this process");
    after = umask(before);
    is_int(after, 037, "which keeps its umask");
    is_int(c.umask, 037, "the umask");
    is_int((intmax_t)c.env.n, 2, "the environment");
    ok(c.cwd[0] == '/', "the directory");
}

/* Writes what the fuzzer starts from. */
static int write_sample(const char *path)
{
    _run_config_ struct run_config c = {0};
    _buf_ struct buf b = {0};
    FILE *f = fopen(path, "w");

    make(&c);
    run_config_encode(&c, &b);
    return f && fwrite(b.data, 1, b.len, f) == b.len && fclose(f) == 0 ? 0 : 1;
}

int main(int argc, char **argv)
{
    if (argc == 3 && strcmp(argv[1], "--write") == 0) {
        return write_sample(argv[2]);
    }
    test_there_and_back();
    test_cuts();
    test_capture();
    return tap_done();
}
