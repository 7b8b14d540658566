/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Files that are there whole or not at all.
 *
 * A file is written under a temporary name beside its place, flushed to the
 * device and renamed; then the directory is flushed. Its writer holds a lock on
 * it meanwhile, which the kernel drops when the writer dies: so a temporary
 * file without a lock is garbage, whoever's it was.
 */
#ifndef CHARLM_FILE_H
#define CHARLM_FILE_H

#include "failure.h"

#include <stddef.h>
#include <stdint.h>

/* Replaces or makes `path`, mode 0600. When this returns 0 the file survives a
 * power cut; otherwise an old one is as it was. */
int file_write(const char *path, const void *data, size_t len,
               struct failure *f);

/* All of a file of at most `max` bytes. The caller frees *ret. */
int file_read(const char *path, size_t max, uint8_t **ret, size_t *ret_len,
              struct failure *f);

/* Removes the temporary files of writers that are gone. */
int file_sweep(const char *dir, struct failure *f);

/* Removes files beside `newest`, with names that end in `suffix` and sort
 * before it, but for the last keep - 1 of them. */
int file_keep(const char *newest, const char *suffix, size_t keep,
              struct failure *f);

/* Makes a directory and its missing parents, 0700. */
int file_make_directory(const char *path, struct failure *f);

#endif
