/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "ckpt/watch.h"

#include "base/cleanup.h"
#include "base/fs.h"
#include "ckpt/found_bed.h"
#include "ckpt/last_bed.h"
#include "tests/lib/tap.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static const char header[] =
    "{\"w\":{\"dtype\":\"F32\",\"shape\":[4],\"data_offsets\":[0,16]}}";

struct bench {
    char path[FOUND_BED_PATH_BYTES];
    int dir;
    struct watch w;
    char passed[1024]; /* names, each with a blank behind it */
};

static void setup(struct bench *b)
{
    *b = (struct bench){.w = {.io = io_system()}};
    b->dir = found_bed_open(b->path);
}

static void teardown(struct bench *b)
{
    watch_release(&b->w);
    found_bed_close(b->dir, b->path);
}

/* A safetensors file without its last `cut` bytes. */
static void put(const struct bench *b, const char *name, size_t cut)
{
    uint8_t bytes[8 + sizeof(header) - 1 + 16] = {sizeof(header) - 1};

    memcpy(bytes + 8, header, sizeof(header) - 1);
    found_bed_put(b->dir, name, bytes, sizeof(bytes) - cut);
}

static void look(struct bench *b, size_t want)
{
    struct error e = {0};

    is_int(watch_look(&b->w, b->dir, &e), 0, "a look%s%s", e.text[0] ? ": " : "",
           e.text);
    is_int((int)b->w.n, (int)want, "what is there");
}

static void on_passed(void *arg, struct watch_entry *entry)
{
    struct bench *b = arg;

    strncat(b->passed, entry->found.name, sizeof(b->passed) - 1 -
                                              strlen(b->passed));
    strncat(b->passed, " ", sizeof(b->passed) - 1 - strlen(b->passed));
}

static const char *choose(struct bench *b)
{
    struct watch_entry *entry = NULL;

    b->passed[0] = '\0';
    is_int(watch_choose(&b->w, b->dir, on_passed, b, &entry, NULL), 0, "chosen");
    return entry ? entry->found.name : "";
}

static void test_looks(void)
{
    struct watch_entry *entry;
    struct bench b;

    setup(&b);
    look(&b, 0);
    put(&b, "m-1.safetensors", 0);
    put(&b, "m-2.safetensors", 0);
    put(&b, "last", 0);
    symlinkat("m-2.safetensors", b.dir, "last.safetensors");
    look(&b, 2); /* no link, and nothing of another kind */
    ok(!watch_next(&b.w, 1), "at first it may still be written to");
    look(&b, 2);
    entry = watch_next(&b.w, 1);
    is_str(entry ? entry->found.name : "", "m-2.safetensors", "the newest first");
    is_int(entry ? watch_check(&b.w, b.dir, entry) : -1, 0, "it is whole");
    ok(!watch_next(&b.w, 1), "older ones are left alone then");
    look(&b, 2);
    ok(!watch_next(&b.w, 1), "and it is not read again");
    put(&b, "m-2.safetensors", 1);
    look(&b, 2);
    entry = watch_next(&b.w, 1);
    is_str(entry ? entry->found.name : "", "m-1.safetensors",
           "one that was written to has to be still once more");
    teardown(&b);
}

static void test_choice(void)
{
    struct bench b;

    setup(&b);
    is_str(choose(&b), "", "of nothing");
    put(&b, "m-1.safetensors", 0);
    put(&b, "m-2.safetensors", 0);
    put(&b, "m-3.safetensors", 5);
    put(&b, "m-4\n.safetensors", 5);
    put(&b, "m.safetensors", 0);
    mkdirat(b.dir, "checkpoint-9", 0700);
    is_str(choose(&b), "m-2.safetensors", "the newest that is whole");
    is_str(b.passed, "checkpoint-9 m-4\n.safetensors m-3.safetensors ",
           "over those that are not");
    unlinkat(b.dir, "m-2.safetensors", 0);
    is_str(choose(&b), "m-1.safetensors", "or the one before");
    unlinkat(b.dir, "m-1.safetensors", 0);
    is_str(choose(&b), "m.safetensors", "or one that says no step");
    put(&b, "m.safetensors", 1);
    is_str(choose(&b), "", "or none");
    teardown(&b);
}

