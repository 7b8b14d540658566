/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "base/aead_lib.h"

#ifdef HAVE_IPSEC_MB

#include "base/key.h"
#include "base/symbol.h"

#include <dlfcn.h>
#include <intel-ipsec-mb.h>
#include <sodium.h>
#include <stdio.h>

enum { KEY_ALIGN = 64 }; /* which its header says for who defines LINUX alone */

/* Its functions for one key take no manager: that is only where they are found. */
struct ipsec {
    struct aead_lib lib;
    _Alignas(KEY_ALIGN) struct gcm_key_data seal_key;
    _Alignas(KEY_ALIGN) struct gcm_key_data sign_key;
    aes_gcm_init_t begin;
    aes_gcm_enc_dec_update_t encrypt, decrypt;
    aes_gcm_enc_dec_finalize_t end_encrypt, end_decrypt;
    aes_gmac_init_t begin_tag;
    aes_gmac_update_t add_to_tag;
    aes_gmac_finalize_t end_tag;
};

static struct ipsec *ipsec_of(struct aead_lib *lib)
{
    return (struct ipsec *)lib;
}

/* --- finding it --- */

struct loaded {
    void *handle;
    __typeof__(imb_get_version) *version;
    __typeof__(alloc_mb_mgr) *create;
    __typeof__(init_mb_mgr_auto) *init;
    __typeof__(free_mb_mgr) *destroy;
};

/* The one whose headers muster was built with: what a manager has lies elsewhere in others. */
static bool load(struct loaded *l)
{
    char name[32];

    snprintf(name, sizeof(name), "libIPSec_MB.so.%d", IMB_VERSION_NUM >> 16);
    /* It stays: there will be other large texts. */
    l->handle = dlopen(name, RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
    return l->handle &&
           symbol_find(l->handle, "imb_get_version", &l->version) &&
           symbol_find(l->handle, "alloc_mb_mgr", &l->create) &&
           symbol_find(l->handle, "init_mb_mgr_auto", &l->init) &&
           symbol_find(l->handle, "free_mb_mgr", &l->destroy) &&
           l->version() == IMB_VERSION_NUM;
}

/* On others it is no faster than libcrypto. */
static bool is_wide(const IMB_MGR *m)
{
    const uint64_t all = IMB_FEATURE_AVX512_SKX | IMB_FEATURE_VAES | IMB_FEATURE_VPCLMULQDQ;

    return (m->features & all) == all;
}

static bool set_up(struct ipsec *i, IMB_MGR *m, const struct aead_keys *keys)
{
    if (!is_wide(m)) {
        return false;
    }
    i->begin = m->gcm256_init;
    i->encrypt = m->gcm256_enc_update;
    i->decrypt = m->gcm256_dec_update;
    i->end_encrypt = m->gcm256_enc_finalize;
    i->end_decrypt = m->gcm256_dec_finalize;
    i->begin_tag = m->gmac256_init;
    i->add_to_tag = m->gmac256_update;
    i->end_tag = m->gmac256_finalize;
    m->gcm256_pre(keys->key, &i->seal_key);
    m->gcm256_pre(keys->sign_key, &i->sign_key);
    return true;
}

/* --- texts --- */

static bool seal(struct aead_lib *lib, const uint8_t *nonce, const struct aead_text *t)
{
    struct ipsec *i = ipsec_of(lib);
    uint8_t *text = t->at + t->n_before, *rest = text + t->len - t->n_away;
    struct gcm_context_data c;

    i->begin(&i->seal_key, &c, nonce, t->at, t->n_before);
    i->encrypt(&i->seal_key, &c, text, text, t->len - t->n_away);
    if (t->n_away) {
        i->encrypt(&i->seal_key, &c, rest, t->away, t->n_away);
    }
    i->end_encrypt(&i->seal_key, &c, text + t->len, AEAD_TAG_BYTES);
    sodium_memzero(&c, sizeof(c));
    return true;
}

static bool unseal(struct aead_lib *lib, const uint8_t *nonce, const struct aead_text *t)
{
    struct ipsec *i = ipsec_of(lib);
    uint8_t *text = t->at + t->n_before, *rest = text + t->len - t->n_away;
    uint8_t tag[AEAD_TAG_BYTES];
    struct gcm_context_data c;

    i->begin(&i->seal_key, &c, nonce, t->at, t->n_before);
    i->decrypt(&i->seal_key, &c, text, text, t->len - t->n_away);
    if (t->n_away) {
        i->decrypt(&i->seal_key, &c, t->away, rest, t->n_away);
    }
    i->end_decrypt(&i->seal_key, &c, tag, sizeof(tag));
    sodium_memzero(&c, sizeof(c));
    return sodium_memcmp(tag, text + t->len, sizeof(tag)) == 0;
}

/* --- tags --- */

enum { NONCE_BYTES = 12 };

static bool sign(struct aead_lib *lib, const uint8_t *nonce, const void *data, size_t len,
                 uint8_t *ret_tag)
{
    struct ipsec *i = ipsec_of(lib);
    struct gcm_context_data c;

    i->begin_tag(&i->sign_key, &c, nonce, NONCE_BYTES);
    i->add_to_tag(&i->sign_key, &c, data, len);
    i->end_tag(&i->sign_key, &c, ret_tag, AEAD_TAG_BYTES);
    sodium_memzero(&c, sizeof(c));
    return true;
}

static bool check(struct aead_lib *lib, const uint8_t *nonce, const void *data, size_t len,
                  const uint8_t *tag)
{
    uint8_t own[AEAD_TAG_BYTES];

    return sign(lib, nonce, data, len, own) && sodium_memcmp(own, tag, sizeof(own)) == 0;
}

/* --- one that is there --- */

static void release(struct aead_lib *lib)
{
    secret_free(ipsec_of(lib));
}

static struct ipsec *make(const struct loaded *l, const struct aead_keys *keys)
{
    struct ipsec *i = secret_alloc(sizeof(*i)); /* whose end is that of a page */
    IMB_MGR *m = i ? l->create(0) : NULL;

    if (m) {
        l->init(m, NULL);
    }
    if (!m || !set_up(i, m, keys)) {
        secret_free(i);
        i = NULL;
    }
    if (m) {
        l->destroy(m);
    }
    return i;
}

struct aead_lib *aead_ipsec_open(const struct aead_keys *keys)
{
    struct loaded l = {0};
    struct ipsec *i = NULL;

    /* What it has for the other cipher is signed with something else. */
    if (keys->cipher == AEAD_AES_256_GMAC && load(&l)) {
        i = make(&l, keys);
    }
    if (l.handle) {
        dlclose(l.handle);
    }
    if (!i) {
        return NULL;
    }
    i->lib = (struct aead_lib){seal, unseal, sign, check, release};
    return &i->lib;
}

#else

struct aead_lib *aead_ipsec_open(const struct aead_keys *keys)
{
    (void)keys;
    return NULL;
}

#endif
