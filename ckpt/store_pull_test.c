/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A pull from a store that is a directory. What it seals was synced by itself, whoever
 * wrote it; what could not be synced is fetched once more; and a file is synced when all
 * of its pieces are written, whichever thread has the last one.
 */
#include <config.h>

#include "ckpt/store.h"

#include "base/cleanup.h"
#include "base/fs.h"
#include "ckpt/commit.h"
#include "ckpt/digest.h"
#include "ckpt/step_bed.h"
#include "ckpt/store_bed.h"
#include "tests/lib/tap.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

enum { MAX_NAMES = 64, STEP = 10 };
static const char first[] = "r00000.safetensors", other[] = "checkpoint-5";

/* --- what the disk and the store are asked for --- */

int __real_fsync(int fd);
int __wrap_fsync(int fd);
ssize_t __real_pwrite(int fd, const void *data, size_t len, off_t at);
ssize_t __wrap_pwrite(int fd, const void *data, size_t len, off_t at);
int __real_s3_get_range(struct s3 *s, const char *key, uint64_t at, void *to, size_t len,
                        struct error *e);
int __wrap_s3_get_range(struct s3 *s, const char *key, uint64_t at, void *to, size_t len,
                        struct error *e);

/* The next syncs of the file called so fail. */
static struct {
    const char *name;
    unsigned n;
} fault;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static char synced[MAX_NAMES][64];
static size_t n_synced;
static atomic_uint n_gets;
static const char *no_get; /* the end of a key that is not to be had */
static int sealed_dir = -1; /* looked at with each write */
static bool was_sealed;
static int comes_into = -1; /* something is put there with each get */
static int goes_from = -1; /* and what was fetched leaves with each get */
static const char part[] = ".checkpoint-5.muster-part";
static bool has_no_room;

int __real_fstatvfs(int fd, struct statvfs *ret);
int __wrap_fstatvfs(int fd, struct statvfs *ret);

