/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "launcher/rundir.h"

#include "base/fs.h"
#include "base/str.h"
#include "base/key.h"
#include "tests/lib/tap.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

static bool has_mode(const char *path, mode_t mode)
{
    struct stat st;

    return stat(path, &st) == 0 && (st.st_mode & 07777) == mode;
}

static struct rundir *create(const struct rundir_params *p)
{
    struct rundir *r = NULL;
    struct error e = {0};

    if (rundir_create(p, &r, &e) < 0) {
        bail_out("create %s: %s", p->name, e.text);
    }
    return r;
}

static void test_create(void)
{
    static const char *const below[] = {
        "logs", "errors", "ckpt", "control",
    };
    struct rundir_params p = {.name = "tiny"};
    _cleanup_(rundir) struct rundir *r = create(&p), *again = create(&p);
    _cleanup_(rundir) struct rundir *opened = NULL;
    uint8_t key[JOB_KEY_BYTES], other[JOB_KEY_BYTES];
    char path[PATH_MAX], target[PATH_MAX] = "";
    struct error e = {0};

    ok(r->path[0] == '/' && !r->reopened, "new, absolute: %s", r->path);
    ok(strcmp(r->id, again->id) != 0, "two runs have two ids");
    ok(has_mode(r->path, 0700), "private");
    for (size_t i = 0; i < ARRAY_SIZE(below); i++) {
        rundir_path(r, path, sizeof(path), NULL, "%s", below[i]);
        ok(has_mode(path, 0700), "%s is private", below[i]);
    }
    rundir_path(r, path, sizeof(path), NULL, "key");
    ok(has_mode(path, 0600), "the key is private");
    is_int(key_read(path, true, key, &e), 0, "and can be read: %s", e.text);
    is_int(rundir_make_key(r, NULL), 0, "made once only");
    is_int(key_read(path, true, other, NULL), 0, "read again");
    ok(memcmp(key, other, sizeof(key)) == 0, "the same");
    ok(readlink("muster-runs/tiny/latest", target, sizeof(target) - 1) > 0,
       "latest is a link");
    is_str(target, again->id, "to the newest");
    is_int(rundir_open("muster-runs/tiny/latest", &opened, &e), 0,
           "opened by link: %s", e.text);
    is_str(opened ? opened->path : "", again->path, "real path");
    is_str(opened ? opened->id : "", again->id, "id");
}

static void test_bad_params(void)
{
    static const struct {
        const char *name, *id;
    } cases[] = {
        {"", NULL}, {"..", NULL}, {"a/b", NULL}, {".a", NULL}, {"-a", NULL},
        {"a b", NULL}, {"ok", "../x"}, {"ok", ""},
        {"aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa",
         NULL},
    };

    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        struct rundir_params p = {.name = cases[i].name, .id = cases[i].id};
        struct rundir *r = NULL;

        is_int(rundir_create(&p, &r, NULL), -EINVAL, "bad name or id %zu", i);
    }
}

static void test_explicit_dir(void)
{
    struct rundir_params p = {.name = "tiny", .dir = "here/run"};
    _cleanup_(rundir) struct rundir *r = create(&p), *again = NULL,
                                    *none = NULL, *empty = NULL;
    struct error e = {0};

    ok(str_ends(r->path, "/here/run"), "exactly there: %s", r->path);
    ok(has_mode(r->path, 0700) && has_mode("here", 0700), "and private");
    again = create(&p);
    ok(again->reopened, "reopened");
    is_str(again->id, r->id, "the same run");
    mkdir("full", 0755);
    mkdir("full/of", 0755);
    p.dir = "full";
    is_int(rundir_create(&p, &none, &e), -ERR_FORMAT, "not an empty directory");
    like(e.text, "full is no run directory", "said so");
    mkdir("empty", 0755);
    p.dir = "empty";
    is_int(rundir_create(&p, &empty, NULL), 0, "an empty one is taken");
}

static int count_entries(const char *path)
{
    DIR *d = opendir(path);
    int n = 0;

    while (d && readdir(d)) {
        n++;
    }
    if (d) {
        closedir(d);
    }
    return n - 2;
}

