/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A save of which all files are there becomes a checkpoint, whoever has said so; of
 * one that misses a file nothing is left; and what was never finished goes when it is
 * too old to be kept. A lead whose office is over changes nothing, wherever it was
 * stopped.
 */
#include <config.h>

#include "launcher/snap_commit.h"

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/fs.h"
#include "base/str.h"
#include "ckpt/part.h"
#include "ckpt/step.h"
#include "tests/lib/tap.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

enum { N = 2, BYTES = 8 }; /* ranks, and bytes of each */

static char top[64];
static int root;
static char nth = '0'; /* save of a step */
static const char *saved_state; /* JSON values, or NULL */

/* Differs in what the directory is called by. */
static const char *uuid_of(uint64_t step)
{
    static char uuid[COMMIT_UUID_BYTES];

    snprintf(uuid, sizeof(uuid), "%032x", 0);
    snprintf(uuid, 8, "%07x", (unsigned)step);
    uuid[7] = nth;
    return uuid;
}

static void must(int rc, const struct error *e)
{
    if (rc < 0) {
        bail_out("%s", e->text);
    }
}

static void put_rank(struct step_save *s, uint64_t step, uint32_t rank)
{
    const uint64_t shape = N * BYTES, at = rank * BYTES, len = BYTES;
    char data[BYTES] = "abcdefg", name[PART_NAME_BYTES];
    uint64_t block = digest_short_of(data, BYTES);
    struct part_piece piece = {"t", DTYPE_U8, 1, &shape, &at, &len, 0};
    struct part p = {.step = step, .rank = rank, .n_ranks = N,
                     .file_bytes = BYTES, .n_pieces = 1, .pieces = &piece,
                     .n_blocks = 1, .blocks = &block};
    _buf_ struct buf b = {0};
    struct error e = {0};

    p.state = saved_state && rank == 0 ? strdup(saved_state) : NULL;
    str_copy(p.uuid, sizeof(p.uuid), uuid_of(step));
    must(part_encode(&p, &b, &e), &e);
    part_data_name(rank, name);
    must(step_save_file(s, name, data, BYTES, &e), &e);
    free(p.state);
    part_file_name(rank, name);
    must(step_save_file(s, name, b.data, b.len, &e), &e);
}

/* What the agents have written, of the first `n` ranks. */
static void write_ranks(uint64_t step, uint32_t n)
{
    _cleanup_(step_save) struct step_save *s = NULL;
    struct error e = {0};

    must(step_save_begin(io_system(), root, step, uuid_of(step), &s, &e), &e);
    for (uint32_t r = 0; r < n; r++) {
        put_rank(s, step, r);
    }
}

/* As the lead does it: once it is one, what is not wanted any more goes. */
static int commit_and_tidy(const struct snap_commit *c, struct io *io,
                           const struct error *why, struct error *e)
{
    int rc = snap_commit(c, io, why, e);

    if (rc == 0) {
        snap_tidy(c, io);
    }
    return rc;
}

static int commit(uint64_t step, uint32_t n_written, uint64_t busy_from,
                  const struct error *why, struct error *e)
{
    const struct snap_commit c = {
        .root = top, .n_written = n_written, .rule.keep = 2, .busy_from = busy_from,
        .gather = {.step = step, .uuid = uuid_of(step), .generation = 1,
                   .token = 1, .n_ranks = N},
    };

    *e = (struct error){0};
    return commit_and_tidy(&c, io_system(), why, e);
}

/* As a rule says, with a metric beside. */
static void save_with(uint64_t step, const char *state, struct retain_rule rule)
{
    struct error e = {0};
    const struct snap_commit c = {
        .root = top, .n_written = N, .rule = rule, .busy_from = UINT64_MAX,
        .best = "m.loss",
        .gather = {.step = step, .uuid = uuid_of(step), .generation = 1,
                   .token = 1, .n_ranks = N},
    };

    saved_state = state;
    write_ranks(step, N);
    saved_state = NULL;
    must(commit_and_tidy(&c, io_system(), NULL, &e), &e);
}

static int commit_beside(uint64_t step, uint64_t pinned, struct error *e)
{
    char name[STEP_NAME_BYTES];
    const struct snap_commit c = {
        .root = top, .n_written = N, .rule.keep = 2, .busy_from = UINT64_MAX,
        .gather = {.step = step, .uuid = uuid_of(step), .generation = 1,
                   .token = 1, .n_ranks = N},
        .pinned = name,
    };

    step_name(pinned, uuid_of(pinned), name);
    write_ranks(step, N);
    return commit_and_tidy(&c, io_system(), NULL, e);
}

