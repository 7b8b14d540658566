/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "ckpt/copy.h"

#include "base/cleanup.h"
#include "base/fs.h"
#include "base/str.h"
#include "ckpt/flock_fails.h"
#include "ckpt/held.h"
#include "ckpt/step_bed.h"
#include "tests/lib/tap.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/syscall.h>
#include <unistd.h>

static const char header[] =
    "{\"w\":{\"dtype\":\"F32\",\"shape\":[4],\"data_offsets\":[0,16]}}";

struct bench {
    char path[64], to_path[80];
    int from, to;
};

static int open_new(const char *path)
{
    if (mkdir(path, 0700) < 0 && errno != EEXIST) {
        bail_out("mkdir %s", path);
    }
    return open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
}

static void setup(struct bench *b)
{
    char from[80];

    *b = (struct bench){.path = "/tmp/copy.XXXXXX"};
    if (!mkdtemp(b->path)) {
        bail_out("mkdtemp");
    }
    snprintf(from, sizeof(from), "%s/from", b->path);
    snprintf(b->to_path, sizeof(b->to_path), "%s/to", b->path);
    b->from = open_new(from);
    b->to = open_new(b->to_path);
}

static void teardown(struct bench *b)
{
    close(b->from);
    close(b->to);
    fs_remove_tree(b->path, NULL);
}

static void put_text(int dir, const char *name, const void *text, size_t len)
{
    _close_ int fd = openat(dir, name, O_WRONLY | O_CREAT | O_TRUNC, 0600);

    if (fd < 0 || fs_write_all(fd, text, len) < 0) {
        bail_out("write %s", name);
    }
}

static void put(int dir, const char *name, size_t cut)
{
    uint8_t bytes[8 + sizeof(header) - 1 + 16] = {sizeof(header) - 1};

    memcpy(bytes + 8, header, sizeof(header) - 1);
    put_text(dir, name, bytes, sizeof(bytes) - cut);
}

static void put_trainer(int dir)
{
    static const char state[] = "{\"global_step\": 5}";
    _close_ int fd = -1;

    mkdirat(dir, "checkpoint-5", 0700);
    fd = openat(dir, "checkpoint-5", O_RDONLY | O_DIRECTORY);
    put(fd, "model.safetensors", 0);
    put_text(fd, "trainer_state.json", state, strlen(state));
}

static int copy(struct bench *b, const char *name, enum found_kind kind,
                struct error *e)
{
    struct found f = {.kind = kind, .has_step = true, .step = 5};
    struct found_facts facts = {0};

    snprintf(f.name, sizeof(f.name), "%s", name);
    return copy_checkpoint(io_system(), b->from, &f, b->to, b->to_path, &facts, e);
}

static int add_name(void *arg, const char *name)
{
    if (!str_ends(name, ".why")) {
        strlist_add(arg, name);
    }
    return 0;
}

static void there(const struct bench *b, const char *want, const char *what)
{
    _strlist_ struct strlist names = {0};
    char text[512] = "";

    io_system()->ops->list(io_system(), b->to, add_name, &names);
    for (size_t i = 0; i < names.n; i++) {
        snprintf(text + strlen(text), sizeof(text) - strlen(text), "%s ",
                 names.items[i]);
    }
    is_str(text, want, "%s", what);
}

static void test_whole(void)
{
    struct error e = {0};
    struct bench b;

    setup(&b);
    put(b.from, "m-5.safetensors", 0);
    is_int(copy(&b, "m-5.safetensors", FOUND_SAFETENSORS, &e), 0, "a file%s",
           e.text);
    there(&b, "m-5.safetensors ", "is there");
    is_int(copy(&b, "m-5.safetensors", FOUND_SAFETENSORS, &e), 0, "once more");
    unlinkat(b.to, "m-5.safetensors", 0);
    put_trainer(b.from);
    is_int(copy(&b, "checkpoint-5", FOUND_TRAINER, &e), 0, "a directory");
    is_int(copy(&b, "checkpoint-5", FOUND_TRAINER, &e), 0, "once more");
    there(&b, "checkpoint-5 ", "and nothing else");
    unlinkat(b.to, "checkpoint-5/trainer_state.json", 0);
    is_int(copy(&b, "checkpoint-5", FOUND_TRAINER, &e), 0, "over half of one");
    ok(faccessat(b.to, "checkpoint-5/trainer_state.json", F_OK, 0) == 0,
       "it is whole now");
    ok(faccessat(b.to, "checkpoint-5.broken", F_OK, 0) == 0,
       "and what was there is not lost");
    teardown(&b);
}

