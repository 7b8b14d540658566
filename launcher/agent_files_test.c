/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "launcher/agent_files.h"

#include "base/cleanup.h"
#include "base/fs.h"
#include "base/str.h"
#include "launcher/agent.h"
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

static void test_run(void)
{
    static const struct { const char *text; size_t len; } strange[] = {
        {"", 0}, {"run", 3}, {"/a\0b", 4},
    };
    struct agent *a = calloc(1, sizeof(*a));
    char told[PATH_MAX], path[32];
    struct error e = {0};

    make_place(a);
    agent_files_run_path(a->dir, 3, told, NULL);
    a->index = 3;
    is_int(agent_files_run(told, path, sizeof(path), &e), -ENOENT,
           "one that never knew its run");
    str_copy(a->run.dir, sizeof(a->run.dir), "/runs/one");
    agent_files_tell_run(a);
    is_int(agent_files_run(told, path, sizeof(path), &e), 0, "one that did");
    is_str(path, "/runs/one", "tells where it is");
    ok(agent_files_run(told, path, 5, &e) < 0, "there must be room for it");
    for (size_t i = 0; i < ARRAY_SIZE(strange); i++) {
        put(a, "agent-3.run", strange[i].text, strange[i].len);
        is_int(agent_files_run(told, path, sizeof(path), &e), -ERR_FORMAT,
               "'%s' of %zu bytes is no directory", strange[i].text, strange[i].len);
    }
    agent_files_remove(a);
    ok(access(a->dir, F_OK) < 0, "all goes with the agent");
    free(a);
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
    agent_files_remove(a);
    ok(access(a->dir, F_OK) < 0, "and goes where muster-watch is gone");
    free(a);
}

int main(void)
{
    test_run();
    test_stays();
    return tap_done();
}
