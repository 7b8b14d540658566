/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The libraries that seal and sign large texts in a fraction of the time that libsodium
 * takes:
 *
 *   aead_ipsec.c   libIPSec_MB, on processors that do four blocks of AES at once
 *   aead_crypto.c  libcrypto, on all others
 *
 * One is loaded by who has a large text, or has aead_prepare() called, so that the others
 * start as fast as without it; where it is not there, or muster was built without its
 * headers, the next one does the same work, and libsodium at last. Private to aead.c.
 */
#ifndef MUSTER_BASE_AEAD_LIB_H
#define MUSTER_BASE_AEAD_LIB_H

#include "base/aead.h"

/* What one was made for. */
struct aead_keys {
    enum aead_cipher cipher;
    const uint8_t *key, *sign_key; /* AEAD_KEY_BYTES each; only read while it is made */
};

/* One that is loaded, with its keys; what it keeps of them is in its own memory. */
struct aead_lib {
    /* A whole text, and the tag behind it, which `len` does not count in either. False: it
     * could not be done, or was not sealed so. */
    bool (*seal)(struct aead_lib *lib, const uint8_t *nonce, const struct aead_text *t);
    bool (*unseal)(struct aead_lib *lib, const uint8_t *nonce, const struct aead_text *t);
    /* As aead_sign() and aead_check(). */
    bool (*sign)(struct aead_lib *lib, const uint8_t *nonce, const void *data, size_t len,
                 uint8_t *ret_tag);
    bool (*check)(struct aead_lib *lib, const uint8_t *nonce, const void *data, size_t len,
                  const uint8_t *tag);
    /* Wipes its keys, and frees it. */
    void (*close)(struct aead_lib *lib);
};

/* NULL: it is not there, or is not for this cipher or processor. */
struct aead_lib *aead_ipsec_open(const struct aead_keys *keys);
struct aead_lib *aead_crypto_open(const struct aead_keys *keys);

#endif
