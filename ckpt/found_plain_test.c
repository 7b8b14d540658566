/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Directories into which scripts save files of their own: which are checkpoints, and which
 * nobody may take for one; and whether they are whole. Files are pickles, as small as there
 * are, and archives that torch.save has made (ckpt/last_bed.h).
 */
#include <config.h>

#include "ckpt/found_priv.h"

#include "base/cleanup.h"
#include "ckpt/last_bed.h"
#include "ckpt/others_bed.h"
#include "tests/lib/tap.h"

#include <errno.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static bool is_plain(const struct others_bed *b, const char *name, struct found *ret)
{
    return found_one(io_system(), b->dir, name, ret) && ret->kind == FOUND_TORCH_DIR;
}

static void test_which(void)
{
    static const struct {
        const char *dir, *names;
        int64_t step; /* -1: it is none */
    } cases[] = {
        {"step_100", "model.pt optim.pt rng.pt", 100},
        {"ckpt-200", "model_state.pt", 200},
        {"epoch_3", "model.pth optimizer.pth meta.json", 3},
        {"1000", "state.pt", 1000},
        {"0", "state.pt", 0},
        {"step_100", "rank0.pt rank1.pt", 100},
        {"step_100", "model.safetensors optimizer.pt", 100},
        {"global_step100", "whatever.pt", 100},
        {"my-net_step=100_loss=0.25", "G.pth D.pth", 100},
        {"epoch=2-val_loss=0.25", "net.ckpt", 2},
        {"iter_0000100", "model.bin", 100},
        {"step_100", "model_step_100.pt logs/events.1", 100},
        {"step_100", "model_epoch_3.pt", 100},
        {"step_100", "eval.pt model.pt data/x.pt", 100},
        {"1000", "image_encoder.pt", 1000},
        {"1000", "config.json model.safetensors optimizer.pt", 1000},
        /* Names that programs give, and files that they do not write. */
        {"checkpoint-100", "model.pt optimizer.pt scheduler.pt", 100},
        {"checkpoint-100", "state.pt", 100},
        {"step_100", "model.bin optimizer.bin", 100},
        {"step_100", "model_states.pt optim_states.pt", 100},
        {"step_100", "config.json model.bin", 100},
        /* A number is of anything. */
        {"2024", "shard_000.pt shard_001.pt", -1},
        {"2024", "train.pt val.pt", -1},
        {"2024", "training_data.pt", -1},
        {"2024", "train.bin", -1},
        {"2024", "config.json model.safetensors", -1},
        {"20260131", "model.pt", -1},
        {"19950101", "model.pt", -1},
        {"19890131", "model.pt", 19890131},
        {"20260132", "model.pt", 20260132},
        {"1764546303", "model.pt", -1},
        {"seed_3", "model.pt", -1},
        {"fold_1", "model.pt", -1},
        {"version_0", "model.pt", -1},
        {"run_5", "model.pt", -1},
        {"tokenizer-32000", "tokenizer.bin model.pt", -1},
        {"v2", "model.pt", -1},
        {"best", "model.pt", -1},
        {"latest", "model.pt optim.pt", -1},
        /* What training gives besides. */
        {"step_100", "predictions.pt", -1},
        {"epoch_3", "embeddings.pt logits.pt", -1},
        {"eval_step_100", "model.pt", -1},
        {"step_100_samples", "model.pt", -1},
        {"step_100", "x.txt", -1},
        {"step_100", ".model.pt", -1},
        {"step_100", "sub/model.pt", -1},
        {"step_100", "", -1},
        /* Places for checkpoints. */
        {"3", "model_step_100.pt model_step_200.pt", -1},
        {"epoch_3", "step_100.pt", -1},
        {"1000", "model.pt epoch_1/x", -1},
        {"step_100", "model.pt checkpoint-5/x", -1},
        {"step_100", "model.pt step_200/x", -1},
        /* What was not finished, or is put away. */
        {"step_100.tmp", "model.pt", -1},
        {"tmp_step_100", "model.pt", -1},
        {"step_100.tmp.4711", "model.pt", -1},
        {"step_100-old", "model.pt", -1},
        {"step_100.bak", "model.pt", -1},
        {"step_100.dirty", "model.pt", -1},
        {"step_100.broken", "model.pt", -1},
        {"step_100_incomplete", "model.pt", -1},
        /* One of muster's that has lost its name. */
        {"step_100", "r00000.safetensors tensors.index", -1},
        {"step_100", "r00000.safetensors COMMIT manifest.json", -1},
    };

    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        struct others_bed b;
        struct found f;

        others_bed_open(&b);
        others_bed_put_all(&b, cases[i].dir, cases[i].names);
        is_int(is_plain(&b, cases[i].dir, &f) ? (long long)f.step : -1, cases[i].step,
               "%s of '%s'", cases[i].dir, cases[i].names);
        others_bed_close(&b);
    }
}

