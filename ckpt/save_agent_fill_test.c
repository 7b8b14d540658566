/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Memory of an agent's that is taken and filled, by two threads: what can be seen of it meanwhile,
 * what the agent is told, and what is done where there is not enough.
 */
#include <config.h>

#include "ckpt/save_agent_bed.h"

#include "base/cleanup.h"
#include "base/thread.h"
#include "tests/lib/tap.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

struct save_agent_bed save_agent_bed;

/* Of so many bytes, none of which is as it was. */
static void resize(struct save_agent_bed *b, uint64_t bytes)
{
    static char byte = 'a';
    char *data = realloc(b->image.header.data, bytes + 1);

    if (!data) {
        bail_out("no memory");
    }
    byte = byte < 'z' ? (char)(byte + 1) : 'a';
    memset(data, byte, bytes);
    b->image.header.data = data;
    b->image.header.len = b->image.bytes = bytes;
}

static void test_filling(struct save_agent_bed *b, bool mapped)
{
    save_agent_bed_open(b);
    b->is_mapped = mapped;
    for (int i = 0; i < 4; i++) {
        b->n_filled = 0;
        b->job.may_stay = i & 1;
        b->job.is_chosen = i & 2;
        resize(b, SAVE_AGENT_BYTES - (uint64_t)i);
        is_int(save_agent_bed_save_alone(b), 0, "a save into memory that %s: %s",
               mapped ? "is there" : "is taken on the way", b->error.text);
        is_int(b->n_filled, 1, "the agent is told of it once");
        ok(b->filled.image_bytes == SAVE_AGENT_BYTES - (uint64_t)i &&
               b->filled.may_stay == (i & 1) && b->filled.is_chosen == (i >> 1),
           "how much it is, and where to it goes: %d", i);
        is_str(b->filled.uuid, b->job.gather.uuid, "and which");
        ok(b->filled_at == 0 && b->first_at != b->image.header.data[0],
           "before anything is copied");
        is_int((intmax_t)save_agent_bed_count(b), 2, "then it can be seen that all of it is there");
        is_int(save_agent_bed_hand(b), 0, "it is handed over");
        b->way.ops->done(b->way.self, &b->job);
        is_int(b->n_filled, 1, "and nothing else is told");
    }
    b->is_mapped = false;
    save_agent_bed_close(b);
}

static void save_by(struct save_agent_bed *b, unsigned n_threads, bool is_new)
{
    bool is_left = n_threads < 4;

    b->n_filled = 0;
    b->job.n_threads = n_threads;
    b->is_mapped = !is_new;
    resize(b, SAVE_AGENT_BYTES);
    is_int(save_agent_bed_save_alone(b), 0, "%u threads copy", n_threads);
    is_int(b->n_filled, is_left || !is_new, "of 4 processors %s is left: %s memory is %s",
           is_left ? "one" : "none", is_new ? "new" : "old",
           is_left || !is_new ? "seen" : "not seen");
    ok(b->n_filled == 0 || b->filled.is_crowded == !is_left, "and so much is told");
    is_int((intmax_t)save_agent_bed_count(b), 2, "all of it is there");
    is_int(save_agent_bed_hand(b), 0, "it is handed over");
    b->way.ops->done(b->way.self, &b->job);
}

/* Who writes what is there takes a processor from those that copy: hardly anything of it where
 * pages are there, too much where they are taken meanwhile. */
static void test_no_processor(struct save_agent_bed *b)
{
    for (int is_new = 0; is_new < 2; is_new++) {
        save_agent_bed_open(b);
        for (unsigned n = 3; n <= 5; n++) {
            save_by(b, n, is_new);
        }
        save_agent_bed_close(b);
    }
    b->is_mapped = false;
}

/* What is one block is with the disk at once. */
static void test_few(struct save_agent_bed *b)
{
    static const struct {
        uint64_t bytes;
        int n_told, n_blocks;
    } cases[] = {{0, 0, 0}, {1, 0, 1}, {DIGEST_BLOCK_BYTES, 0, 1}, {DIGEST_BLOCK_BYTES + 1, 1, 2}};

    save_agent_bed_open(b);
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        b->n_filled = 0;
        resize(b, cases[i].bytes);
        is_int(save_agent_bed_save_alone(b), 0, "a save of %llu bytes",
               (unsigned long long)cases[i].bytes);
        is_int(b->n_filled, cases[i].n_told, "the agent is told of it or not");
        is_int((intmax_t)save_agent_bed_count(b), cases[i].n_blocks, "what there is can be seen");
        b->way.ops->abort(b->way.self, &b->job);
        is_int(b->n_filled, 2 * cases[i].n_told, "and that it comes to nothing");
    }
    save_agent_bed_close(b);
}

