/* SPDX-License-Identifier: Apache-2.0 */
/*
 * hangfs DIR MOUNTPOINT [FUSE-OPTION...]: shows DIR at MOUNTPOINT, in the foreground
 * and on one thread. What a server of files that answers nobody does to who asks it,
 * a SIGSTOP does here: every question waits, reading as well as writing, until the
 * SIGCONT. A frozen filesystem holds up writing alone. SIGKILL ends all that waits.
 *
 * Nothing is kept but the descriptor of DIR; the kernel is told to keep no names and
 * no attributes, so that it asks each time.
 */
#include <config.h>

#define FUSE_USE_VERSION 32

#include <dirent.h>
#include <err.h>
#include <errno.h>
#include <fcntl.h>
#include <fuse.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

/* What fuse_main() gives to each call. */
static int root(void)
{
    return (int)(intptr_t)fuse_get_context()->private_data;
}

/* FUSE's paths begin with a slash; these are below the root. */
static const char *below(const char *path)
{
    return path[1] ? path + 1 : ".";
}

static int result(int rc)
{
    return rc < 0 ? -errno : 0;
}

static void *on_init(struct fuse_conn_info *conn, struct fuse_config *config)
{
    (void)conn;
    config->use_ino = 1;
    config->entry_timeout = 0;
    config->attr_timeout = 0;
    config->negative_timeout = 0;
    return fuse_get_context()->private_data;
}

static int on_getattr(const char *path, struct stat *st,
                      struct fuse_file_info *file)
{
    return result(file ? fstat((int)file->fh, st)
                       : fstatat(root(), below(path), st, AT_SYMLINK_NOFOLLOW));
}

static int on_access(const char *path, int mode)
{
    return result(faccessat(root(), below(path), mode, 0));
}

static int on_readlink(const char *path, char *to, size_t size)
{
    ssize_t n = readlinkat(root(), below(path), to, size - 1);

    if (n < 0) {
        return -errno;
    }
    to[n] = '\0';
    return 0;
}

static int on_readdir(const char *path, void *buf, fuse_fill_dir_t fill,
                      off_t offset, struct fuse_file_info *file,
                      enum fuse_readdir_flags flags)
{
    int fd = openat(root(), below(path), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *dir = fd < 0 ? NULL : fdopendir(fd);
    struct dirent *d;

    (void)offset;
    (void)file;
    (void)flags;
    if (!dir) {
        return -errno;
    }
    while ((d = readdir(dir))) {
        struct stat st = {.st_ino = d->d_ino, .st_mode = DTTOIF(d->d_type)};

        fill(buf, d->d_name, &st, 0, 0);
    }
    closedir(dir);
    return 0;
}

static int on_mkdir(const char *path, mode_t mode)
{
    return result(mkdirat(root(), below(path), mode));
}

static int on_unlink(const char *path)
{
    return result(unlinkat(root(), below(path), 0));
}

static int on_rmdir(const char *path)
{
    return result(unlinkat(root(), below(path), AT_REMOVEDIR));
}

static int on_symlink(const char *to, const char *path)
{
    return result(symlinkat(to, root(), below(path)));
}

static int on_rename(const char *from, const char *to, unsigned flags)
{
    return result(renameat2(root(), below(from), root(), below(to), flags));
}

static int on_link(const char *from, const char *to)
{
    return result(linkat(root(), below(from), root(), below(to), 0));
}

static int on_chmod(const char *path, mode_t mode, struct fuse_file_info *file)
{
    (void)file;
    return result(fchmodat(root(), below(path), mode, 0));
}

static int on_chown(const char *path, uid_t uid, gid_t gid,
                    struct fuse_file_info *file)
{
    (void)file;
    return result(
        fchownat(root(), below(path), uid, gid, AT_SYMLINK_NOFOLLOW));
}

static int on_utimens(const char *path, const struct timespec times[2],
                      struct fuse_file_info *file)
{
    (void)file;
    return result(utimensat(root(), below(path), times, AT_SYMLINK_NOFOLLOW));
}

static int open_below(const char *path, mode_t mode, int flags,
                      struct fuse_file_info *file)
{
    int fd = openat(root(), below(path), flags | O_CLOEXEC, mode);

