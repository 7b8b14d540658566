/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "launcher/rundir_bed.h"

#include "base/fs.h"
#include "base/str.h"
#include "base/key.h"
#include "tests/lib/tap.h"

#include <dirent.h>
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

static void test_create(void)
{
    static const char *const below[] = {
        "logs", "errors", "ckpt", "control",
    };
    struct rundir_params p = {.name = "tiny"};
    _cleanup_(rundir) struct rundir *r = bed_create(&p);
    _cleanup_(rundir) struct rundir *again = bed_create(&p);
    _cleanup_(rundir) struct rundir *opened = NULL;
    uint8_t key[JOB_KEY_BYTES], other[JOB_KEY_BYTES];
    char path[PATH_MAX], target[PATH_MAX] = "";
    struct error e = {0};

    ok(r->path[0] == '/' && !r->reopened, "new, absolute: %s", r->path);
    ok(strcmp(r->id, again->id) != 0, "two runs have two ids");
    ok(bed_has_mode(r->path, 0700), "private");
    for (size_t i = 0; i < ARRAY_SIZE(below); i++) {
        rundir_path(r, path, sizeof(path), NULL, "%s", below[i]);
        ok(bed_has_mode(path, 0700), "%s is private", below[i]);
    }
    rundir_path(r, path, sizeof(path), NULL, "key");
    ok(bed_has_mode(path, 0600), "the key is private");
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
    _cleanup_(rundir) struct rundir *r = bed_create(&p), *again = NULL,
                                    *none = NULL, *empty = NULL;
    struct error e = {0};

    ok(str_ends(r->path, "/here/run"), "exactly there: %s", r->path);
    ok(bed_has_mode(r->path, 0700) && bed_has_mode("here", 0700),
       "and private");
    again = bed_create(&p);
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

enum { AT_ONCE = 8, ROUNDS = 20 };

/* What one of those that make a directory at once believes of it. */
struct belief {
    char id[RUNDIR_ID_SIZE];
    uint8_t key[JOB_KEY_BYTES];
};

/* When `start` is closed. */
static void make_one(const struct rundir_params *p, int start, int to)
{
    struct belief b = {0};
    struct rundir *r = NULL;
    struct error e = {0};
    char path[PATH_MAX];
    char byte;
    ssize_t n = read(start, &byte, 1);

    if (n == 0 && rundir_create(p, &r, &e) == 0 &&
        rundir_path(r, path, sizeof(path), &e, "key") == 0 &&
        key_read(path, true, b.key, &e) == 0) {
        str_copy(b.id, sizeof(b.id), r->id);
    } else {
        diag("%s", e.text);
    }
    n = write(to, &b, sizeof(b));
    _exit(n != sizeof(b));
}

static bool agree_at_once(const char *dir)
{
    struct rundir_params p = {.name = "once", .dir = dir};
    struct belief first = {0}, b;
    int start[2], answers[2];
    bool do_agree = true;

    if (pipe(start) < 0 || pipe(answers) < 0) {
        bail_out("pipe");
    }
    for (int i = 0; i < AT_ONCE; i++) {
        if (fork() == 0) {
            close(start[1]);
            make_one(&p, start[0], answers[1]);
        }
    }
    close(start[0]);
    close(start[1]);
    for (int i = 0; i < AT_ONCE; i++) {
        do_agree = read(answers[0], &b, sizeof(b)) == sizeof(b) && b.id[0] && do_agree;
        first = i ? first : b;
        do_agree = do_agree && memcmp(&b, &first, sizeof(b)) == 0;
    }
    for (int i = 0; i < AT_ONCE; i++) {
        wait(NULL);
    }
    close(answers[0]);
    close(answers[1]);
    return do_agree;
}

/* They are one run, of which one has the lock then. */
static void test_at_once(void)
{
    char dir[64];
    int n = 0;

    for (int i = 0; i < ROUNDS; i++) {
        snprintf(dir, sizeof(dir), "once-%d", i);
        n += agree_at_once(dir);
    }
    is_int(n, ROUNDS, "all that make one directory at once have its id and key");
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

        bed_write("versions/run.json", cases[i].text);
        is_int(rundir_open("versions", &r, &e), cases[i].want, "version %zu",
               i);
        like(e.text, cases[i].error, "version %zu: text", i);
        if (cases[i].want < 0) {
            is_int(rundir_create(&p, &r, &e), cases[i].want,
                   "version %zu: not reused", i);
        }
    }
}

/* One that found the disk full, or was killed, before there was a run.json: the next
 * with that --run-dir makes the run. What may be somebody else's is left alone. */
static void test_left_behind(void)
{
    static const char *const foreign[] = {
        "logs/other", "train.py", "keys", "key.other", "run.json.old", "ckpt/1",
        "run.json.backup", "key.backup", "run.json.a.bcdef",
    };
    struct rundir_params p = {.name = "tiny", .dir = "begun"};
    struct rundir *r = NULL;
    struct error e = {0};

    mkdir("begun", 0700);
    mkdir("begun/ckpt", 0700);
    mkdir("begun/logs", 0700);
    for (size_t i = 0; i < ARRAY_SIZE(foreign); i++) {
        char path[64];

        snprintf(path, sizeof(path), "begun/%s", foreign[i]);
        bed_write(path, "x");
        is_int(rundir_create(&p, &r, &e), -ERR_FORMAT, "not with %s", foreign[i]);
        unlink(path);
    }
    bed_write("begun/run.json.aB3xY9", "{\"v\":1,");
    bed_write("begun/key.Qw12rt", "12");
    is_int(rundir_create(&p, &r, &e), 0, "what a run has begun is gone on with");
    ok(r && !r->reopened, "as a new one");
    rundir_destroy(r);
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
    bed_write("pipes/run.json", "{\"v\":1,\"id\":\"x\",\"name\":\"y\"}");
    is_int(mkfifo("pipes/lock", 0600), 0, "nor one for a lock");
    is_int(rundir_open("pipes", &r, &e), 0, "a run");
    ok(r && !rundir_is_locked(r, NULL), "that is not locked");
    rundir_destroy(r);
}

