/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "base/aead.h"

#include "base/aead_lib.h"

#include <sodium.h>
#include <string.h>

enum {
    NONCE_BYTES = crypto_aead_chacha20poly1305_ietf_NPUBBYTES,
    LARGE_BYTES = 32 * 1024, /* from where on another library pays */
};

_Static_assert((int)crypto_aead_aes256gcm_NPUBBYTES == (int)NONCE_BYTES &&
                   (int)crypto_aead_aes256gcm_KEYBYTES == (int)AEAD_KEY_BYTES &&
                   (int)crypto_aead_aes256gcm_ABYTES == (int)AEAD_TAG_BYTES &&
                   (int)crypto_aead_chacha20poly1305_ietf_KEYBYTES ==
                       (int)AEAD_KEY_BYTES &&
                   (int)crypto_aead_chacha20poly1305_ietf_ABYTES ==
                       (int)AEAD_TAG_BYTES,
               "both take the same");
_Static_assert(sizeof(crypto_aead_aes256gcm_state) <= AEAD_AES_BYTES &&
                   _Alignof(crypto_aead_aes256gcm_state) <= 16,
               "there is room for it");

/* VAES and VPCLMULQDQ by 512 bits (aead_ipsec.c asks more exactly). */
static bool has_wide_aes(void)
{
#if defined(HAVE_IPSEC_MB) && defined(__x86_64__)
    return __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("vpclmulqdq");
#else
    return false;
#endif
}

enum aead_cipher aead_best(void)
{
    if (sodium_init() < 0 || !crypto_aead_aes256gcm_is_available()) {
        return AEAD_CHACHA20_POLY1305;
    }
    return has_wide_aes() ? AEAD_AES_256_GMAC : AEAD_AES_256_GCM;
}

static const crypto_aead_aes256gcm_state *aes_of(const uint8_t *key)
{
    return (const crypto_aead_aes256gcm_state *)(const void *)key;
}

static void expand(uint8_t to[AEAD_AES_BYTES], const uint8_t key[AEAD_KEY_BYTES])
{
    crypto_aead_aes256gcm_beforenm((crypto_aead_aes256gcm_state *)(void *)to, key);
}

void aead_init(struct aead *a, enum aead_cipher cipher,
               const uint8_t key[AEAD_KEY_BYTES])
{
    static const char label[] = "muster-sign";

    a->cipher = cipher;
    memcpy(a->key, key, AEAD_KEY_BYTES);
    crypto_generichash(a->sign_key, AEAD_KEY_BYTES, (const uint8_t *)label,
                       sizeof(label), key, AEAD_KEY_BYTES);
    if (cipher != AEAD_CHACHA20_POLY1305) {
        expand(a->aes, a->key);
    }
    if (cipher == AEAD_AES_256_GMAC) {
        expand(a->sign_aes, a->sign_key);
    }
}

/* --- other libraries --- */

static struct aead_lib *open_lib(enum aead_cipher cipher, const uint8_t *key,
                                 const uint8_t *sign_key)
{
    struct aead_keys keys = {cipher, key, sign_key};
    struct aead_lib *lib = aead_ipsec_open(&keys);

    return lib ? lib : aead_crypto_open(&keys);
}

static void close_lib(struct aead_lib *lib)
{
    if (lib) {
        lib->close(lib);
    }
}

void aead_release(struct aead *a)
{
    close_lib(a->lib);
    a->lib = NULL;
    a->has_looked = false; /* another key may come */
}

/* What does large ones, or NULL. */
static struct aead_lib *lib_for(struct aead *a, size_t len)
{
    if (len < LARGE_BYTES) {
        return NULL;
    }
    if (!a->has_looked) {
        a->has_looked = true;
        a->lib = open_lib(a->cipher, a->key, a->sign_key);
    }
    return a->lib;
}

/* ChaCha20 is libsodium's, which is as fast there. */
static struct aead_lib *lib_to_seal(struct aead *a, size_t len)
{
    return a->cipher == AEAD_CHACHA20_POLY1305 ? NULL : lib_for(a, len);
}

void aead_prepare(void)
{
    static const uint8_t none[AEAD_KEY_BYTES];

    close_lib(open_lib(aead_best(), none, none));
}

/* --- texts --- */

