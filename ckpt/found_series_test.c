/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "ckpt/found.h"

#include "base/buf.h"
#include "base/cleanup.h"
#include "base/str.h"
#include "ckpt/found_bed.h"
#include "tests/lib/tap.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

/* A file, with the directories that it is in; or one of muster. */
static void put(int dir, const char *name)
{
    char path[128];

    for (const char *at = name; (at = strchr(at, '/')); at++) {
        snprintf(path, sizeof(path), "%.*s", (int)(at - name), name);
        mkdirat(dir, path, 0700);
    }
    if (str_starts(name, "step-") && !strchr(name, '/')) {
        mkdirat(dir, name, 0700);
    } else if (*name) {
        found_bed_put(dir, name, "x", 1);
    }
}

/* The order of all, and of which series each is, by the place of its first. */
static void test_series(void)
{
#define TRAINED(step, rank) "checkpoint-" #step "/rng_state_" #rank ".pth "
#define SHARD(n) "shard-0000" #n "-model-00001-of-00001.safetensors"
    static const struct {
        const char *names, *order, *series; /* - of none */
        const char *sets; /* NULL: each is one by itself */
    } cases[] = {
        {"step_100.pt data_2024.pt step_200.pt last.pt",
         "data_2024.pt step_200.pt step_100.pt last.pt", "- 1 1 -", NULL},
        {"step_100.pt step-000000000007-00000001 iter_9.pt",
         "step_100.pt iter_9.pt step-000000000007-00000001", "0 0 0", NULL},
        {"net-1.pt net-2.pt other-2.pt net-10.pt best.pt",
         "net-10.pt other-2.pt net-2.pt net-1.pt best.pt", "0 1 0 0 -", NULL},
        {"epoch=1.pt epoch=2.pt", "epoch=2.pt epoch=1.pt", "0 0", NULL},
        {"epoch=1-step=7.pt epoch=9.pt", "epoch=9.pt epoch=1-step=7.pt", "- 1", NULL},
        {"model_step2.pt model_step1.pt optimizer_step2.pt optimizer_step1.pt",
         "optimizer_step2.pt model_step2.pt optimizer_step1.pt model_step1.pt", "- 1 - 1", NULL},
        {"step20_rank0.pt step20_rank1.pt step10_rank0.pt step10_rank1.pt",
         "step20_rank1.pt step20_rank0.pt step10_rank1.pt step10_rank0.pt", "0 0 0 0",
         "1 1 3 3"},
        {"step20_rank0.pt step10_rank0.pt step10_rank1.pt",
         "step20_rank0.pt step10_rank1.pt step10_rank0.pt", "0 0 0", "0s 2 2"},
        {"step30_rank0.pt step20_rank0.pt step10_rank0.pt step10_rank1.pt",
         "step30_rank0.pt step20_rank0.pt step10_rank1.pt step10_rank0.pt", "0 0 0 0",
         "0 0 3 3"},
        {"step30_rank1.pt step20_rank1.pt step10_rank0.pt step10_rank1.pt",
         "step30_rank1.pt step20_rank1.pt step10_rank1.pt step10_rank0.pt", "0 0 0 0",
         "0s 0s 3 3"},
        {"step30_rank0.pt step30_rank2.pt step20_rank0.pt step20_rank2.pt "
         "step10_rank0.pt step10_rank1.pt",
         "step30_rank2.pt step30_rank0.pt step20_rank2.pt step20_rank0.pt step10_rank1.pt "
         "step10_rank0.pt", "0 0 0 0 0 0", "1s 1s 3s 3s 5 5"},
        {"step20_rank8.pt step20_rank0.pt step10_rank8.pt step10_rank0.pt",
         "step20_rank8.pt step20_rank0.pt step10_rank8.pt step10_rank0.pt", "0 0 0 0",
         "1 1 3 3"},
        {"step40_rank0.pt step30_rank0.pt step30_rank1.pt step20_rank0.pt step10_rank0.pt "
         "step10_rank1.pt", "step40_rank0.pt step30_rank1.pt step30_rank0.pt step20_rank0.pt "
         "step10_rank1.pt step10_rank0.pt", "0 0 0 0 0 0", "0s 2 2 0s 5 5"},
        {"step20_part2.pt step20_part1.pt step10_part2.pt",
         "step20_part2.pt step20_part1.pt step10_part2.pt", "0 0 0", "1 1 0s"},
        {"a_step30_rank1.pt b_step20_rank0.pt a_step10_rank1.pt",
         "a_step30_rank1.pt b_step20_rank0.pt a_step10_rank1.pt", "0 0 0", NULL},
        {"step20_tp_rank1_pp_rank0.pt step10_tp_rank0_pp_rank1.pt",
         "step20_tp_rank1_pp_rank0.pt step10_tp_rank0_pp_rank1.pt", "0 0", NULL},
        {"net_step3.pt net_step2.pt ema_step3.pt",
         "net_step3.pt ema_step3.pt net_step2.pt", "0 0 0", "1 1 0"},
        {"net-20-shard0.pt net-20-shard1.pt net-10-shard0.pt",
         "net-20-shard1.pt net-20-shard0.pt net-10-shard0.pt", "0 0 0", "1 1 0"},
        {"net-1-20.pt net-2-20.pt", "net-2-20.pt net-1-20.pt", "0 0", NULL},
        /* Directories in which each rank has a file. */
        {TRAINED(30, 1) TRAINED(20, 1) TRAINED(20, 2) TRAINED(10, 1),
         "checkpoint-30 checkpoint-20 checkpoint-10", "0 0 0", "0s 0 0"},
        {TRAINED(40, 1) TRAINED(30, 1) TRAINED(20, 1) TRAINED(20, 2),
         "checkpoint-40 checkpoint-30 checkpoint-20", "0 0 0", NULL},
        {TRAINED(40, 1) TRAINED(30, 1) TRAINED(30, 2) TRAINED(20, 1) TRAINED(10, 1)
         TRAINED(10, 2), "checkpoint-40 checkpoint-30 checkpoint-20 checkpoint-10", "0 0 0 0",
         "0s 0 0s 0"},
        {"checkpoint-30/rng_state.pth " TRAINED(20, 1) TRAINED(20, 2),
         "checkpoint-30 checkpoint-20", "0 0", NULL},
        {"step_30.pt checkpoint-25/random_states_0.pkl " TRAINED(20, 1) TRAINED(20, 2),
         "step_30.pt checkpoint-25 checkpoint-20", "0 0 0", NULL},
        {"iter_3/mp_rank_00/x iter_2/mp_rank_00/x iter_2/mp_rank_01/x", "iter_3 iter_2", "0 0",
         "0s 0"},
        {"global_step3/mp_rank_00_model_states.pt global_step2/mp_rank_00_model_states.pt "
         "global_step2/zero_pp_rank_0_mp_rank_00_optim_states.pt", "global_step3 global_step2",
         "0 0", "0s 0"},
        {"step-3/__0.metadata step-2/__0.metadata step-2/__1.metadata", "step-3 step-2", "0 0",
         "0s 0"},
        {"step-3/__0_0.distcp step-3/.metadata step-2/__0_0.distcp step-2/__1_0.distcp "
         "step-2/.metadata", "step-3 step-2", "0 0", NULL},
        {"step-3/" SHARD(1) " step-2/" SHARD(1) " step-2/" SHARD(2), "step-3 step-2", "0 0",
         "0s 0"},
    };
#undef TRAINED
#undef SHARD

    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        _buf_ struct buf order = {0}, series = {0}, sets = {0};
        _free_ struct found *all = NULL;
        _free_ struct found_set *set_of = NULL;
        _free_ size_t *of = NULL;
        char text[512], *rest = text;
        char path[FOUND_BED_PATH_BYTES];
        int dir = found_bed_open(path);
        size_t n = 0;

        snprintf(text, sizeof(text), "%s", cases[i].names);
        for (char *name; (name = strsep(&rest, " "));) {
            put(dir, name);
        }
        is_int(found_list(io_system(), dir, &all, &n, NULL), 0, "a list");
        of = found_series(all, sizeof(*all), n);
        set_of = found_sets(all, sizeof(*all), n, of);
        for (size_t k = 0; k < n; k++) {
            buf_printf(&order, "%s%s", k ? " " : "", all[k].name);
            buf_puts(&series, k ? " " : "");
            if (of[k] == FOUND_NO_SERIES) {
                buf_putc(&series, '-');
            } else {
                buf_printf(&series, "%zu", of[k]);
            }
            buf_printf(&sets, "%s%zu%s", k ? " " : "", set_of[k].first,
                       set_of[k].is_short ? "s" : "");
        }
        is_str(buf_str(&order), cases[i].order, "the order of %s", cases[i].names);
        is_str(buf_str(&series), cases[i].series, "and their series");
        if (cases[i].sets) {
            is_str(buf_str(&sets), cases[i].sets, "and which are one");
        } else {
            ok(!strpbrk(buf_str(&sets), "123456789s"), "and each is one by itself");
        }
        found_bed_close(dir, path);
    }
}

