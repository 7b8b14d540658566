/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "group.h"

#include <errno.h>

static int check(struct muster *m, int rc, const char *what,
                 struct failure *f)
{
    if (rc >= 0) {
        return 0;
    }
    failure_set(f, "worker %d of %d: %s: %s", muster_rank(m), muster_world(m),
                what, muster_error_text(m));
    return rc;
}

int group_sum(struct muster *m, float *values, size_t n, const char *what,
              struct failure *f)
{
    return check(m,
                 muster_allreduce(m, values, values, n, MUSTER_FLOAT32,
                                  MUSTER_SUM),
                 what, f);
}

int group_max(struct muster *m, int32_t *values, size_t n, const char *what,
              struct failure *f)
{
    return check(m,
                 muster_allreduce(m, values, values, n, MUSTER_INT32,
                                  MUSTER_MAX),
                 what, f);
}

int group_copy(struct muster *m, void *data, size_t len, const char *what,
               struct failure *f)
{
    return check(m, muster_broadcast(m, data, len, 0), what, f);
}

int group_agree(struct muster *m, int rc, struct failure *f)
{
    struct {
        int32_t rc;
        struct failure failure;
    } verdict = {.rc = rc};
    int copied;

    if (rc < 0) {
        verdict.failure = *f;
    }
    copied = group_copy(m, &verdict, sizeof(verdict), "share a result", f);
    if (copied < 0) {
        return copied;
    }
    if (verdict.rc < 0) {
        *f = verdict.failure;
    }
    return verdict.rc;
}

int group_check_text(struct muster *m, const struct text *text,
                     struct failure *f)
{
    /* Equal where the largest digest is everybody's, and no other is. */
    int64_t digest[2] = {(int64_t)text->digest, ~(int64_t)text->digest};
    int rc = check(m,
                   muster_allreduce(m, digest, digest, 2, MUSTER_INT64,
                                    MUSTER_MAX),
                   "compare texts", f);

    if (rc < 0) {
        return rc;
    }
    if (digest[0] != ~digest[1]) {
        return failure_set(f, "worker %d of %d: the workers read different "
                              "texts: give --data files that are the same on "
                              "all nodes", muster_rank(m), muster_world(m));
    }
    return 0;
}
