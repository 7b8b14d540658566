/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A save of which all files are there becomes a checkpoint, whoever has said so; of
 * one that misses a file nothing is left; and what was never finished goes when it is
 * too old to be kept.
 */
#include <config.h>

#include "launcher/snap_commit.h"

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/fs.h"
#include "base/machine.h"
#include "base/proc.h"
#include "launcher/commit_bed.h"
#include "launcher/snap_reread.h"
#include "tests/lib/tap.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/statvfs.h>
#include <unistd.h>

enum { N = COMMIT_BED_RANKS, BYTES = COMMIT_BED_BYTES };

/* As a rule says, with a metric beside. */
static void save_with(struct commit_bed *b, uint64_t step, const char *state,
                      struct retain_rule rule)
{
    char uuid[COMMIT_UUID_BYTES];
    struct snap_commit c = commit_bed_facts(b, step, uuid);
    struct error e = {0};

    c.rule = rule;
    c.best = "m.loss";
    b->state = state;
    commit_bed_write(b, step, N);
    b->state = NULL;
    commit_bed_must(commit_bed_run(&c, io_system(), NULL, &e), &e);
}

/* That is read by one that pushes it, or copies it. */
static bool is_copied;

static int commit_beside(struct commit_bed *b, uint64_t step, uint64_t pinned,
                         struct error *e)
{
    char uuid[COMMIT_UUID_BYTES];
    struct snap_commit c = commit_bed_facts(b, step, uuid);
    char name[STEP_NAME_BYTES];

    c.pinned = is_copied ? NULL : name;
    c.copied = is_copied ? name : NULL;
    commit_bed_name(b, pinned, name);
    commit_bed_write(b, step, N);
    return commit_bed_run(&c, io_system(), NULL, e);
}

static void test_whole(struct commit_bed *b)
{
    struct error e, why = {.code = EIO, .text = "rank 1: broken"};

    commit_bed_write(b, 10, N);
    is_int(commit_bed_commit(b, 10, 1, UINT64_MAX, NULL, &e), 0,
           "all is there, although one was not heard of: %s", e.text);
    ok(commit_bed_has(b, 10, "COMMIT"), "it is a checkpoint");
    ok(!commit_bed_has(b, 10, "r00000.part"), "the parts are gone");
    is_int(commit_bed_commit(b, 10, 1, UINT64_MAX, &why, &e), 0,
           "one that is a checkpoint stays one");
    ok(commit_bed_has(b, 10, "COMMIT"), "it does");
}

static void test_not_whole(struct commit_bed *b)
{
    struct error e, why = {.code = EIO, .text = "rank 1: broken"};

    commit_bed_write(b, 20, 1);
    is_int(commit_bed_commit(b, 20, 1, UINT64_MAX, NULL, &e), -ECONNABORTED,
           "one is missing");
    ok(strstr(e.text, "1 of 2 ranks"), "it says how many: %s", e.text);
    ok(!commit_bed_has(b, 20, ""), "nothing is left of it");
    commit_bed_write(b, 21, N);
    is_int(commit_bed_commit(b, 21, N, UINT64_MAX, &why, &e), -EIO, "one has failed");
    is_str(e.text, why.text, "it says of what");
    ok(!commit_bed_has(b, 21, ""), "nothing is left of it");
    is_int(commit_bed_commit(b, 22, 0, UINT64_MAX, NULL, &e), -ECONNABORTED,
           "one that nobody has begun to write");
}

