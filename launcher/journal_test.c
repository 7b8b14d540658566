/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "launcher/journal.h"

#include "base/clock.h"
#include "base/fs.h"
#include "base/proc.h"
#include "base/str.h"
#include "base/thread.h"
#include "tests/lib/tap.h"

#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <limits.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

enum { WAIT_MS = 20000 };

static void pause_ms(unsigned ms)
{
    struct timespec ts = {.tv_nsec = (long)ms * 1000000};

    nanosleep(&ts, NULL);
}

static const char *path_in(const char *dir, const char *name)
{
    static char path[2 * PATH_MAX];

    snprintf(path, sizeof(path), "%s/%s", dir, name);
    return path;
}

static char *slurp(const char *dir, const char *name)
{
    char *text = NULL;

    fs_read(path_in(dir, name), 64 << 20, &text, NULL, NULL);
    return text ? text : strdup("");
}

static size_t count_lines(const char *text)
{
    size_t n = 0;

    for (; (text = strchr(text, '\n')); text++) {
        n++;
    }
    return n;
}

/* Every line of the file must be a JSON object. */
static void check_lines(const char *dir, const char *name, size_t want)
{
    _free_ char *text = slurp(dir, name);
    size_t n = 0, bad = 0;

    for (char *line = text, *end; (end = strchr(line, '\n')); line = end + 1) {
        json_t *o = json_loadb(line, (size_t)(end - line), 0, NULL);

        bad += !json_is_object(o);
        json_decref(o);
        n++;
    }
    is_int(bad, 0, "%s: lines are objects", name);
    is_int(n, want, "%s: lines", name);
}

static void put_event(struct journal *j, const char *event, int i)
{
    struct buf line = {0};
    struct jsonw w = journal_event_begin(&line, clock_wall_ns(), event, 1);

    jsonw_int(&w, "i", i);
    journal_event_end(j, &w);
}

static struct run_status *make_status(enum status_run_state state, int i)
{
    struct run_status *s = run_status_create();

    s->state = state;
    s->generation = i;
    run_status_set_workers(s, 8);
    return s;
}

static int read_generation(const char *dir)
{
    _free_ char *text = slurp(dir, "status.json");
    _cleanup_(run_status) struct run_status *s = NULL;

    return run_status_from_json(text, strlen(text), &s, NULL) < 0
               ? -1 : s->generation;
}

static void test_plain(const char *dir)
{
    struct journal_config c = {.run_dir = dir, .status_interval_ms = 50};
    struct journal *j = NULL;
    struct error e = {0};
    struct stat st;

    is_int(journal_create(&c, &j, &e), 0, "created");
    for (int i = 0; i < 1000; i++) {
        put_event(j, "test", i);
        journal_metric(j, clock_wall_ns(), 1, 0, i, "loss", 1.0 / (i + 1));
        journal_status(j, make_status(STATUS_RUNNING, i));
    }
    journal_status(j, NULL);
    is_int(journal_close(j, WAIT_MS, &e), 0, "closed: %s", e.text);
    check_lines(dir, "events.jsonl", 1000);
    check_lines(dir, "metrics.jsonl", 1000);
    is_int(read_generation(dir), 999, "the newest status");
    ok(stat(path_in(dir, "events.jsonl"), &st) == 0 &&
       (st.st_mode & 07777) == 0600, "events are private");
    ok(stat(path_in(dir, "status.json"), &st) == 0 &&
       (st.st_mode & 07777) == 0600, "the status is private");
}

/* In place of libc's: what was synced. */
static atomic_int n_synced_files, n_synced_dirs;

int fsync(int fd)
{
    struct stat st;

    if (fstat(fd, &st) == 0) {
        atomic_fetch_add(S_ISDIR(st.st_mode) ? &n_synced_dirs
                                             : &n_synced_files, 1);
    }
    return (int)syscall(SYS_fsync, fd);
}

/* Closes a journal that was told `state`, and an event and a metric. */
static void one_life(const char *dir, enum status_run_state state)
{
    struct journal_config c = {.run_dir = dir};
    struct journal *j = NULL;

    journal_create(&c, &j, NULL);
    put_event(j, "event", 0);
    journal_metric(j, 1, 1, 0, 1, "loss", 1);
    /* From here on: the end of a run is written at once. */
    atomic_store(&n_synced_files, 0);
    atomic_store(&n_synced_dirs, 0);
    journal_status(j, make_status(state, 1));
    is_int(journal_close(j, WAIT_MS, NULL), 0, "closed");
}

static ino_t inode_of(const char *dir, const char *name)
{
    struct stat st = {0};

    return stat(path_in(dir, name), &st) == 0 ? st.st_ino : 0;
}