/* .bin is anybody's: its first bytes tell. */
static void test_contents(void)
{
    struct others_bed b;
    struct found f;

    others_bed_open(&b);
    mkdirat(b.dir, "step_100", 0700);
    others_bed_put_bytes(&b, "step_100/model.bin", "tokens", 6);
    others_bed_put_bytes(&b, "step_100/empty.bin", "", 0);
    ok(!is_plain(&b, "step_100", &f), "files of something else");
    symlinkat("/etc/passwd", b.dir, "step_100/model.pt");
    ok(!is_plain(&b, "step_100", &f), "a link");
    mkdirat(b.dir, "step_100/state.pt", 0700);
    ok(!is_plain(&b, "step_100", &f), "a directory that is called like a file");
    others_bed_put(&b, "step_100/optim.bin");
    ok(is_plain(&b, "step_100", &f) && f.is_step && f.has_step && !f.is_part, "one that is");
    others_bed_put(&b, "epoch_3/model.pt");
    ok(is_plain(&b, "epoch_3", &f) && f.has_step && !f.is_step, "an epoch is no step");
    others_bed_close(&b);
}

/* Its files went after it was found. */
static void test_emptied(void)
{
    struct found f = {.name = "step_5", .kind = FOUND_TORCH_DIR, .has_step = true, .step = 5};
    struct found_facts facts = {0};
    struct error e = {0};
    struct others_bed b;

    others_bed_open(&b);
    others_bed_put(&b, "step_5/notes.txt");
    is_int(found_check(io_system(), b.dir, &f, true, &facts, &e), -ERR_FORMAT, "none is left");
    like(e.text, "no file in it is of torch.save or of safetensors", "as is said");
    ok(facts.is_foreign, "it may be something else");
    others_bed_close(&b);
}

/* Programs that are known keep what is theirs. */
static void test_programs(void)
{
    static const struct {
        const char *dir, *names;
        enum found_kind kind;
    } cases[] = {
        {"checkpoint-5", OTHERS_TRAINER, FOUND_TRAINER},
        {"checkpoint-5", "model.safetensors optimizer.pt", FOUND_TRAINER},
        {"checkpoint-5", "model.pt trainer_state.json", FOUND_TRAINER},
        {"checkpoint-5", "model.pt training_args.bin optimizer.pt", FOUND_TRAINER},
        {"checkpoint-5", OTHERS_DIFFUSERS, FOUND_ACCELERATE},
        {"step_5", "model.bin optimizer.bin random_states_0.pkl", FOUND_ACCELERATE},
        {"step_5", "mp_rank_00_model_states.pt model.pt", FOUND_DEEPSPEED},
        {"step_5", "config.json model.safetensors optimizer.pt", FOUND_MODEL},
        {"step_5", ".metadata __0_0.distcp meta.pt", FOUND_DCP},
        {"iter_5", "common.pt model.pt", FOUND_MEGATRON},
    };

    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        struct others_bed b;
        struct found f;

        others_bed_open(&b);
        others_bed_put_all(&b, cases[i].dir, cases[i].names);
        found_one(io_system(), b.dir, cases[i].dir, &f);
        is_str(found_kind_name(f.kind), found_kind_name(cases[i].kind), "%s of '%s'",
               cases[i].dir, cases[i].names);
        others_bed_close(&b);
    }
}