/* Of two saves of one step files were put together. */
static void test_mixed(struct commit_bed *b)
{
    static const char *const files[] = {"r00001.part", "r00001.safetensors"};
    char own[STEP_NAME_BYTES], other[STEP_NAME_BYTES], from[PATH_MAX], to[PATH_MAX];
    struct error e;

    for (size_t i = 0; i < ARRAY_SIZE(files); i++) {
        commit_bed_write(b, 25, N);
        commit_bed_name(b, 25, own);
        b->nth++;
        commit_bed_write(b, 25, N);
        commit_bed_name(b, 25, other);
        snprintf(from, sizeof(from), "%s/%s/%s", b->top, other, files[i]);
        snprintf(to, sizeof(to), "%s/%s/%s", b->top, own, files[i]);
        b->nth--;
        if (i == 0) {
            ok(rename(from, to) == 0, "the part of another save");
            is_int(commit_bed_commit(b, 25, N, UINT64_MAX, NULL, &e), -ERR_FORMAT,
                   "is no part of this one");
            like(e.text, "r00001.part: the part of rank 1 of 2 is that of", "which is said");
        } else {
            ok(truncate(to, BYTES + 1) == 0, "a file of another length");
            is_int(commit_bed_commit(b, 25, N, UINT64_MAX, NULL, &e), -ENODATA, "is none");
            like(e.text, "r00001.safetensors has 9 bytes: expected 8", "which is said");
        }
        ok(!commit_bed_has(b, 25, ""), "nothing is left of it");
        b->nth++;
        commit_bed_remove(b, 25);
        b->nth--;
    }
}

/* A server that does not let anybody look, from the n-th time on; or only until then, when
 * there is nothing yet. */
struct shut {
    struct io io;
    struct io_ops ops;
    int after;
    bool is_early;
};

static int open_none(struct io *io, int dir, const char *name)
{
    struct shut *s = (struct shut *)io;

    return strcmp(name, "COMMIT") == 0 && (s->after-- <= 0) != s->is_early
               ? (s->is_early ? -ENOENT : -EMFILE)
               : io_system()->ops->open_file(io_system(), dir, name);
}

static struct io *shut(struct shut *s, int after)
{
    *s = (struct shut){.ops = *io_system()->ops, .after = after};
    s->ops.open_file = open_none;
    s->io.ops = &s->ops;
    return &s->io;
}

static struct io *shut_early(struct shut *s)
{
    struct io *io = shut(s, 1);

    s->is_early = true;
    return io;
}

/* One that is there already, which says so. */
static void test_there(struct commit_bed *b)
{
    char uuid[COMMIT_UUID_BYTES];
    struct snap_commit c = commit_bed_facts(b, 23, uuid);
    struct error e = {0};
    bool was_there = true;
    struct shut s;

    c.ret_was_there = &was_there;
    commit_bed_write(b, 23, N);
    is_int(snap_commit(&c, io_system(), NULL, &e), 0, "it is one");
    ok(!was_there && e.code == 0, "only now");
    is_int(snap_commit(&c, io_system(), NULL, &e), 0, "it still is");
    ok(was_there && e.code == 0, "as it was before");
    is_int(snap_commit(&c, shut_early(&s), NULL, &e), 0, "another lead makes it one meanwhile");
    ok(was_there && e.code == 0, "which is no failure");
    commit_bed_remove(b, 23);
}

/* What has a COMMIT, or may have one, is not taken for one that was never finished. */
static void test_left_alone(struct commit_bed *b)
{
    const struct error why = {.code = EIO, .text = "rank 1: broken"};
    char uuid[COMMIT_UUID_BYTES], name[STEP_NAME_BYTES], path[PATH_MAX];
    struct snap_commit c = commit_bed_facts(b, 24, uuid);
    struct error e = {0};
    struct shut s;

    commit_bed_save(b, 24);
    is_int(snap_commit(&c, shut(&s, 0), NULL, &e), -EMFILE, "one at which nobody can look");
    is_int(snap_commit(&c, shut(&s, 0), &why, &e), -EMFILE, "nor of which a rank has failed");
    ok(commit_bed_has(b, 24, "COMMIT") && commit_bed_has(b, 24, "r00001.safetensors"),
       "stays a checkpoint");
    commit_bed_name(b, 24, name);
    snprintf(path, sizeof(path), "%s/%s/r00001.safetensors", b->top, name);
    ok(truncate(path, BYTES - 2) == 0, "a file of it is cut");
    is_int(snap_commit(&c, io_system(), NULL, &e), -ERR_FORMAT, "so it is none");
    like(e.text, "r00001.safetensors is cut", "for that");
    is_int(snap_commit(&c, io_system(), &why, &e), -ERR_FORMAT, "whatever a rank says");
    ok(commit_bed_has(b, 24, "COMMIT") && commit_bed_has(b, 24, "r00000.safetensors"),
       "and nothing of it is taken away");
    commit_bed_remove(b, 24);
    c = commit_bed_facts(b, 25, uuid);
    c.n_written = 1;
    commit_bed_write(b, 25, 1);
    is_int(snap_commit(&c, shut(&s, 1), NULL, &e), -ECONNABORTED, "one that misses a rank");
    ok(commit_bed_has(b, 25, "r00000.part"), "stays where nobody can tell what it is");
    is_int(snap_commit(&c, io_system(), NULL, &e), -ECONNABORTED, "where that can be told");
    ok(!commit_bed_has(b, 25, ""), "nothing is left of it");
}