/* Sets of what is given by hand: a file of a step, or a directory of one, in which so many
 * files are of ranks. */
#define FILE_OF(step_, series_, name_)                                           \
    {.f = {.name = name_, .kind = FOUND_TORCH, .has_step = true, .is_step = true, \
           .step = step_}, .series = series_}
#define PART_OF(step_, series_, name_)                                           \
    {.f = {.name = name_, .kind = FOUND_TORCH, .has_step = true, .step = step_}, \
     .series = series_}
#define INSIDE(step_, series_, name_)                                            \
    {.f = {.name = name_, .kind = FOUND_TORCH, .has_step = true, .is_step = true, \
           .step = step_, .is_inside = true}, .series = series_}
#define SAVED_BY(world_, step_, series_, name_)                                  \
    {.f = {.name = name_, .kind = FOUND_TORCH, .has_step = true, .is_step = true, \
           .step = step_, .world = world_}, .series = series_}
#define DIR_OF(step_, n_ranks_, name_)                                           \
    {.f = {.name = name_, .kind = FOUND_TRAINER, .has_step = true, .is_step = true, \
           .step = step_, .n_ranks = n_ranks_}}

static void test_sets(void)
{
    enum { MAX = 12, NONE = -1 };
    static const struct {
        const char *what;
        struct {
            struct found f;
            int series;
        } all[MAX];
        const char *sets; /* of each the first, how many files, and whether it is short */
    } cases[] = {
        {"three files", {FILE_OF(20, 0, "step20_rank2.pt"), FILE_OF(20, 0, "step20_rank1.pt"),
                         FILE_OF(20, 0, "step20_rank0.pt")}, "1/3 1/3 1/3"},
        {"directories of a step", {DIR_OF(20, 2, "step-20"), DIR_OF(20, 2, "checkpoint-20")},
         "0/2 0/2"},
        {"one that is inside another", {FILE_OF(20, 0, "step20_rank0.pt"),
                                        INSIDE(20, 0, "step020_rank0.pt")}, "0/1 0/1"},
        {"one that says no step", {FILE_OF(20, 0, "step20_rank1.pt"),
                                   PART_OF(20, 0, "net-20-rank0.pt")}, "0/1 0/1"},
        {"other names", {PART_OF(20, 0, "a-20-rank1.pt"), PART_OF(20, 0, "b-20-rank0.pt")},
         "0/1 0/1"},
        {"of no series", {FILE_OF(20, NONE, "step20_rank1.pt"),
                          FILE_OF(20, NONE, "step20_rank0.pt")}, "0/1 0/1"},
        {"two names, the last one of fewer",
         {FILE_OF(20, 0, "opt_step20_rank1.pt"), FILE_OF(20, 0, "opt_step20_rank0.pt"),
          FILE_OF(20, 0, "net_step20_rank0.pt")}, "1/2 1/2 1/2"},
        {"two names, of as many",
         {FILE_OF(20, 0, "opt_step20_rank1.pt"), FILE_OF(20, 0, "opt_step20_rank0.pt"),
          FILE_OF(20, 0, "net_step20_rank1.pt"), FILE_OF(20, 0, "net_step20_rank0.pt")},
         "1/2 1/2 1/2 1/2"},
        {"another series between", {FILE_OF(20, 0, "a_step20_rank1.pt"),
                                    FILE_OF(20, 1, "b_step20_rank1.pt"),
                                    FILE_OF(20, 0, "a_step20_rank0.pt")}, "1/2 0/1 1/2"},
        {"a directory says nothing of files", {FILE_OF(30, 0, "step30.pt"),
                                               DIR_OF(20, 2, "checkpoint-20")}, "0/1 0/2"},
        {"nor one of another name", {DIR_OF(30, 1, "step-30"), DIR_OF(20, 2, "checkpoint-20")},
         "0/1 0/2"},
        {"nor another series", {FILE_OF(30, 0, "step30_rank0.pt"),
                                FILE_OF(20, 1, "step20_rank1.pt"),
                                FILE_OF(20, 1, "step20_rank0.pt")}, "0/1 2/2 2/2"},
        {"two in a row are of fewer ranks",
         {FILE_OF(40, 0, "step40_rank1.pt"), FILE_OF(40, 0, "step40_rank0.pt"),
          FILE_OF(30, 0, "step30_rank1.pt"), FILE_OF(30, 0, "step30_rank0.pt"),
          FILE_OF(20, 0, "step20_rank2.pt"), FILE_OF(20, 0, "step20_rank1.pt"),
          FILE_OF(20, 0, "step20_rank0.pt")}, "1/2 1/2 3/2 3/2 5/3 5/3 5/3"},
        {"a rank is missing between others",
         {FILE_OF(20, 0, "step20_rank3.pt"), FILE_OF(20, 0, "step20_rank2.pt"),
          FILE_OF(20, 0, "step20_rank0.pt"), FILE_OF(10, 0, "step10_rank3.pt"),
          FILE_OF(10, 0, "step10_rank2.pt"), FILE_OF(10, 0, "step10_rank1.pt"),
          FILE_OF(10, 0, "step10_rank0.pt")}, "1/3s 1/3s 1/3s 4/4 4/4 4/4 4/4"},
        {"so it is of the second of two names",
         {FILE_OF(20, 0, "net_step20_rank1.pt"), FILE_OF(20, 0, "net_step20_rank0.pt"),
          FILE_OF(20, 0, "opt_step20_rank1.pt"), FILE_OF(10, 0, "net_step10_rank1.pt"),
          FILE_OF(10, 0, "net_step10_rank0.pt"), FILE_OF(10, 0, "opt_step10_rank1.pt"),
          FILE_OF(10, 0, "opt_step10_rank0.pt")}, "1/2s 1/2s 1/2s 4/2 4/2 4/2 4/2"},
        {"and of the first",
         {FILE_OF(20, 0, "net_step20_rank2.pt"), FILE_OF(20, 0, "net_step20_rank0.pt"),
          FILE_OF(20, 0, "opt_step20_rank2.pt"), FILE_OF(20, 0, "opt_step20_rank1.pt"),
          FILE_OF(20, 0, "opt_step20_rank0.pt"), FILE_OF(10, 0, "net_step10_rank2.pt"),
          FILE_OF(10, 0, "net_step10_rank1.pt"), FILE_OF(10, 0, "net_step10_rank0.pt"),
          FILE_OF(10, 0, "opt_step10_rank2.pt"), FILE_OF(10, 0, "opt_step10_rank1.pt"),
          FILE_OF(10, 0, "opt_step10_rank0.pt")},
         "1/3s 1/3s 1/3s 1/3s 1/3s 6/3 6/3 6/3 6/3 6/3 6/3"},
        {"not as one of no series has it", {FILE_OF(20, NONE, "step20_rank1.pt"),
                                            FILE_OF(10, NONE, "step10_rank0.pt")}, "0/1 0/1"},
        {"nor as one of another has it", {FILE_OF(20, 0, "step20_rank1.pt"),
                                          FILE_OF(10, 1, "step10_rank0.pt")}, "0/1 0/1"},
        {"nor where there are as many as ranks",
         {SAVED_BY(2, 20, 0, "step20_rank2.pt"), SAVED_BY(2, 20, 0, "step20_rank0.pt"),
          FILE_OF(10, 0, "step10_rank1.pt"), FILE_OF(10, 0, "step10_rank0.pt")},
         "1/2 1/2 3/2 3/2"},
        {"but of more", {SAVED_BY(3, 20, 0, "step20_rank2.pt"),
                         SAVED_BY(3, 20, 0, "step20_rank0.pt"),
                         FILE_OF(10, 0, "step10_rank1.pt"), FILE_OF(10, 0, "step10_rank0.pt")},
         "1/2s 1/2s 3/2 3/2"},
    };

    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        _free_ struct found_set *sets = NULL;
        _buf_ struct buf text = {0};
        struct found all[MAX];
        size_t series[MAX], n = 0;

        while (n < MAX && cases[i].all[n].f.name[0]) {
            all[n] = cases[i].all[n].f;
            series[n] = cases[i].all[n].series == NONE ? FOUND_NO_SERIES
                                                       : (size_t)cases[i].all[n].series;
            n++;
        }
        sets = found_sets(all, sizeof(*all), n, series);
        for (size_t k = 0; k < n; k++) {
            buf_printf(&text, "%s%zu/%zu%s", k ? " " : "", sets[k].first, sets[k].n_files,
                       sets[k].is_short ? "s" : "");
        }
        is_str(buf_str(&text), cases[i].sets, "%s", cases[i].what);
    }
}

static void test_told(void)
{
    struct found file = {.name = "step20_rank0.pt", .kind = FOUND_TORCH};
    struct found dir = {.name = "checkpoint-20", .kind = FOUND_TRAINER, .n_ranks = 3};
    struct found parts = {.name = "step_20", .kind = FOUND_TORCH_DIR, .n_parts = 2};
    struct found_set lacks = {.is_short = true}, lacks_parts = {.is_short = true,
                                                                .lacks_parts = true};
    struct error e = {0};

    is_int(found_tell_short(&file, &lacks, &e), -ENOENT, "one of several files");
    like(e.text, "step20_rank0.pt: a file of its step is missing", "is told");
    is_int(found_tell_short(&dir, &lacks, &e), -ENOENT, "a directory");
    like(e.text, "checkpoint-20: it was never finished: of what each rank writes 3 are there",
         "is told");
    is_int(found_tell_short(&parts, &lacks_parts, &e), -ENOENT, "one of plain files");
    is_str(e.text, "step_20: it was never finished: an older one has files that it lacks",
           "is told");
}

int main(void)
{
    test_series();
    test_sets();
    test_told();
    return tap_done();
}
