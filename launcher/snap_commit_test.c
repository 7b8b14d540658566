/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A save of which all files are there becomes a checkpoint, whoever has said so; of one that
 * misses a file nothing is left.
 */
#include <config.h>

#include "launcher/snap_commit.h"

#include "base/cleanup.h"
#include "launcher/commit_bed.h"
#include "tests/lib/tap.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum { N = COMMIT_BED_RANKS, BYTES = COMMIT_BED_BYTES };

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

/* Directories are named after the first digits of a save alone. */
static void test_same_name(struct commit_bed *b)
{
    const struct error why = {.code = EIO, .text = "rank 1: broken"};
    char uuid[COMMIT_UUID_BYTES];
    struct snap_commit c = commit_bed_facts(b, 26, uuid);
    bool was_there = true, is_last = true;
    struct error e = {0};

    commit_bed_save(b, 26);
    uuid[COMMIT_UUID_BYTES - 2] = '1';
    c.ret_was_there = &was_there;
    c.ret_is_last = &is_last;
    is_int(snap_commit(&c, io_system(), NULL, &e), -EEXIST, "another save has that name");
    like(e.text, "is of another save", "%s", e.text);
    ok(!was_there && !is_last, "it is not that one");
    is_int(snap_commit(&c, io_system(), &why, &e), -EEXIST, "nor if it has failed");
    ok(commit_bed_has(b, 26, "COMMIT") && commit_bed_has(b, 26, "r00001.safetensors"),
       "which stays a checkpoint");
    commit_bed_remove(b, 26);
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
    test_same_name(&b);
    test_apart(&b);
    test_no_root(&b);
    commit_bed_close(&b);
    return tap_done();
}
