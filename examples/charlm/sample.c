/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "sample.h"

#include "random.h"
#include "vector.h"

#include <string.h>

/* Below 1: likely characters become likelier. */
static const double temperature = 0.8;

/* The code at which the sum of probabilities passes `point`. */
static uint8_t pick(const real *probability, uint32_t n, double point)
{
    for (uint32_t i = 0; i + 1 < n; i++) {
        point -= (double)probability[i];
        if (point < 0) {
            return (uint8_t)i;
        }
    }
    return (uint8_t)(n - 1);
}

static char printable(uint8_t byte)
{
    if (byte == '\n' || byte == '\t' || (byte >= ' ' && byte <= '~')) {
        return (char)byte;
    }
    return '?';
}

void sample_text(struct pass *p, const struct weights *w,
                 const struct text *text, uint64_t seed, char *to, size_t n)
{
    uint8_t codes[MAX_CONTEXT];
    size_t length = 1;
    int newline = text_code(text, '\n');

    codes[0] = newline < 0 ? 0 : (uint8_t)newline;
    for (size_t i = 0; i < n; i++) {
        double point = random_uniform(seed, RANDOM_SAMPLE, i);
        real *scores;
        uint8_t code;

        model_forward(p, w, codes, 1, length);
        scores = p->scores + (length - 1) * p->shape.vocab;
        vector_scale(scores, (real)(1 / temperature), p->shape.vocab);
        vector_softmax(scores, p->shape.vocab);
        code = pick(scores, p->shape.vocab, point);
        to[i] = printable(text->symbols[code]);
        if (length == p->shape.context) {
            memmove(codes, codes + 1, length - 1);
            length--;
        }
        codes[length++] = code;
    }
    to[n] = '\0';
}