static void make_nonce(uint64_t count, uint8_t nonce[NONCE_BYTES])
{
    memset(nonce, 0, NONCE_BYTES);
    for (int i = 0; i < 8; i++) {
        nonce[NONCE_BYTES - 1 - i] = (uint8_t)(count >> (8 * i));
    }
}

bool aead_seal(struct aead *a, uint64_t count, const struct aead_text *t)
{
    uint8_t nonce[NONCE_BYTES], *text = t->at + t->n_before;
    struct aead_lib *lib = lib_to_seal(a, t->len);

    make_nonce(count, nonce);
    if (lib) {
        return lib->seal(lib, nonce, t);
    }
    if (t->n_away) {
        memcpy(text + t->len - t->n_away, t->away, t->n_away);
    }
    if (a->cipher != AEAD_CHACHA20_POLY1305) {
        return crypto_aead_aes256gcm_encrypt_afternm(
                   text, NULL, text, t->len, t->at, t->n_before, NULL, nonce,
                   aes_of(a->aes)) == 0;
    }
    return crypto_aead_chacha20poly1305_ietf_encrypt(text, NULL, text, t->len, t->at,
                                                     t->n_before, NULL, nonce,
                                                     a->key) == 0;
}

static bool open_here(const struct aead *a, const uint8_t *nonce,
                      const struct aead_text *t)
{
    uint8_t *text = t->at + t->n_before;

    return (a->cipher != AEAD_CHACHA20_POLY1305
                ? crypto_aead_aes256gcm_decrypt_afternm(
                      text, NULL, NULL, text, t->len, t->at, t->n_before, nonce,
                      aes_of(a->aes))
                : crypto_aead_chacha20poly1305_ietf_decrypt(
                      text, NULL, NULL, text, t->len, t->at, t->n_before, nonce,
                      a->key)) == 0;
}

bool aead_open(struct aead *a, uint64_t count, const struct aead_text *t)
{
    const uint8_t *end = t->at + t->n_before + t->len;
    struct aead_lib *lib = lib_to_seal(a, t->len);
    struct aead_text plain = *t;
    uint8_t nonce[NONCE_BYTES];

    make_nonce(count, nonce);
    if (lib) { /* a large one: it has a tag */
        plain.len -= AEAD_TAG_BYTES;
        return lib->unseal(lib, nonce, &plain);
    }
    if (!open_here(a, nonce, t)) {
        return false;
    }
    if (t->n_away) {
        memcpy(t->away, end - AEAD_TAG_BYTES - t->n_away, t->n_away);
    }
    return true;
}

/* --- tags --- */

static bool sign_here(const struct aead *a, const uint8_t *nonce, const void *data,
                      size_t len, uint8_t *ret_tag)
{
    uint8_t nothing[1] = {0};

    return (a->cipher == AEAD_AES_256_GMAC
                ? crypto_aead_aes256gcm_encrypt_detached_afternm(
                      nothing, ret_tag, NULL, nothing, 0, data, len, NULL, nonce,
                      aes_of(a->sign_aes))
                : crypto_aead_chacha20poly1305_ietf_encrypt_detached(
                      nothing, ret_tag, NULL, nothing, 0, data, len, NULL, nonce,
                      a->sign_key)) == 0;
}

bool aead_sign(struct aead *a, uint64_t count, const void *data, size_t len,
               uint8_t ret_tag[AEAD_TAG_BYTES])
{
    uint8_t nonce[NONCE_BYTES];
    struct aead_lib *lib = lib_for(a, len);

    make_nonce(count, nonce);
    return lib ? lib->sign(lib, nonce, data, len, ret_tag)
               : sign_here(a, nonce, data, len, ret_tag);
}

bool aead_check(struct aead *a, uint64_t count, const void *data, size_t len,
                const uint8_t tag[AEAD_TAG_BYTES])
{
    uint8_t nonce[NONCE_BYTES], own[AEAD_TAG_BYTES];
    struct aead_lib *lib = lib_for(a, len);

    make_nonce(count, nonce);
    return lib ? lib->check(lib, nonce, data, len, tag)
               : sign_here(a, nonce, data, len, own) &&
                     sodium_memcmp(own, tag, AEAD_TAG_BYTES) == 0;
}
