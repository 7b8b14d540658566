/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Any bytes as a log of steps: what is read as a record must be written as the same
 * bytes again. And whatever a log says, stepping the core with it ends with a word.
 */
#include <config.h>

#include "rendezvous/replay.h"
#include "rendezvous/steps.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void expect(bool fact)
{
    if (!fact) {
        abort();
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct step *s = malloc(sizeof(*s));
    struct steps_reader r;
    struct replay all = {0};

    expect(s != NULL);
    if (steps_open(data, size, &r, NULL) == 0) {
        size_t at = r.at;

        while (steps_next(&r, s, NULL) == 1) {
            _buf_ struct buf b = {0};

            steps_put_again(&b, s);
            expect(!b.failed && b.len == r.at - at &&
                   !memcmp(b.data, data + at, b.len));
            step_release(s);
            at = r.at;
        }
    }
    free(s);
    if (replay_log(&all, data, size, NULL) == 0) {
        (void)replay_check(&all, NULL);
    }
    replay_release(&all);
    return 0;
}
