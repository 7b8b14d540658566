/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "comm/mpi/notice.h"

enum { NOTICE_TAG = 1 };

int notice_listen(struct group *g, struct error *e)
{
    int rc = MPI_Irecv(&g->heard, (int)sizeof(g->heard), MPI_BYTE,
                       MPI_ANY_SOURCE, NOTICE_TAG, g->control, &g->hear);

    return rc == MPI_SUCCESS ? 0 : group_mpi_error(rc, "bulk group", e);
}

bool notice_is_on_way(const struct group *g)
{
    bool telling = false;

    for (int i = 0; g->has_told && i < g->n; i++) {
        telling = telling || g->say[i] != MPI_REQUEST_NULL;
    }
    return telling;
}

/* Tells all members what is in g->said, which must stay as it is from now on. */
static void tell(struct group *g)
{
    g->has_told = true;
    for (int i = 0; i < g->n; i++) {
        if (i != g->me &&
            MPI_Isend(&g->said, (int)sizeof(g->said), MPI_BYTE, i, NOTICE_TAG,
                      g->control, &g->say[i]) != MPI_SUCCESS) {
            g->say[i] = MPI_REQUEST_NULL;
        }
    }
}

/* The first chunk without a worker that has ended. False: all are there. */
static bool find_left(const struct group *g, struct notice *ret)
{
    const struct segment_spec *spec = &g->seg->spec;
    bool any = false;

    for (uint32_t i = 0; i < spec->n_local; i++) {
        struct segment_worker *w = &g->seg->head->workers[i];
        bool has_left = atomic_load(&w->left); /* the last it did: read first */
        uint64_t chunk = atomic_load(&w->through[SEGMENT_RED]);

        if (has_left && (!any || chunk < ret->chunk)) {
            any = true;
            ret->code = SEGMENT_ABORT_LOST;
            ret->chunk = chunk;
            segment_say_left(g->seg, i, ret->why);
        }
    }
    return any;
}

/* What there is to tell by now. Workers whose calls differ end soon after: what
 * the next step sees of that is to be told then, and not their end. */
static bool find_notice(const struct group *g, struct notice *ret)
{
    if (!g->must_tell) {
        return find_left(g, ret) &&
               segment_aborted(g->seg, NULL) != SEGMENT_ABORT_MISMATCH;
    }
    ret->code = segment_aborted(g->seg, ret->why);
    return true;
}

void notice_push(struct group *g)
{
    struct notice n = {0};

    for (int i = 0; g->has_told && i < g->n; i++) {
        group_request_is_done(g, &g->say[i]);
    }
    if (!notice_is_on_way(g) && find_notice(g, &n) &&
        (!g->has_told || n.chunk < g->said.chunk)) {
        g->said = n;
        tell(g);
    }
}

/* Takes a notice that has come, and listens for another one. */
static void take_notice(struct group *g)
{
    struct error e;

    if (g->hear == MPI_REQUEST_NULL || !group_request_is_done(g, &g->hear) ||
        segment_aborted(g->seg, NULL) != SEGMENT_OK) {
        return;
    }
    if (!g->has_heard || g->heard.chunk < g->first.chunk) {
        g->first = g->heard;
        g->first.why[SEGMENT_WHY_SIZE - 1] = '\0';
    }
    g->has_heard = true;
    if (notice_listen(g, &e) < 0) {
        group_fail(g, SEGMENT_ABORT_BULK, e.text);
    }
}

void notice_hear(struct group *g)
{
    const struct notice *n = &g->first;

    take_notice(g);
    if (segment_aborted(g->seg, NULL) != SEGMENT_OK || !g->has_heard ||
        (!g->failed && g->done < n->chunk)) {
        return;
    }
    group_end(g,
              n->code == SEGMENT_ABORT_MISMATCH ? SEGMENT_ABORT_MISMATCH
              : n->code == SEGMENT_ABORT_LOST   ? SEGMENT_ABORT_LOST
                                                : SEGMENT_ABORT_BULK,
              n->why);
}
