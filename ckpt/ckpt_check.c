/* SPDX-License-Identifier: Apache-2.0 */
/*
 * MUSTER_CKPT_CHECK: what this rank copies of a save has a digest before, which is held
 * against what is there once it is copied. Who changes it meanwhile saves a mixture of
 * two steps, of which nothing in the file tells.
 */
#include <config.h>

#include "ckpt/save_priv.h"

#include "base/cleanup.h"
#include "ckpt/digest.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

enum { CHUNK_BYTES = 1 << 20 };

bool ckpt_check_is_on(void)
{
    const char *v = getenv("MUSTER_CKPT_CHECK");

    return v && v[0] && strcmp(v, "0") != 0;
}

/* Of what is there, however it lies. */
static int sum_of(const struct image *im, const struct image_piece *p, char *chunk,
                  uint64_t *ret, struct error *e)
{
    uint64_t sums[2] = {0};
    int rc = 0;

    for (uint64_t at = p->tensor.begin; at < p->tensor.end && rc == 0; at += CHUNK_BYTES) {
        uint64_t left = p->tensor.end - at;
        size_t n = left < CHUNK_BYTES ? left : CHUNK_BYTES;

        rc = image_read(im, at, n, chunk, e);
        if (rc == 0) {
            sums[1] = digest_short_of(chunk, n);
            sums[0] = digest_short_of(sums, sizeof(sums));
        }
    }
    *ret = sums[0];
    return rc;
}

int image_sum(const struct image *im, const struct image_piece *p, uint64_t *ret,
              struct error *e)
{
    _free_ char *chunk = malloc(CHUNK_BYTES);

    return chunk ? sum_of(im, p, chunk, ret, e)
                 : error_set(e, ENOMEM, "check what is saved");
}

int saving_note_memory(struct saving *s, struct error *e)
{
    const struct image *im = &s->image;
    _free_ char *chunk = malloc(CHUNK_BYTES);
    int rc = 0;

    s->sums = calloc(im->n + 1, sizeof(*s->sums));
    if (!chunk || !s->sums) {
        return error_set(e, ENOMEM, "check what is saved");
    }
    for (size_t i = 0; i < im->n && rc == 0; i++) {
        rc = sum_of(im, &im->pieces[i], chunk, &s->sums[i], e);
    }
    return rc;
}

int saving_check_memory(const struct saving *s, struct error *e)
{
    const struct image *im = &s->image;
    _free_ char *chunk = s->sums ? malloc(CHUNK_BYTES) : NULL;

    if (!s->sums) {
        return 0;
    }
    if (!chunk) {
        return error_set(e, ENOMEM, "check what is saved");
    }
    for (size_t i = 0; i < im->n; i++) {
        uint64_t sum;
        int rc = sum_of(im, &im->pieces[i], chunk, &sum, e);

        if (rc < 0) {
            return rc;
        }
        if (sum != s->sums[i]) {
            return error_text(e, EINVAL, "rank %u: '%s' was changed while it was "
                              "copied: expected muster_ckpt_fence() before "
                              "(MUSTER_CKPT_CHECK)", s->job.rank, im->pieces[i].name);
        }
    }
    return 0;
}
