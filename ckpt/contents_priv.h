/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the parts share. Private to contents*.c.
 *
 *   contents.c         which tensors there are, and reading of them
 *   contents_file.c    the files that they lie in
 *   contents_pieces.c  reading of what lies in pieces, or in another order
 *   contents_torch.c   files of torch.save
 *   contents_dcp.c     directories of torch.distributed.checkpoint
 */
#ifndef MUSTER_CKPT_CONTENTS_PRIV_H
#define MUSTER_CKPT_CONTENTS_PRIV_H

#include "ckpt/box.h"
#include "ckpt/contents.h"
#include "ckpt/torch_tensors.h"

/* A box of a tensor: in which file, from which byte on, with which distances between its
 * elements there. Of a piece that is an archive of its own, and was not looked into yet, that
 * is not known, but only where the archive lies. */
struct contents_piece {
    struct box box;
    size_t file;
    bool is_archive;
    uint64_t archive_at, archive_end; /* of that */
    uint64_t begin;
    bool is_strided; /* by `strides`, in elements; else row-major without gaps */
    int64_t strides[BOX_MAX_DIMS];
};

/* A new tensor. -ENOMEM. */
int contents_add(struct contents *c, const char *name, size_t len,
                 struct contents_tensor **ret);
/* The same, of that type and shape, in that file. */
int contents_add_of(struct contents *c, const char *name, enum dtype dtype, uint32_t n_dims,
                    const uint64_t *shape, const char *file, struct contents_tensor **ret);
/* One that is not added. */
void contents_leave_out(struct contents *c, const char *name, bool is_tensor);

/* --- files --- */

/* One more, which is open, or is in c->dir and is opened when it is read (-1): then its
 * number. -ENOMEM: it is closed. */
int contents_file_add(struct contents *c, const char *name, int fd);
/* A descriptor of it, until the next call. Errors of opening. */
int contents_file_open(const struct contents *c, size_t file, struct error *e);
const char *contents_file_name(const struct contents *c, size_t file);
void contents_files_release(struct contents *c);

/* --- what others write --- */

/* The tensors of a file of torch.save in `dir`; names begin with `prefix`, where that is not
 * "". -ENOTSUP: it is of a form that is not looked into, told without its name; others. */
int contents_add_torch(struct contents *c, int dir, const char *file, const char *prefix,
                       struct error *e);
/* Those of torch.distributed.checkpoint in c->dir. Sets why_no_tensors where it does not say. */
int contents_add_dcp(struct contents *c, struct error *e);

/* Where a tensor of an archive lies, in its file. -ERR_FORMAT: nowhere. */
struct torch_archive;
int contents_torch_place(const struct torch_archive *a, const struct torch_tensor *t,
                         uint64_t *ret, struct error *e);
/* -ENOTSUP: its numbers are as machines have them that are not supported. */
int contents_torch_check_order(struct io *io, int fd, const struct torch_archive *a,
                               struct error *e);
/* Whether it lies row by row, without gaps. */
bool contents_torch_is_dense(const struct torch_tensor *t);

/* --- pieces --- */

/* Elements [begin, end) of a tensor that has pieces. */
int contents_read_pieces(const struct contents *c, const struct contents_tensor *t,
                         uint64_t begin, uint64_t end, void *to, struct error *e);
/* What that takes: made once, before any is read. -ENOMEM. */
int contents_span_create(struct contents *c);
void contents_span_release(struct contents *c);

#endif
