/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a watch reads, once nobody writes to it, and which of what is there is chosen to start
 * from.
 */
#include <config.h>

#include "ckpt/watch_bed.h"

#include "tests/lib/tap.h"

#include <errno.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

static void test_looks(void)
{
    struct watch_entry *entry;
    struct watch_bed b;

    watch_bed_open(&b);
    watch_bed_look(&b, 0);
    watch_bed_put(&b, "m-1.safetensors", 0);
    watch_bed_put(&b, "m-2.safetensors", 0);
    watch_bed_put(&b, "last", 0);
    symlinkat("m-2.safetensors", b.dir, "last.safetensors");
    watch_bed_look(&b, 2); /* no link, and nothing of another kind */
    ok(!watch_next(&b.w, 1), "at first it may still be written to");
    watch_bed_look(&b, 2);
    entry = watch_next(&b.w, 1);
    is_str(entry ? entry->found.name : "", "m-2.safetensors", "the newest first");
    is_int(entry ? watch_check(&b.w, b.dir, entry) : -1, 0, "it is whole");
    ok(!watch_next(&b.w, 1), "older ones are left alone then");
    watch_bed_look(&b, 2);
    ok(!watch_next(&b.w, 1), "and it is not read again");
    watch_bed_put(&b, "m-2.safetensors", 1);
    watch_bed_look(&b, 2);
    entry = watch_next(&b.w, 1);
    is_str(entry ? entry->found.name : "", "m-1.safetensors",
           "one that was written to has to be still once more");
    watch_bed_close(&b);
}

static void test_choice(void)
{
    struct watch_bed b;

    watch_bed_open(&b);
    is_str(watch_bed_choose(&b), "", "of nothing");
    watch_bed_put(&b, "m-1.safetensors", 0);
    watch_bed_put(&b, "m-2.safetensors", 0);
    watch_bed_put(&b, "m-3.safetensors", 5);
    watch_bed_put(&b, "m-4\n.safetensors", 5);
    watch_bed_put(&b, "m.safetensors", 0);
    mkdirat(b.dir, "checkpoint-9", 0700);
    is_str(watch_bed_choose(&b), "m-2.safetensors", "the newest that is whole");
    is_str(b.passed, "checkpoint-9 m-4\n.safetensors m-3.safetensors ",
           "over those that are not");
    unlinkat(b.dir, "m-2.safetensors", 0);
    is_str(watch_bed_choose(&b), "m-1.safetensors", "or the one before");
    unlinkat(b.dir, "m-1.safetensors", 0);
    is_str(watch_bed_choose(&b), "m.safetensors", "or one that says no step");
    watch_bed_put(&b, "m.safetensors", 1);
    is_str(watch_bed_choose(&b), "", "or none");
    watch_bed_close(&b);
}

static void test_parts(void)
{
    struct watch_bed b;

    watch_bed_open(&b);
    watch_bed_put_text(&b, "training_args.bin", "\x80\x02}.");
    watch_bed_put_text(&b, "optimizer-9.pt", "\x80\x02}.");
    watch_bed_put(&b, "model.safetensors", 0);
    watch_bed_put(&b, "model-00001-of-00003.safetensors", 0);
    watch_bed_look(&b, 0);
    is_str(watch_bed_choose(&b), "", "what belongs to one is none");
    watch_bed_put_text(&b, "epoch=1-val_loss=0.9.ckpt", "\x80\x02}.");
    watch_bed_put_text(&b, "epoch=2-val_loss=0.31.ckpt", "\x80\x02}.");
    watch_bed_put_text(&b, "epoch=10-val_loss=0.32.ckpt", "\x80\x02}.");
    is_str(watch_bed_choose(&b), "epoch=10-val_loss=0.32.ckpt", "by the epoch");
    watch_bed_close(&b);
}

static void test_settled(void)
{
    struct watch_bed b;

    watch_bed_open(&b);
    watch_bed_put(&b, "m-1.safetensors", 0);
    watch_bed_look(&b, 1);
    ok(!watch_next(&b.w, 1), "what was seen once may be written to, and is not read");
    watch_settle(&b.w);
    ok(watch_next(&b.w, 1), "but where nobody writes any more");
    watch_bed_close(&b);
}

/* From some nobody starts for now: they count for nothing, and stay. */
static void test_avoided(void)
{
    const struct retain_rule rule = {.keep = 2};
    struct watch_bed b;

    watch_bed_open(&b);
    watch_bed_put(&b, "m-1.safetensors", 0);
    watch_bed_put(&b, "m-2.safetensors", 0);
    watch_bed_put(&b, "m-3.safetensors", 0);
    watch_bed_put(&b, "m-4.safetensors", 0);
    watch_bed_look(&b, 4);
    watch_bed_look(&b, 4);
    b.w.avoided = "/elsewhere/m-9.safetensors\n/c/m-4.safetensors\n";
    is_str(watch_bed_choose(&b), "m-3.safetensors", "the newest of the others");
    is_str(b.passed, "", "that is no fault of it");
    while (b.w.n && watch_next(&b.w, 9)) {
        (void)watch_check(&b.w, b.dir, watch_next(&b.w, 9));
    }
    watch_retain(&b.w, b.dir, &rule, NULL, NULL, watch_bed_count, &b);
    is_str(b.passed, "m-1.safetensors ", "two others are kept, and that one");
    b.w.avoided = "/c/m-4.safetensors\n/c/m-3.safetensors\n/c/m-2.safetensors\n"
                  "/c/m-1.safetensors\n";
    is_str(watch_bed_choose(&b), "", "of all there is none");
    watch_bed_put(&b, "m-5.safetensors", 5);
    b.w.avoided = NULL;
    is_str(watch_bed_choose(&b), "m-4.safetensors", "one that is damaged");
    is_str(b.passed, "m-5.safetensors ", "is told of");
    b.w.avoided = "/c/m-5.safetensors\n";
    is_str(watch_bed_choose(&b), "m-4.safetensors", "but where it is avoided");
    is_str(b.passed, "", "it is not");
    unlinkat(b.dir, "m-5.safetensors", 0);
    b.w.avoided = NULL;
    is_str(watch_bed_choose(&b), "m-4.safetensors", "and when it is over all are as before");
    watch_bed_close(&b);
}