/* The last word of a run and its records outlive the node; a status on the way
 * costs no sync, and is whole for whoever reads it meanwhile. */
static void test_durable(const char *dir)
{
    char sub[PATH_MAX];
    ino_t before;

    snprintf(sub, sizeof(sub), "%s/durable", dir);
    mkdir(sub, 0700);
    one_life(sub, STATUS_RUNNING);
    is_int(atomic_load(&n_synced_files), 2, "both records are synced");
    is_int(atomic_load(&n_synced_dirs), 0, "a running status is not");
    before = inode_of(sub, "status.json");
    one_life(sub, STATUS_FAILED);
    is_int(atomic_load(&n_synced_files), 3, "the last one is");
    is_int(atomic_load(&n_synced_dirs), 1, "and its name");
    ok(before && inode_of(sub, "status.json") != before,
       "each is a file of its own");
}

/* The longest line, and one that is longer. */
static void test_long_lines(const char *dir)
{
    enum { MOST = 65536 };
    char sub[PATH_MAX];
    struct journal_config c = {.run_dir = sub};
    struct journal *j = NULL;
    _free_ char *line = malloc(MOST + 1), *text = NULL;

    snprintf(sub, sizeof(sub), "%s/long", dir);
    mkdir(sub, 0700);
    memset(line, 'x', MOST + 1);
    journal_create(&c, &j, NULL);
    journal_line(j, JOURNAL_METRICS, line, MOST);
    journal_line(j, JOURNAL_METRICS, line, MOST + 1);
    is_int(journal_close(j, WAIT_MS, NULL), 0, "closed");
    text = slurp(sub, "metrics.jsonl");
    is_int((intmax_t)strlen(text), MOST + 1, "a line of 64 KiB, none longer");
}

/* A new life of the run appends, and mends what a killed one left. */
static void test_reopen(const char *dir)
{
    struct journal_config c = {.run_dir = dir};
    struct journal *j = NULL;
    _free_ char *text = NULL;
    int fd = open(path_in(dir, "events.jsonl"), O_WRONLY | O_APPEND);

    ok(write(fd, "{\"v\":1,\"to", 10) == 10, "torn line left behind");
    close(fd);
    journal_create(&c, &j, NULL);
    put_event(j, "again", 0);
    is_int(journal_close(j, WAIT_MS, NULL), 0, "closed");
    text = slurp(dir, "events.jsonl");
    like(text, "{\"v\":1,\"to\n{\"v\":1,\"t\":", "a line of its own");
    is_int(count_lines(text), 1002, "appended");
}

static void test_coalesce(const char *dir)
{
    struct journal_config c = {.run_dir = dir, .status_interval_ms = 200};
    uint64_t end = clock_mono_ms() + 1000;
    struct journal *j = NULL;
    struct stat st = {0};
    ino_t last = 0;
    int n_files = 0, n_given = 0;

    journal_create(&c, &j, NULL);
    while (clock_mono_ms() < end) {
        journal_status(j, make_status(STATUS_RUNNING, 1));
        n_given++;
        if (stat(path_in(dir, "status.json"), &st) == 0 && st.st_ino != last) {
            last = st.st_ino;
            n_files++;
        }
        pause_ms(1);
    }
    ok(n_files <= 7, "%d given, %d seen written in 1 s", n_given, n_files);
    is_int(journal_close(j, WAIT_MS, NULL), 0, "closed");
}

static bool wait_generation(const char *dir, int want)
{
    for (int i = 0; i < WAIT_MS && read_generation(dir) != want; i++) {
        pause_ms(1);
    }
    return read_generation(dir) == want;
}

static void test_end_at_once(const char *dir)
{
    struct journal_config c = {.run_dir = dir,
                               .status_interval_ms = 100 * WAIT_MS};
    struct journal *j = NULL;

    journal_create(&c, &j, NULL);
    journal_status(j, make_status(STATUS_RUNNING, 5));
    ok(wait_generation(dir, 5), "the first state is written");
    journal_status(j, make_status(STATUS_RUNNING, 6));
    journal_status(j, make_status(STATUS_FAILED, 7));
    ok(wait_generation(dir, 7), "the end of a run is written at once");
    is_int(journal_close(j, WAIT_MS, NULL), 0, "closed");
}