/* --- whether it is whole --- */

/* step_5 of such files, and one with these bytes. */
static void check(const char *names, const char *name, const char *bytes, size_t len, int rc,
                  const char *why, bool is_foreign)
{
    struct found_facts facts;
    struct error e = {0};
    struct others_bed b;

    others_bed_open(&b);
    others_bed_put_all(&b, "step_5", names);
    if (name) {
        others_bed_put_bytes(&b, name, bytes, len);
    }
    is_int(others_bed_check(&b, "step_5", &facts, &e), rc, "'%s' and %s: %s", names,
           name ? name : "nothing", e.text);
    like(e.text, why, "and why");
    ok(facts.is_foreign == is_foreign, "it is %sof something else", is_foreign ? "" : "not ");
    others_bed_close(&b);
}

static void test_whole(void)
{
    static const char cut[] = "\x80\x02}", zeros[64] = "", own[] = "any bytes of its own",
                      json[] = "{\"step\": 5, \"lo", lines[] = "{\"a\":1}\n{\"a\":2}\n";

    check("model.pt optim.pt", NULL, NULL, 0, 0, "", false);
    check("model.pt optim.pt meta.json sub/x.pt", NULL, NULL, 0, 0, "", false);
    check("model.pt", "step_5/optim.pt", cut, 3, -ERR_FORMAT, "step_5: optim.pt", false);
    check("model.pt", "step_5/optim.pt", "", 0, -ERR_FORMAT, "optim.pt: it is empty", false);
    check("model.pt", "step_5/optim.pt", zeros, 64, -ERR_FORMAT, "optim.pt: not a format", false);
    check("model.pt", "step_5/ema.pt", zeros, 64, -ERR_FORMAT, "ema.pt: not a format", true);
    check("model.pt", "step_5/ema.bin", own, 20, 0, "", false);
    check("model.pt sub/x", "step_5/sub/optim.pt", cut, 3, -ERR_FORMAT, "sub: optim.pt", false);
    check("model.pt", "step_5/ema.safetensors", zeros, 64, -ERR_FORMAT, "ema.safetensors", false);
    check("model.pt", "step_5/meta.json", json, strlen(json), -ERR_FORMAT,
          "meta.json is cut or damaged", false);
    check("model.pt", "step_5/meta.json", "", 0, -ERR_FORMAT, "meta.json is empty", false);
    check("model.pt", "step_5/meta.json", zeros, 64, -ERR_FORMAT, "meta.json is cut", false);
    check("model.pt", "step_5/meta.json", lines, strlen(lines), 0, "", false);
    check("model.pt", "step_5/meta.json", own, strlen(own), 0, "", false);
    check("model.pt", "step_5/config.json", own, strlen(own), -ERR_FORMAT, "config.json", false);
    check("", "step_5/model.pt", own, strlen(own), -ERR_FORMAT, "neither an archive", true);
}

/* What was being written, by its name. */
static void test_names(void)
{
    check("model.pt", "step_5/optim.pt.tmp", "x", 1, -ENOENT,
          "step_5: it was never finished: optim.pt.tmp is what a file is called", false);
    check("model.pt", "step_5/.optim.pt.tmp.12", "x", 1, -ENOENT, "never finished", false);
    check("model.pt", "step_5/tmp_optim.pt", "\x80\x02}.", 4, -ENOENT, "never finished", false);
    check("model.pt", "step_5/meta.json.part", "x", 1, -ENOENT, "never finished", false);
    check("model.pt", "step_5/optim.pt.partial", "x", 1, -ENOENT, "never finished", false);
    check("model.pt", "step_5/optimizer_and_scheduler.pt.tmp", "x", 1, -ENOENT, "never finished",
          false);
    check("model.pt", "step_5/optim.dirty.pt", "x", 1, -ENOENT, "never finished", false);
    check("model.pt", "step_5/model.pt.tmp", "x", 1, 0, "", false);
    check("model.pt", "step_5/.model.pt.tmp", "x", 1, 0, "", false);
    check("model.pt", "step_5/notes.tmp", "x", 1, 0, "", false);
    check("model.pt", "step_5/model.pt.part0", "x", 1, 0, "", false);
    check("model.pt", "step_5/model.pt.tmpl", "x", 1, 0, "", false);
}

