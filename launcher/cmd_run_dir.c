/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "launcher/cmd_run.h"

#include "base/cleanup.h"
#include "base/fs.h"
#include "base/key.h"
#include "launcher/takeup.h"

#include <errno.h>
#include <limits.h>
#include <sodium.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

int run_as_usage(const char *option, int rc, struct error *e)
{
    if (rc < 0 && option) {
        e->code = ERR_USAGE;
    }
    return rc;
}

int run_make_dir(const struct run_options *o, const struct job *job,
                 struct rundir **ret, uint8_t *key, struct error *e)
{
    struct rundir_params params = {.name = job->name, .dir = o->run_dir,
                                   .base = job->logs.dir};
    _free_ char *yaml = NULL;
    char path[PATH_MAX];
    int rc = key ? 0 : error_set(e, ENOMEM, "keep the job key");

    if (rc == 0 && o->key_file) {
        rc = run_as_usage(o->key_file, key_read(o->key_file, false, key, e), e);
    }
    rc = rc < 0 ? rc : rundir_create(&params, ret, e);
    rc = rc < 0 ? rc : rundir_lock(*ret, e);
    rc = rc < 0 ? rc : takeup_check(*ret, o->resume, e);
    rc = rc < 0 || o->key_file ? rc : rundir_make_key(*ret, e);
    if (rc < 0) {
        return rc;
    }
    if ((rc = rundir_path(*ret, path, sizeof(path), e, "key")) < 0 ||
        (rc = o->key_file ? 0 : key_read(path, true, key, e)) < 0 ||
        (rc = rundir_path(*ret, path, sizeof(path), e, "spec.yaml")) < 0) {
        return rc;
    }
    rundir_drop_requests(*ret);
    yaml = job_write_yaml(job);
    return yaml ? fs_write_replace(path, yaml, strlen(yaml), e)
                : error_set(e, ENOMEM, "write the spec");
}

int run_take_up(const struct rundir *dir, const struct run_options *o,
                struct run_config *config, struct error *e)
{
    char path[PATH_MAX];
    int rc = rundir_path(dir, path, sizeof(path), e, "status.json");

    rc = rc < 0 ? rc : takeup_run(dir, o->resume, config, e);
    if (rc == 0 && config->first_generation > 1 && access(path, F_OK) < 0) {
        fprintf(stderr, "muster: %s is gone: generations go on from %u, by its events and "
                "the names of its logs; which checkpoint was the last one, and how often "
                "it was restarted, is not known\n", path, config->first_generation);
    }
    return rc;
}

static uint64_t detach_of(const struct job *job)
{
    if (job->detach_timeout_ms != JOB_AUTO) {
        return job->detach_timeout_ms;
    }
    return isatty(2) ? 10 * 60 * 1000 : UINT64_MAX;
}

int run_mark_dir(const struct rundir *dir, struct run_config *config,
                 struct error *e)
{
    randombytes_buf(config->nonce, sizeof(config->nonce));
    return rundir_write_nonce(dir->path, config->nonce, e);
}

int run_make_config(struct spec_result *r, struct run_config *ret,
                    struct error *e)
{
    int rc = run_config_capture(ret, environ, e);

    ret->job = take_ptr(&r->job);
    ret->detach_ms = detach_of(ret->job);
    ret->first_generation = 1;
    return rc;
}
