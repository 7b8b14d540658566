/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Which checkpoints go once there is a new one, and which stay: by rules, by what somebody reads,
 * knows to be right or avoids; and what was never finished goes when it is too old to be kept.
 */
#include <config.h>

#include "launcher/snap_commit.h"

#include "base/cleanup.h"
#include "base/clock.h"
#include "launcher/commit_bed.h"
#include "launcher/snap_reread.h"
#include "ckpt/held.h"
#include "tests/lib/tap.h"

#include <errno.h>
#include <fcntl.h>
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

/* What it is to somebody: read by one that pushes it, or copies it, or started from. */
static enum { IS_PINNED, IS_COPIED, IS_SOURCE } is_what;

static struct snap_commit facts_beside(struct commit_bed *b, uint64_t step, uint64_t pinned,
                                       char uuid[COMMIT_UUID_BYTES], char name[STEP_NAME_BYTES])
{
    struct snap_commit c = commit_bed_facts(b, step, uuid);

    c.pinned = is_what == IS_PINNED ? name : NULL;
    c.copied = is_what == IS_COPIED ? name : NULL;
    c.source = is_what == IS_SOURCE ? name : NULL;
    commit_bed_name(b, pinned, name);
    return c;
}

static int commit_beside(struct commit_bed *b, uint64_t step, uint64_t pinned,
                         struct error *e)
{
    char uuid[COMMIT_UUID_BYTES], name[STEP_NAME_BYTES];
    struct snap_commit c = facts_beside(b, step, pinned, uuid, name);

    commit_bed_write(b, step, N);
    return commit_bed_run(&c, io_system(), NULL, e);
}

static void tidy_beside(struct commit_bed *b, uint64_t step, uint64_t pinned)
{
    char uuid[COMMIT_UUID_BYTES], name[STEP_NAME_BYTES];
    struct snap_commit c = facts_beside(b, step, pinned, uuid, name);

    snap_tidy(&c, io_system());
}

/* What the filesystem says that it has left, by the linker's hand; -1: it has no such
 * number, -2: it does not answer. */
static int64_t bytes_left = -1;
static int64_t root_bytes; /* more, which are kept for root */
static uid_t user = (uid_t)-1; /* who asks; -1: this one */

int __wrap_fstatvfs(int fd, struct statvfs *ret);
uid_t __real_geteuid(void);
uid_t __wrap_geteuid(void);

uid_t __wrap_geteuid(void)
{
    return user == (uid_t)-1 ? __real_geteuid() : user;
}

int __wrap_fstatvfs(int fd, struct statvfs *ret)
{
    (void)fd;
    *ret = (struct statvfs){.f_frsize = 1, .f_blocks = bytes_left >= 0};
    if (bytes_left >= 0) {
        ret->f_bfree = (fsblkcnt_t)(bytes_left + root_bytes);
        ret->f_bavail = (fsblkcnt_t)bytes_left;
    }
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
    root_bytes = 2;
    user = 0;
    ok(!snap_is_short(&c, io_system(), 2), "what is kept for root root has");
    user = 1;
    ok(snap_is_short(&c, io_system(), 2), "but nobody else");
    user = (uid_t)-1;
    root_bytes = 0;
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
    is_what = IS_COPIED;
    is_int(commit_beside(b, 38, 36, &e), 0, "one that is copied: %s", e.text);
    ok(commit_bed_has(b, 36, "COMMIT"), "stays as well");
    is_what = IS_SOURCE;
    tidy_beside(b, 38, 36);
    ok(commit_bed_has(b, 36, "COMMIT"), "and one that workers start from");
    is_what = IS_PINNED;
    is_int(commit_beside(b, 39, 38, &e), 0, "it was: %s", e.text);
    ok(!commit_bed_has(b, 36, ""), "and goes");
}

static void damage(struct commit_bed *b, uint64_t step)
{
    char name[STEP_NAME_BYTES], path[PATH_MAX];

    commit_bed_name(b, step, name);
    snprintf(path, sizeof(path), "%s/%s/r00001.safetensors", b->top, name);
    ok(truncate(path, BYTES - 2) == 0, "one is damaged");
}

/* Somebody may save what of it can be saved. */
static void test_damaged(struct commit_bed *b)
{
    commit_bed_save(b, 50);
    damage(b, 50);
    for (uint64_t step = 51; step <= 53; step++) {
        commit_bed_save(b, step);
    }
    ok(commit_bed_has(b, 50, "COMMIT") && commit_bed_has(b, 50, "r00000.safetensors"),
       "which stays, however old it is");
    ok(!commit_bed_has(b, 51, "") && commit_bed_has(b, 52, "COMMIT"), "and counts for none");
    for (uint64_t step = 50; step <= 53; step++) {
        commit_bed_remove(b, step);
    }
}

