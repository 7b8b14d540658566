/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The library is loaded at run time, and its few calls are declared here: a
 * build needs nothing of NVIDIA's, and one build serves all hosts.
 */
#include <config.h>

#include "launcher/gpus.h"

#include "base/str.h"
#include "base/symbol.h"
#include "launcher/node_facts.h"

#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

struct device; /* the library's handle */

/* nvmlMemory_v2_t: what the driver keeps for itself is not in `used`. */
struct memory {
    unsigned version;
    unsigned long long total, reserved, free, used;
};
#define MEMORY_VERSION ((unsigned)sizeof(struct memory) | 2u << 24)

/* nvmlProcessInfo_t since R470. */
struct process {
    unsigned pid;
    unsigned long long used_bytes;
    unsigned gpu_instance, compute_instance;
};

struct nvml {
    void *handle;
    int (*init)(void);
    int (*shutdown)(void);
    int (*count)(unsigned *);
    int (*by_index)(unsigned, struct device **);
    int (*uuid)(struct device *, char *, unsigned);
    int (*name)(struct device *, char *, unsigned);
    int (*memory)(struct device *, struct memory *);
    int (*processes)(struct device *, unsigned *, struct process *);
};

/* Older drivers lack the last two; then nothing is known of use. */
static bool open_nvml(struct nvml *n)
{
    n->handle = dlopen("libnvidia-ml.so.1", RTLD_NOW | RTLD_LOCAL);
    if (!n->handle) {
        return false;
    }
    if (!symbol_find(n->handle, "nvmlInit_v2", &n->init) ||
        !symbol_find(n->handle, "nvmlShutdown", &n->shutdown) ||
        !symbol_find(n->handle, "nvmlDeviceGetCount_v2", &n->count) ||
        !symbol_find(n->handle, "nvmlDeviceGetHandleByIndex_v2", &n->by_index) ||
        !symbol_find(n->handle, "nvmlDeviceGetUUID", &n->uuid) ||
        !symbol_find(n->handle, "nvmlDeviceGetName", &n->name) || n->init() != 0) {
        dlclose(n->handle);
        return false;
    }
    symbol_find(n->handle, "nvmlDeviceGetMemoryInfo_v2", &n->memory);
    symbol_find(n->handle, "nvmlDeviceGetComputeRunningProcesses_v3", &n->processes);
    return true;
}

static void read_use(const struct nvml *n, struct device *d, struct gpu *g)
{
    struct process list[GPUS_MAX_PIDS];
    struct memory m = {.version = MEMORY_VERSION};
    unsigned n_list = GPUS_MAX_PIDS;

    if (n->memory && n->memory(d, &m) == 0) {
        g->used_bytes = m.used;
        g->total_bytes = m.total;
    }
    if (!n->processes || n->processes(d, &n_list, list) != 0) {
        return;
    }
    for (unsigned i = 0; i < n_list && i < GPUS_MAX_PIDS; i++) {
        g->pids[g->n_pids++] = (pid_t)list[i].pid;
    }
}

static void read_gpu(const struct nvml *n, unsigned index, struct gpu *g)
{
    struct device *d;

    *g = (struct gpu){.index = index};
    if (n->by_index(index, &d) != 0) {
        str_copy(g->name, sizeof(g->name), "does not answer");
        return;
    }
    if (n->uuid(d, g->uuid, sizeof(g->uuid)) != 0) {
        g->uuid[0] = '\0';
    }
    if (n->name(d, g->name, sizeof(g->name)) != 0) {
        g->name[0] = '\0';
    }
    read_use(n, d, g);
}

static bool read_nvml(struct gpus *ret)
{
    struct nvml n = {0};
    unsigned count = 0;

    if (!open_nvml(&n)) {
        return false;
    }
    if (n.count(&count) == 0) {
        ret->is_detailed = true;
        for (unsigned i = 0; i < count && i < GPUS_MAX; i++) {
            read_gpu(&n, i, &ret->items[ret->n++]);
        }
    }
    n.shutdown();
    dlclose(n.handle);
    return ret->is_detailed;
}

void gpus_read(struct gpus *ret)
{
    struct procs_node facts;

    *ret = (struct gpus){0};
    if (read_nvml(ret)) {
        return;
    }
    node_facts(NULL, &facts);
    for (unsigned i = 0; i < facts.n_gpus && i < GPUS_MAX; i++) {
        ret->items[ret->n++] = (struct gpu){.index = i};
    }
}
