/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What each rank has is told to all others only when a rank's has changed; all find
 * out from it who writes what.
 */
#include <config.h>

#include "ckpt/save_priv.h"

#include "base/cleanup.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

static int encode(const struct part *table, struct buf *to, struct error *e)
{
    struct part bare = *table;

    bare.state = NULL; /* differs from step to step */
    return part_encode(&bare, to, e);
}

struct tables {
    uint32_t n, own; /* that one is the caller's */
    struct part *all;
};

static void tables_release(struct tables *t)
{
    for (uint32_t i = 0; t->all && i < t->n; i++) {
        if (i != t->own) {
            part_release(&t->all[i]);
        }
    }
    free(t->all);
}

/* What this rank has need not be read out of what it says. */
static int decode(struct tables *t, const struct part *mine, const char *all,
                  const size_t *ends, struct error *e)
{
    size_t at = 0;
    int rc = 0;

    for (; t->n < mine->n_ranks && rc == 0; t->n++) {
        if (t->n == t->own) {
            t->all[t->n] = *mine;
        } else {
            rc = part_decode(all + at, ends[t->n] - at, &t->all[t->n], e);
        }
        if (rc < 0) {
            error_wrap(e, "what rank %u has", t->n);
        }
        at = ends ? ends[t->n] : 0;
    }
    return rc;
}

/* Of one rank there is nothing to be told. */
static int exchange(const struct group *g, const struct part *mine, char **ret_all,
                    size_t **ret_ends, struct error *e)
{
    _buf_ struct buf b = {0};
    int encoded, rc;

    if (g->world == 1) {
        return 0;
    }
    encoded = encode(mine, &b, e);
    rc = group_gather_any(g, buf_str(&b), b.len, ret_all, ret_ends, e);
    return rc < 0 ? rc : encoded;
}

static int gather_tables(const struct muster_ckpt *ck, const struct part *mine,
                         struct tables *ret, struct error *e)
{
    _free_ char *all = NULL;
    _free_ size_t *ends = NULL;
    int rc = exchange(&ck->group, mine, &all, &ends, e);

    if (rc < 0) {
        return rc;
    }
    ret->own = ck->group.rank;
    ret->all = calloc(ck->group.world, sizeof(*ret->all));
    return ret->all ? decode(ret, mine, all, ends, e)
                    : error_set(e, ENOMEM, "share out what is saved");
}

/* Blobs of all ranks have one list. */
static int check_blobs(const struct tables *t, struct error *e)
{
    const struct part *first = &t->all[0];

    for (uint32_t r = 1; r < t->n; r++) {
        const struct part *p = &t->all[r];
        size_t i = 0;

        while (i < p->n_blobs && i < first->n_blobs &&
               strcmp(p->blobs[i].name, first->blobs[i].name) == 0 &&
               p->blobs[i].is_per_rank == first->blobs[i].is_per_rank) {
            i++;
        }
        if (i < p->n_blobs || i < first->n_blobs) {
            return error_text(e, EINVAL, "blob '%.200s': ranks 0 and %u have not "
                              "registered the same blobs in the same order",
                              i < first->n_blobs ? first->blobs[i].name
                                                 : p->blobs[i].name, r);
        }
    }
    return 0;
}

static bool is_known(const struct muster_ckpt *ck, const struct opening *all)
{
    bool is = true;

    for (uint32_t r = 0; r < ck->group.world; r++) {
        is = is && all[r].reasons; /* its table is as it was */
    }
    return is;
}

int ckpt_share(struct muster_ckpt *ck, const struct opening *all,
               const struct part *table, struct error *e)
{
    __attribute__((cleanup(tables_release))) struct tables t = {0};
    struct share *shares = NULL;
    int rc;

    if (is_known(ck, all)) {
        ck->table_changes = ck->registry.n_changes; /* and is as it was again */
        return 0;
    }
    ck->has_shares = false;
    saving_forget_plan(ck);
    rc = gather_tables(ck, table, &t, e);
    rc = rc < 0 ? rc : check_blobs(&t, e);
    rc = rc < 0 ? rc : share_out(t.all, t.n, ck->group.rank, &shares, &ck->sum, e);
    if (rc < 0) {
        return rc;
    }
    free(ck->shares);
    ck->shares = shares;
    ck->n_shares = table->n_pieces;
    ck->table_digest = all[ck->group.rank].table;
    ck->table_changes = ck->registry.n_changes;
    ck->has_shares = true;
    return 0;
}
