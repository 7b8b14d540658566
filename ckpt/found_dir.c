/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Which program wrote a directory: by what is in it, for several call theirs
 * checkpoint-<step>. One that has too little in it to tell counts as the Trainer's:
 * nothing says that it is finished, and whether it can be called broken is another
 * question (ckpt/watch.h).
 */
#include <config.h>

#include "ckpt/found_priv.h"

#include "base/cleanup.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

bool found_matches(const char *name, const char *begin, const char *end)
{
    size_t n = strlen(name), n_begin = strlen(begin), n_end = strlen(end);

    return n >= n_begin + n_end && str_starts(name, begin) && str_ends(name, end);
}

/* "checkpoint-" and digits alone. */
static bool is_trainer_name(const char *name)
{
    static const char prefix[] = "checkpoint-";
    size_t n = strlen(prefix);

    return strncmp(name, prefix, n) == 0 && name[n] &&
           strspn(name + n, "0123456789") == strlen(name + n);
}

/* What says who wrote it. */
struct signs {
    bool has_state;     /* trainer_state.json */
    bool has_trainer;   /* what else only the Trainer writes */
    bool has_accelerate;
    bool has_args;      /* training_args.bin, which that writes before its optimizer's */
    bool has_states;    /* of DeepSpeed */
    bool has_state_of_rank; /* and called as it calls them */
    bool has_random;    /* random_states_*, as Accelerate has it */
    bool has_optimizer; /* of torch.save */
    bool has_own;       /* a file of torch.save that none of these programs writes */
    bool has_dcp;
    bool has_megatron;  /* directories of ranks */
    bool has_common;    /* of Megatron's distributed format */
    bool has_deepspeed_dir; /* as Lightning has it */
    bool has_config;  /* of a model of Hugging Face libraries */
    bool has_weights; /* of such a model */
    bool has_known_weights; /* and called as the libraries call them: not model.bin */
    bool has_model;   /* so many of its files, or such, that it needs no config.json */
    bool has_others;    /* other checkpoints: it is a place for them */
    unsigned n_ranks;   /* files of which each rank writes one */
};

static void take_model_sign(struct signs *s, const char *name)
{
    static const char *const begins[] = {"model", "adapter_model", "pytorch_model"};

    s->has_config |= strcmp(name, "config.json") == 0 ||
                     strcmp(name, "adapter_config.json") == 0;
    s->has_model |= found_is_shard_name(name);
    for (size_t i = 0; i < ARRAY_SIZE(begins); i++) {
        bool is_weights = found_matches(name, begins[i], ".safetensors") ||
                          found_matches(name, begins[i], ".bin");

        s->has_weights |= is_weights;
        s->has_known_weights |= is_weights && found_is_weights_name(name);
        s->has_model |= (is_weights && found_is_of_several_name(name)) ||
                        found_matches(name, begins[i], ".index.json");
    }
}

/* What tells a script's own directory from those of programs with such names. */
static void take_own_sign(struct signs *s, const char *name)
{
    s->has_args |= strcmp(name, "training_args.bin") == 0;
    s->has_random |= str_starts(name, "random_states_");
    s->has_state_of_rank |= str_ends(name, "_states.pt") &&
                            (strstr(name, "mp_rank_") || str_starts(name, "layer_"));
    s->has_optimizer |= str_starts(name, "optim") && found_is_torch_name(name);
    s->has_own |= found_is_torch_name(name) && !found_is_known_name(name) &&
                  (!str_ends(name, ".bin") || strcmp(name, "model.bin") == 0);
}

static void take_sign(struct signs *s, const char *name)
{
    uint64_t step;

    s->has_state |= strcmp(name, "trainer_state.json") == 0;
    s->has_trainer |= strcmp(name, "training_args.bin") == 0 ||
                      strcmp(name, "optimizer.pt") == 0 ||
                      strcmp(name, "scheduler.pt") == 0 ||
                      found_matches(name, "rng_state", ".pth");
    s->has_accelerate |= found_matches(name, "random_states_", ".pkl") ||
                         found_matches(name, "optimizer", ".bin") ||
                         found_matches(name, "scheduler", ".bin") ||
                         found_matches(name, "sampler", ".bin") ||
                         found_matches(name, "dl_state_dict", ".bin");
    s->has_states |= str_ends(name, "_states.pt");
    s->has_dcp |= strcmp(name, ".metadata") == 0 || str_ends(name, ".distcp") ||
                  found_matches(name, "__", ".metadata");
    s->has_megatron |= str_starts(name, "mp_rank_") && !strchr(name, '.');
    s->has_common |= strcmp(name, "common.pt") == 0;
    s->n_ranks += found_is_of_rank_name(name);
    take_model_sign(s, name);
    take_own_sign(s, name);
    s->has_deepspeed_dir |= strcmp(name, "checkpoint") == 0;
    s->has_others |= is_trainer_name(name) || step_parse_name(name, &step) ||
                     str_starts(name, "global_step") || str_starts(name, "iter_");
}