/* A file of any bytes. */
static void put_text(const struct bench *b, const char *name, const char *text)
{
    found_bed_put(b->dir, name, text, strlen(text));
}

/* Names among those that were passed which may be set aside. */
static void on_broken(void *arg, struct watch_entry *entry)
{
    struct bench *b = arg;

    if (watch_is_broken(&b->w, b->dir, entry)) {
        on_passed(arg, entry);
    }
}

static void broken(struct bench *b, const char *want, const char *chosen,
                   const char *what)
{
    struct watch_entry *entry = NULL;

    b->passed[0] = '\0';
    watch_release(&b->w);
    is_int(watch_choose(&b->w, b->dir, on_broken, b, &entry, NULL), 0, "chosen");
    is_str(b->passed, want, "%s", what);
    is_str(entry ? entry->found.name : "", chosen, "and what is chosen");
}

/* The files of a checkpoint of the Trainer, or of diffusers. */
static void put_trainer(struct bench *b, unsigned step, bool has_state)
{
    char name[64], text[64];

    snprintf(name, sizeof(name), "checkpoint-%u", step);
    mkdirat(b->dir, name, 0700);
    snprintf(name, sizeof(name), "checkpoint-%u/model.safetensors", step);
    put(b, name, 0);
    snprintf(name, sizeof(name), "checkpoint-%u/trainer_state.json", step);
    snprintf(text, sizeof(text), "{\"global_step\": %u}", step);
    if (has_state) {
        put_text(b, name, text);
    } else {
        unlinkat(b->dir, name, 0);
    }
}

static void put_accelerate(struct bench *b, unsigned step, bool has_random)
{
    static const char *const names[] = {"optimizer.bin", "random_states_0.pkl"};
    char name[64];

    snprintf(name, sizeof(name), "checkpoint-%u", step);
    mkdirat(b->dir, name, 0700);
    for (size_t i = 0; i < (has_random ? 2 : 1); i++) {
        snprintf(name, sizeof(name), "checkpoint-%u/%s", step, names[i]);
        put_text(b, name, "\x80\x02}.");
    }
}

/* What is touched needs a proof, for the directory may have anything in it. */
static void test_proof(void)
{
    struct bench b;

    setup(&b);
    put_text(&b, "vocab.bin", "words");
    put_text(&b, "train.bin", "tokens");
    put_text(&b, "train-1.bin", "tokens");
    put_text(&b, "step-1.bin", "tokens");
    put(&b, "x.safetensors", 1);
    put_text(&b, "x.ckpt", "\x80\x02}");
    broken(&b, "", "", "files of something else, and of no step");
    is_str(choose(&b), "", "none is chosen");
    is_str(b.passed, "x.ckpt x.safetensors ", "and of others nothing is said");
    is_int((int)watch_count(&b.w), 2, "nor are they counted");
    for (size_t i = 0; i < b.w.n; i++) {
        struct watch_entry *e = &b.w.entries[i];

        ok(strcmp(e->found.name, "step-1.bin") != 0 ||
               (e->found.is_step && e->facts.is_foreign && !watch_is_broken(&b.w, b.dir, e)),
           "nor broken: %s", e->found.name);
    }
    put(&b, "m-3.safetensors", 5);
    broken(&b, "", "", "a number that nobody calls a step");
    put(&b, "step-3.safetensors", 5);
    broken(&b, "step-3.safetensors ", "", "one that is, cut");
    unlinkat(b.dir, "step-3.safetensors", 0);
    put(&b, "m-2.safetensors", 0);
    broken(&b, "m-3.safetensors ", "m-2.safetensors", "with a whole one like it");
    put_text(&b, "t-7.bin", "");
    put_text(&b, "train-5.bin", "\x80\x02}.");
    broken(&b, "", "train-5.bin", "one that begins as a pickle is chosen");
    put_text(&b, "train-6.bin", "zeros");
    broken(&b, "train-6.bin ", "train-5.bin", "then others like it are broken");
    teardown(&b);

    setup(&b);
    put_trainer(&b, 60, false);
    broken(&b, "", "", "the first, not finished: nobody knows of what");
    put_trainer(&b, 50, true);
    broken(&b, "checkpoint-60 ", "checkpoint-50",
           "a whole one shows what it lacks");
    put_text(&b, "checkpoint-50/trainer_state.json", "{");
    broken(&b, "checkpoint-50 ", "", "one that is damaged is, by itself");
    teardown(&b);

    setup(&b);
    put_accelerate(&b, 50, true);
    put_accelerate(&b, 60, true);
    broken(&b, "", "checkpoint-60", "diffusers have no trainer_state.json");
    put_accelerate(&b, 70, false);
    broken(&b, "checkpoint-70 ", "checkpoint-60", "nor is it missed");
    like(choose(&b), "checkpoint-60", "once more");
    mkdirat(b.dir, "checkpoint-80", 0700);
    broken(&b, "checkpoint-80 checkpoint-70 ", "checkpoint-60",
           "an empty one, beside them");
    teardown(&b);

    setup(&b);
    mkdirat(b.dir, "step-000000000030-0000abcd", 0700);
    put_text(&b, "step-000000000030-0000abcd/COMMIT", "{");
    broken(&b, "", "", "one of muster's own stays: what its COMMIT says is for muster");
    is_int(b.w.entries[0].found.kind, FOUND_MUSTER, "as which it is known");
    is_int(b.w.entries[0].rc, -ERR_FORMAT, "damaged as it is");
    teardown(&b);
}

