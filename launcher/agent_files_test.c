/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "launcher/agent_files.h"

#include "base/cleanup.h"
#include "base/fs.h"
#include "base/str.h"
#include "launcher/agent.h"
#include "spec/job.h"
#include "tests/lib/tap.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static bool has(const struct agent *a, const char *name)
{
    char path[PATH_MAX];

    return fs_path(path, sizeof(path), NULL, "%s/%s", a->dir, name) == 0 &&
           access(path, F_OK) == 0;
}

static void put(const struct agent *a, const char *name, const char *text, size_t len)
{
    char path[PATH_MAX];

    if (fs_path(path, sizeof(path), NULL, "%s/%s", a->dir, name) < 0 ||
        fs_write_replace(path, text, len, NULL) < 0) {
        bail_out("write %s", name);
    }
}

static void make_place(struct agent *a)
{
    str_copy(a->dir, sizeof(a->dir), "/tmp/agent-files.XXXXXX");
    if (!mkdtemp(a->dir)) {
        bail_out("a directory");
    }
    put(a, "agent-3.lock", "", 0);
    put(a, "agent-3.log", "words", 5);
}

static const char strange[][40] = {
    "", "run", "10\nid", "10\nid\nrelative", "10\n\n/run", "10\n../id\n/run", "10\na/b\n/run",
    "x\nid\n/run", "\nid\n/run",
};

static void test_run(void)
{
    struct agent *a = calloc(1, sizeof(*a));
    struct job job = {.heartbeat_timeout_ms = 7000};
    struct agent_run run;
    char told[PATH_MAX], *odd = calloc(2, sizeof(run));
    struct error e = {0};

    make_place(a);
    a->index = 3;
    a->config.job = &job;
    agent_files_told(a->dir, 3, told, NULL);
    is_int(agent_files_read(told, &run, &e), -ENOENT, "one that never knew its run");
    str_copy(a->run.id, sizeof(a->run.id), "one");
    str_copy(a->run.dir, sizeof(a->run.dir), "/runs/of\nme");
    agent_files_tell_run(a);
    is_int(agent_files_read(told, &run, &e), 0, "one that did");
    is_str(run.id, "one", "tells which it is");
    is_str(run.dir, "/runs/of\nme", "where it is");
    is_int((int64_t)run.lease_ms, 7000, "and how long it waits for its lead");
    for (size_t i = 0; i < ARRAY_SIZE(strange); i++) {
        put(a, "agent-3.run", strange[i], strlen(strange[i]));
        is_int(agent_files_read(told, &run, &e), -ERR_FORMAT, "no run: '%s'", strange[i]);
    }
    put(a, "agent-3.run", "10\nid\n/a\0b", 11);
    is_int(agent_files_read(told, &run, &e), -ERR_FORMAT, "nor with a zero byte");
    memset(odd, 'a', 2 * sizeof(run));
    memcpy(odd, "10\nid\n/", 7);
    put(a, "agent-3.run", odd, sizeof(run) - 1);
    ok(agent_files_read(told, &run, &e) < 0, "nor a path that is too long");
    put(a, "agent-3.run", odd, 2 * sizeof(run));
    ok(agent_files_read(told, &run, &e) < 0, "nor a file");
    agent_files_remove(a);
    ok(access(a->dir, F_OK) < 0, "all goes with the agent");
    free(odd);
    free(a);
}

static int n_started;
static bool cannot_start;

int __wrap_agent_tidy_after(const char *tag, unsigned index, struct error *e);

int __wrap_agent_tidy_after(const char *tag, unsigned index, struct error *e)
{
    n_started += strchr(tag, '/') == NULL && index == 3;
    return cannot_start ? error_text(e, ENOENT, "no muster-watch") : 0;
}

static void test_stays(void)
{
    struct agent *a = calloc(1, sizeof(*a));

    make_place(a);
    a->index = 3;
    a->leaves_files = true;
    a->watch = getppid();
    agent_files_remove(a);
    ok(has(a, "agent-3.lock") && has(a, "agent-3.log"),
       "all stays where muster-watch has it tidied up later");
    a->watch = getpid(); /* which is not the parent: that is somebody else by now */
    a->is_kept = true;
    agent_files_remove(a);
    ok(has(a, "agent-3.lock") && n_started == 0, "or a keeper has");
    a->is_kept = false;
    agent_files_remove(a);
    ok(has(a, "agent-3.lock") && has(a, "agent-3.log"), "also where muster-watch is gone");
    is_int(n_started, 1, "for which another one is started");
    cannot_start = true;
    agent_files_remove(a);
    ok(access(a->dir, F_OK) < 0, "and goes where that cannot be");
    free(a);
}

int main(void)
{
    test_run();
    test_stays();
    return tap_done();
}
