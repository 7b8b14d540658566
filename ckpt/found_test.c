/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "ckpt/found.h"

#include "base/cleanup.h"
#include "ckpt/found_bed.h"
#include "ckpt/found_json.h"
#include "ckpt/found_priv.h"
#include "ckpt/last_bed.h"
#include "ckpt/step_bed.h"
#include "tests/lib/tap.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* --- names --- */

static void test_numbers(void)
{
    static const struct {
        const char *name;
        int64_t want; /* -1: none */
        bool is_step;
    } cases[] = {
        {"checkpoint-500", 500, true},
        {"checkpoint-500-1a2b3c4d", 500, true},
        {"checkpoint_7", 7, true},
        {"global_step1200", 1200, true},
        {"iter_0000100", 100, true},
        {"iter_0000100_3_local.pt", 100, true},
        {"step=100.0.ckpt", 100, true},
        {"step.12.pt", 12, true},
        {"Step-3.pt", 3, true},
        {"ckpt100.pt", 100, true},
        {"epoch=2-step=300.ckpt", 300, true},
        {"step=300-epoch=2.ckpt", 300, true},
        {"epoch=2-step=300-v1.ckpt", 300, true},
        {"epoch=02-val_loss=0.32.ckpt", 2, false},
        {"epoch=11-val_loss=1e-05.ckpt", 11, false},
        {"epoch_3", 3, false},
        {"checkpoint-epoch5.pt", 5, false},
        {"model-v1.5-step100.pt", 100, true},
        {"model-v1.5.pt", -1, false},
        {"model-v2.pt", -1, false},
        {"bf16.pt", -1, false},
        {"net-FP32.safetensors", -1, false},
        {"f8-step_7.pt", 7, true},
        {"step_16-bf16.pt", 16, true},
        {"int8/bf160.pt", 160, false},
        {"net_12-nf4.pt", 12, false},
        {"last-v1.ckpt", -1, false},
        {"model-20.pt", 20, false},
        {"model-1-20.pt", 20, false},
        {"lr1e-5-100.pt", 100, false},
        {"rank3_step100.pt", 100, true},
        {"step100_rank3.pt", 100, true},
        {"model-seed42.pt", -1, false},
        {"loss=0.25.ckpt", -1, false},
        {"llama-7b.safetensors", -1, false},
        {"model-00001-of-00003.safetensors", -1, false},
        {"step-5-00001-of-00003.safetensors", 5, true},
        {"ckpt-1764076800123456789.pt", 1764076800123456789, true},
        {"step-9223372036854775807.pt", INT64_MAX, true},
        {"step-9223372036854775808.pt", -1, false},
        {"step-9999999999999999999.pt", -1, false},
        {"x-99999999999999999999.pt", -1, false},
        {"step-99999999999999999999.pt", -1, false},
        {"step-1.pt.tmp", 1, true},
        {"model.safetensors", -1, false},
        {"", -1, false},
        {"1", 1, false},
        {"v1", -1, false},
        {"e5", 5, false},
        {"-of-3", 3, false},
    };

    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        uint64_t n = 0;
        bool is_step = false;
        bool is = found_number(cases[i].name, &n, &is_step);

        is_int(is ? (long long)n : -1, cases[i].want, "the number of '%s'",
               cases[i].name);
        ok(is_step == cases[i].is_step, "is %sa step",
           cases[i].is_step ? "" : "not ");
    }
}

static void test_order(void)
{
    static const char *const pairs[][2] = { /* the later one first */
        {"epoch=2-val_loss=0.40.ckpt", "epoch=2-val_loss=0.32.ckpt"},
        {"epoch=0-step=10-v1.ckpt", "epoch=0-step=10.ckpt"},
        {"epoch=0-step=10-v10.ckpt", "epoch=0-step=10-v9.ckpt"},
        {"epoch=4-step=100.ckpt", "epoch=3-step=100.ckpt"},
        {"last.ckpt", "model.ckpt"},
        {"last-v1.ckpt", "last.ckpt"},
        {"latest.pt", "z.pt"},
        {"model.pt", "best.pt"},
        {"b-07.pt", "b-7.pt"},
    };

    for (size_t i = 0; i < ARRAY_SIZE(pairs); i++) {
        bool is = found_compare_names(pairs[i][0], pairs[i][1]) < 0 &&
                  found_compare_names(pairs[i][1], pairs[i][0]) > 0;

        ok(is || strcmp(pairs[i][0], "b-07.pt") == 0, "%s is later than %s",
           pairs[i][0], pairs[i][1]);
    }
    is_int(found_compare_names("a-1.pt", "a-1.pt"), 0, "one is like itself");
}

static void test_parts(void)
{
    static const char *const parts[] = {
        "training_args.bin", "optimizer.pt", "optimizer_1.bin", "scheduler.bin",
        "optimizer-20.pt", "rng_state_0.pth", "random_states_0.pkl",
        "tokenizer.bin", "vocab.bin", "scaler.pt", "model.safetensors",
        "pytorch_model.bin", "model-00001-of-00003.safetensors",
        "pytorch_model-00002-of-00002.bin", "adapter_model.safetensors",
    };
    static const char *const whole[] = {
        "model.pt", "model-20.safetensors", "last.ckpt", "optimized.pt",
        "pytorch_model-step-20.bin", "ckpt.pt", "checkpoint-5",
    };

    for (size_t i = 0; i < ARRAY_SIZE(parts); i++) {
        ok(found_is_part_name(parts[i]), "%s is a part of one", parts[i]);
    }
    for (size_t i = 0; i < ARRAY_SIZE(whole); i++) {
        ok(!found_is_part_name(whole[i]), "%s may be one", whole[i]);
    }
    ok(found_is_unfinished_name("iter_0000100_0_local.dirty.pt") &&
           found_is_unfinished_name("tmp-checkpoint-5") &&
           !found_is_unfinished_name("dirty.pt"), "names of what is written");
}