/* Of DeepSpeed's there is `latest` beside them, too. */
static bool tell_kind(const struct signs *s, const struct found *f,
                      enum found_kind *ret)
{
    if (!f->has_step && s->has_others) {
        return false;
    }
    if (s->has_state || (s->has_trainer && is_trainer_name(f->name))) {
        *ret = FOUND_TRAINER;
    } else if (s->has_accelerate) {
        *ret = FOUND_ACCELERATE;
    } else if (s->has_megatron || s->has_common) {
        *ret = FOUND_MEGATRON;
    } else if (s->has_states ||
               (s->has_deepspeed_dir && str_ends(f->name, ".ckpt"))) {
        *ret = FOUND_DEEPSPEED;
    } else if (s->has_dcp) {
        *ret = FOUND_DCP;
    } else if (((s->has_config && s->has_weights) || s->has_model) &&
               !s->has_others && !is_trainer_name(f->name)) {
        *ret = FOUND_MODEL;
    } else {
        *ret = FOUND_TRAINER;
        return is_trainer_name(f->name);
    }
    return true;
}

/* Weights of no step, and what has a number as gpt-2 has, may be what training began
 * with: nobody goes on from these, or counts them. */
static void settle_model(const struct signs *s, struct found *f)
{
    if (!f->is_step && !strcasestr(f->name, "epoch") &&
        (s->has_config || !f->has_step)) {
        f->is_part = true;
        f->has_step = false;
        f->step = 0;
    }
}

/* One that cannot be looked into, and whose name says a step: that it is none is more than
 * anybody knows. Its name says what it may be. */
static bool take_unread(int code, struct found *f)
{
    f->kind = str_starts(f->name, "global_step") ? FOUND_DEEPSPEED
              : str_starts(f->name, "iter_")     ? FOUND_MEGATRON
                                                 : FOUND_TRAINER;
    return f->is_step && code != -ENOTDIR && code != -ELOOP && code != -ENOENT;
}

static int read_signs(struct io *io, int fd, struct signs *ret, struct strlist *names)
{
    int rc = found_names(io, fd, names, NULL);

    for (size_t i = 0; i < names->n && rc == 0; i++) {
        take_sign(ret, names->items[i]);
    }
    return rc;
}

/* Whether a script may have made it, which calls its files as it likes: no program is known
 * by it, or one by a name alone that scripts give, too (checkpoint-100, optimizer.pt), while
 * what that program writes before is not there, and what it never writes is. A model of no
 * step that has an optimizer beside it is more than one. */
static bool may_be_plain(const struct signs *s, const struct found *f, bool is_known)
{
    if (s->has_others || !is_known) {
        return !s->has_others;
    }
    switch (f->kind) {
    case FOUND_TRAINER:
        return !s->has_state && !s->has_args && s->has_own;
    case FOUND_ACCELERATE:
        return !s->has_random && s->has_own;
    case FOUND_DEEPSPEED:
        return s->has_states && !s->has_state_of_rank && !s->has_deepspeed_dir;
    case FOUND_MODEL:
        return !s->has_model &&
               (!s->has_known_weights ||
                (s->has_optimizer && !f->is_step && !strcasestr(f->name, "epoch")));
    default:
        return false;
    }
}

/* Of a model what the libraries write of it says itself what there has to be. */
static bool tell_any_kind(struct io *io, int fd, const struct signs *s,
                          const struct strlist *names, struct found *f)
{
    bool is = tell_kind(s, f, &f->kind);

    if (may_be_plain(s, f, is) && found_is_plain(io, fd, f, names)) {
        f->kind = FOUND_TORCH_DIR;
        is = true;
    }
    f->n_ranks = s->n_ranks;
    if (f->kind == FOUND_MODEL) {
        settle_model(s, f);
    }
    if (f->kind == FOUND_TORCH_DIR) {
        f->n_ranks = found_count_ranks(names);
    }
    f->n_parts = f->kind == FOUND_TORCH_DIR                ? found_count_parts(names, false)
                 : f->kind == FOUND_MODEL && !f->is_part ? 1 + found_count_parts(names, true)
                                                         : 0;
    return is;
}

bool found_directory(struct io *io, int dir, struct found *f)
{
    _strlist_ struct strlist names = {0};
    struct signs s = {0};
    int fd = io->ops->open_dir(io, dir, f->name);
    int rc = fd < 0 ? fd : read_signs(io, fd, &s, &names);
    bool is = rc < 0 ? take_unread(rc, f) : tell_any_kind(io, fd, &s, &names, f);

    if (fd >= 0) {
        io->ops->close(io, fd);
    }
    return is;
}

bool found_weights(struct io *io, int dir, const char *name, struct found *ret)
{
    _strlist_ struct strlist names = {0};
    struct signs s = {0};
    int fd = strlen(name) < sizeof(ret->name) ? io->ops->open_dir(io, dir, name) : -1;
    int rc = fd < 0 ? fd : read_signs(io, fd, &s, &names);

    if (fd >= 0) {
        io->ops->close(io, fd);
    }
    if (rc < 0 || !s.has_weights || s.has_others) {
        return false;
    }
    *ret = (struct found){.kind = FOUND_MODEL, .is_part = true};
    str_copy(ret->name, sizeof(ret->name), name);
    return true;
}
