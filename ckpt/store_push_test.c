/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A push to a store that is a directory. Nothing is sealed before all is there and right, what
 * is there is not sent again, and what has changed meanwhile, or is refused, is told.
 */
#include <config.h>

#include "ckpt/push_bed.h"

#include "base/cleanup.h"
#include "base/str.h"
#include "tests/lib/tap.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <unistd.h>

struct push_bed push_bed;

static void test_pushed(struct push_bed *b)
{
    struct error e;

    push_bed_open(b);
    is_int(push_bed_push(b, &b->own, &e), 0, "one of ours%s", e.text);
    ok(b->done == b->own.bytes && b->of == b->own.bytes, "all its bytes are told on the way");
    ok(push_bed_is_whole(b, &b->own), "it is in the store");
    ok(b->n_log > 1 && str_ends(b->log_of[b->n_log - 1], "COMMIT") &&
           push_bed_n_sent(b, "COMMIT") == 1,
       "its seal was sent last, and once");
    is_int(b->facts.n_moved, b->own.n, "all its files were sent");
    ok(b->facts.bytes_moved == b->own.bytes && b->facts.n_kept == 0 && b->facts.bytes_kept == 0,
       "with all their bytes");
    is_int(push_bed_push(b, &b->others, &e), 0, "another program's%s", e.text);
    ok(push_bed_is_whole(b, &b->others), "is there, too");
    is_int(push_bed_n_sent(b, "a.bin"), 2, "a large file in two parts");
    ok(b->facts.n_moved == 2 && b->facts.bytes_moved == b->others.bytes, "of which all counts");
    is_int(push_bed_push(b, &b->others, &e), 0, "sent again%s", e.text);
    is_int(b->n_log, 0, "nothing is");
    ok(b->facts.n_moved == 0 && b->facts.bytes_moved == 0 && b->facts.n_kept == 2 &&
           b->facts.bytes_kept == b->others.bytes && b->done == b->of && b->of == b->others.bytes,
       "all was there");
    push_bed_close(b);
}

/* After a kill, with one of two parts there; and with one that is another. */
static void test_goes_on(struct push_bed *b)
{
    struct error e;
    struct push_object *o;

    push_bed_open(b);
    push_bed_fail(b, PUSH_PART, "a.bin", 2, -EIO, 1);
    is_int(push_bed_push(b, &b->others, &e), -EIO, "the second part is not taken");
    ok(!push_bed_has_seal(b, &b->others) && push_bed_n_sent(b, "a.bin") == 1, "nothing is sealed");
    is_int(push_bed_push(b, &b->others, &e), 0, "then it is%s", e.text);
    ok(push_bed_n_sent(b, "a.bin") == 1 && push_bed_is_whole(b, &b->others), "it alone is sent");
    ok(b->facts.bytes_kept >= DIGEST_BLOCK_BYTES, "the first was there");
    push_bed_close(b);
    push_bed_open(b);
    push_bed_fail(b, PUSH_PART, "a.bin", 2, -EIO, 1);
    is_int(push_bed_push(b, &b->others, &e), -EIO, "the same again");
    o = push_bed_object(b, push_bed_key(b, "a.bin"));
    snprintf(o->parts[0].etag, sizeof(o->parts[0].etag), "other");
    o->data[0][0] ^= 1;
    is_int(push_bed_push(b, &b->others, &e), 0, "of a part with other bytes%s", e.text);
    ok(push_bed_n_sent(b, "a.bin") == 2 && push_bed_is_whole(b, &b->others), "both are sent");
    push_bed_close(b);
}

/* --- what is read here --- */

