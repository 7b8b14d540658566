/* SPDX-License-Identifier: Apache-2.0 */
/* Which checkpoints stay by the options of the C API, and which options there are. */
#include <config.h>

#include "ckpt/api_bed.h"

#include "base/cleanup.h"
#include "base/str.h"
#include "ckpt/held.h"
#include "ckpt/save_priv.h"
#include "tests/lib/tap.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <glob.h>
#include <signal.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static char root[API_BED_ROOT_BYTES];

/* Saves five steps, each with a loss; says which are left. */
static void save_five(const char *name, const struct muster_ckpt_options *o, char *left,
                      size_t size)
{
    static const char *const losses[] = {"3", "1", "2", "4", "\"none\""};
    struct muster_ckpt *ck = api_bed_open(root, name, NULL, o);
    int64_t below = MUSTER_CKPT_LATEST;
    size_t n = 0;
    int rc = 0;

    for (size_t i = 0; i < ARRAY_SIZE(losses) && rc == 0; i++) {
        char json[64];
        int len = snprintf(json, sizeof(json), "{\"loss\": %s}", losses[i]);

        rc = muster_ckpt_blob(ck, "m", json, (size_t)len, MUSTER_JSON);
        rc = rc < 0 ? rc : muster_ckpt_save(ck, 10 * (int64_t)(i + 1), 0, NULL);
    }
    is_int(rc, 0, "five saves: %s", muster_ckpt_error_text(ck));
    left[0] = '\0';
    while (muster_ckpt_latest(ck, below, &below) == 0 && n < size) {
        n += (size_t)snprintf(left + n, size - n, "%lld ", (long long)below);
    }
    muster_ckpt_close(ck);
}

/* Multiples and the best stay, as of what agents write. */
static void test_kept(void)
{
    static const struct {
        const char *name;
        struct muster_ckpt_options options;
        const char *want;
    } cases[] = {
        {"all", {.keep = 0}, "50 40 30 20 10 "},
        {"newest", {.keep = 2}, "50 40 "},
        {"multiples", {.keep = 1, .keep_every = 20}, "50 40 20 "},
        {"lowest", {.keep = 1, .keep_best = "m.loss"}, "50 20 "},
        {"lowest-too", {.keep = 1, .keep_best = "m.loss:min"}, "50 20 "},
        {"highest", {.keep = 1, .keep_best = "m.loss:max"}, "50 40 "},
        {"both", {.keep = 1, .keep_every = 30, .keep_best = "m.loss"}, "50 30 20 "},
        {"nobodys", {.keep = 1, .keep_best = "m.los"}, "50 "},
    };

    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        struct muster_ckpt_options o = cases[i].options;
        char left[128];

        o.size = sizeof(o);
        save_five(cases[i].name, &o, left, sizeof(left));
        is_str(left, cases[i].want, "which stay: %s", cases[i].name);
    }
}

/* A metric that none has, as where its name is misspelt, is said once, when older ones go. */
static void test_no_best(void)
{
    struct muster_ckpt_options o = {.size = sizeof(o), .keep = 1, .keep_best = "m.los"};
    struct muster_ckpt *ck;
    char json[] = "{\"loss\": 1}", said[API_BED_ROOT_BYTES + 200];

    for (int is_lazy = 0; is_lazy < 2; is_lazy++) {
        unsigned flags = is_lazy ? MUSTER_CKPT_LAZY : 0;

        ck = api_bed_open(root, is_lazy ? "lazy" : "misspelt", NULL, &o);
        is_int(muster_ckpt_blob(ck, "m", json, sizeof(json) - 1, MUSTER_JSON), 0, "a metric");
        is_int(muster_ckpt_save(ck, 1, flags, NULL) | muster_ckpt_fence(ck), 0, "a save");
        is_str(muster_ckpt_error_text(ck), "", "and nothing to go");
        is_int(muster_ckpt_save(ck, 2, flags, NULL), 0, "another one");
        if (is_lazy) {
            is_str(muster_ckpt_error_text(ck), "", "which is not there before its fence");
            is_int(muster_ckpt_fence(ck), 0, "its fence");
        }
        snprintf(said, sizeof(said), "no checkpoint in %s/%s has a metric 'm.los', by which the "
                 "best is to stay (keep_best): older ones go as if there were none", root,
                 is_lazy ? "lazy" : "misspelt");
        is_str(muster_ckpt_error_text(ck), said, "that none has it is said");
        is_int(muster_ckpt_save(ck, 3, flags, NULL) | muster_ckpt_fence(ck), 0, "a third");
        is_str(muster_ckpt_error_text(ck), "", "once");
        muster_ckpt_close(ck);
    }
}

/* A program that was built before there was keep_every: what is behind its options is
 * anything. */
static void test_small_options(void)
{
    struct muster_ckpt_options o;
    char left[128];

    memset(&o, 0x5a, sizeof(o));
    o.size = offsetof(struct muster_ckpt_options, keep_every);
    o.every_steps = 5;
    o.every_seconds = 0;
    o.keep = 2;
    o.n_threads = 1;
    save_five("small", &o, left, sizeof(left));
    is_str(left, "50 40 ", "by the first options");
}

