/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "launcher/remote.h"

#include "launcher/slurm.h"
#include "launcher/ssh.h"

#include <errno.h>
#include <stdlib.h>

/* ssh hands the words to the user's shell there: all of ours are quoted. */
static void add_quoted(const struct strlist *words, struct strlist *to)
{
    for (size_t i = 0; i < words->n; i++) {
        char *quoted = str_shell_quote(words->items[i]);

        if (!quoted) {
            to->failed = true;
            return;
        }
        strlist_take(to, quoted);
    }
}

int remote_argv(const struct remote *r, const struct strlist *command,
                struct strlist *to, struct error *e)
{
    const struct front_record *was = r->was;

    if (was && was->slurm_job[0] && r->srun) {
        slurm_host_argv(r->srun, was->slurm_job, r->host, r->job_name,
                        r->on_terminal, to);
        strlist_add_all(to, command->items);
    } else {
        /* $MUSTER_SSH is newer than what the front end was told. */
        ssh_argv(!getenv("MUSTER_SSH") && was && was->ssh[0] ? was->ssh : NULL,
                 to);
        if (r->on_terminal) {
            strlist_add(to, "-t");
        }
        strlist_add(to, r->host);
        add_quoted(command, to);
    }
    return to->failed || command->failed
               ? error_set(e, ENOMEM, "go to %s", r->host) : 0;
}
