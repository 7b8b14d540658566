/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "checkpoint.h"

#include "digest.h"
#include "file.h"

#include <errno.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define PREFIX "charlm-"
#define SUFFIX ".ckpt"

static const char magic[8] = "CHARLM\r\n";

enum {
    FORMAT_VERSION = 2,
    COUNTS_AT = 8 + 4 + 5 * 4 + 4 + 2 * 8 + 256,
    HEADER_BYTES = COUNTS_AT + 2 * 8,
    STRETCH_BYTES = 2 * 4 + 3 * 8,
    DIGEST_BYTES = 8,
    MAX_BYTES = 1 << 30,
};

/* Where the next field is written to or read from. */
struct cursor {
    uint8_t *at;
};

static void put_bytes(struct cursor *c, const void *data, size_t len)
{
    memcpy(c->at, data, len);
    c->at += len;
}

static void put_u32(struct cursor *c, uint32_t v)
{
    for (int i = 0; i < 4; i++) {
        *c->at++ = (uint8_t)(v >> 8 * i);
    }
}

static void put_u64(struct cursor *c, uint64_t v)
{
    put_u32(c, (uint32_t)v);
    put_u32(c, (uint32_t)(v >> 32));
}

static uint32_t get_u32(struct cursor *c)
{
    uint32_t v = 0;

    for (int i = 0; i < 4; i++) {
        v |= (uint32_t)*c->at++ << 8 * i;
    }
    return v;
}

static uint64_t get_u64(struct cursor *c)
{
    uint64_t low = get_u32(c);

    return low | (uint64_t)get_u32(c) << 32;
}

static void put_f32(struct cursor *c, float v)
{
    uint32_t bits;

    memcpy(&bits, &v, sizeof(bits));
    put_u32(c, bits);
}

static float get_f32(struct cursor *c)
{
    uint32_t bits = get_u32(c);
    float v;

    memcpy(&v, &bits, sizeof(v));
    return v;
}

static size_t file_bytes(uint64_t n_weights, uint64_t n_stretches)
{
    return HEADER_BYTES + 3 * n_weights * 4 + n_stretches * STRETCH_BYTES +
           DIGEST_BYTES;
}

static void put_stretch(struct cursor *c, const struct stretch *s)
{
    put_u32(c, s->generation);
    put_u32(c, s->workers);
    put_u64(c, s->first);
    put_u64(c, s->last);
    put_u64(c, s->sequences);
}

static struct stretch get_stretch(struct cursor *c)
{
    struct stretch s;

    s.generation = get_u32(c);
    s.workers = get_u32(c);
    s.first = get_u64(c);
    s.last = get_u64(c);
    s.sequences = get_u64(c);
    return s;
}

static void encode(const struct state *s, uint8_t *to, size_t len)
{
    struct cursor c = {.at = to};

    put_bytes(&c, magic, sizeof(magic));
    put_u32(&c, FORMAT_VERSION);
    put_u32(&c, s->shape.vocab);
    put_u32(&c, s->shape.context);
    put_u32(&c, s->shape.width);
    put_u32(&c, s->shape.heads);
    put_u32(&c, s->shape.layers);
    put_u32(&c, s->batch);
    put_u64(&c, s->seed);
    put_u64(&c, s->step);
    put_bytes(&c, s->symbols, sizeof(s->symbols));
    put_u64(&c, s->n_weights);
    put_u64(&c, s->history.n);
    for (size_t i = 0; i < 3 * s->n_weights; i++) {
        put_f32(&c, (float)s->values[i]);
    }
    for (size_t i = 0; i < s->history.n; i++) {
        put_stretch(&c, &s->history.stretches[i]);
    }
    put_u64(&c, digest_of(to, len - DIGEST_BYTES));
}

int checkpoint_save(const char *dir, const struct state *s, char *ret_path,
                    struct failure *f)
{
    size_t len = file_bytes(s->n_weights, s->history.n);
    uint8_t *data;
    int rc;

    if (snprintf(ret_path, PATH_MAX, "%s/" PREFIX "%08" PRIu64 SUFFIX, dir,
                 s->step) >= PATH_MAX) {
        return failure_errno(f, ENAMETOOLONG, "checkpoint in %s", dir);
    }
    data = malloc(len);
    if (!data) {
        return failure_errno(f, ENOMEM, "checkpoint of %zu bytes", len);
    }
    encode(s, data, len);
    rc = file_write(ret_path, data, len, f);
    free(data);
    return rc;
}

/* Size, magic, version and digest: whether these are the bytes that were
 * written. */
static int check_whole(const char *path, uint8_t *data, size_t len,
                       struct failure *f)
{
    struct cursor version_at = {.at = data + sizeof(magic)};
    struct cursor counts_at = {.at = data + COUNTS_AT};
    struct cursor digest_at = {.at = data + len - DIGEST_BYTES};
    uint64_t n_weights, n_stretches;
    uint32_t version;

