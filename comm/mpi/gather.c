/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "comm/mpi/gather.h"

#include "base/cleanup.h"
#include "comm/companion.h"

#include <errno.h>
#include <mpi.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static int world_size(void)
{
    int n = 1;

    MPI_Comm_size(MPI_COMM_WORLD, &n);
    return n;
}

static int add_entry(const struct buf *info, struct roster *to,
                     struct companion_place *ret_place, struct error *e)
{
    struct roster_entry entry;
    const void *data;
    size_t len;
    int rc;

    if (companion_info_decode(info, ret_place, &data, &len) < 0) {
        return error_text(e, ERR_FORMAT, "an agent's answer does not parse");
    }
    rc = roster_entry_decode(data, len, &entry, e);
    return rc < 0 ? rc : roster_add(to, &entry);
}

static int add_entries(char *data, const int *lens, const int *offsets, int n,
                       struct roster *ret, uint32_t *ret_n_known,
                       struct error *e)
{
    _free_ uint32_t *ranks = calloc((size_t)n, sizeof(*ranks));
    uint32_t n_known = 0;

    if (!ranks) {
        return error_set(e, ENOMEM, "gather %d nodes", n);
    }
    for (int i = 0; i < n; i++) {
        struct buf info = {.data = data + offsets[i],
                           .len = (size_t)lens[i]};
        struct companion_place place;

        if (add_entry(&info, ret, &place, e) < 0) {
            return error_wrap(e, "MPI rank %d", i);
        }
        ranks[i] = place.rank;
        n_known = place.n_known > n_known ? place.n_known : n_known;
    }
    *ret_n_known = n_known;
    if (n_known) {
        return roster_arrange(ret, ranks, n_known, e);
    }
    return roster_sort(ret) < 0 ? error_set(e, ENOMEM, "sort %d nodes", n) : 0;
}

int gather_alone(const struct buf *mine, struct roster *ret,
                 uint32_t *ret_n_known, struct error *e)
{
    int len = (int)mine->len, offset = 0;

    return add_entries(mine->data, &len, &offset, 1, ret, ret_n_known, e);
}

int gather_roster(const struct buf *mine, struct roster *ret,
                  uint32_t *ret_n_known, struct error *e)
{
    int n = world_size(), my_len = (int)mine->len, total = 0;
    _free_ int *lens = calloc((size_t)n, sizeof(*lens));
    _free_ int *offsets = calloc((size_t)n, sizeof(*offsets));
    _free_ char *all = NULL;

    if (!lens || !offsets) {
        return error_set(e, ENOMEM, "gather %d nodes", n);
    }
    if (MPI_Allgather(&my_len, 1, MPI_INT, lens, 1, MPI_INT,
                      MPI_COMM_WORLD) != MPI_SUCCESS) {
        return error_text(e, EIO, "MPI_Allgather failed");
    }
    for (int i = 0; i < n; i++) {
        offsets[i] = total;
        total += lens[i];
    }
    all = malloc((size_t)total);
    if (!all) {
        return error_set(e, ENOMEM, "gather %d nodes", n);
    }
    if (MPI_Allgatherv(mine->data, my_len, MPI_BYTE, all, lens, offsets,
                       MPI_BYTE, MPI_COMM_WORLD) != MPI_SUCCESS) {
        return error_text(e, EIO, "MPI_Allgatherv failed");
    }
    return add_entries(all, lens, offsets, n, ret, ret_n_known, e);
}

int gather_from_first(struct buf *b, size_t max, struct error *e)
{
    int len = (int)b->len;
    char *to;

    if (MPI_Bcast(&len, 1, MPI_INT, 0, MPI_COMM_WORLD) != MPI_SUCCESS ||
        len < 0 || (size_t)len > max) {
        return error_text(e, EIO, "MPI_Bcast failed");
    }
    to = b->len ? b->data : buf_reserve(b, (size_t)len);
    if (!to) {
        return error_set(e, ENOMEM, "receive %d bytes", len);
    }
    if (MPI_Bcast(to, len, MPI_BYTE, 0, MPI_COMM_WORLD) != MPI_SUCCESS) {
        return error_text(e, EIO, "MPI_Bcast failed");
    }
    b->len = (size_t)len;
    return 0;
}

/* "Open MPI v4.1.4", without who packed it. */
static void read_version(char to[MPI_MAX_LIBRARY_VERSION_STRING])
{
    int len = 0;

    if (MPI_Get_library_version(to, &len) != MPI_SUCCESS) {
        len = 0;
    }
    to[len] = '\0';
    to[strcspn(to, ",\n")] = '\0';
}

int gather_same_mpi(struct error *e)
{
    char mine[MPI_MAX_LIBRARY_VERSION_STRING];
    char first[MPI_MAX_LIBRARY_VERSION_STRING];
    char host[256] = "";

    read_version(mine);
    memcpy(first, mine, sizeof(first));
    if (MPI_Bcast(first, sizeof(first), MPI_CHAR, 0, MPI_COMM_WORLD) !=
        MPI_SUCCESS) {
        return error_text(e, EIO, "MPI_Bcast failed");
    }
    if (strcmp(mine, first) == 0) {
        return 0;
    }
    gethostname(host, sizeof(host) - 1);
    return error_text(e, ERR_VERSION, "%s has %.60s, the host of MPI rank 0 "
                      "has %.60s: all hosts need the same", host, mine, first);
}

int gather_agree(int rc, struct error *e)
{
    int rank = 0, first = 0, mine;

    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    mine = rc == 0 ? world_size() : rank;
    if (MPI_Allreduce(&mine, &first, 1, MPI_INT, MPI_MIN, MPI_COMM_WORLD) !=
        MPI_SUCCESS) {
        return rc < 0 ? rc : error_text(e, EIO, "MPI_Allreduce failed");
    }
    if (rc < 0 || first == world_size()) {
        return rc;
    }
    return error_text(e, ERR_LOST, "MPI rank %d cannot join", first);
}