/* With files that can take only so much. */
static int create_in(rlim_t room, const struct rundir_params *p)
{
    struct rlimit before, small;
    struct rundir *r = NULL;
    struct error e = {0};
    int rc;

    signal(SIGXFSZ, SIG_IGN);
    getrlimit(RLIMIT_FSIZE, &before);
    small = before;
    small.rlim_cur = room;
    setrlimit(RLIMIT_FSIZE, &small);
    rc = rundir_create(p, &r, &e);
    setrlimit(RLIMIT_FSIZE, &before);
    return rc;
}

static void test_half_made(void)
{
    enum { ROOM = 64 }; /* for the key, not for run.json */
    struct rundir_params p = {.name = "half"};
    _cleanup_(rundir) struct rundir *r = NULL;

    is_int(create_in(ROOM, &p), -EFBIG, "no room for run.json");
    is_int(count_entries("muster-runs/half"), 0, "nothing is left");
    p.id = "mine";
    is_int(create_in(ROOM, &p), -EFBIG, "no room under a given id");
    ok(access("muster-runs/half/mine/key", F_OK) == 0 &&
           !rundir_is_one("muster-runs/half/mine"),
       "run.json comes last, behind the key");
    is_int(rundir_create(&p, &r, NULL), 0, "another try");
    ok(r && !r->reopened && rundir_is_one(r->path), "makes a run directory");
}

static void write_text(const char *path, const char *text)
{
    fs_write_replace(path, text, strlen(text), NULL);
}

static void test_versions(void)
{
    static const struct {
        const char *text;
        int want;
        const char *error;
    } cases[] = {
        {"{\"v\":2,\"id\":\"x\",\"name\":\"y\"}", -ERR_VERSION, "newer muster"},
        {"{\"v\":1,\"id\":\"x\",\"name\":\"y\",\"more\":1}", 0, ""},
        {"{\"v\":1,\"id\":\"x\",\"name\":\"y\",\"created\":-1e300}", 0, ""},
        {"{\"v\":1,\"id\":\"../x\",\"name\":\"y\"}", -ERR_FORMAT, "run id"},
        {"{\"v\":1,\"name\":\"y\"}", -ERR_FORMAT, "run id"},
        {"{\"v\":\"1\"}", -ERR_FORMAT, "format version"},
        {"[", -ERR_FORMAT, "JSON object"},
        {"", -ERR_FORMAT, "JSON object"},
    };

    mkdir("versions", 0700);
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        _cleanup_(rundir) struct rundir *r = NULL;
        struct rundir_params p = {.name = "tiny", .dir = "versions"};
        struct error e = {0};

        write_text("versions/run.json", cases[i].text);
        is_int(rundir_open("versions", &r, &e), cases[i].want, "version %zu",
               i);
        like(e.text, cases[i].error, "version %zu: text", i);
        if (cases[i].want < 0) {
            is_int(rundir_create(&p, &r, &e), cases[i].want,
                   "version %zu: not reused", i);
        }
    }
}

static void test_open_errors(void)
{
    struct rundir *r = NULL;
    struct error e = {0};

    is_int(rundir_open("nowhere", &r, &e), -ENOENT, "missing");
    like(e.text, "nowhere", "named");
    is_int(rundir_open("/", &r, &e), -ERR_FORMAT, "no run directory");
    like(e.text, "it has no run.json", "said so");
    mkdir("pipes", 0700);
    is_int(mkfifo("pipes/run.json", 0600), 0, "pipes that nobody writes to");
    is_int(rundir_open("pipes", &r, &e), -EINVAL, "hold up nobody");
    like(e.text, "expected a regular file", "but are told");
    unlink("pipes/run.json");
    write_text("pipes/run.json", "{\"v\":1,\"id\":\"x\",\"name\":\"y\"}");
    is_int(mkfifo("pipes/lock", 0600), 0, "nor one for a lock");
    is_int(rundir_open("pipes", &r, &e), 0, "a run");
    ok(r && !rundir_is_locked(r, NULL), "that is not locked");
    rundir_destroy(r);
}