static void write_over(const struct push_bed *b, const char *file)
{
    _close_ int dir = openat(b->from, PUSH_OTHER, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    _close_ int fd = openat(dir, file, O_WRONLY | O_CLOEXEC);

    if (pwrite(fd, "X", 1, 0) != 1) {
        bail_out("write %s", file);
    }
}

static void test_changed(struct push_bed *b)
{
    static const char *const files[] = {"a.bin", "b.bin"};
    char path[128];
    struct error e;

    for (size_t i = 0; i < ARRAY_SIZE(files); i++) {
        push_bed_open(b);
        write_over(b, files[i]);
        is_int(push_bed_push(b, &b->others, &e), -ERR_FORMAT, "%s has changed meanwhile", files[i]);
        like(e.text, files[i], "which is told");
        ok(!push_bed_has_seal(b, &b->others) &&
               faccessat(b->store_dir, push_bed_key(b, files[i]), F_OK, 0) < 0,
           "neither it nor a seal is there");
        snprintf(path, sizeof(path), "%s/from/%s/%s", b->path, PUSH_OTHER, files[i]);
        unlink(path);
        is_int(push_bed_push(b, &b->others, &e), -ENOENT, "or is gone");
        like(e.text, files[i], "which is told");
        ok(!push_bed_has_seal(b, &b->others), "nothing is sealed");
        push_bed_close(b);
    }
}

static void test_refused(struct push_bed *b)
{
    static const struct {
        enum push_call call;
        const char *end, *what;
    } cases[] = {
        {PUSH_LIST, "", "a list"}, {PUSH_BEGIN, "a.bin", "an upload"},
        {PUSH_PART, "a.bin", "a part"}, {PUSH_COMPLETE, "a.bin", "its end"},
        {PUSH_PUT, "b.bin", "a file"}, {PUSH_PUT, PARCEL_COPY, "the seal"},
    };
    struct error e;

    push_bed_open(b);
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        push_bed_fail(b, cases[i].call, cases[i].end, 1, -EACCES, 1);
        is_int(push_bed_push(b, &b->others, &e), -EACCES, "%s is refused", cases[i].what);
        like(e.text, "no", "which is told: %s", e.text);
        ok(!push_bed_has_seal(b, &b->others), "nothing is sealed");
    }
    is_int(push_bed_push(b, &b->others, &e), 0, "in the end nothing is%s", e.text);
    ok(push_bed_is_whole(b, &b->others), "all is there");
    push_bed_close(b);
}

static void test_dry(struct push_bed *b)
{
    struct error e;

    push_bed_open(b);
    b->st.is_dry = true;
    is_int(push_bed_push(b, &b->others, &e), 0, "what would be sent%s", e.text);
    ok(b->facts.n_moved == 2 && b->facts.bytes_moved == b->others.bytes && b->facts.n_kept == 0,
       "is all of it");
    ok(b->n_log == 0 && !push_bed_has_seal(b, &b->others) &&
           !push_bed_object(b, push_bed_key(b, "a.bin"))->has_upload,
       "and nothing is begun");
    push_bed_fail(b, PUSH_HEAD, "", 0, -EACCES, 1);
    push_bed_put(b, push_bed_key(b, "b.bin"), "short", 5, false);
    is_int(push_bed_push(b, &b->others, &e), -EACCES, "what may not be looked at is told");
    snprintf(push_bed_object(b, push_bed_key(b, "b.bin"))->digest, 64, "?");
    b->st.is_dry = false;
    is_int(push_bed_push(b, &b->others, &e), 0, "it is sent%s", e.text);
    unlinkat(b->store_dir, push_bed_key(b, "b.bin"), 0);
    b->st.is_dry = true;
    is_int(push_bed_push(b, &b->others, &e), 0, "one file is missing%s", e.text);
    ok(b->facts.n_moved == 1 && b->facts.bytes_moved == 5 && b->facts.n_kept == 1 &&
           b->facts.bytes_kept == b->others.bytes - 5,
       "it alone would be sent");
    push_bed_close(b);
}

int main(void)
{
    test_pushed(&push_bed);
    test_goes_on(&push_bed);
    test_changed(&push_bed);
    test_refused(&push_bed);
    test_dry(&push_bed);
    return tap_done();
}
