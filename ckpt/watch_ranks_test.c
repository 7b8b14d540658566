/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Which checkpoints lack what some of the ranks save: as the run knows how many there are, and
 * as those beside it have.
 */
#include <config.h>

#include "ckpt/watch_bed.h"

#include "base/cleanup.h"
#include "base/fs.h"
#include "tests/lib/tap.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

/* Of the Trainer, too: what each rank leaves. */
static void put_rng(const struct watch_bed *b, unsigned step, unsigned rank)
{
    char name[64];

    snprintf(name, sizeof(name), "checkpoint-%u/rng_state_%u.pth", step, rank);
    watch_bed_put_text(b, name, "\x80\x02}.");
}

/* Those that come later are of the ranks that run. */
static void test_world(void)
{
    struct watch_bed b;

    watch_bed_open(&b);
    watch_bed_put_trainer(&b, 10, true);
    watch_bed_put_text(&b, "checkpoint-10/rng_state_0.pth", "\x80\x02}.");
    b.w.world = 2;
    is_str(watch_bed_choose(&b), "checkpoint-10", "who saved it is not known");
    watch_bed_put_trainer(&b, 20, true);
    watch_bed_put_text(&b, "checkpoint-20/rng_state_0.pth", "\x80\x02}.");
    is_str(watch_bed_choose(&b), "checkpoint-10", "two ranks run, and one has saved");
    b.w.world = 1;
    watch_bed_put_text(&b, "checkpoint-20/note", "");
    is_str(watch_bed_choose(&b), "checkpoint-10", "also when others run");
    watch_bed_put_text(&b, "checkpoint-20/rng_state_1.pth", "\x80\x02}.");
    is_str(watch_bed_choose(&b), "checkpoint-20", "both have");
    watch_bed_close(&b);

    watch_bed_open(&b);
    watch_bed_put_trainer(&b, 10, true);
    is_str(watch_bed_choose(&b), "checkpoint-10", "before the run");
    b.w.world = 3;
    for (unsigned step = 20; step <= 40; step += 10) {
        watch_bed_put_trainer(&b, step, true);
        put_rng(&b, step, 0);
        is_str(watch_bed_choose(&b), step == 20 ? "checkpoint-10" :
               step == 30 ? "checkpoint-30" : "checkpoint-40",
               step == 20 ? "one of three has saved" : "one of three does, always");
    }
    is_int((int)b.w.world, 0, "then three are not waited for");
    is_int(b.w.entries[0].why.code, 0, "nor is anything said of it");
    is_int(b.w.entries[1].why.code, 0, "or of the one before, which was read once more");
    for (unsigned step = 30; step <= 40; step += 10) {
        char path[sizeof(b.path) + 32];

        snprintf(path, sizeof(path), "%s/checkpoint-%u", b.path, step);
        fs_remove_tree(path, NULL);
    }
    is_str(watch_bed_choose(&b), "checkpoint-20", "nor does the first one lack anything");
    watch_bed_close(&b);
}

/* Two of a run of three ranks, of which one saves. */
static void open_with_two(struct watch_bed *b)
{
    watch_bed_open(b);
    watch_bed_look(b, 0);
    b->w.world = 3;
    for (unsigned step = 20; step <= 30; step += 10) {
        watch_bed_put_trainer(b, step, true);
        put_rng(b, step, 0);
    }
}

/* Both are checked anew then, one at once. */
static void test_world_learned(void)
{
    struct watch_bed b;

    open_with_two(&b);
    watch_bed_look(&b, 2);
    watch_bed_look(&b, 2);
    is_int(watch_check(&b.w, b.dir, &b.w.entries[1]), -ENOENT, "one of three has saved");
    is_int(watch_check(&b.w, b.dir, &b.w.entries[0]), 0, "once more, and that is all there is");
    ok(b.w.entries[0].is_checked && !b.w.entries[1].is_checked, "the first is to be read again");
    watch_bed_close(&b);

    open_with_two(&b);
    is_str(watch_bed_choose(&b), "checkpoint-30",
           "where the older one shows it the newer is whole");
    watch_bed_close(&b);
}

/* What does not say that only some ranks save. */
static void test_world_stays(void)
{
    static const struct {
        unsigned worlds[2], ranks[2];
        bool has_state;
        const char *what;
    } cases[] = {
        {{3, 3}, {1, 2}, true, "one of three, and two of three"},
        {{3, 4}, {1, 1}, true, "one of three, and one of four"},
        {{1, 1}, {1, 1}, false, "all of them, and nothing else"},
    };

    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        struct watch_bed b;

        watch_bed_open(&b);
        watch_bed_put_trainer(&b, 10, true);
        is_str(watch_bed_choose(&b), "checkpoint-10", "before the run");
        for (unsigned k = 0; k < 2; k++) {
            b.w.world = cases[i].worlds[k];
            watch_bed_put_trainer(&b, 20 + 10 * k, cases[i].has_state);
            for (unsigned r = 0; r < cases[i].ranks[k]; r++) {
                put_rng(&b, 20 + 10 * k, r);
            }
            is_str(watch_bed_choose(&b), "checkpoint-10", "%s", cases[i].what);
        }
        is_int((int)b.w.world, (int)cases[i].worlds[1], "as many are waited for as before");
        watch_bed_close(&b);
    }
}