/* --- directories --- */

struct bench {
    char path[FOUND_BED_PATH_BYTES];
    int dir;
};

static void setup(struct bench *b)
{
    b->dir = found_bed_open(b->path);
}

static void teardown(struct bench *b)
{
    found_bed_close(b->dir, b->path);
}

static void put_bytes(const struct bench *b, const char *name, const void *bytes,
                      size_t len)
{
    found_bed_put(b->dir, name, bytes, len);
}

/* All bytes of one, by its name. */
static int check(const struct bench *b, const char *name, struct found_facts *ret,
                 struct error *e)
{
    struct found f;

    found_one(io_system(), b->dir, name, &f);
    return found_check(io_system(), b->dir, &f, true, ret, e);
}

/* A file that is right for its name: a pickle, a safetensors file, or text. */
static void put(const struct bench *b, const char *name)
{
    static const char st[] = "\x02\0\0\0\0\0\0\0{}",
                      nothing[] = "\x80\x02}(X\x0c\0\0\0storage_data}X\x07\0\0\0versionNu.";
    char path[256], *slash;

    snprintf(path, sizeof(path), "%s", name);
    for (slash = strchr(path, '/'); slash; slash = strchr(slash + 1, '/')) {
        *slash = '\0';
        mkdirat(b->dir, path, 0700);
        *slash = '/';
    }
    if (str_ends(name, ".safetensors")) {
        put_bytes(b, name, st, sizeof(st) - 1);
    } else if (str_ends(name, "/trainer_state.json")) {
        put_bytes(b, name, "{\"global_step\":5}", 17);
    } else if (str_ends(name, ".index.json")) {
        put_bytes(b, name, "{\"weight_map\":{}}", 17);
    } else if (str_ends(name, ".json")) {
        put_bytes(b, name, "{}", 2);
    } else if (str_ends(name, ".metadata")) {
        put_bytes(b, name, nothing, sizeof(nothing) - 1);
    } else {
        put_bytes(b, name, "\x80\x02}.", 4);
    }
}

/* Names separated by blanks. */
static void put_all(const struct bench *b, const char *dir, const char *names)
{
    char text[1024], path[512], *rest = text;

    snprintf(text, sizeof(text), "%s", names);
    mkdirat(b->dir, dir, 0700);
    for (char *name; (name = strsep(&rest, " "));) {
        if (*name) {
            snprintf(path, sizeof(path), "%s/%s", dir, name);
            put(b, path);
        }
    }
}

#define TRAINER "model.safetensors optimizer.pt scheduler.pt training_args.bin "
#define DIFFUSERS "unet/diffusion_pytorch_model.safetensors unet/config.json " \
                  "optimizer.bin scheduler.bin "
#define ZERO "global_step5/mp_rank_00_model_states.pt " \
             "global_step5/bf16_zero_pp_rank_0_mp_rank_00_optim_states.pt "

