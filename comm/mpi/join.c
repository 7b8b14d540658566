/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "comm/mpi/join.h"

#include "base/cleanup.h"
#include "comm/mpi/notice.h"

#include <errno.h>
#include <stdlib.h>

enum { TAG_UB_LEAST = 32767 }; /* what any MPI has */

int join_check(int world_size, int me, const int *members, size_t n,
               int *ret_place, struct error *e)
{
    *ret_place = -1;
    for (size_t i = 0; i < n; i++) {
        if (members[i] < 0 || members[i] >= world_size) {
            return error_text(e, EINVAL, "bulk group: no rank %d", members[i]);
        }
        for (size_t j = 0; j < i; j++) {
            if (members[j] == members[i]) {
                return error_text(e, EINVAL, "bulk group: rank %d twice",
                                  members[i]);
            }
        }
        if (members[i] == me) {
            *ret_place = (int)i;
        }
    }
    if (*ret_place < 0) {
        return error_text(e, EINVAL, "bulk group: without this process");
    }
    return 0;
}

/* The group's number, as far as it goes into an MPI tag. */
static int get_tag(MPI_Comm world, uint32_t number, int *ret_tag)
{
    int *most = NULL;
    int flag = 0;
    int rc = MPI_Comm_get_attr(world, MPI_TAG_UB, &most, &flag);

    *ret_tag = (int)(number % (uint32_t)(flag ? *most : TAG_UB_LEAST));
    return rc;
}

static int make_comms(MPI_Comm world, struct group *g, const int *members,
                      struct error *e)
{
    MPI_Group all, some;
    int tag;
    int rc = get_tag(world, g->tag, &tag);

    if (rc == MPI_SUCCESS) {
        rc = MPI_Comm_group(world, &all);
    }
    if (rc != MPI_SUCCESS) {
        return group_mpi_error(rc, "MPI group", e);
    }
    rc = MPI_Group_incl(all, g->n, members, &some);
    MPI_Group_free(&all);
    if (rc != MPI_SUCCESS) {
        return group_mpi_error(rc, "MPI group", e);
    }
    rc = MPI_Comm_create_group(world, some, tag, &g->data);
    MPI_Group_free(&some);
    if (rc == MPI_SUCCESS) {
        MPI_Comm_set_errhandler(g->data, MPI_ERRORS_RETURN);
        rc = MPI_Comm_dup(g->data, &g->control);
    }
    if (rc != MPI_SUCCESS) {
        return group_mpi_error(rc, "MPI communicator of the group", e);
    }
    MPI_Comm_set_errhandler(g->control, MPI_ERRORS_RETURN);
    return 0;
}

/* All members come to the same answer, because they look at the same. */
static int check_peers(const struct group *g, uint64_t *ret_least,
                       uint64_t *ret_most, struct error *e)
{
    const struct peer *first = &g->peers[0];
    uint64_t rank = 0;

    *ret_least = *ret_most = first->done;
    for (int i = 0; i < g->n; i++) {
        const struct peer *p = &g->peers[i];

        if (p->node != (uint64_t)i || p->n_nodes != (uint64_t)g->n ||
            p->first_rank != rank || p->world != first->world ||
            p->chunk_bytes != first->chunk_bytes ||
            p->generation != first->generation) {
            return error_text(e, EINVAL, "bulk group: node %d has a segment "
                              "of another group than node 0", i);
        }
        rank += p->n_local;
        *ret_least = p->done < *ret_least ? p->done : *ret_least;
        *ret_most = p->done > *ret_most ? p->done : *ret_most;
    }
    if (rank != first->world || *ret_most - *ret_least > SEGMENT_DEPTH) {
        return error_text(e, EINVAL, "bulk group: segments do not fit");
    }
    return 0;
}

static int exchange_peers(struct group *g, struct error *e)
{
    const struct segment_spec *spec = &g->seg->spec;
    struct peer mine = {
        .done = atomic_load(&g->seg->head->done),
        .chunk_bytes = spec->chunk_bytes,
        .n_nodes = spec->n_nodes,
        .node = spec->node,
        .world = spec->world,
        .first_rank = spec->first_rank,
        .n_local = spec->n_local,
        .generation = spec->generation,
    };
    int n = (int)(sizeof(mine) / sizeof(uint64_t));
    int rc = MPI_Allgather(&mine, n, MPI_UINT64_T, g->peers, n, MPI_UINT64_T,
                           g->control);

    return rc == MPI_SUCCESS ? 0 : group_mpi_error(rc, "bulk group", e);
}

/* The first member that has the result of a chunk. */
static int who_has(const struct group *g, uint64_t chunk)
{
    int i = 0;

    while (g->peers[i].done <= chunk) {
        i++;
    }
    return i;
}

/* Members that an earlier world left behind get the results they lack. */
static int level(struct group *g, uint64_t least, uint64_t most,
                 struct error *e)
{
    uint64_t mine = g->peers[g->me].done;
    int n_bytes = (int)g->seg->spec.chunk_bytes;
    _free_ uint8_t *aside = malloc(g->seg->spec.chunk_bytes);

    if (!aside) {
        return error_set(e, ENOMEM, "bulk group");
    }
    for (uint64_t c = least; c < most; c++) {
        int source = who_has(g, c);
        bool mine_is_used = source == g->me || mine <= c;
        int rc = MPI_Bcast(mine_is_used ? segment_global(g->seg, c) : aside,
                           n_bytes, MPI_BYTE, source, g->control);

        if (rc != MPI_SUCCESS) {
            return group_mpi_error(rc, "bulk group", e);
        }
    }
    g->started = g->done = most;
    atomic_store(&g->seg->head->done, most);
    segment_event_signal(&g->seg->head->mover);
    return 0;
}

int join_members(MPI_Comm world, struct group *g, const int *members,
                 struct error *e)
{
    uint64_t least = 0, most = 0;
    int rc = make_comms(world, g, members, e);

    if (rc == 0) {
        rc = exchange_peers(g, e);
    }
    if (rc == 0) {
        rc = check_peers(g, &least, &most, e);
    }
    if (rc == 0) {
        rc = level(g, least, most, e);
    }
    return rc < 0 ? rc : notice_listen(g, e);
}
