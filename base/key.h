/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The job key: 32 random bytes that everybody of a run knows and nobody else. It
 * lives in a file, never on a command line or in a worker's environment. In
 * memory it lies in pages of its own that no core dump has: who keeps one longer
 * than a call takes key_hold(), and wipes (explicit_bzero) what it came in.
 */
#ifndef MUSTER_BASE_KEY_H
#define MUSTER_BASE_KEY_H

#include "base/cleanup.h"
#include "base/error.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { JOB_KEY_BYTES = 32 };

/* Makes the file, 0600, with fresh random bytes. An existing one is kept. */
int key_create(const char *path, struct error *e);

/* Reads 32 raw bytes or 64 hexadecimal digits (a newline may follow), so that a
 * Secret can hold the key as text. With `is_private` a file of another user, or
 * one that others may read, is refused; a mounted Secret is read without. The
 * caller wipes the key (sodium_memzero) when done. */
int key_read(const char *path, bool is_private, uint8_t ret_key[JOB_KEY_BYTES],
             struct error *e);

/* A copy in such pages; NULL without memory. key_drop() wipes it; NULL is
 * allowed. */
uint8_t *key_hold(const uint8_t key[JOB_KEY_BYTES]);
void key_drop(uint8_t *key);

/* The same for anything secret: zeroed; freed (and wiped) by secret_free(). */
void *secret_alloc(size_t size);
void secret_free(void *p);

/* What shows that one has the key, for `about` alone, and tells nothing of it. */
enum { KEY_PROOF_BYTES = 32 };
void key_prove(const uint8_t key[JOB_KEY_BYTES], const char *about,
               uint8_t ret[KEY_PROOF_BYTES]);
bool key_is_proved(const uint8_t key[JOB_KEY_BYTES], const char *about,
                   const uint8_t proof[KEY_PROOF_BYTES]);

/* Clears what functions that have returned left below the caller on the stack:
 * registers are saved there by signals, and by the first call of a function in a
 * library, with whatever was copied through them. */
void secret_forget(void);
static inline void cleanup_secret(void *p)
{
    secret_free(*(void **)p);
}
#define _secret_ __attribute__((cleanup(cleanup_secret)))

#endif