static void test_kinds(void)
{
    static const struct {
        const char *dir, *names;
        enum found_kind kind;
        int rc; /* 1: it is none */
        const char *why;
    } cases[] = {
        {"checkpoint-5", TRAINER "rng_state.pth trainer_state.json", FOUND_TRAINER, 0,
         NULL},
        {"checkpoint-5", TRAINER "rng_state_0.pth rng_state_1.pth trainer_state.json",
         FOUND_TRAINER, 0, NULL},
        {"checkpoint-5", TRAINER "rng_state_1.pth trainer_state.json", FOUND_TRAINER,
         -ENOENT, "of 2 files rng_state_<rank>.pth 1 are there"},
        {"checkpoint-5", TRAINER, FOUND_TRAINER, -ENOENT, "no trainer_state.json"},
        {"checkpoint-5", "", FOUND_TRAINER, -ENOENT, "no trainer_state.json"},
        {"checkpoint-5", "optimizer.pt trainer_state.json", FOUND_TRAINER, -ENOENT,
         "no weights"},
        {"checkpoint-6", TRAINER "trainer_state.json", FOUND_TRAINER, -ERR_FORMAT,
         "of another step, 5"},
        /* DeepSpeed: its weights are elsewhere, and `latest` says nothing. */
        {"checkpoint-5", ZERO "latest trainer_state.json", FOUND_TRAINER, 0, NULL},
        {"checkpoint-5", ZERO "global_step5/bf16_zero_pp_rank_2_mp_rank_00_optim_states.pt "
         "latest trainer_state.json", FOUND_TRAINER, -ENOENT,
         "of 3 files *_optim_states.pt 2 are there"},
        {"checkpoint-5", "global_step5/zero_pp_rank_0_mp_rank_00_optim_states.pt latest "
         "trainer_state.json", FOUND_TRAINER, -ENOENT, "no file *_model_states.pt"},
        {"checkpoint-5", ZERO "latest", FOUND_TRAINER, -ENOENT, "no trainer_state.json"},
        {"global_step5", "mp_rank_00_model_states.pt mp_rank_01_model_states.pt",
         FOUND_DEEPSPEED, 0, NULL},
        {"global_step5", "mp_rank_01_model_states.pt", FOUND_DEEPSPEED, -ENOENT,
         "of 2 files *_model_states.pt 1 are there"},
        {"global_step5", "zero_pp_rank_0_mp_rank_00_model_states.pt "
         "zero_pp_rank_1_mp_rank_00_model_states.pt "
         "zero_pp_rank_0_mp_rank_00_optim_states.pt "
         "zero_pp_rank_1_mp_rank_00_optim_states.pt layer_0_expert_1_mp_rank_00_model_states.pt",
         FOUND_DEEPSPEED, 0, NULL},
        {"epoch=1-step=5.ckpt", "checkpoint/mp_rank_00_model_states.pt latest",
         FOUND_DEEPSPEED, 0, NULL},
        {"epoch=1-step=5.ckpt", "checkpoint/x latest", FOUND_DEEPSPEED, -ENOENT,
         "no file *_model_states.pt"},
        /* FSDP */
        {"checkpoint-5", "pytorch_model_fsdp_0/__0_0.distcp trainer_state.json",
         FOUND_TRAINER, -ENOENT, "pytorch_model_fsdp_0: it was never finished"},
        {"checkpoint-5", "pytorch_model_fsdp_0/__0_0.distcp optimizer_0/__0_0.distcp "
         "random_states_0.pkl scheduler.bin", FOUND_ACCELERATE, -ENOENT,
         "no .metadata"},
        /* Accelerate */
        {"checkpoint-5", DIFFUSERS "random_states_0.pkl", FOUND_ACCELERATE, 0, NULL},
        {"checkpoint-5", "model.safetensors optimizer.bin random_states_0.pkl "
         "random_states_1.pkl sampler.bin scaler.pt", FOUND_ACCELERATE, 0, NULL},
        {"checkpoint-5", DIFFUSERS "random_states_1.pkl", FOUND_ACCELERATE, -ENOENT,
         "of 2 files random_states_<rank>.pkl 1 are there"},
        {"checkpoint-5", DIFFUSERS, FOUND_ACCELERATE, -ENOENT,
         "no random_states_0.pkl"},
        {"epoch_3", DIFFUSERS "random_states_0.pkl", FOUND_ACCELERATE, 0, NULL},
        {"checkpoint_0", "random_states_0.pkl", FOUND_ACCELERATE, -ENOENT,
         "no weights"},
        {"checkpoint-5", "pytorch_model/mp_rank_00_model_states.pt latest "
         "random_states_0.pkl", FOUND_ACCELERATE, 0, NULL},
        /* Megatron */
        {"iter_0000100", "mp_rank_00/model_optim_rng.pt mp_rank_01/model_optim_rng.pt",
         FOUND_MEGATRON, 0, NULL},
        {"iter_0000100", "mp_rank_00_000/model_optim_rng.pt mp_rank_00_001/distrib_optim.pt",
         FOUND_MEGATRON, -ENOENT, "no mp_rank_00_001/model_optim_rng.pt"},
        {"iter_0000100", "mp_rank_00_000/model_optim_rng.pt mp_rank_01_001/model_optim_rng.pt",
         FOUND_MEGATRON, -ENOENT, "of 4 directories mp_rank_<rank> 2 are there"},
        {"iter_0000100", "common.pt __0_0.distcp", FOUND_MEGATRON, -ENOENT,
         "no metadata.json"},
        {"iter_0000100", "common.pt metadata.json __0_0.distcp", FOUND_MEGATRON,
         -ENOENT, "no .metadata"},
        {"step-5", "__0_0.distcp", FOUND_DCP, -ENOENT, "no .metadata"},
        /* Ranks that do not talk to each other. */
        {"step-5", "__0_0.distcp __0.metadata __1.metadata", FOUND_DCP, 0, NULL},
        {"step-5", "__0_0.distcp __1_0.distcp __0.metadata", FOUND_DCP, -ENOENT,
         "no __1.metadata"},
        {"step-5", "__0.metadata __2.metadata", FOUND_DCP, -ENOENT,
         "of 3 files __<rank>.metadata 2 are there"},
        {"step-5", "__0.metadata __x_0.distcp", FOUND_DCP, 0, NULL},
        {"checkpoint-5", "pytorch_model_fsdp_0/__0.metadata trainer_state.json "
         "pytorch_model_fsdp_0/__0_0.distcp", FOUND_TRAINER, 0, NULL},
        {"x.ckpt", "__0_0.distcp meta.pt", FOUND_DCP, -ENOENT, "no .metadata"},
        /* Weights alone */
        {"step-5", "config.json model.safetensors", FOUND_MODEL, 0, NULL},
        {"epoch_3", "config.json pytorch_model.bin", FOUND_MODEL, 0, NULL},
        {"step-5", "adapter_config.json adapter_model.safetensors", FOUND_MODEL, 0, NULL},
        {"step-5", "config.json model-00001-of-00002.safetensors", FOUND_MODEL, -ENOENT,
         "no model.safetensors.index.json"},
        {"step-5", "model-00001-of-00001.safetensors model.safetensors.index.json",
         FOUND_MODEL, 0, NULL},
        {"step-5", "model.safetensors.index.json config.json", FOUND_MODEL, -ENOENT,
         "no weights"},
        {"step-5", "model-00001-of-00001.safetensors model.safetensors.index.json "
         "sharded/shard-00001-model-00001-of-00001.safetensors", FOUND_MODEL, 0, NULL},
        {"step-5", "shard-00001-model-00001-of-00001.safetensors", FOUND_MODEL, 0, NULL},
        {"checkpoint-5", "config.json model.safetensors", FOUND_TRAINER, -ENOENT,
         "no trainer_state.json"},
        {"step-5", "model.safetensors", 0, 1, NULL},
        {"run-5", "config.json model.safetensors checkpoint-5/x", 0, 1, NULL},
        /* none */
        {"logs", "events.out.tfevents.1 optimizer.txt", 0, 1, NULL},
        {"out", "trainer_state.json model.safetensors checkpoint-5/x", 0, 1, NULL},
        {"iter_0000100", "data.bin", 0, 1, NULL},
        {"tmp-checkpoint-5", TRAINER "trainer_state.json", 0, 1, NULL},
        {"checkpoint-5.broken", TRAINER "trainer_state.json", 0, 1, NULL},
    };

    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        struct found_facts facts;
        struct error e = {0};
        struct found f;
        struct bench b;
        bool is;

        setup(&b);
        put_all(&b, cases[i].dir, cases[i].names);
        is = found_one(io_system(), b.dir, cases[i].dir, &f);
        ok(is == (cases[i].rc != 1), "%s of '%s' is %s", cases[i].dir,
           cases[i].names, cases[i].rc == 1 ? "none" : "one");
        if (is && cases[i].rc != 1) {
            is_str(found_kind_name(f.kind), found_kind_name(cases[i].kind),
                   "its kind");
            is_int(found_check(io_system(), b.dir, &f, true, &facts, &e),
                   cases[i].rc, "%s", e.text);
            like(e.text, cases[i].why ? cases[i].why : "", "and why");
        }
        teardown(&b);
    }
}

