/* SPDX-License-Identifier: Apache-2.0 */
/*
 * sim_replay [FILE...]: steps the protocol core through logs that agents of one run
 * have recorded (MUSTER_STEPS_DIR), and looks at what they say together. Without any it
 * takes those of tests/corpus/sim_replay: RUN-RANK.steps.
 */
#include <config.h>

#include "base/cleanup.h"
#include "base/fs.h"
#include "rendezvous/replay.h"
#include "tests/lib/tap.h"

#include <dirent.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_LOG_BYTES = 256 << 20 };

static const char *base_of(const char *path)
{
    const char *slash = strrchr(path, '/');

    return slash ? slash + 1 : path;
}

static void play(struct replay *all, const char *path)
{
    _free_ char *data = NULL;
    struct error e = {0};
    uint64_t before = all->n_steps;
    size_t len = 0;
    int rc = fs_read(path, MAX_LOG_BYTES, &data, &len, &e);

    rc = rc < 0 ? rc : replay_log(all, data, len, &e);
    if (!ok(rc == 0, "%s: %llu steps as they were recorded", base_of(path),
            (unsigned long long)(all->n_steps - before))) {
        diag("%s", e.text);
    }
}

static void end_run(struct replay *all, const char *name)
{
    struct error e = {0};

    if (!ok(replay_check(all, &e) == 0, "%s: one lead a view, no generation of two, "
            "none after a newer one (%zu orders and starts, %u leads)", name,
            all->n_runs, all->n_leads)) {
        diag("%s", e.text);
    }
    replay_release(all);
}

static int is_log(const struct dirent *d)
{
    const char *dot = strrchr(d->d_name, '.');

    return dot && strcmp(dot, ".steps") == 0;
}

static size_t run_len(const char *name)
{
    const char *dash = strrchr(name, '-');

    return dash ? (size_t)(dash - name) : strlen(name);
}

static void play_corpus(void)
{
    const char *srcdir = getenv("MUSTER_SRCDIR");
    struct dirent **all = NULL;
    struct replay run = {0};
    char dir[PATH_MAX], path[PATH_MAX];
    int n;

    fs_path(dir, sizeof(dir), NULL, "%s/tests/corpus/sim_replay",
            srcdir ? srcdir : "..");
    n = scandir(dir, &all, is_log, alphasort);
    if (n <= 0) {
        bail_out("no logs in %s", dir);
    }
    for (int i = 0; i < n; i++) {
        const char *name = all[i]->d_name;
        const char *next = i + 1 < n ? all[i + 1]->d_name : "";
        size_t len = run_len(name);

        if (fs_path(path, sizeof(path), NULL, "%s/%s", dir, name) == 0) {
            play(&run, path);
        }
        if (len != run_len(next) || strncmp(name, next, len) != 0) {
            all[i]->d_name[len] = '\0';
            end_run(&run, all[i]->d_name);
        }
    }
    for (int i = 0; i < n; i++) {
        free(all[i]);
    }
    free(all);
}

int main(int argc, char **argv)
{
    struct replay run = {0};

    if (argc < 2) {
        play_corpus();
        return tap_done();
    }
    for (int i = 1; i < argc; i++) {
        play(&run, argv[i]);
    }
    end_run(&run, "all");
    return tap_done();
}