static void test_parts(void)
{
    struct bench b;

    setup(&b);
    put_text(&b, "training_args.bin", "\x80\x02}.");
    put_text(&b, "optimizer-9.pt", "\x80\x02}.");
    put(&b, "model.safetensors", 0);
    put(&b, "model-00001-of-00003.safetensors", 0);
    look(&b, 0);
    is_str(choose(&b), "", "what belongs to one is none");
    put_text(&b, "epoch=1-val_loss=0.9.ckpt", "\x80\x02}.");
    put_text(&b, "epoch=2-val_loss=0.31.ckpt", "\x80\x02}.");
    put_text(&b, "epoch=10-val_loss=0.32.ckpt", "\x80\x02}.");
    is_str(choose(&b), "epoch=10-val_loss=0.32.ckpt", "by the epoch");
    teardown(&b);
}

/* A number that rules go by is not enough to remove a file. */
static void count(void *arg, const struct watch_entry *entry)
{
    on_passed(arg, (struct watch_entry *)entry);
}

static void test_retain(void)
{
    const struct retain_rule rule = {.keep = 1};
    struct bench b;

    setup(&b);
    put(&b, "m-1.safetensors", 0);
    put(&b, "m-2.safetensors", 0);
    put_text(&b, "train-1.bin", "tokens");
    look(&b, 3);
    look(&b, 3);
    is_str(choose(&b), "m-2.safetensors", "the newest");
    b.passed[0] = '\0';
    watch_retain(&b.w, b.dir, &rule, NULL, NULL, count, &b);
    is_str(b.passed, "m-1.safetensors ", "what is like it goes, and nothing else");
    put(&b, "m-0.safetensors", 5);
    put(&b, "m-1.safetensors", 5);
    look(&b, 4);
    b.passed[0] = '\0';
    watch_retain(&b.w, b.dir, &rule, NULL, NULL, count, &b);
    is_str(b.passed, "", "old as they may be by their numbers: not what comes now, "
           "nor what is written to");
    look(&b, 4);
    watch_retain(&b.w, b.dir, &rule, NULL, NULL, count, &b);
    is_str(b.passed, "m-1.safetensors m-0.safetensors ", "until they are still");
    teardown(&b);
}

static void test_settled(void)
{
    struct bench b;

    setup(&b);
    put(&b, "m-1.safetensors", 0);
    look(&b, 1);
    ok(!watch_next(&b.w, 1), "what was seen once may be written to, and is not read");
    watch_settle(&b.w);
    ok(watch_next(&b.w, 1), "but where nobody writes any more");
    teardown(&b);
}

