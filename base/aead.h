/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the frames of a channel are sealed with: authenticated encryption, so that who
 * lacks the key can neither read, nor make, nor change one. ChaCha20-Poly1305 (IETF)
 * is for any processor; AES-256-GCM is several times as fast where there are
 * instructions for it, and is not used elsewhere: without them it would tell its key
 * by the time that it takes. All have keys of 32 bytes and tags of 16; a nonce counts
 * the frames of a key, and comes once.
 *
 * Who has a struct aead sees to it that it lies where no core dump has it
 * (base/key.h), and wipes it.
 */
#ifndef MUSTER_BASE_AEAD_H
#define MUSTER_BASE_AEAD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { AEAD_KEY_BYTES = 32, AEAD_TAG_BYTES = 16, AEAD_AES_BYTES = 512 };

/* From the one for any processor to the fastest. */
enum aead_cipher {
    AEAD_CHACHA20_POLY1305,
    AEAD_AES_256_GCM,
    AEAD_AES_256_GMAC, /* seals as that, and signs by it as well */
};

struct aead {
    /* The keys as AES has them. */
    _Alignas(16) uint8_t aes[AEAD_AES_BYTES], sign_aes[AEAD_AES_BYTES];
    uint8_t key[AEAD_KEY_BYTES], sign_key[AEAD_KEY_BYTES];
    enum aead_cipher cipher;
    struct aead_lib *lib; /* for large texts, from the first one on, or NULL */
    bool has_looked;      /* for that */
};

/* Bytes that are sealed: `n_before` of them are not hidden, but can be changed no more
 * than the `len` behind those, which are sealed and opened where they lie; but for the
 * last `n_away` of them, which as long as they are not sealed lie at `away`. */
struct aead_text {
    uint8_t *at;
    size_t n_before, len;
    void *away; /* only read where it is sealed */
    size_t n_away;
};

/* The last one that this processor has instructions for, and muster a library that uses
 * them. */
enum aead_cipher aead_best(void);

/* Loads what large texts are sealed with, which takes milliseconds: for a thread, ahead
 * of the first one. Any thread may call, also while others seal. */
void aead_prepare(void);

/* Of memory that is zeroed. */
void aead_init(struct aead *a, enum aead_cipher cipher,
               const uint8_t key[AEAD_KEY_BYTES]);
/* What it has beside itself. Also for one that is zeroed. */
void aead_release(struct aead *a);

/* There has to be room for a tag behind the text. False: it could not be done, and what
 * lies there is of no use. */
bool aead_seal(struct aead *a, uint64_t count, const struct aead_text *t);
/* The tag is the end of the text. False: it was not sealed so; nothing of what lies
 * there, or at `away`, may be used. */
bool aead_open(struct aead *a, uint64_t count, const struct aead_text *t);

/* The same for bytes that anybody may read: the tag shows that they are what was signed,
 * for that count, which is used up as by a text that is sealed. It is that of an empty
 * text, by a key made of this one: of ChaCha20-Poly1305, also for AEAD_AES_256_GCM, as it
 * takes less time than what AES-GCM has for it; but where a processor multiplies four
 * blocks at once that takes less than half as long, and AEAD_AES_256_GMAC has that. */
bool aead_sign(struct aead *a, uint64_t count, const void *data, size_t len,
               uint8_t ret_tag[AEAD_TAG_BYTES]);
bool aead_check(struct aead *a, uint64_t count, const void *data, size_t len,
                const uint8_t tag[AEAD_TAG_BYTES]);

#endif
