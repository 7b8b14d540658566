/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a watch removes, or sets aside, and what stays: that needs a proof, for the directory may
 * have anything in it.
 */
#include <config.h>

#include "ckpt/watch_bed.h"

#include "base/cleanup.h"
#include "base/fs.h"
#include "ckpt/last_bed.h"
#include "tests/lib/tap.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* The files of a checkpoint of diffusers. */
static void put_accelerate(struct watch_bed *b, unsigned step, bool has_random)
{
    static const char *const names[] = {"optimizer.bin", "random_states_0.pkl"};
    char name[64];

    snprintf(name, sizeof(name), "checkpoint-%u", step);
    mkdirat(b->dir, name, 0700);
    for (size_t i = 0; i < (has_random ? 2 : 1); i++) {
        snprintf(name, sizeof(name), "checkpoint-%u/%s", step, names[i]);
        watch_bed_put_text(b, name, "\x80\x02}.");
    }
}

/* What is touched needs a proof, for the directory may have anything in it. */
static void test_proof(void)
{
    struct watch_bed b;

    watch_bed_open(&b);
    watch_bed_put_text(&b, "vocab.bin", "words");
    watch_bed_put_text(&b, "train.bin", "tokens");
    watch_bed_put_text(&b, "train-1.bin", "tokens");
    watch_bed_put_text(&b, "step-1.bin", "tokens");
    watch_bed_put(&b, "x.safetensors", 1);
    watch_bed_put_text(&b, "x.ckpt", "\x80\x02}");
    watch_bed_broken(&b, "", "", "files of something else, and of no step");
    is_str(watch_bed_choose(&b), "", "none is chosen");
    is_str(b.passed, "x.ckpt x.safetensors ", "and of others nothing is said");
    is_int((int)watch_count(&b.w), 2, "nor are they counted");
    for (size_t i = 0; i < b.w.n; i++) {
        struct watch_entry *e = &b.w.entries[i];

        ok(strcmp(e->found.name, "step-1.bin") != 0 ||
               (e->found.is_step && e->facts.is_foreign && !watch_is_broken(&b.w, b.dir, e)),
           "nor broken: %s", e->found.name);
    }
    watch_bed_put(&b, "m-3.safetensors", 5);
    watch_bed_broken(&b, "", "", "a number that nobody calls a step");
    watch_bed_put(&b, "step-3.safetensors", 5);
    watch_bed_broken(&b, "step-3.safetensors ", "", "one that is, cut");
    unlinkat(b.dir, "step-3.safetensors", 0);
    watch_bed_put(&b, "m-2.safetensors", 0);
    watch_bed_broken(&b, "m-3.safetensors ", "m-2.safetensors", "with a whole one like it");
    watch_bed_put_text(&b, "t-7.bin", "");
    watch_bed_put_text(&b, "train-5.bin", "\x80\x02}.");
    watch_bed_broken(&b, "", "train-5.bin", "one that begins as a pickle is chosen");
    watch_bed_put_text(&b, "train-6.bin", "zeros");
    watch_bed_broken(&b, "train-6.bin ", "train-5.bin", "then others like it are broken");
    watch_bed_close(&b);

    watch_bed_open(&b);
    watch_bed_put_trainer(&b, 60, false);
    watch_bed_broken(&b, "", "", "the first, not finished: nobody knows of what");
    watch_bed_put_trainer(&b, 50, true);
    watch_bed_broken(&b, "checkpoint-60 ", "checkpoint-50",
                     "a whole one shows what it lacks");
    like(b.w.entries[0].why.text, "; checkpoint-50, which is whole, has", "which is told");
    like(b.w.entries[0].why.text, "trainer_state.json", "by its name");
    b.w.entries[0].rc = -EIO;
    ok(!watch_is_broken(&b.w, b.dir, &b.w.entries[0]), "what could not be read is not, lack what "
       "it may");
    watch_bed_put_text(&b, "checkpoint-50/trainer_state.json", "{");
    watch_bed_broken(&b, "checkpoint-50 ", "", "one that is damaged is, by itself");
    watch_bed_close(&b);

    watch_bed_open(&b);
    put_accelerate(&b, 50, true);
    put_accelerate(&b, 60, true);
    watch_bed_broken(&b, "", "checkpoint-60", "diffusers have no trainer_state.json");
    put_accelerate(&b, 70, false);
    watch_bed_broken(&b, "checkpoint-70 ", "checkpoint-60", "nor is it missed");
    like(watch_bed_choose(&b), "checkpoint-60", "once more");
    mkdirat(b.dir, "checkpoint-80", 0700);
    watch_bed_broken(&b, "checkpoint-80 checkpoint-70 ", "checkpoint-60",
                     "an empty one, beside them");
    watch_bed_close(&b);

    watch_bed_open(&b);
    mkdirat(b.dir, "step-000000000030-0000abcd", 0700);
    watch_bed_put_text(&b, "step-000000000030-0000abcd/COMMIT", "{");
    watch_bed_broken(&b, "", "", "one of muster's own stays: what its COMMIT says is for muster");
    is_int(b.w.entries[0].found.kind, FOUND_MUSTER, "as which it is known");
    is_int(b.w.entries[0].rc, -ERR_FORMAT, "damaged as it is");
    watch_bed_close(&b);
}