/* Who waits for it is told before anything goes. */
static void test_apart(struct commit_bed *b)
{
    char uuid[COMMIT_UUID_BYTES];
    struct snap_commit c = commit_bed_facts(b, 21, uuid);
    struct error e = {0};

    c.rule.keep = 1;
    commit_bed_save(b, 20);
    commit_bed_write(b, 21, N);
    is_int(snap_commit(&c, io_system(), NULL, &e), 0, "it is one: %s", e.text);
    ok(commit_bed_has(b, 21, "COMMIT") && commit_bed_has(b, 20, "COMMIT"),
       "and nothing has gone yet");
    snap_tidy(&c, io_system());
    ok(commit_bed_has(b, 21, "COMMIT") && !commit_bed_has(b, 20, ""),
       "until that is asked for");
    commit_bed_remove(b, 21);
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

static void test_short(struct commit_bed *b)
{
    char uuid[COMMIT_UUID_BYTES];
    const struct snap_commit c = commit_bed_facts(b, 22, uuid);
    char name[STEP_NAME_BYTES];
    _step_ struct step s = {0};
    struct error e = {0};

    ok(snap_is_short(&c, io_system(), 2), "who does not find it says so, to be safe");
    commit_bed_save(b, 22);
    commit_bed_name(b, 22, name);
    commit_bed_must(step_open(io_system(), b->root, name, &s, &e), &e);
    ok(!snap_is_short(&c, io_system(), 2), "a filesystem without an end");
    bytes_left = 2 * (int64_t)s.commit.total_bytes;
    ok(!snap_is_short(&c, io_system(), 2), "with room for two more");
    bytes_left -= 2;
    ok(snap_is_short(&c, io_system(), 2) && !snap_is_short(&c, io_system(), 1),
       "with less, but for one");
    bytes_left = -2;
    ok(snap_is_short(&c, io_system(), 2), "one that does not say it");
    bytes_left = -1;
    commit_bed_remove(b, 22);
}

static void test_keep(struct commit_bed *b)
{
    struct error e;

    commit_bed_save(b, 30);
    commit_bed_write(b, 31, 1);
    commit_bed_save(b, 32);
    ok(commit_bed_has(b, 31, "r00000.part"), "unfinished, and newer than one that stays");
    commit_bed_save(b, 33);
    ok(!commit_bed_has(b, 30, ""), "the third is gone");
    ok(!commit_bed_has(b, 31, ""), "what was not finished before both, too");
    commit_bed_write(b, 29, 1);
    commit_bed_write(b, 31, 1);
    commit_bed_write(b, 34, N);
    is_int(commit_bed_commit(b, 34, N, 31, NULL, &e), 0, "one more: %s", e.text);
    ok(!commit_bed_has(b, 29, "") && commit_bed_has(b, 31, ""),
       "others may be saving: no older ones than they say");
    is_int(commit_beside(b, 35, 33, &e), 0, "one that somebody reads: %s", e.text);
    is_int(commit_beside(b, 36, 33, &e), 0, "and another: %s", e.text);
    ok(commit_bed_has(b, 33, "COMMIT") && !commit_bed_has(b, 34, ""),
       "stays, and no other one");
    is_int(commit_beside(b, 37, 36, &e), 0, "it was read: %s", e.text);
    ok(!commit_bed_has(b, 33, ""), "it goes");
    is_copied = true;
    is_int(commit_beside(b, 38, 36, &e), 0, "one that is copied: %s", e.text);
    ok(commit_bed_has(b, 36, "COMMIT"), "stays as well");
    is_copied = false;
    is_int(commit_beside(b, 39, 38, &e), 0, "it was: %s", e.text);
    ok(!commit_bed_has(b, 36, ""), "and goes");
}

static int commit_known(struct commit_bed *b, uint64_t step, uint64_t known_ms,
                        struct snap_strays *strays)
{
    char uuid[COMMIT_UUID_BYTES];
    struct snap_commit c = commit_bed_facts(b, step, uuid);

    c.known_ms = known_ms;
    c.strays = strays;
    return commit_bed_run(&c, io_system(), NULL, NULL);
}

/* One of a step below those that are kept may have begun just now, by workers that have
 * started from an older one: the lead has not heard of it yet. */
static void test_strays(struct commit_bed *b)
{
    struct snap_strays strays = {0};

    commit_bed_save(b, 80);
    commit_bed_save(b, 81);
    commit_bed_write(b, 61, N);
    commit_bed_write(b, 60, 1);
    is_int(commit_known(b, 61, clock_mono_ms(), &strays), 0, "an earlier step");
    ok(commit_bed_has(b, 60, "r00000.part"),
       "another one that was begun meanwhile is left alone");
    commit_bed_write(b, 62, N);
    is_int(commit_known(b, 62, clock_mono_ms(), &strays), 0, "and one more");
    ok(commit_bed_has(b, 60, "r00000.part"), "also by that");
    commit_bed_write(b, 83, N);
    is_int(commit_known(b, 83, clock_mono_ms() + SNAP_STRAYS_MS, &strays), 0,
           "once whoever writes it would have told");
    ok(!commit_bed_has(b, 60, ""), "it is nobody's, and goes");
    for (uint64_t step = 60; step <= 83; step++) {
        commit_bed_remove(b, step);
    }
}

static void say_left(struct commit_bed *b, char *to, size_t size)
{
    _free_ struct step_entry *entries = NULL;
    struct error e = {0};
    size_t n = 0;

    commit_bed_must(step_list(io_system(), b->root, &entries, &n, &e), &e);
    *to = '\0';
    for (size_t i = 0; i < n; i++) {
        snprintf(to + strlen(to), size - strlen(to), "%d ", (int)entries[i].step);
    }
}

static bool is_due, awaits;

static void commit_verified(struct commit_bed *b, uint64_t step, const char *verified,
                            uint64_t checking)
{
    char uuid[COMMIT_UUID_BYTES];
    struct snap_commit c = commit_bed_facts(b, step, uuid);
    char name[STEP_NAME_BYTES];
    struct error e = {0};

    c.verified = verified;
    c.checking = name;
    c.ret_is_due = &is_due;
    c.ret_awaits = &awaits;
    commit_bed_name(b, checking, name);
    commit_bed_write(b, step, N);
    is_int(commit_bed_run(&c, io_system(), NULL, &e), 0, "step %d: %s", (int)step, e.text);
}

/* The newest of which somebody knows that it is right does not give way to those of which
 * nobody does. */
static void test_verified(struct commit_bed *b)
{
    char first[STEP_NAME_BYTES], third[STEP_NAME_BYTES], path[PATH_MAX];
    struct reread_gate open;
    struct error e = {0};

    reread_gate_init(&open);
    commit_bed_name(b, 40, first);
    commit_verified(b, 40, "", 0);
    ok(is_due && !awaits, "nothing would go if the first were right");
    commit_verified(b, 41, "", 0);
    commit_verified(b, 42, "", 0);
    ok(is_due && commit_bed_has(b, 40, "COMMIT"),
       "nobody knows of any: none goes, one is due");
    ok(awaits, "and one would go");
    is_int(snap_reread(b->top, first, &open, false, &e), 0, "one is read: %s", e.text);
    commit_verified(b, 43, first, 41);
    ok(is_due && commit_bed_has(b, 40, "COMMIT") && commit_bed_has(b, 41, "COMMIT"),
       "that one stays, and one that is read");
    commit_verified(b, 44, first, 42);
    ok(!commit_bed_has(b, 41, "") && commit_bed_has(b, 42, "COMMIT"), "the others go");
    commit_bed_name(b, 42, third);
    commit_verified(b, 45, third, 0);
    ok(is_due && !commit_bed_has(b, 40, ""), "it goes when a newer one was right");
    commit_bed_name(b, 45, third);
    commit_verified(b, 46, third, 0);
    ok(!is_due && !commit_bed_has(b, 42, "") && commit_bed_has(b, 45, ""),
       "where it is kept none is due");
    ok(!awaits, "nor would any go");
    snprintf(path, sizeof(path), "%s/%s/r00001.safetensors", b->top, third);
    ok(truncate(path, BYTES - 2) == 0 && truncate(path, BYTES) == 0, "a byte is lost");
    is_int(snap_reread(b->top, third, &open, false, &e), -ERR_FORMAT, "which is found");
    like(e.text, "r00001.safetensors", "and where");
    is_int(snap_reread(b->top, first, &open, false, &e), -ENOENT, "one that is gone");
    reread_gate_destroy(&open);
    for (uint64_t step = 40; step <= 46; step++) {
        commit_bed_remove(b, step);
    }
}

static void commit_avoided(struct commit_bed *b, uint64_t step, const char *avoided)
{
    char uuid[COMMIT_UUID_BYTES];
    struct snap_commit c = commit_bed_facts(b, step, uuid);
    struct error e = {0};

    c.avoided = avoided;
    commit_bed_write(b, step, N);
    is_int(commit_bed_run(&c, io_system(), NULL, &e), 0, "step %d: %s", (int)step, e.text);
}

/* From some nobody starts for now: they count for nothing, and stay. */
static void test_avoided(struct commit_bed *b)
{
    char name[STEP_NAME_BYTES], lines[PATH_MAX + STEP_NAME_BYTES + 2];

    commit_bed_name(b, 52, name);
    snprintf(lines, sizeof(lines), "%s/%s\n", b->top, name);
    commit_avoided(b, 50, NULL);
    commit_avoided(b, 52, NULL);
    commit_avoided(b, 51, lines);
    ok(commit_bed_has(b, 50, "COMMIT") && commit_bed_has(b, 51, "COMMIT") &&
           commit_bed_has(b, 52, "COMMIT"),
       "two are kept besides one that is avoided");
    commit_avoided(b, 53, lines);
    ok(!commit_bed_has(b, 50, "") && commit_bed_has(b, 51, "COMMIT") &&
           commit_bed_has(b, 52, "COMMIT"),
       "which stays");
    commit_avoided(b, 54, "");
    ok(!commit_bed_has(b, 51, "") && !commit_bed_has(b, 52, "") &&
           commit_bed_has(b, 53, "COMMIT"),
       "once it is one like any other it goes as they do");
    for (uint64_t step = 50; step <= 54; step++) {
        commit_bed_remove(b, step);
    }
}

/* Multiples and the best stay, as in a directory that is pruned by hand. */
static void test_rule(struct commit_bed *b)
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
            save_with(b, 700 + k, state, cases[i].rule);
        }
        say_left(b, left, sizeof(left));
        is_str(left, cases[i].want, "which stay, %d", (int)i);
        for (size_t k = 0; k < ARRAY_SIZE(losses); k++) {
            commit_bed_remove(b, 700 + k);
        }
    }
    commit_bed_write(b, 700, 1);
    save_with(b, 701, "{}", (struct retain_rule){.keep = 1, .every = 100});
    ok(!commit_bed_has(b, 700, ""), "what was never finished is no multiple");
    commit_bed_remove(b, 701);
}