/* Of what was there before, nobody knows how many ranks saved it: others tell. */
static void test_short_directories(void)
{
    struct watch_bed b;

    watch_bed_open(&b);
    for (unsigned step = 10; step <= 30; step += 10) {
        watch_bed_put_trainer(&b, step, true);
        put_rng(&b, step, 0);
        if (step < 30) {
            put_rng(&b, step, 1);
        }
    }
    is_str(watch_bed_choose(&b), "checkpoint-20", "one that lacks a rank is passed over");
    is_str(b.passed, "checkpoint-30 ", "and told");
    watch_bed_put_trainer(&b, 40, true);
    put_rng(&b, 40, 0);
    is_str(watch_bed_choose(&b), "checkpoint-40", "two are of fewer ranks");
    unlinkat(b.dir, "checkpoint-40/trainer_state.json", 0);
    is_str(watch_bed_choose(&b), "checkpoint-20", "but not where the second is not whole");
    unlinkat(b.dir, "checkpoint-20/trainer_state.json", 0);
    unlinkat(b.dir, "checkpoint-10/trainer_state.json", 0);
    is_str(watch_bed_choose(&b), "checkpoint-30",
           "nor does what is not whole tell that one is short");
    watch_bed_close(&b);
}

/* Several files that are one: half of them is nothing to start from. */
static void test_sets(void)
{
    struct watch_entry *entry;
    struct watch_bed b;

    watch_bed_open(&b);
    watch_bed_put(&b, "step10_rank0.safetensors", 0);
    watch_bed_put(&b, "step10_rank1.safetensors", 0);
    watch_bed_put(&b, "step20_rank0.safetensors", 0);
    watch_bed_put(&b, "step20_rank1.safetensors", 0);
    watch_bed_put(&b, "step30_rank0.safetensors", 0);
    is_str(watch_bed_choose(&b), "step20_rank1.safetensors", "the newest that is whole");
    is_str(b.passed, "step30_rank0.safetensors ", "over one that lacks a file");
    watch_bed_broken(&b, "", "step20_rank1.safetensors", "which is not broken");
    watch_bed_put(&b, "step30_rank1.safetensors", 3);
    watch_bed_broken(&b, "step30_rank1.safetensors ", "step20_rank1.safetensors",
                     "of one with a file that is, that is set aside");
    is_str(watch_bed_choose(&b), "step20_rank1.safetensors", "and the one before chosen");
    is_str(b.passed, "step30_rank1.safetensors ", "the other file is not at fault");
    b.w.avoided = "/c/step20_rank0.safetensors\n";
    is_str(watch_bed_choose(&b), "step10_rank1.safetensors",
           "one is avoided with all of its files");
    b.w.avoided = NULL;
    watch_bed_look(&b, 6);
    watch_bed_put(&b, "step40_rank1.safetensors", 0);
    watch_bed_put(&b, "step50_rank1.safetensors", 0);
    is_str(watch_bed_choose(&b), "step20_rank1.safetensors",
           "two that lack the first rank are none");
    is_str(b.passed, "step50_rank1.safetensors step40_rank1.safetensors "
                     "step30_rank1.safetensors ", "and told");
    watch_release(&b.w);
    watch_bed_look(&b, 8);
    watch_bed_look(&b, 8);
    for (int n = 0; n < 6; n++) {
        entry = watch_next(&b.w, 1);
        (void)(entry && watch_check(&b.w, b.dir, entry));
    }
    ok(!watch_next(&b.w, 1) && b.w.entries[5].is_checked && !b.w.entries[6].is_checked,
       "looked at are all down to the newest that is whole, with all of that");
    watch_bed_close(&b);
}

static void test_told_of_sets(void)
{
    struct watch_bed b;

    watch_bed_open(&b);
    watch_bed_put(&b, "step10_rank0.safetensors", 0);
    watch_bed_put(&b, "step10_rank1.safetensors", 0);
    watch_bed_put(&b, "step20_rank0.safetensors", 3);
    watch_bed_put(&b, "step20_rank1.safetensors", 0);
    is_str(watch_bed_choose(&b), "step10_rank1.safetensors", "one of which the last file is cut");
    is_str(b.passed, "step20_rank0.safetensors ", "which is told");
    unlinkat(b.dir, "step20_rank0.safetensors", 0);
    like(watch_bed_told(&b),
         "?step20_rank1.safetensors: -2 step20_rank1.safetensors: a file of its step is missing",
         "whole as it is, another file is missing");
    watch_bed_put(&b, "step20_rank1.safetensors", 3);
    watch_bed_look(&b, 3);
    watch_bed_look(&b, 3);
    (void)(watch_next(&b.w, 1) && watch_check(&b.w, b.dir, watch_next(&b.w, 1)));
    ok(b.w.entries[0].is_checked && b.w.entries[0].rc < 0, "of one the file that is there is cut");
    ok(strncmp(watch_bed_told(&b), "step20_rank1.safetensors: ", 26) == 0, "it was read");
    like(b.passed, "the file is cut", "that is told, and not that there is one missing");
    watch_bed_close(&b);
}

/* A run knows how many ranks save: fewer than before may be all. */
static void test_fewer_ranks(void)
{
    struct watch_bed b;

    watch_bed_open(&b);
    watch_bed_put(&b, "step10_rank0.safetensors", 0);
    watch_bed_put(&b, "step10_rank1.safetensors", 0);
    watch_bed_look(&b, 2);
    b.w.world = 2;
    watch_bed_put(&b, "step20_rank0.safetensors", 0);
    is_str(watch_bed_choose(&b), "step10_rank1.safetensors", "one of two ranks has saved");
    b.w.world = 1;
    watch_bed_put(&b, "step30_rank0.safetensors", 0);
    unlinkat(b.dir, "step20_rank0.safetensors", 0);
    is_str(watch_bed_choose(&b), "step30_rank0.safetensors", "the only one has");
    watch_bed_close(&b);
}

int main(void)
{
    test_world();
    test_world_learned();
    test_world_stays();
    test_short_directories();
    test_sets();
    test_told_of_sets();
    test_fewer_ranks();
    return tap_done();
}
