/* SPDX-License-Identifier: Apache-2.0 */
/* What seals frames: of each cipher, by each library, what others say that comes out, and
 * that nothing but what was sealed opens. */
#include <config.h>

#include "base/aead.h"
#include "base/cleanup.h"
#include "tests/lib/tap.h"

#include <dlfcn.h>
#include <sodium.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { BEFORE = 4, MOST = 3 << 20 };

static const uint8_t key[AEAD_KEY_BYTES] = {1, 2, 3};

/* --- libraries that are not there --- */

enum { N_LIBRARIES = 2 };

static const char *const libraries[N_LIBRARIES] = {"libIPSec_MB", "libcrypto"};
static unsigned n_missing; /* so many of the first ones */

void *__real_dlopen(const char *name, int flags);
void *__wrap_dlopen(const char *name, int flags);

void *__wrap_dlopen(const char *name, int flags)
{
    for (unsigned i = 0; i < n_missing; i++) {
        if (strncmp(name, libraries[i], strlen(libraries[i])) == 0) {
            return NULL;
        }
    }
    return __real_dlopen(name, flags);
}

/* --- texts --- */

static struct aead make(enum aead_cipher cipher, const uint8_t *with)
{
    struct aead a;

    memset(&a, 0, sizeof(a));
    aead_init(&a, cipher, with);
    return a;
}

static void fill(uint8_t *to, size_t len)
{
    for (size_t i = 0; i < len; i++) {
        to[i] = (uint8_t)(i * 7 + i / 251);
    }
}

/* Cases 13 and 14 of the paper that GCM is from: a key and a nonce of zeros. */
static void test_vectors(void)
{
    static const uint8_t nothing[AEAD_KEY_BYTES];
    static const uint8_t tag_of_none[] = {
        0x53, 0x0f, 0x8a, 0xfb, 0xc7, 0x45, 0x36, 0xb9,
        0xa9, 0x63, 0xb4, 0xf1, 0xc4, 0xcb, 0x73, 0x8b};
    static const uint8_t of_zeros[] = {
        0xce, 0xa7, 0x40, 0x3d, 0x4d, 0x60, 0x6b, 0x6e,
        0x07, 0x4e, 0xc5, 0xd3, 0xba, 0xf3, 0x9d, 0x18,
        0xd0, 0xd1, 0xc8, 0xa7, 0x99, 0x99, 0x6b, 0xf0,
        0x26, 0x5b, 0x98, 0xb5, 0xd4, 0x8a, 0xb9, 0x19};
    struct aead a = make(AEAD_AES_256_GCM, nothing);
    uint8_t text[16 + AEAD_TAG_BYTES] = {0};

    aead_seal(&a, 0, &(struct aead_text){.at = text});
    ok(memcmp(text, tag_of_none, sizeof(tag_of_none)) == 0, "the tag of nothing");
    memset(text, 0, sizeof(text));
    aead_seal(&a, 0, &(struct aead_text){.at = text, .len = 16});
    ok(memcmp(text, of_zeros, sizeof(of_zeros)) == 0, "16 zeros");
}

/* As libsodium does it, with a nonce that ends with the count. */
static void seal_plainly(enum aead_cipher cipher, uint64_t count, uint8_t *at,
                         size_t len)
{
    uint8_t nonce[12] = {0};

    for (int i = 0; i < 8; i++) {
        nonce[4 + i] = (uint8_t)(count >> (56 - 8 * i));
    }
    (cipher == AEAD_CHACHA20_POLY1305 ? crypto_aead_chacha20poly1305_ietf_encrypt
                                      : crypto_aead_aes256gcm_encrypt)(
        at + BEFORE, NULL, at + BEFORE, len, at, BEFORE, NULL, nonce, key);
}

static void test_sizes(enum aead_cipher cipher)
{
    static const size_t sizes[] = {0, 1, 2, 15, 16, 17, 255, 4096, 32767, 32768,
                                   32769, 131074, 1 << 20, MOST - 5};
    _free_ uint8_t *plain = malloc(MOST + 64), *sealed = malloc(MOST + 64),
                   *other = malloc(MOST + 64);
    struct aead a = make(cipher, key);

    for (size_t i = 0; i < ARRAY_SIZE(sizes); i++) {
        uint64_t count = UINT64_C(0x0102030405060708) * i;
        size_t all = BEFORE + sizes[i];
        struct aead_text text = {.at = sealed, .n_before = BEFORE, .len = sizes[i]};

        fill(plain, all);
        memcpy(sealed, plain, all);
        memcpy(other, plain, all);
        aead_seal(&a, count, &text);
        seal_plainly(cipher, count, other, sizes[i]);
        ok(memcmp(sealed, other, all + AEAD_TAG_BYTES) == 0,
           "%zu bytes, as libsodium seals them", sizes[i]);
        text.len += AEAD_TAG_BYTES;
        ok(aead_open(&a, count, &text) && memcmp(sealed, plain, all) == 0,
           "and back");
    }
    aead_release(&a);
}

