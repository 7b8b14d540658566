/* SPDX-License-Identifier: Apache-2.0 */
/*
 * JSON as Python's json.dump() writes it. That has words and numbers which JSON has not,
 * and the Trainer's log of a loss, or a gradient, that was none does have them: the
 * checkpoint is whole all the same.
 */
#ifndef MUSTER_CKPT_FOUND_JSON_H
#define MUSTER_CKPT_FOUND_JSON_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>

/* NULL: it is neither. NaN, Infinity and -Infinity come as strings, which no number is,
 * and integers of more than 18 digits as reals. Changes the text. */
json_t *found_json_parse(char *text, size_t len);

/* Whether all of it is one value, without making anything of it: a tokenizer's vocabulary
 * has hundreds of thousands, zero bytes and halves of characters (\u0000, \ud800) among
 * them. A zero byte follows the text. */
bool found_json_is_whole(const char *text, size_t len);

/* Whether it is values, one after another, of which the last one lacks its end: what is
 * something else by any byte of it is not cut. Nor is nothing, or nothing but blanks. */
bool found_json_is_cut(const char *text, size_t len);

#endif
