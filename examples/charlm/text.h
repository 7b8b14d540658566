/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The text to learn from: files, one after the other, as codes 0 .. n - 1 of
 * the characters (bytes) that occur in it.
 */
#ifndef CHARLM_TEXT_H
#define CHARLM_TEXT_H

#include "failure.h"

#include <stddef.h>
#include <stdint.h>

/* The licences that every Debian system has. */
#define TEXT_DEFAULT "/usr/share/common-licenses"

struct text {
    uint8_t *codes;
    size_t length;
    uint32_t n_symbols;
    uint8_t symbols[256]; /* code -> byte, ascending */
    uint64_t digest;      /* of the bytes */
};

/* Reads `paths` in order; of a directory, all regular files in it by name. A
 * file that is reached twice (by a link) is read once. The text must have at
 * least two different characters. text_release() frees it. */
int text_load(char *const *paths, size_t n_paths, struct text *ret,
              struct failure *f);

void text_release(struct text *t);

/* The code of a byte, or -1. */
int text_code(const struct text *t, uint8_t byte);

#endif
