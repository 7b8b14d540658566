/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "base/cleanup.h"
#include "base/fs.h"
#include "launcher/session.h"
#include "tests/lib/tap.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_FILES = 4 };

#define LOGIN "0::/user.slice/user-1000.slice/session-12.scope\n"
#define MAIN "/etc/systemd/logind.conf"
#define DROP "/etc/systemd/logind.conf.d/"
#define YES "[Login]\nKillUserProcesses=yes\n"

static const struct {
    const char *name;
    const char *groups;
    struct {
        const char *path, *text;
    } files[MAX_FILES];
    const char *job;
    const char *want; /* NULL: nothing is said */
} cases[] = {
    {"a login that kills", LOGIN, {{MAIN, YES}}, NULL, "KillUserProcesses"},
    {"one that does not", LOGIN, {{MAIN, "[Login]\nKillUserProcesses=no\n"}},
     NULL, NULL},
    {"a comment", LOGIN, {{MAIN, "[Login]\n#KillUserProcesses=yes\n"}}, NULL,
     NULL},
    {"no file", LOGIN, {{0}}, NULL, NULL},
    {"with cgroup v1", "9:pids:/x\n1:name=systemd:/user.slice/"
     "user-1000.slice/session-c3.scope\n0::/\n", {{MAIN, YES}}, NULL,
     "KillUserProcesses"},
    {"no login, but a service", "0::/system.slice/slurmd.service\n",
     {{MAIN, YES}}, NULL, NULL},
    {"a scope of the user's own", "0::/user.slice/user-1000.slice/"
     "user@1000.service/app.slice/run-17.scope\n", {{MAIN, YES}}, NULL, NULL},
    {"dropped in", LOGIN, {{MAIN, "[Login]\n"}, {DROP "9.conf", YES}}, NULL,
     "KillUserProcesses"},
    {"dropped in, the last word", LOGIN,
     {{MAIN, YES}, {DROP "1.conf", YES},
      {DROP "2.conf", "[Login]\nKillUserProcesses=no\n"}}, NULL, NULL},
    {"the host's own before the vendor's", LOGIN,
     {{"/usr/lib/systemd/logind.conf", YES}, {MAIN, "[Login]\n"}}, NULL, NULL},
    {"the vendor's alone", LOGIN, {{"/usr/lib/systemd/logind.conf", YES}},
     NULL, "KillUserProcesses"},
    {"what is no file of settings", LOGIN, {{DROP "1.conf.bak", YES}}, NULL,
     NULL},
    {"not this user's", LOGIN, {{MAIN, YES "KillExcludeUsers=root ann bob\n"}},
     NULL, NULL},
    {"a name that begins like this", LOGIN,
     {{MAIN, YES "KillExcludeUsers=root anne\n"}}, NULL, "have ann added"},
    {"of others only", LOGIN, {{MAIN, YES "KillOnlyUsers=guest\n"}}, NULL,
     NULL},
    {"of this one, too", LOGIN, {{MAIN, YES "KillOnlyUsers=guest ann\n"}}, NULL,
     "KillUserProcesses"},
    {"adopted by Slurm", "0::/system.slice/slurmstepd.scope/job_17/"
     "step_extern/user/task_0\n", {{0}}, NULL, "into job 17"},
    {"the job of the run itself", "0::/system.slice/slurmstepd.scope/job_17/"
     "step_extern/user/task_0\n", {{0}}, "17", NULL},
    {"another job than the run's", "4:memory:/slurm/uid_1000/job_17/"
     "step_extern\n", {{0}}, "18", "into job 17"},
    {"a step of a job", "0::/slurm/uid_1000/job_17/step_0/task_0\n", {{0}},
     NULL, NULL},
    {"no number", "0::/slurm/job_/step_extern\n", {{0}}, NULL, NULL},
    {"no list of groups", "session-1.scope\n:\n\n", {{MAIN, YES}}, NULL, NULL},
    {"nothing", "", {{MAIN, YES}}, NULL, NULL},
};

static void put(const char *root, const char *path, const char *text)
{
    char file[PATH_MAX], parent[PATH_MAX];

    snprintf(file, sizeof(file), "%s%s", root, path);
    snprintf(parent, sizeof(parent), "%.*s",
             (int)(strrchr(file, '/') - file), file);
    fs_mkdirs(parent, NULL);
    fs_write_replace(file, text, strlen(text), NULL);
}

static void check(size_t i, const char *dir)
{
    char root[256], text[512] = "before";

    snprintf(root, sizeof(root), "%s/%zu", dir, i);
    put(root, "/proc/self/cgroup", cases[i].groups);
    for (size_t k = 0; k < MAX_FILES && cases[i].files[k].path; k++) {
        put(root, cases[i].files[k].path, cases[i].files[k].text);
    }
    session_look(root, "ann", cases[i].job, text, sizeof(text));
    if (cases[i].want) {
        like(text, cases[i].want, "%s", cases[i].name);
    } else {
        is_str(text, "", "%s", cases[i].name);
    }
}

int main(void)
{
    char dir[] = "/tmp/muster-session.XXXXXX";
    char text[512] = "before";

    if (!mkdtemp(dir)) {
        bail_out("no temporary directory");
    }
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        check(i, dir);
    }
    session_look(dir, "ann", NULL, text, sizeof(text));
    is_str(text, "", "no /proc");
    fs_remove_tree(dir, NULL);
    return tap_done();
}
