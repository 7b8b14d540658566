/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Who else ends the processes of this host: an agent is to outlive the ssh that
 * started it, but not every host allows that.
 *
 * systemd-logind puts a login into a scope of its own (session-N.scope), and with
 * KillUserProcesses=yes kills what is left there at its end; a process cannot leave
 * it by itself (logind.conf(5)). pam_slurm_adopt puts a login by ssh into a job
 * that its user has on the host, and Slurm ends it with that job.
 */
#ifndef MUSTER_LAUNCHER_SESSION_H
#define MUSTER_LAUNCHER_SESSION_H

#include <stddef.h>

/* Words for the user on what will end this process with its login, and what to do
 * about it; "" where nothing will. `root` is put before the paths that are read
 * ("": the host's own), `user` is the name of the user, `job` the Slurm job that the
 * run belongs to, or NULL. */
void session_look(const char *root, const char *user, const char *job,
                  char *to, size_t size);

#endif
