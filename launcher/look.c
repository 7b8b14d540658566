/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "launcher/look.h"

static bool is_better(const struct look_answer *a, const struct look_answer *b)
{
    return a->is_whole != b->is_whole ? a->is_whole
                                      : a->changed_ns > b->changed_ns;
}

void look_take(struct look *k, const struct look_answer *answer)
{
    k->n_answers++;
    if (!answer->is_known) {
        return;
    }
    k->n_state[answer->state]++;
    if (answer->state == BESIDE_OTHER &&
        (k->n_state[BESIDE_OTHER] == 1 || is_better(answer, &k->best))) {
        k->best = *answer;
    }
}

enum look_verdict look_judge(const struct look *k, bool is_late)
{
    if (k->n_state[BESIDE_ITSELF]) {
        return LOOK_ITSELF;
    }
    if (k->n_answers < k->n_asked && !is_late) {
        return LOOK_WAIT;
    }
    if (k->n_state[BESIDE_OTHER]) {
        return LOOK_OTHER;
    }
    return k->n_asked && k->n_state[BESIDE_NONE] == k->n_asked ? LOOK_NONE
                                                              : LOOK_UNKNOWN;
}