/* A model that training begins with is none to go on from. */
static void test_models(void)
{
    static const struct {
        const char *dir, *names;
        bool is_part;
    } cases[] = {
        {"step-500", "config.json model.safetensors", false},
        {"epoch_3", "config.json model.safetensors", false},
        {"gpt-2", "config.json model.safetensors", true},
        {"base", "config.json model.safetensors", true},
        {"out-5", "model.safetensors.index.json model-00001-of-00001.safetensors", false},
        {"out", "model.safetensors.index.json model-00001-of-00001.safetensors", true},
    };

    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        struct found f, again;
        struct bench b;

        setup(&b);
        put_all(&b, cases[i].dir, cases[i].names);
        ok(found_one(io_system(), b.dir, cases[i].dir, &f) && f.kind == FOUND_MODEL &&
               f.is_part == cases[i].is_part && f.has_step == !cases[i].is_part,
           "%s is %s", cases[i].dir, cases[i].is_part ? "a model alone" : "one");
        again = f;
        again.is_part = !f.is_part;
        found_recall(&again);
        is_int(again.is_part, f.is_part, "and a copy of it likewise");
        teardown(&b);
    }
}

/* Lightning's last one says its step only inside, and comes where that puts it: behind
 * one that says the same in its name. */
static void test_last(void)
{
    static const char *const want[] = {"last.ckpt", "epoch=2-step=300.ckpt", "last-v1.ckpt",
                                       "epoch=1-step=200.ckpt", "last", "last.pt"};
    _free_ struct found *all = NULL;
    struct found_facts facts;
    struct found f;
    struct bench b;
    size_t n = 0;

    setup(&b);
    last_bed_put(b.dir, "epoch=1-step=200.ckpt", 201, 0, false);
    last_bed_put(b.dir, "epoch=2-step=300.ckpt", 301, 0, false);
    last_bed_put(b.dir, "last.ckpt", 900, 0, false);
    last_bed_put(b.dir, "last-v1.ckpt", 300, 0, false);
    last_bed_put(b.dir, "last.pt", 901, 0, false);
    put(&b, "last/common.pt");
    is_int(found_list(io_system(), b.dir, &all, &n, NULL), 0, "a list");
    is_int((int)n, ARRAY_SIZE(want), "of all");
    for (size_t i = 0; i < n && i < ARRAY_SIZE(want); i++) {
        is_str(all[i].name, want[i], "number %zu", i);
    }
    ok(all[0].is_inside && all[0].has_step && all[0].step == 900 && !all[0].is_step,
       "a step that its name does not say");
    ok(!all[1].is_inside && all[1].step == 300, "a name counts before what is inside");
    ok(!all[5].has_step, "another program's last.pt says nothing");
    is_int(found_check(io_system(), b.dir, &all[0], true, &facts, NULL), 0, "it is whole");
    last_bed_put(b.dir, "last.ckpt", 900, -1, false);
    ok(found_one(io_system(), b.dir, "last.ckpt", &f) && !f.has_step && !f.is_inside,
       "one that is cut says no step");
    last_bed_put(b.dir, "last.ckpt", INT64_MAX, 0, false);
    ok(found_one(io_system(), b.dir, "last.ckpt", &f) && f.is_inside && f.step == INT64_MAX,
       "as large a step as any");
    last_bed_put(b.dir, "last.ckpt", UINT64_C(1) << 63, 0, false);
    ok(found_one(io_system(), b.dir, "last.ckpt", &f) && !f.has_step && !f.is_inside,
       "nor one that says more than a name could");
    put_bytes(&b, "last.ckpt", "\x80\x02}.", 4);
    ok(found_one(io_system(), b.dir, "last.ckpt", &f) && !f.has_step, "nor a bare pickle");
    unlinkat(b.dir, "last.ckpt", 0);
    symlinkat("epoch=1-step=200.ckpt", b.dir, "last.ckpt");
    ok(!found_one(io_system(), b.dir, "last.ckpt", &f) || !f.has_step, "nor a link");
    symlinkat("epoch=1-step=200.ckpt", b.dir, "now.pt");
    symlinkat("gone", b.dir, "then.safetensors");
    mkdirat(b.dir, "step-000000000007-00000001", 0700);
    symlinkat("step-000000000007-00000001", b.dir, "step-000000000008-00000001");
    put_bytes(&b, "step-000000000009-00000001", "x", 1);
    ok(found_one(io_system(), b.dir, "step-000000000007-00000001", &f) &&
       !found_one(io_system(), b.dir, "step-000000000008-00000001", &f) &&
       !found_one(io_system(), b.dir, "step-000000000009-00000001", &f),
       "of muster's are only directories");
    ok(!found_one(io_system(), b.dir, "now.pt", &f) &&
       !found_one(io_system(), b.dir, "then.safetensors", &f),
       "a link is a name more, and no checkpoint more");
    teardown(&b);
}

