/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Boxes of elements in a tensor: in each dimension `len` of them from `at` on. A
 * tensor without dimensions has one element, and one box. Arithmetic only; sizes
 * come from outside, so that nothing here overflows silently.
 */
#ifndef MUSTER_CKPT_BOX_H
#define MUSTER_CKPT_BOX_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define BOX_MAX_DIMS 16

struct box {
    uint32_t n_dims; /* at most BOX_MAX_DIMS */
    uint64_t at[BOX_MAX_DIMS];
    uint64_t len[BOX_MAX_DIMS];
};

/* All of a tensor of that shape. */
struct box box_whole(uint32_t n_dims, const uint64_t *shape);

/* How many elements; false if that is more than UINT64_MAX. 1 without dimensions,
 * 0 if any length is 0. */
bool box_volume(const struct box *b, uint64_t *ret);
bool box_volume_of(uint32_t n_dims, const uint64_t *len, uint64_t *ret);

bool box_is_empty(const struct box *b);

/* Whether `inner` lies in `outer`, both with as many dimensions. An empty one
 * lies wherever its corner and its end do. False where an end overflows. */
bool box_contains(const struct box *outer, const struct box *inner);

/* Whether that box, given by its corner and lengths, is all of a tensor of that shape. */
bool box_is_whole(uint32_t n_dims, const uint64_t *shape, const uint64_t *at,
                  const uint64_t *len);

bool box_equal(const struct box *a, const struct box *b);

/* What two boxes of one tensor share; false, and `ret` unchanged, if that is
 * nothing. Both must lie in a tensor (box_contains). */
bool box_meet(const struct box *a, const struct box *b, struct box *ret);

/* "[0:4, 8:16]", as Python slices; "[]" without dimensions. Cut to fit. */
void box_format(const struct box *b, char *to, size_t size);

/* A tensor that is cut into `boxes`, each element of it in exactly one. 0 if so,
 * else what is wrong, and where:
 *   BOX_OUTSIDE  boxes[*ret_a] has another number of dimensions than the shape,
 *                or reaches out of it
 *   BOX_OVERLAP  boxes[*ret_a] and boxes[*ret_b] share elements
 *   BOX_HOLE     nobody has the elements of *ret_hole
 * Empty boxes are allowed anywhere inside. -ENOMEM. */
enum box_fault {
    BOX_OUTSIDE = 1,
    BOX_OVERLAP = 2,
    BOX_HOLE = 3,
};
struct box_cover {
    size_t a, b;
    struct box hole;
};
int box_check_cover(const struct box *whole, const struct box *boxes, size_t n,
                    struct box_cover *ret);

/* Copies the elements of `part`, each of `size` bytes, between two boxes that
 * contain it and lie in memory in row-major order. `to` and `from` are where the
 * first element of the part lies in each (box_first), not where the boxes begin:
 * less than a whole box may be there. */
void box_copy(const struct box *part, size_t size, void *to,
              const struct box *to_box, const void *from,
              const struct box *from_box);

/* The same, of bytes [begin, end) of `from` only, counted from where the first element
 * of the part lies there; `from` is where byte `begin` lies. They may cut elements. */
void box_copy_bytes(const struct box *part, size_t size, void *to,
                    const struct box *to_box, const void *from,
                    const struct box *from_box, uint64_t begin, uint64_t end);

/* The first byte at or behind `place` that is the part's, both counted from where its
 * first element lies in `whole`; UINT64_MAX if there is none. */
uint64_t box_next_byte(const struct box *part, size_t size, const struct box *whole,
                       uint64_t place);

/* Whether all of a part lies together in `whole`, without gaps. */
bool box_is_together(const struct box *part, const struct box *whole);

/* The elements [begin, end) of a tensor in row-major order, as boxes: at most
 * BOX_MAX_FLAT of them, one after the other in that order. The range must lie in
 * the tensor. How many. */
#define BOX_MAX_FLAT (2 * BOX_MAX_DIMS)
size_t box_from_flat(const struct box *whole, uint64_t begin, uint64_t end,
                     struct box *ret);

/* Where the first element of `part` lies in `whole`, in row-major order, and the
 * place behind the last; `part` is not empty. */
uint64_t box_first(const struct box *whole, const struct box *part);
uint64_t box_end(const struct box *whole, const struct box *part);

#endif
