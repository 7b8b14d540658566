/* SPDX-License-Identifier: Apache-2.0 */
/*
 * AES-256-GCM and Poly1305 by libcrypto, which takes a fraction of the time that libsodium
 * takes for large texts. It is loaded by who has one, or has aead_prepare() called, so that the
 * others start as fast as without it; where it is not there, or muster was built without
 * its headers, libsodium does the same work. Private to aead.c.
 */
#ifndef MUSTER_BASE_AEAD_LIB_H
#define MUSTER_BASE_AEAD_LIB_H

#include "base/aead.h"

struct aead_lib;

/* NULL: without it. What it keeps of the key is in its own memory, and wiped by
 * aead_lib_close(), for which NULL is allowed. */
struct aead_lib *aead_lib_open(const uint8_t key[AEAD_KEY_BYTES],
                               const uint8_t sign_key[AEAD_KEY_BYTES]);
void aead_lib_close(struct aead_lib *lib);

/* `n_text` bytes behind the `n_before` first ones, and the tag behind them. False: it
 * could not be done, or was not sealed so. */
bool aead_lib_seal(struct aead_lib *lib, const uint8_t *nonce,
                   const struct aead_text *t);
bool aead_lib_unseal(struct aead_lib *lib, const uint8_t *nonce,
                     const struct aead_text *t);

/* As aead_sign() and aead_check(). */
bool aead_lib_sign(struct aead_lib *lib, const uint8_t *nonce, const void *data,
                   size_t len, uint8_t *ret_tag);
bool aead_lib_check(struct aead_lib *lib, const uint8_t *nonce, const void *data,
                    size_t len, const uint8_t *tag);

#endif