/* What a file of each name does to a whole checkpoint. */
static void test_inside(void)
{
    static const struct {
        const char *name, *bytes;
        int rc;
    } cases[] = {
        {"optimizer.bin", "not one", -ERR_FORMAT},
        {"optimizer.bin", "", -ERR_FORMAT},
        {"vocab.bin", "not one", 0},
        {"tokens.bin", "not one", 0},
        {"unet/weights.bin", "not one", 0},
        {"unet/diffusion_pytorch_model.safetensors", "cut", -ERR_FORMAT},
        {"unet/x.safetensors.index.json", "{", -ERR_FORMAT},
        {"unet/x.safetensors.index.json", "{\"weight_map\":{\"a\":\"no.safetensors\"}}",
         -ERR_FORMAT},
        {"random_states_0.pkl", "\x80\x02}", -ERR_FORMAT},
        {"unet/config.json", "", -ERR_FORMAT},
        {"unet/config.json", "{\"a\": [1, 2", -ERR_FORMAT},
        {"unet/config.json", "{\"a\": \"\xff\"}", -ERR_FORMAT},
        {"unet/config.json", "{\"a\": NaN}", 0},
        {"unet/config.json", "\xef\xbb\xbf{\"a\": 1}", 0},
        {"scheduler/scheduler_config.json", "", -ERR_FORMAT},
        {"generation_config.json", "{", -ERR_FORMAT},
        {"model_index.json", "{", -ERR_FORMAT},
        {"tokenizer.json", "", -ERR_FORMAT},
        {"tokenizer.json", "{\"\\u0000\": \"\\ud83d\"}", 0},
        {"special_tokens_map.json", "{\"x\"", -ERR_FORMAT},
        {"tokenizer.model", "", -ERR_FORMAT},
        {"spiece.model", "", -ERR_FORMAT},
        {"spiece.model", "\n", 0},
        {"merges.txt", "", -ERR_FORMAT},
        {"tokenizer/vocab.txt", "", -ERR_FORMAT},
        {"tokenizer/vocab.txt", "a", 0},
        {"samples.json", "{}\n{}\n", 0},
        {"done.json", "", 0},
        {"README.md", "", 0},
    };

    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        struct found_facts facts;
        struct error e = {0};
        struct bench b;
        char path[256];

        setup(&b);
        put_all(&b, "checkpoint-5", DIFFUSERS "random_states_0.pkl");
        mkdirat(b.dir, "checkpoint-5/scheduler", 0700);
        mkdirat(b.dir, "checkpoint-5/tokenizer", 0700);
        snprintf(path, sizeof(path), "checkpoint-5/%s", cases[i].name);
        put_bytes(&b, path, cases[i].bytes, strlen(cases[i].bytes));
        is_int(check(&b, "checkpoint-5", &facts, &e), cases[i].rc,
               "%s of '%s' (%s)", cases[i].name, cases[i].bytes, e.text);
        teardown(&b);
    }
}

/* A text that is a link is where somebody has put it, and one that is too large is not
 * looked at. */
static void test_texts(void)
{
    struct found_facts facts;
    struct error e = {0};
    struct bench b;
    int fd;

    setup(&b);
    put_all(&b, "step-5", "model.safetensors config.json tokenizer.json");
    is_int(check(&b, "step-5", &facts, &e), 0, "a model: %s", e.text);
    put_bytes(&b, "step-5/config.json", "", 0);
    is_int(check(&b, "step-5", &facts, &e), -ERR_FORMAT, "with an empty config.json");
    like(e.text, "step-5: config.json is empty", "which is said");
    put_bytes(&b, "step-5/config.json", "\0\0", 2);
    is_int(check(&b, "step-5", &facts, &e), -ERR_FORMAT, "with one of zeros");
    like(e.text, "step-5: config.json is cut or damaged: no JSON", "likewise");
    put(&b, "step-5/config.json");
    unlinkat(b.dir, "step-5/tokenizer.json", 0);
    symlinkat("nowhere", b.dir, "step-5/tokenizer.json");
    is_int(check(&b, "step-5", &facts, &e), 0, "with a link");
    unlinkat(b.dir, "step-5/tokenizer.json", 0);
    fd = openat(b.dir, "step-5/tokenizer.json", O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
    is_int(ftruncate(fd, (256 << 20) + 1), 0, "with one of zeros that is large");
    is_int(check(&b, "step-5", &facts, &e), 0, "of which nobody knows");
    close(fd);
    teardown(&b);
    setup(&b);
    put_all(&b, "checkpoint-5", TRAINER "trainer_state.json");
    put_bytes(&b, "checkpoint-5/tokenizer_config.json", "{\"a\"", 4);
    is_int(check(&b, "checkpoint-5", &facts, &e), -ERR_FORMAT, "the Trainer's, cut");
    like(e.text, "checkpoint-5: tokenizer_config.json is cut", "is named");
    teardown(&b);
}

/* What is wrong is said in words that say it. */
static void test_reasons(void)
{
    static const char *const states[] = {"{\"global_step\":5.0}", "{\"global_step\":\"5\"}",
                                         "{}"};
    struct found_facts facts;
    struct error e = {0};
    struct bench b;

    setup(&b);
    put_all(&b, "checkpoint-5", TRAINER "trainer_state.json");
    for (size_t i = 0; i < ARRAY_SIZE(states); i++) {
        put_bytes(&b, "checkpoint-5/trainer_state.json", states[i], strlen(states[i]));
        is_int(check(&b, "checkpoint-5", &facts, &e), -ERR_FORMAT, "%s", states[i]);
        like(e.text, "no global_step that is a whole number", "is no other step");
    }
    put(&b, "checkpoint-5/trainer_state.json");
    unlinkat(b.dir, "checkpoint-5/optimizer.pt", 0);
    symlinkat("model.safetensors", b.dir, "checkpoint-5/optimizer.pt");
    is_int(check(&b, "checkpoint-5", &facts, &e), -ELOOP, "a link");
    like(e.text, "optimizer.pt is a link, and none is followed", "is called one");
    unlinkat(b.dir, "checkpoint-5/optimizer.pt", 0);
    mkfifoat(b.dir, "checkpoint-5/optimizer.pt", 0600);
    is_int(check(&b, "checkpoint-5", &facts, &e), -EINVAL, "a pipe");
    like(e.text, "optimizer.pt is no file", "is no file");
    teardown(&b);
}

/* A file of another program says by its bytes that it is one, and nothing of damage. */
static void test_foreign(void)
{
    static const char zip[] =
        "PK\3\4\12\0\0\0\0\0\0\0\0\0\371\357\276\161\1\0\0\0\1\0\0\0\1\0\0\0ab"
        "PK\1\2\12\0\12\0\0\0\0\0\0\0\0\0\371\357\276\161\1\0\0\0\1\0\0\0\1\0\0\0"
        "\0\0\0\0\0\0\0\0\0\0\0\0\0\0a"
        "PK\5\6\0\0\0\0\1\0\1\0\57\0\0\0\40\0\0\0\0";
    static const struct {
        const char *name, *bytes;
        size_t len;
        bool is_foreign;
        const char *why;
    } cases[] = {
        {"step-1.ckpt", "of its own", 10, true, "not a format that muster knows: neither"},
        {"step-1.pt", "\0\0\0\0", 4, true, "not a format that muster knows"},
        {"vocab.bin", "words", 5, true, "not a format that muster knows"},
        {"step-1.pt", zip, sizeof(zip), true, "not a format that muster knows: an archive"},
        {"step-1.pt", zip, sizeof(zip) - 1, false, "the archive is cut"},
        {"optimizer.pt", zip, sizeof(zip), false, ""},
        {"optimizer.pt", "of its own", 10, false, ""},
        {"pytorch_model-7.bin", "of its own", 10, false, ""},
        {"step-1.pt", "", 0, false, "empty"},
        {"step-1.pt", "\x80\x02}", 3, false, "cut"},
        {"step-1.safetensors", "of its own", 10, false, ""},
    };

    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        struct found_facts facts;
        struct error e = {0};
        struct bench b;

        setup(&b);
        put_bytes(&b, cases[i].name, cases[i].bytes, cases[i].len);
        is_int(check(&b, cases[i].name, &facts, &e), -ERR_FORMAT,
               "%s of %zu bytes is not whole", cases[i].name, cases[i].len);
        is_int(facts.is_foreign, cases[i].is_foreign, "and whether it is another's: %s",
               e.text);
        like(e.text, cases[i].why, "why");
        teardown(&b);
    }
}

