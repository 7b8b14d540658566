/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "ckpt/streamed.h"

#include <stdint.h>
#include <string.h>

#ifdef __SSE2__
#include <emmintrin.h>

enum { LINE_BYTES = 64 };

static void copy_line(char *to, const char *from)
{
    const __m128i *f = (const __m128i *)(const void *)from;
    __m128i *t = (__m128i *)(void *)to;
    __m128i a = _mm_loadu_si128(f), b = _mm_loadu_si128(f + 1);
    __m128i c = _mm_loadu_si128(f + 2), d = _mm_loadu_si128(f + 3);

    _mm_stream_si128(t, a);
    _mm_stream_si128(t + 1, b);
    _mm_stream_si128(t + 2, c);
    _mm_stream_si128(t + 3, d);
}

void streamed_put(void *to, const void *from, size_t len)
{
    size_t before = -(uintptr_t)to % LINE_BYTES, lines;
    char *t = to;
    const char *f = from;

    before = before < len ? before : len;
    memcpy(t, f, before);
    t += before, f += before, len -= before;
    lines = len / LINE_BYTES * LINE_BYTES;
    for (size_t at = 0; at < lines; at += LINE_BYTES) {
        copy_line(t + at, f + at);
    }
    memcpy(t + lines, f + lines, len - lines);
}

void streamed_end(void)
{
    _mm_sfence();
}

#else

void streamed_put(void *to, const void *from, size_t len)
{
    memcpy(to, from, len);
}

void streamed_end(void)
{
}

#endif

void streamed_copy(void *to, const void *from, size_t len)
{
    streamed_put(to, from, len);
    streamed_end();
}

void near_copy(void *to, const void *from, size_t len)
{
    memcpy(to, from, len);
}
