/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "base/key.h"

#include "base/cleanup.h"
#include "base/fs.h"

#include <errno.h>
#include <fcntl.h>
#include <sodium.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* Room for the hexadecimal form, a line end, and one byte too many. */
enum { MAX_FILE = 2 * JOB_KEY_BYTES + 3 };

/* sodium_malloc() keeps its pages out of dumps, and of swap where the limit of
 * locked memory allows. It ends where a page does: a multiple of any alignment
 * keeps what it holds aligned. */
void *secret_alloc(size_t size)
{
    size_t rounded = (size + 15) & ~(size_t)15;
    void *p = sodium_init() < 0 ? NULL : sodium_malloc(rounded);

    if (p) {
        memset(p, 0, rounded);
    }
    return p;
}

void secret_free(void *p)
{
    sodium_free(p);
}

/* A copy of a key leaves it in vector registers, and the dynamic linker puts those
 * on the stack when it resolves a function: they are filled by a larger copy. Its
 * size is no constant, or the compiler would do it by other means. */
__attribute__((noinline)) void secret_forget(void)
{
    static const char nothing[512];
    char below[32 * 1024];
    volatile size_t size = sizeof(nothing) / 2;

    memcpy(below, nothing, size);
    explicit_bzero(below, sizeof(below));
}

uint8_t *key_hold(const uint8_t key[JOB_KEY_BYTES])
{
    uint8_t *p = secret_alloc(JOB_KEY_BYTES);

    if (p) {
        memcpy(p, key, JOB_KEY_BYTES);
    }
    return p;
}

void key_drop(uint8_t *key)
{
    secret_free(key);
}

int key_create(const char *path, struct error *e)
{
    uint8_t key[JOB_KEY_BYTES];
    int rc;

    if (access(path, F_OK) == 0) {
        return 0;
    }
    if (sodium_init() < 0) {
        return error_text(e, EIO, "libsodium found no source of randomness");
    }
    randombytes_buf(key, sizeof(key));
    rc = fs_write_new(path, key, sizeof(key), e);
    sodium_memzero(key, sizeof(key));
    return rc == -EEXIST ? 0 : rc; /* somebody else's, who came a moment before */
}

static int check_private(const char *path, int fd, struct error *e)
{
    struct stat st;

    if (fstat(fd, &st) < 0) {
        return error_set(e, errno, "look at %s", path);
    }
    if (st.st_uid != geteuid()) {
        return error_text(e, EPERM, "job key %s belongs to user %lu, not to "
                          "this one", path, (unsigned long)st.st_uid);
    }
    if (st.st_mode & 077) {
        return error_text(e, EPERM, "job key %s can be read by others (mode "
                          "%04o): expected 0600", path,
                          (unsigned)st.st_mode & 07777);
    }
    return 0;
}

static int parse_key(const char *path, const char *data, size_t len,
                     uint8_t key[JOB_KEY_BYTES], struct error *e)
{
    size_t n = 0;

    if (len == JOB_KEY_BYTES) {
        memcpy(key, data, JOB_KEY_BYTES);
        return 0;
    }
    while (len && (data[len - 1] == '\n' || data[len - 1] == '\r')) {
        len--;
    }
    if (len == 2 * JOB_KEY_BYTES &&
        sodium_hex2bin(key, JOB_KEY_BYTES, data, len, NULL, &n, NULL) == 0 &&
        n == JOB_KEY_BYTES) {
        return 0;
    }
    sodium_memzero(key, JOB_KEY_BYTES);
    return error_text(e, ERR_FORMAT, "job key %s: expected %d bytes or %d "
                      "hexadecimal digits", path, JOB_KEY_BYTES,
                      2 * JOB_KEY_BYTES);
}

void key_prove(const uint8_t key[JOB_KEY_BYTES], const char *about,
               uint8_t ret[KEY_PROOF_BYTES])
{
    crypto_generichash(ret, KEY_PROOF_BYTES, (const uint8_t *)about,
                       strlen(about), key, JOB_KEY_BYTES);
}

bool key_is_proved(const uint8_t key[JOB_KEY_BYTES], const char *about,
                   const uint8_t proof[KEY_PROOF_BYTES])
{
    uint8_t own[KEY_PROOF_BYTES];

    key_prove(key, about, own);
    return sodium_memcmp(own, proof, sizeof(own)) == 0;
}

int key_read(const char *path, bool is_private, uint8_t ret_key[JOB_KEY_BYTES],
             struct error *e)
{
    _close_ int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK);
    char data[MAX_FILE];
    size_t len = 0;
    ssize_t n = 1;
    int rc;

    if (fd < 0) {
        return error_set(e, errno, "open job key %s", path);
    }
    rc = is_private ? check_private(path, fd, e) : 0;
    if (rc < 0) {
        return rc;
    }
    while (len < sizeof(data) && n) {
        n = read(fd, data + len, sizeof(data) - len);
        if (n < 0 && errno != EINTR) {
            sodium_memzero(data, sizeof(data));
            return error_set(e, errno, "read job key %s", path);
        }
        len += n > 0 ? (size_t)n : 0;
    }
    rc = parse_key(path, data, len, ret_key, e);
    sodium_memzero(data, sizeof(data));
    return rc;
}