static void test_nonce(void)
{
    struct rundir_params p = {.name = "nonce"};
    _cleanup_(rundir) struct rundir *r = bed_create(&p);
    const char a[RUNDIR_NONCE_BYTES] = "0123456789abcde";
    const char b[RUNDIR_NONCE_BYTES] = "0123456789abcdX";
    char found[RUNDIR_NONCE_BYTES], path[PATH_MAX];
    struct error e = {0};

    rundir_path(r, path, sizeof(path), NULL, "nonce");
    is_int(rundir_check_nonce(r->path, a, NULL), 0, "none yet");
    is_int(rundir_check_nonce("/nonexistent/run", a, NULL), 0, "no directory");
    is_int(rundir_write_nonce(r->path, a, NULL), 0, "written");
    is_int(rundir_check_nonce(r->path, a, NULL), 1, "the same");
    is_int(rundir_check_nonce(r->path, b, NULL), 0, "another");
    is_int(rundir_read_nonce(r->path, found, NULL), 0, "read");
    ok(memcmp(found, a, sizeof(found)) == 0, "as it is");
    fs_write_atomic(path, "30313", 5, NULL);
    is_int(rundir_read_nonce(r->path, found, &e), -ERR_FORMAT, "one that is cut");
    ok(strstr(e.text, path) != NULL, "is named");
    is_int(rundir_read_nonce("/nonexistent/run", found, NULL), -ENOENT, "none");
}

static void test_requests(void)
{
    struct rundir_params p = {.name = "requests"};
    _cleanup_(rundir) struct rundir *r = bed_create(&p);
    char path[PATH_MAX];

    rundir_path(r, path, sizeof(path), NULL, "control/old.json");
    bed_write(path, "{}");
    rundir_drop_requests(r);
    ok(access(path, F_OK) < 0, "old requests are dropped");
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
    bed_write("file", "x");
    is_int(rundir_create(&p, &r, &e), -ENOTDIR, "a file is in the way: %s",
           e.text);
}

/* What is said beforehand is what the attempt says; then it is made, if it can. */
static void check_like(const struct rundir_params *p, const char *name)
{
    _cleanup_(rundir) struct rundir *r = NULL;
    struct error asked = {0}, made = {0};
    int before = rundir_check(p, &asked);
    bool left = p->dir && access(p->dir, F_OK) < 0;
    int rc = rundir_create(p, &r, &made);

    is_int(before, rc, "%s: known before", name);
    if (rc < 0) {
        is_str(asked.text, made.text, "%s: in the same words", name);
    } else {
        ok(!p->dir || left || r->reopened, "%s: was not made by asking", name);
    }
}

static void test_check(void)
{
    static const struct {
        const char *dir, *base, *name;
    } cases[] = {
        {"check/new", NULL, "a new one"},
        {"check/new", NULL, "the same again"},
        {"check/other/with/parents", NULL, "one with parents"},
        {"check/slash/", NULL, "one with a slash"},
        {"./check/new", NULL, "another way to it"},
        {"check/file", NULL, "a file"},
        {"check/file/x", NULL, "below a file"},
        {"check/file/x/y/z", NULL, "far below a file"},
        {"check/full", NULL, "of something else"},
        {NULL, "check/base", "a base"},
        {NULL, "check/base", "the same base"},
        {NULL, "check/file", "a file as the base"},
        {NULL, "check/file/x", "a base below a file"},
        {NULL, NULL, "no word of it"},
    };
    struct rundir_params p = {.name = "tiny"};
    char name[300];

    mkdir("check", 0755);
    mkdir("check/full", 0755);
    bed_write("check/full/of", "x");
    bed_write("check/file", "x");
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        p.dir = cases[i].dir;
        p.base = cases[i].base;
        check_like(&p, cases[i].name);
    }
    memset(name, 'x', sizeof(name) - 1);
    name[sizeof(name) - 1] = '\0';
    p = (struct rundir_params){.name = "tiny", .dir = name};
    check_like(&p, "a name that is too long");
}

/* Asked as somebody else where this is root, who may write everywhere. */
static void test_check_closed(void)
{
    bool is_root = geteuid() == 0;
    struct rundir_params p = {.name = "tiny", .dir = "shut/run"};

    chmod(".", 0711);
    mkdir("shut", 0555);
    if (is_root && seteuid(65534) < 0) {
        for (int i = 0; i < 6; i++) {
            skip("cannot be another user");
        }
        return;
    }
    check_like(&p, "in a closed directory");
    p.dir = "shut/a/run";
    check_like(&p, "below a closed directory");
    p = (struct rundir_params){.name = "other", .base = "shut"};
    check_like(&p, "by name in a closed directory");
    if (is_root && seteuid(0) < 0) {
        bail_out("seteuid");
    }
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

int main(void)
{
    bed_up();
    test_create();
    test_bad_params();
    test_explicit_dir();
    test_half_made();
    test_at_once();
    test_versions();
    test_left_behind();
    test_open_errors();
    test_nonce();
    test_requests();
    test_not_writable();
    test_check();
    test_check_closed();
    test_keys();
    bed_down();
    return tap_done();
}
