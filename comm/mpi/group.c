/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "comm/mpi/group.h"

#include <errno.h>
#include <stdlib.h>

static void init_requests(struct group *g)
{
    for (size_t i = 0; i < ARRAY_SIZE(g->transfers); i++) {
        g->transfers[i].check = MPI_REQUEST_NULL;
        g->transfers[i].data = MPI_REQUEST_NULL;
    }
    for (int i = 0; i < g->n; i++) {
        g->say[i] = MPI_REQUEST_NULL;
    }
    g->hear = MPI_REQUEST_NULL;
    g->details = MPI_REQUEST_NULL;
    g->data = MPI_COMM_NULL;
    g->control = MPI_COMM_NULL;
}

int group_create(uint32_t tag, size_t n, struct group **ret, struct error *e)
{
    _cleanup_(group) struct group *g = calloc(1, sizeof(*g));

    if (!g) {
        return error_set(e, ENOMEM, "bulk group");
    }
    g->tag = tag;
    g->n = (int)n;
    g->peers = calloc(n, sizeof(*g->peers));
    g->calls = calloc(n, sizeof(*g->calls));
    g->say = calloc(n, sizeof(MPI_Request));
    if (!g->peers || !g->calls || !g->say) {
        return error_set(e, ENOMEM, "bulk group");
    }
    init_requests(g);
    *ret = take_ptr(&g);
    return 0;
}

void group_destroy(struct group *g)
{
    if (!g) {
        return;
    }
    segment_destroy(g->seg);
    free(g->peers);
    free(g->calls);
    free(g->say);
    free(g);
}

int group_mpi_error(int mpi_code, const char *what, struct error *e)
{
    char text[MPI_MAX_ERROR_STRING] = "?";
    int len;

    MPI_Error_string(mpi_code, text, &len);
    return error_text(e, EIO, "%s: %s", what, text);
}

void group_end(struct group *g, enum segment_abort_code code, const char *why)
{
    g->failed = true;
    segment_abort(g->seg, code, why);
}

void group_fail(struct group *g, enum segment_abort_code code, const char *why)
{
    group_end(g, code, why);
    g->must_tell = true;
}

void group_fail_mpi(struct group *g, int mpi_code, const char *what)
{
    struct error e;

    group_mpi_error(mpi_code, what, &e);
    group_fail(g, SEGMENT_ABORT_BULK, e.text);
}

bool group_request_is_done(struct group *g, MPI_Request *r)
{
    int done = 1;
    int rc;

    if (*r == MPI_REQUEST_NULL) {
        return true;
    }
    rc = MPI_Test(r, &done, MPI_STATUS_IGNORE);
    if (rc != MPI_SUCCESS) {
        *r = MPI_REQUEST_NULL;
        group_fail_mpi(g, rc, "a collective between nodes");
        return true;
    }
    return done;
}

bool group_has_in_flight(const struct group *g)
{
    bool any = g->details != MPI_REQUEST_NULL;

    for (size_t i = 0; i < ARRAY_SIZE(g->transfers); i++) {
        any = any || g->transfers[i].check != MPI_REQUEST_NULL ||
              g->transfers[i].data != MPI_REQUEST_NULL;
    }
    for (int i = 0; i < g->n; i++) {
        any = any || g->say[i] != MPI_REQUEST_NULL;
    }
    return any;
}

bool group_is_quiet(struct group *g)
{
    bool quiet = group_request_is_done(g, &g->details);

    for (size_t i = 0; i < ARRAY_SIZE(g->transfers); i++) {
        quiet = group_request_is_done(g, &g->transfers[i].check) && quiet;
        quiet = group_request_is_done(g, &g->transfers[i].data) && quiet;
    }
    for (int i = 0; i < g->n; i++) {
        quiet = group_request_is_done(g, &g->say[i]) && quiet;
    }
    return group_request_is_done(g, &g->hear) && quiet;
}