/* A name that is misspelt, or nothing was measured yet. */
static void test_no_best(struct commit_bed *b)
{
    const struct retain_rule rule = {.keep = 1};
    char uuid[COMMIT_UUID_BYTES], left[128];
    bool lacks_best = false;
    struct snap_commit c;

    for (uint64_t step = 700; step < 703; step++) {
        save_with(b, step, "{\"m\":{\"los\":1}}", rule);
    }
    say_left(b, left, sizeof(left));
    is_str(left, "702 ", "where none has the metric they go by their age");
    save_with(b, 701, "{\"m\":{\"los\":1}}", (struct retain_rule){.keep = 2});
    c = commit_bed_facts(b, 702, uuid);
    c.rule = rule;
    c.best = "m.loss";
    c.ret_lacks_best = &lacks_best;
    snap_tidy(&c, io_system());
    ok(lacks_best, "which is said");
    save_with(b, 703, "{\"m\":{\"loss\":1}}", rule);
    say_left(b, left, sizeof(left));
    is_str(left, "703 ", "and when one has it");
    snap_tidy(&c, io_system());
    ok(!lacks_best, "then nothing is said");
    commit_bed_remove(b, 703);
}

/* Of two leads one may come late. */
static void test_late(struct commit_bed *b)
{
    struct error e;

    commit_bed_save(b, 50);
    commit_bed_save(b, 51);
    commit_bed_write(b, 49, N);
    is_int(commit_bed_commit(b, 49, N, UINT64_MAX, NULL, &e), 0, "an older one: %s", e.text);
    ok(commit_bed_has(b, 50, "COMMIT") && commit_bed_has(b, 51, "COMMIT"), "the newest stay");
}

