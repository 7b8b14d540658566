/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What is a checkpoint, of which kind, and whether it has all that this kind has to have; of
 * which step it is where its name does not say it; and one of muster's under another name.
 */
#include <config.h>

#include "ckpt/found.h"

#include "base/cleanup.h"
#include "ckpt/last_bed.h"
#include "ckpt/others_bed.h"
#include "ckpt/step_bed.h"
#include "tests/lib/tap.h"

#include <errno.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

static void test_kinds(void)
{
    static const struct {
        const char *dir, *names;
        enum found_kind kind;
        int rc; /* 1: it is none */
        const char *why;
    } cases[] = {
        {"checkpoint-5", OTHERS_TRAINER "rng_state.pth trainer_state.json", FOUND_TRAINER, 0,
         NULL},
        {"checkpoint-5", OTHERS_TRAINER "rng_state_0.pth rng_state_1.pth trainer_state.json",
         FOUND_TRAINER, 0, NULL},
        {"checkpoint-5", OTHERS_TRAINER "rng_state_1.pth trainer_state.json", FOUND_TRAINER,
         -ENOENT, "of 2 files rng_state_<rank>.pth 1 are there"},
        {"checkpoint-5", OTHERS_TRAINER, FOUND_TRAINER, -ENOENT, "no trainer_state.json"},
        {"checkpoint-5", "", FOUND_TRAINER, -ENOENT, "no trainer_state.json"},
        {"checkpoint-5", "optimizer.pt trainer_state.json", FOUND_TRAINER, -ENOENT,
         "no weights"},
        {"checkpoint-6", OTHERS_TRAINER "trainer_state.json", FOUND_TRAINER, -ERR_FORMAT,
         "of another step, 5"},
        /* DeepSpeed: its weights are elsewhere, and `latest` says nothing. */
        {"checkpoint-5", OTHERS_ZERO "latest trainer_state.json", FOUND_TRAINER, 0, NULL},
        {"checkpoint-5", OTHERS_ZERO "global_step5/bf16_zero_pp_rank_2_mp_rank_00_optim_states.pt "
         "latest trainer_state.json", FOUND_TRAINER, -ENOENT,
         "of 3 files *_optim_states.pt 2 are there"},
        {"checkpoint-5", "global_step5/zero_pp_rank_0_mp_rank_00_optim_states.pt latest "
         "trainer_state.json", FOUND_TRAINER, -ENOENT, "no file *_model_states.pt"},
        {"checkpoint-5", OTHERS_ZERO "latest", FOUND_TRAINER, -ENOENT, "no trainer_state.json"},
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
        {"checkpoint-5", OTHERS_DIFFUSERS "random_states_0.pkl", FOUND_ACCELERATE, 0, NULL},
        {"checkpoint-5", "model.safetensors optimizer.bin random_states_0.pkl "
         "random_states_1.pkl sampler.bin scaler.pt", FOUND_ACCELERATE, 0, NULL},
        {"checkpoint-5", OTHERS_DIFFUSERS "random_states_1.pkl", FOUND_ACCELERATE, -ENOENT,
         "of 2 files random_states_<rank>.pkl 1 are there"},
        {"checkpoint-5", OTHERS_DIFFUSERS, FOUND_ACCELERATE, -ENOENT,
         "no random_states_0.pkl"},
        {"epoch_3", OTHERS_DIFFUSERS "random_states_0.pkl", FOUND_ACCELERATE, 0, NULL},
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
        {"step-5", "model.safetensors", FOUND_TORCH_DIR, 0, NULL},
        {"run-5", "model.safetensors", 0, 1, NULL},
        {"run-5", "config.json model.safetensors checkpoint-5/x", 0, 1, NULL},
        /* none */
        {"logs", "events.out.tfevents.1 optimizer.txt", 0, 1, NULL},
        {"out", "trainer_state.json model.safetensors checkpoint-5/x", 0, 1, NULL},
        {"iter_0000100", "data.bin", 0, 1, NULL},
        {"tmp-checkpoint-5", OTHERS_TRAINER "trainer_state.json", 0, 1, NULL},
        {"checkpoint-5.broken", OTHERS_TRAINER "trainer_state.json", 0, 1, NULL},
    };

    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        struct found_facts facts;
        struct error e = {0};
        struct found f;
        struct others_bed b;
        bool is;

        others_bed_open(&b);
        others_bed_put_all(&b, cases[i].dir, cases[i].names);
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
        others_bed_close(&b);
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
        struct others_bed b;

        others_bed_open(&b);
        others_bed_put_all(&b, cases[i].dir, cases[i].names);
        ok(found_one(io_system(), b.dir, cases[i].dir, &f) && f.kind == FOUND_MODEL &&
               f.is_part == cases[i].is_part && f.has_step == !cases[i].is_part,
           "%s is %s", cases[i].dir, cases[i].is_part ? "a model alone" : "one");
        again = f;
        again.is_part = !f.is_part;
        found_recall(&again);
        is_int(again.is_part, f.is_part, "and a copy of it likewise");
        others_bed_close(&b);
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
    struct others_bed b;
    size_t n = 0;

    others_bed_open(&b);
    last_bed_put(b.dir, "epoch=1-step=200.ckpt", 201, 0, false);
    last_bed_put(b.dir, "epoch=2-step=300.ckpt", 301, 0, false);
    last_bed_put(b.dir, "last.ckpt", 900, 0, false);
    last_bed_put(b.dir, "last-v1.ckpt", 300, 0, false);
    last_bed_put(b.dir, "last.pt", 901, 0, false);
    others_bed_put(&b, "last/common.pt");
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
    others_bed_put_bytes(&b, "last.ckpt", "\x80\x02}.", 4);
    ok(found_one(io_system(), b.dir, "last.ckpt", &f) && !f.has_step, "nor a bare pickle");
    unlinkat(b.dir, "last.ckpt", 0);
    symlinkat("epoch=1-step=200.ckpt", b.dir, "last.ckpt");
    ok(!found_one(io_system(), b.dir, "last.ckpt", &f) || !f.has_step, "nor a link");
    symlinkat("epoch=1-step=200.ckpt", b.dir, "now.pt");
    symlinkat("gone", b.dir, "then.safetensors");
    mkdirat(b.dir, "step-000000000007-00000001", 0700);
    symlinkat("step-000000000007-00000001", b.dir, "step-000000000008-00000001");
    others_bed_put_bytes(&b, "step-000000000009-00000001", "x", 1);
    ok(found_one(io_system(), b.dir, "step-000000000007-00000001", &f) &&
       !found_one(io_system(), b.dir, "step-000000000008-00000001", &f) &&
       !found_one(io_system(), b.dir, "step-000000000009-00000001", &f),
       "of muster's are only directories");
    ok(!found_one(io_system(), b.dir, "now.pt", &f) &&
       !found_one(io_system(), b.dir, "then.safetensors", &f),
       "a link is a name more, and no checkpoint more");
    others_bed_close(&b);
}

