/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Any bytes as one of the files that others may have written: what a run
 * directory holds, error files of workers, host files, what the kernel says of
 * cgroups. The first byte says which; the rest is put there and read.
 */
#include <config.h>

#include "base/cleanup.h"
#include "base/fs.h"
#include "launcher/front_record.h"
#include "launcher/hosts.h"
#include "launcher/last_words.h"
#include "launcher/logs_files.h"
#include "launcher/node_facts.h"
#include "launcher/oom.h"
#include "launcher/run_events.h"
#include "launcher/rundir_priv.h"
#include "launcher/runview.h"
#include "launcher/view_file.h"
#include "tests/lib/fuzz.h"

#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* A run directory of nothing but what is tried. */
static char dir[64];

static void remove_dir(void)
{
    fs_remove_tree(dir, NULL);
}

static void path_of(const char *name, char *to, size_t size)
{
    expect(fs_path(to, size, NULL, "%s/%s", dir, name) == 0);
}

static void put(const char *name, const void *data, size_t len)
{
    char path[128];
    int fd;

    path_of(name, path, sizeof(path));
    fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    expect(fd >= 0 && fs_write_all(fd, data, len) == 0);
    close(fd);
}

static void make_dir(void)
{
    static const char *const parts[] = {"logs/1/0", "logs/2", "cgroup/a",
                                        "views"};
    static const char run[] = "{\"v\":1,\"id\":\"x\",\"name\":\"y\"}";
    char path[128];

    snprintf(dir, sizeof(dir), "%s/muster-fuzz.XXXXXX",
             access("/dev/shm", W_OK) == 0 ? "/dev/shm" : "/tmp");
    expect(mkdtemp(dir) != NULL);
    atexit(remove_dir);
    for (size_t i = 0; i < ARRAY_SIZE(parts); i++) {
        path_of(parts[i], path, sizeof(path));
        expect(fs_mkdirs(path, NULL) == 0);
    }
    put("run.json", run, strlen(run));
    put("logs/1/0/stdout", "one\ntwo\nthree\n", 14);
}

static void try_run(const void *data, size_t len)
{
    _cleanup_(rundir) struct rundir *r = NULL;
    char other[80];
    struct error e = {0};

    put("cgroup/run.json", data, len);
    path_of("cgroup", other, sizeof(other));
    if (rundir_open(other, &r, &e) == 0) {
        expect(run_file_is_word(r->id, sizeof(r->id)) &&
               run_file_is_word(r->name, sizeof(r->name)));
    } else {
        expect(e.text[0]);
    }
}

/* The lock and the status of a run, as commands show them. */
static void show_run(void)
{
    _run_view_ struct run_view v = {0};
    _buf_ struct buf json = {0};
    char text[256];
    struct error e = {0};

    if (run_view_open(dir, &v, &e) == 0) {
        run_view_state(&v, text, sizeof(text));
        run_view_is_alive(&v);
        run_view_json(&v, &json);
        expect(json.len > 0 && !json.failed);
    } else {
        expect(e.text[0]);
    }
}

static void try_lock(const void *data, size_t len)
{
    _cleanup_(rundir) struct rundir *r = NULL;
    struct rundir_owner owner;

    put("lock", data, len);
    expect(rundir_open(dir, &r, NULL) == 0);
    rundir_is_locked(r, &owner);
}

static void try_status(const void *data, size_t len)
{
    put("status.json", data, len);
    show_run();
}

static void try_events(const void *data, size_t len)
{
    char path[128];
    json_t *all = NULL;

    put("events.jsonl", data, len);
    path_of("events.jsonl", path, sizeof(path));
    expect(run_events_read(path, 16, &all, NULL) == 0);
    expect(json_array_size(all) <= 16);
    json_decref(all);
}

static void count(void *arg, unsigned rank, bool is_err, const char *data,
                  size_t len)
{
    size_t *n = arg;

    (void)rank;
    (void)is_err;
    (void)data;
    *n += len;
}

/* All logs of a generation; returns how many bytes were shown. */
static size_t show_logs(int64_t generation, uint64_t since_ns)
{
    _cleanup_(rundir) struct rundir *r = NULL;
    struct logs_choice all = {0};
    struct logs_files f = {.choice = &all, .generation = generation,
                           .since_ns = since_ns};
    size_t n = 0;

    expect(rundir_open(dir, &r, NULL) == 0);
    f.dir = r;
    expect(logs_files_find(&f) == 0);
    for (size_t i = 0; i < f.n; i++) {
        logs_files_show(&f, i, count, &n);
    }
    logs_files_release(&f);
    return n;
}

static void try_node_log(const void *data, size_t len)
{
    put("logs/2/node-0", data, len);
    expect(show_logs(2, 0) <= len);
}

