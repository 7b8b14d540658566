/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "ckpt/streamed.h"
#include "tests/lib/tap.h"

#include <string.h>

enum { MOST = 1000, AROUND = 64 };

/* Any length, from and to any place: these bytes, and none beside them. */
int main(void)
{
    static char from[MOST + 2 * AROUND], to[MOST + 2 * AROUND], expected[sizeof(to)];
    int n_wrong = 0;

    for (size_t i = 0; i < sizeof(from); i++) {
        from[i] = (char)(i * 7 + i / 256 + 1);
    }
    for (size_t len = 0; len <= MOST; len += len < 200 ? 1 : 97) {
        for (size_t a = 0; a < AROUND; a += 5) {
            for (size_t b = 0; b < AROUND; b++) {
                memset(to, 0, sizeof(to));
                memset(expected, 0, sizeof(to));
                memcpy(expected + b, from + a, len);
                streamed_copy(to + b, from + a, len);
                n_wrong += memcmp(to, expected, sizeof(to)) != 0;
            }
        }
    }
    for (size_t len = 1; len < 200; len++) { /* one behind the other */
        memset(to, 0, sizeof(to));
        for (size_t at = 0; at < sizeof(to); at += len) {
            streamed_put(to + at, from + at, sizeof(to) - at < len ? sizeof(to) - at : len);
        }
        streamed_end();
        n_wrong += memcmp(to, from, sizeof(to)) != 0;
    }
    is_int(n_wrong, 0, "as memcpy() does it");
    return tap_done();
}