/* Of two of one step the later one counts, whoever made it. */
static void test_twice(struct commit_bed *b)
{
    uint64_t first;

    commit_bed_save(b, 55);
    first = commit_bed_token(b, 55);
    b->nth = 1;
    commit_bed_save(b, 55);
    ok(commit_bed_token(b, 55) > first, "the later one of a step has a higher token");
    b->nth = 0;
}

/* Whoever leads next hears of both, in any order. */
static void test_last(struct commit_bed *b)
{
    struct error e = {0};
    bool is_last[4];

    commit_bed_clear(b);
    for (size_t i = 0; i < 4; i++) {
        char uuid[COMMIT_UUID_BYTES];
        struct snap_commit c;

        b->nth = i % 2 ? 1 : 3;
        c = commit_bed_facts(b, 56, uuid);
        c.ret_is_last = &is_last[i];
        if (i < 2) {
            commit_bed_write(b, 56, N);
        }
        commit_bed_must(snap_commit(&c, io_system(), NULL, &e), &e);
    }
    b->nth = 0;
    ok(is_last[0] && is_last[1], "what is made counts");
    ok(!is_last[2] && is_last[3], "of both that are there the later one does");
}

/* Nor do their names say which of them stay. */
static void test_many(struct commit_bed *b)
{
    static const unsigned order[] = {3, 5, 1, 4, 2};

    commit_bed_clear(b);
    for (size_t i = 0; i < ARRAY_SIZE(order); i++) {
        b->nth = order[i];
        commit_bed_save(b, 57);
    }
    for (size_t i = 0; i < ARRAY_SIZE(order); i++) {
        b->nth = order[i];
        ok(commit_bed_has(b, 57, "COMMIT") == (i >= 3), "save %d of a step, where two are kept",
           (int)i + 1);
    }
    b->nth = 0;
}

