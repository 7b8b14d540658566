/* SPDX-License-Identifier: Apache-2.0 */
/* Runs that are found, and those whose directory is not asked. */
#include <config.h>

#include "launcher/control_bed.h"
#include "launcher/rundir_bed.h"
#include "launcher/runview.h"
#include "tests/lib/tap.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static void test_load(void)
{
    struct rundir_params p = {.name = "loaded"};
    _cleanup_(rundir) struct rundir *r = bed_create(&p);
    _run_view_ struct run_view v = {0};
    struct rundir_entry entry = {0};
    struct error e = {0};

    is_int(run_view_load(r->id, &v, &e), 0, "a run is read by its id");
    is_str(v.dir->path, r->path, "the one that it is");
    ok(!v.has_status && !v.is_silent, "which has no status yet");
    snprintf(entry.id, sizeof(entry.id), "%s", r->id);
    snprintf(entry.path, sizeof(entry.path), "%s", r->path);
    ok(!run_view_entry_is_gone(&entry, 60000), "it is where the index says");
    snprintf(entry.id, sizeof(entry.id), "another");
    ok(run_view_entry_is_gone(&entry, 60000), "another one is gone from there");
    is_int(run_view_entry(&entry, 60000, &v, &e), -ENOENT, "and not read");
    is_int(run_view_load("no-such-run", &v, &e), -ENOENT, "nor one that never was");
    like(e.text, "no-such-run", "which is named");
}

/* Where its directory hangs: by what is known without that. */
static void heard(const struct rundir *r, const char *arg, const char *name)
{
    _run_view_ struct run_view v = {0};

    is_int(run_view_heard(arg, &v, NULL), 0, "%s", name);
    ok(v.is_silent && v.dir && strcmp(v.dir->id, r->id) == 0, "it is that one");
}

static void test_heard(void)
{
    struct rundir_params p = {.name = "heard"};
    _cleanup_(rundir) struct rundir *r = bed_create(&p);
    _run_view_ struct run_view v = {0};
    struct control_server *server = NULL;
    struct seen seen = {0};
    uv_loop_t loop;
    char path[PATH_MAX + 32], here[PATH_MAX];

    is_int(run_view_heard(r->id, &v, NULL), -ENOENT, "nobody is there yet");
    uv_loop_init(&loop);
    is_int(control_server_create(&loop, r->id, "agent-0", bed_on_request, &seen,
                                 &server, NULL), 0, "an agent");
    heard(r, r->id, "is heard by the id of its run");
    heard(r, "heard", "by its name");
    heard(r, r->path, "by its directory");
    snprintf(path, sizeof(path), "%s/.././/%s/", r->path, strrchr(r->path, '/') + 1);
    heard(r, path, "however that is written");
    if (!getcwd(here, sizeof(here)) || chdir(r->path) < 0 || chdir("..") < 0) {
        bail_out("chdir");
    }
    heard(r, strrchr(r->path, '/') + 1, "from where it is");
    is_int(run_view_heard("../../../../../../../..", &v, NULL), -ENOENT,
           "above the root is nothing");
    is_int(chdir(here), 0, "back again");
    control_server_destroy(server);
    bed_close_loop(&loop);
}

int main(void)
{
    char runtime[PATH_MAX];

    bed_up();
    setenv("XDG_RUNTIME_DIR", getcwd(runtime, sizeof(runtime)), 1);
    test_load();
    test_heard();
    bed_down();
    return tap_done();
}
