/* SPDX-License-Identifier: Apache-2.0 */
/* For tests: a file as Lightning saves it, or others, as small as it can be. */
#ifndef MUSTER_CKPT_LAST_BED_H
#define MUSTER_CKPT_LAST_BED_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

/* A dict of an epoch and of that global_step, and weights. `change` is added to its
 * length; if `is_wrong` a bit of the weights is not what their checksum is of. */
void last_bed_put(int dir, const char *name, uint64_t global_step, off_t change,
                  bool is_wrong);
/* A dict of those words, which blanks are between: "key=12", "key=None", or "key={ ... }",
 * which is a dict in it. */
void last_bed_put_dict(int dir, const char *name, const char *words);

#endif