static void retain(struct bench *b, const char *want, const char *what)
{
    const struct retain_rule rule = {.keep = 1};

    b->passed[0] = '\0';
    look(b, b->w.n);
    look(b, b->w.n);
    is_int(watch_retain(&b->w, b->dir, &rule, NULL, NULL, count, b), 0, "%s", what);
    is_str(b->passed, want, "which go");
}

/* A program may start by itself from what it names as its last, old as it is. */
static void test_named(void)
{
    struct bench b;

    setup(&b);
    for (int i = 1; i <= 4; i++) {
        char name[64];

        snprintf(name, sizeof(name), "iter_%07d", i);
        mkdirat(b.dir, name, 0700);
        snprintf(name, sizeof(name), "iter_%07d/mp_rank_00", i);
        mkdirat(b.dir, name, 0700);
        snprintf(name, sizeof(name), "iter_%07d/mp_rank_00/model_optim_rng.pt", i);
        put_text(&b, name, "\x80\x02}.");
    }
    put_text(&b, "latest_checkpointed_iteration.txt", "2");
    is_str(choose(&b), "iter_0000004", "what the tracker says does not count");
    retain(&b, "iter_0000003 iter_0000001 ", "but what it names stays");
    put_text(&b, "latest_checkpointed_iteration.txt", "");
    retain(&b, "iter_0000003 iter_0000002 iter_0000001 ", "a tracker that was cut");
    symlinkat("iter_0000001", b.dir, "last");
    retain(&b, "iter_0000003 iter_0000002 ", "a link");
    put_text(&b, "latest", "iter_0000003\n");
    retain(&b, "iter_0000002 ", "and DeepSpeed's tracker");
    teardown(&b);
}

/* Lightning's last one is written over each time. */
static void test_last(void)
{
    struct watch_entry *entry;
    struct bench b;

    setup(&b);
    last_bed_put(b.dir, "epoch=0-step=10.ckpt", 10, 0, false);
    last_bed_put(b.dir, "epoch=1-step=20.ckpt", 20, 0, false);
    last_bed_put(b.dir, "last.ckpt", 20, 0, false);
    is_str(choose(&b), "epoch=1-step=20.ckpt", "of one step that with a name of its own");
    last_bed_put(b.dir, "last.ckpt", 30, 0, false);
    is_str(choose(&b), "last.ckpt", "where it is later it is the one");
    is_int((int)b.w.entries[0].found.step, 30, "by what is in it");
    retain(&b, "epoch=0-step=10.ckpt ", "it is not counted among those that are kept");
    last_bed_put(b.dir, "last.ckpt", 40, 0, true);
    broken(&b, "", "epoch=1-step=20.ckpt", "damaged it is passed over, and not touched");
    last_bed_put(b.dir, "last.ckpt", 40, -9, false);
    broken(&b, "", "epoch=1-step=20.ckpt", "and so it is cut");
    last_bed_put(b.dir, "epoch=2-step=50.ckpt", 50, 0, false);
    last_bed_put(b.dir, "last.ckpt", 15, 0, false);
    is_str(choose(&b), "epoch=2-step=50.ckpt", "it may be of a run before");
    retain(&b, "epoch=1-step=20.ckpt epoch=0-step=10.ckpt ", "and is not removed then");
    last_bed_put(b.dir, "last.ckpt", 60, 0, false);
    watch_release(&b.w);
    look(&b, 4);
    look(&b, 4);
    entry = watch_next(&b.w, 1);
    is_str(entry ? entry->found.name : "", "last.ckpt", "the newest is looked at first");
    is_int(entry ? watch_check(&b.w, b.dir, entry) : -1, 0, "it is whole");
    entry = watch_next(&b.w, 1);
    is_str(entry ? entry->found.name : "", "epoch=2-step=50.ckpt",
           "and then one that stays as it is");
    last_bed_put(b.dir, "last-v1.ckpt", 61, 0, false);
    last_bed_put(b.dir, "last-v2.ckpt", 62, 0, true);
    broken(&b, "", "last-v1.ckpt", "of several, too, none is touched");
    teardown(&b);
}