/* A number that rules go by is not enough to remove a file. */
static void test_retain(void)
{
    const struct retain_rule rule = {.keep = 1};
    struct watch_bed b;

    watch_bed_open(&b);
    watch_bed_put(&b, "m-1.safetensors", 0);
    watch_bed_put(&b, "m-2.safetensors", 0);
    watch_bed_put_text(&b, "train-1.bin", "tokens");
    watch_bed_look(&b, 3);
    watch_bed_look(&b, 3);
    is_str(watch_bed_choose(&b), "m-2.safetensors", "the newest");
    b.passed[0] = '\0';
    watch_retain(&b.w, b.dir, &rule, NULL, NULL, watch_bed_count, &b);
    is_str(b.passed, "m-1.safetensors ", "what is like it goes, and nothing else");
    watch_bed_put(&b, "m-0.safetensors", 5);
    watch_bed_put(&b, "m-1.safetensors", 5);
    watch_bed_look(&b, 4);
    b.passed[0] = '\0';
    watch_retain(&b.w, b.dir, &rule, NULL, NULL, watch_bed_count, &b);
    is_str(b.passed, "", "old as they may be by their numbers: not what comes now, "
           "nor what is written to");
    watch_bed_look(&b, 4);
    watch_retain(&b.w, b.dir, &rule, NULL, NULL, watch_bed_count, &b);
    is_str(b.passed, "m-1.safetensors m-0.safetensors ", "until they are still");
    watch_bed_close(&b);
}

static void retain(struct watch_bed *b, const char *want, const char *what)
{
    const struct retain_rule rule = {.keep = 1};

    b->passed[0] = '\0';
    watch_bed_look(b, b->w.n);
    watch_bed_look(b, b->w.n);
    is_int(watch_retain(&b->w, b->dir, &rule, NULL, NULL, watch_bed_count, b), 0, "%s", what);
    is_str(b->passed, want, "which go");
}

/* A directory of a script's own, with these files, each a whole pickle; one that ends with an
 * exclamation mark is cut. */
static void put_plain(const struct watch_bed *b, const char *dir, const char *names)
{
    char text[128], path[128], *rest = text;

    snprintf(text, sizeof(text), "%s", names);
    mkdirat(b->dir, dir, 0700);
    for (char *name; (name = strsep(&rest, " "));) {
        size_t len = strlen(name);
        bool is_cut = name[len - 1] == '!';

        snprintf(path, sizeof(path), "%s/%.*s", dir, (int)(len - is_cut), name);
        watch_bed_put_text(b, path, is_cut ? "\x80\x02}" : "\x80\x02}.");
    }
}