/* A shape of more lengths than there can be here is no damage. */
static void test_limit(void)
{
    static const char bytes[] =
        "\x58\0\0\0\0\0\0\0{\"a\":{\"dtype\":\"U8\",\"shape\":"
        "[1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1],\"data_offsets\":[0,1]}}   x";
    struct found_facts facts;
    struct error e = {0};
    struct bench b;

    setup(&b);
    put_bytes(&b, "step-1.safetensors", bytes, sizeof(bytes) - 1);
    is_str(found_state_name(check(&b, "step-1.safetensors", &facts, &e)), "unreadable",
           "of 17 lengths: %s", e.text);
    like(e.text, "at most 16 lengths", "and why");
    teardown(&b);
}

/* What the Trainer says of itself: as Python writes it, which is not always JSON. */
static void test_state(void)
{
    static const struct {
        const char *bytes;
        int rc;
    } cases[] = {
        {"{\"global_step\":5,\"log_history\":[{\"grad_norm\":NaN,\"loss\":-Infinity}]}", 0},
        {"{\"total_flos\":36893488147419103232,\"best_metric\":Infinity,"
         "\"global_step\":5}", 0},
        {"{\"x\":\"\\\"NaN\", \"global_step\":5}", 0},
        {"{\"global_step\":6,\"x\":NaN}", -ERR_FORMAT},
        {"{\"global_step\":NaN}", -ERR_FORMAT},
        {"{\"global_step\":36893488147419103232}", -ERR_FORMAT},
        {"{\"global_step\":5,\"x\":NaN", -ERR_FORMAT},
        {"{\"global_step\":5,\"x\":nan}", -ERR_FORMAT},
        {"{\"global_step\":5,\"x\":NaNNaN}", -ERR_FORMAT},
        {"{\"global_step\":5,\"x\":\"", -ERR_FORMAT},
        {"{\"global_step\":5,\"x\":\"\\", -ERR_FORMAT},
        {"NaN", -ERR_FORMAT},
        {"-", -ERR_FORMAT},
    };

    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        struct found_facts facts;
        struct error e = {0};
        struct bench b;

        setup(&b);
        put_all(&b, "checkpoint-5", TRAINER);
        put_bytes(&b, "checkpoint-5/trainer_state.json", cases[i].bytes,
                  strlen(cases[i].bytes));
        is_int(check(&b, "checkpoint-5", &facts, &e), cases[i].rc,
               "its state is '%s' (%s)", cases[i].bytes, e.text);
        teardown(&b);
    }
}

/* Those of the highest ranks are missed where it is known how many there are. */
static void test_world(void)
{
    struct found_facts facts;
    struct error e = {0};
    struct found f;
    struct bench b;

    setup(&b);
    put_all(&b, "checkpoint-5", TRAINER "rng_state_0.pth rng_state_1.pth "
                                        "trainer_state.json");
    found_one(io_system(), b.dir, "checkpoint-5", &f);
    is_int(found_check(io_system(), b.dir, &f, true, &facts, &e), 0, "of any ranks");
    f.world = 2;
    is_int(found_check(io_system(), b.dir, &f, true, &facts, &e), 0, "of two");
    f.world = 3;
    is_int(found_check(io_system(), b.dir, &f, true, &facts, &e), -ENOENT,
           "of three");
    like(e.text, "of 3 files rng_state_<rank>.pth 2 are there", "says so");
    teardown(&b);
}

