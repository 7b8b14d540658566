/* SPDX-License-Identifier: Apache-2.0 */
/*
 * MUSTER_CKPT_CHECK, between ranks: of what several of them have alike one writes its own,
 * and what the others have there is lost. So all tell a digest of each piece that they
 * have, whoever writes it, and the first that is not the same gets a name.
 */
#include <config.h>

#include "ckpt/save_priv.h"

#include "base/cleanup.h"
#include "base/sort.h"

#include <errno.h>
#include <stdlib.h>

/* One rank's word of a piece. */
struct sum {
    uint64_t piece; /* a digest of what others know of it: the same on all that have it */
    uint64_t bytes; /* and of what is in it */
};

/* The same, by piece, and of one piece by rank. */
struct said {
    struct sum sum;
    uint32_t rank;
};

static int by_piece(const void *a, const void *b)
{
    const struct said *x = a, *y = b;

    if (x->sum.piece != y->sum.piece) {
        return x->sum.piece < y->sum.piece ? -1 : 1;
    }
    return x->rank < y->rank ? -1 : x->rank > y->rank;
}

/* Of all that this rank has. */
static int sum_all(const struct muster_ckpt *ck, const struct saving *s, struct sum **ret,
                   struct error *e)
{
    _free_ struct sum *all = calloc(s->table.n_pieces + 1, sizeof(*all));
    _free_ uint64_t *bytes = NULL;
    int rc = all ? ckpt_sum_memory(ck, s, &bytes, e)
                 : error_set(e, ENOMEM, "check what is saved");

    if (rc < 0) {
        return rc;
    }
    for (size_t i = 0; i < s->table.n_pieces; i++) {
        all[i] = (struct sum){ck->registry.pieces[i].digest, bytes[i]};
    }
    *ret = take_ptr(&all);
    return 0;
}

/* What all have said, in order. */
static int order(const struct sum *all, const size_t *ends, uint32_t world,
                 struct said **ret, size_t *ret_n, struct error *e)
{
    size_t n = ends[world - 1] / sizeof(*all);
    struct said *said = calloc(n + 1, sizeof(*said));
    uint32_t r = 0;

    if (!said) {
        return error_set(e, ENOMEM, "check what is saved");
    }
    for (size_t i = 0; i < n; i++) {
        while (i * sizeof(*all) >= ends[r]) {
            r++;
        }
        said[i] = (struct said){all[i], r};
    }
    sort_items(said, n, sizeof(*said), by_piece);
    *ret = said;
    *ret_n = n;
    return 0;
}

/* Of this rank's pieces the first that is not the same on all that have it. */
static int find_other(const struct saving *s, const struct sum *mine,
                      const struct said *said, size_t n, struct error *e)
{
    for (size_t i = 0; i < s->table.n_pieces; i++) {
        struct said key = {.sum = mine[i]}; /* rank 0 comes first */
        size_t low = 0, high = n;

        while (low < high) {
            size_t middle = low + (high - low) / 2;

            if (by_piece(&said[middle], &key) < 0) {
                low = middle + 1;
            } else {
                high = middle;
            }
        }
        for (size_t k = low + 1; k < n && said[k].sum.piece == key.sum.piece; k++) {
            if (said[k].sum.bytes != said[low].sum.bytes) {
                return error_text(e, EINVAL, "'%.200s' is not the same on ranks %u and %u, "
                                  "and one rank's is saved: expected it alike on all that "
                                  "have it, or boxes of a tensor, or a blob of each rank "
                                  "(MUSTER_CKPT_CHECK)", s->table.pieces[i].name,
                                  said[low].rank, said[k].rank);
            }
        }
    }
    return 0;
}

int ckpt_check_alike(struct muster_ckpt *ck, const struct saving *s, struct error *e)
{
    _free_ struct sum *mine = NULL;
    _free_ char *all = NULL;
    _free_ size_t *ends = NULL;
    _free_ struct said *said = NULL;
    size_t n = 0;
    int rc = group_agree(&ck->group, sum_all(ck, s, &mine, e), e);

    rc = rc < 0 ? rc : group_gather_any(&ck->group, mine, s->table.n_pieces * sizeof(*mine),
                                        &all, &ends, e);
    if (rc < 0) {
        return rc;
    }
    rc = order((const struct sum *)(const void *)all, ends, ck->group.world, &said, &n, e);
    rc = rc < 0 ? rc : find_other(s, mine, said, n, e);
    return group_agree(&ck->group, rc, e);
}