static bool is_there(uint64_t step, const char *file)
{
    char path[PATH_MAX], name[STEP_NAME_BYTES];

    step_name(step, uuid_of(step), name);
    snprintf(path, sizeof(path), "%s/%s/%s", top, name, file);
    return access(path, F_OK) == 0;
}

static void save(uint64_t step)
{
    struct error e;

    write_ranks(step, N);
    is_int(commit(step, N, UINT64_MAX, NULL, &e), 0, "step %d: %s", (int)step,
           e.text);
}

static void test_whole(void)
{
    struct error e, why = {.code = EIO, .text = "rank 1: broken"};

    write_ranks(10, N);
    is_int(commit(10, 1, UINT64_MAX, NULL, &e), 0,
           "all is there, although one was not heard of: %s", e.text);
    ok(is_there(10, "COMMIT"), "it is a checkpoint");
    ok(!is_there(10, "r00000.part"), "the parts are gone");
    is_int(commit(10, 1, UINT64_MAX, &why, &e), 0,
           "one that is a checkpoint stays one");
    ok(is_there(10, "COMMIT"), "it does");
}

static void test_not_whole(void)
{
    struct error e, why = {.code = EIO, .text = "rank 1: broken"};

    write_ranks(20, 1);
    is_int(commit(20, 1, UINT64_MAX, NULL, &e), -ECONNABORTED, "one is missing");
    ok(strstr(e.text, "1 of 2 ranks"), "it says how many: %s", e.text);
    ok(!is_there(20, ""), "nothing is left of it");
    write_ranks(21, N);
    is_int(commit(21, N, UINT64_MAX, &why, &e), -EIO, "one has failed");
    is_str(e.text, why.text, "it says of what");
    ok(!is_there(21, ""), "nothing is left of it");
    is_int(commit(22, 0, UINT64_MAX, NULL, &e), -ECONNABORTED,
           "one that nobody has begun to write");
}

static void remove_step(uint64_t step)
{
    char name[STEP_NAME_BYTES];

    step_name(step, uuid_of(step), name);
    step_remove(io_system(), root, name, NULL);
}

/* Who waits for it is told before anything goes. */
static void test_apart(void)
{
    struct error e = {0};
    const struct snap_commit c = {
        .root = top, .n_written = N, .rule.keep = 1, .busy_from = UINT64_MAX,
        .gather = {.step = 21, .uuid = uuid_of(21), .generation = 1, .token = 1,
                   .n_ranks = N},
    };

    save(20);
    write_ranks(21, N);
    is_int(snap_commit(&c, io_system(), NULL, &e), 0, "it is one: %s", e.text);
    ok(is_there(21, "COMMIT") && is_there(20, "COMMIT"), "and nothing has gone yet");
    snap_tidy(&c, io_system());
    ok(is_there(21, "COMMIT") && !is_there(20, ""), "until that is asked for");
    remove_step(21);
}

/* What the filesystem says that it has left, by the linker's hand; -1: it has no such
 * number, -2: it does not answer. */
static int64_t bytes_left = -1;

int __wrap_fstatvfs(int fd, struct statvfs *ret);

int __wrap_fstatvfs(int fd, struct statvfs *ret)
{
    (void)fd;
    *ret = (struct statvfs){.f_frsize = 1, .f_blocks = bytes_left >= 0,
                            .f_bfree = (fsblkcnt_t)bytes_left,
                            .f_bavail = (fsblkcnt_t)bytes_left};
    errno = ESTALE;
    return bytes_left == -2 ? -1 : 0;
}

static void test_short(void)
{
    const struct snap_commit c = {.root = top, .gather = {.step = 22, .uuid = uuid_of(22)}};
    char name[STEP_NAME_BYTES];
    _step_ struct step s = {0};
    struct error e = {0};

    ok(snap_is_short(&c, io_system()), "who does not find it says so, to be safe");
    save(22);
    step_name(22, uuid_of(22), name);
    must(step_open(io_system(), root, name, &s, &e), &e);
    ok(!snap_is_short(&c, io_system()), "a filesystem without an end");
    bytes_left = 2 * (int64_t)s.commit.total_bytes;
    ok(!snap_is_short(&c, io_system()), "with room for two more");
    bytes_left -= 2;
    ok(snap_is_short(&c, io_system()), "with less");
    bytes_left = -2;
    ok(snap_is_short(&c, io_system()), "one that does not say it");
    bytes_left = -1;
    remove_step(22);
}

