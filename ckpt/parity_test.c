/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Parity of small groups: whoever is lost, up to as many as there are parities, is made
 * again to the last byte, from images of any lengths; one more is refused; no member
 * keeps more than was said; and a flipped bit of what is kept is not made up for.
 */
#include <config.h>

#include "ckpt/parity.h"

#include "tests/lib/tap.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_LEN = 6000, GUARD = 64 };

/* A group in which all has been computed. */
struct bed {
    struct parity p;
    uint64_t len[PARITY_MAX_MEMBERS];
    unsigned char *image[PARITY_MAX_MEMBERS];
    unsigned char *kept[PARITY_MAX_MEMBERS][PARITY_MAX];
    uint64_t empty;
};

static void *need(size_t len)
{
    void *p = calloc(1, len + GUARD);

    if (!p) {
        bail_out("no memory");
    }
    return p;
}

/* What a member sends to all who keep parities of it, in any order. */
static void send_all(struct bed *b, unsigned member)
{
    const struct parity *p = &b->p;
    uint64_t at, len;

    for (unsigned s = 0; s < p->n; s++) {
        if (parity_kept(p, s, member) >= 0) {
            continue;
        }
        parity_piece(p, s, member, b->len[member], &at, &len);
        for (unsigned k = 0; k < p->m; k++) {
            parity_add(b->kept[(s + k) % p->n][k], b->image[member] + at, len,
                       parity_factor(p, k, member));
        }
    }
}

static void bed_open(struct bed *b, unsigned n, unsigned m, unsigned seed)
{
    *b = (struct bed){.p = {n, m}};
    for (unsigned i = 0; i < n; i++) {
        b->len[i] = (seed + i) % 4 == 3 ? 0 : (seed * 977 + i * 1237 * 3) % MAX_LEN;
        b->empty |= b->len[i] ? 0 : PARITY_BIT(i);
        b->image[i] = need(b->len[i]);
        for (uint64_t at = 0; at < b->len[i]; at++) {
            b->image[i][at] = (unsigned char)(rand() >> 7);
        }
        for (unsigned k = 0; k < m; k++) {
            b->kept[i][k] = need(parity_piece_bytes(&b->p, MAX_LEN));
        }
    }
    for (unsigned i = n; i-- > 0;) {
        send_all(b, i);
    }
}

static void bed_close(struct bed *b)
{
    for (unsigned i = 0; i < b->p.n; i++) {
        free(b->image[i]);
        for (unsigned k = 0; k < b->p.m; k++) {
            free(b->kept[i][k]);
        }
    }
}

/* What another member has for the piece at `to`, of `len` bytes. */
static void add_from(const struct bed *b, unsigned stripe, unsigned from,
                     unsigned char *to, uint64_t len, uint8_t factor)
{
    int k = parity_kept(&b->p, stripe, from);
    uint64_t at, has;

    if (k >= 0) {
        parity_add(to, b->kept[from][k], len, factor);
        return;
    }
    parity_piece(&b->p, stripe, from, b->len[from], &at, &has);
    parity_add(to, b->image[from] + at, has < len ? has : len, factor);
}

/* 0: that member is made again; -ENODATA; 1: it is, and is wrong. */
static int rebuild(const struct bed *b, unsigned member, uint64_t gone)
{
    unsigned char *image = need(b->len[member]);
    uint8_t factors[PARITY_MAX_MEMBERS];
    uint64_t at, len;
    int rc = 0;

    for (unsigned s = 0; s < b->p.n && rc == 0; s++) {
        if (parity_kept(&b->p, s, member) >= 0) {
            continue;
        }
        rc = parity_solve(&b->p, s, member, gone, b->empty, factors);
        parity_piece(&b->p, s, member, b->len[member], &at, &len);
        for (unsigned i = 0; i < b->p.n && rc == 0; i++) {
            if (factors[i] && gone & PARITY_BIT(i)) {
                rc = 1; /* it asks those that are gone */
            }
            add_from(b, s, i, image + at, len, factors[i]);
        }
    }
    if (rc == 0) {
        rc = memcmp(image, b->image[member], b->len[member] + GUARD) != 0;
    }
    free(image);
    return rc;
}

