/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What is to be the same on all ranks, and is not, gets a name: ranks tell each other
 * digests of each of these blobs, and then, of the first that differs, of beginnings of
 * it, until they know the first byte that does.
 */
#include <config.h>

#include "ckpt/save_priv.h"

#include "base/cleanup.h"
#include "base/str.h"
#include "base/utf8.h"
#include "ckpt/digest.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

enum { NAME_BYTES = 112, MAX_SHOWN = 100 };

struct told {
    uint64_t digest, len;
    char name[NAME_BYTES]; /* as far as there is room */
};

/* What one rank has told. */
struct list {
    const struct told *all;
    size_t n;
};

static int list_own(const struct registry *r, struct told **ret, size_t *ret_n,
                    struct error *e)
{
    struct told *all = calloc(r->n_blobs + 1, sizeof(*all));

    if (!all) {
        return error_set(e, ENOMEM, "compare blobs");
    }
    for (size_t i = 0; i < r->n_blobs; i++) {
        const struct reg_blob *b = &r->blobs[i];

        if (b->kind != MUSTER_PER_RANK) {
            struct told *t = &all[(*ret_n)++];

            t->digest = digest_short_of(registry_blob_data(r, b), b->len);
            t->len = b->len;
            str_copy(t->name, sizeof(t->name), b->name);
        }
    }
    *ret = all;
    return 0;
}

static const struct told *look_up(const struct list *l, const char *name)
{
    for (size_t i = 0; i < l->n; i++) {
        if (strcmp(l->all[i].name, name) == 0) {
            return &l->all[i];
        }
    }
    return NULL;
}

/* The first of `a` that `b` has not, or not as it is; NULL: there is none. */
static const struct told *first_other(const struct list *a, const struct list *b)
{
    for (size_t i = 0; i < a->n; i++) {
        const struct told *t = look_up(b, a->all[i].name);

        if (!t || t->digest != a->all[i].digest || t->len != a->all[i].len) {
            return &a->all[i];
        }
    }
    return NULL;
}

/* Of the first `len` bytes of this rank's; 0 where it has not so many. */
static uint64_t digest_beginning(const struct registry *r, const char *name,
                                 uint64_t len)
{
    for (size_t i = 0; i < r->n_blobs; i++) {
        const struct reg_blob *b = &r->blobs[i];

        if (b->kind != MUSTER_PER_RANK && b->len >= len &&
            strncmp(b->name, name, NAME_BYTES - 1) == 0) {
            return digest_short_of(registry_blob_data(r, b), len);
        }
    }
    return 0;
}

/* How many bytes at the beginning are the same on both ranks, of at most `most`. */
static int count_same(struct muster_ckpt *ck, const char *name, uint32_t rank,
                      uint64_t most, uint64_t *ret, struct error *e)
{
    _free_ uint64_t *all = calloc(ck->group.world, sizeof(*all));
    uint64_t low = 0;
    int rc = group_agree(&ck->group,
                         all ? 0 : error_set(e, ENOMEM, "compare blobs"), e);

    while (rc == 0 && low < most) {
        uint64_t middle = most - (most - low) / 2;
        uint64_t mine = digest_beginning(&ck->registry, name, middle);

        rc = group_gather(&ck->group, &mine, all, sizeof(mine), e);
        if (rc == 0 && all[0] == all[rank]) {
            low = middle;
        } else {
            most = middle - 1;
        }
    }
    *ret = low;
    return rc;
}

static int name_first(struct muster_ckpt *ck, uint32_t rank, const struct list *first,
                      const struct list *other, struct error *e)
{
    const struct told *here = first_other(first, other);
    const struct told *t = here ? here : first_other(other, first);
    const struct told *there = t ? look_up(other, t->name) : NULL;
    _buf_ struct buf name = {0};
    uint64_t same = 0;
    int rc;

    if (!t) { /* of so long names the beginnings are the same */
        return error_text(e, EINVAL, "replicated blobs, or JSON, differ between rank 0 "
                          "and rank %u: they must be the same bytes on all ranks", rank);
    }
    utf8_put_printable(&name, t->name, MAX_SHOWN);
    if (!here || !there) {
        return error_text(e, EINVAL, "blob '%s': rank %u has it, and rank %u has not: "
                          "it must be the same bytes on all ranks", buf_str(&name),
                          here ? 0 : rank, here ? rank : 0);
    }
    rc = count_same(ck, t->name, rank, t->len < there->len ? t->len : there->len, &same,
                    e);
    return rc < 0 ? rc
                  : error_text(e, EINVAL, "blob '%s' differs between rank 0 and rank %u "
                               "from byte %" PRIu64 " on: it must be the same bytes on "
                               "all ranks", buf_str(&name), rank, same);
}

int ckpt_differ(struct muster_ckpt *ck, uint32_t rank, struct error *e)
{
    _free_ struct told *mine = NULL;
    _free_ char *all = NULL;
    _free_ size_t *ends = NULL;
    struct list first, other;
    size_t n = 0;
    int rc = list_own(&ck->registry, &mine, &n, e);

    rc = group_agree(&ck->group, rc, e);
    rc = rc < 0 ? rc : group_gather_any(&ck->group, mine, n * sizeof(*mine), &all, &ends,
                                        e);
    if (rc < 0) {
        return rc;
    }
    first = (struct list){(const void *)all, ends[0] / sizeof(*mine)};
    other = (struct list){(const void *)(all + ends[rank - 1]),
                          (ends[rank] - ends[rank - 1]) / sizeof(*mine)};
    return name_first(ck, rank, &first, &other, e);
}