/* It was copied before a script had put its last file there. */
static void test_grown(void)
{
    struct error e = {0};
    struct bench b;
    int fd;

    setup(&b);
    mkdirat(b.from, "step_5", 0700);
    fd = openat(b.from, "step_5", O_RDONLY | O_DIRECTORY);
    put(fd, "model.safetensors", 0);
    is_int(copy(&b, "step_5", FOUND_TORCH_DIR, &e), 0, "one of one file");
    put(fd, "optim.safetensors", 0);
    is_int(copy(&b, "step_5", FOUND_TORCH_DIR, &e), 0, "that has two now: %s", e.text);
    ok(faccessat(b.to, "step_5/optim.safetensors", F_OK, 0) == 0, "has both there");
    there(&b, "step_5 ", "and nothing is left of the one before");
    put(fd, "model.safetensors", 1);
    is_int(copy(&b, "step_5", FOUND_TORCH_DIR, &e), -EEXIST, "one that was written over");
    like(e.text, "already, and is not what is to be copied: move it away",
         "is not said to be there");
    put(fd, "model.safetensors", 0);
    unlinkat(fd, "optim.safetensors", 0);
    put(fd, "rng.safetensors", 0);
    is_int(copy(&b, "step_5", FOUND_TORCH_DIR, &e), -EEXIST, "nor is one with another file");
    ok(faccessat(b.to, "step_5/optim.safetensors", F_OK, 0) == 0, "what is there stays");
    there(&b, "step_5 ", "and nothing comes beside it");
    close(fd);
    teardown(&b);
}