/* Sealed from elsewhere, and opened to elsewhere, but for the first two bytes: what is
 * sealed is the same, and what it was sealed from is not touched. */
static void test_away(enum aead_cipher cipher)
{
    static const size_t sizes[] = {2, 3, 18, 4096, 32768, 131074};
    _free_ uint8_t *plain = malloc(MOST), *sealed = malloc(MOST),
                   *other = malloc(MOST), *away = malloc(MOST);
    struct aead a = make(cipher, key);

    for (size_t i = 0; i < ARRAY_SIZE(sizes); i++) {
        size_t n = sizes[i] - 2, all = BEFORE + sizes[i];
        struct aead_text text = {sealed, BEFORE, sizes[i], away, n};

        fill(plain, all);
        memcpy(other, plain, all);
        seal_plainly(cipher, 9, other, sizes[i]);
        memset(sealed, 0, all + AEAD_TAG_BYTES);
        memcpy(sealed, plain, BEFORE + 2);
        memcpy(away, plain + BEFORE + 2, n);
        ok(aead_seal(&a, 9, &text) &&
           memcmp(sealed, other, all + AEAD_TAG_BYTES) == 0 &&
           memcmp(away, plain + BEFORE + 2, n) == 0, "%zu bytes from elsewhere", n);
        memset(away, 0, n);
        text.len += AEAD_TAG_BYTES;
        ok(aead_open(&a, 9, &text) && memcmp(sealed, plain, BEFORE + 2) == 0 &&
           memcmp(away, plain + BEFORE + 2, n) == 0, "and to there");
    }
    aead_release(&a);
}

/* Opens `len` bytes, of which one is changed; or says they have another count. */
static bool opens(struct aead *a, size_t len, size_t flip, uint64_t count)
{
    _free_ uint8_t *at = malloc(BEFORE + len + AEAD_TAG_BYTES);
    struct aead_text text = {.at = at, .n_before = BEFORE, .len = len};

    fill(at, BEFORE + len);
    aead_seal(a, 7, &text);
    text.len += AEAD_TAG_BYTES;
    if (flip < BEFORE + text.len) {
        at[flip] ^= 0x10;
    }
    return aead_open(a, count, &text);
}

static void test_changed(enum aead_cipher cipher)
{
    static const uint8_t other[AEAD_KEY_BYTES] = {1, 2, 4};
    enum { SMALL = 100, LARGE = 131072 };
    struct aead a = make(cipher, key), b = make(cipher, other);
    uint8_t at[SMALL + AEAD_TAG_BYTES] = {0};
    struct aead_text text = {.at = at, .len = SMALL};
    int n = 0;

    for (size_t i = 0; i < BEFORE + SMALL + AEAD_TAG_BYTES; i++) {
        n += opens(&a, SMALL, i, 7);
    }
    is_int(n, 0, "none opens that has a byte changed");
    for (size_t i = 0; i < BEFORE + LARGE + AEAD_TAG_BYTES; i += 4099) {
        n += opens(&a, LARGE, i, 7);
    }
    n += opens(&a, LARGE, BEFORE + LARGE + AEAD_TAG_BYTES - 1, 7);
    is_int(n, 0, "nor of large ones");
    ok(!opens(&a, SMALL, SIZE_MAX, 8), "nor with another count");
    ok(!opens(&a, LARGE, SIZE_MAX, 6), "nor a large one");
    ok(opens(&a, SMALL, SIZE_MAX, 7) && opens(&a, LARGE, SIZE_MAX, 7),
       "as they are they do");
    aead_seal(&a, 1, &text);
    text.len += AEAD_TAG_BYTES;
    ok(!aead_open(&b, 1, &text), "with another key it does not");
    text.len = AEAD_TAG_BYTES - 1;
    ok(!aead_open(&a, 1, &text), "less than a tag does not");
    aead_release(&a);
    aead_release(&b);
}

/* What libsodium says that the tag of bytes is which are not hidden, by a key made of
 * this one. */
static void sign_plainly(enum aead_cipher cipher, uint64_t count, const uint8_t *data,
                         size_t len, uint8_t *tag)
{
    uint8_t nonce[12] = {0}, none[1], by[AEAD_KEY_BYTES];

    for (int i = 0; i < 8; i++) {
        nonce[4 + i] = (uint8_t)(count >> (56 - 8 * i));
    }
    crypto_generichash(by, sizeof(by), (const uint8_t *)"muster-sign",
                       sizeof("muster-sign"), key, sizeof(key));
    (cipher == AEAD_AES_256_GMAC ? crypto_aead_aes256gcm_encrypt_detached
                                 : crypto_aead_chacha20poly1305_ietf_encrypt_detached)(
        none, tag, NULL, none, 0, data, len, NULL, nonce, by);
}