/* Two that do not know of each other, above one of a run before. */
static void test_generations(struct commit_bed *b)
{
    struct error e;
    uint64_t tokens[2];

    commit_bed_clear(b);
    for (uint32_t i = 0; i < 3; i++) {
        char uuid[COMMIT_UUID_BYTES];
        struct snap_commit c = commit_bed_facts(b, 80, uuid);

        c.rule = (struct retain_rule){0};
        c.gather.generation = i == 0 ? 5 : i;
        c.gather.token = (uint64_t)c.gather.generation << 32;
        commit_bed_write(b, 80, N);
        commit_bed_must(commit_bed_run(&c, io_system(), NULL, &e), &e);
        if (i > 0) {
            tokens[i - 1] = commit_bed_token(b, 80);
            commit_bed_remove(b, 80);
        }
        b->nth++;
    }
    b->nth = 0;
    ok(tokens[0] > UINT64_C(5) << 32, "a later run's counts more");
    ok(tokens[1] > tokens[0] + UINT32_MAX, "and in it the later generation's");
}

static struct snap_lease *lease_of(struct commit_bed *b, const char *run,
                                   const struct office *office)
{
    struct lease_note own = {.pid = getpid(), .is_alone = true};
    char machine[MACHINE_ID_BYTES];
    struct snap_lease *l = NULL;
    struct proc self = {0};
    struct error e = {0};

    machine_id(machine, sizeof(machine));
    proc_read(getpid(), &self);
    own.start = self.start;
    lease_note_put(&own, run, "here", machine);
    commit_bed_must(snap_lease_create(b->top, &own, office, &l, &e), &e);
    return l;
}