/* Locks in another process, which then waits to be told to end. */
static pid_t lock_elsewhere(const char *path, int *ret_fd)
{
    int ready[2], hold[2];
    char c;
    pid_t pid;

    if (pipe2(ready, O_CLOEXEC) < 0 || pipe2(hold, O_CLOEXEC) < 0) {
        bail_out("pipe");
    }
    pid = fork();
    if (pid == 0) {
        struct rundir *r = NULL;

        close(hold[1]);
        if (rundir_open(path, &r, NULL) == 0 && rundir_lock(r, NULL) == 0 &&
            write(ready[1], "x", 1) == 1 && read(hold[0], &c, 1) == 0) {
            _exit(0);
        }
        _exit(1);
    }
    close(ready[1]);
    close(hold[0]);
    if (read(ready[0], &c, 1) != 1) {
        bail_out("the other process could not lock");
    }
    close(ready[0]);
    *ret_fd = hold[1];
    return pid;
}

static void test_lock(void)
{
    struct rundir_params p = {.name = "locked"};
    _cleanup_(rundir) struct rundir *r = create(&p);
    struct rundir_owner owner = {0};
    struct error e = {0};
    char expect[64], path[PATH_MAX];
    int hold = -1, status = 0;
    pid_t pid;

    ok(!rundir_is_locked(r, NULL), "free before anybody locks");
    is_int(rundir_lock(r, NULL), 0, "locked");
    rundir_path(r, path, sizeof(path), NULL, "lock");
    ok(has_mode(path, 0600), "in a private file");
    ok(fcntl(r->lock_fd, F_GETFD) & FD_CLOEXEC,
       "that no program started by us holds");
    rundir_unlock(r);
    ok(!rundir_is_locked(r, NULL), "free again");
    pid = lock_elsewhere(r->path, &hold);
    ok(rundir_is_locked(r, &owner), "held by another process");
    is_int(owner.pid, pid, "its pid is known");
    is_int(rundir_lock(r, &e), -ERR_LOCKED, "cannot be locked");
    snprintf(expect, sizeof(expect), "is alive: pid %ld on ", (long)pid);
    like(e.text, expect, "says who");
    like(e.text, "muster status ", "says what to do");
    close(hold);
    waitpid(pid, &status, 0);
    ok(!rundir_is_locked(r, NULL), "its end frees the lock");
    is_int(rundir_lock(r, &e), 0, "which can be taken: %s", e.text);
}

/* Agents and commands find a run by its id alone. */
static void test_slurm_names(void)
{
    static const struct {
        const char *restart, *name, *dir, *id;
        bool reopened;
    } steps[] = {
        {"0", "one", NULL, "4712", false},
        {"0", "two", NULL, "4712.2", false},
        {"0", "three", "given", "4712.3", false},
        {"0", "three", "given2", "4712.4", false},
        {"0", "one", NULL, "4712.5", false},
        {"1", "two", NULL, "4712.2", true},
        {"1", "three", "given2", "4712.4", true},
        {"1", "one", NULL, "4712", true},
        {"1", "one", NULL, "4712.5", true},
        {"1", "two", NULL, "4712.6", false},
    };

    setenv("SLURM_JOB_ID", "4712", 1);
    for (size_t i = 0; i < ARRAY_SIZE(steps); i++) {
        struct rundir_params p = {.name = steps[i].name, .dir = steps[i].dir};
        struct rundir *r;

        setenv("SLURM_RESTART_COUNT", steps[i].restart, 1);
        r = create(&p);
        is_str(r->id, steps[i].id, "run %zu of a job, %s", i, steps[i].name);
        ok(r->reopened == steps[i].reopened, "run %zu of a job: reopened or "
           "not", i);
        rundir_destroy(r);
    }
    unsetenv("SLURM_RESTART_COUNT");
}

