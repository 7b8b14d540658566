/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Whether the kernel has killed processes for lack of memory. A worker that it
 * kills looks like any other that got SIGKILL; the memory cgroup keeps count.
 */
#ifndef MUSTER_LAUNCHER_OOM_H
#define MUSTER_LAUNCHER_OOM_H

#include <stdint.h>

/* Kills in the memory cgroup of this process so far (v1 and v2), workers are in
 * the same one; -1 where nobody counts. `proc` and `sys` stand for
 * /proc/self/cgroup and /sys/fs/cgroup; NULL for those themselves. */
int64_t oom_kills(const char *proc, const char *sys);

/* Kills on this host so far, of whosever processes, where the cgroup above has no
 * count: the root of v2, as on a bare machine. `vmstat` stands for /proc/vmstat. -1
 * where nobody counts. */
int64_t oom_kills_host(const char *vmstat);

/* How often it killed all processes of that cgroup at once (memory.oom.group of
 * v2): nobody is left to tell, but the count stands for who comes next. */
int64_t oom_group_kills(const char *proc, const char *sys);

#endif
