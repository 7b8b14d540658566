/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "ckpt/digest.h"

#include "base/cleanup.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* For a state on the stack: its layout is fixed since 0.8. */
#define XXH_STATIC_LINKING_ONLY
#include <xxhash.h>
#ifdef HAVE_XXH_DISPATCH
#include <xxh_x86dispatch.h> /* the same names, for the widest instructions there are */
#endif

#ifdef HAVE_XXH_DISPATCH
/* The library's functions of one call leave the upper halves of registers in use. Then each
 * change from newer instructions to older ones takes this thread some 50 ns (a Xeon of 2023):
 * here, and in the program whose thread it is. */
__attribute__((target("avx"))) static void clear_upper_halves(void)
{
    __builtin_ia32_vzeroupper();
}

static void leave_registers(void)
{
    if (__builtin_cpu_supports("avx")) {
        clear_upper_halves();
    }
}
#else
static void leave_registers(void)
{
}
#endif

static struct digest from_xxh(XXH128_hash_t h)
{
    return (struct digest){h.high64, h.low64};
}

struct digest digest_of(const void *data, size_t len)
{
    XXH128_hash_t h = XXH3_128bits(data, len);

    leave_registers();
    return from_xxh(h);
}

uint64_t digest_short_of(const void *data, size_t len)
{
    uint64_t h = XXH3_64bits(data, len);

    leave_registers();
    return h;
}

uint64_t digest_short_while(const void *data, size_t len, size_t part_bytes,
                            void (*take)(void *arg, size_t at, size_t n), void *arg)
{
    XXH3_state_t state;

    memset(&state, 0, sizeof(state));
    XXH3_64bits_reset(&state);
    for (size_t at = 0; at < len; at += part_bytes) {
        size_t n = len - at < part_bytes ? len - at : part_bytes;

        XXH3_64bits_update(&state, (const char *)data + at, n);
        take(arg, at, n);
    }
    return XXH3_64bits_digest(&state);
}

bool digest_equal(struct digest a, struct digest b)
{
    return a.high == b.high && a.low == b.low;
}

void digest_format(struct digest d, char to[DIGEST_TEXT_BYTES])
{
    snprintf(to, DIGEST_TEXT_BYTES, "%016llx%016llx",
             (unsigned long long)d.high, (unsigned long long)d.low);
}

/* A lower-case hexadecimal digit's value, or -1. */
static int digit(char c)
{
    if (c >= '0' && c <= '9') {
        return c - '0';
    }
    return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

bool digest_parse(const char *text, struct digest *ret)
{
    uint64_t half[2] = {0, 0};

    for (size_t i = 0; i < DIGEST_TEXT_BYTES - 1; i++) {
        int v = digit(text[i]);

        if (v < 0) {
            return false;
        }
        half[i / 16] = half[i / 16] << 4 | (uint64_t)v;
    }
    if (text[DIGEST_TEXT_BYTES - 1] != '\0') {
        return false;
    }
    *ret = (struct digest){half[0], half[1]};
    return true;
}

uint64_t digest_n_blocks(uint64_t file_bytes)
{
    return file_bytes / DIGEST_BLOCK_BYTES +
           (file_bytes % DIGEST_BLOCK_BYTES != 0);
}

struct digest digest_of_blocks(const uint64_t *blocks, uint64_t file_bytes)
{
    uint64_t n = digest_n_blocks(file_bytes);
    XXH3_state_t state; /* ours to place: nothing to allocate, nothing to fail */

    _Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "as they lie");
    memset(&state, 0, sizeof(state));
    XXH3_128bits_reset(&state);
    XXH3_128bits_update(&state, &file_bytes, sizeof(file_bytes));
    XXH3_128bits_update(&state, blocks, n * sizeof(*blocks));
    return from_xxh(XXH3_128bits_digest(&state));
}

int digest_of_file(const void *data, size_t len, struct digest *ret)
{
    size_t n = digest_n_blocks(len);
    _free_ uint64_t *blocks = calloc(n + 1, sizeof(*blocks));

    if (!blocks) {
        return -ENOMEM;
    }
    for (size_t i = 0, at = 0; i < n; i++, at += DIGEST_BLOCK_BYTES) {
        size_t left = len - at;

        blocks[i] = digest_short_of((const char *)data + at,
                                    left < DIGEST_BLOCK_BYTES ? left : DIGEST_BLOCK_BYTES);
    }
    *ret = digest_of_blocks(blocks, len);
    return 0;
}
