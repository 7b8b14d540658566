/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Directories that training libraries of Hugging Face write.
 *
 * checkpoint-<step>/ of the Trainer: weights, optimizer, scheduler, generators of
 * random numbers of each rank, and trainer_state.json, which rank 0 writes last. Under
 * DeepSpeed its weights may be in global_step<step>/ alone, under FSDP in
 * pytorch_model_fsdp_0/, which is of torch.distributed.checkpoint.
 *
 * Accelerate's save_state(), as diffusers call it: weights, optimizer.bin,
 * scheduler.bin, and last of each rank its random_states_<rank>.pkl.
 *
 * save_pretrained(): config.json, then weights, in one file or in several; of several
 * an index comes last. HuggingFaceStorageWriter of torch.distributed.checkpoint writes
 * an index, too, and no config.json; or, where each rank writes pieces of its own,
 * shard-<rank>-model-<i>-of-<n>.safetensors, and nothing at last. A rank that has no
 * pieces has no file, so gaps say nothing: what is missing a hole in a tensor tells
 * (ckpt/found_shards.c).
 */
#include <config.h>

#include "ckpt/found_priv.h"

#include <errno.h>
#include <jansson.h>
#include <string.h>

static int check_state(struct io *io, int dir, const struct found *f,
                       struct error *e)
{
    json_t *state = NULL;
    const json_t *at;
    int rc = found_read_json(io, dir, "trainer_state.json", &state, e);

    if (rc < 0) {
        return rc;
    }
    at = json_object_get(state, "global_step");
    if (!json_is_integer(at)) {
        rc = error_text(e, ERR_FORMAT, "trainer_state.json has no global_step that is a "
                        "whole number");
    } else if (f->is_step && (uint64_t)json_integer_value(at) != f->step) {
        rc = error_text(e, ERR_FORMAT, "trainer_state.json is of another step, "
                        "%lld", (long long)json_integer_value(at));
    }
    json_decref(state);
    return rc;
}

static int no_weights(struct error *e)
{
    return error_text(e, ENOENT, "it has no weights: no model.safetensors, "
                      "pytorch_model.bin or the like");
}

int found_check_trainer(struct io *io, int dir, const struct found *f,
                        bool is_deep, struct found_facts *facts, struct error *e)
{
    struct found_tree t = {.io = io, .is_deep = is_deep, .has_texts = true};
    _strlist_ struct strlist names = {0};
    int rc = check_state(io, dir, f, e);

    rc = rc < 0 ? rc : found_names(io, dir, &names, e);
    rc = rc < 0 ? rc : found_check_ranks(&names, "rng_state_", ".pth", f->world,
                                         &facts->n_ranks, e);
    rc = rc < 0 ? rc : found_check_tree(&t, dir, facts, e);
    return rc < 0 ? rc : t.has_weights || t.has_states ? 0 : no_weights(e);
}

static bool has_optimizer(const struct strlist *names)
{
    for (size_t i = 0; i < names->n; i++) {
        if (found_matches(names->items[i], "optimizer", "")) {
            return true;
        }
    }
    return false;
}

int found_check_accelerate(struct io *io, int dir, const struct found *f,
                           bool is_deep, struct found_facts *facts,
                           struct error *e)
{
    struct found_tree t = {.io = io, .is_deep = is_deep, .has_texts = true};
    _strlist_ struct strlist names = {0};
    int rc = found_names(io, dir, &names, e);

    rc = rc < 0 ? rc : found_check_ranks(&names, "random_states_", ".pkl",
                                         f->world, &facts->n_ranks, e);
    if (rc == 0 && facts->n_ranks == 0) {
        rc = error_text(e, ENOENT, "it was never finished: no "
                        "random_states_0.pkl");
    }
    rc = rc < 0 ? rc : found_check_tree(&t, dir, facts, e);
    return rc < 0 ? rc
           : t.has_weights || t.has_states || has_optimizer(&names)
               ? 0 : no_weights(e);
}

static bool has_index(const struct strlist *names)
{
    for (size_t i = 0; i < names->n; i++) {
        if (str_ends(names->items[i], ".index.json")) {
            return true;
        }
    }
    return false;
}

/* Weights in several files, of which there is to be an index. */
static bool is_split(const struct strlist *names)
{
    for (size_t i = 0; i < names->n; i++) {
        if (found_is_of_several_name(names->items[i]) &&
            !found_is_shard_name(names->items[i])) {
            return true;
        }
    }
    return false;
}

int found_check_model(struct io *io, int dir, bool is_deep,
                      struct found_facts *facts, struct error *e)
{
    struct found_tree t = {.io = io, .is_deep = is_deep, .has_texts = true};
    _strlist_ struct strlist names = {0};
    int rc = found_names(io, dir, &names, e);

    if (rc == 0 && is_split(&names) && !has_index(&names)) {
        rc = error_text(e, ENOENT, "it was never finished: no "
                        "model.safetensors.index.json or the like");
    }
    rc = rc < 0 ? rc : found_check_tree(&t, dir, facts, e);
    return rc < 0 ? rc : t.has_weights ? 0 : no_weights(e);
}