/* What is whole and has a number may be what training began with. */
static void test_retain_steps(void)
{
    const struct retain_rule rule = {.keep = 1};
    struct bench b;

    setup(&b);
    put(&b, "pretrained-2.safetensors", 0);
    put(&b, "data-2024.safetensors", 0);
    put(&b, "step-3.safetensors", 0);
    put(&b, "step-4.safetensors", 0);
    look(&b, 4);
    look(&b, 4);
    while (b.w.n && watch_next(&b.w, 9)) {
        (void)watch_check(&b.w, b.dir, watch_next(&b.w, 9));
    }
    b.passed[0] = '\0';
    watch_retain(&b.w, b.dir, &rule, NULL, NULL, count, &b);
    is_str(b.passed, "step-3.safetensors ", "among steps only these are counted, and go");
    teardown(&b);
}

/* From some nobody starts for now: they count for nothing, and stay. */
static void test_avoided(void)
{
    const struct retain_rule rule = {.keep = 2};
    struct bench b;

    setup(&b);
    put(&b, "m-1.safetensors", 0);
    put(&b, "m-2.safetensors", 0);
    put(&b, "m-3.safetensors", 0);
    put(&b, "m-4.safetensors", 0);
    look(&b, 4);
    look(&b, 4);
    b.w.avoided = "/elsewhere/m-9.safetensors\n/c/m-4.safetensors\n";
    is_str(choose(&b), "m-3.safetensors", "the newest of the others");
    is_str(b.passed, "", "that is no fault of it");
    while (b.w.n && watch_next(&b.w, 9)) {
        (void)watch_check(&b.w, b.dir, watch_next(&b.w, 9));
    }
    watch_retain(&b.w, b.dir, &rule, NULL, NULL, count, &b);
    is_str(b.passed, "m-1.safetensors ", "two others are kept, and that one");
    b.w.avoided = "/c/m-4.safetensors\n/c/m-3.safetensors\n/c/m-2.safetensors\n"
                  "/c/m-1.safetensors\n";
    is_str(choose(&b), "", "of all there is none");
    put(&b, "m-5.safetensors", 5);
    b.w.avoided = NULL;
    is_str(choose(&b), "m-4.safetensors", "one that is damaged");
    is_str(b.passed, "m-5.safetensors ", "is told of");
    b.w.avoided = "/c/m-5.safetensors\n";
    is_str(choose(&b), "m-4.safetensors", "but where it is avoided");
    is_str(b.passed, "", "it is not");
    unlinkat(b.dir, "m-5.safetensors", 0);
    b.w.avoided = NULL;
    is_str(choose(&b), "m-4.safetensors", "and when it is over all are as before");
    teardown(&b);
}

/* What had a name, and what has it now. */
static void test_new(void)
{
    struct bench b;

    setup(&b);
    put(&b, "m-1.safetensors", 0);
    look(&b, 1);
    look(&b, 1);
    ok(!b.w.entries[0].is_new, "what was there is not new");
    put(&b, "m-2.safetensors", 0);
    look(&b, 2);
    look(&b, 2);
    ok(b.w.entries[0].is_new && !b.w.entries[1].is_new, "what comes is, and stays so");
    b.w.entries[0].is_new = false;
    look(&b, 2);
    ok(!b.w.entries[0].is_new, "until the caller knows of it");
    put(&b, "m-2.safetensors", 1);
    look(&b, 2);
    ok(b.w.entries[0].is_new, "and again when it is written to");
    teardown(&b);
}

/* Of the Trainer, too: what each rank leaves. */
static void put_rng(const struct bench *b, unsigned step, unsigned rank)
{
    char name[64];

    snprintf(name, sizeof(name), "checkpoint-%u/rng_state_%u.pth", step, rank);
    put_text(b, name, "\x80\x02}.");
}