static unsigned count(uint64_t set)
{
    return (unsigned)__builtin_popcountll(set);
}

/* All that may be lost of a group at once. */
static void lose_all_ways(unsigned n, unsigned m, unsigned seed)
{
    unsigned n_wrong = 0, n_refused = 0, n_made = 0;
    struct bed b;

    bed_open(&b, n, m, seed);
    for (uint64_t gone = 1; gone < PARITY_BIT(n); gone++) {
        for (unsigned i = 0; count(gone) <= m && i < n; i++) {
            if (gone & PARITY_BIT(i)) {
                n_wrong += rebuild(&b, i, gone) != 0;
                n_made++;
            }
        }
        /* Without a member that has nothing, one more may be lost. */
        for (unsigned i = 0; count(gone & ~b.empty) > m && i < n; i++) {
            n_refused += gone & PARITY_BIT(i) && rebuild(&b, i, gone) == 1;
        }
    }
    ok(n_wrong == 0 && n_refused == 0 && n_made > 0,
       "%u of %u, lengths %u: %u are made again, %u wrong, and %u that could not be",
       m, n, seed, n_made, n_wrong, n_refused);
    bed_close(&b);
}

static void test_losses(void)
{
    for (unsigned n = 2; n <= 7; n++) {
        for (unsigned m = 1; m < n; m++) {
            for (unsigned seed = 0; seed < 4; seed++) {
                lose_all_ways(n, m, seed);
            }
        }
    }
    lose_all_ways(12, 3, 1);
}

static void test_too_many(void)
{
    const struct parity p = {5, 2};
    uint8_t f[PARITY_MAX_MEMBERS];

    /* Stripe 0: parities on 0 and 1, pieces of 2, 3, 4. */
    is_int(parity_solve(&p, 0, 2, 0x4, 0, f), 0, "one");
    is_int(parity_solve(&p, 0, 2, 0, 0, f), 0, "who is asked for is gone");
    ok(f[2] == 0 && f[0] && f[1] == 0, "and is not asked, nor more than it takes");
    is_int(parity_solve(&p, 0, 2, 0xc, 0, f), 0, "two");
    is_int(parity_solve(&p, 0, 2, 0x1c, 0, f), -ENODATA, "three with pieces");
    is_int(parity_solve(&p, 0, 2, 0xd, 0, f), -ENODATA, "two, and a parity");
    is_int(parity_solve(&p, 0, 2, 0x7, 0, f), -ENODATA, "one, and both parities");
    is_int(parity_solve(&p, 0, 2, 0x1c, 0x10, f), 0, "one of three had nothing");
}

/* The largest group: any two of them, with the factors of the last ones. */
static void test_large(void)
{
    struct bed b;
    unsigned n_wrong = 0;

    bed_open(&b, PARITY_MAX_MEMBERS, PARITY_MAX, 1);
    for (unsigned i = 0; i < PARITY_MAX_MEMBERS; i++) {
        uint64_t gone = 0;

        for (unsigned j = 0; j < PARITY_MAX; j++) {
            gone |= PARITY_BIT((i + j * j) % PARITY_MAX_MEMBERS);
        }
        n_wrong += rebuild(&b, i, gone) != 0;
    }
    is_int((int)n_wrong, 0, "8 of 64");
    bed_close(&b);
}

