/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "ckpt/group.h"

#include "base/cleanup.h"
#include "base/str.h"
#include "muster.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* --- ways to gather --- */

static int gather_alone(void *arg, const void *mine, void *all, size_t len)
{
    (void)arg;
    memcpy(all, mine, len);
    return 0;
}

/* Everybody adds the own part to zeros. */
static int gather_workers(void *arg, const void *mine, void *all, size_t len)
{
    struct muster *m = arg;
    size_t world = (size_t)muster_world(m);

    memset(all, 0, world * len);
    memcpy((char *)all + (size_t)muster_rank(m) * len, mine, len);
    return muster_allreduce(m, all, all, world * len, MUSTER_UINT8, MUSTER_MAX);
}

/* A length that is a multiple of it can go in few large pieces. */
enum { GATHER_UNIT = 4096 };

struct verdict {
    int32_t rc;
    char text[500];
};

static int choose(struct muster *m, const struct muster_ckpt_group *given,
               struct group *ret, struct error *e)
{
    if (given) {
        if (given->world < 1 || given->rank < 0 ||
            given->rank >= given->world || !given->allgather) {
            return error_text(e, EINVAL, "rank %d in a group of %d",
                              given->rank, given->world);
        }
        *ret = (struct group){(uint32_t)given->rank, (uint32_t)given->world,
                              given->allgather, given->arg, NULL};
        return 0;
    }
    *ret = (struct group){0, 1, gather_alone, NULL, NULL};
    if (m && muster_world(m) > 1) {
        *ret = (struct group){(uint32_t)muster_rank(m),
                              (uint32_t)muster_world(m), gather_workers, m,
                              NULL};
    }
    return 0;
}

int group_make(struct muster *m, const struct muster_ckpt_group *given,
               struct group *ret, struct error *e)
{
    int rc = choose(m, given, ret, e);

    if (rc == 0) {
        ret->verdicts = calloc(ret->world, sizeof(*ret->verdicts));
        rc = ret->verdicts ? 0 : error_set(e, ENOMEM, "a group of %u ranks",
                                           ret->world);
    }
    return rc;
}

void group_release(struct group *g)
{
    free(g->verdicts);
    *g = (struct group){0};
}

int group_gather(const struct group *g, const void *mine, void *all, size_t len,
                 struct error *e)
{
    int rc = len > 0 ? g->allgather(g->arg, mine, all, len) : 0;

    if (rc >= 0) {
        return 0;
    }
    if (g->allgather == gather_workers) {
        return error_text(e, -rc, "rank %u: %s", g->rank,
                          muster_error_text(g->arg));
    }
    return error_set(e, -rc, "rank %u of %u: the others cannot be heard of",
                     g->rank, g->world);
}

/* --- what is made of it --- */

int group_agree(const struct group *g, int rc, struct error *e)
{
    struct verdict mine = {.rc = rc};
    struct verdict *all = g->verdicts;
    struct error ignored;
    int failed;

    e = e ? e : &ignored;
    if (g->world == 1) {
        return rc;
    }
    if (rc < 0) {
        str_copy(mine.text, sizeof(mine.text), e->text);
    }
    failed = group_gather(g, &mine, all, sizeof(mine), e);
    if (failed < 0) {
        return failed;
    }
    for (uint32_t r = 0; r < g->world; r++) {
        if (all[r].rc < 0) {
            all[r].text[sizeof(all[r].text) - 1] = '\0';
            return r == g->rank && str_starts(all[r].text, "rank ")
                       ? all[r].rc
                       : error_text(e, -all[r].rc, "rank %u: %s", r,
                                    all[r].text);
        }
    }
    return 0;
}

int group_gather_any(const struct group *g, const void *mine, size_t len,
                     char **ret_all, size_t **ret_ends, struct error *e)
{
    _free_ uint64_t *lens = calloc(g->world, sizeof(*lens));
    _free_ size_t *ends = calloc(g->world, sizeof(*ends));
    _free_ char *padded = NULL, *all = NULL;
    uint64_t mine_len = len, most = 1;
    int rc;

    if (!lens || !ends) {
        return error_set(e, ENOMEM, "gather");
    }
    rc = group_gather(g, &mine_len, lens, sizeof(*lens), e);
    for (uint32_t r = 0; r < g->world && rc == 0; r++) {
        most = lens[r] > most ? lens[r] : most;
    }
    most += -most % GATHER_UNIT;
    padded = rc == 0 ? calloc(1, most) : NULL;
    all = rc == 0 ? calloc(g->world, most) : NULL;
    if (rc < 0) {
        return rc;
    }
    if (!padded || !all) {
        return error_set(e, ENOMEM, "gather %llu bytes of each rank",
                         (unsigned long long)most);
    }
    memcpy(padded, mine, len);
    rc = group_gather(g, padded, all, most, e);
    if (rc < 0) {
        return rc;
    }
    for (size_t r = 0, at = 0; r < g->world; r++) { /* close the gaps */
        memmove(all + at, all + r * most, lens[r]);
        at += lens[r];
        ends[r] = at;
    }
    *ret_all = take_ptr(&all);
    *ret_ends = take_ptr(&ends);
    return 0;
}