/* As when the process was stopped, and another writes in its place now. */
static void test_held(const char *dir)
{
    struct journal_config c = {.run_dir = dir};
    struct journal *j = NULL;
    _free_ char *text = NULL;

    journal_create(&c, &j, NULL);
    journal_may_write(j, clock_mono_ns());
    put_event(j, "held", 0);
    journal_status(j, make_status(STATUS_RUNNING, 8));
    journal_may_write(j, UINT64_MAX);
    ok(wait_generation(dir, 8), "what was held is written once it may be");
    journal_may_write(j, 0);
    put_event(j, "of_before", 0);
    journal_status(j, make_status(STATUS_FAILED, 9));
    is_int(journal_close(j, WAIT_MS, NULL), 0, "closed");
    is_int(read_generation(dir), 8, "and is lost where it never may");
    text = slurp(dir, "events.jsonl");
    ok(strstr(text, "\"held\"") && !strstr(text, "of_before"),
       "events are, too");
}

static void on_generation(void *arg, int generation)
{
    atomic_store((atomic_int *)arg, generation);
}

static bool wait_told(atomic_int *told, int want)
{
    for (int i = 0; i < WAIT_MS && atomic_load(told) != want; i++) {
        pause_ms(1);
    }
    return atomic_load(told) == want;
}

/* Whoever is told of a generation finds it on disk: its number is not given to
 * another one. */
static void test_generations(const char *dir)
{
    char sub[PATH_MAX];
    atomic_int told = -1;
    struct journal_config c = {.run_dir = sub, .arg = &told,
                               .status_interval_ms = 100 * WAIT_MS,
                               .on_generation = on_generation};
    struct journal *j = NULL;

    snprintf(sub, sizeof(sub), "%s/generations", dir);
    journal_create(&c, &j, NULL);
    journal_status(j, make_status(STATUS_RUNNING, 1));
    put_event(j, "first", 1);
    pause_ms(50);
    is_int(atomic_load(&told), -1, "not told while nothing can be written");
    mkdir(sub, 0700);
    ok(wait_told(&told, 1), "told of the first");
    is_int(read_generation(sub), 1, "which is on disk");
    journal_status(j, make_status(STATUS_RUNNING, 2));
    ok(wait_told(&told, 2), "told of the next, at once");
    is_int(read_generation(sub), 2, "which is on disk");
    atomic_store(&told, -1);
    journal_status(j, make_status(STATUS_FAILED, 2));
    is_int(journal_close(j, WAIT_MS, NULL), 0, "closed");
    is_int(atomic_load(&told), -1, "told once of each");
}

struct errors {
    atomic_int n;
    char text[1024];
};

static void on_error(void *arg, const char *text)
{
    struct errors *x = arg;

    str_copy(x->text, sizeof(x->text), text);
    atomic_fetch_add(&x->n, 1);
}

static bool wait_error(struct errors *x, int n)
{
    for (int i = 0; i < WAIT_MS && atomic_load(&x->n) < n; i++) {
        pause_ms(1);
    }
    return atomic_load(&x->n) >= n;
}

static void test_missing_dir(const char *dir)
{
    char gone[PATH_MAX];
    struct errors x = {0};
    struct journal_config c = {
        .run_dir = gone, .on_error = on_error, .arg = &x,
    };
    struct journal *j = NULL;
    struct error e = {0};

    snprintf(gone, sizeof(gone), "%s/gone", dir);
    is_int(journal_create(&c, &j, NULL), 0, "creating touches no file");
    put_event(j, "lost", 1);
    ok(wait_error(&x, 1), "reported");
    like(x.text, "gone/events.jsonl", "names the file");
    put_event(j, "lost", 2);
    journal_status(j, make_status(STATUS_RUNNING, 1));
    is_int(mkdir(gone, 0700), 0, "the directory comes back");
    is_int(journal_close(j, WAIT_MS, &e), 0, "and all is written: %s", e.text);
    is_int(atomic_load(&x.n), 1, "reported once");
    check_lines(gone, "events.jsonl", 2);
    is_int(read_generation(gone), 1, "status too");
}

static void test_close_failing(const char *dir)
{
    char gone[PATH_MAX];
    struct journal_config c = {.run_dir = gone};
    struct journal *j = NULL;
    struct error e = {0};

    snprintf(gone, sizeof(gone), "%s/never", dir);
    journal_create(&c, &j, NULL);
    put_event(j, "lost", 1);
    is_int(journal_close(j, WAIT_MS, &e), -ENOENT, "what stands is returned");
    like(e.text, "never/events.jsonl", "with its text");
}

/* A child would have to close its copy, and where the filesystem hangs that hangs. */
static void test_apart(const char *dir)
{
    struct journal_config c = {.run_dir = dir};
    struct journal *j = NULL;
    _free_ char *before = NULL, *open = NULL, *after = NULL;
    int own[8]; /* of numbers that it has for files of its own */

    for (size_t i = 0; i < ARRAY_SIZE(own); i++) {
        own[i] = dup(2);
    }
    before = proc_fd_inventory();
    journal_create(&c, &j, NULL);
    put_event(j, "apart", 1);
    journal_status(j, make_status(STATUS_RUNNING, 77));
    ok(wait_generation(dir, 77), "events and a status are written");
    open = proc_fd_inventory();
    ok(!strstr(open, dir) == thread_can_be_apart(),
       "and no child gets their files: %s", open);
    is_int(journal_close(j, WAIT_MS, NULL), 0, "closed");
    after = proc_fd_inventory();
    is_str(after, before, "and nothing of others with them");
    for (size_t i = 0; i < ARRAY_SIZE(own); i++) {
        close(own[i]);
    }
}

