/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "launcher/takeup.h"

#include "base/cleanup.h"
#include "base/fs.h"
#include "launcher/status.h"
#include "tests/lib/tap.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static char dir[] = "/tmp/muster-takeup.XXXXXX";

static struct rundir *open_run(void)
{
    struct rundir *r = NULL;
    struct rundir_params p = {.name = "tiny", .dir = "run"};
    struct error e = {0};

    if (rundir_create(&p, &r, &e) < 0) {
        bail_out("%s", e.text);
    }
    return r;
}

static void write_status(const struct rundir *r, const struct run_status *s)
{
    _buf_ struct buf text = {0};
    char path[PATH_MAX];

    rundir_path(r, path, sizeof(path), NULL, "status.json");
    run_status_to_json(s, &text);
    if (fs_write_replace(path, text.data, text.len, NULL) < 0) {
        bail_out("write %s", path);
    }
}

/* How an earlier life ended, and what of it counts in the next one. */
static void test_states(void)
{
    static const struct {
        enum status_run_state state;
        const char *resume_path;
        uint32_t want_restarts;
        const char *want_path;
        int64_t want_step;
    } cases[] = {
        {STATUS_RUNNING, "ckpt/40", 2, "ckpt/40", 40},
        {STATUS_RESTARTING, "ckpt/40", 2, "ckpt/40", 40},
        {STATUS_STOPPING, "ckpt/40", 2, "ckpt/40", 40},
        {STATUS_STOPPED, "ckpt/40", 2, "ckpt/40", 40},
        {STATUS_STOPPED, "", 2, "", 0},
        {STATUS_SUCCEEDED, "ckpt/40", 0, "", 0},
        {STATUS_FAILED, "ckpt/40", 0, "", 0},
    };

    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        _cleanup_(rundir) struct rundir *r = open_run();
        struct run_status *s = run_status_create();
        struct run_config config = {.first_generation = 1};
        const char *name = status_run_name(cases[i].state);
        struct error e = {0};

        str_copy(s->id, sizeof(s->id), r->id);
        str_copy(s->name, sizeof(s->name), "tiny");
        s->state = cases[i].state;
        s->generation = 3;
        s->restarts = 2;
        s->resume_step = 40;
        str_copy(s->resume_path, sizeof(s->resume_path),
                 cases[i].resume_path);
        write_status(r, s);
        r->reopened = true;
        is_int(takeup_run(r, &config, &e), 0, "%s: taken up %s", name, e.text);
        is_int(config.first_generation, 4, "%s: generations count on", name);
        is_int(config.n_restarts, cases[i].want_restarts,
               "%s: spent restarts", name);
        is_str(config.resume_path, cases[i].want_path, "%s: checkpoint", name);
        is_int(config.resume_step, cases[i].want_step, "%s: its step", name);
        run_status_destroy(s);
    }
}

static void test_nothing_there(void)
{
    _cleanup_(rundir) struct rundir *r = open_run();
    struct run_config config = {.first_generation = 1};
    struct error e = {0};
    char path[PATH_MAX];

    rundir_path(r, path, sizeof(path), NULL, "status.json");
    unlink(path);
    is_int(takeup_run(r, &config, &e), 0, "no status");
    is_int(config.first_generation, 1, "is a first life");
    fs_write_replace(path, "{", 1, NULL);
    r->reopened = false;
    is_int(takeup_run(r, &config, &e), 0, "a new directory is not looked at");
    r->reopened = true;
    ok(takeup_run(r, &config, &e) < 0, "half a status is an error");
    like(e.text, "/run: status", "that is named");
}

int main(void)
{
    if (!mkdtemp(dir) || chdir(dir) < 0) {
        bail_out("mkdtemp");
    }
    setenv("XDG_STATE_HOME", dir, 1);
    unsetenv("SLURM_JOB_ID");
    test_states();
    test_nothing_there();
    fs_remove_tree(dir, NULL);
    return tap_done();
}
