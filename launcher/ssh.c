/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "launcher/ssh.h"

#include <stdlib.h>
#include <string.h>

const char *ssh_command(const char *option)
{
    const char *env = getenv("MUSTER_SSH");

    env = env ? env : getenv("OMPI_MCA_plm_rsh_agent");
    env = env ? env : getenv("PRTE_MCA_plm_ssh_agent");
    env = option ? option : env;
    return env && env[strspn(env, " ")] ? env : NULL;
}

void ssh_argv(const char *option, struct strlist *to)
{
    const char *text = ssh_command(option);

    text = text ? text : "ssh -o BatchMode=yes -o ConnectTimeout=10";
    while (*(text += strspn(text, " "))) {
        size_t len = strcspn(text, " ");

        strlist_addf(to, "%.*s", (int)len, text);
        text += len;
    }
}
