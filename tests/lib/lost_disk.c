/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "tests/lib/lost_disk.h"

#include "base/cleanup.h"
#include "tests/lib/dm.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/fs.h>
#include <linux/loop.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/wait.h>

static const char recorded[] = "muster-lost", data_disk[] = "/dev/ram0",
                  log_disk[] = "/dev/ram1", replayed[] = "/dev/loop0";

enum { BLOCK = 4096, MKFS_WORDS = 10 };

static const struct {
    const char *name;
    uint64_t bytes;
    const char *mkfs[MKFS_WORDS + 1];
} types[] = {
    {"ext4", 32 << 20,
     {"mkfs.ext4", "-q", "-F", "-b", "4096", "-J", "size=4", "-E",
      "nodiscard,lazy_itable_init=0,lazy_journal_init=0"}},
    /* No less is made. */
    {"xfs", 300 << 20, {"mkfs.xfs", "-q", "-K", "-f"}},
};

struct lost_disk {
    const char *type, *mountpoint;
    uint64_t bytes;
    int base;          /* file of the empty filesystem */
    char *image;       /* as it was at entry `at`, flushed */
    bool *is_touched;  /* blocks of the image that may be other than zero */
    bool *is_dirty;    /* and of the disk that is recorded */
    char *data;        /* of one entry */
    size_t data_bytes;
    int log_fd, loop_fd, replay;
    struct write_log log;
    size_t at;
};

static int open_at(const char *dir, const char *name, int flags, struct error *e)
{
    char path[PATH_MAX];
    int fd;

    snprintf(path, sizeof(path), "%.4000s/%s", dir, name);
    fd = open(path, O_RDWR | O_CLOEXEC | flags, 0600);
    return fd < 0 ? error_set(e, errno, "open %s", path) : fd;
}

static bool is_zero(const char *block)
{
    return block[0] == 0 && memcmp(block, block + 1, BLOCK - 1) == 0;
}

static int write_at(int fd, const void *data, size_t n, uint64_t at,
                    struct error *e)
{
    for (size_t done = 0; done < n;) {
        ssize_t k = pwrite(fd, (const char *)data + done, n - done,
                           (off_t)(at + done));

        if (k < 0 && errno != EINTR) {
            return error_set(e, errno, "write at %llu", (unsigned long long)at);
        }
        done += k < 0 ? 0 : (size_t)k;
    }
    return 0;
}

/* --- the empty filesystem --- */

/* The image is the file's: what is written to it is not. */
static int map_image(struct lost_disk *d, struct error *e)
{
    if (d->image) {
        munmap(d->image, d->bytes);
    }
    d->image = mmap(NULL, d->bytes, PROT_READ | PROT_WRITE,
                    MAP_PRIVATE | MAP_NORESERVE, d->base, 0);
    if (d->image == MAP_FAILED) {
        d->image = NULL;
        return error_set(e, errno, "map the filesystem");
    }
    memset(d->is_touched, 0, d->bytes / BLOCK);
    for (off_t at = 0; (at = lseek(d->base, at, SEEK_DATA)) >= 0;) {
        off_t end = lseek(d->base, at, SEEK_HOLE);

        for (; at < end; at += BLOCK) {
            d->is_touched[at / BLOCK] = true;
        }
    }
    d->at = 0;
    return 0;
}

/* Blocks of zeroes, as the log of xfs, become holes of the file: they need not be looked
 * at again, nor written. */
static int drop_zeroes(int fd, struct error *e)
{
    char block[BLOCK];

    for (off_t at = 0; (at = lseek(fd, at, SEEK_DATA)) >= 0; at += BLOCK) {
        if (pread(fd, block, BLOCK, at) != BLOCK) {
            return error_set(e, errno, "read the filesystem");
        }
        if (is_zero(block) &&
            fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, at,
                      BLOCK) < 0) {
            return error_set(e, errno, "make a hole");
        }
    }
    return 0;
}

static int make_filesystem(const char *dir, const char *const *mkfs,
                           struct error *e)
{
    const char *argv[MKFS_WORDS + 2] = {0};
    char path[PATH_MAX];
    int status = -1;
    size_t n = 0;
    pid_t pid;

    snprintf(path, sizeof(path), "%.4000s/base", dir);
    for (; mkfs[n]; n++) {
        argv[n] = mkfs[n];
    }
    argv[n] = path;
    pid = fork();
    if (pid == 0) {
        execvp(argv[0], (char *const *)argv);
        _exit(127);
    }
    return pid > 0 && waitpid(pid, &status, 0) == pid && status == 0
               ? 0
               : error_text(e, EIO, "%s %s: status %d", argv[0], path, status);
}

int lost_disk_create(const char *type, const char *dir, const char *mountpoint,
                     struct lost_disk **ret, struct error *e)
{
    struct lost_disk *d = calloc(1, sizeof(*d));
    size_t i = 0;
    int rc = 0;