/* Nothing in one says what it has to have: another one does. */
static void test_plain(void)
{
    struct watch_bed b;

    watch_bed_open(&b);
    put_plain(&b, "2024", "shard_0.pt! train.pt");
    put_plain(&b, "run_3", "model.pt!");
    put_plain(&b, "latest", "model.pt! optim.pt");
    put_plain(&b, "step_40.tmp", "model.pt optim.pt");
    watch_bed_broken(&b, "", "", "what is called otherwise");
    is_int((int)b.w.n, 0, "is none");
    put_plain(&b, "step_10", "model.pt");
    watch_bed_broken(&b, "", "step_10", "of the first one nothing tells");
    put_plain(&b, "step_10", "optim.pt rng.pt");
    put_plain(&b, "step_20", "model.pt rng.pt");
    watch_bed_broken(&b, "step_20 ", "step_10", "one that lacks a file is passed, by proof");
    like(watch_bed_told(&b), "step_20: it was never finished: an older one has files that it "
         "lacks", "and told");
    put_plain(&b, "step_20", "optim.pt!");
    watch_bed_broken(&b, "step_20 ", "step_10", "one that is cut");
    put_plain(&b, "step_20", "optim.pt");
    watch_bed_broken(&b, "", "step_20", "all of it");
    put_plain(&b, "step_30", "model.pt");
    put_plain(&b, "step_5", "model.pt");
    is_str(watch_bed_choose(&b), "step_20", "where others are as it is it is passed over, too");
    watch_bed_broken(&b, "", "step_20", "but it is no proof");
    put_plain(&b, "step_40", "model.pt");
    watch_bed_broken(&b, "", "step_40", "two in a row are meant so");
    put_plain(&b, "epoch_7", "model.pt!");
    watch_bed_broken(&b, "", "step_40", "an epoch is no step");
    is_str(watch_bed_choose(&b), "step_40", "and no proof by itself");
    watch_bed_close(&b);
}

/* What is removed, and what never is. */
static void test_retain_plain(void)
{
    struct watch_bed b;

    watch_bed_open(&b);
    put_plain(&b, "step_10", "model.pt optim.pt");
    put_plain(&b, "step_20", "model.pt optim.pt");
    put_plain(&b, "step_30", "model.pt optim.pt");
    put_plain(&b, "1000", "model.pt");
    put_plain(&b, "epoch_1", "model.pt");
    put_plain(&b, "2024", "shard_0.pt");
    is_str(watch_bed_choose(&b), "1000", "the highest number");
    watch_bed_look(&b, 5);
    while (watch_next(&b.w, 9)) {
        (void)watch_check(&b.w, b.dir, watch_next(&b.w, 9));
    }
    retain(&b, "step_20 step_10 ", "only what is called as a step goes where others are");
    watch_bed_close(&b);
}

/* A program may start by itself from what it names as its last, old as it is. */
static void test_named(void)
{
    struct watch_bed b;

    watch_bed_open(&b);
    for (int i = 1; i <= 4; i++) {
        char name[64];

        snprintf(name, sizeof(name), "iter_%07d", i);
        mkdirat(b.dir, name, 0700);
        snprintf(name, sizeof(name), "iter_%07d/mp_rank_00", i);
        mkdirat(b.dir, name, 0700);
        snprintf(name, sizeof(name), "iter_%07d/mp_rank_00/model_optim_rng.pt", i);
        watch_bed_put_text(&b, name, "\x80\x02}.");
    }
    watch_bed_put_text(&b, "latest_checkpointed_iteration.txt", "2");
    is_str(watch_bed_choose(&b), "iter_0000004", "what the tracker says does not count");
    retain(&b, "iter_0000003 iter_0000001 ", "but what it names stays");
    watch_bed_put_text(&b, "latest_checkpointed_iteration.txt", "");
    retain(&b, "iter_0000003 iter_0000002 iter_0000001 ", "a tracker that was cut");
    symlinkat("iter_0000001", b.dir, "last");
    retain(&b, "iter_0000003 iter_0000002 ", "a link");
    watch_bed_put_text(&b, "latest", "iter_0000003\n");
    retain(&b, "iter_0000002 ", "and DeepSpeed's tracker");
    watch_bed_close(&b);
}

