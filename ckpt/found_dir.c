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
    bool has_states;    /* of DeepSpeed */
    bool has_dcp;
    bool has_megatron;  /* directories of ranks */
    bool has_common;    /* of Megatron's distributed format */
    bool has_deepspeed_dir; /* as Lightning has it */
    bool has_config;  /* of a model of Hugging Face libraries */
    bool has_weights; /* of such a model */
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
        s->has_model |= (is_weights && found_is_of_several_name(name)) ||
                        found_matches(name, begins[i], ".index.json");
    }
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

static int read_signs(struct io *io, int dir, const char *name, struct signs *ret)
{
    _strlist_ struct strlist names = {0};
    int fd = io->ops->open_dir(io, dir, name);
    int rc;

    if (fd < 0) {
        return fd;
    }
    rc = found_names(io, fd, &names, NULL);
    io->ops->close(io, fd);
    for (size_t i = 0; i < names.n && rc == 0; i++) {
        take_sign(ret, names.items[i]);
    }
    return rc;
}

bool found_directory(struct io *io, int dir, struct found *f)
{
    struct signs s = {0};
    int rc = read_signs(io, dir, f->name, &s);

    if (rc < 0) {
        return take_unread(rc, f);
    }
    if (!tell_kind(&s, f, &f->kind)) {
        return false;
    }
    f->n_ranks = s.n_ranks;
    if (f->kind == FOUND_MODEL) {
        settle_model(&s, f);
    }
    return true;
}

bool found_weights(struct io *io, int dir, const char *name, struct found *ret)
{
    struct signs s = {0};

    if (strlen(name) >= sizeof(ret->name) || read_signs(io, dir, name, &s) < 0 ||
        !s.has_weights || s.has_others) {
        return false;
    }
    *ret = (struct found){.kind = FOUND_MODEL, .is_part = true};
    str_copy(ret->name, sizeof(ret->name), name);
    return true;
}
