/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Who we are to an object store, and where it is, by the rules of other S3
 * programs:
 *
 *   key, secret   AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY and AWS_SESSION_TOKEN,
 *                 else the profile ($AWS_PROFILE, else "default") in
 *                 ~/.aws/credentials, then in ~/.aws/config, else what the
 *                 machine's role has (ckpt/s3_role.h)
 *   region        AWS_REGION, AWS_DEFAULT_REGION, the profile's, us-east-1
 *   endpoint      AWS_ENDPOINT_URL_S3, AWS_ENDPOINT_URL, the profile's
 *                 endpoint_url, Amazon's
 *   certificates  AWS_CA_BUNDLE, the profile's ca_bundle: a file of authorities that
 *                 TLS trusts, instead of the system's
 *
 * AWS_SHARED_CREDENTIALS_FILE and AWS_CONFIG_FILE name other files. Secrets are
 * overwritten before their memory is freed, and appear in no message.
 */
#ifndef MUSTER_CKPT_S3_CONFIG_H
#define MUSTER_CKPT_S3_CONFIG_H

#include "base/error.h"

#include <stdbool.h>

struct s3_config {
    char *key_id, *secret;
    char *token;    /* NULL for none */
    char *region;
    char *endpoint; /* "http[s]://HOST[:PORT][/PATH]", no slash at its end; NULL for
                       Amazon's */
    char *ca_bundle; /* path of a file; NULL for the system's */
    char *whence;   /* where the key is from, for messages */
};

/* 0; -EACCES: there is no key, and where was looked; -EINVAL: an endpoint that is
 * no URL, a profile that is not there, certificates that cannot be read. */
int s3_config_load(struct s3_config *ret, struct error *e);
void s3_config_release(struct s3_config *c);
#define _s3_config_ __attribute__((cleanup(s3_config_release)))

/* The value of a key in [section] of an INI file's text; NULL if there is none. The
 * caller frees it. */
char *s3_ini_get(const char *text, const char *section, const char *key);
bool s3_ini_has(const char *text, const char *section);

#endif