/* A FIFO that nobody reads stands for a filesystem that hangs: opening it for
 * reading and writing works, writing blocks when it is full. */
static void test_hang(const char *dir)
{
    char sub[PATH_MAX];
    struct journal_config c = {.run_dir = sub, .max_queue_bytes = 1 << 18};
    struct journal *j = NULL;
    struct error e = {0};
    uint64_t start, longest = 0;

    snprintf(sub, sizeof(sub), "%s/hang", dir);
    mkdir(sub, 0700);
    is_int(mkfifo(path_in(sub, "events.jsonl"), 0600), 0, "fifo");
    journal_create(&c, &j, NULL);
    for (int i = 0; i < 20000; i++) {
        uint64_t t = clock_mono_ns();

        put_event(j, "much", i);
        journal_metric(j, 1, 1, 0, i, "loss", i);
        t = clock_mono_ns() - t;
        longest = t > longest ? t : longest;
    }
    diag("longest call: %.2f ms", (double)longest / 1e6);
    start = clock_mono_ms();
    is_int(journal_close(j, 100, &e), -ETIMEDOUT, "a deadline at the end");
    ok(clock_mono_ms() - start < 5000, "kept");
    like(e.text, "100 ms", "said so");
}

static void test_dropped(const char *dir)
{
    char sub[PATH_MAX];
    struct errors x = {0};
    struct journal_config c = {
        .run_dir = sub, .max_queue_bytes = 4096, .on_error = on_error,
        .arg = &x,
    };
    struct journal *j = NULL;
    _free_ char *text = NULL;
    _free_ char *big = malloc(100000);

    memset(big, 'x', 100000);
    snprintf(sub, sizeof(sub), "%s/later", dir);
    journal_create(&c, &j, NULL);
    put_event(j, "first", 0);
    ok(wait_error(&x, 1), "failing");
    for (int i = 0; i < 200; i++) {
        journal_metric(j, 1, 1, 0, i, "loss", i);
    }
    put_event(j, "kept", 1);
    journal_line(j, JOURNAL_EVENTS, big, 100000);
    mkdir(sub, 0700);
    is_int(journal_close(j, WAIT_MS, NULL), 0, "closed");
    text = slurp(sub, "events.jsonl");
    like(text, "\"kept\"", "events have room where metrics had none");
    like(text, "\"lines_dropped\",\"generation\":0,\"file\":\"metrics.jsonl\"",
         "what was left out is told");
    like(text, "\"file\":\"events.jsonl\",\"n\":1}", "of both files");
}

static void test_full_disk(void)
{
    struct journal_config c = {0};
    char dir[] = "/tmp/journal-full-XXXXXX";
    struct journal *j = NULL;
    struct errors x = {0};

    if (!mkdtemp(dir)) {
        bail_out("mkdtemp");
    }
    /* /dev/full takes no byte. */
    if (symlink("/dev/full", path_in(dir, "metrics.jsonl")) < 0) {
        bail_out("symlink");
    }
    c.run_dir = dir;
    c.on_error = on_error;
    c.arg = &x;
    journal_create(&c, &j, NULL);
    journal_metric(j, 1, 1, 0, 1, "loss", 1);
    ok(wait_error(&x, 1), "a link in place of the file is refused: %s", x.text);
    unlink(path_in(dir, "metrics.jsonl"));
    is_int(journal_close(j, WAIT_MS, NULL), 0, "closed");
    check_lines(dir, "metrics.jsonl", 1);
    fs_remove_tree(dir, NULL);
}

int main(void)
{
    char dir[] = "/tmp/journal-test-XXXXXX";

    if (!mkdtemp(dir)) {
        bail_out("mkdtemp");
    }
    test_plain(dir);
    test_reopen(dir);
    test_durable(dir);
    test_long_lines(dir);
    test_held(dir);
    test_end_at_once(dir);
    test_coalesce(dir);
    test_apart(dir);
    test_generations(dir);
    test_missing_dir(dir);
    test_close_failing(dir);
    test_hang(dir);
    test_dropped(dir);
    test_full_disk();
    is_int(journal_close(NULL, 0, NULL), 0, "closing nothing");
    fs_remove_tree(dir, NULL);
    return tap_done();
}