static void test_slurm(void)
{
    struct rundir_params p = {.name = "batch"};
    struct rundir *r;
    static const struct {
        const char *restart, *id;
        bool reopened;
    } steps[] = {
        {NULL, "4711", false}, {NULL, "4711.2", false},
        {"1", "4711", true}, {"1", "4711.2", true}, {"1", "4711.3", false},
        {"2", "4711", true},
    };

    setenv("SLURM_JOB_ID", "4711", 1);
    for (size_t i = 0; i < ARRAY_SIZE(steps); i++) {
        if (steps[i].restart) {
            setenv("SLURM_RESTART_COUNT", steps[i].restart, 1);
        }
        r = create(&p);
        is_str(r->id, steps[i].id, "Slurm run %zu", i);
        ok(r->reopened == steps[i].reopened, "Slurm run %zu: reopened or not",
           i);
        rundir_destroy(r);
    }
    unsetenv("SLURM_RESTART_COUNT");
    test_slurm_names();
    setenv("SLURM_JOB_ID", "../../etc", 1);
    r = create(&p);
    ok(str_starts(r->id, "20"), "a job id that is none is ignored: %s", r->id);
    rundir_destroy(r);
    unsetenv("SLURM_JOB_ID");
}

static void test_nonce(void)
{
    struct rundir_params p = {.name = "nonce"};
    _cleanup_(rundir) struct rundir *r = create(&p);
    const char a[RUNDIR_NONCE_BYTES] = "0123456789abcde";
    const char b[RUNDIR_NONCE_BYTES] = "0123456789abcdX";

    is_int(rundir_check_nonce(r->path, a, NULL), 0, "none yet");
    is_int(rundir_check_nonce("/nonexistent/run", a, NULL), 0, "no directory");
    is_int(rundir_write_nonce(r->path, a, NULL), 0, "written");
    is_int(rundir_check_nonce(r->path, a, NULL), 1, "the same");
    is_int(rundir_check_nonce(r->path, b, NULL), 0, "another");
}

static void test_requests(void)
{
    struct rundir_params p = {.name = "requests"};
    _cleanup_(rundir) struct rundir *r = create(&p);
    char path[PATH_MAX];

    rundir_path(r, path, sizeof(path), NULL, "control/old.json");
    write_text(path, "{}");
    rundir_drop_requests(r);
    ok(access(path, F_OK) < 0, "old requests are dropped");
}

static void check_resolve(const char *arg, const char *want, const char *name)
{
    char path[PATH_MAX] = "";
    struct error e = {0};
    int rc = rundir_resolve(arg, path, sizeof(path), &e);

    ok(rc == 0 && strcmp(path, want) == 0, "%s: %s%s", name, path, e.text);
}

static void test_resolve(void)
{
    struct rundir_params p = {.name = "find-me"};
    _cleanup_(rundir) struct rundir *a = create(&p), *b = create(&p);
    struct rundir_entry *entries = NULL;
    char path[PATH_MAX], cwd[PATH_MAX];
    struct error e = {0};
    size_t n = 0;

    is_int(rundir_index("find-me", &entries, &n, NULL), 0, "index");
    ok(n == 2 && strcmp(entries[0].id, b->id) == 0, "newest first");
    free(entries);
    is_int(rundir_index("nobody", &entries, &n, NULL), 0, "unknown name");
    ok(n == 0, "has none");
    free(entries);
    check_resolve("find-me", b->path, "name");
    check_resolve(a->id, a->path, "id");
    check_resolve(a->path, a->path, "path");
    check_resolve("muster-runs/find-me", b->path, "the name's directory");
    check_resolve("muster-runs/find-me/latest", b->path, "latest");
    check_resolve(NULL, b->path, "the newest of all");
    is_int(rundir_resolve("find-em", path, sizeof(path), &e), -ENOENT, "typo");
    like(e.text, "did you mean find-me?", "nearest");
    is_int(rundir_resolve("a/b", path, sizeof(path), &e), -ENOENT, "no path");
    is_int(rundir_resolve("", path, sizeof(path), &e), -ENOENT, "nothing");
    is_int(fs_remove_tree(b->path, NULL), 0, "newest removed");
    check_resolve("find-me", a->path, "removed runs are passed over");

    /* Without an index: what lies here. */
    setenv("XDG_STATE_HOME", "/proc/nonexistent", 1);
    check_resolve(a->id, a->path, "id, found here");
    is_int(rundir_resolve(NULL, path, sizeof(path), &e), -ENOENT, "no newest");
    like(e.text, "there is no run yet", "said so");
    if (!getcwd(cwd, sizeof(cwd))) {
        bail_out("getcwd");
    }
    snprintf(path, sizeof(path), "%.4000s/state", cwd);
    setenv("XDG_STATE_HOME", path, 1);
}

