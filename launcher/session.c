/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "launcher/session.h"

#include "base/cleanup.h"
#include "base/fs.h"
#include "base/str.h"

#include <dirent.h>
#include <errno.h>
#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_BYTES = 64 << 10 };

/* What logind.conf and what is dropped in beside it say, the last word counts. */
struct login {
    bool kills;
    char only[256];    /* users whose processes are killed; "": all others */
    char exclude[256]; /* users whose are not */
};

static bool is_yes(const char *s)
{
    static const char *const words[] = {"yes", "true", "on", "1", "y", "t"};

    for (size_t i = 0; i < ARRAY_SIZE(words); i++) {
        if (strcasecmp(s, words[i]) == 0) {
            return true;
        }
    }
    return false;
}

static void take_line(struct login *l, char *line)
{
    char *value = strchr(line, '=');

    if (!value) {
        return;
    }
    *value++ = '\0';
    value[strcspn(value, "\r")] = '\0';
    if (strcmp(line, "KillUserProcesses") == 0) {
        l->kills = is_yes(value);
    } else if (strcmp(line, "KillOnlyUsers") == 0) {
        str_copy(l->only, sizeof(l->only), value);
    } else if (strcmp(line, "KillExcludeUsers") == 0) {
        str_copy(l->exclude, sizeof(l->exclude), value);
    }
}

static bool take_file(struct login *l, const char *path)
{
    _free_ char *text = NULL;
    char *rest, *line;

    if (fs_read_regular(path, MAX_BYTES, &text, NULL, NULL) < 0) {
        return false;
    }
    rest = text;
    while ((line = strsep(&rest, "\n"))) {
        take_line(l, line);
    }
    return true;
}

static int is_conf(const struct dirent *d)
{
    size_t len = strlen(d->d_name);

    return len > 5 && strcmp(d->d_name + len - 5, ".conf") == 0;
}

static void take_dir(struct login *l, const char *dir)
{
    struct dirent **names;
    char path[PATH_MAX];
    int n = scandir(dir, &names, is_conf, alphasort);

    for (int i = 0; i < n; i++) {
        if (fs_path(path, sizeof(path), NULL, "%s/%s", dir,
                    names[i]->d_name) == 0) {
            take_file(l, path);
        }
        free(names[i]);
    }
    if (n >= 0) {
        free(names);
    }
}

/* Weakest first. Of the main files only the strongest counts. */
static void read_login(const char *root, struct login *ret)
{
    static const char *const dirs[] = {"/usr/lib", "/run", "/etc"};
    char path[PATH_MAX];

    *ret = (struct login){.exclude = "root"};
    for (size_t i = ARRAY_SIZE(dirs); i-- > 0;) {
        if (fs_path(path, sizeof(path), NULL, "%s%s/systemd/logind.conf", root,
                    dirs[i]) == 0 && take_file(ret, path)) {
            break;
        }
    }
    for (size_t i = 0; i < ARRAY_SIZE(dirs); i++) {
        if (fs_path(path, sizeof(path), NULL, "%s%s/systemd/logind.conf.d",
                    root, dirs[i]) == 0) {
            take_dir(ret, path);
        }
    }
}

/* Names that are separated by blanks. */
static bool names_user(const char *list, const char *user)
{
    size_t len = strlen(user);

    while (*list) {
        size_t n = strcspn(list, " \t");

        if (n == len && memcmp(list, user, n) == 0) {
            return true;
        }
        list += n;
        list += strspn(list, " \t");
    }
    return false;
}

static bool kills(const struct login *l, const char *user)
{
    return l->kills && !names_user(l->exclude, user) &&
           (!l->only[0] || names_user(l->only, user));
}

/* "/session-12.scope" at the end of a group */
static bool is_login(const char *group)
{
    const char *last = strrchr(group, '/');
    size_t len = strlen(group);

    return last && str_starts(last, "/session-") && len > 6 &&
           strcmp(group + len - 6, ".scope") == 0;
}

/* The job of ".../job_17/step_extern...", or false. */
static bool is_adopted(const char *group, char *to, size_t size)
{
    const char *at = strstr(group, "/job_");
    size_t len = at ? strspn(at + 5, "0123456789") : 0;

    if (len == 0 || !str_starts(at + 5 + len, "/step_extern")) {
        return false;
    }
    snprintf(to, size, "%.*s", (int)len, at + 5);
    return true;
}

static void judge(const char *root, const char *group, const char *user,
                  const char *job, char *to, size_t size)
{
    struct login login;
    char adopted[32];

    if (is_login(group)) {
        read_login(root, &login);
        if (kills(&login, user)) {
            snprintf(to, size, "logind of this host ends all processes of a "
                     "login with it (KillUserProcesses): the run will not "
                     "outlive the login or ssh that started it; start it under "
                     "systemd-run --user --scope, or have %s added to "
                     "KillExcludeUsers in logind.conf", user);
        }
    } else if (is_adopted(group, adopted, sizeof(adopted)) &&
               (!job || strcmp(job, adopted) != 0)) {
        snprintf(to, size, "Slurm took the ssh to this host into job %s "
                 "(pam_slurm_adopt): what runs here ends with that job; start "
                 "the run inside the job that it belongs to", adopted);
    }
}

void session_look(const char *root, const char *user, const char *job,
                  char *to, size_t size)
{
    _free_ char *text = NULL;
    char path[PATH_MAX], *rest, *line;

    to[0] = '\0';
    if (fs_path(path, sizeof(path), NULL, "%s/proc/self/cgroup", root) < 0 ||
        fs_read(path, MAX_BYTES, &text, NULL, NULL) < 0) {
        return;
    }
    rest = text;
    while (!to[0] && (line = strsep(&rest, "\n"))) {
        const char *kinds = strchr(line, ':');
        const char *group = kinds ? strchr(kinds + 1, ':') : NULL;

        if (group) {
            judge(root, group + 1, user, job, to, size);
        }
    }
}
