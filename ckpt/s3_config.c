/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "ckpt/s3_config.h"

#include "base/buf.h"
#include "base/cleanup.h"
#include "base/fs.h"
#include "base/str.h"
#include "ckpt/s3_role.h"

#include <curl/curl.h>
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define FILE_MAX_BYTES (1u << 20)

/* The two files' text ("" where there is none) and what their sections are called:
 * only credentials have the profile's bare name. */
struct files {
    char *credentials, *config;
    char path[PATH_MAX]; /* of the credentials, for messages */
    const char *profile;
    char section[300];
};

static void wipe(char **secret)
{
    if (*secret) {
        explicit_bzero(*secret, strlen(*secret));
        free(*secret);
        *secret = NULL;
    }
}

static void files_release(struct files *f)
{
    wipe(&f->credentials);
    wipe(&f->config);
}

void s3_config_release(struct s3_config *c)
{
    wipe(&c->key_id);
    wipe(&c->secret);
    wipe(&c->token);
    free(c->region);
    free(c->endpoint);
    free(c->ca_bundle);
    free(c->whence);
    *c = (struct s3_config){0};
}

/* A variable that is set to something. */
static const char *env(const char *name)
{
    const char *value = getenv(name);

    return value && *value ? value : NULL;
}

/* --- files --- */

static int read_one(const char *variable, const char *rest, char *path,
                    char **ret, struct error *e)
{
    const char *given = env(variable), *home = env("HOME");
    size_t len;
    int rc;

    if (given) {
        str_copy(path, PATH_MAX, given);
    } else if (snprintf(path, PATH_MAX, "%s/.aws/%s", home ? home : "", rest) >=
               PATH_MAX) {
        return error_set(e, ENAMETOOLONG, "$HOME/.aws/%s", rest);
    }
    rc = fs_read_regular(path, FILE_MAX_BYTES, ret, &len, e);
    if (rc == -ENOENT || rc == -ENOTDIR || (rc == -EACCES && !given)) {
        *ret = strdup("");
        return *ret ? 0 : error_set(e, ENOMEM, "read %s", path);
    }
    return rc;
}

static int read_files(struct files *f, struct error *e)
{
    char path[PATH_MAX];
    int rc = read_one("AWS_SHARED_CREDENTIALS_FILE", "credentials", f->path,
                      &f->credentials, e);

    rc = rc < 0 ? rc : read_one("AWS_CONFIG_FILE", "config", path, &f->config, e);
    f->profile = env("AWS_PROFILE");
    if (!f->profile) {
        f->profile = "default";
        str_copy(f->section, sizeof(f->section), "default");
    } else {
        snprintf(f->section, sizeof(f->section), "%s%.250s",
                 strcmp(f->profile, "default") == 0 ? "" : "profile ",
                 f->profile);
    }
    return rc;
}

/* --- values --- */

static int take_from_env(struct s3_config *c)
{
    const char *token = env("AWS_SESSION_TOKEN");

    c->key_id = strdup(env("AWS_ACCESS_KEY_ID"));
    c->secret = strdup(env("AWS_SECRET_ACCESS_KEY"));
    c->token = token ? strdup(token) : NULL;
    c->whence = strdup("AWS_ACCESS_KEY_ID");
    return c->key_id && c->secret && c->whence && (!token || c->token) ? 0
                                                                      : -ENOMEM;
}

static void take_from_file(struct s3_config *c, const char *text,
                           const char *section)
{
    c->key_id = s3_ini_get(text, section, "aws_access_key_id");
    c->secret = s3_ini_get(text, section, "aws_secret_access_key");
    c->token = s3_ini_get(text, section, "aws_session_token");
}

static int take_from_files(struct s3_config *c, const struct files *f,
                           struct error *e)
{
    take_from_file(c, f->credentials, f->profile);
    if (!c->key_id || !c->secret) {
        wipe(&c->key_id);
        wipe(&c->secret);
        wipe(&c->token);
        take_from_file(c, f->config, f->section);
    }
    if (c->key_id && c->secret) {
        if (asprintf(&c->whence, "profile %s", f->profile) < 0) {
            c->whence = NULL;
        }
        return c->whence ? 0 : error_set(e, ENOMEM, "credentials");
    }
    if (env("AWS_PROFILE") && !s3_ini_has(f->credentials, f->profile) &&
        !s3_ini_has(f->config, f->section)) {
        return error_text(e, EINVAL, "AWS_PROFILE is '%.60s', and there is no "
                          "such profile in %.200s", f->profile, f->path);
    }
    return -ENOENT;
}

