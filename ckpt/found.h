/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Checkpoints in a directory, whoever wrote them: muster's own (ckpt/step.h), and
 * those that scripts save by themselves. Which of them are whole is told without
 * running what is in them.
 *
 *   muster       step-<step>-<uuid>/           COMMIT and what it vouches for
 *   hf-trainer   checkpoint-<step>/            of the Hugging Face Trainer
 *   accelerate   random_states_*.pkl in it     of Accelerate's save_state()
 *   deepspeed    *_states.pt in it             of DeepSpeed
 *   megatron     mp_rank_*, or common.pt in it of Megatron
 *   hf-model     weights of Hugging Face libraries, with config.json or an index
 *   dcp          .metadata and *.distcp in it  of torch.distributed.checkpoint
 *   torch-dir    *.pt *.pth *.bin *.ckpt or *.safetensors in a directory of a step or an
 *                epoch, as scripts save by themselves: model.pt, optim.pt
 *   torch        *.pt *.pth *.bin *.ckpt       of torch.save
 *   safetensors  *.safetensors
 */
#ifndef MUSTER_CKPT_FOUND_H
#define MUSTER_CKPT_FOUND_H

#include "base/error.h"
#include "ckpt/io.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define FOUND_NAME_BYTES 256
/* What a name ends with that was set aside (ckpt/watch.h), with or without a number
 * behind it: no checkpoint any more. */
#define FOUND_ASIDE ".broken"

enum found_kind {
    FOUND_MUSTER,
    FOUND_TRAINER,
    FOUND_ACCELERATE,
    FOUND_DEEPSPEED,
    FOUND_MEGATRON,
    FOUND_MODEL,
    FOUND_DCP,
    FOUND_TORCH_DIR,
    FOUND_TORCH,
    FOUND_SAFETENSORS,
};
const char *found_kind_name(enum found_kind kind); /* as above */

struct found {
    char name[FOUND_NAME_BYTES]; /* in the directory */
    enum found_kind kind;
    bool has_step;
    uint64_t step; /* for the order: the number in its name that says most */
    uint64_t token; /* of muster's own (step_token()); 0: none */
    /* That number is a step: by the kind of checkpoint, or for the word before it, as
     * in step-100, iter_100 and ckpt100. That of epoch=3 is none. */
    bool is_step;
    /* One of muster's by what is in it, and not by its name (found_renamed()). */
    bool is_renamed;
    /* Its name says none, and what is in it does: last.ckpt of Lightning. It is written
     * over, time and again: nothing removes it, or sets it aside. */
    bool is_inside;
    /* It belongs to a checkpoint and is none: optimizer.pt, training_args.bin, or
     * weights as model.safetensors, or a directory of those, of no step: a model that
     * is trained further, it may be. Nobody starts from it. */
    bool is_part;
    unsigned world; /* how many ranks saved it; 0: not known. For the caller to set */
    /* Of a directory: how many of its files, and directories, are of which each rank writes
     * one, for found_sets() to hold against others. 0: none; or whoever has checked it sets
     * it so, as it is not whole, or says itself how many there are (is_counted). */
    unsigned n_ranks;
    /* Likewise, of one in which no file says which others there have to be: how many names it
     * has, numbers aside, that a checkpoint may need. 0: it is none of these, or not whole. */
    unsigned n_parts;
};

/* All that look like one: with the highest step first, those without a step last; of
 * one step muster's own first, as step_compare() has them, then those whose names say it,
 * and have the higher numbers. Times of files say nothing: copies have others. The caller
 * frees *ret. */
int found_list(struct io *io, int dir, struct found **ret, size_t *ret_n,
               struct error *e);
/* One by its name; false: it looks like none. */
bool found_one(struct io *io, int dir, const char *name, struct found *ret);
/* One of muster's own whose directory somebody has given another name. It is in no list: no
 * program finds it, and so nobody starts from it. But who is given its path can check it,
 * and read what is in it. False: it is none, or has its own name. */
bool found_renamed(struct io *io, int dir, const char *name, struct found *ret);
/* A directory with nothing but weights to tell it by, as convert makes it: as it may be any
 * directory that somebody has put a model into, it is in no list either. */
bool found_weights(struct io *io, int dir, const char *name, struct found *ret);
/* Sets what else its name says, where name, kind and step are known: of a copy, say, whose
 * bytes are elsewhere. */
void found_recall(struct found *f);
/* Whether it is a single file, and no directory. */
bool found_is_file(const struct found *f);
/* That order: less than 0 where `a` comes first. */
int found_compare(const struct found *a, const struct found *b);

