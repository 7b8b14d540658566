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

enum {
    NAME_BYTES = 112,
    MAX_SHOWN = 100,
    AT_ONCE = 32, /* that are told: what all ranks tell at once has to fit into memory */
};

struct told {
    uint64_t digest, len;
    char name[NAME_BYTES]; /* as far as there is room */
};

/* What one rank has told. */
struct list {
    struct told *all; /* owned */
    size_t n;
};

static void list_release(struct list *l)
{
    free(l->all);
}
#define _list_ __attribute__((cleanup(list_release)))

static int list_make(struct list *l, size_t n, struct error *e)
{
    l->all = calloc(n + AT_ONCE, sizeof(*l->all));
    return l->all ? 0 : error_set(e, ENOMEM, "compare blobs");
}

static int list_own(const struct registry *r, struct list *ret, struct error *e)
{
    int rc = list_make(ret, r->n_blobs, e);

    for (size_t i = 0; i < r->n_blobs && rc == 0; i++) {
        const struct reg_blob *b = &r->blobs[i];

        if (b->kind != MUSTER_PER_RANK) {
            struct told *t = &ret->all[ret->n++];

            t->digest = digest_short_of(registry_blob_data(r, b), b->len);
            t->len = b->len;
            str_copy(t->name, sizeof(t->name), b->name);
        }
    }
    return rc;
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

/* All ranks tell, a few at a time, and two are listened to. In each list there is room for a
 * few more. */
static int listen(struct muster_ckpt *ck, uint32_t rank, const struct list *mine,
                  struct list *first, struct list *other, struct error *e)
{
    const struct told none[AT_ONCE] = {0};
    _free_ struct told *all = calloc(ck->group.world, sizeof(none));
    _free_ uint64_t *counts = calloc(ck->group.world, sizeof(*counts));
    uint64_t n = mine->n, most = 0;
    int rc = group_agree(&ck->group, all && counts ? 0 : error_set(e, ENOMEM, "compare blobs"),
                         e);

    rc = rc < 0 ? rc : group_gather(&ck->group, &n, counts, sizeof(n), e);
    if (rc == 0) {
        first->n = counts[0];
        other->n = counts[rank];
        most = first->n > other->n ? first->n : other->n;
        rc = list_make(first, most, e);
        rc = rc < 0 ? rc : list_make(other, most, e);
        rc = group_agree(&ck->group, rc, e);
    }
    for (uint64_t at = 0; at < most && rc == 0; at += AT_ONCE) {
        rc = group_gather(&ck->group, at < n ? mine->all + at : none, all, sizeof(none), e);
        if (rc == 0) {
            memcpy(first->all + at, all, sizeof(none));
            memcpy(other->all + at, all + (size_t)rank * AT_ONCE, sizeof(none));
        }
    }
    return rc;
}

int ckpt_differ(struct muster_ckpt *ck, uint32_t rank, struct error *e)
{
    _list_ struct list mine = {0}, first = {0}, other = {0};
    int rc = group_agree(&ck->group, list_own(&ck->registry, &mine, e), e);

    rc = rc < 0 ? rc : listen(ck, rank, &mine, &first, &other, e);
    return rc < 0 ? rc : name_first(ck, rank, &first, &other, e);
}
