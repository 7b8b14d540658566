/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The tensors of what torch.save has written, by the tree of its pickle, which is not run: by
 * the functions of PyTorch that would make them. Sources: torch/_utils.py (_rebuild_*) and
 * torch/serialization.py of PyTorch 1.6 to 2.13.
 *
 * Names are the keys that lead to a tensor, with a dot between them, as in "model.0.weight":
 * keys of dicts, and places in lists. A module, saved as a whole, has those that its state_dict()
 * has (torch/nn/modules/module.py).
 */
#ifndef MUSTER_CKPT_TORCH_TENSORS_H
#define MUSTER_CKPT_TORCH_TENSORS_H

#include "base/error.h"
#include "ckpt/box.h"
#include "ckpt/dtype.h"
#include "ckpt/pickle_tree.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct torch_tensor {
    enum dtype dtype;
    uint32_t n_dims;
    uint64_t shape[BOX_MAX_DIMS];
    int64_t strides[BOX_MAX_DIMS]; /* in elements, 0 or more */
    const char *key; /* of its storage; in the pickle's bytes, without a zero byte behind it */
    size_t key_len;
    uint64_t offset; /* of its first element in that, in elements */
    uint64_t end;    /* behind its last one; 0: it has none */
};

/* 1: the node is a tensor, and such a one. 0: it is none. -ENOTSUP: it is one, and no safetensors
 * file has its like (sparse, quantized, complex128, ...). -ERR_FORMAT: its numbers are wrong. */
int torch_tensor_of(const struct pickle_node *n, struct torch_tensor *ret);

/* The type of `torch.<name>`. False: safetensors has none, or it is no such class. */
bool torch_dtype_of(const struct pickle_node *n, enum dtype *ret);

/* A torch.Size, or another tuple or list of numbers from 0 on. False: it is none, or has too
 * many of them. */
bool torch_numbers_of(const struct pickle_node *n, uint64_t to[BOX_MAX_DIMS], uint32_t *ret_n);

struct torch_walk {
    /* Of each in order. `name` is borrowed during the call. Less than 0 ends the walk. */
    int (*each)(void *arg, const char *name, const struct torch_tensor *t, struct error *e);
    /* What is not handed to `each`: a tensor of which no file has the like, or which no text
     * leads to; or a value that is no tensor. */
    int (*other)(void *arg, const char *name, bool is_tensor, struct error *e);
    void *arg;
    uint64_t max_values; /* as many are looked at; 0: as a tree has at most */
};

/* All below `root`; names begin with `prefix` and a dot, where that is not "". `alone` is the
 * name of a root that is a tensor itself. 0; -ERR_FORMAT: a tensor's numbers are wrong, and of
 * which; -EFBIG: it goes too deep, or in a circle; -ENOMEM; what a function returned. */
int torch_tensors(const struct pickle_node *root, const char *prefix, const char *alone,
                  const struct torch_walk *walk, struct error *e);

#endif
