/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Any bytes as what an object store sends: the first says what as: header lines, a
 * list, uploads, parts, an error, a seal; or an INI file. A seal that is taken can
 * be made again.
 */
#include <config.h>

#include "base/cleanup.h"
#include "ckpt/parcel.h"
#include "ckpt/s3_answer.h"
#include "ckpt/s3_config.h"
#include "ckpt/s3_head.h"
#include "tests/lib/fuzz.h"

#include <stdlib.h>
#include <string.h>

static void read_head(const char *data, size_t len)
{
    struct s3_head h = {.retry_after_s = -1};

    while (len) {
        const char *end = memchr(data, '\n', len);
        size_t n = end ? (size_t)(end - data) + 1 : len;

        s3_head_line(&h, data, n, 1369353600);
        data += n;
        len -= n;
    }
    expect(h.retry_after_s >= -1 && h.retry_after_s <= 300);
}

static void read_lists(const char *data, size_t len)
{
    _s3_listing_ struct s3_listing l = {0};
    _s3_uploads_ struct s3_uploads u = {.key = "k"};
    struct s3_part parts[4] = {0};
    struct s3_fault fault;
    uint64_t next;

    s3_listing_add(data, len, &l, NULL);
    s3_uploads_add(data, len, &u, NULL);
    s3_parts_add(data, len, parts, 4, &next, NULL);
    s3_fault_read(data, len, &fault);
}

static void read_seal(const char *data, size_t len)
{
    _parcel_ struct parcel p = {0}, again = {0};

    if (parcel_unseal(data, len, "name", &p, NULL) < 0) {
        return;
    }
    for (size_t i = 0; i < p.n; i++) {
        expect(parcel_is_path(p.items[i].path));
    }
    if (parcel_seal(&p, NULL) == 0) {
        expect(parcel_unseal(p.seal.data, p.seal.len, p.name, &again, NULL) == 0);
        expect(again.n == p.n && again.bytes == p.bytes);
    }
}

static void read_ini(const char *data, size_t len)
{
    _free_ char *text = strndup(data, len);

    expect(text != NULL);
    free(s3_ini_get(text, "default", "aws_access_key_id"));
    s3_ini_has(text, "default");
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const char *text = (const char *)data + 1;

    if (size == 0) {
        return 0;
    }
    switch (data[0]) {
    case 'h':
        read_head(text, size - 1);
        break;
    case 'x':
        read_lists(text, size - 1);
        break;
    case 's':
        read_seal(text, size - 1);
        break;
    default:
        read_ini(text, size - 1);
    }
    return 0;
}
