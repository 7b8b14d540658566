/* SPDX-License-Identifier: Apache-2.0 */
/* Requests that come as files in a run directory. */
#include <config.h>

#include "launcher/control_bed.h"

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/fs.h"
#include "base/thread.h"
#include "launcher/control_path.h"
#include "tests/lib/tap.h"

#include <fcntl.h>
#include <limits.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

static int here = -1;        /* open, but not for threads that are apart */
static atomic_int n_removed; /* by such threads */

/* In place of libc's: who removes a request? */
int unlinkat(int dir_fd, const char *name, int flags)
{
    n_removed += here >= 0 && fcntl(here, F_GETFD) < 0;
    return (int)syscall(SYS_unlinkat, dir_fd, name, flags);
}

static void drop(const char *dir, const char *op)
{
    json_t *request = json_pack("{s:i,s:s,s:b}", "v", 1, "op", op, "force", 1);
    struct error e = {0};

    is_int(control_drop(dir, request, NULL, &e), 0, "dropped %s: %s", op,
           e.text);
    json_decref(request);
}

/* Puts a file into control/, as it is. */
static void put_file(const char *dir, const char *name, const char *text,
                     size_t len)
{
    char path[PATH_MAX];

    fs_path(path, sizeof(path), NULL, "%s/control/%s", dir, name);
    if (fs_write_replace(path, text, len, NULL) < 0) {
        bail_out("write %s", path);
    }
}

static void test_watch(const char *dir)
{
    uint64_t end = clock_mono_ms() + BED_WAIT_MS;
    struct control_watch *w = NULL;
    struct seen seen = {0};
    char path[PATH_MAX];
    struct stat st;
    uv_loop_t loop;

    here = fcntl(2, F_DUPFD_CLOEXEC, 100); /* of no number that they use */
    fs_path(path, sizeof(path), NULL, "%s/control", dir);
    mkdir(path, 0700);
    drop(dir, "first");
    drop(dir, "second");
    fs_path(path, sizeof(path), NULL, "%s/control/bad.json", dir);
    fs_write_replace(path, "nonsense", 8, NULL);
    fs_path(path, sizeof(path), NULL, "%s/control/link.json", dir);
    is_int(symlink("/etc/passwd", path), 0, "a link");
    uv_loop_init(&loop);
    is_int(control_watch_create(&loop, dir, bed_on_request, &seen, &w, NULL), 0,
           "watching");
    while (seen.n < 2 && clock_mono_ms() < end) {
        uv_run(&loop, UV_RUN_ONCE);
    }
    is_int(seen.n, 2, "both came");
    is_str(seen.last, "second", "in order");
    is_int(n_removed, thread_can_be_apart() ? 3 : 0,
           "while no child gets what is read");
    ok(seen.force, "with what they say");
    ok(lstat(path, &st) == 0, "a link is left alone");
    fs_path(path, sizeof(path), NULL, "%s/control/bad.json", dir);
    ok(lstat(path, &st) < 0, "nonsense is removed");
    close(here);
    here = -1;
    control_watch_destroy(w);
    bed_close_loop(&loop);

    uv_loop_init(&loop);
    control_watch_create(&loop, "/nonexistent", bed_on_request, &seen, &w,
                         NULL);
    control_watch_destroy(w);
    bed_close_loop(&loop);
}

/* Files that are no requests, among one that is: they are left alone. */
static void test_no_requests(const char *dir)
{
    static const char request[] = "{\"v\":1,\"op\":\"bad\"}";
    uint64_t end = clock_mono_ms() + BED_WAIT_MS;
    static char large[CONTROL_MAX_LINE + 1];
    struct control_watch *w = NULL;
    struct seen seen = {0};
    char path[PATH_MAX];
    uv_loop_t loop;

    memset(large, ' ', sizeof(large));
    memcpy(large, request, strlen(request));
    put_file(dir, "00.json.AbCdEf", request, strlen(request));
    put_file(dir, ".00.json", request, strlen(request));
    put_file(dir, "00-2.json", large, sizeof(large));
    fs_path(path, sizeof(path), NULL, "%s/control/00-3.json", dir);
    is_int(mkfifo(path, 0600), 0, "a pipe that nobody writes to");
    put_file(dir, "elsewhere", request, strlen(request));
    fs_path(path, sizeof(path), NULL, "%s/control/00-4.json", dir);
    is_int(symlink("elsewhere", path), 0, "a link to a request");
    fs_path(path, sizeof(path), NULL, "%s/control/00-6.json", dir);
    is_int(mkdir(path, 0700), 0, "a folder");
    for (int i = 0; i < 10000; i++) {
        fs_path(path, sizeof(path), NULL, "%s/control/01-%05d.json", dir, i);
        if (symlink("elsewhere", path) < 0) {
            bail_out("symlink");
        }
    }
    fs_path(path, sizeof(path), NULL, "%s/control/00-5.json", dir);
    if (geteuid() == 0) {
        put_file(dir, "00-5.json", request, strlen(request));
        is_int(chown(path, 12345, (gid_t)-1), 0, "one of another user");
    } else {
        skip("only root can give a file away");
    }
    drop(dir, "good");
    uv_loop_init(&loop);
    control_watch_create(&loop, dir, bed_on_request, &seen, &w, NULL);
    while (seen.n < 1 && clock_mono_ms() < end) {
        uv_run(&loop, UV_RUN_ONCE);
    }
    /* They sort before the one that came: all were looked at. */
    is_int(seen.n, 1, "one request");
    is_str(seen.last, "good", "the one that is");
    control_watch_destroy(w);
    bed_close_loop(&loop);
}

int main(void)
{
    char dir[] = "/tmp/control-test-XXXXXX";
    struct error e = {0};
    json_t *request = json_object();

    if (!mkdtemp(dir)) {
        bail_out("mkdtemp");
    }
    test_watch(dir);
    test_no_requests(dir);
    ok(control_drop("/nonexistent", request, NULL, &e) < 0, "no directory: %s",
       e.text);
    json_decref(request);
    control_watch_destroy(NULL);
    fs_remove_tree(dir, NULL);
    return tap_done();
}