/* Those that come later are of the ranks that run. */
static void test_world(void)
{
    struct bench b;

    setup(&b);
    put_trainer(&b, 10, true);
    put_text(&b, "checkpoint-10/rng_state_0.pth", "\x80\x02}.");
    b.w.world = 2;
    is_str(choose(&b), "checkpoint-10", "who saved it is not known");
    put_trainer(&b, 20, true);
    put_text(&b, "checkpoint-20/rng_state_0.pth", "\x80\x02}.");
    is_str(choose(&b), "checkpoint-10", "two ranks run, and one has saved");
    b.w.world = 1;
    put_text(&b, "checkpoint-20/note", "");
    is_str(choose(&b), "checkpoint-10", "also when others run");
    put_text(&b, "checkpoint-20/rng_state_1.pth", "\x80\x02}.");
    is_str(choose(&b), "checkpoint-20", "both have");
    teardown(&b);

    setup(&b);
    put_trainer(&b, 10, true);
    is_str(choose(&b), "checkpoint-10", "before the run");
    b.w.world = 3;
    for (unsigned step = 20; step <= 40; step += 10) {
        put_trainer(&b, step, true);
        put_rng(&b, step, 0);
        is_str(choose(&b), step == 20 ? "checkpoint-10" :
               step == 30 ? "checkpoint-30" : "checkpoint-40",
               step == 20 ? "one of three has saved" : "one of three does, always");
    }
    is_int((int)b.w.world, 0, "then three are not waited for");
    is_int(b.w.entries[0].why.code, 0, "nor is anything said of it");
    is_int(b.w.entries[1].why.code, 0, "or of the one before, which was read once more");
    teardown(&b);
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
        struct bench b;

        setup(&b);
        put_trainer(&b, 10, true);
        is_str(choose(&b), "checkpoint-10", "before the run");
        for (unsigned k = 0; k < 2; k++) {
            b.w.world = cases[i].worlds[k];
            put_trainer(&b, 20 + 10 * k, cases[i].has_state);
            for (unsigned r = 0; r < cases[i].ranks[k]; r++) {
                put_rng(&b, 20 + 10 * k, r);
            }
            is_str(choose(&b), "checkpoint-10", "%s", cases[i].what);
        }
        is_int((int)b.w.world, (int)cases[i].worlds[1], "as many are waited for as before");
        teardown(&b);
    }
}

/* Of what was there before, nobody knows how many ranks saved it: others tell. */
static void test_short_directories(void)
{
    struct bench b;

    setup(&b);
    for (unsigned step = 10; step <= 30; step += 10) {
        put_trainer(&b, step, true);
        put_rng(&b, step, 0);
        if (step < 30) {
            put_rng(&b, step, 1);
        }
    }
    is_str(choose(&b), "checkpoint-20", "one that lacks a rank is passed over");
    is_str(b.passed, "checkpoint-30 ", "and told");
    put_trainer(&b, 40, true);
    put_rng(&b, 40, 0);
    is_str(choose(&b), "checkpoint-40", "two are of fewer ranks");
    unlinkat(b.dir, "checkpoint-40/trainer_state.json", 0);
    is_str(choose(&b), "checkpoint-20", "but not where the second is not whole");
    unlinkat(b.dir, "checkpoint-20/trainer_state.json", 0);
    unlinkat(b.dir, "checkpoint-10/trainer_state.json", 0);
    is_str(choose(&b), "checkpoint-30", "nor does what is not whole tell that one is short");
    teardown(&b);
}