static void test_keep(void)
{
    struct error e;

    save(30);
    write_ranks(31, 1);
    save(32);
    ok(is_there(31, "r00000.part"), "unfinished, and newer than one that stays");
    save(33);
    ok(!is_there(30, ""), "the third is gone");
    ok(!is_there(31, ""), "what was not finished before both, too");
    write_ranks(29, 1);
    write_ranks(31, 1);
    write_ranks(34, N);
    is_int(commit(34, N, 31, NULL, &e), 0, "one more: %s", e.text);
    ok(!is_there(29, "") && is_there(31, ""),
       "others may be saving: no older ones than they say");
    is_int(commit_beside(35, 33, &e), 0, "one that somebody reads: %s", e.text);
    is_int(commit_beside(36, 33, &e), 0, "and another: %s", e.text);
    ok(is_there(33, "COMMIT") && !is_there(34, ""), "stays, and no other one");
    is_int(commit_beside(37, 36, &e), 0, "it was read: %s", e.text);
    ok(!is_there(33, ""), "it goes");
}

static int commit_known(uint64_t step, uint64_t known_ms, struct snap_strays *strays)
{
    const struct snap_commit c = {
        .root = top, .n_written = N, .rule.keep = 2, .busy_from = UINT64_MAX,
        .gather = {.step = step, .uuid = uuid_of(step), .generation = 1,
                   .token = 1, .n_ranks = N},
        .known_ms = known_ms, .strays = strays,
    };

    return commit_and_tidy(&c, io_system(), NULL, NULL);
}

/* One of a step below those that are kept may have begun just now, by workers that have
 * started from an older one: the lead has not heard of it yet. */
static void test_strays(void)
{
    struct snap_strays strays = {0};

    save(80);
    save(81);
    write_ranks(61, N);
    write_ranks(60, 1);
    is_int(commit_known(61, clock_mono_ms(), &strays), 0, "an earlier step");
    ok(is_there(60, "r00000.part"), "another one that was begun meanwhile is left alone");
    write_ranks(62, N);
    is_int(commit_known(62, clock_mono_ms(), &strays), 0, "and one more");
    ok(is_there(60, "r00000.part"), "also by that");
    write_ranks(83, N);
    is_int(commit_known(83, clock_mono_ms() + SNAP_STRAYS_MS, &strays), 0,
           "once whoever writes it would have told");
    ok(!is_there(60, ""), "it is nobody's, and goes");
    for (uint64_t step = 60; step <= 83; step++) {
        remove_step(step);
    }
}

static void say_left(char *to, size_t size)
{
    _free_ struct step_entry *entries = NULL;
    struct error e = {0};
    size_t n = 0;

    must(step_list(io_system(), root, &entries, &n, &e), &e);
    *to = '\0';
    for (size_t i = 0; i < n; i++) {
        snprintf(to + strlen(to), size - strlen(to), "%d ", (int)entries[i].step);
    }
}

static bool is_due;

static void commit_verified(uint64_t step, const char *verified, uint64_t checking)
{
    char name[STEP_NAME_BYTES];
    struct error e = {0};
    const struct snap_commit c = {
        .root = top, .n_written = N, .rule = {.keep = 2}, .busy_from = UINT64_MAX,
        .gather = {.step = step, .uuid = uuid_of(step), .generation = 1,
                   .token = 1, .n_ranks = N},
        .verified = verified, .checking = name, .ret_is_due = &is_due,
    };

    step_name(checking, uuid_of(checking), name);
    write_ranks(step, N);
    is_int(commit_and_tidy(&c, io_system(), NULL, &e), 0, "step %d: %s", (int)step, e.text);
}

/* The newest of which somebody knows that it is right does not give way to those of which
 * nobody does. */
