/* SPDX-License-Identifier: Apache-2.0 */
/*
 * ZIP archives as torch.save writes them: entries that are stored, not
 * compressed, one after the other; then a directory of them; with 64-bit sizes
 * where those are needed. Read strictly: what two readers could understand in two
 * ways is refused. Nothing in one is ever run.
 */
#ifndef MUSTER_CKPT_ZIP_H
#define MUSTER_CKPT_ZIP_H

#include "base/error.h"
#include "ckpt/io.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define ZIP_MAX_ENTRIES 4000000
#define ZIP_MAX_DIRECTORY_BYTES (UINT64_C(1) << 30)
#define ZIP_MAX_NAME_BYTES 4096

struct zip_entry {
    char *name; /* owned; without zero bytes */
    uint64_t header_at; /* in the file */
    uint64_t begin, end; /* its bytes */
    uint32_t crc;
    uint16_t flags; /* as both headers say */
};

struct zip {
    size_t n;
    struct zip_entry *entries; /* owned; as they lie in the file */
};

/* The directory of an open file, and each entry's header. 0; -ERR_FORMAT: it is
 * none, cut, or damaged; -ENOMEM; errors of reading. */
int zip_read(struct io *io, int fd, struct zip *ret, struct error *e);
/* The same of one that is bytes [begin, end) of a file; places are those in the file. */
int zip_read_at(struct io *io, int fd, uint64_t begin, uint64_t end, struct zip *ret,
                struct error *e);
void zip_release(struct zip *z);
#define _zip_ __attribute__((cleanup(zip_release)))

/* Whether its directory has that text, as in a name; of any archive, whatever was done to
 * its entries. */
bool zip_mentions(struct io *io, int fd, const char *text);

const struct zip_entry *zip_find(const struct zip *z, const char *name);

/* Reads an entry's bytes against its checksum. -ERR_FORMAT if it differs. `buffer`
 * is for blocks of `size` bytes. */
int zip_verify(struct io *io, int fd, const struct zip_entry *entry,
               void *buffer, size_t size, struct error *e);

#endif
