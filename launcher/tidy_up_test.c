/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Who tidies up after an agent: at what it looks, how often, and what it takes away when.
 * The run, its memory and the time are made up by the linker's hand; files are true.
 */
#include <config.h>

#include "launcher/tidy.h"

#include "base/cleanup.h"
#include "base/fs.h"
#include "base/str.h"
#include "comm/agent_find.h"
#include "launcher/agent_files.h"
#include "launcher/runview.h"
#include "launcher/snap_budget.h"
#include "tests/lib/fds.h"
#include "tests/lib/tap.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <unistd.h>

#define ID "the-run"

enum { INDEX = 3, LEASE_MS = 1000, FOR_EVER = 2000 };

static char top[] = "/tmp/tidy_up_test.XXXXXX";
static char told[PATH_MAX], run_dir[PATH_MAX], status_file[PATH_MAX];

static struct {
    uint64_t now_ms;
    bool is_taken;        /* another agent has the place */
    int place;            /* the last one's descriptor */
    int n_asked, n_leftovers, n_removed, n_reads, n_polls;
    bool was_held;        /* the place, as leftovers were removed */
    bool is_kept;         /* memory, although it is taken away */
    int rc;               /* of reading the run */
    const char *id;
    enum status_run_state state;
    void (*at_poll)(int n);
    uint64_t most_ms; /* of a poll */
    uint64_t updated_ns;
} w;

/* --- the linker's hand --- */

bool __wrap_agent_is_gone(const char *tag, unsigned index, int *ret_lock);
void __wrap_agent_remove_leftovers(const char *tag);
int __wrap_agent_files_read(const char *path, struct agent_run *ret, struct error *e);
void __wrap_snap_dir_remove_agent(const char *run_id, unsigned agent);
bool __wrap_snap_dir_has_agent(const char *run_id, unsigned agent);
int __wrap_run_view_read(const char *path, struct run_view *ret, struct error *e);
void __wrap_run_view_release(struct run_view *v);
uint64_t __wrap_clock_mono_ms(void);
int __wrap_poll(struct pollfd *fds, nfds_t n, int ms);

bool __wrap_agent_is_gone(const char *tag, unsigned index, int *ret_lock)
{
    w.n_asked += strcmp(tag, "tag") == 0 && index == INDEX;
    if (!w.is_taken) {
        *ret_lock = w.place = open("/dev/null", O_RDONLY | O_CLOEXEC);
    }
    return !w.is_taken;
}

void __wrap_agent_remove_leftovers(const char *tag)
{
    (void)tag;
    w.n_leftovers++;
    w.was_held = w.was_held || fcntl(w.place, F_GETFD) >= 0;
}

int __wrap_agent_files_read(const char *path, struct agent_run *ret, struct error *e)
{
    (void)path, (void)e;
    *ret = (struct agent_run){.id = ID, .lease_ms = LEASE_MS};
    str_copy(ret->dir, sizeof(ret->dir), run_dir);
    return 0;
}

void __wrap_snap_dir_remove_agent(const char *run_id, unsigned agent)
{
    w.n_removed += strcmp(run_id, ID) == 0 && agent == INDEX && fcntl(w.place, F_GETFD) >= 0;
}

bool __wrap_snap_dir_has_agent(const char *run_id, unsigned agent)
{
    (void)run_id, (void)agent;
    return w.n_removed == 0;
}

int __wrap_run_view_read(const char *path, struct run_view *ret, struct error *e)
{
    static struct run_status status;
    static struct rundir dir;

    (void)e;
    w.n_reads += strcmp(path, run_dir) == 0;
    str_copy(dir.id, sizeof(dir.id), w.id);
    status.state = w.state;
    status.updated_ns = w.updated_ns;
    ret->dir = &dir;
    ret->status = &status;
    return w.rc;
}

void __wrap_run_view_release(struct run_view *v)
{
    (void)v;
}

uint64_t __wrap_clock_mono_ms(void)
{
    return w.now_ms;
}

