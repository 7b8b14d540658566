/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The checksums that object stores know: MD5 of each body (Content-MD5, and the
 * ETag of what was stored), SHA-256 of it in the signature. By libcrypto, which
 * libcurl brings along: it uses the processor's instructions for them, and is
 * several times faster than libsodium here.
 */
#ifndef MUSTER_CKPT_S3_SUM_H
#define MUSTER_CKPT_S3_SUM_H

#include <stddef.h>
#include <stdint.h>

#define S3_MD5_BYTES 16
#define S3_SHA256_BYTES 32
#define S3_SHA256_TEXT_BYTES 65

/* 0, -ENOMEM, or -ENOTSUP: this system's policy forbids MD5. */
int s3_md5(const void *data, size_t len, unsigned char to[S3_MD5_BYTES]);
int s3_sha256_text(const void *data, size_t len, char to[S3_SHA256_TEXT_BYTES]);

/* HMAC-SHA256. */
int s3_hmac(const void *key, size_t key_len, const void *data, size_t len,
            unsigned char to[S3_SHA256_BYTES]);

/* Two lower-case digits a byte, and a zero byte. */
void s3_hex(const unsigned char *data, size_t len, char *to);

/* As Content-MD5 has it, and as an ETag does. */
void s3_md5_base64(const unsigned char md5[S3_MD5_BYTES], char to[32]);
void s3_md5_hex(const unsigned char md5[S3_MD5_BYTES], char to[33]);

#endif
