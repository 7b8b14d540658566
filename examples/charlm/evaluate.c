/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "evaluate.h"

#include "checkpoint.h"
#include "model.h"
#include "state.h"
#include "text.h"

#include <errno.h>

/* Sequences that overlap, so that few characters are seen at the begin of one only. */
static double mean_loss(const struct text *text, const struct state *s,
                        struct pass *p)
{
    size_t length = s->shape.context, step = (length + 3) / 4;
    struct weights w = weights_map(s->shape, s->values);
    double sum = 0;
    size_t n = 0;

    for (size_t at = 0; at + length < text->length; at += step, n++) {
        model_forward(p, &w, text->codes + at, 1, length);
        sum += model_loss(p, text->codes + at + 1, 1.0 / (double)length);
    }
    return sum / (double)n;
}

static int evaluate_text(const struct options *o, const struct text *text,
                         struct state *s, double *ret_loss, struct failure *f)
{
    struct pass *p;
    int rc = checkpoint_load(o->evaluate, s, f);

    if (rc < 0) {
        return rc;
    }
    p = pass_create(s->shape, 1);
    if (!p) {
        return failure_errno(f, ENOMEM, "a model of %zu weights", s->n_weights);
    }
    *ret_loss = mean_loss(text, s, p);
    pass_destroy(p);
    return 0;
}

int evaluate(const struct options *o, double *ret_loss, struct failure *f)
{
    struct shape shape = {.context = o->context, .width = o->width,
                          .heads = o->heads, .layers = o->layers};
    struct text text = {0};
    struct state s = {0};
    int rc = text_load(o->data, o->n_data, &text, f);

    if (rc == 0 && text.length <= o->context) {
        rc = failure_set(f, "the text has %zu characters: expected more than "
                            "--context %u", text.length, o->context);
    }
    if (rc == 0) {
        shape.vocab = text.n_symbols;
        rc = state_create(&s, shape, &text, o->seed, o->batch, f);
    }
    if (rc == 0) {
        rc = evaluate_text(o, &text, &s, ret_loss, f);
        state_release(&s);
    }
    text_release(&text);
    return rc;
}
