/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "ckpt/s3_priv.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* --- where it is --- */

/* Amazon wants the bucket in the host's name; its certificates do not cover one
 * with dots. Of others only some know that form, and all know the path. */
static void place(struct s3 *s, const struct s3_config *c, const char *bucket)
{
    const char *host = c->endpoint ? strstr(c->endpoint, "://") + 3 : NULL;
    bool is_path = host || strchr(bucket, '.');
    const char *slash = host ? strchrnul(host, '/') : NULL;
    int n;

    s->has_tls = !c->endpoint || str_starts(c->endpoint, "https://");
    n = host       ? asprintf(&s->host, "%.*s", (int)(slash - host), host)
        : is_path ? asprintf(&s->host, "s3.%s.amazonaws.com", c->region)
                  : asprintf(&s->host, "%s.s3.%s.amazonaws.com", bucket, c->region);
    s->host = n < 0 ? NULL : s->host;
    n = is_path ? asprintf(&s->path, "%s/%s", slash ? slash : "", bucket)
                : asprintf(&s->path, "%s", "");
    s->path = n < 0 ? NULL : s->path;
}

static char *copy(const char *text, bool *failed)
{
    char *to = text ? strdup(text) : NULL;

    *failed = *failed || (text && !to);
    return to;
}

static bool fill(struct s3 *s, const struct s3_config *c, const char *bucket)
{
    bool failed = false;

    s->config.key_id = copy(c->key_id, &failed);
    s->config.secret = copy(c->secret, &failed);
    s->config.token = copy(c->token, &failed);
    s->config.region = copy(c->region, &failed);
    s->config.endpoint = copy(c->endpoint, &failed);
    s->config.ca_bundle = copy(c->ca_bundle, &failed);
    s->config.whence = copy(c->whence, &failed);
    s->bucket = copy(bucket, &failed);
    place(s, c, bucket);
    return !failed && s->host && s->path;
}

int s3_open(const struct s3_config *config, const char *bucket,
            const struct s3_limits *limits, struct s3 **ret, struct error *e)
{
    _cleanup_(s3) struct s3 *s = calloc(1, sizeof(*s));

    if (!s || pthread_mutex_init(&s->lock, NULL) != 0) {
        free(take_ptr(&s));
        return error_set(e, ENOMEM, "s3://%s", bucket);
    }
    if (!fill(s, config, bucket) || curl_global_init(CURL_GLOBAL_DEFAULT) != 0) {
        return error_set(e, ENOMEM, "s3://%s", bucket);
    }
    s->limits = limits ? *limits : (struct s3_limits){0};
    s->limits.max_tries = s->limits.max_tries ? s->limits.max_tries : 8;
    s->limits.stall_s = s->limits.stall_s ? s->limits.stall_s : 60;
    *ret = take_ptr(&s);
    return 0;
}

void s3_destroy(struct s3 *s)
{
    if (!s) {
        return;
    }
    for (size_t i = 0; i < s->n_idle; i++) {
        curl_easy_cleanup(s->idle[i]);
    }
    pthread_mutex_destroy(&s->lock);
    s3_config_release(&s->config);
    free(s->host);
    free(s->path);
    free(s->bucket);
    free(s);
}

void s3_stop(struct s3 *s)
{
    atomic_store(&s->is_stopped, true);
}

void s3_go_on(struct s3 *s)
{
    atomic_store(&s->is_stopped, false);
}

/* --- connections: kept, for the next request of any thread --- */

CURL *s3_take_handle(struct s3 *s)
{
    CURL *handle = NULL;

    pthread_mutex_lock(&s->lock);
    if (s->n_idle) {
        handle = s->idle[--s->n_idle];
    }
    pthread_mutex_unlock(&s->lock);
    return handle ? handle : curl_easy_init();
}

void s3_give_handle(struct s3 *s, CURL *handle)
{
    curl_easy_reset(handle); /* all but the connection */
    pthread_mutex_lock(&s->lock);
    if (s->n_idle < ARRAY_SIZE(s->idle)) {
        s->idle[s->n_idle++] = handle;
        handle = NULL;
    }
    pthread_mutex_unlock(&s->lock);
    if (handle) {
        curl_easy_cleanup(handle);
    }
}
