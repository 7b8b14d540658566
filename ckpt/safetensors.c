/* SPDX-License-Identifier: Apache-2.0 */
/* What reading and writing share. */
#include <config.h>

#include "ckpt/safetensors.h"

#include <stdlib.h>
#include <string.h>

void st_release(struct st_file *f)
{
    for (size_t i = 0; i < f->n_tensors; i++) {
        free(f->tensors[i].name);
    }
    for (size_t i = 0; i < f->n_meta; i++) {
        free(f->meta[i].key);
        free(f->meta[i].value);
    }
    free(f->tensors);
    free(f->dims);
    free(f->meta);
    *f = (struct st_file){0};
}

const char *st_meta(const struct st_file *f, const char *key)
{
    for (size_t i = 0; i < f->n_meta; i++) {
        if (strcmp(f->meta[i].key, key) == 0) {
            return f->meta[i].value;
        }
    }
    return NULL;
}

uint64_t st_file_bytes(const struct st_file *f)
{
    uint64_t end = f->n_tensors ? st_tensor_at(f, f->n_tensors - 1)->end : 0;

    return f->data_at + end;
}
