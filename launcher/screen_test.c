/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "launcher/screen.h"

#include "base/cleanup.h"
#include "base/str.h"
#include "launcher/run_config.h"
#include "spec/job.h"
#include "tests/lib/tap.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* A screen whose standard error is a file, as the process has only one. */
struct bench {
    uv_loop_t loop;
    struct writer *writer;
    struct job job;
    struct run_config run;
    struct front_config config;
    struct screen *screen;
    int file, old_stderr;
};

static void on_room(void *arg)
{
    (void)arg;
}

static void setup(struct bench *b)
{
    struct error e = {0};
    char name[] = "/tmp/screen-test-XXXXXX";

    memset(b, 0, sizeof(*b));
    b->run.job = &b->job;
    b->config.run = &b->run;
    b->file = mkostemp(name, O_CLOEXEC);
    unlink(name);
    b->old_stderr = fcntl(2, F_DUPFD_CLOEXEC, 3);
    if (b->file < 0 || b->old_stderr < 0 || dup2(b->file, 2) < 0) {
        bail_out("a file as standard error");
    }
    if (uv_loop_init(&b->loop) < 0 ||
        writer_create(&b->loop, on_room, NULL, &b->writer, &e) < 0 ||
        screen_create(&b->config, b->writer, &b->screen, &e) < 0) {
        bail_out("%s", e.text);
    }
}

/* All that was shown. */
static void teardown(struct bench *b, char *to, size_t size)
{
    ssize_t n;

    screen_destroy(b->screen);
    while (writer_pending(b->writer)) {
        usleep(1000);
    }
    writer_destroy(b->writer);
    uv_run(&b->loop, UV_RUN_DEFAULT);
    uv_loop_close(&b->loop);
    n = pread(b->file, to, size - 1, 0);
    to[n > 0 ? n : 0] = '\0';
    dup2(b->old_stderr, 2);
    close(b->old_stderr);
    close(b->file);
}

static void event(struct bench *b, const char *name, const char *text)
{
    json_t *o = json_pack("{s:s, s:s}", "event", name, "text", text);

    screen_event(b->screen, o);
    json_decref(o);
}

static void test_told_once(void)
{
    struct bench b;
    char text[4096];

    setup(&b);
    event(&b, "node_lost", "lost node 1 (n1): no word");
    event(&b, "stopping", "lost node 1 (n1): no word");
    teardown(&b, text, sizeof(text));
    is_str(text, "muster: lost node 1 (n1): no word\n",
           "a reason that was just told is not told again");

    setup(&b);
    event(&b, "node_lost", "lost node 1");
    event(&b, "stopping", "lost node 1; before that rank 0 failed");
    teardown(&b, text, sizeof(text));
    is_str(text, "muster: lost node 1\n", "nor with more to it");
}

static void test_news(void)
{
    struct bench b;
    char text[4096];

    setup(&b);
    event(&b, "nodes_gathered", "2 nodes");
    event(&b, "node_late", "no word from n1");
    event(&b, "stopping", "cancelled");
    event(&b, "stopping", "killing what is left");
    teardown(&b, text, sizeof(text));
    is_str(text, "muster: no word from n1\nmuster: cancelled\n"
           "muster: killing what is left\n", "news are shown");
}

/* A status of so many workers comes in. */
static void status(struct bench *b, size_t n_workers)
{
    struct run_status *s = run_status_create();
    _buf_ struct buf json = {0};

    if (!s || run_status_set_nodes(s, 1) < 0 ||
        run_status_set_workers(s, n_workers) < 0) {
        bail_out("a status");
    }
    s->state = STATUS_RUNNING;
    run_status_to_json(s, &json);
    ok(screen_status(b->screen, json.data, json.len) != NULL, "%zu workers",
       n_workers);
    run_status_destroy(s);
}

static void test_ranks(void)
{
    static const struct {
        const char *show;
        size_t n, more;
        const char *want;
    } cases[] = {
        {"5", 2, 2, "muster: no output is shown: no worker has a rank of '5', "
                    "there are ranks 0 to 1 (--logs)\n"},
        {"1-3", 1, 1, "muster: no output is shown: no worker has a rank of "
                      "'1-3', there is rank 0 alone (--logs)\n"},
        {"5", 2, 6, "muster: no output is shown: no worker has a rank of '5', "
                    "there are ranks 0 to 1 (--logs)\n"},
        {"5", 0, 6, ""}, {"1,5", 2, 2, ""}, {"lead", 1, 1, ""},
        {"none", 2, 2, ""}, {"all", 2, 2, ""}, {NULL, 2, 2, ""},
    };

    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        struct bench b;
        char text[4096];

        setup(&b);
        b.job.logs.show = (char *)cases[i].show;
        status(&b, cases[i].n);
        status(&b, cases[i].more);
        teardown(&b, text, sizeof(text));
        is_str(text, cases[i].want, "output of ranks %s",
               cases[i].show ? cases[i].show : "that nobody asked for");
    }
}

/* What the end of a run says, with its directory at `path`. */
static void end(char *path, char *to, size_t size)
{
    struct rundir dir = {0};
    struct bench b;

    str_copy(dir.id, sizeof(dir.id), "r1");
    str_copy(dir.path, sizeof(dir.path), path);
    setup(&b);
    b.config.dir = &dir;
    screen_end(b.screen, 0, "", 1000);
    teardown(&b, to, size);
}

static void test_end(void)
{
    char text[4096], dir[] = "/tmp/screen-test-XXXXXX", want[512];

    if (!mkdtemp(dir)) {
        bail_out("a directory");
    }
    end(dir, text, sizeof(text));
    snprintf(want, sizeof(want), "logs and records are in %s\n", dir);
    like(text, want, "the end says where the records are");
    rmdir(dir);
    end(dir, text, sizeof(text));
    snprintf(want, sizeof(want), "records cannot be written: %s is gone", dir);
    like(text, want, "or that there are none, however short the run was");
}

int main(void)
{
    test_told_once();
    test_news();
    test_ranks();
    test_end();
    return tap_done();
}
