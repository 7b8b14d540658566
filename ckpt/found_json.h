/* SPDX-License-Identifier: Apache-2.0 */
/*
 * JSON as Python's json.dump() writes it. That has words and numbers which JSON has not,
 * and the Trainer's log of a loss, or a gradient, that was none does have them: the
 * checkpoint is whole all the same.
 */
#ifndef MUSTER_CKPT_FOUND_JSON_H
#define MUSTER_CKPT_FOUND_JSON_H

#include <jansson.h>
#include <stddef.h>

/* NULL: it is neither. NaN, Infinity and -Infinity come as strings, which no number is,
 * and integers of more than 18 digits as reals. Changes the text. */
json_t *found_json_parse(char *text, size_t len);

#endif