static void test_refused(void)
{
    struct error e = {0};
    struct bench b;
    int other;

    setup(&b);
    put(b.from, "m-5.safetensors", 1);
    is_int(copy(&b, "m-5.safetensors", FOUND_SAFETENSORS, &e), -ERR_FORMAT,
           "one that is cut");
    is_str(e.text, "m-5.safetensors: the file is cut: expected 79 bytes, found 78",
           "is told by its own name");
    there(&b, "", "leaves nothing");
    is_int(copy(&b, "m-6.safetensors", FOUND_SAFETENSORS, &e), -ENOENT,
           "one that is gone");
    put_trainer(b.from);
    symlinkat("/etc/passwd", b.from, "checkpoint-5/link");
    is_int(copy(&b, "checkpoint-5", FOUND_TRAINER, &e), -EINVAL, "with a link");
    like(e.text, "link is neither a file nor", "says so");
    there(&b, "", "and leaves nothing");
    put(b.from, "m-5.safetensors", 0);
    mkdirat(b.to, ".muster-copy-m-5.safetensors", 0700);
    other = open(b.to_path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    flock(b.to, LOCK_UN); /* of the copies before */
    ok(flock(other, LOCK_EX | LOCK_NB) == 0, "another one has the lock");
    is_int(copy(&b, "m-5.safetensors", FOUND_SAFETENSORS, &e), -EBUSY,
           "beside another copy");
    close(other);
    is_int(copy(&b, "m-5.safetensors", FOUND_SAFETENSORS, &e), 0,
           "and after one that was killed");
    there(&b, "m-5.safetensors ", "of which nothing is left");
    teardown(&b);
}

/* What is read in large pieces, as to be copied, comes with a bit changed. */
static ssize_t spoil(struct io *io, int fd, void *to, size_t len, uint64_t at)
{
    ssize_t n = io_system_ops.read(io, fd, to, len, at);

    if (n > 0 && len >= 1 << 20) {
        *(char *)to ^= 1;
    }
    return n;
}

/* One that is whole where it comes from, and whose copy is not. */
static void test_spoilt(void)
{
    struct found f = {.name = "m-5.safetensors", .kind = FOUND_SAFETENSORS};
    struct io_ops ops = io_system_ops;
    struct io bad = {.ops = &ops};
    struct found_facts facts = {0};
    struct error e = {0};
    struct bench b;

    setup(&b);
    ops.read = spoil;
    put(b.from, f.name, 0);
    is_int(copy_checkpoint(&bad, b.from, &f, b.to, b.to_path, &facts, &e), -ERR_FORMAT,
           "a copy that is not what was read");
    is_str(e.text, "m-5.safetensors is whole, and its copy is not what was written",
           "is told from a source that is damaged");
    there(&b, "", "and leaves nothing");
    teardown(&b);
}

static int held_from = -1;
static bool was_held;

static ssize_t look_meanwhile(struct io *io, int fd, void *to, size_t len, uint64_t at)
{
    (void)io;
    was_held |= held_is(held_from, "m-5.safetensors");
    return io_system()->ops->read(io_system(), fd, to, len, at);
}

static void test_held(void)
{
    struct found f = {.name = "m-5.safetensors", .kind = FOUND_SAFETENSORS};
    struct io_ops ops = io_system_ops;
    struct io watched = {.ops = &ops};
    struct found_facts facts = {0};
    struct bench b;

    setup(&b);
    ops.read = look_meanwhile;
    put(b.from, f.name, 0);
    held_from = b.from;
    is_int(copy_checkpoint(&watched, b.from, &f, b.to, b.to_path, &facts, NULL), 0, "a copy");
    ok(was_held, "holds what it reads");
    ok(!held_is(b.from, f.name), "until it is there");
    teardown(&b);
}

/* All files count, whatever they are. */
static void test_count(void)
{
    struct found f = {.name = "checkpoint-5", .kind = FOUND_TRAINER};
    struct found_facts facts = {.n_files = 99, .bytes = 99};
    struct bench b;

    setup(&b);
    put_trainer(b.from);
    put_text(b.from, "checkpoint-5/README.md", "abc", 3);
    mkdirat(b.from, "checkpoint-5/more", 0700);
    put_text(b.from, "checkpoint-5/more/x", "a", 1);
    copy_count(b.from, &f, &facts);
    is_int((long long)facts.n_files, 4, "files of a directory");
    is_int((long long)facts.bytes, 8 + sizeof(header) - 1 + 16 + 18 + 3 + 1, "and their bytes");
    snprintf(f.name, sizeof(f.name), "checkpoint-5/README.md");
    copy_count(b.from, &f, &facts);
    ok(facts.n_files == 1 && facts.bytes == 3, "one file");
    snprintf(f.name, sizeof(f.name), "gone");
    copy_count(b.from, &f, &facts);
    ok(facts.n_files == 0 && facts.bytes == 0, "none");
    teardown(&b);
}

/* In place of libc's: nothing can be written. */
static bool is_read_only;

int unlinkat(int at, const char *name, int flags)
{
    errno = EROFS;
    return is_read_only ? -1 : (int)syscall(SYS_unlinkat, at, name, flags);
}

int mkdirat(int at, const char *name, mode_t mode)
{
    errno = EROFS;
    return is_read_only ? -1 : (int)syscall(SYS_mkdirat, at, name, mode);
}

static void test_read_only(void)
{
    struct error e = {0};
    struct bench b;

    setup(&b);
    put_trainer(b.from);
    is_read_only = true;
    is_int(copy(&b, "checkpoint-5", FOUND_TRAINER, &e), -EROFS, "onto what is read only");
    is_str(e.text, "make the copy of checkpoint-5: Read-only file system",
           "fails for what cannot be made");
    is_read_only = false;
    teardown(&b);
}

/* As copy_is_there(). */
static int is_there(struct bench *b, const char *name, enum found_kind kind,
                    struct error *e)
{
    struct found f = {.kind = kind, .has_step = true, .step = 5};
    struct found_facts facts = {0};

    snprintf(f.name, sizeof(f.name), "%s", name);
    return copy_is_there(io_system(), b->from, &f, b->to, b->to_path, &facts, e);
}

static void test_there(void)
{
    static const char file[] = "m-5.safetensors", dir[] = "checkpoint-5";
    struct error e = {0};
    char ours[STEP_NAME_BYTES];
    struct bench b;

    setup(&b);
    put(b.from, file, 0);
    put_trainer(b.from);
    bed_name(5, 1, ours);
    is_int(bed_save(io_system(), b.from, 5, 1, &e), 0, "one of ours%s", e.text);
    is_int(is_there(&b, file, FOUND_SAFETENSORS, &e), 0, "nothing is there");
    is_int(is_there(&b, dir, FOUND_TRAINER, &e), 0, "nor a directory");
    is_int(is_there(&b, ours, FOUND_MUSTER, &e), 0, "nor ours");
    copy(&b, file, FOUND_SAFETENSORS, &e);
    copy(&b, dir, FOUND_TRAINER, &e);
    copy(&b, ours, FOUND_MUSTER, &e);
    is_int(is_there(&b, file, FOUND_SAFETENSORS, &e), 1, "the same file is");
    is_int(is_there(&b, dir, FOUND_TRAINER, &e), 1, "the same directory is");
    is_int(is_there(&b, ours, FOUND_MUSTER, &e), 1, "and ours");
    put_text(b.to, "checkpoint-5/notes", "x", 1);
    is_int(is_there(&b, dir, FOUND_TRAINER, &e), 1, "with a file more, too");
    put_text(b.to, "checkpoint-5/trainer_state.json", "{\"global_step\":  5}", 19);
    is_int(is_there(&b, dir, FOUND_TRAINER, &e), -EEXIST, "another directory");
    like(e.text, "already, and is not what is to be copied: move it away",
         "is called so");
    put_text(b.to, file, "\2\0\0\0\0\0\0\0{}", 10);
    is_int(is_there(&b, file, FOUND_SAFETENSORS, &e), -EEXIST, "another whole file");
    put(b.to, file, 1);
    is_int(is_there(&b, file, FOUND_SAFETENSORS, &e), 0, "one that is cut is none");
    put_text(b.to, "m-5.pt", "of its own", 10);
    is_int(is_there(&b, "m-5.pt", FOUND_TORCH, &e), -EEXIST, "what is not known");
    step_remove(io_system(), b.from, ours, NULL);
    is_int(bed_save(io_system(), b.from, 5, 1, &e), 0, "ours once more%s", e.text);
    is_int(is_there(&b, ours, FOUND_MUSTER, &e), 1, "from the same bytes");
    teardown(&b);
}

static unsigned mode_of(int dir, const char *name)
{
    struct stat st = {0};

    fstatat(dir, name, &st, AT_SYMLINK_NOFOLLOW);
    return st.st_mode & 07777;
}

/* Others may not read a copy of what they may not read. */
static void test_modes(void)
{
    mode_t before = umask(0);
    struct error e = {0};
    struct bench b;

    setup(&b);
    put_trainer(b.from);
    put(b.from, "m-5.safetensors", 0);
    is_int(copy(&b, "checkpoint-5", FOUND_TRAINER, &e), 0, "a directory");
    is_int(copy(&b, "m-5.safetensors", FOUND_SAFETENSORS, &e), 0, "a file");
    is_int(mode_of(b.to, "checkpoint-5"), 0700, "a directory is private");
    is_int(mode_of(b.to, "checkpoint-5/model.safetensors"), 0600, "its files are");
    is_int(mode_of(b.to, "m-5.safetensors"), 0600, "a file is");
    unlinkat(b.to, "checkpoint-5/trainer_state.json", 0);
    is_int(copy(&b, "checkpoint-5", FOUND_TRAINER, &e), 0, "over half of one");
    is_int(mode_of(b.to, "checkpoint-5.broken.why"), 0600, "and so is the reason");
    umask(before);
    teardown(&b);
}

static void test_locks(void)
{
    struct error e = {0};
    struct bench b;

    setup(&b);
    put(b.from, "m-5.safetensors", 0);
    mkdirat(b.to, ".muster-copy-m-5.safetensors", 0700);
    flock_fails_of = EIO;
    is_int(copy(&b, "m-5.safetensors", FOUND_SAFETENSORS, &e), -EIO,
           "no lock for another reason than that somebody has it");
    like(e.text, "lock /", "which is said");
    there(&b, ".muster-copy-m-5.safetensors ", "and nothing is copied");
    flock_fails_of = EBADF;
    is_int(copy(&b, "m-5.safetensors", FOUND_SAFETENSORS, &e), 0,
           "where directories have no locks: %s", e.text);
    flock_fails_of = 0;
    ok(faccessat(b.to, ".muster-copy-m-5.safetensors", F_OK, 0) == 0,
       "nobody takes away what another one may be writing");
    ok(faccessat(b.to, "m-5.safetensors", F_OK, 0) == 0, "and it is copied");
    teardown(&b);
}

/* Each read fails so. */
static int read_code;

static ssize_t fail_to_read(struct io *io, int fd, void *to, size_t len, uint64_t at)
{
    (void)io, (void)fd, (void)to, (void)len, (void)at;
    return read_code;
}

/* What is there and cannot be looked at may be whole. */
static void test_unread(void)
{
    static const int codes[] = {-ECANCELED, -EIO, -EACCES, -ENOMEM};
    struct io_ops ops = io_system_ops;
    struct io bad = {.ops = &ops};
    struct found f = {.kind = FOUND_MUSTER, .has_step = true, .step = 5};
    struct found_facts facts = {0};
    struct error e = {0};
    struct bench b;

    setup(&b);
    ops.read = fail_to_read;
    put_trainer(b.from);
    bed_name(5, 1, f.name);
    is_int(bed_save(io_system(), b.from, 5, 1, &e), 0, "one of ours%s", e.text);
    is_int(copy(&b, f.name, FOUND_MUSTER, &e), 0, "is copied%s", e.text);
    is_int(copy(&b, "checkpoint-5", FOUND_TRAINER, &e), 0, "and another one%s", e.text);
    for (size_t i = 0; i < ARRAY_SIZE(codes); i++) {
        read_code = codes[i];
        is_int(copy_checkpoint(&bad, b.from, &f, b.to, b.to_path, &facts, &e), codes[i],
               "ours there cannot be read (%d)", codes[i]);
        is_int(found_check(io_system(), b.to, &f, true, &facts, NULL), 0,
               "and stays whole");
    }
    f.kind = FOUND_TRAINER;
    snprintf(f.name, sizeof(f.name), "checkpoint-5");
    is_int(copy_checkpoint(&bad, b.from, &f, b.to, b.to_path, &facts, &e), -ENOMEM,
           "nor can the other one");
    is_int(found_check(io_system(), b.to, &f, true, &facts, NULL), 0, "which stays, too");
    ok(faccessat(b.to, "checkpoint-5.broken", F_OK, 0) < 0, "where it is");
    teardown(&b);
}

/* So many bytes are left; 0: as it is. */
static uint64_t bytes_left;

int __wrap_fstatvfs(int fd, struct statvfs *ret);
int __wrap_fstatvfs(int fd, struct statvfs *ret)
{
    (void)fd;
    *ret = (struct statvfs){.f_blocks = bytes_left ? 1 << 20 : 0, .f_frsize = 1,
                            .f_bfree = bytes_left, .f_bavail = bytes_left};
    return 0;
}

static void test_room(void)
{
    struct error e = {0};
    char ours[STEP_NAME_BYTES];
    struct bench b;

    setup(&b);
    put(b.from, "m-5.safetensors", 0);
    put_trainer(b.from);
    bed_name(5, 1, ours);
    is_int(bed_save(io_system(), b.from, 5, 1, &e), 0, "one of ours%s", e.text);
    bytes_left = 50;
    is_int(copy(&b, "m-5.safetensors", FOUND_SAFETENSORS, &e), -ENOSPC, "a file");
    like(e.text, "its filesystem has 50 bytes left, and m-5.safetensors has ", "with numbers");
    is_int(copy(&b, "checkpoint-5", FOUND_TRAINER, &e), -ENOSPC, "a directory");
    is_int(copy(&b, ours, FOUND_MUSTER, &e), -ENOSPC, "and ours");
    there(&b, "", "of which nothing was begun");
    bytes_left = 10000;
    is_int(copy(&b, "checkpoint-5", FOUND_TRAINER, &e), 0, "where there is room: %s", e.text);
    is_int(copy(&b, ours, FOUND_MUSTER, &e), 0, "it is copied");
    bytes_left = 0;
    teardown(&b);
}

int main(void)
{
    test_unread();
    test_there();
    test_room();
    test_whole();
    test_grown();
    test_modes();
    test_locks();
    test_refused();
    test_spoilt();
    test_held();
    test_count();
    test_read_only();
    return tap_done();
}
