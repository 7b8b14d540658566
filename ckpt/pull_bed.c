/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "ckpt/pull_bed.h"

#include "base/cleanup.h"
#include "base/fs.h"
#include "ckpt/digest.h"
#include "ckpt/step_bed.h"
#include "ckpt/store_bed.h"
#include "tests/lib/tap.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

/* --- what the disk and the store are asked for --- */

int __real_fsync(int fd);
int __wrap_fsync(int fd);
ssize_t __real_pwrite(int fd, const void *data, size_t len, off_t at);
ssize_t __wrap_pwrite(int fd, const void *data, size_t len, off_t at);
int __real_s3_get_range(struct s3 *s, const char *key, uint64_t at, void *to, size_t len,
                        struct error *e);
int __wrap_s3_get_range(struct s3 *s, const char *key, uint64_t at, void *to, size_t len,
                        struct error *e);
int __real_fstatvfs(int fd, struct statvfs *ret);
int __wrap_fstatvfs(int fd, struct statvfs *ret);
int __real_flock(int fd, int how);
int __wrap_flock(int fd, int how);
ssize_t __real_pread(int fd, void *to, size_t len, off_t at);
ssize_t __wrap_pread(int fd, void *to, size_t len, off_t at);
int __real_unlinkat(int dir, const char *name, int flags);
int __wrap_unlinkat(int dir, const char *name, int flags);

int __wrap_fstatvfs(int fd, struct statvfs *ret)
{
    int rc = __real_fstatvfs(fd, ret);

    if (rc == 0 && pull_world.has_no_room) {
        ret->f_blocks = 1000;
        ret->f_bfree = ret->f_bavail = 0;
    }
    return rc;
}

static void name_of(int fd, char to[64])
{
    char link[32], path[PATH_MAX];
    ssize_t n;

    snprintf(link, sizeof(link), "/proc/self/fd/%d", fd);
    n = readlink(link, path, sizeof(path) - 1);
    path[n > 0 ? n : 0] = '\0';
    snprintf(to, 64, "%.63s", strrchr(path, '/') ? strrchr(path, '/') + 1 : path);
}

int __wrap_flock(int fd, int how)
{
    if (pull_world.moves_from >= 0) {
        renameat(pull_world.moves_from, PULL_PART, pull_world.moves_from, "moved");
    }
    return __real_flock(fd, how);
}

ssize_t __wrap_pread(int fd, void *to, size_t len, off_t at)
{
    char name[64];

    name_of(fd, name);
    if (pull_world.unread && strcmp(name, pull_world.unread) == 0) {
        errno = EIO;
        return -1;
    }
    return __real_pread(fd, to, len, at);
}

int __wrap_unlinkat(int dir, const char *name, int flags)
{
    if (strcmp(name, PULL_FIRST) == 0) {
        pull_world.went_sealed |= faccessat(dir, "COMMIT", F_OK, 0) == 0;
    }
    if (pull_world.stuck && strcmp(name, pull_world.stuck) == 0) {
        errno = EPERM;
        return -1;
    }
    return __real_unlinkat(dir, name, flags);
}

int __wrap_fsync(int fd)
{
    char name[64];
    bool fails;

    name_of(fd, name);
    if (atomic_load(&pull_world.is_held) && strcmp(name, "a.bin") == 0) {
        atomic_store(&pull_world.is_early, true);
    }
    pthread_mutex_lock(&pull_world.lock);
    fails = pull_world.fault.n > 0 && strcmp(name, pull_world.fault.name) == 0;
    pull_world.fault.n -= fails;
    if (pull_world.n_synced < PULL_MAX_NAMES) {
        memcpy(pull_world.synced[pull_world.n_synced++], name, sizeof(name));
    }
    pthread_mutex_unlock(&pull_world.lock);
    if (fails) {
        errno = EIO;
        return -1;
    }
    return __real_fsync(fd);
}

ssize_t __wrap_pwrite(int fd, const void *data, size_t len, off_t at)
{
    char name[64];

    name_of(fd, name);
    for (int i = 0; at == 0 && strcmp(name, "a.bin") == 0 && i < 60000 &&
                    atomic_load(&pull_world.is_held); i++) {
        poll(NULL, 0, 1);
    }
    if (pull_world.sealed_dir >= 0 && strcmp(name, ".COMMIT.new") != 0) {
        pull_world.was_sealed |= faccessat(pull_world.sealed_dir, "COMMIT", F_OK, 0) == 0;
    }
    return __real_pwrite(fd, data, len, at);
}

static bool ends_so(const char *text, const char *end)
{
    size_t n = strlen(text), k = strlen(end);

    return n >= k && strcmp(text + n - k, end) == 0;
}

