/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "comm/agent_bed.h"

#include "base/str.h"
#include "tests/lib/tap.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

int agent_bed_open(struct agent_bed *p)
{
    struct sockaddr_un addr = {.sun_family = AF_UNIX};
    int listener;

    *p = (struct agent_bed){.dir = "/tmp/client-test-XXXXXX"};
    if (!mkdtemp(p->dir)) {
        bail_out("no temporary directory");
    }
    snprintf(p->path, sizeof(p->path), "%s/socket", p->dir);
    str_copy(addr.sun_path, sizeof(addr.sun_path), p->path);
    listener = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (bind(listener, (struct sockaddr *)&addr, sizeof(addr)) < 0 ||
        listen(listener, 1) < 0) {
        bail_out("no agent: %s", strerror(errno));
    }
    return listener;
}

void agent_bed_remove(const struct agent_bed *p)
{
    unlink(p->path);
    rmdir(p->dir);
}
