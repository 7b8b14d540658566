/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "comm/mpi/notice.h"

#include <stdio.h>

enum { NOTICE_TAG = 1 };

int notice_listen(struct group *g, struct error *e)
{
    int rc = MPI_Irecv(&g->heard, (int)sizeof(g->heard), MPI_BYTE,
                       MPI_ANY_SOURCE, NOTICE_TAG, g->control, &g->hear);

    return rc == MPI_SUCCESS ? 0 : group_mpi_error(rc, "bulk group", e);
}

/* Tells all members what is in g->said, which must stay as it is from now on. */
static void tell(struct group *g)
{
    g->has_told = true;
    for (int i = 0; i < g->n; i++) {
        if (i != g->me) {
            MPI_Isend(&g->said, (int)sizeof(g->said), MPI_BYTE, i, NOTICE_TAG,
                      g->control, &g->say[i]);
        }
    }
}

void notice_tell_abort(struct group *g)
{
    if (g->has_told) {
        return;
    }
    g->said.chunk = 0;
    g->said.code = segment_aborted(g->seg, g->said.why);
    tell(g);
}

void notice_tell_left(struct group *g)
{
    const struct segment_spec *spec = &g->seg->spec;
    bool any = false;

    for (uint32_t i = 0; i < spec->n_local && !g->has_told; i++) {
        struct segment_worker *w = &g->seg->head->workers[i];
        uint64_t chunk = atomic_load(&w->through[SEGMENT_RED]);

        if (atomic_load(&w->left) && (!any || chunk < g->said.chunk)) {
            any = true;
            g->said.code = SEGMENT_ABORT_LOST;
            g->said.chunk = chunk;
            snprintf(g->said.why, sizeof(g->said.why),
                     "worker %u has ended, and others wait for it in a "
                     "collective", spec->first_rank + i);
        }
    }
    if (any) {
        tell(g);
    }
}

bool notice_is_on_way(const struct group *g)
{
    bool telling = false;

    for (int i = 0; g->has_told && i < g->n; i++) {
        telling = telling || g->say[i] != MPI_REQUEST_NULL;
    }
    return telling;
}

void notice_push(struct group *g)
{
    for (int i = 0; g->has_told && i < g->n; i++) {
        group_request_is_done(g, &g->say[i]);
    }
}

/* Takes a notice that has come, and listens for another one. */
static void take_notice(struct group *g)
{
    struct error e;

    if (g->hear == MPI_REQUEST_NULL || !group_request_is_done(g, &g->hear) ||
        g->failed) {
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
    if (g->failed || !g->has_heard || g->done < n->chunk) {
        return;
    }
    group_fail(g,
               n->code == SEGMENT_ABORT_MISMATCH ? SEGMENT_ABORT_MISMATCH
               : n->code == SEGMENT_ABORT_LOST   ? SEGMENT_ABORT_LOST
                                                 : SEGMENT_ABORT_BULK,
               n->why);
}
