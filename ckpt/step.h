/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Checkpoints in a directory, each in one of its own:
 *
 *   <root>/step-000000001200-0f3a9c2e/   its step, and the beginning of its uuid
 *       r00000.safetensors ...           as many as it takes
 *       tensors.index                    where each piece lies
 *       manifest.json                    all of the above, with digests
 *       COMMIT                           last: it is a checkpoint
 *
 * Whoever saves makes a directory that nobody has had before, so that two who save
 * at once, or one who comes back from the dead, are never in each other's way. The
 * order in which things reach the disk:
 *
 *   the files of the ranks and their names; the index, manifest.json, their names and
 *   the directory's; COMMIT under another name; its own name
 *
 * each before the next begins: syncs that follow one another directly cost a filesystem
 * with a journal little more than one. Removing goes the other way: COMMIT first. So at
 * any moment a directory with a true COMMIT has all that it lists, and one without
 * is nothing. What another program has put there is never touched.
 */
#ifndef MUSTER_CKPT_STEP_H
#define MUSTER_CKPT_STEP_H

#include "base/cleanup.h"
#include "base/error.h"
#include "ckpt/commit.h"
#include "ckpt/io.h"
#include "ckpt/manifest.h"

#include <stddef.h>
#include <stdint.h>

#define STEP_NAME_BYTES 40 /* of any step up to INT64_MAX */

/* "step-000000001200-0f3a9c2e". */
void step_name(uint64_t step, const char *uuid, char to[STEP_NAME_BYTES]);
/* Whether a directory may be one of ours, and of which step. */
bool step_parse_name(const char *name, uint64_t *ret_step);
/* Whether that path is where a save goes to, as <root>/<name>. */
bool step_is_at(const char *root, uint64_t step, const char *uuid, const char *path);

/* --- saving --- */

struct index;
struct step_save;

/* Makes the directory in `root`, an open directory. 0, -EEXIST, -ENOSPC and others. `io`
 * and `root` are borrowed. */
int step_save_begin(struct io *io, int root, uint64_t step, const char *uuid,
                    struct step_save **ret, struct error *e);
/* One that another node has begun, to put files into: its name. */
int step_save_join(struct io *io, int root, const char *name,
                   struct step_save **ret, struct error *e);

/* A file, whole: its bytes are on the disk when this returns, its name is not yet.
 * A failed file is removed again. */
int step_save_file(struct step_save *s, const char *name, const void *data,
                   size_t len, struct error *e);
/* The same block by block, see struct io_blocks: what is to be known of each can
 * be found out on the way. -ECANCELED and others are its callback's. */
int step_save_blocks(struct step_save *s, const char *name,
                     const struct io_blocks *blocks, struct error *e);
/* The same, but its bytes are on the disk only after step_save_sync(): files that are synced
 * together take less time. It stays open until then. */
int step_save_later(struct step_save *s, const char *name,
                    const struct io_blocks *blocks, struct error *e);
/* As step_save_file() for one that is made block by block (ckpt/digest.h): `make` puts bytes
 * [at, at + len) of it into `to`. */
typedef void step_block_f(void *arg, uint64_t at, size_t len, void *to);
int step_save_made(struct step_save *s, const char *name, uint64_t len,
                   step_block_f *make, void *arg, struct error *e);
/* A file for whoever commits, that nobody needs afterwards: it is not synced, and
 * goes by step_save_drop(), which is well if there is none. So do others that are to be
 * written anew. */
int step_save_note(struct step_save *s, const char *name, const void *data,
                   size_t len, struct error *e);
int step_save_drop(struct step_save *s, const char *name, struct error *e);
/* The mark of who saves (ckpt/saver.h), a note as well: the first of all files, as it is the
 * last that goes where a save is given up. step_save_unmark() once there is a COMMIT. */
int step_save_mark(struct step_save *s, const void *data, size_t len, struct error *e);
void step_save_unmark(struct step_save *s);
/* What it was begun with; the descriptor is its own. */
struct io *step_save_io(const struct step_save *s);
int step_save_root(const struct step_save *s);
int step_save_dir(const struct step_save *s);
const char *step_save_name(const struct step_save *s);

/* What was to be synced later, and the names of all files that this node has put in. */
int step_save_sync(struct step_save *s, struct error *e);

/* All files are there and synced, on every node, but for those of this `s` that are to be
 * later: makes it a checkpoint. After a failure it may be one or not; who wants to know
 * reads it (step_open). */
int step_save_commit(struct step_save *s, const struct manifest *m,
                     struct error *e);

