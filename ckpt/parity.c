/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "ckpt/parity.h"

#include <errno.h>
#include <isa-l/erasure_code.h>
#include <string.h>

enum {
    ALIGN = 64,       /* pieces begin where memory is fast */
    TABLE_BYTES = 32, /* of one factor */
};

bool parity_makes_sense(const struct parity *p)
{
    return p->m > 0 && p->m < p->n && p->m <= PARITY_MAX &&
           p->n <= PARITY_MAX_MEMBERS;
}

/* How far `to` is behind `from`, in the circle. */
static unsigned way(const struct parity *p, unsigned from, unsigned to)
{
    return (to + p->n - from) % p->n;
}

int parity_kept(const struct parity *p, unsigned stripe, unsigned member)
{
    unsigned k = way(p, stripe, member);

    return k < p->m ? (int)k : -1;
}

unsigned parity_stripe(const struct parity *p, unsigned member, unsigned k)
{
    return way(p, k, member);
}

uint64_t parity_piece_bytes(const struct parity *p, uint64_t len)
{
    uint64_t n = p->n - p->m, bytes = len / n + (len % n != 0);

    return (bytes + ALIGN - 1) / ALIGN * ALIGN;
}

/* A member's pieces are in the stripes behind it. */
void parity_piece(const struct parity *p, unsigned stripe, unsigned member,
                  uint64_t len, uint64_t *ret_at, uint64_t *ret_len)
{
    uint64_t bytes = parity_piece_bytes(p, len);
    uint64_t at = bytes * (way(p, member, stripe) - 1);

    *ret_at = at < len ? at : len;
    *ret_len = len - *ret_at < bytes ? len - *ret_at : bytes;
}

/* Any square part of such a matrix can be inverted: all of the numbers differ. */
uint8_t parity_factor(const struct parity *p, unsigned k, unsigned member)
{
    return p->m == 1 ? 1 : gf_inv((unsigned char)((PARITY_MAX_MEMBERS + k) ^ member));
}

/* Who is gone of a stripe with a piece, and whose parities are there for that. */
struct holes {
    unsigned n, gone[PARITY_MAX];
    unsigned n_kept, kept[PARITY_MAX]; /* numbers of parities */
};

static int find_holes(const struct parity *p, unsigned stripe, uint64_t gone,
                      uint64_t empty, struct holes *ret)
{
    ret->n = ret->n_kept = 0;
    for (unsigned i = 0; i < p->n; i++) {
        if (parity_kept(p, stripe, i) >= 0 || !(gone & ~empty & PARITY_BIT(i))) {
            continue;
        }
        if (ret->n == p->m) {
            return -ENODATA;
        }
        ret->gone[ret->n++] = i;
    }
    for (unsigned k = 0; k < p->m && ret->n_kept < ret->n; k++) {
        if (!(gone & PARITY_BIT((stripe + k) % p->n))) {
            ret->kept[ret->n_kept++] = k;
        }
    }
    return ret->n_kept < ret->n ? -ENODATA : 0;
}

int parity_solve(const struct parity *p, unsigned stripe, unsigned member,
                 uint64_t gone, uint64_t empty,
                 uint8_t ret[PARITY_MAX_MEMBERS])
{
    unsigned char a[PARITY_MAX * PARITY_MAX], inverse[PARITY_MAX * PARITY_MAX];
    const unsigned char *row = inverse;
    struct holes h;
    unsigned at = 0;

    memset(ret, 0, PARITY_MAX_MEMBERS);
    if (find_holes(p, stripe, gone | PARITY_BIT(member),
                   empty & ~PARITY_BIT(member), &h) < 0) {
        return -ENODATA;
    }
    for (unsigned i = 0; i < h.n; i++) {
        for (unsigned j = 0; j < h.n; j++) {
            a[i * h.n + j] = parity_factor(p, h.kept[i], h.gone[j]);
        }
        at = h.gone[i] == member ? i : at;
    }
    if (gf_invert_matrix(a, inverse, (int)h.n) != 0) {
        return -ENODATA; /* never */
    }
    row += at * h.n;
    for (unsigned i = 0; i < h.n; i++) {
        ret[(stripe + h.kept[i]) % p->n] = row[i];
        for (unsigned j = 0; j < p->n; j++) {
            if (parity_kept(p, stripe, j) < 0 &&
                !((gone | empty | PARITY_BIT(member)) & PARITY_BIT(j))) {
                ret[j] ^= gf_mul(row[i], parity_factor(p, h.kept[i], j));
            }
        }
    }
    return 0;
}

static void add_plain(unsigned char *to, const unsigned char *from, size_t len)
{
    size_t at = 0;
    uint64_t a[4], b[4];

    for (; len - at >= sizeof(a); at += sizeof(a)) {
        memcpy(a, to + at, sizeof(a));
        memcpy(b, from + at, sizeof(b));
        for (unsigned i = 0; i < 4; i++) {
            a[i] ^= b[i];
        }
        memcpy(to + at, a, sizeof(a));
    }
    for (; at < len; at++) {
        to[at] ^= from[at];
    }
}

void parity_add(void *to, const void *from, size_t len, uint8_t factor)
{
    unsigned char table[TABLE_BYTES], *coding = to;
    unsigned char *data = (unsigned char *)from; /* it is not written */

    if (factor == 1) {
        add_plain(to, from, len);
    } else if (factor != 0 && len > 0) {
        ec_init_tables(1, 1, &factor, table);
        ec_encode_data_update((int)len, 1, 1, 0, table, data, &coding);
    }
}
