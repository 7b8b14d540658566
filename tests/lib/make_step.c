/* SPDX-License-Identifier: Apache-2.0 */
/*
 * make_step DIRECTORY STEP UUID FILES BYTES [JSON [TOKEN]]: a checkpoint as muster leaves
 * it, with so many files of so many bytes, whose content follows from step and file alone,
 * and with an object of JSON values. Prints its name.
 */
#include <config.h>

#include "base/cleanup.h"
#include "base/str.h"
#include "ckpt/step.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static struct digest digest_file(const char *data, size_t len)
{
    uint64_t n = digest_n_blocks(len);
    _free_ uint64_t *blocks = calloc(n + 1, sizeof(*blocks));

    if (!blocks) {
        abort();
    }
    for (uint64_t i = 0; i < n; i++) {
        size_t at = i * DIGEST_BLOCK_BYTES;

        blocks[i] = digest_short_of(data + at,
                                    len - at < DIGEST_BLOCK_BYTES
                                        ? len - at : DIGEST_BLOCK_BYTES);
    }
    return digest_of_blocks(blocks, len);
}

static void fill(char *data, size_t len, uint64_t seed)
{
    uint64_t x = seed * 0x9e3779b97f4a7c15ULL + 1;

    for (size_t i = 0; i < len; i++) {
        x ^= x << 13;
        x ^= x >> 7;
        x ^= x << 17;
        data[i] = (char)(x >> 32);
    }
}

static int put(struct step_save *s, struct manifest *m, const char *name,
               size_t len, uint64_t seed, struct error *e)
{
    _free_ char *data = malloc(len + 1);
    struct manifest_file *f = &m->files[m->n_files++];

    if (!data) {
        return error_set(e, ENOMEM, "%s", name);
    }
    fill(data, len, seed);
    str_copy(f->name, sizeof(f->name), name);
    f->bytes = len;
    f->digest = digest_file(data, len);
    return step_save_file(s, name, data, len, e);
}

static int make(int root, char **argv, struct error *e)
{
    uint64_t step = strtoull(argv[2], NULL, 10);
    size_t n = strtoul(argv[4], NULL, 10), len = strtoul(argv[5], NULL, 10);
    struct manifest m = {.step = step, .generation = 1,
                         .token = argv[6] && argv[7] ? strtoull(argv[7], NULL, 10) : 1,
                         .n_ranks = (uint32_t)n, .n_nodes = 1};
    _cleanup_(step_save) struct step_save *s = NULL;
    int rc;

    str_copy(m.uuid, sizeof(m.uuid), argv[3]);
    str_copy(m.version, sizeof(m.version), VERSION);
    m.state = argv[6] ? strdup(argv[6]) : NULL;
    m.files = calloc(n + 1, sizeof(*m.files));
    rc = m.files ? step_save_begin(io_system(), root, step, m.uuid, &s, e) : -1;
    for (size_t i = 0; i < n && rc == 0; i++) {
        char name[40];

        snprintf(name, sizeof(name), "r%05zu.safetensors", i);
        rc = put(s, &m, name, len, step * 1000 + i, e);
    }
    m.index = n;
    rc = rc < 0 ? rc : put(s, &m, "tensors.index", 100, step, e);
    rc = rc < 0 ? rc : step_save_sync(s, e);
    rc = rc < 0 ? rc : step_save_commit(s, &m, e);
    manifest_release(&m);
    return rc;
}

int main(int argc, char **argv)
{
    struct error e = {0};
    char name[STEP_NAME_BYTES];
    _close_ int root = argc >= 6 && argc <= 8 ? open(argv[1], O_RDONLY | O_DIRECTORY) : -1;

    if (root < 0 || make(root, argv, &e) < 0) {
        fprintf(stderr, "make_step: %s\n", e.text);
        return 1;
    }
    step_name(strtoull(argv[2], NULL, 10), argv[3], name);
    puts(name);
    return 0;
}
