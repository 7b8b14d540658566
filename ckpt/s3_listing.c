/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "ckpt/s3_answer.h"

#include <stdlib.h>

void s3_listing_release(struct s3_listing *l)
{
    for (size_t i = 0; i < l->n; i++) {
        free(l->objects[i].key);
    }
    free(l->objects);
    strlist_release(&l->prefixes);
    free(l->next);
    *l = (struct s3_listing){0};
}
