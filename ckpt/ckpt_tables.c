/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What each rank has is told to all others only when a rank's has changed; all find
 * out from it who writes what.
 */
#include <config.h>

#include "ckpt/save_priv.h"

#include "base/cleanup.h"
#include "ckpt/digest.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

uint64_t ckpt_table_digest(const struct part *table)
{
    struct part bare = *table;
    _buf_ struct buf b = {0};

    bare.state = NULL; /* differs from step to step */
    return part_encode(&bare, &b, NULL) < 0 ? 0 : digest_short_of(b.data, b.len);
}

struct tables {
    uint32_t n;
    struct part *all;
};

static void tables_release(struct tables *t)
{
    for (uint32_t i = 0; t->all && i < t->n; i++) {
        part_release(&t->all[i]);
    }
    free(t->all);
}

static int gather_tables(const struct muster_ckpt *ck, const struct part *mine,
                         struct tables *ret, struct error *e)
{
    struct part bare = *mine;
    _buf_ struct buf b = {0};
    _free_ char *all = NULL;
    _free_ size_t *ends = NULL;
    size_t at = 0;
    int rc, encoded;

    bare.state = NULL;
    encoded = part_encode(&bare, &b, e);
    rc = group_gather_any(&ck->group, b.data ? b.data : "", b.len, &all, &ends,
                          e);
    if (rc < 0 || encoded < 0) {
        return rc < 0 ? rc : encoded;
    }
    ret->all = calloc(ck->group.world, sizeof(*ret->all));
    if (!ret->all) {
        return error_set(e, ENOMEM, "share out what is saved");
    }
    for (; ret->n < ck->group.world && rc == 0; ret->n++) {
        rc = part_decode(all + at, ends[ret->n] - at, &ret->all[ret->n], e);
        if (rc < 0) {
            error_wrap(e, "what rank %u has", ret->n);
        }
        at = ends[ret->n];
    }
    return rc;
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
    rc = rc < 0 ? rc : share_out(t.all, t.n, ck->group.rank, &shares,
                               &ck->n_bytes, e);
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