static void test_verified(void)
{
    char first[STEP_NAME_BYTES], third[STEP_NAME_BYTES], path[PATH_MAX];
    const _Atomic bool goes_on = false, is_over = true;
    struct error e = {0};

    step_name(40, uuid_of(40), first);
    commit_verified(40, "", 0);
    commit_verified(41, "", 0);
    commit_verified(42, "", 0);
    ok(is_due && is_there(40, "COMMIT"), "nobody knows of any: none goes, one is due");
    is_int(snap_reread(top, first, &goes_on, &e), 0, "one is read: %s", e.text);
    is_int(snap_reread(top, first, &is_over, &e), -ECANCELED, "not by one who is to end");
    commit_verified(43, first, 41);
    ok(is_due && is_there(40, "COMMIT") && is_there(41, "COMMIT"),
       "that one stays, and one that is read");
    commit_verified(44, first, 42);
    ok(!is_there(41, "") && is_there(42, "COMMIT"), "the others go");
    step_name(42, uuid_of(42), third);
    commit_verified(45, third, 0);
    ok(is_due && !is_there(40, ""), "it goes when a newer one was right");
    step_name(45, uuid_of(45), third);
    commit_verified(46, third, 0);
    ok(!is_due && !is_there(42, "") && is_there(45, ""), "where it is kept none is due");
    snprintf(path, sizeof(path), "%s/%s/r00001.safetensors", top, third);
    ok(truncate(path, BYTES - 2) == 0 && truncate(path, BYTES) == 0, "a byte is lost");
    is_int(snap_reread(top, third, &goes_on, &e), -ERR_FORMAT, "which is found");
    like(e.text, "r00001.safetensors", "and where");
    is_int(snap_reread(top, first, &goes_on, &e), -ENOENT, "one that is gone");
    for (uint64_t step = 40; step <= 46; step++) {
        remove_step(step);
    }
}

static void commit_avoided(uint64_t step, const char *avoided)
{
    struct error e = {0};
    const struct snap_commit c = {
        .root = top, .n_written = N, .rule = {.keep = 2}, .busy_from = UINT64_MAX,
        .gather = {.step = step, .uuid = uuid_of(step), .generation = 1,
                   .token = 1, .n_ranks = N},
        .avoided = avoided,
    };

    write_ranks(step, N);
    is_int(commit_and_tidy(&c, io_system(), NULL, &e), 0, "step %d: %s", (int)step, e.text);
}

/* From some nobody starts for now: they count for nothing, and stay. */
static void test_avoided(void)
{
    char name[STEP_NAME_BYTES], lines[PATH_MAX + STEP_NAME_BYTES + 2];

    step_name(52, uuid_of(52), name);
    snprintf(lines, sizeof(lines), "%s/%s\n", top, name);
    commit_avoided(50, NULL);
    commit_avoided(52, NULL);
    commit_avoided(51, lines);
    ok(is_there(50, "COMMIT") && is_there(51, "COMMIT") && is_there(52, "COMMIT"),
       "two are kept besides one that is avoided");
    commit_avoided(53, lines);
    ok(!is_there(50, "") && is_there(51, "COMMIT") && is_there(52, "COMMIT"),
       "which stays");
    commit_avoided(54, "");
    ok(!is_there(51, "") && !is_there(52, "") && is_there(53, "COMMIT"),
       "once it is one like any other it goes as they do");
    for (uint64_t step = 50; step <= 54; step++) {
        remove_step(step);
    }
}

/* Multiples and the best stay, as in a directory that is pruned by hand. */
static void test_rule(void)
{
    static const struct {
        struct retain_rule rule;
        const char *want;
    } cases[] = {
        {{.keep = 2}, "706 705 703 "},
        {{.keep = 2, .every = 4}, "706 705 704 703 700 "},
        {{.keep = 2, .is_highest = true}, "706 705 701 "},
        {{.keep = 1, .every = 2}, "706 704 703 702 700 "},
        {{.keep = 9}, "706 705 704 703 702 701 700 "},
    };
    static const char *const losses[] = {"5", "9", "3", "1", "4", "2", "\"none\""};

    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        char left[128];

        for (size_t k = 0; k < ARRAY_SIZE(losses); k++) {
            char state[64];

            snprintf(state, sizeof(state), "{\"m\":{\"loss\":%s}}", losses[k]);
            save_with(700 + k, state, cases[i].rule);
        }
        say_left(left, sizeof(left));
        is_str(left, cases[i].want, "which stay, %d", (int)i);
        for (size_t k = 0; k < ARRAY_SIZE(losses); k++) {
            remove_step(700 + k);
        }
    }
    write_ranks(700, 1);
    save_with(701, "{}", (struct retain_rule){.keep = 1, .every = 100});
    ok(!is_there(700, ""), "what was never finished is no multiple");
    remove_step(701);
}