int __wrap_poll(struct pollfd *fds, nfds_t n, int ms)
{
    (void)fds, (void)n;
    w.now_ms += (uint64_t)ms;
    w.most_ms = (uint64_t)ms > w.most_ms ? (uint64_t)ms : w.most_ms;
    if (++w.n_polls > FOR_EVER) {
        bail_out("it waits for ever");
    }
    if (w.at_poll) {
        w.at_poll(w.n_polls);
    }
    return 0;
}

/* --- what there is --- */

static void write_file(const char *path)
{
    if (fs_write_replace(path, "x", 1, NULL) < 0) {
        bail_out("%s", path);
    }
}

static void begin(enum status_run_state state)
{
    memset(&w, 0, sizeof(w));
    w.now_ms = 1000000;
    w.id = ID;
    w.state = state;
    w.place = -1;
    write_file(told);
    unlink(status_file);
}

static void tidy(bool waits, const char *what)
{
    int n_open = fds_n_open();

    is_int(tidy_up("tag", INDEX, waits, NULL), 0, "%s", what);
    is_int(fds_n_open(), n_open, "nothing stays open");
    ok(!w.was_held, "files go when nobody has the place");
}

/* --- a run that is over, or not --- */

static void end_at_3(int n)
{
    if (n == 2) {
        is_int(w.n_removed, 0, "its memory stays as long as that");
        is_int(w.n_leftovers, 1, "its files do not");
    }
    w.state = n < 3 ? w.state : STATUS_FAILED;
}

static void test_over(void)
{
    begin(STATUS_SUCCEEDED);
    tidy(true, "the run is over");
    ok(w.n_removed == 1 && w.n_polls == 0, "memory goes at once");
    begin(STATUS_RUNNING);
    w.at_poll = end_at_3;
    tidy(true, "the run goes on");
    ok(w.n_removed == 1 && w.n_polls == 3, "it goes with the run");
    begin(STATUS_RUNNING);
    tidy(false, "who does not wait looks once");
    ok(w.n_removed == 0 && w.n_polls == 0 && w.n_reads == 1, "and leaves memory");
    begin(STATUS_STOPPED);
    tidy(true, "a run that can be gone on with");
    ok(w.n_removed == 0 && w.n_polls == 0 && w.n_reads == 1, "has its memory left, at once");
    begin(STATUS_SUCCEEDED);
    w.id = "another-run";
    tidy(true, "another run has that directory");
    ok(w.n_removed == 0 && w.n_polls == 0, "of which nothing can be told for this one");
}

static int gone_rc;

static void go_away(int n)
{
    w.rc = n >= 2 ? gone_rc : 0;
}

/* It was there, and is not: in time its memory goes. Where nobody can tell it stays. */
static void test_gone(void)
{
    static const struct {
        int rc;
        bool is_taken;
        const char *what;
    } cases[] = {
        {-ENOENT, true, "its directory is gone"},
        {-ENOTDIR, true, "or something else is there"},
        {-ERR_FORMAT, true, "or is no run's"},
        {-EIO, false, "or cannot be read"},
    };

    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        begin(STATUS_RUNNING);
        gone_rc = cases[i].rc;
        w.at_poll = go_away;
        tidy(true, cases[i].what);
        is_int(w.n_removed, cases[i].is_taken, "memory %s", cases[i].is_taken ? "goes" : "stays");
        ok(w.n_polls > 2 && w.now_ms - 1000000 > tidy_silent_ms(LEASE_MS),
           "not before it was silent for long");
    }
}

/* --- how often it is read --- */

static void change_at_5(int n)
{
    w.rc = n < 3 ? w.rc : 0;
    if (n == 5) {
        write_file(status_file);
        w.state = STATUS_SUCCEEDED;
    }
}

static void test_reads(void)
{
    begin(STATUS_RUNNING);
    write_file(status_file);
    w.at_poll = change_at_5;
    tidy(true, "a status that does not change");
    is_int(w.n_reads, 2, "is not read again, but when it does");
    is_int(w.n_removed, 1, "and that counts");
    begin(STATUS_RUNNING);
    write_file(status_file);
    w.rc = -EIO;
    w.at_poll = change_at_5;
    tidy(true, "one that could not be read");
    is_int(w.n_reads, 5, "is read until it can be");
    begin(STATUS_RUNNING);
    tidy(true, "no word is heard of a run");
    ok(w.n_removed == 0 && w.most_ms == 2000, "it is looked at every two seconds: %d times",
       w.n_polls);
}

