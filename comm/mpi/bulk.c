/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The groups that this process is a member of, and their life: joined, stepped
 * through their work in turn (comm/mpi/group.h names its parts), left; and the
 * memory of those left in the middle, which MPI may still write to.
 */
#include <config.h>

#include "comm/mpi/bulk.h"

#include "base/cleanup.h"
#include "base/clock.h"
#include "comm/mpi/group.h"
#include "comm/mpi/join.h"
#include "comm/mpi/notice.h"
#include "comm/mpi/transfer.h"
#include "comm/segment.h"

#include <errno.h>
#include <sched.h>
#include <stdbool.h>
#include <stdlib.h>
#include <sys/uio.h>

enum {
    BUSY_NS = 200000, /* polled all the time for so long without a result */
    WAIT_MIN_US = 50,
    WAIT_MAX_US = 1000,
};

/* For what was in flight in a group that was left: to come to the chunk where
 * the group ends, the others need this node's part in all before it. Members that
 * have not taken theirs by then are dead. */
static const uint64_t drain_ns = UINT64_C(10000000000);

struct bulk {
    MPI_Comm world;
    int me;
    int world_size;
    MPI_Op sum_bytes;
    struct group *groups;
    struct group *abandoned;
    bool is_new; /* a group may hold posts whose event is long past */
    uint64_t progress_ns; /* when something last happened */
};

int bulk_create(MPI_Comm world, struct bulk **ret, struct error *e)
{
    _free_ struct bulk *b = calloc(1, sizeof(*b));
    int rc;

    if (!b) {
        return error_set(e, ENOMEM, "bulk");
    }
    b->world = world;
    rc = MPI_Comm_rank(world, &b->me);
    if (rc == MPI_SUCCESS) {
        rc = MPI_Comm_size(world, &b->world_size);
    }
    if (rc == MPI_SUCCESS) {
        rc = transfer_make_sum(&b->sum_bytes);
    }
    if (rc != MPI_SUCCESS) {
        return group_mpi_error(rc, "MPI world", e);
    }
    *ret = take_ptr(&b);
    return 0;
}

void bulk_destroy(struct bulk *b)
{
    if (!b) {
        return;
    }
    while (b->groups) {
        bulk_detach(b, b->groups->tag);
    }
    /* What is abandoned by now stays: MPI may still write to it. */
    if (!b->abandoned) {
        MPI_Op_free(&b->sum_bytes);
    }
    free(b);
}

static struct group **find(struct bulk *b, uint32_t tag)
{
    struct group **at = &b->groups;

    while (*at && (*at)->tag != tag) {
        at = &(*at)->next;
    }
    return at;
}

int bulk_attach(struct bulk *b, uint32_t tag, const int *members,
                size_t n_members, int segment_fd, int event_fd,
                struct error *e)
{
    _cleanup_(group) struct group *g = NULL;
    size_t n_groups = 0;
    int rc;

    for (struct group *i = b->groups; i; i = i->next) {
        n_groups++;
    }
    if (*find(b, tag) || n_groups >= BULK_GROUPS_MAX || n_members > INT32_MAX) {
        return error_text(e, EINVAL, "bulk group %u: is there already, or too "
                          "many", tag);
    }
    rc = group_create(tag, n_members, &g, e);
    if (rc == 0) {
        g->sum_bytes = b->sum_bytes;
        rc = join_check(b->world_size, b->me, members, n_members, &g->me, e);
    }
    if (rc == 0) {
        rc = segment_map(segment_fd, event_fd, &g->seg, e);
    }
    if (rc == 0 && n_members > 1) {
        rc = join_members(b->world, g, members, e);
    }
    if (rc < 0) {
        return rc; /* a communicator that came to be stays: others may be
                      in the middle of its making */
    }
    b->progress_ns = clock_mono_ns();
    b->is_new = true;
    g->next = b->groups;
    b->groups = take_ptr(&g);
    return 0;
}