/* Of two leads one may come late. */
static void test_late(void)
{
    struct error e;

    save(50);
    save(51);
    write_ranks(49, N);
    is_int(commit(49, N, UINT64_MAX, NULL, &e), 0, "an older one: %s", e.text);
    ok(is_there(50, "COMMIT") && is_there(51, "COMMIT"), "the newest stay");
}

static uint64_t token_of(uint64_t step)
{
    _step_ struct step found = {0};
    char name[STEP_NAME_BYTES];
    struct error e = {0};

    step_name(step, uuid_of(step), name);
    must(step_open(io_system(), root, name, &found, &e), &e);
    return found.commit.token;
}

/* Of two of one step the later one counts, whoever made it. */
static void test_twice(void)
{
    uint64_t first;

    save(55);
    first = token_of(55);
    nth = '1';
    save(55);
    ok(token_of(55) > first, "the later one of a step has a higher token");
    nth = '0';
}

/* --- a lead that was stopped --- */

/* The kernel's calls, of which the n-th that changes something is the last one of an
 * office: a stop that began there has lasted for too long. */
static struct office office;
static int n_left, n_late;

static int turn(int rc)
{
    n_late += n_left <= 0;
    if (--n_left == 0) {
        office_set(&office, 1);
    }
    return rc;
}

static int late_create(struct io *io, int dir, const char *name)
{
    return turn(io_system_ops.create(io, dir, name));
}

static int late_rename(struct io *io, int dir, const char *from, const char *to)
{
    return turn(io_system_ops.rename(io, dir, from, to));
}

static int late_remove_dir(struct io *io, int dir, const char *name)
{
    return turn(io_system_ops.remove_dir(io, dir, name));
}

static int late_unlink(struct io *io, int dir, const char *name)
{
    return turn(io_system_ops.unlink(io, dir, name));
}

static int commit_late(uint64_t step, int n, const struct error *why, struct error *e)
{
    struct io_ops ops = io_system_ops;
    struct io io = {.ops = &ops};
    const struct snap_commit c = {
        .root = top, .n_written = N, .rule = {.keep = 2}, .busy_from = UINT64_MAX,
        .gather = {.step = step, .uuid = uuid_of(step), .generation = 1,
                   .token = 1, .n_ranks = N},
        .office = &office,
    };

    ops.create = late_create;
    ops.rename = late_rename;
    ops.unlink = late_unlink;
    ops.remove_dir = late_remove_dir;
    office_begin(&office);
    office_set(&office, n ? UINT64_MAX : 1);
    n_left = n;
    n_late = 0;
    *e = (struct error){0};
    return commit_and_tidy(&c, &io, why, e);
}