/* What is on its way is newer than the oldest that stays, or as old. */
static void test_unfinished(struct commit_bed *b)
{
    commit_bed_save(b, 50);
    commit_bed_write(b, 51, 1);
    commit_bed_save(b, 52);
    commit_bed_write(b, 53, 1);
    commit_bed_write(b, 54, 1);
    b->nth = 1;
    commit_bed_write(b, 50, 1);
    b->nth = 0;
    tidy_beside(b, 52, 0);
    ok(commit_bed_has(b, 51, "") && commit_bed_has(b, 53, "") && commit_bed_has(b, 54, ""),
       "others that are not finished are none of those that stay");
    b->nth = 1;
    ok(commit_bed_has(b, 50, ""), "nor is another save of the same step as one of these");
    commit_bed_remove(b, 50);
    b->nth = 0;
    for (uint64_t step = 50; step <= 54; step++) {
        commit_bed_remove(b, step);
    }
}

static int n_open(void)
{
    int n = 0;

    for (int fd = 0; fd < 256; fd++) {
        n += fcntl(fd, F_GETFD) >= 0;
    }
    return n;
}

/* An agent that leads commits and tidies up for weeks. */
static void test_no_leak(struct commit_bed *b)
{
    char uuid[COMMIT_UUID_BYTES];
    struct snap_commit c = commit_bed_facts(b, 51, uuid);
    struct error e = {0};
    bool is_last;
    int before;

    commit_bed_save(b, 50);
    commit_bed_save(b, 51);
    before = n_open();
    c.ret_is_last = &is_last;
    commit_bed_must(commit_bed_run(&c, io_system(), NULL, &e), &e);
    is_int(n_open(), before, "which leaves nothing open");
    commit_bed_remove(b, 50);
    commit_bed_remove(b, 51);
}

/* By a program that is not of the run, as muster ckpt push. */
static void test_held(struct commit_bed *b)
{
    char name[STEP_NAME_BYTES];
    struct error e;
    int held;

    commit_bed_name(b, 38, name);
    held = held_take(b->root, name);
    ok(held >= 0, "one is held");
    commit_bed_save(b, 40);
    commit_bed_save(b, 41);
    ok(commit_bed_has(b, 38, "COMMIT") && !commit_bed_has(b, 39, ""), "it stays beside others");
    close(held);
    is_int(commit_beside(b, 42, 0, &e), 0, "nobody holds it: %s", e.text);
    ok(!commit_bed_has(b, 38, ""), "it goes");
    for (uint64_t step = 40; step <= 42; step++) {
        commit_bed_remove(b, step);
    }
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

/* Others wait for nothing to be read. */
static void test_nothing_verified(struct commit_bed *b)
{
    char uuid[COMMIT_UUID_BYTES];
    struct snap_commit c = commit_bed_facts(b, 43, uuid);

    commit_verified(b, 40, "", 0);
    commit_bed_write(b, 39, 1);
    commit_verified(b, 41, "", 0);
    commit_verified(b, 42, "", 0);
    ok(!commit_bed_has(b, 39, ""), "what was never finished goes, whatever is known of others");
    commit_verified(b, 43, "", 40);
    ok(awaits, "one would go, but the oldest, which is read, would not");
    is_due = awaits = false;
    c.rule = (struct retain_rule){0};
    c.verified = "";
    c.ret_is_due = &is_due;
    c.ret_awaits = &awaits;
    snap_tidy(&c, io_system());
    ok(!is_due && !awaits, "where all are kept none is to be read");
    for (uint64_t step = 39; step <= 43; step++) {
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
    commit_avoided(b, 50, NULL);
    commit_bed_write(b, 51, 1);
    commit_avoided(b, 52, NULL);
    commit_avoided(b, 53, lines);
    ok(commit_bed_has(b, 51, "r00000.part"), "nor does it make older what is on its way");
    for (uint64_t step = 50; step <= 53; step++) {
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
    c.best = NULL;
    save_with(b, 701, "{}", (struct retain_rule){.keep = 2});
    snap_tidy(&c, io_system());
    ok(!commit_bed_has(b, 701, "") && !lacks_best, "not where none is asked for");
    c.best = "m.loss";
    save_with(b, 703, "{\"m\":{\"loss\":1}}", rule);
    say_left(b, left, sizeof(left));
    is_str(left, "703 ", "and when one has it");
    snap_tidy(&c, io_system());
    ok(!lacks_best, "then nothing is said");
    commit_bed_remove(b, 703);
}

int main(void)
{
    struct commit_bed b = {0};

    commit_bed_make(&b, "snap_commit_keep_test");
    test_short(&b);
    test_keep(&b);
    test_held(&b);
    test_damaged(&b);
    test_unfinished(&b);
    test_no_leak(&b);
    test_strays(&b);
    test_verified(&b);
    test_nothing_verified(&b);
    test_avoided(&b);
    test_rule(&b);
    test_no_best(&b);
    commit_bed_close(&b);
    return tap_done();
}
