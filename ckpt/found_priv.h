/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the parts share. Private to found*.c.
 *
 *   found.c          which there are; checking one
 *   found_files.c    single files
 *   found_trainer.c  directories of the Hugging Face Trainer
 *   found_dcp.c      directories of torch.distributed.checkpoint
 */
#ifndef MUSTER_CKPT_FOUND_PRIV_H
#define MUSTER_CKPT_FOUND_PRIV_H

#include "base/str.h"
#include "ckpt/found.h"

/* The names in a directory, in order. */
int found_names(struct io *io, int dir, struct strlist *ret, struct error *e);

bool found_is_torch_name(const char *name);
bool found_is_safetensors_name(const char *name);

/* One file, by its name; adds to the facts. A name of torch.save whose file is no
 * archive (an old pickle) has no structure to look at: only that it is there and
 * not empty. */
int found_check_file(struct io *io, int dir, const char *name, bool is_deep,
                     struct found_facts *facts, struct error *e);
int found_check_trainer(struct io *io, int dir, uint64_t step, bool is_deep,
                        struct found_facts *facts, struct error *e);
/* Without the name of the directory, as the ones above. */
int found_check_dcp(struct io *io, int dir, struct found_facts *facts,
                    struct error *e);

#endif
