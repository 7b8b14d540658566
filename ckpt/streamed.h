/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A copy past the caches, for what is so large that it does not stay in them anyway: the
 * lines that are written need not be read first. For little, or for what is used at once,
 * memcpy() is faster.
 */
#ifndef MUSTER_CKPT_STREAMED_H
#define MUSTER_CKPT_STREAMED_H

#include <stddef.h>

/* memcpy(), and what may stand in its place. */
typedef void copy_f(void *to, const void *from, size_t len);
void near_copy(void *to, const void *from, size_t len);

/* As memcpy(). Others see it as they see what memcpy() has written. */
void streamed_copy(void *to, const void *from, size_t len);

/* Of many, one after the other: others see them so only after streamed_end(), by the same
 * thread. Waiting for each costs small ones what they gain. */
void streamed_put(void *to, const void *from, size_t len);
void streamed_end(void);

#endif