static void test_not_writable(void)
{
    struct rundir_params p = {.name = "tiny", .base = "closed/runs"};
    struct rundir *r = NULL;
    struct error e = {0};

    if (geteuid() == 0) {
        /* Root may write anywhere but in /proc. */
        p.base = "/proc/runs";
    } else {
        mkdir("closed", 0500);
    }
    ok(rundir_create(&p, &r, &e) < 0, "not writable: %s", e.text);
    like(e.text, p.base, "named");
    p.base = "file";
    write_text("file", "x");
    is_int(rundir_create(&p, &r, &e), -ENOTDIR, "a file is in the way: %s",
           e.text);
}

static void test_keys(void)
{
    static const struct {
        const char *text;
        size_t len;
        mode_t mode;
        bool is_private;
        int want;
    } cases[] = {
        {"0123456789abcdef0123456789abcdef", 32, 0600, true, 0},
        {"0123456789abcdef0123456789abcdef", 32, 0644, true, -EPERM},
        {"0123456789abcdef0123456789abcdef", 32, 0644, false, 0},
        {"0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef\n",
         65, 0600, true, 0},
        {"0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdeg", 64,
         0600, true, -ERR_FORMAT},
        {"0123456789abcdef0123456789abcde", 31, 0600, true, -ERR_FORMAT},
        {"0123456789abcdef0123456789abcdef0", 33, 0600, true, -ERR_FORMAT},
        {"", 0, 0600, true, -ERR_FORMAT},
    };
    uint8_t key[JOB_KEY_BYTES];

    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        fs_write_replace("akey", cases[i].text, cases[i].len, NULL);
        chmod("akey", cases[i].mode);
        is_int(key_read("akey", cases[i].is_private, key, NULL), cases[i].want,
               "key %zu", i);
    }
    is_int(key_read("nokey", true, key, NULL), -ENOENT, "no key");
    is_int(key_read("/", true, key, NULL) < 0, 1, "a directory");
    is_int(key_read("/dev/zero", false, key, NULL), -ERR_FORMAT,
           "an endless one");
}

/* As rm -r and the same --run-dir again would have it. */
static void test_reused_directory(void)
{
    struct rundir_params p = {.name = "reused", .dir = "mine"};
    struct rundir *first = create(&p);
    struct rundir *second;
    char path[PATH_MAX];

    fs_remove_tree(first->path, NULL);
    second = create(&p);
    ok(strcmp(first->id, second->id) != 0 &&
           strcmp(first->path, second->path) == 0,
       "another run in the same directory");
    is_int(rundir_resolve(first->id, path, sizeof(path), NULL), -ENOENT,
           "the id of the first one does not lead there");
    check_resolve(second->id, second->path, "that of the second one does");
    rundir_destroy(first);
    rundir_destroy(second);
}

int main(void)
{
    char dir[] = "/tmp/rundir-test-XXXXXX";
    char state[64];

    if (!mkdtemp(dir) || chdir(dir) < 0) {
        bail_out("mkdtemp");
    }
    snprintf(state, sizeof(state), "%s/state", dir);
    setenv("XDG_STATE_HOME", state, 1);
    unsetenv("SLURM_JOB_ID");
    umask(022);
    test_create();
    test_bad_params();
    test_explicit_dir();
    test_half_made();
    test_versions();
    test_open_errors();
    test_lock();
    test_slurm();
    test_nonce();
    test_requests();
    test_resolve();
    test_reused_directory();
    test_not_writable();
    test_keys();
    if (chdir("/") == 0) {
        chmod(dir, 0700);
        fs_remove_tree(dir, NULL);
    }
    return tap_done();
}
