/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "ckpt/manifest.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

void manifest_release(struct manifest *m)
{
    for (size_t i = 0; i < m->n_blobs; i++) {
        free(m->blobs[i].name);
    }
    free(m->blobs);
    free(m->files);
    free(m->state);
    *m = (struct manifest){0};
}

bool manifest_is_name(const char *name)
{
    static const char allowed[] = "abcdefghijklmnopqrstuvwxyz"
                                  "ABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789.-_";
    size_t len = strlen(name);

    return len > 0 && len < MANIFEST_NAME_BYTES && name[0] != '.' &&
           strspn(name, allowed) == len && strcmp(name, "COMMIT") != 0 &&
           strcmp(name, "manifest.json") != 0;
}

int manifest_check_commit(const struct manifest *m, const struct commit *c,
                          struct error *e)
{
    uint64_t total = c->manifest_bytes;

    if (m->step != c->step || strcmp(m->uuid, c->uuid) != 0 ||
        m->generation != c->generation || m->token != c->token) {
        return error_text(e, ERR_FORMAT, "the manifest is that of another "
                          "checkpoint: step %llu (%s), and COMMIT says step %llu "
                          "(%s)", (unsigned long long)m->step, m->uuid,
                          (unsigned long long)c->step, c->uuid);
    }
    for (size_t i = 0; i < m->n_files; i++) {
        if (__builtin_add_overflow(total, m->files[i].bytes, &total)) {
            total = UINT64_MAX;
        }
    }
    if (m->n_files + 1 != c->n_files || total != c->total_bytes) {
        return error_text(e, ERR_FORMAT, "the manifest lists %zu files of %llu "
                          "bytes with itself, and COMMIT says %llu of %llu",
                          m->n_files + 1, (unsigned long long)total,
                          (unsigned long long)c->n_files,
                          (unsigned long long)c->total_bytes);
    }
    return 0;
}