static void test_refused_options(void)
{
    static const struct {
        struct muster_ckpt_options options;
        const char *text;
    } cases[] = {
        {{.size = 3}, "`size` is 3: expected "},
        {{.size = sizeof(struct muster_ckpt_options) + 8}, "`size` is "},
        {{.keep = -1}, "no negative number"},
        {{.keep = 1, .keep_every = -1}, "no negative number"},
        {{.keep_every = 5}, "besides those of keep_every"},
        {{.keep_best = "m"}, "all stay, as keep is 0"},
        {{.keep = 1, .keep_best = ""}, "keep_best is '': expected METRIC"},
        {{.keep = 1, .keep_best = ":min"}, "keep_best is ':min'"},
    };

    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        struct muster_ckpt_options o = cases[i].options;
        struct muster_ckpt *ck = NULL;

        o.size = o.size ? o.size : sizeof(o);
        is_int(muster_ckpt_open(NULL, NULL, "/tmp", &o, &ck), -EINVAL, "refused");
        like(muster_ckpt_error_text(ck), cases[i].text, "and said");
        muster_ckpt_close(ck);
    }
}

/* The step that is saved, as who tidies up sees it. */
static struct {
    int dir;
    pid_t child; /* that was forked meanwhile */
    unsigned n_free, n_held;
} seen;

static void look(unsigned *n_free, unsigned *n_held)
{
    DIR *d = fdopendir(openat(seen.dir, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC));

    for (struct dirent *at = readdir(d); at; at = readdir(d)) {
        if (str_starts(at->d_name, "step-")) {
            ++*(held_is(seen.dir, at->d_name) ? n_held : n_free);
        }
    }
    closedir(d);
}

static int look_and_sync(struct io *io, int fd)
{
    look(&seen.n_free, &seen.n_held);
    if (seen.child == 0) {
        seen.child = fork();
    }
    if (seen.child == 0) {
        pause();
        _exit(0);
    }
    return io_system()->ops->sync(io, fd);
}

/* Who is at a save holds it, as long as it goes on: no child of his does later. */
static void test_held(void)
{
    struct muster_ckpt_options o = {.size = sizeof(o)};
    struct io_ops ops = *io_system()->ops;
    struct io io = *io_system(), *own;
    struct muster_ckpt *ck;
    unsigned n_free = 0, n_held = 0;
    char path[API_BED_ROOT_BYTES + 8], json[] = "1";
    int rc;

    snprintf(path, sizeof(path), "%s/held", root);
    ck = api_bed_open(root, "held", NULL, &o);
    memset(&seen, 0, sizeof(seen));
    seen.dir = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    ops.sync = look_and_sync;
    io.ops = &ops;
    own = ck->io;
    ck->io = &io;
    rc = muster_ckpt_blob(ck, "m", json, 1, MUSTER_JSON);
    is_int(rc < 0 ? rc : muster_ckpt_save(ck, 1, 0, NULL), 0, "a save");
    ck->io = own;
    ok(seen.n_held > 0, "is held while it goes on");
    is_int((int)seen.n_free, 0, "at each of its syncs");
    look(&n_free, &n_held);
    is_int((int)n_free, 1, "is there then");
    is_int((int)n_held, 0, "and not held, though a child of that time lives");
    kill(seen.child, SIGKILL);
    waitpid(seen.child, NULL, 0);
    close(seen.dir);
    muster_ckpt_close(ck);
}

/* A program that is killed as it writes its second file. */
static int kill_at_sync(struct io *io, int fd)
{
    (void)io, (void)fd;
    raise(SIGKILL);
    return 0;
}

static void save_killed(int64_t step)
{
    struct muster_ckpt_options o = {.size = sizeof(o), .keep = 1};
    struct io_ops ops = *io_system()->ops;
    struct io io = *io_system();
    char json[] = "1";
    int status = 0;
    pid_t pid = fork();

    if (pid == 0) {
        struct muster_ckpt *ck = api_bed_open(root, "killed", NULL, &o);

        ops.sync = kill_at_sync;
        io.ops = &ops;
        ck->io = &io;
        if (muster_ckpt_blob(ck, "m", json, 1, MUSTER_JSON) == 0) {
            muster_ckpt_save(ck, step, 0, NULL);
        }
        _exit(0);
    }
    waitpid(pid, &status, 0);
    ok(WIFSIGNALED(status), "a program is killed in the middle of a save");
}

static unsigned count_in(const char *end)
{
    char pattern[API_BED_ROOT_BYTES + 64];
    glob_t g = {0};
    unsigned n;

    snprintf(pattern, sizeof(pattern), "%s/killed/step-*%s", root, end);
    n = glob(pattern, GLOB_PERIOD, NULL, &g) == 0 ? (unsigned)g.gl_pathc : 0;
    globfree(&g);
    return n;
}

/* What such have left goes with the next save that keeps some, whatever its step. */
static void test_killed(void)
{
    struct muster_ckpt_options o = {.size = sizeof(o), .keep = 0};
    struct muster_ckpt *ck;
    char json[] = "1";

    for (int64_t step = 5; step <= 15; step += 5) {
        save_killed(step);
    }
    is_int((int)count_in("/.saver"), 3, "each leaves what it has");
    for (int keep = 0; keep <= 1; keep++) {
        o.keep = keep;
        ck = api_bed_open(root, "killed", NULL, &o);
        muster_ckpt_blob(ck, "m", json, 1, MUSTER_JSON);
        is_int(muster_ckpt_save(ck, 10, 0, NULL), 0, "a save that keeps %d", keep);
        muster_ckpt_close(ck);
        is_int((int)count_in("/.saver"), keep ? 0 : 3, "removes what they left, or all stay");
    }
    is_int((int)count_in(""), 1, "one is left");
    is_int((int)count_in("/COMMIT"), 1, "which is whole");
    is_int((int)count_in("/.saver"), 0, "and has no mark");
}

int main(void)
{
    api_bed_begin(root);
    test_kept();
    test_no_best();
    test_small_options();
    test_refused_options();
    test_held();
    test_killed();
    return api_bed_end(root);
}