/* Removes what this node has put in, and the directory if nothing else is in it.
 * After a commit that failed, too: it is none then, unless it cannot be removed. */
void step_save_abort(struct step_save *s);

/* As that of one part of many, which others may have written instead, and have made a
 * checkpoint of: what is not ours, or is sealed, stays. */
void step_save_leave(struct step_save *s);
/* Whether others have begun to make a checkpoint of what is there. */
bool step_save_is_sealed(const struct step_save *s);

void step_save_destroy(struct step_save *s);
DEFINE_CLEANUP(step_save);

/* --- finding --- */

struct step_entry {
    char name[STEP_NAME_BYTES];
    uint64_t step;
    uint64_t token; /* 0: it has no COMMIT, or is the only one of its step */
};

/* The fencing token of one, as its COMMIT says it, which is read, and nothing else; 0: it
 * has none that can be read. */
uint64_t step_token(struct io *io, int root, const char *name);

/* Which of two of one step counts, here and wherever some are put in order: the one with
 * the higher token; where that says nothing, the one with the higher name. Less than 0: the
 * first. */
int step_compare(uint64_t token, const char *name, uint64_t other_token,
                 const char *other_name);

/* All directories of that form, highest step first, of one step the one that counts; else
 * whether they are checkpoints is not looked at. The caller frees *ret. */
int step_list(struct io *io, int root, struct step_entry **ret, size_t *ret_n,
              struct error *e);

/* A checkpoint that is open. */
struct step {
    struct io *io;
    int dir;
    char name[STEP_NAME_BYTES];
    struct commit commit;
    struct manifest manifest;
};

/* Opens one, if it is one: COMMIT and manifest.json are true, and every file has
 * its length. 0; -ENOENT: no COMMIT, it was never finished, or is being removed;
 * -ERR_FORMAT: damaged; others. */
int step_open(struct io *io, int root, const char *name, struct step *ret,
              struct error *e);
/* The same of one that is called otherwise, as somebody has renamed it, for those who are
 * given its path: nobody starts from it, keeps or removes it. */
int step_open_renamed(struct io *io, int root, const char *name, struct step *ret,
                      struct error *e);
void step_close(struct step *s);
#define _step_ __attribute__((cleanup(step_close)))

/* Something of it could not be read, or is not what it was, which `rc` and `e` say: that
 * code, and the error as it is; but -ENOENT where COMMIT has gone since: as removing begins
 * with that, it is being removed, and not damaged. */
int step_or_gone(const struct step *s, int rc, struct error *e);

/* Reads every byte. -ERR_FORMAT names the file that is damaged, and, as the index has
 * it, which bytes, tensor and rank. Also of one that is being made, without COMMIT: so
 * whether it is being removed is for the caller to ask. */
int step_verify(struct step *s, struct error *e);

/* Says in `e` what is damaged of a file, by its number and the digests that its blocks
 * have; leaves it as it is where that cannot be told. */
void step_blame(const struct step *s, size_t file, const uint64_t *blocks, size_t n,
                struct error *e);

/* -ERR_FORMAT with `e` for bytes [begin, end) of a file that do not have their digest: what of
 * tensors, by that index, is in them. */
int step_blame_bytes(const struct step *s, const struct index *x, uint32_t file,
                     uint64_t begin, uint64_t end, struct error *e);

/* The newest that is one, by step, then by fencing token. With `is_deep` one whose
 * bytes are all true. 0, -ENOENT if there is none; others only if the directory
 * cannot be read. What was passed over is told to `tell`, which may be NULL. */
int step_find_newest(struct io *io, int root, bool is_deep,
                     void (*tell)(void *arg, const char *name,
                                  const struct error *why),
                     void *arg, struct step *ret, struct error *e);

/* --- removing --- */

/* Makes it no checkpoint, then removes the files that have names of ours, and the
 * directory, unless somebody has put something into it. Also for what is left of
 * one that was begun and never finished, or of a removal that was cut short. */
int step_remove(struct io *io, int root, const char *name, struct error *e);
/* The same for who is to hear of what somebody has put into it: -ENOTEMPTY, and the name of
 * one. All else is gone then, too. */
int step_remove_all(struct io *io, int root, const char *name, struct error *e);
/* Goes on with all removals of checkpoints that were cut short, as far as that can be; the
 * error is that of the first that cannot. */
int step_sweep(struct io *io, int root, struct error *e);
/* What one rank has put into one that was never finished, and the directory with the
 * last of them. One that is a checkpoint, or is being made one, is left as it is. */
int step_remove_files(struct io *io, int root, const char *name,
                      const char *const *files, size_t n, struct error *e);

#endif