/* Several files that are one: half of them is nothing to start from. */
static void test_sets(void)
{
    struct watch_entry *entry;
    struct bench b;

    setup(&b);
    put(&b, "step10_rank0.safetensors", 0);
    put(&b, "step10_rank1.safetensors", 0);
    put(&b, "step20_rank0.safetensors", 0);
    put(&b, "step20_rank1.safetensors", 0);
    put(&b, "step30_rank0.safetensors", 0);
    is_str(choose(&b), "step20_rank1.safetensors", "the newest that is whole");
    is_str(b.passed, "step30_rank0.safetensors ", "over one that lacks a file");
    broken(&b, "", "step20_rank1.safetensors", "which is not broken");
    put(&b, "step30_rank1.safetensors", 3);
    broken(&b, "step30_rank1.safetensors ", "step20_rank1.safetensors",
           "of one with a file that is, that is set aside");
    is_str(choose(&b), "step20_rank1.safetensors", "and the one before chosen");
    is_str(b.passed, "step30_rank1.safetensors ", "the other file is not at fault");
    b.w.avoided = "/c/step20_rank0.safetensors\n";
    is_str(choose(&b), "step10_rank1.safetensors", "one is avoided with all of its files");
    b.w.avoided = NULL;
    look(&b, 6);
    put(&b, "step40_rank1.safetensors", 0);
    put(&b, "step50_rank1.safetensors", 0);
    is_str(choose(&b), "step20_rank1.safetensors", "two that lack the first rank are none");
    is_str(b.passed, "step50_rank1.safetensors step40_rank1.safetensors "
                     "step30_rank1.safetensors ", "and told");
    watch_release(&b.w);
    look(&b, 8);
    look(&b, 8);
    for (int n = 0; n < 6; n++) {
        entry = watch_next(&b.w, 1);
        (void)(entry && watch_check(&b.w, b.dir, entry));
    }
    ok(!watch_next(&b.w, 1) && b.w.entries[5].is_checked && !b.w.entries[6].is_checked,
       "looked at are all down to the newest that is whole, with all of that");
    teardown(&b);
}

/* What is said of those that were passed, and how. */
static void on_told(void *arg, struct watch_entry *entry)
{
    struct bench *b = arg;
    size_t at = strlen(b->passed);

    snprintf(b->passed + at, sizeof(b->passed) - at, "%s%s: %d %s\n",
             entry->is_checked ? "" : "?", entry->found.name, entry->rc, entry->why.text);
}

static const char *told(struct bench *b)
{
    struct watch_entry *entry = NULL;

    b->passed[0] = '\0';
    is_int(watch_choose(&b->w, b->dir, on_told, b, &entry, NULL), 0, "chosen");
    return b->passed;
}

static void test_told_of_sets(void)
{
    struct bench b;

    setup(&b);
    put(&b, "step10_rank0.safetensors", 0);
    put(&b, "step10_rank1.safetensors", 0);
    put(&b, "step20_rank0.safetensors", 3);
    put(&b, "step20_rank1.safetensors", 0);
    is_str(choose(&b), "step10_rank1.safetensors", "one of which the last file is cut");
    is_str(b.passed, "step20_rank0.safetensors ", "which is told");
    unlinkat(b.dir, "step20_rank0.safetensors", 0);
    like(told(&b), "?step20_rank1.safetensors: -2 step20_rank1.safetensors: a file of its step "
         "is missing", "whole as it is, another file is missing");
    put(&b, "step20_rank1.safetensors", 3);
    look(&b, 3);
    look(&b, 3);
    (void)(watch_next(&b.w, 1) && watch_check(&b.w, b.dir, watch_next(&b.w, 1)));
    ok(b.w.entries[0].is_checked && b.w.entries[0].rc < 0, "of one the file that is there is cut");
    ok(strncmp(told(&b), "step20_rank1.safetensors: ", 26) == 0, "it was read");
    like(b.passed, "the file is cut", "that is told, and not that there is one missing");
    teardown(&b);
}

/* A run knows how many ranks save: fewer than before may be all. */
static void test_fewer_ranks(void)
{
    struct bench b;

    setup(&b);
    put(&b, "step10_rank0.safetensors", 0);
    put(&b, "step10_rank1.safetensors", 0);
    look(&b, 2);
    b.w.world = 2;
    put(&b, "step20_rank0.safetensors", 0);
    is_str(choose(&b), "step10_rank1.safetensors", "one of two ranks has saved");
    b.w.world = 1;
    put(&b, "step30_rank0.safetensors", 0);
    unlinkat(b.dir, "step20_rank0.safetensors", 0);
    is_str(choose(&b), "step30_rank0.safetensors", "the only one has");
    teardown(&b);
}

