/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "base/aead_lib.h"

#ifdef HAVE_LIBCRYPTO

#include <dlfcn.h>
#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/opensslv.h>
#include <stdlib.h>

#define TEXT_OF(number) #number
#define NAME_OF(version) "libcrypto.so." TEXT_OF(version)

enum { OPEN = 0, SEAL = 1, CHECK = 2, SIGN = 3, N_CONTEXTS };

/* As those of openssl/evp.h, which say what they do. */
struct aead_lib {
    void *handle;
    EVP_CIPHER_CTX *contexts[4]; /* to open, to seal; to check, to sign */
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

/* As EVP_CipherInit_ex() calls it. */
static int is_making(int which)
{
    return which == SEAL || which == SIGN;
}

static bool look_up(const struct aead_lib *lib, const char *name, void *to)
{
    *(void **)to = dlsym(lib->handle, name);
    return *(void **)to != NULL;
}

static bool load(struct aead_lib *lib)
{
    /* It stays: there will be other large texts, and it keeps memory of its own. */
    lib->handle = dlopen(NAME_OF(OPENSSL_SHLIB_VERSION),
                         RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
    return lib->handle &&
           look_up(lib, "OPENSSL_init_crypto", &lib->init) &&
           look_up(lib, "EVP_CIPHER_CTX_new", &lib->create) &&
           look_up(lib, "EVP_CIPHER_CTX_free", &lib->destroy) &&
           look_up(lib, "EVP_CIPHER_CTX_ctrl", &lib->control) &&
           look_up(lib, "EVP_CipherInit_ex", &lib->begin) &&
           look_up(lib, "EVP_CipherUpdate", &lib->update) &&
           look_up(lib, "EVP_CipherFinal_ex", &lib->end) &&
           look_up(lib, "EVP_aes_256_gcm", &lib->aes) &&
           look_up(lib, "EVP_chacha20_poly1305", &lib->poly);
}

/* Its configuration is for programs that speak TLS; what is to be done at the end of
 * the process is done by the kernel. */
static bool set_up(struct aead_lib *lib, const uint8_t *key, const uint8_t *sign_key)
{
    if (!lib->init(OPENSSL_INIT_NO_LOAD_CONFIG | OPENSSL_INIT_NO_ATEXIT, NULL)) {
        return false;
    }
    for (int i = 0; i < N_CONTEXTS; i++) {
        lib->contexts[i] = lib->create();
        if (!lib->contexts[i] ||
            !lib->begin(lib->contexts[i], i < CHECK ? lib->aes() : lib->poly(), NULL,
                        i < CHECK ? key : sign_key, NULL, is_making(i))) {
            return false;
        }
    }
    return true;
}

struct aead_lib *aead_lib_open(const uint8_t key[AEAD_KEY_BYTES],
                               const uint8_t sign_key[AEAD_KEY_BYTES])
{
    struct aead_lib *lib = calloc(1, sizeof(*lib));

    if (lib && load(lib) && set_up(lib, key, sign_key)) {
        return lib;
    }
    aead_lib_close(lib);
    return NULL;
}

void aead_lib_close(struct aead_lib *lib)
{
    if (!lib) {
        return;
    }
    for (int i = 0; i < N_CONTEXTS; i++) {
        if (lib->contexts[i]) {
            lib->destroy(lib->contexts[i]);
        }
    }
    if (lib->handle) {
        dlclose(lib->handle);
    }
    free(lib);
}

static bool run(struct aead_lib *lib, int which, const uint8_t *nonce,
                const struct aead_text *t)
{
    EVP_CIPHER_CTX *c = lib->contexts[which];
    uint8_t *text = t->at + t->n_before, *rest = text + t->len - t->n_away;
    uint8_t *away = t->n_away ? t->away : rest;
    int n;

    return lib->begin(c, NULL, NULL, NULL, nonce, is_making(which)) &&
           lib->update(c, NULL, &n, t->at, (int)t->n_before) &&
           lib->update(c, text, &n, text, (int)(t->len - t->n_away)) &&
           lib->update(c, which == SEAL ? rest : away, &n,
                       which == SEAL ? away : rest, (int)t->n_away) &&
           (which == SEAL || lib->control(c, EVP_CTRL_AEAD_SET_TAG,
                                          AEAD_TAG_BYTES, text + t->len)) &&
           lib->end(c, text + t->len, &n) > 0;
}

bool aead_lib_seal(struct aead_lib *lib, const uint8_t *nonce,
                   const struct aead_text *t)
{
    return run(lib, SEAL, nonce, t) &&
           lib->control(lib->contexts[SEAL], EVP_CTRL_AEAD_GET_TAG, AEAD_TAG_BYTES,
                        t->at + t->n_before + t->len);
}

bool aead_lib_unseal(struct aead_lib *lib, const uint8_t *nonce,
                     const struct aead_text *t)
{
    return run(lib, OPEN, nonce, t);
}

/* All of it is bytes that are not hidden, and the text is empty. */
static bool read_all(struct aead_lib *lib, int which, const uint8_t *nonce,
                     const void *data, size_t len)
{
    int n;

    return lib->begin(lib->contexts[which], NULL, NULL, NULL, nonce, is_making(which)) &&
           lib->update(lib->contexts[which], NULL, &n, data, (int)len);
}

bool aead_lib_sign(struct aead_lib *lib, const uint8_t *nonce, const void *data,
                   size_t len, uint8_t *ret_tag)
{
    EVP_CIPHER_CTX *c = lib->contexts[SIGN];
    uint8_t nothing[1];
    int n;

    return read_all(lib, SIGN, nonce, data, len) && lib->end(c, nothing, &n) > 0 &&
           lib->control(c, EVP_CTRL_AEAD_GET_TAG, AEAD_TAG_BYTES, ret_tag);
}

bool aead_lib_check(struct aead_lib *lib, const uint8_t *nonce, const void *data,
                    size_t len, const uint8_t *tag)
{
    EVP_CIPHER_CTX *c = lib->contexts[CHECK];
    uint8_t nothing[1];
    int n;

    return read_all(lib, CHECK, nonce, data, len) &&
           lib->control(c, EVP_CTRL_AEAD_SET_TAG, AEAD_TAG_BYTES,
                        (void *)(uintptr_t)tag) &&
           lib->end(c, nothing, &n) > 0;
}

#else

struct aead_lib *aead_lib_open(const uint8_t key[AEAD_KEY_BYTES],
                               const uint8_t sign_key[AEAD_KEY_BYTES])
{
    (void)key, (void)sign_key;
    return NULL;
}

void aead_lib_close(struct aead_lib *lib)
{
    (void)lib;
}

bool aead_lib_seal(struct aead_lib *lib, const uint8_t *nonce,
                   const struct aead_text *t)
{
    (void)lib, (void)nonce, (void)t;
    return false;
}

bool aead_lib_unseal(struct aead_lib *lib, const uint8_t *nonce,
                     const struct aead_text *t)
{
    (void)lib, (void)nonce, (void)t;
    return false;
}

bool aead_lib_sign(struct aead_lib *lib, const uint8_t *nonce, const void *data,
                   size_t len, uint8_t *ret_tag)
{
    (void)lib, (void)nonce, (void)data, (void)len, (void)ret_tag;
    return false;
}

bool aead_lib_check(struct aead_lib *lib, const uint8_t *nonce, const void *data,
                    size_t len, const uint8_t *tag)
{
    (void)lib, (void)nonce, (void)data, (void)len, (void)tag;
    return false;
}

#endif
