/* SPDX-License-Identifier: Apache-2.0 */
/*
 * torch.distributed.checkpoint: each rank writes __<rank>_<n>.distcp, and one of
 * them at last .metadata, a pickle which says what lies where. What it says is not
 * read, for that would be to run it: so lengths of .distcp files are not verified.
 */
#include <config.h>

#include "ckpt/found_priv.h"

#include "base/cleanup.h"
#include "ckpt/pickle.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_METADATA_BYTES = 1 << 30 };

static int check_metadata(struct io *io, int dir, struct found_facts *facts,
                          struct error *e)
{
    _free_ char *text = NULL;
    size_t len = 0, end = 0;
    int rc = io_read_file(io, dir, ".metadata", MAX_METADATA_BYTES, &text, &len);

    if (rc == -ENOENT) {
        return error_text(e, ENOENT, "it was never finished: no .metadata");
    }
    if (rc < 0) {
        return error_set(e, -rc, "read .metadata");
    }
    facts->bytes += len;
    facts->n_files++;
    rc = pickle_check(text, len, &end, e);
    if (rc == 0 && end != len) {
        rc = error_text(e, ERR_FORMAT, "it ends at its byte %zu of %zu", end,
                        len);
    }
    return rc < 0 ? error_wrap(e, ".metadata") : 0;
}

static int check_data(struct io *io, int dir, const char *name,
                      struct found_facts *facts, struct error *e)
{
    int fd = io->ops->open_file(io, dir, name);
    uint64_t bytes = 0;
    int rc;

    if (fd < 0) {
        return error_set(e, -fd, "open %s", name);
    }
    rc = io->ops->size(io, fd, &bytes);
    io->ops->close(io, fd);
    if (rc < 0) {
        return error_set(e, -rc, "look at %s", name);
    }
    facts->bytes += bytes;
    facts->n_files++;
    return bytes ? 0 : error_text(e, ERR_FORMAT, "%s is empty", name);
}

int found_check_dcp(struct io *io, int dir, struct found_facts *facts,
                    struct error *e)
{
    _strlist_ struct strlist names = {0};
    size_t n_data = 0;
    int rc = check_metadata(io, dir, facts, e);

    rc = rc < 0 ? rc : found_names(io, dir, &names, e);
    for (size_t i = 0; i < names.n && rc == 0; i++) {
        if (str_ends(names.items[i], ".distcp")) {
            rc = check_data(io, dir, names.items[i], facts, e);
            n_data++;
        }
    }
    facts->is_structure_only = true;
    if (rc == 0 && n_data == 0) {
        rc = error_text(e, ERR_FORMAT, "it has .metadata, and no .distcp file");
    }
    return rc;
}
