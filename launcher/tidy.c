/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "launcher/tidy.h"

/* Longer than a run is without a word when its lead is lost. */
enum { SILENT_MS = 2 * STATUS_STALE_MS };

enum tidy_step tidy_decide(struct tidy *t, const struct tidy_look *look,
                           uint64_t now_ms)
{
    if (look->is_gone) {
        /* One that never was here is on a disk of another host. */
        return t->was_there ? TIDY_ALL : TIDY_FILES;
    }
    if (!look->is_read) {
        return TIDY_WAIT;
    }
    if (!t->was_there || look->updated_ns != t->updated_ns || look->is_locked) {
        t->was_there = true;
        t->updated_ns = look->updated_ns;
        t->since_ms = now_ms;
    }
    if (!status_run_is_over(look->state)) {
        return now_ms - t->since_ms > SILENT_MS ? TIDY_FILES : TIDY_WAIT;
    }
    if (look->is_locked) {
        return TIDY_WAIT; /* its front end is about to go, or goes on with it */
    }
    return look->state == STATUS_SUCCEEDED || look->state == STATUS_FAILED
               ? TIDY_ALL : TIDY_FILES;
}
