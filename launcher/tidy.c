/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "launcher/tidy.h"

/* Until the lease is over, another lead has been found, and has written. */
enum { LEASES = 4, WRITTEN_MS = 30 * 1000 };

uint64_t tidy_silent_ms(uint64_t lease_ms)
{
    return lease_ms < UINT64_MAX / 8 ? LEASES * lease_ms + WRITTEN_MS : UINT64_MAX;
}

enum tidy_step tidy_decide(struct tidy *t, const struct tidy_look *look,
                           uint64_t now_ms)
{
    bool is_silent;

    if (look->is_gone && !t->was_there) {
        return TIDY_LEAVE; /* it is on a disk of another host */
    }
    if (!t->since_ms || (look->is_read && look->updated_ns != t->updated_ns)) {
        t->updated_ns = look->is_read ? look->updated_ns : 0;
        t->since_ms = now_ms;
    }
    t->was_there = t->was_there || look->is_read;
    is_silent = now_ms - t->since_ms > t->silent_ms;
    if (look->is_gone) {
        return is_silent ? TIDY_TAKE : TIDY_WAIT; /* a mount may come back */
    }
    if (!look->is_read || !status_run_is_over(look->state)) {
        return is_silent ? TIDY_LEAVE : TIDY_WAIT;
    }
    return look->state == STATUS_SUCCEEDED || look->state == STATUS_FAILED
               ? TIDY_TAKE : TIDY_LEAVE;
}
