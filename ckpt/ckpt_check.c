/* SPDX-License-Identifier: Apache-2.0 */
/*
 * MUSTER_CKPT_CHECK: what this rank has of a save has a digest before, which is held
 * against what is there once it is copied. Who changes it meanwhile saves a mixture of
 * two steps, of which nothing in the file tells. That is so of what other ranks copy,
 * too, which have it alike: who changes it does so on all of them, as a rule.
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

/* Of one piece that this rank has, whoever writes it. */
static int sum_piece(const struct part_piece *p, const struct reg_piece *memory,
                     char *chunk, uint64_t *ret, struct error *e)
{
    _image_ struct image im = {0};
    struct image_piece piece = {
        .tensor = {.name = (char *)p->name, .dtype = p->dtype, .n_dims = p->n_dims,
                   .shape = p->len},
        .name = p->name, .shape = p->shape, .at = p->at,
        .data = memory->data, .strides = memory->strides, .device = memory->device,
    };
    int rc = image_plan(&piece, 1, &(struct image_of){.uuid = ""}, &im, e);

    return rc < 0 ? rc : sum_of(&im, &piece, chunk, ret, e);
}

int ckpt_sum_memory(const struct muster_ckpt *ck, const struct saving *s, uint64_t **ret,
                    struct error *e)
{
    _free_ uint64_t *sums = calloc(s->table.n_pieces + 1, sizeof(*sums));
    _free_ char *chunk = malloc(CHUNK_BYTES);
    int rc = sums && chunk ? 0 : error_set(e, ENOMEM, "check what is saved");

    for (size_t i = 0; i < s->table.n_pieces && rc == 0; i++) {
        rc = sum_piece(&s->table.pieces[i], &ck->registry.pieces[i], chunk, &sums[i], e);
    }
    if (rc == 0) {
        *ret = take_ptr(&sums);
    }
    return rc;
}

int ckpt_note_memory(const struct muster_ckpt *ck, struct saving *s, struct error *e)
{
    return ckpt_sum_memory(ck, s, &s->sums, e);
}

int ckpt_check_memory(const struct muster_ckpt *ck, const struct saving *s,
                      struct error *e)
{
    _free_ uint64_t *sums = NULL;
    int rc = s->sums ? ckpt_sum_memory(ck, s, &sums, e) : 0;

    for (size_t i = 0; sums && i < s->table.n_pieces; i++) {
        if (sums[i] != s->sums[i]) {
            return error_text(e, EINVAL, "rank %u: '%s' was changed while it was "
                              "copied: expected muster_ckpt_fence() before "
                              "(MUSTER_CKPT_CHECK)", s->job.rank, s->table.pieces[i].name);
        }
    }
    return rc;
}
