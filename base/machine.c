/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "base/machine.h"

#include "base/cleanup.h"
#include "base/fs.h"
#include "base/str.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

int machine_boot_id(char *to, size_t size, struct error *e)
{
    _free_ char *text = NULL;
    int rc = fs_read("/proc/sys/kernel/random/boot_id", 256, &text, NULL, e);

    if (rc < 0) {
        return rc;
    }
    text[strcspn(text, "\n")] = '\0';
    str_copy(to, size, text);
    return 0;
}

void machine_id(char *to, size_t size)
{
    char boot[64] = "", host[256] = "", pid_ns[64] = "";

    gethostname(host, sizeof(host) - 1);
    if (readlink("/proc/self/ns/pid", pid_ns, sizeof(pid_ns) - 1) < 0) {
        pid_ns[0] = '\0';
    }
    machine_boot_id(boot, sizeof(boot), NULL);
    snprintf(to, size, "%.36s/%s/%.20s", boot, pid_ns, host);
}
