/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "rendezvous/restart.h"

#include "base/cleanup.h"

#include <string.h>

struct range {
    uint8_t first;
    uint8_t last;
};

static const struct {
    const char *name;
    struct range codes[4];
} presets[] = {
    {"kubeflow", {{128, 255}}},
    {"t9k", {{130, 130}, {137, 138}, {143, 143}}},
};

void restart_allow(struct restart_policy *p, unsigned first, unsigned last)
{
    for (unsigned code = first; code <= last && code < 256; code++) {
        p->retryable[code >> 3] |= (uint8_t)(1u << (code & 7));
    }
}

bool restart_preset(struct restart_policy *p, const char *name)
{
    for (size_t i = 0; i < ARRAY_SIZE(presets); i++) {
        if (strcmp(presets[i].name, name)) {
            continue;
        }
        for (size_t k = 0; k < ARRAY_SIZE(presets[i].codes); k++) {
            struct range codes = presets[i].codes[k];

            if (codes.first) {
                restart_allow(p, codes.first, codes.last);
            }
        }
        return true;
    }
    return false;
}

/* What a shell would show: the worker's own code, or 128 + its signal. */
static unsigned shell_code(const struct failure *f)
{
    switch (f->kind) {
    case FAILURE_EXIT:
    case FAILURE_EXEC:
    case FAILURE_SAID:
        return f->exit_code;
    case FAILURE_SIGNAL:
    case FAILURE_OOM:
    case FAILURE_HANG:
        return (128u + f->signal) & 255;
    case FAILURE_AGENT:
    case FAILURE_NONE:
        break;
    }
    return RUN_FAILED;
}

/* The sets known by name have codes that others than the kernel's lack of memory
 * ends with as well; who lists them means each. */
static bool is_listed(const struct restart_policy *p)
{
    for (size_t i = 0; i < ARRAY_SIZE(presets); i++) {
        struct restart_policy preset = {0};

        restart_preset(&preset, presets[i].name);
        if (memcmp(preset.retryable, p->retryable,
                   sizeof(p->retryable)) == 0) {
            return false;
        }
    }
    return p->kind == RESTART_EXIT_CODE;
}

bool restart_allowed(const struct restart_policy *p, const struct failure *f)
{
    unsigned code = shell_code(f);

    if (f->kind == FAILURE_EXEC ||
        (f->kind == FAILURE_OOM && !is_listed(p))) {
        return false;
    }
    switch (p->kind) {
    case RESTART_NEVER:
        return false;
    case RESTART_ON_FAILURE:
    case RESTART_ALWAYS:
        return true;
    case RESTART_EXIT_CODE:
        return p->retryable[code >> 3] >> (code & 7) & 1;
    }
    return false;
}

uint64_t restart_backoff_ms(const struct restart_policy *p, uint32_t n_quick)
{
    uint64_t wait_ms = p->backoff_min_ms;

    if (n_quick == 0) {
        return 0;
    }
    for (uint32_t i = 1; i < n_quick && wait_ms < p->backoff_max_ms; i++) {
        wait_ms = wait_ms > UINT64_MAX / 2 ? UINT64_MAX : wait_ms * 2;
    }
    return wait_ms < p->backoff_max_ms ? wait_ms : p->backoff_max_ms;
}

uint8_t restart_exit_status(const struct failure *f)
{
    static const uint8_t taken[] = {
        0,            RUN_USAGE,          RUN_NO_GANG,   RUN_RESUMABLE,
        RUN_DEADLINE, RUN_NOT_EXECUTABLE, RUN_NOT_FOUND, RUN_CANCELLED,
    };
    uint8_t code = (uint8_t)shell_code(f);

    if (f->kind == FAILURE_EXEC) {
        return code == RUN_NOT_EXECUTABLE ? code : RUN_NOT_FOUND;
    }
    return memchr(taken, code, sizeof(taken)) ? RUN_FAILED : code;
}
