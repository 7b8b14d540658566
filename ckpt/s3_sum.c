/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "ckpt/s3_sum.h"

#include <errno.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <stdio.h>

int s3_md5(const void *data, size_t len, unsigned char to[S3_MD5_BYTES])
{
    return EVP_Digest(data, len, to, NULL, EVP_md5(), NULL) == 1 ? 0 : -ENOTSUP;
}

void s3_hex(const unsigned char *data, size_t len, char *to)
{
    for (size_t i = 0; i < len; i++) {
        snprintf(to + 2 * i, 3, "%02x", data[i]);
    }
}

int s3_sha256_text(const void *data, size_t len, char to[S3_SHA256_TEXT_BYTES])
{
    unsigned char sum[32];

    if (EVP_Digest(data, len, sum, NULL, EVP_sha256(), NULL) != 1) {
        return -ENOMEM;
    }
    s3_hex(sum, sizeof(sum), to);
    return 0;
}

int s3_hmac(const void *key, size_t key_len, const void *data, size_t len,
            unsigned char to[S3_SHA256_BYTES])
{
    return HMAC(EVP_sha256(), key, (int)key_len, data, len, to, NULL) ? 0
                                                                   : -ENOMEM;
}

void s3_md5_base64(const unsigned char md5[S3_MD5_BYTES], char to[32])
{
    EVP_EncodeBlock((unsigned char *)to, md5, S3_MD5_BYTES);
}

void s3_md5_hex(const unsigned char md5[S3_MD5_BYTES], char to[33])
{
    s3_hex(md5, S3_MD5_BYTES, to);
}