    if (fd < 0) {
        return -errno;
    }
    file->fh = (uint64_t)fd;
    return 0;
}

static int on_create(const char *path, mode_t mode,
                     struct fuse_file_info *file)
{
    return open_below(path, mode, (file->flags | O_CREAT) & ~O_DIRECT, file);
}

/* The kernel says where each write goes, also to files that are appended to. */
static int on_open(const char *path, struct fuse_file_info *file)
{
    return open_below(path, 0, file->flags & ~(O_DIRECT | O_APPEND), file);
}

static int on_read(const char *path, char *to, size_t size, off_t offset,
                   struct fuse_file_info *file)
{
    ssize_t n = pread((int)file->fh, to, size, offset);

    (void)path;
    return n < 0 ? -errno : (int)n;
}

static int on_write(const char *path, const char *from, size_t size,
                    off_t offset, struct fuse_file_info *file)
{
    ssize_t n = pwrite((int)file->fh, from, size, offset);

    (void)path;
    return n < 0 ? -errno : (int)n;
}

static int on_truncate(const char *path, off_t size,
                       struct fuse_file_info *file)
{
    int fd = file ? (int)file->fh
                  : openat(root(), below(path), O_WRONLY | O_CLOEXEC);
    int rc = fd < 0 ? -errno : result(ftruncate(fd, size));

    if (!file && fd >= 0) {
        close(fd);
    }
    return rc;
}

static int on_fsync(const char *path, int is_data, struct fuse_file_info *file)
{
    (void)path;
    return result(is_data ? fdatasync((int)file->fh) : fsync((int)file->fh));
}

static int on_fallocate(const char *path, int mode, off_t offset, off_t size,
                        struct fuse_file_info *file)
{
    (void)path;
    return result(fallocate((int)file->fh, mode, offset, size));
}

static int on_release(const char *path, struct fuse_file_info *file)
{
    (void)path;
    close((int)file->fh);
    return 0;
}

static int on_statfs(const char *path, struct statvfs *st)
{
    (void)path;
    return result(fstatvfs(root(), st));
}

static const struct fuse_operations operations = {
    .init = on_init,
    .getattr = on_getattr,
    .access = on_access,
    .readlink = on_readlink,
    .readdir = on_readdir,
    .mkdir = on_mkdir,
    .unlink = on_unlink,
    .rmdir = on_rmdir,
    .symlink = on_symlink,
    .rename = on_rename,
    .link = on_link,
    .chmod = on_chmod,
    .chown = on_chown,
    .utimens = on_utimens,
    .create = on_create,
    .open = on_open,
    .read = on_read,
    .write = on_write,
    .truncate = on_truncate,
    .fsync = on_fsync,
    .fallocate = on_fallocate,
    .release = on_release,
    .statfs = on_statfs,
};

int main(int argc, char **argv)
{
    struct fuse_args args = FUSE_ARGS_INIT(0, NULL);
    int fd = argc < 3 ? -1 : open(argv[1], O_PATH | O_DIRECTORY | O_CLOEXEC);

    if (argc < 3) {
        errx(2, "usage: hangfs DIR MOUNTPOINT [FUSE-OPTION...]");
    }
    if (fd < 0) {
        err(1, "%s", argv[1]);
    }
    umask(0); /* the kernel has applied the caller's */
    fuse_opt_add_arg(&args, argv[0]);
    fuse_opt_add_arg(&args, "-f");
    fuse_opt_add_arg(&args, "-s");
    for (int i = 2; i < argc; i++) {
        fuse_opt_add_arg(&args, argv[i]);
    }
    return fuse_main(args.argc, args.argv, &operations, (void *)(intptr_t)fd);
}
