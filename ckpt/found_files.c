/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "ckpt/found_priv.h"

#include "base/cleanup.h"
#include "ckpt/safetensors.h"
#include "ckpt/torch_file.h"
#include "ckpt/torch_old.h"

#include <errno.h>
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

/* The format has no checksums. */
static int check_safetensors(struct io *io, int fd, struct found_facts *facts,
                             struct error *e)
{
    _st_file_ struct st_file f = {0};

    facts->is_structure_only = true;
    return st_load(io, fd, &f, e);
}

/* What the first bytes make of it. A cut archive still begins as one. */
static bool is_archive(const uint8_t *first, size_t n)
{
    return n >= 4 && memcmp(first, "PK\3\4", 4) == 0;
}

/* Protocol 2 or later: PROTO, and its number. Earlier ones begin as any text may: only
 * those of torch.save are known. */
static bool is_pickle(const uint8_t *first, size_t n)
{
    return (n >= 2 && first[0] == 0x80 && first[1] >= 2 && first[1] <= 5) ||
           (n >= strlen(TORCH_OLD_LINE) &&
            memcmp(first, TORCH_OLD_LINE, strlen(TORCH_OLD_LINE)) == 0);
}

bool found_begins_as_torch(struct io *io, int dir, const char *name)
{
    int fd = io->ops->open_file(io, dir, name);
    uint8_t first[sizeof(TORCH_OLD_LINE)];
    uint64_t bytes = 0;
    bool is = false;
    size_t n;

    if (fd < 0) {
        return false;
    }
    if (io->ops->size(io, fd, &bytes) == 0) {
        n = bytes < sizeof(first) ? bytes : sizeof(first);
        is = io_read_all(io, fd, first, n, 0) == 0 && (is_archive(first, n) || is_pickle(first, n));
    }
    io->ops->close(io, fd);
    return is;
}

static int check_torch(struct io *io, int fd, uint64_t bytes, bool is_deep,
                       struct found_facts *facts, struct error *e)
{
    struct torch_file f = {0};
    uint8_t first[sizeof(TORCH_OLD_LINE)];
    size_t n = bytes < sizeof(first) ? bytes : sizeof(first);
    int rc = io_read_all(io, fd, first, n, 0);

    if (rc < 0) {
        return error_set(e, -rc, "read it");
    }
    if (bytes == 0) {
        return error_text(e, ERR_FORMAT, "it is empty");
    }
    if (is_archive(first, n)) {
        rc = torch_file_check(io, fd, is_deep, &f, e);
        facts->is_structure_only |= f.has_no_checksums || f.lacks_checksums;
        if (rc == -ERR_FORMAT && torch_file_is_program(io, fd)) {
            facts->is_foreign = true;
            return error_text(e, ERR_FORMAT, "it is a program (TorchScript, or of "
                              "torch.export), and no checkpoint");
        }
        if (rc == -ERR_FORMAT && torch_file_is_other(io, fd)) {
            facts->is_foreign = true;
            return error_text(e, ERR_FORMAT, "not a format that muster knows: an "
                              "archive (ZIP), and none of torch.save");
        }
        return rc;
    }
    facts->is_structure_only = true;
    if (is_pickle(first, n)) {
        return torch_old_check(io, fd, bytes, e);
    }
    facts->is_foreign = true;
    return error_text(e, ERR_FORMAT, "not a format that muster knows: neither an "
                      "archive of torch.save nor a pickle");
}

int found_check_file(struct io *io, int dir, const char *name,
                     enum found_kind kind, bool is_deep,
                     struct found_facts *facts, struct error *e)
{
    int fd = io->ops->open_file(io, dir, name);
    uint64_t bytes = 0;
    int rc;

    if (fd == -ENOENT) {
        return error_text(e, ENOENT, "%s is missing", name);
    }
    if (fd < 0) {
        return found_fail_to_open(fd, name, e);
    }
    rc = io->ops->size(io, fd, &bytes);
    if (rc < 0) {
        error_set(e, -rc, "look at it");
    } else if (kind == FOUND_SAFETENSORS) {
        rc = check_safetensors(io, fd, facts, e);
    } else {
        rc = check_torch(io, fd, bytes, is_deep, facts, e);
        facts->is_foreign = facts->is_foreign && !found_is_known_name(name);
    }
    io->ops->close(io, fd);
    facts->bytes += bytes;
    facts->n_files++;
    return rc < 0 ? error_wrap(e, "%s", name) : 0;
}
