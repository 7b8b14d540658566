/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A copy of an image by several threads, past the caches and not, is what image_read() reads
 * of it, byte by byte.
 */
#include <config.h>

#include "ckpt/image.h"

#include "base/cleanup.h"
#include "tests/lib/tap.h"

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { N = 20000, MANY = 1 << 20 };

static char names[N][16];
static uint64_t lens[N];
static struct image_piece pieces[N];
static char data[MANY];

/* N tensors of `bytes` at most, of odd lengths, and from any place. */
static uint64_t plan(uint64_t bytes, struct image *im)
{
    static const uint64_t zero;
    struct error e = {0};
    uint64_t sum = 0;

    for (size_t i = 0; i < N; i++) {
        snprintf(names[i], sizeof(names[i]), "t%zu", i * 7919 % N);
        lens[i] = i * 2654435761u % bytes;
        pieces[i] = (struct image_piece){
            .tensor = {.name = names[i], .dtype = DTYPE_U8, .n_dims = 1, .shape = &lens[i]},
            .name = names[i], .shape = &lens[i], .at = &zero,
            .data = data + i * 31 % (MANY - bytes)};
        sum += lens[i];
    }
    if (image_plan(pieces, N, 1, "0123456789abcdef0123456789abcdef", im, &e) < 0) {
        bail_out("no image: %s", e.text);
    }
    return sum;
}

static void test_copy(uint64_t bytes, uint64_t least)
{
    enum { BEFORE = 24, BEHIND = 8, PART = 1 << 16 };
    static char part[PART];
    _image_ struct image im = {0};
    struct image_copy c;
    struct error e = {0};
    uint64_t sum = plan(bytes, &im), n_wrong = 0;
    _free_ char *room = malloc(BEFORE + im.bytes + BEHIND);
    char *to = room ? room + BEFORE : NULL;

    if (!room) {
        bail_out("no memory");
    }
    ok(sum > least, "%llu bytes of tensors", (unsigned long long)sum);
    memset(room, 0x5a, BEFORE + im.bytes + BEHIND);
    image_copy_begin(&c, &im, to, false);
    image_copy_help(&c, 3);
    is_int(image_copy_end(&c, &e), 0, "are copied");
    for (uint64_t at = 0; at < im.bytes; at += PART) {
        size_t n = im.bytes - at < PART ? im.bytes - at : PART;

        n_wrong += image_read(&im, at, n, part, &e) < 0 || memcmp(part, to + at, n) != 0;
    }
    for (int i = 0; i < BEFORE; i++) {
        n_wrong += room[i] != 0x5a;
    }
    for (int i = 0; i < BEHIND; i++) {
        n_wrong += to[im.bytes + (uint64_t)i] != 0x5a;
    }
    is_int((intmax_t)n_wrong, 0, "as they are read, and nothing beside them");
}

int main(void)
{
    for (size_t i = 0; i < sizeof(data); i++) {
        data[i] = (char)(i * 7 + i / 251);
    }
    test_copy(200, 1 << 20);
    test_copy(4500, 40 << 20); /* more than stays in a cache */
    return tap_done();
}
