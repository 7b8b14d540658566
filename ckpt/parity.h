/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Parity over the members of a group, by which any `m` of `n` can be made again from
 * the others. Each member has one image, of any length. There are n stripes: stripe s
 * has its m parities on the members s, s + 1, ... (modulo n), and one piece of each
 * other member. So all have as much to do and to keep: an image has n - m pieces, and
 * a member keeps m parities, of m / (n - m) of the longest image together. With m = 1
 * that is XOR as SCR has it; with more it is a Cauchy matrix over GF(256). Images are
 * as long as the longest, as if they ended in zeros, which nobody has to store.
 *
 * Whatever is made is a sum of pieces, each by its factor: in any order, as they come.
 * Arithmetic only; members are counted from 0.
 */
#ifndef MUSTER_CKPT_PARITY_H
#define MUSTER_CKPT_PARITY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { PARITY_MAX_MEMBERS = 64, PARITY_MAX = 8 };

struct parity {
    unsigned n, m;
};

/* In sets of members, which are bits. */
#define PARITY_BIT(member) (UINT64_C(1) << (member))

/* 0 < m < n, and neither beyond its bound. */
bool parity_makes_sense(const struct parity *p);

/* Which of its parities (from 0) a member keeps of a stripe; -1: it has a piece there. */
int parity_kept(const struct parity *p, unsigned stripe, unsigned member);
/* The stripe of a member's k-th parity. */
unsigned parity_stripe(const struct parity *p, unsigned member, unsigned k);
/* The piece that a member has in a stripe, of an image of `len` bytes. */
void parity_piece(const struct parity *p, unsigned stripe, unsigned member,
                  uint64_t len, uint64_t *ret_at, uint64_t *ret_len);
/* The longest piece of an image of `len` bytes. */
uint64_t parity_piece_bytes(const struct parity *p, uint64_t len);

/* By what a member's piece goes into the k-th parity of its stripe. */
uint8_t parity_factor(const struct parity *p, unsigned k, unsigned member);
/* `gone` are lost, with what they kept; of `empty` the image has no bytes. By what
 * the pieces, and parities, of the others in that stripe add up to the piece of
 * `member`: 0 for those that are not needed. -ENODATA: too many are gone. */
int parity_solve(const struct parity *p, unsigned stripe, unsigned member,
                 uint64_t gone, uint64_t empty,
                 uint8_t ret[PARITY_MAX_MEMBERS]);

/* Adds `len` bytes, times `factor`. */
void parity_add(void *to, const void *from, size_t len, uint8_t factor);

#endif