    while (i < ARRAY_SIZE(types) && strcmp(types[i].name, type) != 0) {
        i++;
    }
    if (!d || i == ARRAY_SIZE(types)) {
        free(d);
        return error_text(e, EINVAL, "no filesystem %s", type);
    }
    d->type = types[i].name;
    d->mountpoint = mountpoint;
    d->bytes = types[i].bytes;
    d->log_fd = d->loop_fd = d->replay = -1;
    d->is_touched = calloc(d->bytes / BLOCK, sizeof(bool));
    d->is_dirty = calloc(d->bytes / BLOCK, sizeof(bool));
    d->base = open_at(dir, "base", O_CREAT | O_TRUNC, e);
    if (!d->is_touched || !d->is_dirty || d->base < 0 ||
        ftruncate(d->base, (off_t)d->bytes) < 0) {
        rc = error_set(e, errno, "no room");
    }
    rc = rc < 0 ? rc : make_filesystem(dir, types[i].mkfs, e);
    rc = rc < 0 ? rc : drop_zeroes(d->base, e);
    d->replay = rc < 0 ? rc : open_at(dir, "replay", O_CREAT | O_TRUNC, e);
    if (rc < 0 || d->replay < 0) {
        lost_disk_destroy(d);
        return rc < 0 ? rc : -EIO;
    }
    *ret = d;
    return 0;
}

void lost_disk_destroy(struct lost_disk *d)
{
    if (!d) {
        return;
    }
    write_log_close(&d->log);
    close_fd(&d->log_fd);
    close_fd(&d->base);
    close_fd(&d->replay);
    if (d->image) {
        munmap(d->image, d->bytes);
    }
    free(d->is_touched);
    free(d->is_dirty);
    free(d->data);
    free(d);
}

/* --- recording --- */

/* What was on it before is gone. */
static int lay_out(struct lost_disk *d, struct error *e)
{
    _close_ int fd = open(data_disk, O_RDWR | O_CLOEXEC);
    int rc = fd < 0 ? error_set(e, errno, "open %s", data_disk) : 0;

    for (uint64_t i = 0; i < d->bytes / BLOCK && rc == 0; i++) {
        if (d->is_touched[i] || d->is_dirty[i]) {
            rc = write_at(fd, d->image + i * BLOCK, BLOCK, i * BLOCK, e);
        }
        d->is_dirty[i] = d->is_touched[i];
    }
    return rc < 0            ? rc
           : fsync(fd) < 0 || ioctl(fd, BLKFLSBUF, 0) < 0
               ? error_set(e, errno, "sync %s", data_disk)
               : 0;
}

static int mount_it(struct lost_disk *d, const char *device, struct error *e)
{
    return mount(device, d->mountpoint, d->type, 0, NULL) < 0
               ? error_set(e, errno, "mount %s on %s", device, d->mountpoint)
               : 0;
}

int lost_disk_record(struct lost_disk *d, struct error *e)
{
    char path[64], params[64];
    int rc = map_image(d, e);

    write_log_close(&d->log);
    close_fd(&d->log_fd);
    rc = rc < 0 ? rc : lay_out(d, e);
    snprintf(params, sizeof(params), "%s %s", data_disk, log_disk);
    rc = rc < 0 ? rc
                : dm_create(recorded, d->bytes / 512, "log-writes", params,
                            path, sizeof(path), e);
    if (rc < 0) {
        return rc;
    }
    rc = mount_it(d, path, e);
    if (rc < 0) {
        dm_remove(recorded, NULL);
    }
    return rc;
}

int lost_disk_mark(struct lost_disk *d, const char *text, struct error *e)
{
    char message[WRITE_LOG_MARK_BYTES + 8];

    (void)d;
    snprintf(message, sizeof(message), "mark %s", text);
    return dm_message(recorded, message, e);
}

static void touch(bool *blocks, const struct write_log_entry *en)
{
    for (uint64_t at = en->at / BLOCK; at * BLOCK < en->at + en->n; at++) {
        blocks[at] = true;
    }
}

/* What has been recorded fits on the disk, and each entry into `data`. */
static int read_log(struct lost_disk *d, struct error *e)
{
    int rc = write_log_open(d->log_fd, &d->log, e);

    for (size_t i = 0; i < d->log.n && rc == 0; i++) {
        const struct write_log_entry *en = &d->log.entries[i];

        if (en->at > d->bytes || en->n > d->bytes - en->at) {
            return error_text(e, ERR_FORMAT, "a write past the end of the disk");
        }
        touch(d->is_dirty, en);
        if (en->n > d->data_bytes) {
            free(d->data);
            d->data = malloc(en->n);
            d->data_bytes = en->n;
        }
        if (en->n > 0 && !d->data) {
            return error_set(e, ENOMEM, "the log");
        }
    }
    return rc;
}