static void end_lease(struct snap_lease *l)
{
    uint64_t end_ms = clock_mono_ms() + 20000;

    snap_lease_drop(l);
    while (!snap_lease_end(l)) {
        if (clock_mono_ms() > end_ms) {
            bail_out("the thread of a lease does not end");
        }
        usleep(1000);
    }
}

static int run_as(struct commit_bed *b, uint64_t step, struct snap_lease *l, struct error *e)
{
    char uuid[COMMIT_UUID_BYTES];
    struct snap_commit c = commit_bed_facts(b, step, uuid);

    c.rule = (struct retain_rule){.keep = 1};
    c.lease = l;
    commit_bed_write(b, step, N);
    *e = (struct error){0};
    return commit_bed_run(&c, io_system(), NULL, e);
}

/* Another run that saves there: nothing of either is taken for the other's. */
static void test_other_run(struct commit_bed *b)
{
    struct office office;
    struct snap_lease *one, *other;
    char uuid[COMMIT_UUID_BYTES], path[PATH_MAX];
    struct snap_commit c;
    struct error e;

    commit_bed_clear(b);
    office_begin(&office);
    one = lease_of(b, "one", &office);
    other = lease_of(b, "other", &office);
    is_int(run_as(b, 91, one, &e), 0, "a run saves: %s", e.text);
    commit_bed_write(b, 90, 1);
    is_int(run_as(b, 95, other, &e), -EBUSY, "another one does not");
    like(e.text, b->top, "is told where: %s", e.text);
    like(e.text, "run one on here saves there", "and who does");
    ok(commit_bed_has(b, 91, "COMMIT") && commit_bed_has(b, 90, "r00000.part"),
       "what is there stays");
    ok(!commit_bed_has(b, 95, ""), "but for its own");
    c = commit_bed_facts(b, 95, uuid);
    c.rule = (struct retain_rule){.keep = 1};
    c.lease = other;
    commit_bed_save(b, 94); /* by one who does not ask */
    snap_tidy(&c, io_system());
    ok(commit_bed_has(b, 91, "COMMIT") && commit_bed_has(b, 94, "COMMIT"),
       "nor does it tidy up there");
    is_int(run_as(b, 96, one, &e), 0, "the first one goes on: %s", e.text);
    ok(!commit_bed_has(b, 91, "") && !commit_bed_has(b, 94, ""), "and tidies up");
    snap_lease_hurry(other);
    snprintf(path, sizeof(path), "%s/.muster-run-one", b->top);
    fs_write_replace(path, "?", 1, NULL); /* of whom nobody knows whether it is alive */
    is_int(run_as(b, 93, other, &e), -ECANCELED, "one that ends does not wait: %s", e.text);
    ok(commit_bed_has(b, 93, "r00000.part"), "what it has written stays, for its next life");
    unlink(path);
    end_lease(other);
    other = lease_of(b, "other", &office);
    end_lease(one);
    is_int(run_as(b, 97, other, &e), 0, "once it is over the other one saves: %s", e.text);
    end_lease(other);
    commit_bed_clear(b);
}

static void test_no_root(struct commit_bed *b)
{
    const struct error why = {.code = EIO, .text = "rank 1: broken"};
    char away[sizeof(b->top) + 8];
    struct error e;

    snprintf(away, sizeof(away), "%s.away", b->top);
    rename(b->top, away);
    is_int(commit_bed_commit(b, 60, N, UINT64_MAX, NULL, &e), -ENOENT, "no directory");
    is_int(commit_bed_commit(b, 60, N, UINT64_MAX, &why, &e), -EIO, "which is not the reason");
    rename(away, b->top);
}

int main(void)
{
    struct commit_bed b = {0};

    commit_bed_make(&b, "snap_commit_test");
    test_whole(&b);
    test_mixed(&b);
    test_not_whole(&b);
    test_there(&b);
    test_left_alone(&b);
    test_apart(&b);
    test_short(&b);
    test_keep(&b);
    test_strays(&b);
    test_verified(&b);
    test_avoided(&b);
    test_rule(&b);
    test_no_best(&b);
    test_late(&b);
    test_twice(&b);
    test_last(&b);
    test_many(&b);
    test_generations(&b);
    test_other_run(&b);
    test_no_root(&b);
    commit_bed_close(&b);
    return tap_done();
}
