/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "launcher/rundir_bed.h"

#include "base/fs.h"
#include "tests/lib/tap.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

void bed_up(void)
{
    char dir[] = "/tmp/rundir-test-XXXXXX";
    char state[64];

    if (!mkdtemp(dir) || chdir(dir) < 0) {
        bail_out("mkdtemp");
    }
    snprintf(state, sizeof(state), "%s/state", dir);
    setenv("XDG_STATE_HOME", state, 1);
    unsetenv("SLURM_JOB_ID");
    umask(022);
}

void bed_down(void)
{
    char dir[PATH_MAX];

    if (getcwd(dir, sizeof(dir)) && chdir("/") == 0) {
        chmod(dir, 0700);
        fs_remove_tree(dir, NULL);
    }
}

bool bed_has_mode(const char *path, mode_t mode)
{
    struct stat st;

    return stat(path, &st) == 0 && (st.st_mode & 07777) == mode;
}

struct rundir *bed_create(const struct rundir_params *p)
{
    struct rundir *r = NULL;
    struct error e = {0};

    if (rundir_create(p, &r, &e) < 0) {
        bail_out("create %s: %s", p->name, e.text);
    }
    return r;
}

void bed_write(const char *path, const char *text)
{
    fs_write_replace(path, text, strlen(text), NULL);
}
