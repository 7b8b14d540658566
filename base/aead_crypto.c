/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "base/aead_lib.h"

#ifdef HAVE_LIBCRYPTO

#include "base/symbol.h"

#include <dlfcn.h>
#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/opensslv.h>
#include <stdlib.h>

#define TEXT_OF(number) #number
#define NAME_OF(version) "libcrypto.so." TEXT_OF(version)

enum { OPEN = 0, SEAL = 1, CHECK = 2, SIGN = 3, N_CONTEXTS };

/* As those of openssl/evp.h, which say what they do. */
struct crypto {
    struct aead_lib lib;
    void *handle;
    EVP_CIPHER_CTX *contexts[N_CONTEXTS];
    __typeof__(OPENSSL_init_crypto) *init;
    __typeof__(EVP_CIPHER_CTX_new) *create;
    __typeof__(EVP_CIPHER_CTX_free) *destroy;
    __typeof__(EVP_CIPHER_CTX_ctrl) *control;
    __typeof__(EVP_CipherInit_ex) *begin;
    __typeof__(EVP_CipherUpdate) *update;
    __typeof__(EVP_CipherFinal_ex) *end;
    __typeof__(EVP_aes_256_gcm) *aes;
    __typeof__(EVP_chacha20_poly1305) *poly;
};

static struct crypto *crypto_of(struct aead_lib *lib)
{
    return (struct crypto *)lib;
}

/* As EVP_CipherInit_ex() calls it. */
static int is_making(int which)
{
    return which == SEAL || which == SIGN;
}

static bool load(struct crypto *c)
{
    /* It stays: there will be other large texts, and it keeps memory of its own. */
    c->handle = dlopen(NAME_OF(OPENSSL_SHLIB_VERSION),
                       RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
    return c->handle &&
           symbol_find(c->handle, "OPENSSL_init_crypto", &c->init) &&
           symbol_find(c->handle, "EVP_CIPHER_CTX_new", &c->create) &&
           symbol_find(c->handle, "EVP_CIPHER_CTX_free", &c->destroy) &&
           symbol_find(c->handle, "EVP_CIPHER_CTX_ctrl", &c->control) &&
           symbol_find(c->handle, "EVP_CipherInit_ex", &c->begin) &&
           symbol_find(c->handle, "EVP_CipherUpdate", &c->update) &&
           symbol_find(c->handle, "EVP_CipherFinal_ex", &c->end) &&
           symbol_find(c->handle, "EVP_aes_256_gcm", &c->aes) &&
           symbol_find(c->handle, "EVP_chacha20_poly1305", &c->poly);
}

/* Its configuration is for programs that speak TLS; what is to be done at the end of
 * the process is done by the kernel. */
static bool set_up(struct crypto *c, const struct aead_keys *keys)
{
    if (!c->init(OPENSSL_INIT_NO_LOAD_CONFIG | OPENSSL_INIT_NO_ATEXIT, NULL)) {
        return false;
    }
    for (int i = 0; i < N_CONTEXTS; i++) {
        bool by_poly = i >= CHECK ? keys->cipher != AEAD_AES_256_GMAC
                                  : keys->cipher == AEAD_CHACHA20_POLY1305;

        c->contexts[i] = c->create();
        if (!c->contexts[i] ||
            !c->begin(c->contexts[i], by_poly ? c->poly() : c->aes(), NULL,
                      i >= CHECK ? keys->sign_key : keys->key, NULL, is_making(i))) {
            return false;
        }
    }
    return true;
}

static void release(struct aead_lib *lib)
{
    struct crypto *c = crypto_of(lib);

    for (int i = 0; i < N_CONTEXTS; i++) {
        if (c->contexts[i]) {
            c->destroy(c->contexts[i]);
        }
    }
    if (c->handle) {
        dlclose(c->handle);
    }
    free(c);
}

/* --- texts --- */

static bool run(struct crypto *c, int which, const uint8_t *nonce,
                const struct aead_text *t)
{
    EVP_CIPHER_CTX *ctx = c->contexts[which];
    uint8_t *text = t->at + t->n_before, *rest = text + t->len - t->n_away;
    uint8_t *away = t->n_away ? t->away : rest;
    int n;

    return c->begin(ctx, NULL, NULL, NULL, nonce, is_making(which)) &&
           c->update(ctx, NULL, &n, t->at, (int)t->n_before) &&
           c->update(ctx, text, &n, text, (int)(t->len - t->n_away)) &&
           c->update(ctx, which == SEAL ? rest : away, &n,
                     which == SEAL ? away : rest, (int)t->n_away) &&
           (which == SEAL || c->control(ctx, EVP_CTRL_AEAD_SET_TAG,
                                        AEAD_TAG_BYTES, text + t->len)) &&
           c->end(ctx, text + t->len, &n) > 0;
}

static bool seal(struct aead_lib *lib, const uint8_t *nonce, const struct aead_text *t)
{
    struct crypto *c = crypto_of(lib);

    return run(c, SEAL, nonce, t) &&
           c->control(c->contexts[SEAL], EVP_CTRL_AEAD_GET_TAG, AEAD_TAG_BYTES,
                      t->at + t->n_before + t->len);
}

static bool unseal(struct aead_lib *lib, const uint8_t *nonce, const struct aead_text *t)
{
    return run(crypto_of(lib), OPEN, nonce, t);
}

/* --- tags: all of it is bytes that are not hidden, and the text is empty --- */

static bool read_all(struct crypto *c, int which, const uint8_t *nonce, const void *data,
                     size_t len)
{
    int n;

    return c->begin(c->contexts[which], NULL, NULL, NULL, nonce, is_making(which)) &&
           c->update(c->contexts[which], NULL, &n, data, (int)len);
}

static bool sign(struct aead_lib *lib, const uint8_t *nonce, const void *data, size_t len,
                 uint8_t *ret_tag)
{
    struct crypto *c = crypto_of(lib);
    EVP_CIPHER_CTX *ctx = c->contexts[SIGN];
    uint8_t nothing[1];
    int n;

    return read_all(c, SIGN, nonce, data, len) && c->end(ctx, nothing, &n) > 0 &&
           c->control(ctx, EVP_CTRL_AEAD_GET_TAG, AEAD_TAG_BYTES, ret_tag);
}

static bool check(struct aead_lib *lib, const uint8_t *nonce, const void *data, size_t len,
                  const uint8_t *tag)
{
    struct crypto *c = crypto_of(lib);
    EVP_CIPHER_CTX *ctx = c->contexts[CHECK];
    uint8_t nothing[1];
    int n;

    return read_all(c, CHECK, nonce, data, len) &&
           c->control(ctx, EVP_CTRL_AEAD_SET_TAG, AEAD_TAG_BYTES,
                      (void *)(uintptr_t)tag) &&
           c->end(ctx, nothing, &n) > 0;
}

struct aead_lib *aead_crypto_open(const struct aead_keys *keys)
{
    struct crypto *c = calloc(1, sizeof(*c));

    if (!c) {
        return NULL;
    }
    c->lib = (struct aead_lib){seal, unseal, sign, check, release};
    if (!load(c) || !set_up(c, keys)) {
        release(&c->lib);
        return NULL;
    }
    return &c->lib;
}

#else

struct aead_lib *aead_crypto_open(const struct aead_keys *keys)
{
    (void)keys;
    return NULL;
}

#endif