static void live_until_50(int n)
{
    w.updated_ns++;
    w.state = n < 50 ? w.state : STATUS_SUCCEEDED;
    if (n == 31) { /* with the look before */
        is_int((intmax_t)w.most_ms, 2000, "one that goes on is looked at as often for a minute");
    }
}

static void test_long(void)
{
    begin(STATUS_RUNNING);
    w.at_poll = live_until_50;
    tidy(true, "a long run");
    ok(w.n_removed == 1 && w.most_ms == 10000, "and then less often");
}

/* --- others --- */

static void come_at_3(int n)
{
    if (n == 3) {
        write_file(told);
    }
}

static void leave_at_3(int n)
{
    w.is_taken = n < 3;
}

static void test_others(void)
{
    begin(STATUS_SUCCEEDED);
    w.is_taken = true;
    tidy(false, "another agent has its place");
    ok(w.n_leftovers == 0 && w.n_polls == 0, "who does not wait leaves all to it");
    begin(STATUS_SUCCEEDED);
    w.is_taken = true;
    w.at_poll = come_at_3;
    tidy(true, "one that has told its run");
    ok(w.n_leftovers == 0 && w.n_removed == 0 && w.n_polls == 3, "has it for good");
    begin(STATUS_SUCCEEDED);
    w.is_taken = true;
    w.at_poll = leave_at_3;
    tidy(true, "somebody who only sweeps up");
    ok(w.n_leftovers == 2 && w.n_removed == 1 && w.n_polls == 3, "has not");
    begin(STATUS_RUNNING);
    w.at_poll = come_at_3;
    tidy(true, "one that comes while the run goes on");
    ok(w.n_removed == 0 && w.n_polls == 3, "has the memory");
}

static void test_two(void)
{
    char link[PATH_MAX];
    int fd;

    begin(STATUS_SUCCEEDED);
    fd = open(told, O_RDWR | O_CLOEXEC);
    if (fd < 0 || flock(fd, LOCK_EX) < 0) {
        bail_out("a lock");
    }
    tidy(false, "somebody else does it already");
    is_int(w.n_asked, 0, "who does not wait does nothing");
    close(fd);
    if (fs_path(link, sizeof(link), NULL, "%s.elsewhere", told) < 0 ||
        rename(told, link) < 0 || symlink(link, told) < 0) {
        bail_out("a link");
    }
    is_int(tidy_up("tag", INDEX, false, NULL), -ELOOP, "a link is nobody's word");
    unlink(told);
    is_int(tidy_up("tag", INDEX, false, NULL), -ENOENT, "nor is no file");
    is_int(w.n_asked, 0, "and nothing is done");
}

int main(void)
{
    char dir[PATH_MAX], base[PATH_MAX];

    alarm(60); /* who waits for a lock waits for ever */
    if (!mkdtemp(top)) {
        bail_out("%s", top);
    }
    setenv("XDG_RUNTIME_DIR", top, 1);
    if (fs_runtime_dir(base, sizeof(base), NULL) < 0) {
        bail_out("%s", top);
    }
    if (fs_path(dir, sizeof(dir), NULL, "%s/tag", base) < 0 ||
        fs_path(run_dir, sizeof(run_dir), NULL, "%s/run", top) < 0 ||
        fs_path(status_file, sizeof(status_file), NULL, "%s/status.json", run_dir) < 0 ||
        fs_mkdirs(dir, NULL) < 0 || fs_mkdirs(run_dir, NULL) < 0 ||
        agent_files_told(dir, INDEX, told, NULL) < 0) {
        bail_out("%s", dir);
    }
    test_over();
    test_gone();
    test_reads();
    test_long();
    test_others();
    test_two();
    fs_remove_tree(top, NULL);
    return tap_done();
}