static void clear(void)
{
    fs_remove_tree(top, NULL);
    mkdir(top, 0700);
    close(root);
    root = open(top, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
}

/* Returns whether it came to its end before. */
static bool stop_at(int n)
{
    struct error e, next;
    bool was_whole;
    int rc;

    clear();
    save(70);
    save(71);
    write_ranks(72, N);
    rc = commit_late(72, n, NULL, &e);
    if (n_left > 0) {
        return true;
    }
    was_whole = is_there(72, "COMMIT");
    ok(rc == (was_whole ? 0 : -ESTALE) && n_late == 0,
       "stopped at %d: no more is changed, and it says so: %s", n, e.text);
    ok(was_whole ? is_there(71, "COMMIT") : is_there(70, "COMMIT") && is_there(71, "COMMIT"),
       "what is to be kept is there");
    rc = commit(72, N, UINT64_MAX, NULL, &next);
    ok(rc == 0 ? token_of(72) > 0 : !was_whole && !is_there(72, ""),
       "for the next lead it is whole, or none: %s", next.text);
    return false;
}

static void test_stopped(void)
{
    const struct error why = {.code = EIO, .text = "rank 1: broken"};
    struct error e;
    int n = 1;

    clear();
    write_ranks(73, N);
    is_int(commit_late(73, 0, NULL, &e), -ESTALE, "the office is over: %s", e.text);
    is_int(commit_late(73, 0, &why, &e), -ESTALE, "also of one that has failed");
    is_int(commit(73, N, UINT64_MAX, NULL, &e), 0, "the next lead commits it: %s",
           e.text);
    is_int(commit_late(73, 0, &why, &e), 0, "which is what the other one finds");
    ok(is_there(73, "COMMIT"), "and leaves");
    while (n < 100 && !stop_at(n)) {
        n++;
    }
    ok(n > 8 && n < 100, "at each of %d changes", n - 1);
    write_ranks(74, N);
    is_int(commit_late(74, 1, &why, &e), -ESTALE, "one that was being removed");
}

/* From when its token is chosen until the save is closed, whose directory has been
 * looked at once before that. */
static int n_closes;

static int late_list(struct io *io, int dir, int (*each)(void *arg, const char *name),
                     void *arg)
{
    office_set(&office, 1);
    n_closes = 2;
    return io_system_ops.list(io, dir, each, arg);
}

static int again_close(struct io *io, int fd)
{
    if (n_closes > 0 && --n_closes == 0) {
        office_set(&office, UINT64_MAX);
    }
    return io_system_ops.close(io, fd);
}

static int stale_make_file(struct io *io, int dir, const char *name)
{
    (void)io, (void)dir, (void)name;
    return -ESTALE;
}

/* Its word was not good for a moment, in which it has left something undone: it is looked
 * at again. What a server calls stale is a failure like any other. */
static void test_interrupted(void)
{
    struct io_ops ops = io_system_ops;
    struct io io = {.ops = &ops};
    const struct snap_commit c = {
        .root = top, .n_written = N, .rule = {.keep = 2}, .busy_from = UINT64_MAX,
        .gather = {.step = 75, .uuid = uuid_of(75), .generation = 1,
                   .token = 1, .n_ranks = N},
        .office = &office,
    };
    struct error e = {0};

    clear();
    write_ranks(75, N);
    ops.list = late_list;
    ops.close = again_close;
    office_begin(&office);
    office_set(&office, UINT64_MAX);
    is_int(commit_and_tidy(&c, &io, NULL, &e), -ESTALE, "between two changes: %s", e.text);
    ok(office_holds(&office) && is_there(75, "r00001.part"), "nothing more was done");
    is_int(commit(75, N, UINT64_MAX, NULL, &e), 0, "and it is made one then: %s", e.text);
    write_ranks(76, N);
    ops.list = io_system_ops.list;
    ops.create = stale_make_file;
    is_int(commit_and_tidy(&(struct snap_commit){.root = top, .n_written = N,
                           .gather = {.step = 76, .uuid = uuid_of(76), .n_ranks = N},
                           .office = &office}, &io, NULL, &e), -EIO,
           "a stale file of a server: %s", e.text);
    ok(!is_there(76, ""), "the save has failed of it");
}

/* Two that do not know of each other, above one of a run before. */
static void test_generations(void)
{
    struct error e;
    uint64_t tokens[2];

    clear();
    for (uint32_t i = 0; i < 3; i++) {
        const uint32_t generation = i == 0 ? 5 : i;
        const struct snap_commit c = {
            .root = top, .n_written = N, .busy_from = UINT64_MAX,
            .gather = {.step = 80, .uuid = uuid_of(80), .generation = generation,
                       .token = (uint64_t)generation << 32, .n_ranks = N}};
        char name[STEP_NAME_BYTES];

        write_ranks(80, N);
        must(commit_and_tidy(&c, io_system(), NULL, &e), &e);
        if (i > 0) {
            tokens[i - 1] = token_of(80);
            step_name(80, uuid_of(80), name);
            must(step_remove(io_system(), root, name, &e), &e);
        }
        nth++;
    }
    nth = '0';
    ok(tokens[0] > UINT64_C(5) << 32, "a later run's counts more");
    ok(tokens[1] > tokens[0] + UINT32_MAX, "and in it the later generation's");
}

static void test_no_root(void)
{
    const struct error why = {.code = EIO, .text = "rank 1: broken"};
    char away[sizeof(top) + 8];
    struct error e;

    snprintf(away, sizeof(away), "%s.away", top);
    rename(top, away);
    is_int(commit(60, N, UINT64_MAX, NULL, &e), -ENOENT, "no directory");
    is_int(commit(60, N, UINT64_MAX, &why, &e), -EIO, "which is not the reason");
    rename(away, top);
}

int main(void)
{
    str_copy(top, sizeof(top), "/tmp/snap_commit_test.XXXXXX");
    if (!mkdtemp(top)) {
        bail_out("no directory %s", top);
    }
    root = open(top, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    test_whole();
    test_not_whole();
    test_apart();
    test_short();
    test_keep();
    test_strays();
    test_verified();
    test_avoided();
    test_rule();
    test_late();
    test_twice();
    test_stopped();
    test_interrupted();
    test_generations();
    test_no_root();
    close(root);
    fs_remove_tree(top, NULL);
    return tap_done();
}
