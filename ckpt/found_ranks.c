/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Files of which each rank writes one: whether those of all are there. Gaps between
 * them show, and where something tells how many there are, those of the highest ranks
 * are missed, too.
 *
 * DeepSpeed's are *_mp_rank_<M>_{model,optim}_states.pt, with zero_pp_rank_<D> in
 * front where each of the D ranks that share has a part: all D times M. How many that
 * is stands in a file of model states. The text `latest` beside them says nothing:
 * it is written before the others are waited for.
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
    unsigned n, dp, mp; /* files; ranks that their names have */
};

static bool take_shard(const char *name, struct shards *s)
{
    char end[32];
    unsigned dp = 0, mp = 0;
    int len = 0;

    snprintf(end, sizeof(end), "_%s_states.pt", s->what);
    name += str_starts(name, "bf16_") ? strlen("bf16_") : 0;
    if (sscanf(name, "zero_pp_rank_%7u_mp_rank_%7u%n", &dp, &mp, &len) != 2) {
        dp = 0;
        len = 0;
        if (sscanf(name, "mp_rank_%7u%n", &mp, &len) != 1) {
            return false;
        }
    }
    if (strcmp(name + len, end) != 0) {
        return false;
    }
    s->n++;
    s->dp = dp >= s->dp ? dp + 1 : s->dp;
    s->mp = mp >= s->mp ? mp + 1 : s->mp;
    return true;
}

static int check_all(const struct shards *s, unsigned long long all,
                     struct error *e)
{
    return s->n < all
               ? error_text(e, ENOENT, "it was never finished: of %llu files "
                            "*_%s_states.pt %u are there", all, s->what, s->n)
               : 0;
}

/* A file of model states says how many ranks share; 0: none does. */
static uint64_t ask_file(struct io *io, int dir, const char *name, const char *key)
{
    int fd = io->ops->open_file(io, dir, name);
    uint64_t n = 0;

    if (fd >= 0) {
        torch_file_number(io, fd, key, &n);
        io->ops->close(io, fd);
    }
    return n > MAX_RANK ? 0 : n;
}

int found_check_shards(struct found_tree *t, int dir,
                       const struct strlist *names, struct error *e)
{
    struct shards model = {.what = "model"}, optim = {.what = "optim"};
    const char *first = NULL;
    unsigned long long all;
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
    all = (unsigned long long)model.dp * model.mp;
    rc = check_all(&model, all, e);
    if (rc == 0 && optim.n > 0) {
        unsigned long long dp = ask_file(t->io, dir, first, "dp_world_size");
        unsigned long long mp = ask_file(t->io, dir, first, "mp_world_size");

        all = (unsigned long long)optim.dp * optim.mp;
        rc = check_all(&optim, dp * mp > all ? dp * mp : all, e);
    }
    return rc;
}
