/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Any bytes as a spec, and as an encoded job. What resolves has to be written
 * and read back as the same job.
 */
#include <config.h>

#include "base/cleanup.h"
#include "spec/spec.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static const char *const no_dirs[] = {NULL};

static void check_json(const struct job *job)
{
    _free_ char *once = job_encode(job);
    _cleanup_(job) struct job *back = NULL;
    _free_ char *twice = NULL;

    if (!once || job->command.n == 0) {
        return;
    }
    if (job_decode(once, strlen(once), &back, NULL) < 0) {
        abort();
    }
    twice = job_encode(back);
    if (!twice || strcmp(once, twice) != 0) {
        abort();
    }
}

static void check_yaml(const struct job *job)
{
    _free_ char *yaml = job_write_yaml(job);
    _free_ char *once = NULL, *twice = NULL;
    struct spec_request q = {.text = yaml, .runtime_dirs = no_dirs};
    struct spec_result again;

    /* Hidden values do not come back. */
    if (!yaml || strstr(yaml, JOB_HIDDEN) || job->command.n == 0) {
        return;
    }
    if (spec_resolve(&q, &again, NULL) < 0) {
        abort();
    }
    once = job_encode(job);
    twice = job_encode(again.job);
    if (!once || !twice || (!job->runtime && strcmp(once, twice) != 0)) {
        abort();
    }
    spec_result_release(&again);
}

static void resolve(const char *text)
{
    struct spec_request q = {
        .text = text, .runtime_dirs = no_dirs, .accept_runtime = true};
    struct spec_result result;

    if (spec_resolve(&q, &result, NULL) == 0) {
        check_json(result.job);
        check_yaml(result.job);
    } else if (result.n_errors == 0 || result.n_messages == 0) {
        abort();
    }
    spec_result_release(&result);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct job *job = NULL;
    char *text = malloc(size + 1);

    if (!text) {
        return 0;
    }
    memcpy(text, data, size);
    text[size] = '\0';
    /* A file is opened for envFrom and for a launcher's configuration: not with
     * names that a fuzzer made up. */
    if (!strstr(text, "envFrom") && !strstr(text, "conf")) {
        resolve(text);
    }
    if (job_decode(text, size, &job, NULL) == 0) {
        check_json(job);
    }
    job_destroy(job);
    free(text);
    return 0;
}
