/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "launcher/control_path.h"

#include "base/cleanup.h"
#include "base/fs.h"
#include "base/leftover.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static int run_path(const char *run_id, char *to, size_t size, struct error *e)
{
    char base[PATH_MAX];
    int rc = fs_runtime_dir(base, sizeof(base), e);

    if (rc < 0) {
        return rc;
    }
    if (!run_id[0] || run_id[0] == '.' || strchr(run_id, '/')) {
        return error_text(e, EINVAL, "'%.100s' is no run id", run_id);
    }
    return fs_path(to, size, e, "%s/%s", base, run_id);
}

static int open_dir(const char *path, int *ret_fd, struct error *e)
{
    int fd = open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);

    if (fd < 0) {
        return error_set(e, errno, "open %s", path);
    }
    *ret_fd = fd;
    return 0;
}

/* A login may have another XDG_RUNTIME_DIR or TMPDIR than the run: one over ssh,
 * or on a node of a batch job. The usual places are looked at as well, for a
 * directory of this user. */
static int open_elsewhere(const char *run_id, int *ret_fd)
{
    for (int i = 0; i < 2; i++) {
        _close_ int fd = -1;
        char path[PATH_MAX];
        struct stat st;

        snprintf(path, sizeof(path), i ? "/tmp/muster-%lu/%s"
                                       : "/run/user/%lu/muster/%s",
                 (unsigned long)geteuid(), run_id);
        if (open_dir(path, &fd, NULL) == 0 && fstat(fd, &st) == 0 &&
            st.st_uid == geteuid()) {
            *ret_fd = take_fd(&fd);
            return 0;
        }
    }
    return -ENOENT;
}

int control_open_dir(const char *run_id, bool make, int *ret_fd,
                     struct error *e)
{
    char path[PATH_MAX];
    int rc = run_path(run_id, path, sizeof(path), e);

    if (rc < 0) {
        return rc;
    }
    if (make && mkdir(path, 0700) < 0 && errno != EEXIST) {
        return error_set(e, errno, "make directory %s", path);
    }
    rc = open_dir(path, ret_fd, e);
    return rc == -ENOENT && !make && open_elsewhere(run_id, ret_fd) == 0 ? 0
                                                                         : rc;
}

void control_remove_dir(int dir_fd)
{
    char link[64], path[PATH_MAX];
    ssize_t n;

    snprintf(link, sizeof(link), "/proc/self/fd/%d", dir_fd);
    n = readlink(link, path, sizeof(path) - 1);
    if (n > 0) {
        path[n] = '\0';
        leftover_remove(path, NULL);
    }
}

void control_address(int dir_fd, const char *name, struct sockaddr_un *to)
{
    *to = (struct sockaddr_un){.sun_family = AF_UNIX};
    snprintf(to->sun_path, sizeof(to->sun_path), "/proc/self/fd/%d/%.70s",
             dir_fd, name);
}