int lost_disk_stop(struct lost_disk *d, const struct write_log **ret_log,
                   struct error *e)
{
    if (umount2(d->mountpoint, 0) < 0) {
        return error_set(e, errno, "unmount %s", d->mountpoint);
    }
    if (dm_remove(recorded, e) < 0) {
        return -EIO;
    }
    /* Nothing of what this log was before may be in the cache. */
    d->log_fd = open(log_disk, O_RDONLY | O_CLOEXEC);
    if (d->log_fd < 0 || ioctl(d->log_fd, BLKFLSBUF, 0) < 0) {
        return error_set(e, errno, "open %s", log_disk);
    }
    *ret_log = &d->log;
    return read_log(d, e);
}

/* --- after the loss --- */

/* One past the last flush before entry n. */
static size_t flushed(const struct lost_disk *d, size_t n)
{
    for (; n > d->at; n--) {
        if (d->log.entries[n - 1].is_flush) {
            return n - 1;
        }
    }
    return d->at;
}

/* A block of an entry that nothing has flushed; one with FUA is on the disk. Which are
 * left is the same each time. */
static bool is_left(const struct write_log_entry *en, uint64_t at,
                    enum lost_left left)
{
    uint64_t mixed = (en->data_at + at) / 512 * 0x9e3779b97f4a7c15;

    return en->is_fua || left == LEFT_ALL ||
           (left == LEFT_SOME && (mixed >> 40) % 2 == 0);
}

bool lost_disk_differs(const struct lost_disk *d, size_t n, enum lost_left left)
{
    size_t n_lost = 0, n_open = 0;

    if (left == LEFT_ALL) {
        return true;
    }
    for (size_t i = flushed(d, n); i < n; i++) {
        const struct write_log_entry *en = &d->log.entries[i];

        for (uint64_t at = 0; at < en->n && !en->is_fua; at += BLOCK) {
            n_open++;
            n_lost += !is_left(en, at, left);
        }
    }
    return n_lost > 0 && (left == LEFT_NONE || n_lost < n_open);
}

/* Brings the image to the last flush before entry n. */
static int advance(struct lost_disk *d, size_t n, struct error *e)
{
    size_t end = flushed(d, n);
    int rc = 0;

    for (; d->at < end && rc == 0; d->at++) {
        const struct write_log_entry *en = &d->log.entries[d->at];

        touch(d->is_touched, en);
        rc = write_log_data(&d->log, en, d->image + en->at, e);
    }
    return rc;
}

static int write_image(struct lost_disk *d, struct error *e)
{
    uint64_t n = d->bytes / BLOCK;
    int rc = ftruncate(d->replay, 0) < 0 ||
                     ftruncate(d->replay, (off_t)d->bytes) < 0
                 ? error_set(e, errno, "empty the disk") : 0;

    for (uint64_t i = 0, end; i < n && rc == 0; i = end) {
        for (end = i; end < n && d->is_touched[end]; end++) {
        }
        if (end > i) {
            rc = write_at(d->replay, d->image + i * BLOCK, (end - i) * BLOCK,
                          i * BLOCK, e);
        }
        end += end == i;
    }
    return rc;
}

/* What is left of an entry, block by block: disks promise no more. */
static int write_left(struct lost_disk *d, const struct write_log_entry *en,
                      enum lost_left left, struct error *e)
{
    int rc = write_log_data(&d->log, en, d->data, e);

    for (uint64_t at = 0; at < en->n && rc == 0; at += BLOCK) {
        size_t n = en->n - at < BLOCK ? en->n - at : BLOCK;

        if (is_left(en, at, left)) {
            rc = write_at(d->replay, d->data + at, n, en->at + at, e);
        }
    }
    return rc;
}

static int replay(struct lost_disk *d, size_t n, enum lost_left left,
                  struct error *e)
{
    int rc = advance(d, n, e);

    rc = rc < 0 ? rc : write_image(d, e);
    for (size_t i = d->at; i < n && rc == 0; i++) {
        rc = write_left(d, &d->log.entries[i], left, e);
    }
    return rc;
}

int lost_disk_mount(struct lost_disk *d, size_t n, enum lost_left left,
                    struct error *e)
{
    struct loop_config config = {.fd = (unsigned)d->replay};
    int rc = replay(d, n, left, e);

    if (rc < 0) {
        return rc;
    }
    d->loop_fd = open(replayed, O_RDWR | O_CLOEXEC);
    if (d->loop_fd < 0 || ioctl(d->loop_fd, LOOP_CONFIGURE, &config) < 0) {
        return error_set(e, errno, "set up %s", replayed);
    }
    rc = mount_it(d, replayed, e);
    if (rc < 0) {
        ioctl(d->loop_fd, LOOP_CLR_FD, 0);
        close_fd(&d->loop_fd);
    }
    return rc;
}

int lost_disk_unmount(struct lost_disk *d, struct error *e)
{
    if (umount2(d->mountpoint, 0) < 0) {
        return error_set(e, errno, "unmount %s", d->mountpoint);
    }
    if (ioctl(d->loop_fd, LOOP_CLR_FD, 0) < 0) {
        return error_set(e, errno, "free %s", replayed);
    }
    close_fd(&d->loop_fd);
    return 0;
}