/* One of muster's that somebody has called otherwise, for who is given its path. */
static void test_renamed(void)
{
    static const char *const names[] = {"best", "checkpoint-7", "step-7", "model.safetensors"};
    struct found_facts facts;
    struct error e = {0};
    char name[STEP_NAME_BYTES];
    struct found f;
    struct others_bed b;

    others_bed_open(&b);
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
    for (size_t i = 0; i < 3; i++) {
        ok(!found_one(io_system(), b.dir, names[i], &f) || f.kind == FOUND_TRAINER,
           "but %s is in no list, as one of a script", names[i]);
    }
    others_bed_put_bytes(&b, "best/r00001.safetensors", "x", 1);
    ok(found_renamed(io_system(), b.dir, "best", &f), "one that is cut");
    is_int(found_check(io_system(), b.dir, &f, false, &facts, &e), -ERR_FORMAT, "is damaged");
    like(e.text, "best/r00001.safetensors is cut", "with the name that it has");
    unlinkat(b.dir, "step-7/COMMIT", 0);
    ok(found_renamed(io_system(), b.dir, "step-7", &f) && !f.has_step, "one without COMMIT");
    is_int(found_check(io_system(), b.dir, &f, true, &facts, &e), -ENOENT, "is not finished");
    others_bed_put_all(&b, "other", "r00000.safetensors manifest.json");
    others_bed_put_bytes(&b, "other/COMMIT", "fix it", 6);
    ok(!found_renamed(io_system(), b.dir, "other", &f), "what has such names is none");
    ok(!found_renamed(io_system(), b.dir, "not there", &f), "nor is nothing");
    others_bed_close(&b);
}

int main(void)
{
    test_kinds();
    test_models();
    test_last();
    test_renamed();
    return tap_done();
}
