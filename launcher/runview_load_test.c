/* SPDX-License-Identifier: Apache-2.0 */
/* Runs that are found, and those whose directory is not asked. */
#include <config.h>

#include "base/buf.h"
#include "base/clock.h"
#include "base/fs.h"
#include "base/str.h"
#include "launcher/control_bed.h"
#include "launcher/run_text.h"
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

static void show(const struct rundir *r, struct buf *to)
{
    _run_view_ struct run_view v = {0};
    struct error e = {0};

    buf_clear(to);
    if (run_view_open(r->path, &v, &e) < 0) {
        bail_out("%s", e.text);
    }
    run_text_head(to, &v);
}

static void put_running(const struct rundir *r, const char *host)
{
    struct run_status *s = run_status_create();
    _buf_ struct buf text = {0};
    char path[PATH_MAX];

    run_status_set_nodes(s, 1);
    str_copy(s->nodes[0].host, sizeof(s->nodes[0].host), host);
    str_copy(s->id, sizeof(s->id), r->id);
    s->state = STATUS_RUNNING;
    s->updated_ns = clock_wall_ns();
    run_status_to_json(s, &text);
    rundir_path(r, path, sizeof(path), NULL, "status.json");
    fs_write_replace(path, text.data, text.len, NULL);
    run_status_destroy(s);
}

/* All of it was killed, a moment ago: nobody can take it over. */
static void test_unheard(void)
{
    struct rundir_params p = {.name = "unheard"};
    _cleanup_(rundir) struct rundir *r = bed_create(&p);
    struct control_server *server = NULL;
    struct seen seen = {0};
    _buf_ struct buf text = {0};
    uv_loop_t loop;
    char host[256] = "";

    gethostname(host, sizeof(host) - 1);
    put_running(r, host);
    is_int(rundir_lock(r, NULL), 0, "a run");
    show(r, &text);
    ok(!strstr(buf_str(&text), "front end"), "that has a front end");
    rundir_unlock(r);
    show(r, &text);
    like(buf_str(&text), ": Running (nobody answers, last word ", "once all are gone");
    like(buf_str(&text), "nor is anybody of the run heard on this host: muster resume ",
         "what there is to do is told");
    ok(!strstr(buf_str(&text), "attach"), "and nothing else");
    uv_loop_init(&loop);
    is_int(control_server_create(&loop, r->id, "agent-0", bed_on_request, &seen, &server,
                                 NULL), 0, "an agent");
    show(r, &text);
    like(buf_str(&text), ": Running\n", "where it is heard the run goes on");
    like(buf_str(&text), "front end   none: muster attach ", "and can be taken over");
    control_server_destroy(server);
    bed_close_loop(&loop);
    put_running(r, "elsewhere");
    show(r, &text);
    like(buf_str(&text), "front end   none: muster attach ",
         "of what is on another host nobody knows before it is stale");
}

int main(void)
{
    char runtime[PATH_MAX];

    bed_up();
    setenv("XDG_RUNTIME_DIR", getcwd(runtime, sizeof(runtime)), 1);
    test_load();
    test_heard();
    test_unheard();
    bed_down();
    return tap_done();
}
