/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How many files a checkpoint has to have: as the run knows, as one of them says, or as those
 * beside it have.
 */
#include <config.h>

#include "ckpt/found_priv.h"

#include "base/cleanup.h"
#include "base/str.h"
#include "ckpt/last_bed.h"
#include "ckpt/others_bed.h"
#include "tests/lib/tap.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

/* Those of the highest ranks are missed where it is known how many there are. */
static void test_world(void)
{
    struct found_facts facts;
    struct error e = {0};
    struct found f;
    struct others_bed b;

    others_bed_open(&b);
    others_bed_put_all(&b, "checkpoint-5",
                       OTHERS_TRAINER "rng_state_0.pth rng_state_1.pth trainer_state.json");
    found_one(io_system(), b.dir, "checkpoint-5", &f);
    is_int(found_check(io_system(), b.dir, &f, true, &facts, &e), 0, "of any ranks");
    f.world = 2;
    is_int(found_check(io_system(), b.dir, &f, true, &facts, &e), 0, "of two");
    f.world = 3;
    is_int(found_check(io_system(), b.dir, &f, true, &facts, &e), -ENOENT,
           "of three");
    like(e.text, "of 3 files rng_state_<rank>.pth 2 are there", "says so");
    others_bed_put_all(&b, "checkpoint-5", "rng_state_4294967296.pth");
    f.world = 2;
    is_int(found_check(io_system(), b.dir, &f, true, &facts, &e), 0,
           "a number that no rank has is none");
    is_int(facts.n_ranks, 2, "two are there");
    others_bed_close(&b);
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
        struct others_bed b;
        char path[256];

        others_bed_open(&b);
        snprintf(path, sizeof(path), "%s %s", cases[i].names, cases[i].file);
        others_bed_put_all(&b, cases[i].dir, path);
        snprintf(path, sizeof(path), "%s/%s", cases[i].dir, cases[i].file);
        last_bed_put_dict(b.dir, path, cases[i].says);
        is_int(others_bed_check(&b, cases[i].dir, &facts, &e), cases[i].rc, "%s beside '%s' (%s)",
               cases[i].says, cases[i].names, e.text);
        like(e.text, cases[i].why, "and why");
        ok(facts.is_counted, "it says itself how many there are");
        others_bed_close(&b);
    }
#undef MODEL
#undef OPTIM
#undef NONE
}

/* A number that is none of ranks says nothing: whatever it is multiplied with is none. */
static void test_said_too_much(void)
{
    static const struct {
        const char *file, *says;
        int rc;
    } cases[] = {
        {"mp_rank_00_model_states.pt", "dp_world_size=1 mp_world_size=10000000", -ENOENT},
        {"mp_rank_00_model_states.pt", "dp_world_size=1 mp_world_size=10000001", 0},
        {"zero_pp_rank_0_mp_rank_00_model_states.pt", "dp_world_size=10000000 mp_world_size=1",
         -ENOENT},
        {"zero_pp_rank_0_mp_rank_00_model_states.pt", "dp_world_size=10000001 mp_world_size=1",
         0},
    };

    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        struct found_facts facts;
        struct error e = {0};
        struct others_bed b;
        char path[256];

        others_bed_open(&b);
        others_bed_put_all(&b, "global_step5", cases[i].file);
        snprintf(path, sizeof(path), "global_step5/%s", cases[i].file);
        last_bed_put_dict(b.dir, path, cases[i].says);
        is_int(others_bed_check(&b, "global_step5", &facts, &e), cases[i].rc, "%s (%s)",
               cases[i].says, e.text);
        like(e.text, cases[i].rc < 0 ? "of 10000000 files" : "", "and how many");
        others_bed_close(&b);
    }
}

/* Of those that do not say it, which are short by what lies beside them. */
static void test_beside(void)
{
#define RANKS(n) OTHERS_DIFFUSERS "random_states_0.pkl" n
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
        {OTHERS_TRAINER "rng_state.pth trainer_state.json",
         OTHERS_TRAINER "rng_state_0.pth rng_state_1.pth trainer_state.json", "", "000"},
    };

    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        _free_ struct found_set *sets = NULL;
        _free_ struct found *all = NULL;
        _free_ size_t *series = NULL;
        char got[8] = "";
        struct others_bed b;
        size_t n = 0;

        others_bed_open(&b);
        others_bed_put_all(&b, "checkpoint-30", cases[i].newest);
        others_bed_put_all(&b, "checkpoint-5", cases[i].middle);
        others_bed_put_all(&b, "checkpoint-4", cases[i].oldest);
        if (found_list(io_system(), b.dir, &all, &n, NULL) == 0) {
            series = found_series(all, sizeof(*all), n);
            sets = found_sets_in(io_system(), b.dir, all, n, series);
        }
        for (size_t k = 0; k < n && k < 3; k++) {
            got[k] = sets[k].is_short ? '1' : '0';
        }
        is_str(got, cases[i].want, "'%s' over '%s' and '%s'", cases[i].newest, cases[i].middle,
               cases[i].oldest);
        others_bed_close(&b);
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
    struct others_bed b;
    size_t n = 0;

    others_bed_open(&b);
    others_bed_put_all(&b, "iter_0000020", "mp_rank_00/model_optim_rng.pt");
    others_bed_put_all(&b, "iter_0000010",
                       "mp_rank_00/model_optim_rng.pt mp_rank_01/model_optim_rng.pt");
    found_list(io_system(), b.dir, &all, &n, NULL);
    series = found_series(all, sizeof(*all), n);
    sets = found_sets_in(io_system(), b.dir, all, n, series);
    ok(n == 2 && sets[0].is_short && sets[1].n_files == 2, "one that does not is");
    is_int(found_tell_short(&all[0], &sets[0], &e), -ENOENT, "it is unfinished");
    like(e.text, "iter_0000020: it was never finished: of what each rank writes 1 are there",
         "and why");
    free(sets);
    last_bed_put_dict(b.dir, "iter_0000020/mp_rank_00/model_optim_rng.pt",
                      "tensor_model_parallel_size=1");
    sets = found_sets_in(io_system(), b.dir, all, n, series);
    ok(!sets[0].is_short && all[0].n_ranks == 0, "one that says it is not");
    others_bed_close(&b);
}

static void test_lacks(void)
{
    struct found f = {.name = "checkpoint-60"}, whole = {.name = "checkpoint-5"};
    struct others_bed b;
    char what[64];

    others_bed_open(&b);
    others_bed_put_all(&b, "checkpoint-5",
                       OTHERS_TRAINER OTHERS_ZERO
                       "rng_state_0.pth rng_state_1.pth trainer_state.json");
    others_bed_put_all(&b, "checkpoint-60",
                       OTHERS_TRAINER "global_step60/mp_rank_00_model_states.pt "
                       "rng_state_0.pth rng_state_1.pth trainer_state.json");
    ok(found_lacks(io_system(), b.dir, &f, &whole, what, sizeof(what)),
       "one lacks a file");
    is_str(what, "global_step#/bf#_zero_pp_rank_#_mp_rank_#_optim_states.pt", "this");
    others_bed_put(&b, "checkpoint-60/global_step60/"
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
    others_bed_close(&b);
}

int main(void)
{
    test_world();
    test_said();
    test_said_too_much();
    test_beside();
    test_beside_counted();
    test_lacks();
    return tap_done();
}
