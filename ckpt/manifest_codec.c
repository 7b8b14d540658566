/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "ckpt/manifest.h"

#include "base/cleanup.h"
#include "base/str.h"

#include <errno.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>

enum { FORMAT = 1 };

static const char REPLICATED[] = "replicated", PER_RANK[] = "per-rank";

/* --- what both directions hold to --- */

static int by_name(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

/* The code of a fault is the caller's: what is read so, or was given so. */
static int check_files(const struct manifest *m, int code, struct error *e)
{
    _free_ const char **names = calloc(m->n_files + 1, sizeof(*names));

    if (!names) {
        return error_set(e, ENOMEM, "a manifest of %zu files", m->n_files);
    }
    if (m->n_files > MANIFEST_MAX_FILES || m->index >= m->n_files) {
        return error_text(e, code, "the manifest lists %zu files, and its index "
                          "is number %zu", m->n_files, m->index);
    }
    for (size_t i = 0; i < m->n_files; i++) {
        names[i] = m->files[i].name;
        if (!manifest_is_name(names[i])) {
            return error_text(e, code, "the manifest: file %zu has a name that "
                              "no file of a checkpoint has", i);
        }
    }
    qsort(names, m->n_files, sizeof(*names), by_name);
    for (size_t i = 1; i < m->n_files; i++) {
        if (strcmp(names[i - 1], names[i]) == 0) {
            return error_text(e, code, "the manifest lists '%s' twice",
                              names[i]);
        }
    }
    return 0;
}

/* --- encoding --- */

static int add_files(const struct manifest *m, json_t *to)
{
    json_t *files = json_array();
    int rc = json_object_set_new(to, "files", files);

    for (size_t i = 0; i < m->n_files && rc == 0; i++) {
        const struct manifest_file *f = &m->files[i];
        char digest[DIGEST_TEXT_BYTES];

        digest_format(f->digest, digest);
        rc = json_array_append_new(
            files, json_pack("{s:s, s:I, s:s}", "name", f->name, "bytes",
                             (json_int_t)f->bytes, "digest", digest));
    }
    return rc;
}

static int add_blobs(const struct manifest *m, json_t *to)
{
    json_t *blobs = json_array();
    int rc = json_object_set_new(to, "blobs", blobs);

    for (size_t i = 0; i < m->n_blobs && rc == 0; i++) {
        const struct manifest_blob *b = &m->blobs[i];

        rc = json_array_append_new(
            blobs, json_pack("{s:s, s:s, s:I}", "name", b->name, "kind",
                             b->is_per_rank ? PER_RANK : REPLICATED, "n",
                             (json_int_t)b->n));
    }
    return rc;
}

static int add_state(const struct manifest *m, json_t *to, struct error *e)
{
    json_t *state;

    if (!m->state) {
        return 0;
    }
    state = json_loads(m->state, JSON_REJECT_DUPLICATES, NULL);
    if (!json_is_object(state)) {
        json_decref(state);
        return error_text(e, EINVAL, "the state is no JSON object");
    }
    return json_object_set_new(to, "state", state) < 0
               ? error_set(e, ENOMEM, "write a manifest") : 0;
}

static int dump(const json_t *from, struct buf *b, struct error *e)
{
    size_t n = json_dumpb(from, NULL, 0, JSON_COMPACT);
    char *to = buf_reserve(b, n + 1);

    if (!to) {
        return error_set(e, ENOMEM, "write a manifest");
    }
    if (n + 1 > MANIFEST_MAX_BYTES) {
        return error_text(e, EINVAL, "a manifest of %zu bytes, and at most %llu "
                          "are allowed", n + 1,
                          (unsigned long long)MANIFEST_MAX_BYTES);
    }
    b->len += json_dumpb(from, to, n, JSON_COMPACT);
    buf_putc(b, '\n');
    return 0;
}

int manifest_encode(const struct manifest *m, struct buf *b, struct error *e)
{
    int rc = check_files(m, EINVAL, e);
    json_t *to;

    if (rc < 0) {
        return rc;
    }
    to = json_pack("{s:i, s:I, s:s, s:I, s:I, s:f, s:s, s:I, s:I, s:I}",
                   "v", FORMAT, "step", (json_int_t)m->step, "uuid", m->uuid,
                   "generation", (json_int_t)m->generation, "token",
                   (json_int_t)m->token, "time", (double)m->wall_ns / 1e9,
                   "muster", m->version, "ranks", (json_int_t)m->n_ranks,
                   "nodes", (json_int_t)m->n_nodes, "index",
                   (json_int_t)m->index);
    if (!to || add_files(m, to) < 0 || add_blobs(m, to) < 0) {
        rc = error_set(e, ENOMEM, "write a manifest");
    }
    rc = rc < 0 ? rc : add_state(m, to, e);
    rc = rc < 0 ? rc : dump(to, b, e);
    json_decref(to);
    return rc;
}

/* --- decoding --- */

static bool take_number(const json_t *from, const char *key, uint64_t max,
                        uint64_t *ret)
{
    const json_t *v = json_object_get(from, key);

    if (!json_is_integer(v) || json_integer_value(v) < 0 ||
        (uint64_t)json_integer_value(v) > max) {
        return false;
    }
    *ret = (uint64_t)json_integer_value(v);
    return true;
}

static bool take_small(const json_t *from, const char *key, uint32_t *ret)
{
    uint64_t n;

    if (!take_number(from, key, UINT32_MAX, &n)) {
        return false;
    }
    *ret = (uint32_t)n;
    return true;
}

static bool take_text(const json_t *from, const char *key, char *to,
                      size_t size)
{
    const char *text = json_string_value(json_object_get(from, key));

    if (!text || strlen(text) >= size) {
        return false;
    }
    str_copy(to, size, text);
    return true;
}

static int take_files(const json_t *from, struct manifest *m, struct error *e)
{
    const json_t *files = json_object_get(from, "files");
    size_t n = json_array_size(files);

    m->files = n <= MANIFEST_MAX_FILES ? calloc(n + 1, sizeof(*m->files)) : NULL;
    if (!m->files) {
        return error_set(e, ENOMEM, "a manifest of %zu files", n);
    }
    for (; m->n_files < n; m->n_files++) {
        const json_t *v = json_array_get(files, m->n_files);
        struct manifest_file *f = &m->files[m->n_files];
        const char *digest = json_string_value(json_object_get(v, "digest"));

        if (!take_text(v, "name", f->name, sizeof(f->name)) ||
            !take_number(v, "bytes", INT64_MAX, &f->bytes) || !digest ||
            !digest_parse(digest, &f->digest)) {
            return error_text(e, ERR_FORMAT, "the manifest: file %zu has no "
                              "name, length or digest", m->n_files);
        }
    }
    return check_files(m, ERR_FORMAT, e);
}

static int take_blob(const json_t *v, struct manifest_blob *to, size_t place,
                     struct error *e)
{
    const char *name = json_string_value(json_object_get(v, "name"));
    const char *kind = json_string_value(json_object_get(v, "kind"));

    if (!name || !kind || !take_small(v, "n", &to->n) ||
        (strcmp(kind, PER_RANK) != 0 && strcmp(kind, REPLICATED) != 0)) {
        return error_text(e, ERR_FORMAT, "the manifest: blob %zu has no name, "
                          "kind or number", place);
    }
    to->is_per_rank = strcmp(kind, PER_RANK) == 0;
    if (to->n == 0 || (!to->is_per_rank && to->n != 1)) {
        return error_text(e, ERR_FORMAT, "the manifest: blob %zu is of %u ranks",
                          place, to->n);
    }
    to->name = strdup(name);
    return to->name ? 0 : error_set(e, ENOMEM, "read a manifest");
}

static int take_blobs(const json_t *from, struct manifest *m, struct error *e)
{
    const json_t *blobs = json_object_get(from, "blobs");
    size_t n = json_array_size(blobs);
    int rc = 0;

    m->blobs = calloc(n + 1, sizeof(*m->blobs));
    if (!m->blobs) {
        return error_set(e, ENOMEM, "read a manifest");
    }
    for (; m->n_blobs < n && rc == 0; m->n_blobs++) {
        rc = take_blob(json_array_get(blobs, m->n_blobs), &m->blobs[m->n_blobs],
                       m->n_blobs, e);
    }
    return rc;
}

static int take_state(const json_t *from, struct manifest *m, struct error *e)
{
    const json_t *state = json_object_get(from, "state");

    if (!state) {
        return 0;
    }
    if (!json_is_object(state)) {
        return error_text(e, ERR_FORMAT, "the manifest: its state is no object");
    }
    m->state = json_dumps(state, JSON_COMPACT);
    return m->state ? 0 : error_set(e, ENOMEM, "read a manifest");
}

static int take_head(const json_t *from, struct manifest *m, struct error *e)
{
    uint64_t version, index;
    double seconds = json_number_value(json_object_get(from, "time"));

    if (!take_number(from, "v", INT64_MAX, &version)) {
        return error_text(e, ERR_FORMAT, "the manifest has no version");
    }
    if (version != FORMAT) {
        return error_text(e, ERR_VERSION, "a manifest of version %llu, and this "
                          "muster knows %d", (unsigned long long)version,
                          FORMAT);
    }
    if (!take_number(from, "step", INT64_MAX, &m->step) ||
        !take_text(from, "uuid", m->uuid, sizeof(m->uuid)) ||
        !take_small(from, "generation", &m->generation) ||
        !take_number(from, "token", INT64_MAX, &m->token) ||
        !(seconds >= 0 && seconds < 1e10) ||
        !take_text(from, "muster", m->version, sizeof(m->version)) ||
        !take_small(from, "ranks", &m->n_ranks) ||
        !take_small(from, "nodes", &m->n_nodes) ||
        !take_number(from, "index", MANIFEST_MAX_FILES, &index)) {
        return error_text(e, ERR_FORMAT, "the manifest lacks a value, or has a "
                          "wrong one");
    }
    m->wall_ns = (uint64_t)(seconds * 1e9);
    m->index = index;
    return 0;
}

int manifest_decode(const void *data, size_t len, struct manifest *ret,
                    struct error *e)
{
    _manifest_ struct manifest m = {0};
    json_error_t why;
    json_t *from;
    int rc;

    if (len > MANIFEST_MAX_BYTES) {
        return error_text(e, ERR_FORMAT, "a manifest of %zu bytes, and at most "
                          "%llu are allowed", len,
                          (unsigned long long)MANIFEST_MAX_BYTES);
    }
    from = json_loadb(data, len, JSON_REJECT_DUPLICATES, &why);
    if (!json_is_object(from)) {
        json_decref(from);
        return error_text(e, ERR_FORMAT, "the manifest is no JSON object");
    }
    rc = take_head(from, &m, e);
    rc = rc < 0 ? rc : take_files(from, &m, e);
    rc = rc < 0 ? rc : take_blobs(from, &m, e);
    rc = rc < 0 ? rc : take_state(from, &m, e);
    json_decref(from);
    if (rc == 0) {
        *ret = m;
        m = (struct manifest){0};
    }
    return rc;
}