static void test_bounds(void)
{
    static const struct {
        struct parity p;
        bool is_one;
    } cases[] = {
        {{0, 0}, false}, {{1, 0}, false}, {{1, 1}, false}, {{2, 1}, true},
        {{2, 2}, false}, {{64, 8}, true}, {{65, 1}, false}, {{64, 9}, false},
    };
    const struct parity four = {4, 1}, one = {3, 2};

    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        ok(parity_makes_sense(&cases[i].p) == cases[i].is_one, "%u of %u",
           cases[i].p.m, cases[i].p.n);
    }
    is_int((int)parity_piece_bytes(&four, 3 << 20), 1 << 20, "a third of an image");
    is_int((int)parity_piece_bytes(&four, 1), 64, "of a byte");
    is_int((int)parity_piece_bytes(&four, 0), 0, "of nothing");
    is_int((int)parity_piece_bytes(&one, 640), 640, "all of it, where one is left");
    ok(parity_piece_bytes(&four, UINT64_C(1) << 50) < UINT64_C(1) << 49, "of much");
}

/* Each byte of an image is in one piece, and each parity is of a stripe of its own. */
static void test_pieces(void)
{
    const struct parity p = {6, 2};
    uint64_t at, len, sum, next;

    for (uint64_t bytes = 0; bytes < 1000; bytes += 37) {
        for (unsigned i = 0; i < p.n; i++) {
            sum = next = 0;
            for (unsigned s = 1; s <= p.n - p.m; s++) {
                parity_piece(&p, (i + s) % p.n, i, bytes, &at, &len);
                sum += at == next || len == 0 ? len : 1 << 20;
                next = at + len;
            }
            if (sum != bytes) {
                ok(false, "%u has %u bytes of %u", i, (unsigned)sum,
                   (unsigned)bytes);
            }
        }
    }
    for (unsigned i = 0; i < p.n; i++) {
        for (unsigned k = 0; k < p.m; k++) {
            is_int(parity_kept(&p, parity_stripe(&p, i, k), i), (int)k,
                   "parity %u of %u", k, i);
        }
    }
}

/* Whoever rebuilds has to look: nothing here can tell. */
static void test_damaged(void)
{
    struct bed b;
    unsigned n_wrong = 0, n = 0;

    bed_open(&b, 5, 2, 2);
    for (unsigned i = 1; i < 5; i++) {
        for (unsigned k = 0; k < 2; k++) {
            b.kept[i][k][5] ^= 0x10;
            n_wrong += rebuild(&b, 0, 0x1) == 1;
            n++;
            b.kept[i][k][5] ^= 0x10;
        }
    }
    ok(n_wrong == b.p.n - b.p.m, "%u of %u damaged parities are asked, and show",
       n_wrong, n);
    is_int(rebuild(&b, 0, 0x1), 0, "put back, it is right");
    b.image[2][9] ^= 1;
    is_int(rebuild(&b, 0, 0x1), 1, "so does an image that has changed");
    b.image[2][9] ^= 1;
    bed_close(&b);
}

/* Lengths and places that no wide instruction likes, with what lies around. */
static void test_add(void)
{
    unsigned char from[200], to[200], want[200];
    unsigned n_wrong = 0;

    for (unsigned len = 0; len < 100; len++) {
        for (unsigned skip = 0; skip < 5; skip++) {
            for (unsigned f = 0; f < 256; f += 51) {
                for (unsigned i = 0; i < sizeof(from); i++) {
                    from[i] = (unsigned char)rand();
                    want[i] = to[i] = (unsigned char)rand();
                }
                for (unsigned i = 0; i < len; i++) {
                    unsigned sum = 0, a = from[skip + i];

                    for (unsigned bit = f; bit; bit >>= 1) {
                        sum ^= bit & 1 ? a : 0;
                        a = a << 1 ^ (a & 0x80 ? 0x11d : 0);
                    }
                    want[skip + i] ^= (unsigned char)sum;
                }
                parity_add(to + skip, from + skip, len, (uint8_t)f);
                n_wrong += memcmp(to, want, sizeof(to)) != 0;
            }
        }
    }
    is_int((int)n_wrong, 0, "products and sums, and nothing beside them");
}

int main(void)
{
    test_bounds();
    test_pieces();
    test_add();
    test_losses();
    test_too_many();
    test_large();
    test_damaged();
    return tap_done();
}