    if (len < sizeof(magic) || memcmp(data, magic, sizeof(magic)) != 0) {
        return failure_set(f, "%s is not a checkpoint of charlm", path);
    }
    if (len < HEADER_BYTES + DIGEST_BYTES) {
        return failure_set(f, "checkpoint %s is damaged: it ends after %zu "
                              "bytes, within its header", path, len);
    }
    version = get_u32(&version_at);
    if (version != FORMAT_VERSION) {
        return failure_set(f, "checkpoint %s is of version %" PRIu32
                              ": expected %d", path, version, FORMAT_VERSION);
    }
    n_weights = get_u64(&counts_at);
    n_stretches = get_u64(&counts_at);
    if (n_weights > MAX_BYTES || n_stretches > MAX_BYTES ||
        len != file_bytes(n_weights, n_stretches)) {
        return failure_set(f, "checkpoint %s is damaged: %zu bytes do not "
                              "match the %" PRIu64 " weights and %" PRIu64
                              " stretches it names", path, len, n_weights,
                           n_stretches);
    }
    if (get_u64(&digest_at) != digest_of(data, len - DIGEST_BYTES)) {
        return failure_set(f, "checkpoint %s is damaged: its digest does not "
                              "match its contents", path);
    }
    return 0;
}

static int check_shape(const char *path, struct shape found,
                       struct shape expected, struct failure *f)
{
    if (memcmp(&found, &expected, sizeof(found)) == 0) {
        return 0;
    }
    return failure_set(f, "checkpoint %s is of a model with %u characters, "
                          "context %u, width %u, %u heads, %u layers: "
                          "expected %u, %u, %u, %u, %u", path, found.vocab,
                       found.context, found.width, found.heads, found.layers,
                       expected.vocab, expected.context, expected.width,
                       expected.heads, expected.layers);
}

/* Of a file that was found whole. */
static int decode_history(const char *path, uint8_t *data,
                          struct history *ret, struct failure *f)
{
    struct cursor counts_at = {.at = data + COUNTS_AT};
    size_t n_weights = get_u64(&counts_at);
    size_t n = get_u64(&counts_at);
    struct cursor c = {.at = data + HEADER_BYTES + 3 * n_weights * 4};
    struct stretch *all = calloc(n + 1, sizeof(*all));

    if (!all) {
        return failure_errno(f, ENOMEM, "history of checkpoint %s", path);
    }
    for (size_t i = 0; i < n; i++) {
        all[i] = get_stretch(&c);
    }
    history_release(ret);
    *ret = (struct history){.stretches = all, .n = n};
    return 0;
}

static int decode(const char *path, uint8_t *data, size_t len,
                  struct state *s, struct failure *f)
{
    struct cursor c = {.at = data + sizeof(magic) + 4};
    struct shape shape;
    uint32_t batch;
    uint64_t seed, step;
    int rc = check_whole(path, data, len, f);

    if (rc < 0) {
        return rc;
    }
    shape.vocab = get_u32(&c);
    shape.context = get_u32(&c);
    shape.width = get_u32(&c);
    shape.heads = get_u32(&c);
    shape.layers = get_u32(&c);
    rc = check_shape(path, shape, s->shape, f);
    if (rc < 0) {
        return rc;
    }
    batch = get_u32(&c);
    seed = get_u64(&c);
    step = get_u64(&c);
    if (memcmp(c.at, s->symbols, sizeof(s->symbols)) != 0) {
        return failure_set(f, "checkpoint %s was made from a text with other "
                              "characters", path);
    }
    c.at += sizeof(s->symbols);
    if (get_u64(&c) != s->n_weights) {
        return failure_set(f, "checkpoint %s does not have the %zu weights "
                              "of its shape", path, s->n_weights);
    }
    rc = decode_history(path, data, &s->history, f);
    if (rc < 0) {
        return rc;
    }
    c.at = data + HEADER_BYTES;
    for (size_t i = 0; i < 3 * s->n_weights; i++) {
        s->values[i] = (real)get_f32(&c);
    }
    s->batch = batch;
    s->seed = seed;
    s->step = step;
    return 0;
}

int checkpoint_load(const char *path, struct state *s, struct failure *f)
{
    uint8_t *data;
    size_t len;
    int rc = file_read(path, MAX_BYTES, &data, &len, f);

    if (rc < 0) {
        return rc;
    }
    rc = decode(path, data, len, s, f);
    free(data);
    return rc;
}

int checkpoint_history(const char *path, struct history *ret,
                       struct failure *f)
{
    uint8_t *data;
    size_t len;
    int rc = file_read(path, MAX_BYTES, &data, &len, f);

    if (rc < 0) {
        return rc;
    }
    *ret = (struct history){0};
    rc = check_whole(path, data, len, f);
    if (rc == 0) {
        rc = decode_history(path, data, ret, f);
    }
    free(data);
    return rc;
}

int checkpoint_tidy(const char *newest, size_t keep, struct failure *f)
{
    return keep == 0 ? 0 : file_keep(newest, SUFFIX, keep, f);
}

int checkpoint_directory(const char *dir, struct failure *f)
{
    int rc = file_make_directory(dir, f);

    return rc < 0 ? rc : file_sweep(dir, f);
}