/* Which are of one series, so that older ones go when there are newer ones: those whose
 * names say a step; or, where none does, those whose names differ in numbers alone. Of
 * each its series is the place of the first that is of it, or FOUND_NO_SERIES, for what
 * may be anything with a number, as data_2024.pt is among step_100.pt and step_200.pt, and
 * for parts, as optimizer_step100.pt.
 * From one to the next in `all` it is `stride` bytes. The caller frees it; NULL: no
 * memory. */
#define FOUND_NO_SERIES SIZE_MAX
size_t *found_series(const struct found *all, size_t stride, size_t n);

/* Files that are one checkpoint together, as where each rank writes one
 * (step20_rank0.pt, step20_rank1.pt): those of one series and one step, whose names say
 * that it is one; where none does, those of names that differ in the rank. Directories
 * are one by themselves, with files of ranks in them. */
struct found_set {
    size_t first;   /* 1 and the place of its first; 0: it is one by itself */
    /* That differ in numbers alone, or of ranks; 1 where there is none. Of a directory with
     * n_parts those, too: the larger, the more it has. */
    size_t n_files;
    /* It was never finished, by what others of its series have. It lacks the file of a
     * rank, below the highest that it has, of which another one has a file; or an older
     * one has more files, and neither the next newer nor the next older one has as few. Of
     * directories those tell that have the same kind, and names that are alike. Not where
     * it is known how many ranks saved it, and it has as many files. Two in a row that lack
     * their last ranks, the same, pass for those of fewer ranks: nobody removes the newest
     * of those with most files, nor leaves one of the two. */
    bool is_short;
    /* So it is by n_parts. */
    bool lacks_parts;
};
/* Of each, as found_series(), which `series` is of. */
struct found_set *found_sets(const struct found *all, size_t stride, size_t n,
                             const size_t *series);
/* Likewise of those in `dir`. A directory is short only where it does not say itself how
 * many ranks there are, and one with more is whole by its structure: what tells nothing is
 * looked at, and its n_ranks is 0 then. */
struct found_set *found_sets_in(struct io *io, int dir, struct found *all, size_t n,
                                const size_t *series);
/* Whether that one of `dir` is short for what others have that are beside it: only of one
 * that has n_parts, for others say it themselves, as far as they can. False, too, where it
 * cannot be told. */
bool found_lacks_parts(struct io *io, int dir, const struct found *f);
/* That one is short. -ENOENT. */
int found_tell_short(const struct found *f, const struct found_set *set, struct error *e);
/* Likewise, with what it lacks, of the i-th in `dir`. */
int found_tell_short_in(struct io *io, int dir, const struct found *all, size_t n,
                        const struct found_set *sets, size_t i, struct error *e);

struct found_facts {
    uint64_t bytes;    /* of its files */
    uint64_t n_files;
    /* Its format has no checksums, or not for all: what was verified is that all
     * parts are there and have their lengths. */
    bool is_structure_only;
    /* -ERR_FORMAT because nothing in it is of its format: by that alone it may as well
     * be a file of something else with such a name, which is not to be called damaged
     * unless others that are named like it are whole (beside_has_whole()). */
    bool is_foreign;
    unsigned n_ranks; /* whose files were counted; 0: those of none */
    bool is_counted;  /* it says itself of how many there have to be any */
};

/* 0: it is whole, and with `is_deep` every byte was held against its checksum where
 * there is one. -ENOENT: it is not finished; -ERR_FORMAT: cut or damaged; -ENOMEM;
 * errors of reading. */
int found_check(struct io *io, int dir, const struct found *f, bool is_deep,
                struct found_facts *ret, struct error *e);
/* How many names are there that neither begin with a dot nor were set aside; of so many it
 * seems by their names that they are checkpoints: they say a step or an epoch. -errno. */
int found_count_names(struct io *io, int dir, size_t *ret_n, size_t *ret_n_likely);

/* What it says, in a word: "whole", "unfinished", "damaged", "unreadable". */
const char *found_state_name(int rc);

/* What `whole` has and `f`, whose name differs in nothing but numbers, lacks: a file
 * of it, or one of some; numbers in names aside. Of a torch-dir what need not be in each of
 * them does not count. False: nothing. */
bool found_lacks(struct io *io, int dir, const struct found *f,
                 const struct found *whole, char *ret, size_t size);

/* The value of that metric, as its files say it (ckpt/metric.h). 1; 0: it has none; a
 * negative code: they cannot be read, and nobody knows. */
int found_metric(struct io *io, int dir, const struct found *f, const char *name,
                 double *ret, struct error *e);

#endif