/* What a file of it says of how many others there have to be. */
static void test_said(void)
{
#define MODEL(dp, mp) "zero_pp_rank_" #dp "_mp_rank_0" #mp "_model_states.pt"
#define OPTIM(dp, mp) "zero_pp_rank_" #dp "_mp_rank_0" #mp "_optim_states.pt"
#define NONE "no file *_optim_states.pt"
    static const struct {
        const char *dir, *names, *file, *says; /* the last two: one file more */
        int rc;
        const char *why;
    } cases[] = {
        {"global_step5", "", "mp_rank_00_model_states.pt", "optimizer=None dp_world_size=4 "
         "mp_world_size=1 ds_config={ zero_optimization={ stage=2 } }", -ENOENT, NONE},
        {"global_step5", "", "mp_rank_00_model_states.pt", "optimizer=None param_shapes={ } "
         "dp_world_size=1 mp_world_size=1", -ENOENT, NONE},
        {"global_step5", OPTIM(0, 0), "mp_rank_00_model_states.pt", "optimizer=None "
         "param_shapes={ } dp_world_size=1 mp_world_size=1", 0, ""},
        {"global_step5", "zero/x", "mp_rank_00_model_states.pt", "optimizer=None "
         "param_shapes={ } dp_world_size=4 mp_world_size=1", 0, ""},
        {"global_step5", "", "mp_rank_00_model_states.pt", "stage=3 optimizer={ x=1 } "
         "param_shapes=None dp_world_size=4 mp_world_size=1 zero_optimization={ stage=0 }", 0,
         ""},
        {"global_step5", "", "mp_rank_00_model_states.pt", "optimizer={ x=1 } dp_world_size=4 "
         "mp_world_size=1 ds_config={ optimizer=None zero_optimization={ stage=2 } }", 0, ""},
        {"global_step5", "", "mp_rank_00_model_states.pt", "stage=2 optimizer=None "
         "dp_world_size=4 mp_world_size=1", 0, ""},
        {"global_step5", "expp_rank_0_mp_rank_00_optim_states.pt "
         "layer_0_expert_1_mp_rank_00_model_states.pt", "mp_rank_00_model_states.pt",
         "optimizer=None param_shapes=None dp_world_size=4 mp_world_size=1", 0, ""},
        {"global_step5", "", "mp_rank_00_model_states.pt", "dp_world_size=4 mp_world_size=2",
         -ENOENT, "of 2 files *_model_states.pt 1 are there"},
        {"global_step5", "mp_rank_01_model_states.pt", "mp_rank_00_model_states.pt",
         "dp_world_size=4 mp_world_size=2", 0, ""},
        {"global_step5", MODEL(1, 0) " " OPTIM(0, 0) " " OPTIM(1, 0), MODEL(0, 0),
         "dp_world_size=3 mp_world_size=1", -ENOENT, "of 3 files *_model_states.pt 2 are"},
        {"global_step5", "mp_rank_01_model_states.pt " OPTIM(0, 0), "mp_rank_00_model_states.pt",
         "dp_world_size=2 mp_world_size=2", -ENOENT, "of 4 files *_optim_states.pt 1 are there"},
        {"iter_0000100", "", "mp_rank_00/model_optim_rng.pt", "args={ "
         "tensor_model_parallel_size=2 pipeline_model_parallel_size=1 }", -ENOENT,
         "of 2 directories mp_rank_<rank> 1 are there"},
        {"iter_0000100", "mp_rank_01/model_optim_rng.pt", "mp_rank_00/model_optim_rng.pt",
         "tensor_model_parallel_size=2 pipeline_model_parallel_size=1 "
         "expert_model_parallel_size=8", 0, ""},
        {"iter_0000100", "mp_rank_01_000/model_rng.pt", "mp_rank_00_000/model_rng.pt",
         "tensor_model_parallel_size=2 pipeline_model_parallel_size=2", -ENOENT,
         "of 4 directories mp_rank_<rank> 2 are there"},
        {"iter_0000100", "", "mp_rank_00_000_000/model_optim_rng.pt", "expert_model_parallel_size"
         "=2 tensor_model_parallel_size=1", -ENOENT, "of 2 directories mp_rank_<rank> 1"},
    };

    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        struct found_facts facts;
        struct error e = {0};
        struct bench b;
        char path[256];

        setup(&b);
        snprintf(path, sizeof(path), "%s %s", cases[i].names, cases[i].file);
        put_all(&b, cases[i].dir, path);
        snprintf(path, sizeof(path), "%s/%s", cases[i].dir, cases[i].file);
        last_bed_put_dict(b.dir, path, cases[i].says);
        is_int(check(&b, cases[i].dir, &facts, &e), cases[i].rc, "%s beside '%s' (%s)",
               cases[i].says, cases[i].names, e.text);
        like(e.text, cases[i].why, "and why");
        ok(facts.is_counted, "it says itself how many there are");
        teardown(&b);
    }
#undef MODEL
#undef OPTIM
#undef NONE
}

/* Of those that do not say it, which are short by what lies beside them. */
static void test_beside(void)
{
#define RANKS(n) DIFFUSERS "random_states_0.pkl" n
    static const struct {
        const char *newest, *middle, *oldest, *want;
    } cases[] = {
        {RANKS(""), RANKS(" random_states_1.pkl"), RANKS(" random_states_1.pkl"), "100"},
        {RANKS(""), RANKS(""), RANKS(" random_states_1.pkl"), "000"},
        {RANKS(""), "random_states_0.pkl random_states_1.pkl", RANKS(""), "000"},
        {RANKS(""), "random_states_0.pkl random_states_1.pkl",
         RANKS(" random_states_1.pkl random_states_2.pkl"), "100"},
        {RANKS(""), "random_states_1.pkl random_states_3.pkl", "random_states_0.pkl", "000"},
        {RANKS(" random_states_1.pkl"), RANKS(""), RANKS(""), "000"},
        {TRAINER "rng_state.pth trainer_state.json",
         TRAINER "rng_state_0.pth rng_state_1.pth trainer_state.json", "", "000"},
    };

    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        _free_ struct found_set *sets = NULL;
        _free_ struct found *all = NULL;
        _free_ size_t *series = NULL;
        char got[8] = "";
        struct bench b;
        size_t n = 0;

        setup(&b);
        put_all(&b, "checkpoint-30", cases[i].newest);
        put_all(&b, "checkpoint-5", cases[i].middle);
        put_all(&b, "checkpoint-4", cases[i].oldest);
        if (found_list(io_system(), b.dir, &all, &n, NULL) == 0) {
            series = found_series(all, sizeof(*all), n);
            sets = found_sets_in(io_system(), b.dir, all, n, series);
        }
        for (size_t k = 0; k < n && k < 3; k++) {
            got[k] = sets[k].is_short ? '1' : '0';
        }
        is_str(got, cases[i].want, "'%s' over '%s' and '%s'", cases[i].newest, cases[i].middle,
               cases[i].oldest);
        teardown(&b);
    }
