/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Files of which each rank writes one: whether those of all are there. Gaps between
 * them show, and where something tells how many there are, those of the highest ranks
 * are missed, too.
 *
 * DeepSpeed's are *_mp_rank_<M>_{model,optim}_states.pt, with zero_pp_rank_<D> in
 * front where each of the D ranks that share has a part: all D times M. How many that
 * is stands in a file of model states, and so does whether the optimizer's states are
 * apart, in files of their own: ZeRO then has the shapes of parameters there. Where they
 * were made one for any number of ranks, the directory zero/ has them. The text `latest`
 * beside them says nothing: it is written before the others are waited for.
 */
#include <config.h>

#include "ckpt/found_priv.h"
#include "ckpt/torch_file.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

enum { MAX_RANK = 10000000 };

/* The number between the two; false: there is something else. */
static bool rank_between(const char *name, const char *begin, const char *end,
                         unsigned *ret)
{
    unsigned n = 0;
    const char *at = name + strlen(begin);

    if (!found_matches(name, begin, end)) {
        return false;
    }
    for (; *at >= '0' && *at <= '9' && n < MAX_RANK; at++) {
        n = n * 10 + (unsigned)(*at - '0');
    }
    *ret = n;
    return at > name + strlen(begin) && strcmp(at, end) == 0;
}

int found_check_ranks(const struct strlist *names, const char *begin,
                      const char *end, unsigned world, unsigned *ret_n,
                      struct error *e)
{
    unsigned n = 0, all = world, rank;

    for (size_t i = 0; i < names->n; i++) {
        if (rank_between(names->items[i], begin, end, &rank)) {
            n++;
            all = rank >= all ? rank + 1 : all;
        }
    }
    *ret_n = n;
    return n > 0 && n != all
               ? error_text(e, ENOENT, "it was never finished: of %u files "
                            "%s<rank>%s %u are there", all, begin, end, n)
               : 0;
}

/* --- DeepSpeed --- */

/* What such a name has before "_states.pt", and how many there are of its kind. */
struct shards {
    const char *what; /* "model" or "optim" */
    unsigned n, dp, mp; /* files; ranks that their names have, 0 where these have none */
};

/* What a file of model states says of all; 0: nothing. */
struct said {
    uint64_t dp, mp;
    bool is_apart; /* the optimizer's states are */
};

static bool take_shard(const char *name, struct shards *s)
{
    char end[32];
    unsigned dp = 0, mp = 0;
    bool has_dp = true;
    int len = 0;

    snprintf(end, sizeof(end), "_%s_states.pt", s->what);
    name += str_starts(name, "bf16_") ? strlen("bf16_") : 0;
    if (sscanf(name, "zero_pp_rank_%7u_mp_rank_%7u%n", &dp, &mp, &len) != 2) {
        has_dp = false;
        len = 0;
        if (sscanf(name, "mp_rank_%7u%n", &mp, &len) != 1) {
            return false;
        }
    }
    if (strcmp(name + len, end) != 0) {
        return false;
    }
    s->n++;
    s->dp = has_dp && dp >= s->dp ? dp + 1 : s->dp;
    s->mp = mp >= s->mp ? mp + 1 : s->mp;
    return true;
}

static uint64_t larger(uint64_t a, uint64_t b)
{
    return a > b ? a : b;
}

static int check_all(const struct shards *s, const struct said *said, struct error *e)
{
    uint64_t all = (s->dp ? larger(s->dp, said->dp) : 1) * larger(s->mp, said->mp);

    return s->n < all
               ? error_text(e, ENOENT, "it was never finished: of %llu files "
                            "*_%s_states.pt %u are there", (unsigned long long)all,
                            s->what, s->n)
               : 0;
}

static void ask_file(struct io *io, int dir, const char *name, struct said *ret)
{
    enum { DP, MP, SHAPES, OPTIMIZER, STAGE };
    struct torch_asked asked[] = {
        [DP] = {.key = "dp_world_size"}, [MP] = {.key = "mp_world_size"},
        [SHAPES] = {.key = "param_shapes"}, [OPTIMIZER] = {.key = "optimizer"},
        [STAGE] = {.key = "stage", .behind = "zero_optimization"}};
    int fd = io->ops->open_file(io, dir, name);

    if (fd >= 0) {
        torch_file_ask(io, fd, asked, ARRAY_SIZE(asked));
        io->ops->close(io, fd);
    }
    ret->dp = asked[DP].number > MAX_RANK ? 0 : asked[DP].number;
    ret->mp = asked[MP].number > MAX_RANK ? 0 : asked[MP].number;
    ret->is_apart = asked[SHAPES].is_there
                        ? !asked[SHAPES].is_none
                        : asked[OPTIMIZER].is_none && asked[STAGE].number > 0;
}

static bool is_universal(const struct strlist *names)
{
    for (size_t i = 0; i < names->n; i++) {
        if (strcmp(names->items[i], "zero") == 0) {
            return true;
        }
    }
    return false;
}

int found_check_shards(struct found_tree *t, int dir,
                       const struct strlist *names, struct error *e)
{
    struct shards model = {.what = "model"}, optim = {.what = "optim"};
    struct said said = {0};
    const char *first = NULL;
    int rc;

    for (size_t i = 0; i < names->n; i++) {
        if (take_shard(names->items[i], &model) && !first) {
            first = names->items[i];
        }
        take_shard(names->items[i], &optim);
    }
    if (model.n + optim.n == 0) {
        return 0;
    }
    t->has_states = true;
    if (!first) {
        return error_text(e, ENOENT, "it was never finished: no file "
                          "*_model_states.pt");
    }
    ask_file(t->io, dir, first, &said);
    t->is_counted = said.dp > 0 && said.mp > 0;
    rc = check_all(&model, &said, e);
    if (rc == 0 && optim.n > 0) {
        rc = check_all(&optim, &said, e);
    } else if (rc == 0 && said.is_apart && !is_universal(names)) {
        rc = error_text(e, ENOENT, "it was never finished: no file *_optim_states.pt");
    }
    return rc;
}

/* --- names --- */

bool found_is_of_rank_name(const char *name)
{
    struct shards model = {.what = "model"}, optim = {.what = "optim"};
    unsigned rank;

    return rank_between(name, "rng_state_", ".pth", &rank) ||
           rank_between(name, "random_states_", ".pkl", &rank) ||
           rank_between(name, "__", ".metadata", &rank) || take_shard(name, &model) ||
           take_shard(name, &optim) || found_is_shard_name(name) ||
           (str_starts(name, "mp_rank_") && !strchr(name, '.'));
}