static void test_signed(enum aead_cipher cipher)
{
    static const size_t sizes[] = {1, 16, 4096, 32767, 32768, 262144, MOST};
    static const uint8_t other[AEAD_KEY_BYTES] = {1, 2, 4};
    _free_ uint8_t *data = malloc(MOST);
    struct aead a = make(cipher, key), b = make(cipher, other);
    uint8_t tag[AEAD_TAG_BYTES], plain[AEAD_TAG_BYTES];
    int n_wrong = 0;

    fill(data, MOST);
    for (size_t i = 0; i < ARRAY_SIZE(sizes); i++) {
        size_t len = sizes[i];

        sign_plainly(cipher, 9, data, len, plain);
        ok(aead_sign(&a, 9, data, len, tag) && memcmp(tag, plain, sizeof(tag)) == 0,
           "%zu bytes, as libsodium signs them", len);
        ok(aead_check(&a, 9, data, len, tag), "and they are those");
        n_wrong += aead_check(&a, 8, data, len, tag) + aead_check(&b, 9, data, len, tag) +
                   aead_check(&a, 9, data, len - 1, tag);
        for (size_t at = 0; at < len; at += len / 5 + 1) {
            data[at] ^= 4;
            n_wrong += aead_check(&a, 9, data, len, tag);
            data[at] ^= 4;
        }
        for (int at = 0; at < AEAD_TAG_BYTES; at++) {
            tag[at] ^= 0x80;
            n_wrong += aead_check(&a, 9, data, len, tag);
            tag[at] ^= 0x80;
        }
    }
    is_int(n_wrong, 0, "no others, nor for another count, key or tag");
    aead_release(&a);
    aead_release(&b);
}

/* --- what is loaded --- */

/* As muster was built, and for this processor; NULL: none. */
static const char *library_for(enum aead_cipher cipher)
{
#ifdef HAVE_IPSEC_MB
    if (cipher == AEAD_AES_256_GMAC) {
        return libraries[0];
    }
#endif
#ifdef HAVE_LIBCRYPTO
    return libraries[1];
#else
    (void)cipher;
    return NULL;
#endif
}

static bool is_loaded(const char *library)
{
    _fclose_ FILE *maps = fopen("/proc/self/maps", "re");
    char line[4096];

    while (maps && fgets(line, sizeof(line), maps)) {
        if (strstr(line, library)) {
            return true;
        }
    }
    return false;
}

/* What one has loaded stays for the next one. */
static void test_prepare(void)
{
    const char *library = library_for(aead_best());

    if (!library) {
        aead_prepare();
        skip("built without libcrypto and libIPSec_MB");
        return;
    }
    ok(!is_loaded(library), "nothing is loaded before it is wanted");
    aead_prepare();
    ok(is_loaded(library), "what large ones take is there, and stays: %s", library);
}

/* One that was released gets another key, and looks for that again. */
static void test_again(void)
{
    static uint8_t at[32768 + AEAD_TAG_BYTES];
    struct aead_text text = {.at = at, .len = 32768};
    struct aead a = make(AEAD_AES_256_GCM, key);

    for (int i = 0; i < 2; i++) {
        aead_seal(&a, 1, &text);
        ok((a.lib != NULL) == (library_for(AEAD_AES_256_GCM) != NULL),
           "large ones have another library, time %d", i + 1);
        aead_release(&a);
        aead_init(&a, AEAD_AES_256_GCM, key);
    }
}

static void test_all(enum aead_cipher cipher)
{
    test_sizes(cipher);
    test_away(cipher);
    test_changed(cipher);
    test_signed(cipher);
}

int main(void)
{
    enum aead_cipher most;

    if (sodium_init() < 0) {
        bail_out("libsodium");
    }
    if (aead_best() != AEAD_CHACHA20_POLY1305) {
        test_prepare();
        test_again();
        test_vectors();
    }
    /* Where there is AES all are: to sign by it has to be fast nowhere but in a session. */
    most = aead_best() == AEAD_CHACHA20_POLY1305 ? aead_best() : AEAD_AES_256_GMAC;
    for (enum aead_cipher c = AEAD_CHACHA20_POLY1305; c <= most; c++) {
        for (n_missing = 0; n_missing <= N_LIBRARIES; n_missing++) {
            diag("cipher %d without %u libraries", c, n_missing);
            test_all(c);
        }
    }
    if (most == AEAD_CHACHA20_POLY1305) {
        skip("this processor has no instructions for AES");
    }
    return tap_done();
}