static void try_times(const void *data, size_t len)
{
    put("logs/1/0/stdout.times", data, len);
    expect(show_logs(1, UINT64_C(1795206357000000000)) <= 14);
    expect(show_logs(1, 0) == 14);
}

static void try_hostfile(const void *data, size_t len)
{
    struct host_list l = {0};
    char path[128];
    struct error e = {0};

    put("hostfile", data, len);
    path_of("hostfile", path, sizeof(path));
    if (hosts_read_file(path, &l, &e) < 0) {
        expect(e.text[0] && !l.items);
        return;
    }
    expect(l.n > 0 && l.n <= HOSTS_MAX);
    for (size_t i = 0; i < l.n; i++) {
        /* One may be an option of ssh or srun. */
        expect(l.items[i].name[0] && l.items[i].name[0] != '-');
    }
    host_list_release(&l);
}

static void try_error_file(const void *data, size_t len)
{
    struct error_file f = {0};
    char path[128];
    struct error e = {0};

    put("error.json", data, len);
    path_of("error.json", path, sizeof(path));
    if (error_file_read(path, &f, &e) < 0) {
        expect(e.text[0] && !f.json);
        return;
    }
    expect(f.message && f.message[0] && strlen(f.json) <= len);
    error_file_release(&f);
}

/* The same bytes as what says the group, and as what the group says. */
static void try_cgroup(const void *data, size_t len)
{
    struct procs_node n = {.n_cpus = 64};
    char self[128], root[128];

    put("self", data, len);
    put("cgroup/cpu.max", data, len);
    put("cgroup/a/cpu.max", data, len);
    put("cgroup/a/memory.events", data, len);
    path_of("self", self, sizeof(self));
    path_of("cgroup", root, sizeof(root));
    node_facts_quota(self, root, &n);
    oom_kills(self, root);
    put("self", "0::/a\n", 6);
    node_facts_quota(self, root, &n);
    oom_kills(self, root);
}

static void try_front(const void *data, size_t len)
{
    _front_record_ struct front_record r = {0};
    _front_record_ struct front_record again = {0};
    _cleanup_(rundir) struct rundir *d = NULL;
    _buf_ struct buf text = {0};
    struct error e = {0};

    put("front.json", data, len);
    expect(rundir_open(dir, &d, NULL) == 0);
    if (front_record_read(d, &r, &e) < 0) {
        expect(e.text[0]);
        return;
    }
    /* Every agent of the run has a host. */
    expect(r.by_hand || (r.n_agents > 0 &&
                         (r.n_agents - 1) / r.agents_per_host < r.hosts.n));
    front_record_print(&r, &text);
    expect(front_record_parse(text.data, text.len, &again, &e) == 0);
}

static void read_again(const struct view *v, const struct view_place *at)
{
    _view_ struct view again = {0};
    _buf_ struct buf text = {0};

    view_file_encode(v, at, &text);
    expect(view_file_decode(text.data, text.len, at, v->number, &again,
                            NULL) == 0);
    expect(again.lead == v->lead && again.n_nodes == v->n_nodes &&
           again.n_out == v->n_out && again.has_verdict == v->has_verdict);
    expect(!v->has_verdict || (again.status == v->status &&
                               strcmp(again.reason, v->reason) == 0));
}

static bool is_still_there(const char *name, const void *data, size_t len)
{
    _free_ char *text = NULL;
    char path[128];
    size_t n = 0;

    path_of(name, path, sizeof(path));
    expect(fs_read_regular(path, len + 1, &text, &n, NULL) == 0);
    return n == len && memcmp(text, data, len) == 0;
}

/* Whatever stands there: nobody who claims the view too writes over it, or wins
 * with something else. */
static void try_view(const void *data, size_t len)
{
    struct view_place at = {dir, "x", 1, NULL};
    _view_ struct view v = {0}, found = {0};
    struct view mine = {.number = 2, .lead = 1, .n_nodes = 2};
    struct error e = {0};
    int rc;

    put("views/1.2", data, len);
    rc = view_file_read(&at, 2, &v, &e);
    expect(rc < 0 ? e.text[0] && !v.number
                  : v.number == 2 && view_has(&v, v.lead));
    if (rc == 0) {
        read_again(&v, &at);
    }
    expect((view_file_claim(&at, &mine, &found, &e) < 0) == (rc < 0));
    expect(is_still_there("views/1.2", data, len));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static void (*const tries[])(const void *, size_t) = {
        try_run, try_lock, try_status, try_events, try_node_log, try_times,
        try_hostfile, try_error_file, try_cgroup, try_front, try_view,
    };

    if (!dir[0]) {
        make_dir();
    }
    if (size > 0) {
        tries[data[0] % ARRAY_SIZE(tries)](data + 1, size - 1);
    }
    return 0;
}
