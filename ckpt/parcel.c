/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "ckpt/parcel.h"

#include "base/cleanup.h"
#include "base/str.h"
#include "ckpt/commit.h"
#include "ckpt/manifest.h"
#include "ckpt/step.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

void parcel_release(struct parcel *p)
{
    for (size_t i = 0; i < p->n; i++) {
        free(p->items[i].path);
    }
    free(p->items);
    buf_release(&p->seal);
    *p = (struct parcel){0};
}

bool parcel_is_file(const struct parcel *p)
{
    return found_is_file(&p->found);
}

const char *parcel_seal_name(const struct parcel *p)
{
    return p->found.kind == FOUND_MUSTER ? PARCEL_COMMIT : PARCEL_COPY;
}

bool parcel_is_path(const char *path)
{
    size_t len = strlen(path);

    if (len == 0 || len >= PARCEL_PATH_BYTES || path[len - 1] == '/') {
        return false;
    }
    while (*path) {
        size_t n = strcspn(path, "/");

        if (n == 0 || n > 255 || (n == 1 && path[0] == '.') ||
            (n == 2 && path[0] == '.' && path[1] == '.')) {
            return false;
        }
        path += n;
        path += *path == '/';
    }
    return true;
}

int parcel_add(struct parcel *p, const char *path, uint64_t bytes,
               struct digest digest, struct error *e)
{
    struct parcel_item *more;

    if (!parcel_is_path(path) || strcmp(path, PARCEL_COPY) == 0 ||
        bytes > INT64_MAX || p->bytes + bytes > INT64_MAX) {
        return error_text(e, EINVAL, "%s: '%.100s' cannot be a file of a "
                          "checkpoint", p->found.name, path);
    }
    if (p->n >= PARCEL_MAX_FILES) {
        return error_text(e, EINVAL, "%s has more than %d files", p->found.name,
                          PARCEL_MAX_FILES);
    }
    /* A power of two: grow. */
    if ((p->n & (p->n - 1)) == 0) {
        more = reallocarray(p->items, p->n ? p->n * 2 : 1, sizeof(*more));
        if (!more) {
            return error_set(e, ENOMEM, "%s", p->found.name);
        }
        p->items = more;
    }
    p->items[p->n] = (struct parcel_item){strdup(path), bytes, digest};
    if (!p->items[p->n].path) {
        return error_set(e, ENOMEM, "%s", p->found.name);
    }
    p->n++;
    p->bytes += bytes;
    return 0;
}

/* --- of our own --- */

static struct digest digest_of_text(const char *data, size_t len, bool *failed)
{
    uint64_t n = digest_n_blocks(len);
    _free_ uint64_t *blocks = calloc(n + 1, sizeof(*blocks));

    *failed = !blocks;
    for (uint64_t i = 0; i < n && blocks; i++) {
        size_t at = i * DIGEST_BLOCK_BYTES;
        size_t part = len - at < DIGEST_BLOCK_BYTES ? len - at
                                                    : DIGEST_BLOCK_BYTES;

        blocks[i] = digest_short_of(data + at, part);
    }
    return blocks ? digest_of_blocks(blocks, len) : (struct digest){0};
}

static int fill(struct parcel *p, const struct manifest *m, const void *manifest,
                size_t len, struct error *e)
{
    bool failed;
    struct digest digest = digest_of_text(manifest, len, &failed);
    int rc = failed ? error_set(e, ENOMEM, "%s", p->name) : 0;

    for (size_t i = 0; i < m->n_files && rc == 0; i++) {
        rc = parcel_add(p, m->files[i].name, m->files[i].bytes,
                        m->files[i].digest, e);
    }
    return rc < 0 ? rc : parcel_add(p, PARCEL_MANIFEST, len, digest, e);
}

static int check(const char *name, const struct commit *c, const void *manifest,
                 size_t len, struct error *e)
{
    char want[STEP_NAME_BYTES];

    step_name(c->step, c->uuid, want);
    if (strcmp(name, want) != 0) {
        return error_text(e, ERR_FORMAT, "%s holds the checkpoint %s", name,
                          want);
    }
    if (len != c->manifest_bytes ||
        !digest_equal(digest_of(manifest, len), c->manifest_digest)) {
        return error_text(e, ERR_FORMAT, "%s/manifest.json is damaged: its %zu "
                          "bytes do not have the digest in COMMIT", name, len);
    }
    return 0;
}

int parcel_from_step(const char *name, const void *commit, size_t commit_len,
                     const void *manifest, size_t manifest_len,
                     struct parcel *ret, struct error *e)
{
    _manifest_ struct manifest m = {0};
    _parcel_ struct parcel p = {.found = {.kind = FOUND_MUSTER,
                                          .has_step = true}};
    struct commit c = {0};
    int rc = commit_decode(commit, commit_len, &c, e);

    rc = rc < 0 ? rc : check(name, &c, manifest, manifest_len, e);
    rc = rc < 0 ? rc : manifest_decode(manifest, manifest_len, &m, e);
    rc = rc < 0 ? rc : manifest_check_commit(&m, &c, e);
    str_copy(p.found.name, sizeof(p.found.name), name);
    str_copy(p.name, sizeof(p.name), name);
    p.found.step = c.step;
    p.found.token = c.token;
    found_recall(&p.found);
    rc = rc < 0 ? rc : fill(&p, &m, manifest, manifest_len, e);
    buf_append(&p.seal, commit, commit_len);
    if (rc == 0 && p.seal.failed) {
        rc = error_set(e, ENOMEM, "%s", name);
    }
    if (rc == 0) {
        *ret = p;
        p = (struct parcel){0};
    }
    return rc;
}
