/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "history.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>

int history_add(struct history *h, uint32_t generation, uint32_t workers,
                uint64_t step, uint64_t sequences)
{
    struct stretch *last = h->n > 0 ? &h->stretches[h->n - 1] : NULL;
    struct stretch *grown;

    if (last && last->generation == generation && last->workers == workers &&
        last->last + 1 == step) {
        last->last = step;
        last->sequences += sequences;
        return 0;
    }
    grown = realloc(h->stretches, (h->n + 1) * sizeof(*grown));
    if (!grown) {
        return -ENOMEM;
    }
    h->stretches = grown;
    grown[h->n++] = (struct stretch){
        .generation = generation,
        .workers = workers,
        .first = step,
        .last = step,
        .sequences = sequences,
    };
    return 0;
}

void history_release(struct history *h)
{
    free(h->stretches);
    *h = (struct history){0};
}

void history_print(const struct history *h, FILE *to)
{
    for (size_t i = 0; i < h->n; i++) {
        const struct stretch *s = &h->stretches[i];

        fprintf(to, "steps %" PRIu64 " to %" PRIu64 ": generation %" PRIu32
                    ", %" PRIu32 " workers, %" PRIu64 " sequences\n",
                s->first, s->last, s->generation, s->workers, s->sequences);
    }
}
