/* SPDX-License-Identifier: Apache-2.0 */
/*
 * --dry-run: what a run would fail of on this machine, in the words that it would
 * have. Other hosts are not asked: what they lack, the run finds out. And as a spec may
 * be tried where there is less than where it is for, a lack of devices is a warning.
 */
#include <config.h>

#include "launcher/cmd_run.h"

#include "base/addr.h"
#include "base/cleanup.h"
#include "base/key.h"
#include "launcher/commands.h"
#include "launcher/node_facts.h"
#include "launcher/tmpdir.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <unistd.h>

int run_check_cwd(struct error *e)
{
    char cwd[PATH_MAX];

    return getcwd(cwd, sizeof(cwd)) ? 0 : error_set(e, errno, "find the working "
                                                    "directory");
}

static int check_key(const struct run_options *o, struct error *e)
{
    _secret_ uint8_t *key = o->key_file ? secret_alloc(JOB_KEY_BYTES) : NULL;

    return key ? run_as_usage(o->key_file, key_read(o->key_file, false, key, e), e)
               : 0;
}

static int check_dir(const struct run_options *o, const struct job *job,
                     struct error *e)
{
    const struct rundir_params params = {.name = job->name, .dir = o->run_dir,
                                         .base = job->logs.dir};

    return rundir_check(&params, e);
}

static int check_interface(const struct job *job, struct error *e)
{
    _strlist_ struct strlist addrs = {0};

    return job_interface(job) ? addr_chosen(job_interface(job), &addrs, e) : 0;
}

static int check_procs(const struct job *job, const struct host *here,
                       struct error *e)
{
    char name[HOSTS_NAME_BYTES] = "this host";
    struct procs_node node;
    uint32_t n;

    node_facts(NULL, &node);
    node.slots = here->slots;
    if (procs_count(&job->procs, &node, &n, e) == 0) {
        return 0;
    }
    gethostname(name, sizeof(name) - 1);
    return error_wrap(e, "%s", name);
}

static const struct host *find_here(const struct host_list *hosts)
{
    for (size_t i = 0; i < hosts->n; i++) {
        if (hosts->items[i].is_local) {
            return &hosts->items[i];
        }
    }
    return NULL;
}

/* The first one counts, as it would end the run. */
static void add(int *status, int rc, const struct error *e)
{
    int own = rc < 0 ? command_fail(e) : EXIT_OK;

    *status = *status == EXIT_OK ? own : *status;
}

static void warn(int rc, const struct error *e)
{
    if (rc < 0) {
        fprintf(stderr, "muster: warning: here the run would fail: %s\n", e->text);
    }
}

int run_check_here(const struct run_options *o, const struct job *job,
                   const struct host_list *hosts)
{
    const struct host *here = find_here(hosts);
    int status = EXIT_OK;
    struct error e = {0};

    fflush(stdout);
    add(&status, check_key(o, &e), &e);
    add(&status, tmpdir_check(&e), &e);
    add(&status, check_dir(o, job, &e), &e);
    if (here) {
        warn(check_interface(job, &e), &e);
        warn(check_procs(job, here, &e), &e);
    }
    return status;
}
