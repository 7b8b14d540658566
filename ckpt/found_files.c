/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "ckpt/found_priv.h"

#include "base/cleanup.h"
#include "ckpt/safetensors.h"
#include "ckpt/torch_file.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

bool found_is_safetensors_name(const char *name)
{
    return str_ends(name, ".safetensors");
}

bool found_is_torch_name(const char *name)
{
    return str_ends(name, ".pt") || str_ends(name, ".pth") ||
           str_ends(name, ".bin") || str_ends(name, ".ckpt");
}

static int check_safetensors(struct io *io, int fd, struct error *e)
{
    _st_file_ struct st_file f = {0};

    return st_load(io, fd, &f, e);
}

/* Before 1.6, and by choice since, torch.save wrote pickles one after the other:
 * where they end is known to nobody who does not run them. */
static bool is_archive(struct io *io, int fd)
{
    char magic[2];

    return io_read_all(io, fd, magic, sizeof(magic), 0) == 0 &&
           memcmp(magic, "PK", sizeof(magic)) == 0;
}

static int check_torch(struct io *io, int fd, uint64_t bytes, bool is_deep,
                       struct found_facts *facts, struct error *e)
{
    struct torch_file f = {0};
    uint8_t first = 0;
    int rc;

    if (bytes == 0) {
        return error_text(e, ERR_FORMAT, "it is empty");
    }
    if (is_archive(io, fd)) {
        rc = torch_file_check(io, fd, is_deep, &f, e);
        facts->is_structure_only |= f.has_no_checksums;
        return rc;
    }
    rc = io_read_all(io, fd, &first, 1, 0);
    if (rc < 0) {
        return error_set(e, -rc, "read it");
    }
    facts->is_structure_only = true;
    return first == 0x80 ? 0 : error_text(e, ERR_FORMAT, "it is no file of "
                                          "torch.save: neither an archive nor a "
                                          "pickle");
}

int found_check_file(struct io *io, int dir, const char *name, bool is_deep,
                     struct found_facts *facts, struct error *e)
{
    int fd = io->ops->open_file(io, dir, name);
    uint64_t bytes = 0;
    int rc;

    if (fd == -ENOENT) {
        return error_text(e, ENOENT, "%s is missing", name);
    }
    if (fd < 0) {
        return error_set(e, -fd, "open %s", name);
    }
    rc = io->ops->size(io, fd, &bytes);
    if (rc < 0) {
        error_set(e, -rc, "look at it");
    } else if (found_is_safetensors_name(name)) {
        facts->is_structure_only = true; /* the format has no checksums */
        rc = check_safetensors(io, fd, e);
    } else if (found_is_torch_name(name)) {
        rc = check_torch(io, fd, bytes, is_deep, facts, e);
    }
    io->ops->close(io, fd);
    facts->bytes += bytes;
    facts->n_files++;
    return rc < 0 ? error_wrap(e, "%s", name) : 0;
}
