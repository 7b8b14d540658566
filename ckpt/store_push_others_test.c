/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A push beside others: who sends the same, or something else under that name, ends its uploads,
 * or seals it. Nothing is written over a seal that says otherwise.
 */
#include <config.h>

#include "ckpt/push_bed.h"

#include "base/cleanup.h"
#include "ckpt/tree.h"
#include "tests/lib/tap.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct push_bed push_bed;

/* One of the same length, or with the same digest beside it. */
static void test_others_bytes(struct push_bed *b)
{
    struct error e;
    struct push_object *o;

    push_bed_open(b);
    is_int(push_bed_push(b, &b->others, &e), 0, "one%s", e.text);
    o = push_bed_object(b, push_bed_key(b, "b.bin"));
    push_bed_put(b, o->key, "wrong", 5, false);
    snprintf(o->digest, sizeof(o->digest), "of something else");
    is_int(push_bed_push(b, &b->others, &e), 0, "of which a file is another one of that length%s",
           e.text);
    ok(b->n_log == 1 && push_bed_n_sent(b, "b.bin") == 1 && push_bed_is_whole(b, &b->others),
       "that alone is sent");
    push_bed_put(b, o->key, "longer", 6, false);
    is_int(push_bed_push(b, &b->others, &e), 0, "of which one has another length%s", e.text);
    ok(b->n_log == 1 && push_bed_n_sent(b, "b.bin") == 1 && push_bed_is_whole(b, &b->others),
       "that alone is sent");
    push_bed_fail(b, PUSH_HEAD, "b.bin", 0, -EACCES, 1);
    is_int(push_bed_push(b, &b->others, &e), -EACCES, "one at which nobody may look");
    is_int(b->n_log, 0, "is not sent");
    push_bed_close(b);
}

/* --- another one who pushes the same --- */

/* It has sent what is missing. */
static void complete(struct push_object *o)
{
    if (!o->parts[1].is_there) {
        o->parts[1] = (struct s3_part){.is_there = true, .bytes = 3};
        o->data[1] = malloc(3);
        memcpy(o->data[1], "end", 3);
    }
    push_bed_make_object(o);
}

static void test_others_push(struct push_bed *b)
{
    static const struct {
        enum push_call call;
        int rc;
        void (*meanwhile)(struct push_object *o);
        unsigned n_parts; /* that we send */
        const char *what;
    } cases[] = {
        {PUSH_PART, -ENOENT, complete, 1, "who completes our upload before its last part"},
        {PUSH_COMPLETE, -ENOENT, complete, 2, "who completes it just before us"},
        {PUSH_PART, -ENOENT, push_bed_drop_parts, 3, "who ends it"},
        {PUSH_COMPLETE, -EINVAL, push_bed_drop_parts, 4, "who takes a part of it away"},
    };
    struct error e;

    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        push_bed_open(b);
        push_bed_fail(b, cases[i].call, "a.bin", 2, cases[i].rc, 1);
        b->meanwhile = cases[i].meanwhile;
        is_int(push_bed_push(b, &b->others, &e), 0, "another one %s: %s", cases[i].what, e.text);
        ok(push_bed_is_whole(b, &b->others), "all is there");
        is_int(push_bed_n_sent(b, "a.bin"), cases[i].n_parts, "and nothing was sent that was");
        is_int(push_bed_n_sent(b, "b.bin"), 1, "what has nothing to do with it once");
        is_int(b->facts.n_moved + b->facts.n_kept, 2, "each file counts once");
        push_bed_close(b);
    }
    push_bed_open(b);
    push_bed_fail(b, PUSH_COMPLETE, "a.bin", 2, -ENOENT, 100);
    b->meanwhile = push_bed_drop_parts;
    is_int(push_bed_push(b, &b->others, &e), -EAGAIN, "one who always does it");
    like(e.text, "somebody else ends the uploads", "is told");
    ok(!push_bed_has_seal(b, &b->others), "nothing is sealed");
    push_bed_close(b);
    push_bed_open(b);
    push_bed_fail(b, PUSH_PUT, "b.bin", 0, -ENOENT, 1);
    is_int(push_bed_push(b, &b->others, &e), -ENOENT, "a bucket that is not there is no upload");
    push_bed_close(b);
}

/* --- the seal --- */

/* What comes while the files are sent; NULL: the same. */
static const char *seal_there;

static void put_seal(struct push_object *o)
{
    struct push_bed *b = &push_bed;
    const struct buf *seal = &b->others.seal;

    (void)o;
    push_bed_put(b, push_bed_key(b, PARCEL_COPY), seal_there ? seal_there : seal->data,
                 seal_there ? strlen(seal_there) : seal->len, false);
}

/* Of a store that can tell, when it is written, and of one that cannot, which was asked
 * before. */
static void test_seals(struct push_bed *b)
{
    _free_ char *longer = NULL, *odd = NULL, *shorter = NULL, *much = NULL;
    struct error e;

    push_bed_open(b);
    longer = calloc(1, b->others.seal.len + 2);
    much = calloc(1, b->others.seal.len + 100);
    memset(much, 'a', b->others.seal.len + 99);
    memcpy(longer, b->others.seal.data, b->others.seal.len);
    longer[b->others.seal.len] = '\n';
    odd = strndup(b->others.seal.data, b->others.seal.len);
    odd[b->others.seal.len / 2] ^= 1;
    shorter = strndup(b->others.seal.data, b->others.seal.len - 1);
    for (size_t i = 0; i < 10; i++) {
        const char *const texts[] = {NULL, longer, odd, shorter, much};
        bool is_before = i >= 5;
        int want = i % 5 == 0 ? 0 : -EEXIST;

        seal_there = texts[i % 5];
        b->is_plain = is_before;
        tree_unlink(b->store_dir, push_bed_key(b, PARCEL_COPY));
        if (is_before) {
            put_seal(NULL);
        } else {
            push_bed_fail(b, PUSH_PUT, PARCEL_COPY, 0, 0, 1);
            b->meanwhile = put_seal;
        }
        is_int(push_bed_push(b, &b->others, &e), want, "%s, %s: %s",
               want < 0 ? "a seal with other content" : "the same seal",
               is_before ? "before" : "meanwhile", e.text);
        ok(want == 0 || strstr(e.text, "is there already"), "which is told");
        is_int(push_bed_n_sent(b, PARCEL_COPY), 0, "it is not written over");
    }
    b->is_plain = false;
    push_bed_fail(b, PUSH_GET, PARCEL_COPY, 0, -EIO, 1);
    is_int(push_bed_push(b, &b->others, &e), -EIO, "one that cannot be read");
    push_bed_close(b);
}

int main(void)
{
    test_others_bytes(&push_bed);
    test_others_push(&push_bed);
    test_seals(&push_bed);
    return tap_done();
}
