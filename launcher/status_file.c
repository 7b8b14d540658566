/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "launcher/status_file.h"

#include "base/cleanup.h"
#include "base/fs.h"
#include "base/str.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* Two: the first that is used leaves the file that was status.json before in its
 * place, of any size; the other one changes places from then on. */
enum { N_SPARES = 2 };

static int spare_path(const char *dir, int i, char *to, size_t size,
                      struct error *e)
{
    return fs_path(to, size, e, "%s/.status.spare-%d", dir, i);
}

int status_file_reserve(const char *dir, struct error *e)
{
    _free_ char *blank = malloc(STATUS_SPARE_BYTES);
    char path[PATH_MAX];
    struct stat st;
    int rc = 0;

    if (!blank) {
        return error_set(e, ENOMEM, "keep room for the status");
    }
    memset(blank, ' ', STATUS_SPARE_BYTES);
    for (int i = 0; rc == 0 && i < N_SPARES; i++) {
        rc = spare_path(dir, i, path, sizeof(path), e);
        if (rc == 0 && (stat(path, &st) < 0 ||
                        st.st_size != STATUS_SPARE_BYTES)) {
            rc = fs_write_replace(path, blank, STATUS_SPARE_BYTES, e);
        }
    }
    return rc;
}

void status_file_unreserve(const char *dir)
{
    char path[PATH_MAX];

    for (int i = 0; i < N_SPARES; i++) {
        if (spare_path(dir, i, path, sizeof(path), NULL) == 0) {
            unlink(path);
        }
    }
}

/* Over what is there, blanks behind it: no block is given back or asked for. */
static int write_over(int fd, struct buf *text, size_t size, bool durable)
{
    int rc;

    while (text->len < size && !text->failed) {
        buf_putc(text, text->len + 1 == size ? '\n' : ' ');
    }
    if (text->failed) {
        return -ENOMEM;
    }
    rc = fs_write_all(fd, text->data, text->len);
    return rc == 0 && durable && fsync(fd) < 0 ? -errno : rc;
}

/* Not every filesystem can exchange two files: there the spare is spent. */
static int exchange(const char *spare, const char *path)
{
    if (renameat2(AT_FDCWD, spare, AT_FDCWD, path, RENAME_EXCHANGE) == 0 ||
        rename(spare, path) == 0) {
        return 0;
    }
    return -errno;
}

/* What can be written without another block. */
static size_t capacity(const struct stat *st)
{
    size_t blocks = (size_t)st->st_blocks * 512, size = (size_t)st->st_size;

    return blocks > size ? blocks : size;
}

static int use_spare(const char *dir, int i, const char *path,
                     struct buf *text, bool durable)
{
    char spare[PATH_MAX];
    _close_ int fd = -1;
    struct stat st;
    int rc = spare_path(dir, i, spare, sizeof(spare), NULL);

    if (rc < 0) {
        return rc;
    }
    fd = open(spare, O_WRONLY | O_CLOEXEC | O_NOFOLLOW);
    if (fd < 0 || fstat(fd, &st) < 0) {
        return -errno;
    }
    if (capacity(&st) < text->len) {
        return -ENOSPC;
    }
    rc = write_over(fd, text, (size_t)st.st_size, durable);
    return rc < 0 ? rc : exchange(spare, path);
}

static int use_any_spare(const char *dir, const char *path,
                         const struct run_status *s)
{
    _buf_ struct buf text = {0};
    int rc = -ENOSPC;

    run_status_to_json(s, &text);
    if (text.failed) {
        return -ENOMEM;
    }
    for (int i = 0; rc < 0 && i < N_SPARES; i++) {
        rc = use_spare(dir, i, path, &text, status_run_is_over(s->state));
    }
    return rc;
}

/* All of it if that fits, else without lists and lines. */
static int write_reduced(const char *dir, const char *path,
                         const struct run_status *s, int why)
{
    struct run_status reduced = *s;
    int rc;

    snprintf(reduced.trouble, sizeof(reduced.trouble), "records cannot be "
             "written: %s", strerror(why));
    rc = use_any_spare(dir, path, &reduced);
    if (rc == 0) {
        return 0;
    }
    snprintf(reduced.trouble, sizeof(reduced.trouble), "records cannot be "
             "written: %s; nodes and workers are left out here",
             strerror(why));
    reduced.n_nodes = reduced.n_workers = 0;
    reduced.failure.lines = NULL;
    return use_any_spare(dir, path, &reduced);
}

int status_file_write(const char *dir, const struct run_status *s,
                      bool *ret_reduced, struct error *e)
{
    _buf_ struct buf text = {0};
    char path[PATH_MAX];
    int rc = fs_path(path, sizeof(path), e, "%s/status.json", dir);

    *ret_reduced = false;
    if (rc < 0) {
        return rc;
    }
    run_status_to_json(s, &text);
    if (text.failed) {
        return error_set(e, ENOMEM, "write %s", path);
    }
    /* The last word of a run must survive a crash of the node; the words
     * before it need not. */
    rc = status_run_is_over(s->state)
             ? fs_write_atomic(path, text.data, text.len, e)
             : fs_write_replace(path, text.data, text.len, e);
    if (rc == -ENOSPC || rc == -EDQUOT) {
        *ret_reduced = write_reduced(dir, path, s, -rc) == 0;
    }
    return rc;
}