static int say_none(const struct files *f, struct error *e)
{
    return error_text(e, EACCES, "no credentials: set AWS_ACCESS_KEY_ID and "
                      "AWS_SECRET_ACCESS_KEY, or put aws_access_key_id and "
                      "aws_secret_access_key under [%.60s] into %.200s; "
                      "this machine has no role that has any",
                      f->profile, f->path);
}

static int take_key(struct s3_config *c, const struct files *f, struct error *e)
{
    int rc;

    if (!env("AWS_ACCESS_KEY_ID") != !env("AWS_SECRET_ACCESS_KEY")) {
        return error_text(e, EACCES, "of AWS_ACCESS_KEY_ID and "
                          "AWS_SECRET_ACCESS_KEY only one is set");
    }
    if (env("AWS_ACCESS_KEY_ID")) {
        return take_from_env(c) < 0 ? error_set(e, ENOMEM, "credentials") : 0;
    }
    rc = take_from_files(c, f, e);
    rc = rc == -ENOENT ? s3_role_load(c, e) : rc;
    return rc == -ENOENT ? say_none(f, e) : rc;
}

/* The first that is there: of the environment, of the profile, the default. */
static char *pick(const char *const *names, const struct files *f,
                  const char *key, const char *otherwise)
{
    char *found = NULL;

    for (; *names && !found; names++) {
        found = env(*names) ? strdup(env(*names)) : NULL;
    }
    found = found ? found : s3_ini_get(f->config, f->section, key);
    return found || !otherwise ? found : strdup(otherwise);
}

/* As libcurl will take it: it knows ports and brackets. */
static bool is_url(const char *text)
{
    CURLU *url = curl_url();
    bool is = url && curl_url_set(url, CURLUPART_URL, text, 0) == CURLUE_OK;

    curl_url_cleanup(url);
    return is;
}

static int check_endpoint(char *url, struct error *e)
{
    size_t len = strlen(url);
    const char *host = str_starts(url, "https://")  ? url + 8
                       : str_starts(url, "http://") ? url + 7 : url + len;

    while (len && url[len - 1] == '/') {
        url[--len] = '\0';
    }
    if (!*host || strpbrk(url, "?#@ \t\r\n") || !is_url(url)) {
        return error_text(e, EINVAL, "the endpoint '%.100s' (AWS_ENDPOINT_URL_S3, "
                          "AWS_ENDPOINT_URL or endpoint_url): expected "
                          "https://HOST[:PORT] or http://HOST[:PORT]", url);
    }
    return 0;
}

/* It becomes part of host names and signatures. */
static bool is_region(const char *name)
{
    return *name && strlen(name) <= 40 &&
           strspn(name, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
                        "0123456789-_") == strlen(name);
}

/* libcurl would say so of each request, and not who has asked for that file. */
static int check_bundle(const char *path, struct error *e)
{
    if (path && access(path, R_OK) < 0) {
        return error_text(e, EINVAL, "certificates of AWS_CA_BUNDLE or ca_bundle, "
                          "%.200s: %s", path, strerror(errno));
    }
    return 0;
}

static int take_place(struct s3_config *c, const struct files *f,
                      struct error *e)
{
    static const char *const regions[] = {"AWS_REGION", "AWS_DEFAULT_REGION",
                                          NULL};
    static const char *const endpoints[] = {"AWS_ENDPOINT_URL_S3",
                                            "AWS_ENDPOINT_URL", NULL};
    static const char *const bundles[] = {"AWS_CA_BUNDLE", NULL};

    c->ca_bundle = pick(bundles, f, "ca_bundle", NULL);
    c->region = pick(regions, f, "region", "us-east-1");
    c->endpoint = pick(endpoints, f, "endpoint_url", NULL);
    if (!c->region) {
        return error_set(e, ENOMEM, "the region");
    }
    if (!is_region(c->region)) {
        return error_text(e, EINVAL, "the region '%.60s' (AWS_REGION) is no name "
                          "of one", c->region);
    }
    if (c->endpoint && check_endpoint(c->endpoint, e) < 0) {
        return -EINVAL;
    }
    return check_bundle(c->ca_bundle, e);
}

int s3_config_load(struct s3_config *ret, struct error *e)
{
    __attribute__((cleanup(files_release))) struct files f = {0};
    _s3_config_ struct s3_config c = {0};
    int rc = read_files(&f, e);

    rc = rc < 0 ? rc : take_key(&c, &f, e);
    rc = rc < 0 ? rc : take_place(&c, &f, e);
    if (rc == 0) {
        *ret = c;
        c = (struct s3_config){0};
    }
    return rc;
}
