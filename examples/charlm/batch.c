/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "batch.h"

#include "random.h"

#include <string.h>

/* Sequences that go through the model together: enough to keep the products
 * efficient, few enough for the cache. */
enum { GROUP = 4 };

struct share batch_share(uint32_t n_sequences, uint32_t rank, uint32_t world)
{
    uint64_t first = (uint64_t)n_sequences * rank / world;
    uint64_t end = (uint64_t)n_sequences * (rank + 1) / world;

    return (struct share){
        .first = (uint32_t)first,
        .count = (uint32_t)(end - first),
    };
}

/* Where sequence `i` begins; it is followed by at least one character. */
static const uint8_t *sequence_of(struct batch b, uint32_t i)
{
    uint64_t number = b.step * b.n_sequences + i;
    uint64_t begins = b.text->length - b.length;

    return b.text->codes + random_u64(b.seed, RANDOM_BATCH, number) % begins;
}

double batch_gradient(struct batch b, struct share share, struct pass *p,
                      const struct weights *w, struct weights *grads)
{
    double scale = 1 / ((double)b.n_sequences * b.length);
    double loss = 0;
    uint8_t codes[GROUP * MAX_CONTEXT];
    uint8_t targets[GROUP * MAX_CONTEXT];
    uint32_t group = p->max_sequences < GROUP ? (uint32_t)p->max_sequences
                                              : GROUP;

    for (uint32_t done = 0; done < share.count; done += group) {
        uint32_t n = share.count - done < group ? share.count - done : group;

        for (uint32_t i = 0; i < n; i++) {
            const uint8_t *from = sequence_of(b, share.first + done + i);

            memcpy(codes + i * b.length, from, b.length);
            memcpy(targets + i * b.length, from + 1, b.length);
        }
        model_forward(p, w, codes, n, b.length);
        loss += model_loss(p, targets, scale);
        model_backward(p, w, grads);
    }
    return loss;
}
