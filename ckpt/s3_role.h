/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Keys that a cloud gives the machine itself, for a role that it has: asked for over
 * HTTP, where no others are given. They pass after some hours; whoever needs them
 * asks anew.
 *
 *   container   AWS_CONTAINER_CREDENTIALS_RELATIVE_URI (of 169.254.170.2) or
 *               AWS_CONTAINER_CREDENTIALS_FULL_URI, with what
 *               AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE or
 *               AWS_CONTAINER_AUTHORIZATION_TOKEN say
 *   instance    169.254.169.254, or AWS_EC2_METADATA_SERVICE_ENDPOINT; not where
 *               AWS_EC2_METADATA_DISABLED is "true"
 */
#ifndef MUSTER_CKPT_S3_ROLE_H
#define MUSTER_CKPT_S3_ROLE_H

#include "base/error.h"
#include "ckpt/s3_config.h"

/* Fills in key_id, secret, token and whence, which are the caller's. -ENOENT: this
 * machine has no role; else why it cannot be told. Blocks, for a second where nobody
 * answers. */
int s3_role_load(struct s3_config *c, struct error *e);

/* Whether such a URL may be asked for keys: over TLS, or from this machine itself or
 * an address that only it can reach. */
bool s3_role_may_ask(const char *url);

#endif
