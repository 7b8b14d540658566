/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the parts share. Private to found*.c.
 *
 *   found.c          which there are; checking one
 *   found_name.c     what names say
 *   found_dir.c      who wrote a directory
 *   found_tree.c     all that is in one
 *   found_index.c    which tensors are in which file
 *   found_json.c     JSON as Python writes it
 *   found_scan.c     whether that is whole
 *   found_texts.c    what is read besides the weights
 *   found_ranks.c    files of which each rank writes one
 *   found_shards.c   pieces that ranks write by themselves
 *   found_files.c    single files
 *   found_plain.c    directories of files that scripts save each by itself
 *   found_words.c    what words in names say of these
 *   found_trainer.c  directories of the Hugging Face Trainer, and of Accelerate
 *   found_model.c    those of DeepSpeed and Megatron
 *   found_dcp.c      those of torch.distributed.checkpoint
 *   found_like.c     what one has that another lacks
 *   found_series.c   which go when newer ones have come
 *   found_sets.c     files that are one together
 */
#ifndef MUSTER_CKPT_FOUND_PRIV_H
#define MUSTER_CKPT_FOUND_PRIV_H

#include "base/str.h"
#include "ckpt/found.h"
#include "ckpt/step.h"

#include <jansson.h>

/* The names in a directory, in order. */
int found_names(struct io *io, int dir, struct strlist *ret, struct error *e);

/* A descriptor of what is in one; -ENOTDIR: it is a file, a link, or gone; other errors are
 * those of a directory that cannot be looked at. */
int found_open_dir(struct io *io, int dir, const char *name);

/* Says why a file cannot be read; returns the code. */
int found_fail_to_open(int code, const char *name, struct error *e);
/* The same of io_read_file(), which opens it, too. */
int found_fail_to_read(int code, const char *name, struct error *e);

/* --- names --- */

bool found_is_torch_name(const char *name);
bool found_is_safetensors_name(const char *name);
/* Whether it begins and ends so, the two apart. */
bool found_matches(const char *name, const char *begin, const char *end);

/* How much of a name is before the ending of a file of ours. */
size_t found_stem(const char *name);
/* The number for the order, and whether it is a step by the word before it. False:
 * there is none. */
bool found_number(const char *name, uint64_t *ret, bool *ret_is_step);
/* Whether it says by a word that this is a step, or an epoch. */
bool found_says_time(const char *name, uint64_t *ret);
/* Of a checkpoint, and none by itself: what goes on from optimizer.pt alone? */
bool found_is_part_name(const char *name);
bool found_is_aside_name(const char *name);
/* What a program calls one while it writes it. */
bool found_is_unfinished_name(const char *name);
/* model-00001-of-00003.safetensors: one of several. */
bool found_is_of_several_name(const char *name);
/* rank3.pt, shard_0.pt: which of those that save together wrote it. */
bool found_is_rank_name(const char *name);
/* The number of that; false: there is none, or several (tp_rank_0_pp_rank_1.pt). */
bool found_rank(const char *name, uint64_t *ret);
/* Files by which each rank of HuggingFaceStorageWriter tells its pieces. */
bool found_is_shard_name(const char *name);
bool found_is_weights_name(const char *name);
/* Those that the writers that are known here make by torch.save: another file may be
 * called .bin and be none of these. */
bool found_is_known_name(const char *name);
/* As `last` and `latest` are. */
bool found_is_last_name(const char *name);
/* Less than 0 where `a` is the later one: a `last`, or the one with higher numbers. */
int found_compare_names(const char *a, const char *b);

/* --- words in names --- */

/* What a file has, as far as its name says it. */
enum found_word {
    FOUND_WORD_DATA,  /* what goes into training, or comes out of it beside the state */
    FOUND_WORD_NONE,  /* it does not say */
    FOUND_WORD_STATE, /* weights, or what else training goes on from */
};
enum found_word found_word_of(const char *name);
/* step_100.tmp, epoch_3-old: it was not finished, or somebody wants it no more. */
bool found_is_put_away_name(const char *name);
/* eval_step_100, epoch_3_samples: a directory of what training gives beside its state. */
bool found_is_data_name(const char *name);
/* model.pt.tmp: how a file is called while it is written that is model.pt in the end. */
bool found_final_name(const char *name, char ret[FOUND_NAME_BYTES]);

