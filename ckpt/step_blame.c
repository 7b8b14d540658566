/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Which bytes of a file are damaged, and what they are: the index has a digest of each
 * block, and knows what lies there. Where the index is damaged, too, nothing more is
 * known than that.
 */
#include <config.h>

#include "ckpt/step.h"

#include "ckpt/load.h"
#include "ckpt/part.h"
#include "ckpt/step_priv.h"

#include <stdio.h>
#include <string.h>

enum { SHOWN_NAME = 80 };

/* The first block that is another one, and how many are. */
static size_t find_block(const uint64_t *is, const uint64_t *should, size_t n,
                         size_t *ret_n_bad)
{
    size_t first = n;

    *ret_n_bad = 0;
    for (size_t i = 0; i < n; i++) {
        if (is[i] != should[i]) {
            first = *ret_n_bad == 0 ? i : first;
            (*ret_n_bad)++;
        }
    }
    return first;
}

struct seen {
    struct index_tensor first;
    size_t n; /* tensors */
};

/* Those are no tensors to people. */
static bool is_blob(const struct index_tensor *t)
{
    static const char prefix[] = ".blob/";

    return t->name_len >= sizeof(prefix) - 1 &&
           memcmp(t->name, prefix, sizeof(prefix) - 1) == 0;
}

/* What of [begin, end) of that file belongs to tensors. */
static void look(const struct index *x, uint32_t file, uint64_t begin, uint64_t end,
                 struct seen *ret)
{
    *ret = (struct seen){0};
    for (size_t i = 0; i < index_n_tensors(x); i++) {
        struct index_tensor t = index_tensor(x, i);
        bool is_there = false;

        for (size_t k = 0; k < t.n_chunks && !is_there; k++) {
            struct index_chunk c = index_chunk(x, &t, i, k);
            struct box box = index_chunk_box(&t, &c);
            uint64_t volume = 0, bytes = 0;

            box_volume(&box, &volume);
            dtype_bytes(t.dtype, volume, &bytes);
            is_there = c.file == file && c.begin < end && begin < c.begin + bytes;
        }
        if (is_there && (ret->n == 0 || (is_blob(&ret->first) && !is_blob(&t)))) {
            ret->first = t;
        }
        ret->n += is_there;
    }
}

static int tell(const struct step *s, size_t file, uint64_t begin, uint64_t end,
                const struct seen *seen, size_t n_bad, struct error *e)
{
    const struct manifest_file *f = &s->manifest.files[file];
    char what[2 * SHOWN_NAME] = "its header", rank[32] = "", more[80] = "";
    uint32_t number;

    if (seen->n > 0) {
        int n = (int)(seen->first.name_len < SHOWN_NAME ? seen->first.name_len
                                                        : SHOWN_NAME);

        snprintf(what, sizeof(what), "tensor '%.*s'", n, seen->first.name);
    }
    if (seen->n > 1) {
        snprintf(what + strlen(what), sizeof(what) - strlen(what), " and %zu more",
                 seen->n - 1);
    }
    if (part_data_rank(f->name, &number)) {
        snprintf(rank, sizeof(rank), " of rank %u", number);
    }
    if (n_bad > 1) {
        snprintf(more, sizeof(more), ", nor do those of %zu blocks more", n_bad - 1);
    }
    return error_text(e, ERR_FORMAT, "%s/%s is damaged: bytes %llu to %llu, with %s%s, do not "
                      "have their digest%s", s->name, f->name, (unsigned long long)begin,
                      (unsigned long long)end, what, rank, more);
}

int step_blame_bytes(const struct step *s, const struct index *x, uint32_t file,
                     uint64_t begin, uint64_t end, struct error *e)
{
    struct seen seen;

    look(x, file, begin, end, &seen);
    return tell(s, file, begin, end, &seen, 1, e);
}

void step_blame(const struct step *s, size_t file, const uint64_t *blocks, size_t n,
                struct error *e)
{
    struct step borrowed = *s;
    struct load l = {0};
    const uint64_t *should;
    size_t n_should = 0, first, n_bad;
    struct seen seen;
    uint64_t begin, end;

    if (!e || file == s->manifest.index || load_open(&borrowed, &l, NULL) < 0) {
        return;
    }
    should = file < index_n_files(l.index) ? index_blocks(l.index, file, &n_should)
                                           : NULL;
    first = n_should == n && should ? find_block(blocks, should, n, &n_bad) : n;
    if (first < n) {
        begin = (uint64_t)first * DIGEST_BLOCK_BYTES;
        end = begin + DIGEST_BLOCK_BYTES < s->manifest.files[file].bytes
                  ? begin + DIGEST_BLOCK_BYTES : s->manifest.files[file].bytes;
        look(l.index, (uint32_t)file, begin, end, &seen);
        tell(s, file, begin, end, &seen, n_bad, e);
    }
    index_destroy(l.index);
}