static void test_given_up(struct save_agent_bed *b)
{
    save_agent_bed_open(b);
    b->n_filled = 0;
    is_int(save_agent_bed_reserve(b), 0, "memory for a save");
    b->way.ops->abort(b->way.self, &b->job);
    is_int(b->n_filled, 0, "that is given up before it is filled: nothing is told");
    is_int(save_agent_bed_save_alone(b), 0, "one that is filled");
    b->way.ops->abort(b->way.self, &b->job);
    ok(b->n_filled == 2 && b->filled.image_bytes == 0, "and given up: that is told");
    is_str(b->filled.uuid, b->job.gather.uuid, "of that one");
    b->way.ops->abort(b->way.self, &b->job);
    is_int(b->n_filled, 2, "once");
    is_int(save_agent_bed_save_alone(b), 0, "one that the agent has");
    is_int(b->way.ops->send(b->way.self, &b->job, &b->error), 0, "as it is told");
    b->way.ops->abort(b->way.self, &b->job);
    is_int(b->n_filled, 3, "before others give it up: that is not told");
    b->cannot_tell = -EPIPE;
    is_int(save_agent_bed_save_alone(b), 0, "one that the agent cannot be told of");
    b->cannot_tell = 0;
    b->way.ops->abort(b->way.self, &b->job);
    is_int(b->n_filled, 4, "is not told that it comes to nothing, either");
    save_agent_bed_close(b);
}

/* The first block is held back, while all others are filled. */
static void test_sizes(struct save_agent_bed *b)
{
    static const unsigned sizes[] = {2, 5, 3, 2, 4, 5, 6}; /* in blocks */
    pthread_t t;

    save_agent_bed_open(b);
    for (size_t i = 0; i < ARRAY_SIZE(sizes); i++) {
        resize(b, sizes[i] * DIGEST_BLOCK_BYTES - 5000);
        b->fault = SAVE_AGENT_NO_FAULT;
        b->is_held = true;
        if (save_agent_bed_reserve(b) < 0 || thread_start(&t, save_agent_bed_put, b) != 0) {
            bail_out("no save: %s", b->error.text);
        }
        sem_wait(&b->is_writing);
        b->way.ops->help(b->way.self, 1);
        is_int((intmax_t)save_agent_bed_count(b), 0,
               "%u blocks, all of which but the first are there", sizes[i]);
        sem_post(&b->may_write);
        pthread_join(t, NULL);
        is_int(b->rc, 0, "and then that: %s", b->error.text);
        is_int((intmax_t)save_agent_bed_count(b), sizes[i], "which can be seen");
        is_int(save_agent_bed_hand(b), 0, "it is handed over");
    }
    save_agent_bed_close(b);
}

static void test_too_little(struct save_agent_bed *b, const char *who, enum save_agent_fault f)
{
    save_agent_bed_open(b);
    b->n_done = b->n_filled = 0;
    is_int(save_agent_bed_save(b, f), -ENOMEM, "%s finds too little memory", who);
    like(b->error.text, "shared memory for a snapshot: No space left", "which is told");
    is_int((intmax_t)save_agent_bed_bytes(b), 0, "what was taken of it is given back");
    b->way.ops->abort(b->way.self, &b->job);
    is_int(b->n_done, 0, "the agent is not told that it has it");
    ok(b->n_filled == 2 && b->filled.image_bytes == 0, "but that it comes to nothing");
    is_int(save_agent_bed_save(b, SAVE_AGENT_NO_FAULT), 0, "the next save has memory: %s",
           b->error.text);
    is_int(save_agent_bed_hand(b), 0, "and is handed over");
    ok(b->n_done == 1 && save_agent_bed_is_right(b), "with what was saved");
    save_agent_bed_close(b);
}

int main(void)
{
    test_filling(&save_agent_bed, false);
    test_filling(&save_agent_bed, true);
    test_no_processor(&save_agent_bed);
    test_few(&save_agent_bed);
    test_given_up(&save_agent_bed);
    test_sizes(&save_agent_bed);
    test_too_little(&save_agent_bed, "who writes", SAVE_AGENT_WRITER_FAILS);
    test_too_little(&save_agent_bed, "who helps", SAVE_AGENT_HELPER_FAILS);
    test_too_little(&save_agent_bed, "what it says of itself", SAVE_AGENT_PART_FAILS);
    return tap_done();
}
