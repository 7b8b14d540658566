/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Directories of programs that split a model among ranks.
 *
 * DeepSpeed: global_step<step>/ of *_states.pt files (ckpt/found_ranks.c), or of
 * Lightning <name>.ckpt/checkpoint/.
 *
 * Megatron: iter_<step>/ with a directory mp_rank_<T>[_<P>[_<E>]]/ for each part of
 * the model, a model_optim_rng.pt in each; or in its distributed format common.pt,
 * metadata.json and a checkpoint of torch.distributed.checkpoint. The number in
 * latest_checkpointed_iteration.txt beside them is written over in place, and may be
 * missing after a crash: it proves nothing (ckpt/tracker.h). How many parts there are
 * the arguments of the run say, which each part has.
 */
#include <config.h>

#include "ckpt/found_priv.h"
#include "ckpt/torch_file.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

int found_check_deepspeed(struct io *io, int dir, bool is_deep,
                          struct found_facts *facts, struct error *e)
{
    struct found_tree t = {.io = io, .is_deep = is_deep};
    int rc = found_check_tree(&t, dir, facts, e);

    facts->is_counted = t.is_counted;
    return rc < 0 ? rc
           : t.has_states ? 0
               : error_text(e, ENOENT, "it was never finished: no file "
                            "*_model_states.pt");
}

/* --- Megatron --- */

enum { MAX_PARTS = 100000 };

struct parts {
    unsigned n, at[3]; /* directories; the highest of each number, and one */
    int n_numbers;     /* that a name has */
    const char *first; /* borrowed */
};

static bool take_part(const char *name, struct parts *p)
{
    unsigned at[3] = {0};
    int len[3] = {0};
    int n = sscanf(name, "mp_rank_%5u%n_%5u%n_%5u%n", &at[0], &len[0], &at[1],
                   &len[1], &at[2], &len[2]);

    if (n < 1 || name[len[n - 1]] != '\0') {
        return false;
    }
    p->n++;
    p->n_numbers = n > p->n_numbers ? n : p->n_numbers;
    p->first = p->first ? p->first : name;
    for (int i = 0; i < 3; i++) {
        p->at[i] = at[i] >= p->at[i] ? at[i] + 1 : p->at[i];
    }
    return true;
}

static int check_part(struct io *io, int dir, const char *name, struct error *e)
{
    _strlist_ struct strlist names = {0};
    int fd = io->ops->open_dir(io, dir, name);
    bool has_model = false;
    int rc;

    if (fd < 0) {
        return error_set(e, -fd, "open %s", name);
    }
    rc = found_names(io, fd, &names, e);
    io->ops->close(io, fd);
    for (size_t i = 0; i < names.n; i++) {
        has_model = has_model || str_starts(names.items[i], "model_optim_rng") ||
                    str_starts(names.items[i], "model_rng");
    }
    return rc < 0 || has_model ? rc
                               : error_text(e, ENOENT, "it was never finished: no "
                                            "%s/model_optim_rng.pt", name);
}

/* A part's name has more numbers the more ways a model is split. False: it does not say
 * how many there are. */
static bool ask_file(struct io *io, int dir, const char *name, struct parts *p)
{
    struct torch_asked asked[] = {{.key = "tensor_model_parallel_size"},
                                  {.key = "pipeline_model_parallel_size"},
                                  {.key = "expert_model_parallel_size"}};
    int fd = io->ops->open_file(io, dir, name);

    if (fd < 0) {
        return false;
    }
    torch_file_ask(io, fd, asked, ARRAY_SIZE(asked));
    io->ops->close(io, fd);
    for (int i = 0; i < p->n_numbers; i++) {
        if (asked[i].number > p->at[i] && asked[i].number <= MAX_PARTS) {
            p->at[i] = (unsigned)asked[i].number;
        }
    }
    return asked[0].is_number;
}

static bool ask_parts(struct io *io, int dir, struct parts *p)
{
    int fd = p->first ? io->ops->open_dir(io, dir, p->first) : -ENOENT;
    bool is_said = false;

    if (fd >= 0) {
        is_said = ask_file(io, fd, "model_optim_rng.pt", p) ||
                  ask_file(io, fd, "model_rng.pt", p);
        io->ops->close(io, fd);
    }
    return is_said;
}

static int check_parts(struct io *io, int dir, const struct strlist *names,
                       struct found_facts *facts, struct error *e)
{
    struct parts p = {0};
    unsigned long long all;

    for (size_t i = 0; i < names->n; i++) {
        int rc = take_part(names->items[i], &p)
                     ? check_part(io, dir, names->items[i], e) : 0;

        if (rc < 0) {
            return rc;
        }
    }
    facts->is_counted = ask_parts(io, dir, &p);
    all = (unsigned long long)p.at[0] * p.at[1] * (p.at[2] ? p.at[2] : 1);
    return p.n < all
               ? error_text(e, ENOENT, "it was never finished: of %llu directories "
                            "mp_rank_<rank> %u are there", all, p.n)
               : 0;
}

static int need_file(struct io *io, int dir, const char *name, struct error *e)
{
    int fd = io->ops->open_file(io, dir, name);

    if (fd >= 0) {
        io->ops->close(io, fd);
    }
    return fd == -ENOENT
               ? error_text(e, ENOENT, "it was never finished: no %s", name)
           : fd < 0 ? error_set(e, -fd, "open %s", name) : 0;
}

static int check_distributed(struct io *io, int dir, const struct strlist *names,
                             bool is_deep, struct found_facts *facts,
                             struct error *e)
{
    bool is_dcp = false;
    int rc = need_file(io, dir, "metadata.json", e);

    for (size_t i = 0; i < names->n; i++) {
        is_dcp = is_dcp || strcmp(names->items[i], ".metadata") == 0 ||
                 str_ends(names->items[i], ".distcp");
    }
    rc = rc < 0 ? rc : need_file(io, dir, "common.pt", e);
    facts->is_structure_only |= !is_dcp;
    return rc < 0 || !is_dcp ? rc : found_check_dcp(io, dir, 0, is_deep, facts, e);
}

int found_check_megatron(struct io *io, int dir, bool is_deep,
                         struct found_facts *facts, struct error *e)
{
    struct found_tree t = {.io = io, .is_deep = is_deep};
    _strlist_ struct strlist names = {0};
    bool is_by_rank = false;
    int rc = found_names(io, dir, &names, e);

    for (size_t i = 0; i < names.n; i++) {
        is_by_rank = is_by_rank || str_starts(names.items[i], "mp_rank_");
    }
    if (rc == 0) {
        rc = is_by_rank ? check_parts(io, dir, &names, facts, e)
                        : check_distributed(io, dir, &names, is_deep, facts, e);
    }
    return rc < 0 ? rc : found_check_tree(&t, dir, facts, e);
}
