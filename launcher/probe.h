/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Looks at every host before the first start: is it there, is it another one
 * than the others, does it have the same muster, does it see the run directory?
 * Runs `muster probe` on each over ssh, all at once; a host without the run
 * directory gets the job key that way (on stdin, never on a command line).
 */
#ifndef MUSTER_LAUNCHER_PROBE_H
#define MUSTER_LAUNCHER_PROBE_H

#include "base/str.h"
#include "launcher/fanout.h"
#include "launcher/hosts.h"
#include "launcher/rundir.h"

#include <stdint.h>

struct probe_config {
    const struct host_list *hosts; /* those that are this machine are skipped */
    const struct rundir *dir;
    const uint8_t *key;
    const uint8_t *nonce;          /* RUNDIR_NONCE_BYTES, already written */
    char *const *ssh;              /* argv of the remote shell, without host */
    unsigned timeout_ms;
    bool *ret_bad; /* by host: cannot be used, and `e` has words for it. NULL:
                      that is an error */
    struct probe_answer *ret_answers; /* by host, or NULL */
};

/* The command for one host, appended: `muster probe` over that remote shell. */
int probe_argv(char *const *ssh, const char *host, struct strlist *to,
               struct error *e);

/* What a host said. */
struct probe_answer {
    char boot_id[256];
    char host[HOSTS_NAME_BYTES]; /* as it calls itself */
    char problem[512]; /* "" while all is well */
};
void probe_judge(const struct fanout_task *task, struct probe_answer *ret);

/* 0, or -ERR_LOST: the text names every bad host and what is wrong with it. */
int probe_hosts(const struct probe_config *config, struct error *e);

#endif