/* --- directories of plain files --- */

/* Whether f->name, whose number is known and which has these names in it, is a directory of
 * a step or an epoch, with files of torch.save or of safetensors in it. */
bool found_is_plain(struct io *io, int fd, const struct found *f, const struct strlist *names);
/* Whether a checkpoint that lacks it, and has it in others, was not finished. */
bool found_is_needed_name(const char *name);
/* How many of these there are, numbers aside; all, or those that a script has put beside
 * weights, by torch.save. */
unsigned found_count_parts(const struct strlist *names, bool is_beside);
/* How many files in it are of ranks. */
unsigned found_count_ranks(const struct strlist *names);

/* --- directories --- */

/* Sets the kind of what is called f->name, whose number is known; false: it is none,
 * or no directory. */
bool found_directory(struct io *io, int dir, struct found *f);

struct found_tree {
    struct io *io;
    bool is_deep;
    bool has_texts;   /* for the caller to set: found_check_text() is for it */
    bool has_weights; /* of a model that is not split */
    bool has_states;  /* of DeepSpeed, and those of all ranks */
    bool is_counted;  /* of these, how many ranks there are stands in one */
};
/* Each file in it that has a structure, down to a depth; what is no file of torch.save
 * but only called like one is left alone. */
int found_check_tree(struct found_tree *t, int dir, struct found_facts *facts,
                     struct error *e);

/* Of <begin><rank><end>: none is missing below the highest, nor below `world`. -ENOENT.
 * None at all is right. */
int found_check_ranks(const struct strlist *names, const char *begin,
                      const char *end, unsigned world, unsigned *ret_n,
                      struct error *e);
/* Whether it is such a file or directory, of which each rank writes one, or each part of a
 * model has one. */
bool found_is_of_rank_name(const char *name);
/* Likewise of DeepSpeed's, which are in this directory, if any. */
int found_check_shards(struct found_tree *t, int dir,
                       const struct strlist *names, struct error *e);

/* Pieces of tensors in shard-*.safetensors, which are whole: none is missing before another
 * one. -ENOENT. */
int found_check_pieces(struct io *io, int dir, const struct strlist *names,
                       struct error *e);

/* A file *.index.json: what it says is where it says. */
int found_check_index(struct io *io, int dir, const char *name, struct error *e);

/* A file *.json of a script's own: it is not empty, and not cut. What is no JSON at all says
 * nothing. */
int found_check_json(struct io *io, int dir, const char *name, struct error *e);
/* A file that Hugging Face libraries read besides the weights, as config.json: it is not
 * empty, and whole JSON where it is to be any, but for one that is too large to look at.
 * Another one says nothing. */
int found_check_text(struct io *io, int dir, const char *name, struct error *e);

/* As found_json_parse(). */
int found_read_json(struct io *io, int dir, const char *name, json_t **ret,
                    struct error *e);

/* --- checks, as found_check() --- */

/* Whether it begins as a file of torch.save does, and is one: no link, and nothing else. */
bool found_begins_as_torch(struct io *io, int dir, const char *name);
/* One file, of safetensors or else of torch.save, whatever its name; adds to the
 * facts. */
int found_check_file(struct io *io, int dir, const char *name,
                     enum found_kind kind, bool is_deep,
                     struct found_facts *facts, struct error *e);
/* Inside one; messages without its name. */
int found_check_trainer(struct io *io, int dir, const struct found *f,
                        bool is_deep, struct found_facts *facts, struct error *e);
int found_check_accelerate(struct io *io, int dir, const struct found *f,
                           bool is_deep, struct found_facts *facts,
                           struct error *e);
int found_check_deepspeed(struct io *io, int dir, bool is_deep,
                          struct found_facts *facts, struct error *e);
int found_check_model(struct io *io, int dir, bool is_deep,
                      struct found_facts *facts, struct error *e);
int found_check_megatron(struct io *io, int dir, bool is_deep,
                         struct found_facts *facts, struct error *e);
int found_check_plain(struct io *io, int dir, unsigned world, bool is_deep,
                      struct found_facts *facts, struct error *e);
int found_check_dcp(struct io *io, int dir, unsigned world, bool is_deep,
                    struct found_facts *facts, struct error *e);

#endif