/* What had a name, and what has it now. */
static void test_new(void)
{
    struct watch_bed b;

    watch_bed_open(&b);
    watch_bed_put(&b, "m-1.safetensors", 0);
    watch_bed_look(&b, 1);
    watch_bed_look(&b, 1);
    ok(!b.w.entries[0].is_new, "what was there is not new");
    watch_bed_put(&b, "m-2.safetensors", 0);
    watch_bed_look(&b, 2);
    watch_bed_look(&b, 2);
    ok(b.w.entries[0].is_new && !b.w.entries[1].is_new, "what comes is, and stays so");
    b.w.entries[0].is_new = false;
    watch_bed_look(&b, 2);
    ok(!b.w.entries[0].is_new, "until the caller knows of it");
    watch_bed_put(&b, "m-2.safetensors", 1);
    watch_bed_look(&b, 2);
    ok(b.w.entries[0].is_new, "and again when it is written to");
    watch_bed_close(&b);
}

static void test_many(void)
{
    enum { N = 2000 };
    struct watch_bed b;
    char name[64];

    watch_bed_open(&b);
    for (int i = 0; i < N; i++) {
        snprintf(name, sizeof(name), "m-%d.safetensors", i);
        watch_bed_put(&b, name, i > N - 5);
    }
    watch_bed_look(&b, N);
    is_str(watch_bed_choose(&b), "m-1995.safetensors", "among many");
    watch_bed_close(&b);
}

/* Nobody can be told of such a name. */
static void test_no_text(void)
{
    static const char name[] = "m-3\xff.safetensors";
    struct watch_entry *entry = NULL;
    struct watch_bed b;

    watch_bed_open(&b);
    watch_bed_put(&b, "m-1.safetensors", 0);
    watch_bed_put(&b, "m-2.safetensors", 0);
    watch_bed_put(&b, name, 0);
    is_str(watch_bed_choose(&b), "m-2.safetensors", "the one before is chosen");
    is_str(b.passed, "m-3\xff.safetensors ", "and it is told");
    entry = &b.w.entries[0];
    is_int(entry->rc, -EILSEQ, "as what it is");
    is_str(entry->why.text, "m-3\\xff.safetensors: its name is no UTF-8, so that no run can "
           "start from it", "in words that can be shown");
    ok(!watch_is_broken(&b.w, b.dir, entry), "and is not broken");
    watch_bed_close(&b);
}

/* --- somebody writes while it is read --- */

static struct watch_bed *writing;

static ssize_t read_late(struct io *io, int fd, void *to, size_t len,
                         uint64_t at)
{
    ssize_t n = io_system()->ops->read(io_system(), fd, to, len, at);

    (void)io;
    watch_bed_put(writing, "m-1.safetensors", 1);
    return n;
}

static void test_writing(void)
{
    struct io_ops ops = *io_system()->ops;
    struct io io = {.ops = &ops};
    struct watch_entry *entry;
    struct watch_bed b;

    watch_bed_open(&b);
    writing = &b;
    ops.read = read_late;
    b.w.io = &io;
    watch_bed_put(&b, "m-1.safetensors", 0);
    watch_bed_look(&b, 1);
    watch_bed_look(&b, 1);
    entry = watch_next(&b.w, 1);
    is_int(entry ? watch_check(&b.w, b.dir, entry) : 0, -EAGAIN,
           "whatever was read does not count");
    ok(entry && !entry->is_checked, "and it will be read again");
    ok(!watch_next(&b.w, 1), "when it is still once more");
    if (entry) { /* whatever was found meanwhile */
        entry->rc = -ERR_FORMAT;
        entry->found.is_step = true;
    }
    ok(entry && !watch_is_broken(&b.w, b.dir, entry), "and is not broken until then");
    watch_bed_close(&b);
}

/* What is read is whole, and written to. */
static ssize_t read_touched(struct io *io, int fd, void *to, size_t len, uint64_t at)
{
    const struct timespec times[] = {{.tv_sec = 1}, {.tv_sec = 1}};

    (void)io;
    utimensat(writing->dir, "m-1.safetensors", times, 0);
    return io_system()->ops->read(io_system(), fd, to, len, at);
}

static void test_chosen_while_written(void)
{
    struct io_ops ops = *io_system()->ops;
    struct io io = {.ops = &ops};
    struct watch_bed b;

    watch_bed_open(&b);
    writing = &b;
    ops.read = read_touched;
    b.w.io = &io;
    watch_bed_put(&b, "m-1.safetensors", 0);
    is_str(watch_bed_told(&b),
           "?m-1.safetensors: 0 m-1.safetensors is being written\n", "one that is "
           "written to is passed, and told");
    ok(watch_bed_choose(&b)[0], "once it is not, it is chosen");
    watch_bed_close(&b);
}

int main(void)
{
    test_looks();
    test_choice();
    test_parts();
    test_settled();
    test_avoided();
    test_new();
    test_many();
    test_no_text();
    test_writing();
    test_chosen_while_written();
    return tap_done();
}