int __wrap_s3_get_range(struct s3 *s, const char *key, uint64_t at, void *to, size_t len,
                        struct error *e)
{
    atomic_fetch_add(&pull_world.n_gets, 1);
    if (pull_world.comes_into >= 0) {
        mkdirat(pull_world.comes_into, PULL_OTHER, 0700);
    }
    if (pull_world.goes_from >= 0) {
        renameat(pull_world.goes_from, PULL_PART, pull_world.goes_from, "gone");
    }
    if (ends_so(key, "b.bin")) {
        atomic_store(&pull_world.is_held, false);
    }
    return pull_world.no_get && ends_so(key, pull_world.no_get)
               ? error_text(e, EAGAIN, "%s: the store is not there", key)
               : __real_s3_get_range(s, key, at, to, len, e);
}

bool pull_was_synced(const char *name)
{
    for (size_t i = 0; i < pull_world.n_synced; i++) {
        if (strcmp(pull_world.synced[i], name) == 0) {
            return true;
        }
    }
    return false;
}

/* --- a bed --- */

int pull_bed_mkdir(const char *top, const char *name)
{
    char path[128];

    snprintf(path, sizeof(path), "%s/%s", top, name);
    if (mkdir(path, 0700) < 0) {
        bail_out("mkdir %s", path);
    }
    return open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
}

/* a.bin is of two pieces. */
static void put_files(int from)
{
    _close_ int dir = -1, a = -1, b = -1, c = -1;

    if (mkdirat(from, PULL_OTHER, 0700) < 0) {
        bail_out("mkdir %s", PULL_OTHER);
    }
    dir = openat(from, PULL_OTHER, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    a = openat(dir, "a.bin", O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
    b = openat(dir, "b.bin", O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
    c = openat(dir, "COMMIT", O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
    if (fs_write_all(c, "its own", 7) < 0 || fs_write_all(a, "begin", 5) < 0 ||
        ftruncate(a, DIGEST_BLOCK_BYTES + 5) < 0 ||
        fs_write_all(b, "short", 5) < 0) {
        bail_out("no files of %s", PULL_OTHER);
    }
}

void pull_bed_pack(struct pull_bed *b, enum found_kind kind, const char *name, struct parcel *ret)
{
    struct found f = {.kind = kind};

    snprintf(f.name, sizeof(f.name), "%s", name);
    if (store_bed_put(&b->st, b->from, &f) < 0 ||
        parcel_pack(io_system(), b->from, &f, ret, NULL) < 0) {
        bail_out("no %s in the store", name);
    }
}

void pull_bed_open(struct pull_bed *b)
{
    struct pull_world *w = &pull_world;
    char name[STEP_NAME_BYTES], store[80];

    w->sealed_dir = w->comes_into = w->goes_from = w->moves_from = -1;
    pthread_mutex_init(&w->lock, NULL);
    *b = (struct pull_bed){.path = "/tmp/pull.XXXXXX"};
    if (!mkdtemp(b->path)) {
        bail_out("mkdtemp");
    }
    b->from = pull_bed_mkdir(b->path, "from");
    b->to = pull_bed_mkdir(b->path, "to");
    snprintf(store, sizeof(store), "%s/store", b->path);
    put_files(b->from);
    bed_name(PULL_STEP, PULL_STEP, name);
    if (!store_bed_open(store, &b->st) ||
        bed_save(io_system(), b->from, PULL_STEP, PULL_STEP, NULL) < 0) {
        bail_out("no store in %s", b->path);
    }
    pull_bed_pack(b, FOUND_MUSTER, name, &b->own);
    pull_bed_pack(b, FOUND_TRAINER, PULL_OTHER, &b->others);
}

void pull_bed_close(struct pull_bed *b)
{
    parcel_release(&b->own);
    parcel_release(&b->others);
    store_bed_close(&b->st);
    close(b->from);
    close(b->to);
    pthread_mutex_destroy(&pull_world.lock);
    fs_remove_tree(b->path, NULL);
}

int pull_run(struct pull_bed *b, const struct parcel *p, struct error *e)
{
    *e = (struct error){0};
    pull_world.n_synced = 0;
    atomic_store(&pull_world.n_gets, 0);
    return store_pull(&b->st, p, b->to, &b->facts, e);
}

int pull_bed_own(const struct pull_bed *b)
{
    return openat(b->to, b->own.name, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
}

bool pull_bed_has(int dir, const char *name)
{
    return faccessat(dir, name, F_OK, 0) == 0;
}

bool pull_bed_is_whole(const struct pull_bed *b)
{
    _step_ struct step s = {0};

    return step_open(io_system(), b->to, b->own.name, &s, NULL) == 0 && bed_is_right(&s);
}