int __wrap_fstatvfs(int fd, struct statvfs *ret)
{
    int rc = __real_fstatvfs(fd, ret);

    if (rc == 0 && has_no_room) {
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

/* It leaves before somebody has it for himself. */
static int moves_from = -1;

int __real_flock(int fd, int how);
int __wrap_flock(int fd, int how);

int __wrap_flock(int fd, int how)
{
    if (moves_from >= 0) {
        renameat(moves_from, part, moves_from, "moved");
    }
    return __real_flock(fd, how);
}

/* A file of that name cannot be read. */
static const char *unread;

ssize_t __real_pread(int fd, void *to, size_t len, off_t at);
ssize_t __wrap_pread(int fd, void *to, size_t len, off_t at);

ssize_t __wrap_pread(int fd, void *to, size_t len, off_t at)
{
    char name[64];

    name_of(fd, name);
    if (unread && strcmp(name, unread) == 0) {
        errno = EIO;
        return -1;
    }
    return __real_pread(fd, to, len, at);
}

/* A file of that name cannot be removed; and whether any went of what had its seal. */
static const char *stuck;
static bool went_sealed;

int __real_unlinkat(int dir, const char *name, int flags);
int __wrap_unlinkat(int dir, const char *name, int flags);

int __wrap_unlinkat(int dir, const char *name, int flags)
{
    if (strcmp(name, first) == 0) {
        went_sealed |= faccessat(dir, "COMMIT", F_OK, 0) == 0;
    }
    if (stuck && strcmp(name, stuck) == 0) {
        errno = EPERM;
        return -1;
    }
    return __real_unlinkat(dir, name, flags);
}

/* Of two threads on a file of two pieces one does not write before the other, with its own
 * piece, has gone on to another file. */
static atomic_bool is_held;
static atomic_bool is_early; /* the file was synced meanwhile */

int __wrap_fsync(int fd)
{
    char name[64];
    bool fails;

    name_of(fd, name);
    if (atomic_load(&is_held) && strcmp(name, "a.bin") == 0) {
        atomic_store(&is_early, true);
    }
    pthread_mutex_lock(&lock);
    fails = fault.n > 0 && strcmp(name, fault.name) == 0;
    fault.n -= fails;
    if (n_synced < MAX_NAMES) {
        memcpy(synced[n_synced++], name, sizeof(name));
    }
    pthread_mutex_unlock(&lock);
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
                    atomic_load(&is_held); i++) {
        poll(NULL, 0, 1);
    }
    if (sealed_dir >= 0 && strcmp(name, ".COMMIT.new") != 0) {
        was_sealed |= faccessat(sealed_dir, "COMMIT", F_OK, 0) == 0;
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
    atomic_fetch_add(&n_gets, 1);
    if (comes_into >= 0) {
        mkdirat(comes_into, other, 0700);
    }
    if (goes_from >= 0) {
        renameat(goes_from, part, goes_from, "gone");
    }
    if (ends_so(key, "b.bin")) {
        atomic_store(&is_held, false);
    }
    return no_get && ends_so(key, no_get)
               ? error_text(e, EAGAIN, "%s: the store is not there", key)
               : __real_s3_get_range(s, key, at, to, len, e);
}

static bool was_synced(const char *name)
{
    for (size_t i = 0; i < n_synced; i++) {
        if (strcmp(synced[i], name) == 0) {
            return true;
        }
    }
    return false;
}

/* --- a bed --- */

struct bench {
    char path[64];
    int from, to;
    struct store st;
    struct parcel own, others;
    struct store_facts facts;
};

static int open_new(const char *top, const char *name)
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

    if (mkdirat(from, other, 0700) < 0) {
        bail_out("mkdir %s", other);
    }
    dir = openat(from, other, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    a = openat(dir, "a.bin", O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
    b = openat(dir, "b.bin", O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
    c = openat(dir, "COMMIT", O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
    if (fs_write_all(c, "its own", 7) < 0 || fs_write_all(a, "begin", 5) < 0 ||
        ftruncate(a, DIGEST_BLOCK_BYTES + 5) < 0 ||
        fs_write_all(b, "short", 5) < 0) {
        bail_out("no files of %s", other);
    }
}

static void pack(struct bench *b, enum found_kind kind, const char *name, struct parcel *ret)
{
    struct found f = {.kind = kind};

    snprintf(f.name, sizeof(f.name), "%s", name);
    if (store_bed_put(&b->st, b->from, &f) < 0 ||
        parcel_pack(io_system(), b->from, &f, ret, NULL) < 0) {
        bail_out("no %s in the store", name);
    }
}

static void setup(struct bench *b)
{
    char name[STEP_NAME_BYTES], store[80];

    *b = (struct bench){.path = "/tmp/pull.XXXXXX"};
    if (!mkdtemp(b->path)) {
        bail_out("mkdtemp");
    }
    b->from = open_new(b->path, "from");
    b->to = open_new(b->path, "to");
    snprintf(store, sizeof(store), "%s/store", b->path);
    put_files(b->from);
    bed_name(STEP, STEP, name);
    if (!store_bed_open(store, &b->st) ||
        bed_save(io_system(), b->from, STEP, STEP, NULL) < 0) {
        bail_out("no store in %s", b->path);
    }
    pack(b, FOUND_MUSTER, name, &b->own);
    pack(b, FOUND_TRAINER, other, &b->others);
}

static void teardown(struct bench *b)
{
    parcel_release(&b->own);
    parcel_release(&b->others);
    store_bed_close(&b->st);
    close(b->from);
    close(b->to);
    fs_remove_tree(b->path, NULL);
}

static int pull(struct bench *b, const struct parcel *p, struct error *e)
{
    *e = (struct error){0};
    n_synced = 0;
    atomic_store(&n_gets, 0);
    return store_pull(&b->st, p, b->to, &b->facts, e);
}

static int open_own(const struct bench *b)
{
    return openat(b->to, b->own.name, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
}

static bool is_there(int dir, const char *name)
{
    return faccessat(dir, name, F_OK, 0) == 0;
}

static bool is_whole(const struct bench *b)
{
    _step_ struct step s = {0};

    return step_open(io_system(), b->to, b->own.name, &s, NULL) == 0 && bed_is_right(&s);
}

/* --- tests --- */

/* Who wrote the files may have been killed before they were on the disk. */
static void test_synced_again(void)
{
    struct error e;
    struct bench b;
    _close_ int own = -1;

    setup(&b);
    is_int(pull(&b, &b.own, &e), 0, "one of ours%s", e.text);
    own = open_own(&b);
    unlinkat(own, "COMMIT", 0);
    b.st.is_dry = true;
    is_int(pull(&b, &b.own, &e), 0, "all but its seal is here, a dry run says");
    is_int(n_synced, 0, "which syncs nothing: an error that is told once is the next one's");
    b.st.is_dry = false;
    is_int(pull(&b, &b.own, &e), 0, "it is pulled again%s", e.text);
    is_int(atomic_load(&n_gets), 0, "nothing is fetched");
    ok(b.facts.n_kept == b.own.n && b.facts.bytes_kept == b.own.bytes && b.facts.n_moved == 0,
       "which is told: %llu files of %llu bytes were here",
       (unsigned long long)b.facts.n_kept, (unsigned long long)b.facts.bytes_kept);
    for (size_t i = 0; i < b.own.n; i++) {
        ok(was_synced(b.own.items[i].path), "%s is synced", b.own.items[i].path);
    }
    ok(is_whole(&b), "and it is whole");
    teardown(&b);
}

/* A file that is here, and cannot be put on the disk. */
static void test_here_is_lost(void)
{
    struct error e;
    struct bench b;
    _close_ int own = -1, before = -1;
    struct stat st;

    setup(&b);
    is_int(pull(&b, &b.own, &e), 0, "one of ours%s", e.text);
    own = open_own(&b);
    before = openat(own, first, O_RDONLY | O_CLOEXEC);
    fault.name = first;
    fault.n = 1;
    sealed_dir = own;
    was_sealed = false;
    is_int(pull(&b, &b.own, &e), 0, "of which a file cannot be synced%s", e.text);
    is_int(atomic_load(&n_gets), 1, "it alone is fetched");
    ok(is_there(own, first) && fstat(before, &st) == 0 && st.st_nlink == 0,
       "into a new file");
    ok(!was_sealed, "while nothing says that there is a checkpoint");
    ok(is_whole(&b), "in the end it is whole");
    sealed_dir = -1;
    fault.n = 2;
    is_int(pull(&b, &b.own, &e), -EIO, "where the new one cannot be synced either");
    like(e.text, "r00000.safetensors was written twice", "that is told");
    ok(!is_there(own, first) && !is_there(own, "COMMIT"),
       "no such file is left, nor a seal");
    is_int(pull(&b, &b.own, &e), 0, "and the next pull");
    ok(is_whole(&b), "brings it");
    teardown(&b);
}

static void test_fetched_is_lost(void)
{
    struct error e;
    struct bench b;
    _close_ int own = -1;

    setup(&b);
    fault.name = first;
    fault.n = 1;
    is_int(pull(&b, &b.own, &e), 0, "what was fetched cannot be synced%s", e.text);
    is_int(atomic_load(&n_gets), (int)b.own.n + 1, "and is fetched once more");
    is_int(b.facts.n_moved, b.own.n, "each file counts once");
    ok(is_whole(&b), "it is whole");
    own = open_own(&b);
    unlinkat(own, "COMMIT", 0);
    unlinkat(own, first, 0);
    fault.n = 2;
    is_int(pull(&b, &b.own, &e), -EIO, "not twice");
    ok(!is_there(own, first) && !is_there(own, "COMMIT"),
       "what could not be synced is gone, and there is no seal");
    teardown(&b);
}

/* What is mended is none until it is whole: it may never be. */
static void test_unsealed(void)
{
    struct error e;
    struct bench b;
    _close_ int own = -1;

    setup(&b);
    is_int(pull(&b, &b.own, &e), 0, "one of ours%s", e.text);
    own = open_own(&b);
    unlinkat(own, first, 0);
    no_get = first;
    is_int(pull(&b, &b.own, &e), -EAGAIN, "a file is missing, and not to be had");
    no_get = NULL;
    ok(!is_there(own, "COMMIT"), "nothing says that there is a checkpoint");
    is_int(pull(&b, &b.own, &e), 0, "then it is");
    ok(is_whole(&b), "and there is one");
    teardown(&b);
}

/* --- in which order --- */

/* What was synced last, the last one last. */
static void synced_last(const char *const *want, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        is_str(n_synced >= n ? synced[n_synced - n + i] : "", want[i], "%zu before the end",
               n - 1 - i);
    }
}

static void test_order(void)
{
    struct error e;
    struct bench b;

    setup(&b);
    is_int(pull(&b, &b.own, &e), 0, "one of ours%s", e.text);
    synced_last((const char *const[]){b.own.name, "to", ".COMMIT.new", b.own.name}, 4);
    is_int(pull(&b, &b.others, &e), 0, "another program's%s", e.text);
    synced_last((const char *const[]){"to"}, 1);
    teardown(&b);
}

static void touch(int dir, const char *name)
{
    _close_ int fd = openat(dir, name, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);

    if (fd < 0) {
        bail_out("no %s", name);
    }
}

/* Of one who was killed when he put its seal there, or began to remove it. */
static void test_left(void)
{
    struct error e;
    struct bench b;
    _close_ int own = -1;

    setup(&b);
    is_int(pull(&b, &b.own, &e), 0, "one of ours%s", e.text);
    own = open_own(&b);
    unlinkat(own, first, 0);
    touch(own, ".COMMIT.old");
    no_get = first;
    is_int(pull(&b, &b.own, &e), -EAGAIN, "a file is missing, and not to be had");
    no_get = NULL;
    ok(!is_there(own, ".COMMIT.old"), "no removal goes on meanwhile");
    ok(was_synced(b.own.name), "which is on the disk before anything is fetched");
    touch(own, ".COMMIT.old");
    touch(own, ".COMMIT.new");
    is_int(pull(&b, &b.own, &e), 0, "it is whole in the end%s", e.text);
    ok(is_whole(&b) && !is_there(own, ".COMMIT.old") && !is_there(own, ".COMMIT.new"),
       "with nothing else");
    unlinkat(own, "COMMIT", 0);
    touch(own, ".COMMIT.old");
    is_int(pull(&b, &b.own, &e), 0, "also where no file is fetched%s", e.text);
    ok(is_whole(&b) && !is_there(own, ".COMMIT.old"), "none is left");
    teardown(&b);
}

/* A file of another program's is none of our seals. */
static void test_others_commit(void)
{
    struct error e;
    struct bench b;

    setup(&b);
    no_get = "b.bin";
    is_int(pull(&b, &b.others, &e), -EAGAIN, "one with a file COMMIT, half of it");
    no_get = NULL;
    is_int(pull(&b, &b.others, &e), 0, "and then all of it%s", e.text);
    ok(is_there(b.to, "checkpoint-5/COMMIT") && is_there(b.to, "checkpoint-5/b.bin"), "it is");
    teardown(&b);
}

/* Two who write the same files, and one who takes them away. */
static void test_somebody_else(void)
{
    struct error e;
    struct bench b;
    char to[80];
    int own, work;

    setup(&b);
    snprintf(to, sizeof(to), "%s/to", b.path);
    own = open_new(to, b.own.name);
    work = open_new(to, part);
    is_int(flock(own, LOCK_EX) | flock(work, LOCK_EX), 0, "somebody else fetches both");
    is_int(pull(&b, &b.own, &e), -EBUSY, "one of ours");
    like(e.text, "somebody else fetches step-", "is told");
    is_int(pull(&b, &b.others, &e), -EBUSY, "and one of others");
    like(e.text, "somebody else fetches checkpoint-5 into this directory", "is told");
    ok(atomic_load(&n_gets) == 0 && !is_there(work, "a.bin"), "nothing was fetched");
    b.st.is_dry = true;
    is_int(pull(&b, &b.others, &e), 0, "a dry run writes nothing%s", e.text);
    b.st.is_dry = false;
    close(own);
    close(work);
    goes_from = b.to;
    is_int(pull(&b, &b.others, &e), -EBUSY, "what was fetched is gone, and not in the store");
    goes_from = -1;
    like(e.text, "or removes it", "is told");
    is_int(pull(&b, &b.others, &e), 0, "then it is fetched%s", e.text);
    is_int(pull(&b, &b.own, &e), 0, "and ours%s", e.text);
    ok(is_whole(&b) && is_there(b.to, "checkpoint-5/b.bin"), "both are whole");
    teardown(&b);
}

static void test_name_comes(void)
{
    struct error e;
    struct bench b;

    setup(&b);
    comes_into = b.to;
    is_int(pull(&b, &b.others, &e), -EEXIST, "somebody makes one of that name meanwhile");
    comes_into = -1;
    ok(is_there(b.to, other) && !is_there(b.to, "checkpoint-5/b.bin"), "which stays");
    teardown(&b);
}

static void test_no_room(void)
{
    struct error e;
    struct bench b;

    setup(&b);
    has_no_room = true;
    is_int(pull(&b, &b.own, &e), -ENOSPC, "a disk that is full: %s", e.text);
    is_int(atomic_load(&n_gets), 0, "nothing is fetched");
    has_no_room = false;
    teardown(&b);
}

/* Writes over some of COMMIT. */
static void change_commit(int own, const char *text, off_t at)
{
    _close_ int fd = openat(own, "COMMIT", O_WRONLY | O_CLOEXEC);

    if (fd < 0 || pwrite(fd, text, strlen(text), at) != (ssize_t)strlen(text)) {
        bail_out("no COMMIT");
    }
}

static void resize_commit(int own, off_t len)
{
    _close_ int fd = openat(own, "COMMIT", O_WRONLY | O_CLOEXEC);

    if (fd < 0 || ftruncate(fd, len) < 0) {
        bail_out("no COMMIT");
    }
}

static void test_commit_here(void)
{
    struct commit stranger = {.step = 5, .uuid = "0123456789abcdef0123456789abcdef"};
    _buf_ struct buf text = {0};
    struct error e;
    struct bench b;
    _close_ int own = -1;

    setup(&b);
    is_int(pull(&b, &b.own, &e), 0, "one of ours%s", e.text);
    own = open_own(&b);
    change_commit(own, "x", 3);
    is_int(pull(&b, &b.own, &e), 0, "whose COMMIT is damaged%s", e.text);
    is_int(b.facts.n_moved, 0, "no file is fetched");
    ok(is_whole(&b), "is whole again");
    resize_commit(own, 10);
    is_int(pull(&b, &b.own, &e), 0, "cut%s", e.text);
    ok(is_whole(&b), "is whole again");
    resize_commit(own, 100000);
    is_int(pull(&b, &b.own, &e), 0, "too long%s", e.text);
    ok(is_whole(&b), "is whole again");
    commit_encode(&stranger, &text);
    resize_commit(own, 0);
    change_commit(own, buf_str(&text), 0);
    is_int(pull(&b, &b.own, &e), -EEXIST, "another one's");
    like(e.text, "another checkpoint", "is left alone");
    teardown(&b);
}

/* Of a muster that is to come. */
static void test_later_commit(void)
{
    struct error e;
    struct bench b;
    _close_ int own = -1;
    char text[COMMIT_MAX_BYTES + 1] = "";
    char *end;

    setup(&b);
    is_int(pull(&b, &b.own, &e), 0, "one of ours%s", e.text);
    own = open_own(&b);
    snprintf(text, sizeof(text), "%.*s", (int)b.own.seal.len, b.own.seal.data);
    end = strchr(text, '\n') + 1;
    memcpy(strstr(text, "\"v\":1"), "\"v\":2", 5);
    snprintf(end, sizeof(text) - (size_t)(end - text), "xxh3 %016llx\n",
             (unsigned long long)digest_short_of(text, (size_t)(end - text)));
    change_commit(own, text, 0);
    is_int(pull(&b, &b.own, &e), -EEXIST, "a COMMIT that this muster does not know");
    like(e.text, "another checkpoint", "is left alone");
    teardown(&b);
}

/* What is here of a file is neither right nor as long. */
static void test_longer(void)
{
    struct error e;
    struct bench b;
    _close_ int own = -1, fd = -1;
    _step_ struct step s = {0};

    setup(&b);
    is_int(pull(&b, &b.own, &e), 0, "one of ours%s", e.text);
    own = open_own(&b);
    fd = openat(own, first, O_WRONLY | O_APPEND | O_CLOEXEC);
    if (fd < 0 || write(fd, "more", 4) != 4) {
        bail_out("no %s", first);
    }
    is_int(pull(&b, &b.own, &e), 0, "with a file that is longer here%s", e.text);
    is_int(b.facts.n_moved, 1, "which is fetched");
    is_int(step_open(io_system(), b.to, b.own.name, &s, &e), 0, "is as long as it was%s", e.text);
    is_int(step_verify(&s, &e), 0, "and right%s", e.text);
    teardown(&b);
}

/* No file goes of what says that it is a checkpoint. */
static void test_stuck(void)
{
    struct error e;
    struct bench b;
    _close_ int own = -1;

    setup(&b);
    is_int(pull(&b, &b.own, &e), 0, "one of ours%s", e.text);
    own = open_own(&b);
    fault.name = stuck = first;
    fault.n = 1;
    went_sealed = false;
    is_int(pull(&b, &b.own, &e), -EIO, "of which a file cannot be synced, nor removed");
    like(e.text, "r00000.safetensors cannot be put on the disk, nor removed", "which is told");
    ok(!went_sealed && !is_there(own, "COMMIT"), "is no checkpoint, and was none by then");
    stuck = NULL;
    fault.n = 0;
    is_int(pull(&b, &b.own, &e), 0, "until that can be done%s", e.text);
    ok(is_whole(&b), "then it is whole");
    teardown(&b);
}

/* What cannot be read may be right: it is neither fetched anew nor another one's. */
static void test_unread(void)
{
    struct error e;
    struct bench b;

    setup(&b);
    is_int(pull(&b, &b.own, &e), 0, "one of ours%s", e.text);
    is_int(pull(&b, &b.others, &e), 0, "and another program's%s", e.text);
    unread = first;
    is_int(pull(&b, &b.own, &e), -EIO, "of which a file cannot be read");
    like(e.text, "look at step-000000000010-0000000a/r00000.safetensors", "which is told");
    unread = "b.bin";
    is_int(pull(&b, &b.others, &e), -EIO, "nor one of the other");
    like(e.text, "look at b.bin, of checkpoint-5", "which is told");
    unread = NULL;
    is_int(atomic_load(&n_gets), 0, "nothing is fetched");
    ok(is_whole(&b) && is_there(b.to, "checkpoint-5/b.bin"), "and both are as they were");
    teardown(&b);
}

/* It has no directory of its own. */
static void test_file(void)
{
    static const char name[] = "step-7.safetensors";
    static const char data[] = "\x40\0\0\0\0\0\0\0{\"t\":{\"dtype\":\"U8\",\"shape\":[1],"
                               "\"data_offsets\":[0,1]}}           x";
    _parcel_ struct parcel p = {0};
    _close_ int fd = -1;
    struct error e;
    struct bench b;

    setup(&b);
    fd = openat(b.from, name, O_CREAT | O_WRONLY | O_CLOEXEC, 0600);
    if (fd < 0 || write(fd, data, sizeof(data) - 1) != sizeof(data) - 1) {
        bail_out("no %s", name);
    }
    pack(&b, FOUND_SAFETENSORS, name, &p);
    is_int(pull(&b, &p, &e), 0, "a single file%s", e.text);
    ok(is_there(b.to, name) && !is_there(b.to, ".step-7.safetensors.muster-part"),
       "is all that is there");
    teardown(&b);
}

/* Between that it was opened and that it was locked. */
static void test_moved(void)
{
    struct error e;
    struct bench b;

    setup(&b);
    moves_from = b.to;
    is_int(pull(&b, &b.others, &e), -EBUSY, "somebody has taken away what is fetched into");
    moves_from = -1;
    like(e.text, "somebody else fetches checkpoint-5", "which is told");
    is_int(atomic_load(&n_gets), 0, "and nothing is fetched");
    teardown(&b);
}

static void test_others_are_here(void)
{
    struct error e;
    struct bench b;

    setup(&b);
    is_int(pull(&b, &b.others, &e), 0, "another program's%s", e.text);
    is_int(pull(&b, &b.others, &e), 0, "is here already%s", e.text);
    is_int(atomic_load(&n_gets), 0, "nothing is fetched");
    ok(was_synced("a.bin") && was_synced("b.bin") && was_synced(other) && was_synced("to"),
       "but all of it is synced, its name too");
    fault.name = "b.bin";
    fault.n = 1;
    is_int(pull(&b, &b.others, &e), -EIO, "where that fails");
    like(e.text, "b.bin, of checkpoint-5, which is here already", "it is told");
    is_int(pull(&b, &b.others, &e), 0, "nothing was taken away");
    teardown(&b);
}

static void test_two_threads(void)
{
    struct error e;
    struct bench b;

    setup(&b);
    b.st.n_threads = 2;
    atomic_store(&is_held, true);
    atomic_store(&is_early, false);
    is_int(pull(&b, &b.others, &e), 0, "the first of two pieces is written late%s", e.text);
    ok(!atomic_load(&is_held), "the other one has been, and its thread has gone on");
    ok(!atomic_load(&is_early), "the file was not synced meanwhile");
    ok(was_synced("a.bin"), "but then it was");
    teardown(&b);
}

/* Nobody writes what is only held against its digest. */
static void test_verified(void)
{
    struct error e = {0};
    struct bench b;
    char path[PATH_MAX];

    setup(&b);
    n_synced = 0;
    is_int(store_check(&b.st, &b.others, true, &e), 0, "in the store it is right%s", e.text);
    is_int(n_synced, 0, "nothing was synced");
    snprintf(path, sizeof(path), "%s/store/%s/b.bin", b.path, b.others.name);
    fs_write_replace(path, "shorT", 5, NULL);
    is_int(store_check(&b.st, &b.others, true, &e), -ERR_FORMAT, "and then it is not");
    is_int(pull(&b, &b.others, &e), -ERR_FORMAT, "a pull says so, too");
    like(e.text, "b.bin is damaged in the store", "in words");
    ok(!was_synced("b.bin"), "and syncs nothing that is wrong");
    teardown(&b);
}

int main(void)
{
    test_synced_again();
    test_here_is_lost();
    test_fetched_is_lost();
    test_unsealed();
    test_order();
    test_left();
    test_others_commit();
    test_somebody_else();
    test_name_comes();
    test_no_room();
    test_commit_here();
    test_later_commit();
    test_longer();
    test_stuck();
    test_unread();
    test_file();
    test_moved();
    test_others_are_here();
    test_two_threads();
    test_verified();
    return tap_done();
}
