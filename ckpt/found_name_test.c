/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a name alone says of a checkpoint: its number, whether that is a step, which of two is
 * later, and whether it is a part of one.
 */
#include <config.h>

#include "ckpt/found_priv.h"

#include "base/cleanup.h"
#include "tests/lib/tap.h"

#include <string.h>

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

int main(void)
{
    test_numbers();
    test_order();
    test_parts();
    return tap_done();
}
