/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What `muster ckpt` does with one checkpoint, or where one may be.
 *
 *   ckpt_bench.c     what saving and loading take
 *   ckpt_place.c     which one
 *   ckpt_show.c      what is in it
 *   ckpt_convert.c   as safetensors files
 *   ckpt_cp.c        in another directory, too
 *   ckpt_prune.c     all but those that are to stay, of copies as well
 */
#ifndef MUSTER_LAUNCHER_CKPT_VERBS_H
#define MUSTER_LAUNCHER_CKPT_VERBS_H

#include "ckpt/contents.h"
#include "launcher/ckpt_report.h"

/* The checkpoint of that path, whatever links lead to it. 0; -ENOENT: there is none,
 * or it looks like none; and those of contents_open(). */
int ckpt_place_open(const char *path, struct contents *ret, struct error *e);
/* The directory that it is in, open, and what it is, by its name; not looked into. */
int ckpt_place_find(const char *path, struct found *ret, struct error *e);

/* One of muster's that somebody has renamed (found_renamed()) is to have its own name again
 * where it goes elsewhere: says so. 0: it is none. */
int ckpt_place_refuse_renamed(int dir, const char *name, struct error *e);

/* The same directory, and the name in it, whether that is there or gone. */
int ckpt_place_above(const char *path, char ret_name[FOUND_NAME_BYTES], struct error *e);

/* Whether it is a checkpoint by itself, and not a directory that has some: 1, with the
 * directory that it is in, which the caller closes; 0: a directory; -ERR_FORMAT: neither.
 * -ENOENT: it is not there. */
int ckpt_place_itself(const char *path, int *ret_dir, struct found *ret,
                      struct error *e);

/* As of cp of files somebody may expect `to` to be the name of the copy. What is put into a
 * checkpoint would stay there when that one is to go: -EINVAL. 0: it is none, or not there, or
 * where the Trainer saves. */
int ckpt_place_refuse_itself(const char *to, struct error *e);

/* Makes the directory that something goes to, and those above it. Where nothing came of that
 * ckpt_place_unmake() takes away those that this has made, as long as nothing is in them:
 * they are what of the path is behind `ret_there`, which is set in any case. */
int ckpt_place_make(const char *path, size_t *ret_there, struct error *e);
void ckpt_place_unmake(const char *path, size_t there);

/* The exit status. */
/* found_check(), at first without reading: what is not whole as it stands need not be read.
 * People see how far it is. */
int ckpt_check(int dir, const struct found *f, bool is_deep,
               struct found_facts *facts, struct error *e);

int ckpt_verb_show(const struct ckpt_options *o, const char *path);
int ckpt_verb_convert(const struct ckpt_options *o, const char *from,
                      const char *to);
int ckpt_verb_cp(const struct ckpt_options *o, const char *from, const char *to);
int ckpt_verb_prune(const struct ckpt_options *o, const char *path);
/* The same rule for a directory that one was just `copied` into, which stays; nothing is
 * told, and nothing read again. 0 or a negative code. */
int ckpt_prune_copies(int dir, const char *path, uint64_t keep, const char *copied,
                      struct error *e);

/* The same of one that is open, wherever it is; ckpt_convert_check(): whether the
 * options go with where it is to go. */
int ckpt_show_contents(const struct ckpt_options *o, const struct contents *c);
int ckpt_convert_check(const struct ckpt_options *o, const char *to, struct error *e);
int ckpt_convert_contents(const struct ckpt_options *o, const struct contents *c,
                          const char *to);
int ckpt_verb_bench(const struct ckpt_options *o, const char *dir);

#endif