#undef RANKS
}

/* One that says itself that it has all is not short, whatever an older one had. */
static void test_beside_counted(void)
{
    _free_ struct found_set *sets = NULL;
    _free_ struct found *all = NULL;
    _free_ size_t *series = NULL;
    struct error e = {0};
    struct bench b;
    size_t n = 0;

    setup(&b);
    put_all(&b, "iter_0000020", "mp_rank_00/model_optim_rng.pt");
    put_all(&b, "iter_0000010", "mp_rank_00/model_optim_rng.pt mp_rank_01/model_optim_rng.pt");
    found_list(io_system(), b.dir, &all, &n, NULL);
    series = found_series(all, sizeof(*all), n);
    sets = found_sets_in(io_system(), b.dir, all, n, series);
    ok(n == 2 && sets[0].is_short && sets[1].n_files == 2, "one that does not is");
    is_int(found_tell_short(&all[0], &e), -ENOENT, "it is unfinished");
    like(e.text, "iter_0000020: it was never finished: of what each rank writes 1 are there",
         "and why");
    free(sets);
    last_bed_put_dict(b.dir, "iter_0000020/mp_rank_00/model_optim_rng.pt",
                      "tensor_model_parallel_size=1");
    sets = found_sets_in(io_system(), b.dir, all, n, series);
    ok(!sets[0].is_short && all[0].n_ranks == 0, "one that says it is not");
    teardown(&b);
}

static void test_lacks(void)
{
    struct found f = {.name = "checkpoint-60"}, whole = {.name = "checkpoint-5"};
    struct bench b;
    char what[64];

    setup(&b);
    put_all(&b, "checkpoint-5", TRAINER ZERO "rng_state_0.pth rng_state_1.pth "
                                             "trainer_state.json");
    put_all(&b, "checkpoint-60", TRAINER "global_step60/mp_rank_00_model_states.pt "
                                 "rng_state_0.pth rng_state_1.pth trainer_state.json");
    ok(found_lacks(io_system(), b.dir, &f, &whole, what, sizeof(what)),
       "one lacks a file");
    is_str(what, "global_step#/bf#_zero_pp_rank_#_mp_rank_#_optim_states.pt", "this");
    put(&b, "checkpoint-60/global_step60/"
            "bf16_zero_pp_rank_0_mp_rank_00_optim_states.pt");
    ok(!found_lacks(io_system(), b.dir, &f, &whole, what, sizeof(what)),
       "with it, it has all");
    unlinkat(b.dir, "checkpoint-60/rng_state_1.pth", 0);
    ok(found_lacks(io_system(), b.dir, &f, &whole, what, sizeof(what)),
       "of two files alike it has one");
    is_str(what, "rng_state_#.pth", "these");
    str_copy(whole.name, sizeof(whole.name), "step-5");
    ok(!found_lacks(io_system(), b.dir, &f, &whole, what, sizeof(what)),
       "another name says nothing");
    teardown(&b);
}

/* One of muster's that somebody has called otherwise, for who is given its path. */
static void test_renamed(void)
{
    static const char *const names[] = {"best", "checkpoint-7", "step-7", "model.safetensors"};
    struct found_facts facts;
    struct error e = {0};
    char name[STEP_NAME_BYTES];
    struct found f;
    struct bench b;

    setup(&b);
    for (size_t i = 0; i < ARRAY_SIZE(names); i++) {
        if (bed_save(io_system(), b.dir, 7, 9, &e) < 0) {
            bail_out("%s", e.text);
        }
        bed_name(7, 9, name);
        ok(!found_renamed(io_system(), b.dir, name, &f), "one with its own name is none");
        renameat(b.dir, name, b.dir, names[i]);
        ok(found_renamed(io_system(), b.dir, names[i], &f) && f.kind == FOUND_MUSTER &&
               f.has_step && f.is_step && f.step == 7 && f.token == 9,
           "one is, as %s", names[i]);
        is_int(found_check(io_system(), b.dir, &f, true, &facts, &e), 0, "it is whole (%s)",
               e.text);
    }
    ok(!found_one(io_system(), b.dir, "best", &f), "but in no list");
    put_bytes(&b, "best/r00001.safetensors", "x", 1);
    ok(found_renamed(io_system(), b.dir, "best", &f), "one that is cut");
    is_int(found_check(io_system(), b.dir, &f, false, &facts, &e), -ERR_FORMAT, "is damaged");
    like(e.text, "best/r00001.safetensors is cut", "with the name that it has");
    unlinkat(b.dir, "step-7/COMMIT", 0);
    ok(found_renamed(io_system(), b.dir, "step-7", &f) && !f.has_step, "one without COMMIT");
    is_int(found_check(io_system(), b.dir, &f, true, &facts, &e), -ENOENT, "is not finished");
    put_all(&b, "other", "r00000.safetensors manifest.json");
    put_bytes(&b, "other/COMMIT", "fix it", 6);
    ok(!found_renamed(io_system(), b.dir, "other", &f), "what has such names is none");
    ok(!found_renamed(io_system(), b.dir, "not there", &f), "nor is nothing");
    teardown(&b);
}

int main(void)
{
    test_numbers();
    test_order();
    test_parts();
    test_kinds();
    test_models();
    test_last();
    test_inside();
    test_texts();
    test_reasons();
    test_foreign();
    test_limit();
    test_state();
    test_world();
    test_said();
    test_beside();
    test_beside_counted();
    test_lacks();
    test_renamed();
    return tap_done();
}
