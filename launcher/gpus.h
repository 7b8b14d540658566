/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The GPUs of this machine and who uses them, from NVIDIA's management library
 * where the driver has brought it, else by their device files. A sick driver can
 * make this hang for long: ask in a process that somebody can kill.
 */
#ifndef MUSTER_LAUNCHER_GPUS_H
#define MUSTER_LAUNCHER_GPUS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

enum { GPUS_MAX = 64, GPUS_MAX_PIDS = 32 };

struct gpu {
    unsigned index;
    char uuid[96], name[96];        /* "" unknown */
    uint64_t used_bytes, total_bytes; /* 0 unknown */
    pid_t pids[GPUS_MAX_PIDS];      /* that compute there, in the library's view:
                                       in a container they may be hidden */
    size_t n_pids;
};

struct gpus {
    struct gpu items[GPUS_MAX];
    size_t n;
    bool is_detailed; /* the library was there */
};

void gpus_read(struct gpus *ret);

#endif