static void test_aside(void)
{
    struct stat why;
    _free_ char *text = NULL;
    char to[FOUND_NAME_BYTES], path[512], name[FOUND_NAME_BYTES];
    struct error e = {0};
    struct bench b;

    setup(&b);
    put(&b, "m-3.safetensors", 5);
    is_int(watch_set_aside(b.dir, "m-3.safetensors", "it is cut", to, &e), 0,
           "set aside");
    is_str(to, "m-3.safetensors.broken", "under that name");
    snprintf(path, sizeof(path), "%s/%s.why", b.path, to);
    ok(stat(path, &why) == 0 && (why.st_mode & 077) == 0, "why is for its owner alone");
    is_int(fs_read(path, 100, &text, NULL, NULL), 0, "with the reason");
    is_str(text ? text : "", "it is cut\n", "for people");
    look(&b, 0);
    mkdirat(b.dir, "m-3.safetensors", 0700);
    is_int(watch_set_aside(b.dir, "m-3.safetensors", "x", to, &e), 0, "another");
    is_str(to, "m-3.safetensors.broken-2", "never over one");
    look(&b, 0);
    is_int(watch_set_aside(b.dir, "m-3.safetensors", "x", to, &e), -ENOENT,
           "one that is gone");
    memset(name, 'n', sizeof(name));
    name[250] = '\0';
    put(&b, name, 0);
    is_int(watch_set_aside(b.dir, name, "x", to, &e), -ENAMETOOLONG,
           "a name that has no room");
    ok(faccessat(b.dir, name, F_OK, 0) == 0, "stays as it is");
    teardown(&b);
}

/* --- somebody writes while it is read --- */

static struct bench *writing;

static ssize_t read_late(struct io *io, int fd, void *to, size_t len,
                         uint64_t at)
{
    ssize_t n = io_system()->ops->read(io_system(), fd, to, len, at);

    (void)io;
    put(writing, "m-1.safetensors", 1);
    return n;
}

static void test_writing(void)
{
    struct io_ops ops = *io_system()->ops;
    struct io io = {.ops = &ops};
    struct watch_entry *entry;
    struct bench b;

    setup(&b);
    writing = &b;
    ops.read = read_late;
    b.w.io = &io;
    put(&b, "m-1.safetensors", 0);
    look(&b, 1);
    look(&b, 1);
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
    teardown(&b);
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
    struct bench b;

    setup(&b);
    writing = &b;
    ops.read = read_touched;
    b.w.io = &io;
    put(&b, "m-1.safetensors", 0);
    is_str(told(&b), "?m-1.safetensors: 0 m-1.safetensors is being written\n", "one that is "
           "written to is passed, and told");
    ok(choose(&b)[0], "once it is not, it is chosen");
    teardown(&b);
}

static void test_many(void)
{
    enum { N = 2000 };
    struct bench b;
    char name[64];

    setup(&b);
    for (int i = 0; i < N; i++) {
        snprintf(name, sizeof(name), "m-%d.safetensors", i);
        put(&b, name, i > N - 5);
    }
    look(&b, N);
    is_str(choose(&b), "m-1995.safetensors", "among many");
    teardown(&b);
}

/* Nobody can be told of such a name. */
static void test_no_text(void)
{
    static const char name[] = "m-3\xff.safetensors";
    struct watch_entry *entry = NULL;
    struct bench b;

    setup(&b);
    put(&b, "m-1.safetensors", 0);
    put(&b, "m-2.safetensors", 0);
    put(&b, name, 0);
    is_str(choose(&b), "m-2.safetensors", "the one before is chosen");
    is_str(b.passed, "m-3\xff.safetensors ", "and it is told");
    entry = &b.w.entries[0];
    is_int(entry->rc, -EILSEQ, "as what it is");
    is_str(entry->why.text, "m-3\\xff.safetensors: its name is no UTF-8, so that no run can "
           "start from it", "in words that can be shown");
    ok(!watch_is_broken(&b.w, b.dir, entry), "and is not broken");
    teardown(&b);
}

int main(void)
{
    test_no_text();
    test_looks();
    test_choice();
    test_proof();
    test_parts();
    test_retain();
    test_settled();
    test_named();
    test_last();
    test_retain_steps();
    test_avoided();
    test_new();
    test_world();
    test_world_stays();
    test_short_directories();
    test_sets();
    test_told_of_sets();
    test_fewer_ranks();
    test_aside();
    test_writing();
    test_chosen_while_written();
    test_many();
    return tap_done();
}