/* Of each: how many ranks run, 0 where nobody knows. */
static void test_ranks(void)
{
    static const struct {
        const char *names;
        unsigned world;
        int rc;
        const char *why;
    } cases[] = {
        {"rank0.pt rank1.pt", 0, 0, ""},
        {"rank0.pt rank1.pt", 2, 0, ""},
        {"rank0.pt rank1.pt", 4, -ENOENT, "of 4 files as rank1.pt, of which each rank writes one, "
                                          "2 are there"},
        {"rank0.pt rank8.pt rank16.pt", 0, 0, ""},
        {"rank0.pt rank1.pt rank3.pt", 0, -ENOENT, "of files as rank0.pt some are missing"},
        {"rank2.pt rank3.pt", 0, -ENOENT, "some are missing"},
        {"shard1.pt shard2.pt", 8, 0, ""},
        {"model.pt", 8, 0, ""},
        {"model_rank0.pt model_rank1.pt optim_rank0.pt optim_rank1.pt", 2, 0, ""},
        {"model_rank0.pt model_rank1.pt optim_rank0.pt", 2, 0, ""},
        {"model_rank0.pt model_rank1.pt model_rank2.pt optim_rank0.pt optim_rank1.pt", 3, -ENOENT,
         "of 3 files as optim_rank0.pt, of which each rank writes one, 2 are there"},
    };

    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        struct found_facts facts;
        struct error e = {0};
        struct others_bed b;
        struct found f;

        others_bed_open(&b);
        others_bed_put_all(&b, "step_5", cases[i].names);
        ok(is_plain(&b, "step_5", &f), "one of ranks");
        f.world = cases[i].world;
        is_int(found_check(io_system(), b.dir, &f, true, &facts, &e), cases[i].rc,
               "%s of %u ranks: %s", cases[i].names, cases[i].world, e.text);
        like(e.text, cases[i].why, "and why");
        if (cases[i].world == 4) {
            is_int(facts.n_ranks, 2, "whoever knows how many there are hears of how many");
        }
        others_bed_close(&b);
    }
}

/* An archive as torch.save makes it: each of its bytes counts. */
static void test_archives(void)
{
    struct found_facts facts;
    struct error e = {0};
    struct others_bed b;

    others_bed_open(&b);
    mkdirat(b.dir, "step_5", 0700);
    last_bed_put(b.dir, "step_5/model.pt", 5, 0, false);
    last_bed_put(b.dir, "step_5/optim.pt", 5, 0, false);
    is_int(others_bed_check(&b, "step_5", &facts, &e), 0, "whole: %s", e.text);
    is_int((int)facts.n_files, 2, "of two files");
    last_bed_put(b.dir, "step_5/optim.pt", 5, 0, true);
    is_int(others_bed_check(&b, "step_5", &facts, &e), -ERR_FORMAT, "one wrong byte");
    like(e.text, "step_5: optim.pt: ", "and where");
    last_bed_put(b.dir, "step_5/optim.pt", 5, -9, false);
    is_int(others_bed_check(&b, "step_5", &facts, &e), -ERR_FORMAT, "one that is cut");
    others_bed_close(&b);
}

/* --- what is missing --- */

