/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "spec/procs.h"

#include "base/str.h"

#include <errno.h>
#include <string.h>

uint32_t procs_cpus(const struct procs_node *node)
{
    uint64_t paid;

    if (node->quota_us < 1 || node->period_us < 1) {
        return node->n_cpus ? node->n_cpus : 1;
    }
    paid = ((uint64_t)node->quota_us + (uint64_t)node->period_us - 1) /
           (uint64_t)node->period_us;
    if (node->n_cpus && paid > node->n_cpus) {
        paid = node->n_cpus;
    }
    return paid ? (uint32_t)paid : 1;
}

/* One entry of the list: an index of a device that is there, or a name. */
static bool is_device(const char *entry, uint32_t n_gpus)
{
    uint64_t index;

    if (str_to_u64(entry, &index) == 0) {
        return index < n_gpus;
    }
    return str_starts(entry, "GPU-") || str_starts(entry, "MIG-");
}

uint32_t procs_gpus(const struct procs_node *node)
{
    const char *at = node->visible;
    uint32_t n = 0;

    if (!at) {
        return node->n_gpus;
    }
    while (*at) {
        size_t len;
        char entry[128];

        at += strspn(at, " ");
        len = strcspn(at, ", ");
        if (len == 0 || len >= sizeof(entry)) {
            break;
        }
        memcpy(entry, at, len);
        entry[len] = '\0';
        if (!is_device(entry, node->n_gpus)) {
            break;
        }
        n++;
        at += len;
        at += strspn(at, " ");
        at += *at == ',';
    }
    return n;
}

static int count(const struct job_procs *procs, const struct procs_node *node,
                 uint32_t *ret, struct error *e)
{
    uint32_t gpus = procs_gpus(node);

    switch (procs->mode) {
    case JOB_PROCS_FIXED:
        *ret = procs->n;
        return 0;
    case JOB_PROCS_CPU:
        *ret = node->slots ? node->slots : procs_cpus(node);
        return 0;
    case JOB_PROCS_GPU:
        if (gpus == 0) {
            return error_text(e, ENODEV,
                              "procsPerNode is gpu, but there is no GPU%s%s",
                              node->visible ? " in the list " : "",
                              node->visible ? node->visible : "");
        }
        *ret = gpus;
        return 0;
    case JOB_PROCS_AUTO:
        *ret = node->slots ? node->slots : gpus ? gpus : procs_cpus(node);
        return 0;
    }
    return error_set(e, EINVAL, "procsPerNode");
}

int procs_count(const struct job_procs *procs, const struct procs_node *node,
                uint32_t *ret, struct error *e)
{
    int rc = count(procs, node, ret, e);

    if (rc == 0 && *ret > JOB_PROCS_MAX) {
        return error_text(e, E2BIG, "%u workers on a node, as its slots or CPUs say: "
                          "expected %d at most; procsPerNode can say how many",
                          *ret, JOB_PROCS_MAX);
    }
    return rc;
}
