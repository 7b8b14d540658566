/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "ckpt/found_bed.h"

#include "base/cleanup.h"
#include "base/fs.h"
#include "base/str.h"
#include "tests/lib/tap.h"

#include <fcntl.h>
#include <stdlib.h>
#include <unistd.h>

int found_bed_open(char path[FOUND_BED_PATH_BYTES])
{
    int dir;

    str_copy(path, FOUND_BED_PATH_BYTES, "/tmp/found.XXXXXX");
    dir = mkdtemp(path) ? open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC) : -1;
    if (dir < 0) {
        bail_out("no directory %s", path);
    }
    return dir;
}

void found_bed_close(int dir, const char *path)
{
    close(dir);
    fs_remove_tree(path, NULL);
}

void found_bed_put(int dir, const char *name, const void *bytes, size_t len)
{
    _close_ int fd = openat(dir, name, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);

    if (fd < 0 || fs_write_all(fd, bytes, len) < 0) {
        bail_out("write %s", name);
    }
}