/* Of each of these, "name:files", newest first, whether it is short: 1 or 0. */
static void check_short(const char *const *dirs, const char *want, const char *what)
{
    _free_ struct found_set *sets = NULL;
    _free_ struct found *all = NULL;
    _free_ size_t *series = NULL;
    struct error e = {0};
    struct others_bed b;
    char got[8] = "", name[32];
    size_t n = 0;

    others_bed_open(&b);
    for (size_t i = 0; i < 5 && dirs[i]; i++) {
        const char *files = strchr(dirs[i], ':');

        str_copy(name, (size_t)(files - dirs[i]) + 1, dirs[i]);
        others_bed_put_all(&b, name, files + 1);
    }
    found_list(io_system(), b.dir, &all, &n, NULL);
    series = found_series(all, sizeof(*all), n);
    sets = found_sets_in(io_system(), b.dir, all, n, series);
    for (size_t i = 0; i < n && i < 7; i++) {
        got[i] = sets[i].is_short ? '1' : '0';
        if (sets[i].is_short) {
            is_int(found_tell_short_in(io_system(), b.dir, all, n, sets, i, &e), -ENOENT,
                   "%s", e.text);
        }
    }
    is_str(got, want, "%s", what);
    others_bed_close(&b);
}

static void test_short(void)
{
    static const struct {
        const char *what, *dirs[5], *want;
    } cases[] = {
        {"a file that the one before has",
         {"step_20:model.pt", "step_10:model.pt optim.pt"}, "10"},
        {"or text", {"step_20:model.pt", "step_10:model.pt meta.json"}, "10"},
        {"or a mark", {"step_20:model.pt", "step_10:model.pt DONE"}, "10"},
        {"not a picture", {"step_20:model.pt", "step_10:model.pt a.png"}, "00"},
        {"nor what was measured", {"step_20:model.pt", "step_10:model.pt eval.json"}, "00"},
        {"nor the best", {"step_20:model.pt", "step_10:model.pt best.pt"}, "00"},
        {"nor what is written", {"step_20:model.pt", "step_10:model.pt model.pt.tmp"}, "00"},
        {"two that are alike are meant so",
         {"step_30:model.pt", "step_20:model.pt", "step_10:model.pt optim.pt"}, "000"},
        {"one between others is none",
         {"step_30:model.pt optim.pt", "step_20:model.pt", "step_10:model.pt optim.pt"}, "010"},
        {"more files than before", {"step_20:model.pt optim.pt", "step_10:model.pt"}, "00"},
        {"one before that is not whole",
         {"step_20:model.pt", "step_10:model.pt optim.pt.tmp meta.json"}, "00"},
        {"epochs", {"epoch_2:model.pt", "epoch_1:model.pt optim.pt"}, "10"},
        {"numbers", {"200:model.pt", "100:model.pt optim.pt"}, "10"},
        {"names that are not alike", {"a_step_20:model.pt", "step_10:model.pt optim.pt"}, "00"},
        {"files of fewer ranks",
         {"step_20:rank0.pt rank1.pt", "step_10:rank0.pt rank1.pt rank2.pt"}, "10"},
        {"a model that lacks its optimizer",
         {"step_20:config.json model.safetensors",
          "step_10:config.json model.safetensors optimizer.pt"}, "10"},
        {"a model in one file, and in several",
         {"step_20:config.json model.safetensors",
          "step_10:config.json model-00001-of-00001.safetensors model.safetensors.index.json"},
         "00"},
    };

    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        check_short(cases[i].dirs, cases[i].want, cases[i].what);
    }
}

static void test_lacks(void)
{
    struct others_bed b;
    struct found f, whole;
    char what[64];

    others_bed_open(&b);
    others_bed_put_all(&b, "step_10", "model.pt optim.pt best.pt a.txt rng_0.pt");
    others_bed_put_all(&b, "step_20", "model.pt rng_0.pt");
    ok(is_plain(&b, "step_10", &whole) && is_plain(&b, "step_20", &f), "two");
    ok(found_lacks(io_system(), b.dir, &f, &whole, what, sizeof(what)), "one lacks a file");
    is_str(what, "optim.pt", "that it needs");
    others_bed_put(&b, "step_20/optim.pt");
    ok(!found_lacks(io_system(), b.dir, &f, &whole, what, sizeof(what)), "others it need not have");
    others_bed_close(&b);
}

int main(void)
{
    test_which();
    test_contents();
    test_emptied();
    test_programs();
    test_whole();
    test_names();
    test_ranks();
    test_archives();
    test_short();
    test_lacks();
    return tap_done();
}