/* Its communicators stay. Freeing is a collective call by the standard, and what a
 * member said last (notice_push()) may come when another one has freed them: Open MPI
 * gives their number to those of the next group, where messages are then mixed up (seen
 * with 5.0: receives of the next group never ended). */
void bulk_detach(struct bulk *b, uint32_t tag)
{
    struct group **at = find(b, tag);
    struct group *g = *at;

    if (!g) {
        return;
    }
    *at = g->next;
    if (g->n > 1 && !g->failed) {
        transfer_start(g); /* what the notice takes as given */
        notice_push(g);    /* the last chance to */
    }
    if (g->hear != MPI_REQUEST_NULL) {
        MPI_Cancel(&g->hear);
    }
    if (group_is_quiet(g)) {
        group_destroy(g);
        return;
    }
    g->next = b->abandoned;
    g->left_ns = clock_mono_ns();
    b->abandoned = g;
}

size_t bulk_abandoned_bytes(const struct bulk *b)
{
    size_t sum = 0;

    for (const struct group *g = b->abandoned; g; g = g->next) {
        sum += g->seg->size;
    }
    return sum;
}

static void reap_abandoned(struct bulk *b)
{
    struct group **at = &b->abandoned;

    while (*at) {
        struct group *g = *at;

        if (group_is_quiet(g)) {
            *at = g->next;
            group_destroy(g);
        } else {
            at = &g->next;
        }
    }
}

/* A worker may have made the descriptor, which it shares, a blocking one. */
static void drain(int event_fd)
{
    uint64_t count;
    struct iovec iov = {&count, sizeof(count)};
    ssize_t n = preadv2(event_fd, &iov, 1, -1, RWF_NOWAIT);

    (void)n;
}

static bool is_active(const struct group *g)
{
    return transfer_is_active(g) || notice_is_on_way(g);
}

/* The agent or a worker may have aborted. Where calls differ, others know
 * nothing of it; of a death they learn elsewhere, and MPI is not asked to send
 * in such times. */
static void see_abort(struct group *g)
{
    enum segment_abort_code code = segment_aborted(g->seg, NULL);

    if (g->failed || code == SEGMENT_OK) {
        return;
    }
    g->failed = true;
    g->must_tell = code == SEGMENT_ABORT_MISMATCH;
}

int bulk_step(struct bulk *b)
{
    int n = 0;

    b->is_new = false;
    for (struct group *g = b->groups; g; g = g->next) {
        if (g->n < 2) {
            continue;
        }
        drain(g->seg->event_fd);
        see_abort(g);
        n += transfer_start(g);
        n += transfer_complete(g);
        notice_push(g);
        if (is_active(g)) {
            notice_hear(g);
        }
    }
    reap_abandoned(b);
    if (n > 0) {
        b->progress_ns = clock_mono_ns();
    } else {
        sched_yield(); /* workers may share this core */
    }
    return n;
}

size_t bulk_poll_fds(const struct bulk *b, struct pollfd *fds, size_t max)
{
    size_t n = 0;

    for (const struct group *g = b->groups; g && n < max; g = g->next) {
        fds[n++] = (struct pollfd){.fd = g->seg->event_fd, .events = POLLIN};
    }
    return n;
}

int64_t bulk_wait_us(const struct bulk *b)
{
    bool active = false;
    uint64_t idle_ns;
    int64_t wait_us;

    if (b->is_new) {
        return 0;
    }
    for (const struct group *g = b->groups; g; g = g->next) {
        active = active || is_active(g);
    }
    for (const struct group *g = b->abandoned; g; g = g->next) {
        active = active || (group_has_in_flight(g) &&
                            clock_mono_ns() - g->left_ns < drain_ns);
    }
    if (!active) {
        return -1;
    }
    idle_ns = clock_mono_ns() - b->progress_ns;
    if (idle_ns < BUSY_NS) {
        return 0;
    }
    wait_us = (int64_t)(idle_ns / 16000);
    return wait_us < WAIT_MIN_US   ? WAIT_MIN_US
           : wait_us > WAIT_MAX_US ? WAIT_MAX_US
                                   : wait_us;
}
