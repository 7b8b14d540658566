/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "spec/job.h"

#include "spec/node.h"
#include "spec/schema.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

static bool set_defaults(struct job *job)
{
    struct report report = {0};
    _arena_ struct arena arena = {0};
    struct reader r = {.arena = &arena, .report = &report};
    struct node *map = schema_defaults(&arena, job_fields, &report);
    bool good = map && schema_read(&r, job_fields, map, job);

    good = good && !arena.failed && !report.failed;
    report_release(&report);
    return good;
}

struct job *job_create(void)
{
    struct job *job = calloc(1, sizeof(*job));

    if (job && !set_defaults(job)) {
        job_destroy(job);
        return NULL;
    }
    return job;
}

void job_destroy(struct job *job)
{
    if (job) {
        schema_release(job_fields, job);
        free(job);
    }
}

const char *job_interface(const struct job *job)
{
    return strcmp(job->interface, "auto") == 0 ? NULL : job->interface;
}

/* The last word of a name such as HF_TOKEN. */
static const char *last_word(const char *upper)
{
    const char *at = strrchr(upper, '_');

    return at ? at + 1 : upper;
}

static bool name_looks_secret(const char *name)
{
    static const char *const parts[] = {"SECRET", "PASSWORD", "PASSWD",
                                        "CREDENTIAL", "APIKEY", "API_KEY",
                                        "ACCESS_KEY", "PRIVATE_KEY"};
    static const char *const last[] = {"TOKEN", "KEY", "PASS", "PWD", "AUTH"};
    char upper[256];
    size_t i;

    for (i = 0; name[i] && i + 1 < sizeof(upper); i++) {
        upper[i] = (char)toupper((unsigned char)name[i]);
    }
    upper[i] = '\0';
    if (strcmp(upper, "PWD") == 0) {
        return false; /* where a shell is */
    }
    for (i = 0; i < ARRAY_SIZE(parts); i++) {
        if (strstr(upper, parts[i])) {
            return true;
        }
    }
    for (i = 0; i < ARRAY_SIZE(last); i++) {
        if (strcmp(last_word(upper), last[i]) == 0) {
            return true;
        }
    }
    return false;
}

bool job_env_is_secret(const struct job *job, const char *name)
{
    for (size_t i = 0; i < job->secrets.n; i++) {
        if (strcmp(job->secrets.items[i], name) == 0) {
            return true;
        }
    }
    return name_looks_secret(name);
}

bool job_exit_is_retried(const struct job *job, int code)
{
    if (code < 0 || code > 255) {
        code = 255;
    }
    switch (job->restart.policy) {
    case JOB_RESTART_NEVER:
        return false;
    case JOB_RESTART_ON_FAILURE:
        return code != 0;
    case JOB_RESTART_ALWAYS:
        return true;
    case JOB_RESTART_EXIT_CODE:
        return code != 0 &&
               (job->restart.retry_codes[code / 8] & 1u << code % 8);
    }
    return false;
}