/* Lightning's last one is written over each time. */
static void test_last(void)
{
    struct watch_entry *entry;
    struct watch_bed b;

    watch_bed_open(&b);
    last_bed_put(b.dir, "epoch=0-step=10.ckpt", 10, 0, false);
    last_bed_put(b.dir, "epoch=1-step=20.ckpt", 20, 0, false);
    last_bed_put(b.dir, "last.ckpt", 20, 0, false);
    is_str(watch_bed_choose(&b), "epoch=1-step=20.ckpt", "of one step that with a name of its own");
    last_bed_put(b.dir, "last.ckpt", 30, 0, false);
    is_str(watch_bed_choose(&b), "last.ckpt", "where it is later it is the one");
    is_int((int)b.w.entries[0].found.step, 30, "by what is in it");
    retain(&b, "epoch=0-step=10.ckpt ", "it is not counted among those that are kept");
    last_bed_put(b.dir, "last.ckpt", 40, 0, true);
    watch_bed_broken(&b, "", "epoch=1-step=20.ckpt", "damaged it is passed over, and not touched");
    last_bed_put(b.dir, "last.ckpt", 40, -9, false);
    watch_bed_broken(&b, "", "epoch=1-step=20.ckpt", "and so it is cut");
    last_bed_put(b.dir, "epoch=2-step=50.ckpt", 50, 0, false);
    last_bed_put(b.dir, "last.ckpt", 15, 0, false);
    is_str(watch_bed_choose(&b), "epoch=2-step=50.ckpt", "it may be of a run before");
    retain(&b, "epoch=1-step=20.ckpt epoch=0-step=10.ckpt ", "and is not removed then");
    last_bed_put(b.dir, "last.ckpt", 60, 0, false);
    watch_release(&b.w);
    watch_bed_look(&b, 4);
    watch_bed_look(&b, 4);
    entry = watch_next(&b.w, 1);
    is_str(entry ? entry->found.name : "", "last.ckpt", "the newest is looked at first");
    is_int(entry ? watch_check(&b.w, b.dir, entry) : -1, 0, "it is whole");
    entry = watch_next(&b.w, 1);
    is_str(entry ? entry->found.name : "", "epoch=2-step=50.ckpt",
           "and then one that stays as it is");
    last_bed_put(b.dir, "last-v1.ckpt", 61, 0, false);
    last_bed_put(b.dir, "last-v2.ckpt", 62, 0, true);
    watch_bed_broken(&b, "", "last-v1.ckpt", "of several, too, none is touched");
    watch_bed_close(&b);
}

/* What is whole and has a number may be what training began with. */
static void test_retain_steps(void)
{
    const struct retain_rule rule = {.keep = 1};
    struct watch_bed b;

    watch_bed_open(&b);
    watch_bed_put(&b, "pretrained-2.safetensors", 0);
    watch_bed_put(&b, "data-2024.safetensors", 0);
    watch_bed_put(&b, "step-3.safetensors", 0);
    watch_bed_put(&b, "step-4.safetensors", 0);
    watch_bed_look(&b, 4);
    watch_bed_look(&b, 4);
    while (b.w.n && watch_next(&b.w, 9)) {
        (void)watch_check(&b.w, b.dir, watch_next(&b.w, 9));
    }
    b.passed[0] = '\0';
    watch_retain(&b.w, b.dir, &rule, NULL, NULL, watch_bed_count, &b);
    is_str(b.passed, "step-3.safetensors ", "among steps only these are counted, and go");
    watch_bed_close(&b);
}

static void test_aside(void)
{
    struct stat why;
    _free_ char *text = NULL;
    char to[FOUND_NAME_BYTES], path[512], name[FOUND_NAME_BYTES];
    struct error e = {0};
    struct watch_bed b;

    watch_bed_open(&b);
    watch_bed_put(&b, "m-3.safetensors", 5);
    is_int(watch_set_aside(b.dir, "m-3.safetensors", "it is cut", to, &e), 0,
           "set aside");
    is_str(to, "m-3.safetensors.broken", "under that name");
    snprintf(path, sizeof(path), "%s/%s.why", b.path, to);
    ok(stat(path, &why) == 0 && (why.st_mode & 077) == 0, "why is for its owner alone");
    is_int(fs_read(path, 100, &text, NULL, NULL), 0, "with the reason");
    is_str(text ? text : "", "it is cut\n", "for people");
    watch_bed_look(&b, 0);
    mkdirat(b.dir, "m-3.safetensors", 0700);
    is_int(watch_set_aside(b.dir, "m-3.safetensors", "x", to, &e), 0, "another");
    is_str(to, "m-3.safetensors.broken-2", "never over one");
    watch_bed_look(&b, 0);
    is_int(watch_set_aside(b.dir, "m-3.safetensors", "x", to, &e), -ENOENT,
           "one that is gone");
    memset(name, 'n', sizeof(name));
    name[250] = '\0';
    watch_bed_put(&b, name, 0);
    is_int(watch_set_aside(b.dir, name, "x", to, &e), -ENAMETOOLONG,
           "a name that has no room");
    ok(faccessat(b.dir, name, F_OK, 0) == 0, "stays as it is");
    watch_bed_close(&b);
}

int main(void)
{
    test_proof();
    test_retain();
    test_plain();
    test_retain_plain();
    test_named();
    test_last();
    test_retain_steps();
    test_aside();
    return tap_done();
}
