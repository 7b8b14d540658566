/* SPDX-License-Identifier: Apache-2.0 */
/* What the kernel says of a file, and how it is passed on: by the linker's hand it fails. */
#include <config.h>

#include "ckpt/io.h"

#include "base/cleanup.h"
#include "base/fs.h"
#include "tests/lib/tap.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

static int close_no; /* of the next close(); 0: as it is */
static bool takes_nothing;
static int n_interrupted; /* times, before it writes or closes */
static char said[64];     /* what came after what: of a write 'w' */

static void say(char what)
{
    size_t n = strlen(said);

    if (n + 1 < sizeof(said)) {
        said[n] = what;
        said[n + 1] = '\0';
    }
}

int __real_close(int fd);
int __wrap_close(int fd);
ssize_t __real_pwrite(int fd, const void *data, size_t len, off_t at);
ssize_t __wrap_pwrite(int fd, const void *data, size_t len, off_t at);

int __wrap_close(int fd)
{
    int no = close_no, rc = __real_close(fd);

    close_no = 0;
    errno = no ? no : errno;
    return no ? -1 : rc;
}

ssize_t __wrap_pwrite(int fd, const void *data, size_t len, off_t at)
{
    if (n_interrupted > 0) {
        n_interrupted--;
        errno = EINTR;
        return -1;
    }
    say('w');
    return takes_nothing ? 0 : __real_pwrite(fd, data, len, at);
}

static char path[] = "/tmp/io_test.XXXXXX";
static int dir = -1;

static const struct io_ops *ops(void)
{
    return io_system()->ops;
}

static int new_file(const char *name)
{
    int fd = ops()->create(io_system(), dir, name);

    if (fd < 0) {
        bail_out("%s: %s", name, strerror(-fd));
    }
    return fd;
}

static void test_close(void)
{
    close_no = EIO;
    is_int(ops()->close(io_system(), new_file("a")), -EIO,
           "what close() says of a write counts, as a file server tells it there");
    close_no = EINTR;
    is_int(ops()->close(io_system(), new_file("b")), 0,
           "interrupted it has closed all the same");
    is_int(ops()->close(io_system(), new_file("c")), 0, "and else, too");
}

static void test_write(void)
{
    int fd = new_file("d");

    takes_nothing = true;
    is_int(io_write_all(io_system(), fd, "xyz", 3, 0), -EIO,
           "what takes nothing is not tried for ever");
    takes_nothing = false;
    n_interrupted = 3;
    is_int(io_write_all(io_system(), fd, "xyz", 3, 0), 0, "what is interrupted is");
    is_int(io_write_all(io_system(), fd, "", 0, 0), 0, "nothing can be written");
    ops()->close(io_system(), fd);
}

/* Before each block, and after it; the depth is for those who have more than one at work. */
static int ends_before = -1, ends_after = -1;

static int before(void *arg, uint64_t block)
{
    (void)arg;
    say('a' + (char)block);
    return (int)block == ends_before ? -ECANCELED : 1;
}

static int after(void *arg, uint64_t block)
{
    (void)arg;
    say('A' + (char)block);
    return (int)block == ends_after ? -EDOM : 1;
}

static int write_blocks(uint64_t len)
{
    struct io_blocks b = {.data = "0123456789", .len = len, .block_bytes = 4,
                          .before = before, .after = after};
    int fd = new_file("blocks"), rc;

    said[0] = '\0';
    rc = io_write_blocks(io_system(), fd, &b);
    ops()->close(io_system(), fd);
    unlinkat(dir, "blocks", 0);
    return rc;
}

static void test_blocks(void)
{
    is_int(write_blocks(10), 0, "three blocks, the last one shorter");
    is_str(said, "awAbwBcwC", "each is told of, written, and told of");
    is_int(write_blocks(8), 0, "two whole ones");
    is_str(said, "awAbwB", "and nothing behind them");
    is_int(write_blocks(0), 0, "none");
    is_str(said, "", "is not told of");
    ends_before = 1;
    is_int(write_blocks(10), -ECANCELED, "ended before one");
    is_str(said, "awAb", "that is not written, nor told of after");
    ends_before = -1;
    ends_after = 1;
    is_int(write_blocks(10), -EDOM, "ended after one");
    is_str(said, "awAbwB", "that was the last");
    ends_after = -1;
    takes_nothing = true;
    is_int(write_blocks(10), -EIO, "one that is not written");
    is_str(said, "aw", "is not told of as if it were");
    takes_nothing = false;
}

/* Whoever puts it there keeps nobody waiting. */
static void test_kinds(void)
{
    int fd;

    mkfifoat(dir, "fifo", 0600);
    mkdirat(dir, "directory", 0700);
    symlinkat("a", dir, "link");
    mknodat(dir, "socket", S_IFSOCK | 0600, 0);
    is_int(ops()->open_file(io_system(), dir, "fifo"), -EINVAL, "a fifo is no file");
    is_int(ops()->open_file(io_system(), dir, "directory"), -EINVAL, "nor a directory");
    is_int(ops()->open_file(io_system(), dir, "socket"), -EINVAL, "nor a socket");
    is_int(ops()->open_file(io_system(), dir, "link"), -ELOOP, "no link is followed");
    is_int(ops()->open_file(io_system(), dir, "none"), -ENOENT, "nothing");
    fd = ops()->open_file(io_system(), dir, "a");
    ok(fd >= 0, "a file is one");
    ops()->close(io_system(), fd);
}

/* SIGXFSZ would end this test: no handler is the library's to set. */
static void test_size_limit(void)
{
    struct rlimit old, low;
    int fd = ops()->create(io_system(), dir, "limited");

    getrlimit(RLIMIT_FSIZE, &old);
    low = old;
    low.rlim_cur = 4096;
    setrlimit(RLIMIT_FSIZE, &low);
    is_int(ops()->allocate(io_system(), fd, 4097), -EFBIG, "no file over the limit of its size");
    ok(ops()->allocate(io_system(), fd, 4096) == 0, "but up to it");
    setrlimit(RLIMIT_FSIZE, &old);
    __real_close(fd);
}

static void test_modes(void)
{
    struct stat st;

    umask(0);
    ops()->close(io_system(), new_file("e"));
    ok(fstatat(dir, "e", &st, 0) == 0 && (st.st_mode & 07777) == 0600, "nobody else reads it");
    is_int(ops()->make_dir(io_system(), dir, "f"), 0, "a directory");
    ok(fstatat(dir, "f", &st, 0) == 0 && (st.st_mode & 07777) == 0700, "nor looks into that");
    is_int(ops()->create(io_system(), dir, "e"), -EEXIST, "what is there is not written over");
}

int main(void)
{
    dir = mkdtemp(path) ? open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC) : -1;
    if (dir < 0) {
        bail_out("no directory %s", path);
    }
    test_close();
    test_write();
    test_blocks();
    test_kinds();
    test_size_limit();
    test_modes();
    __real_close(dir);
    fs_remove_tree(path, NULL);
    return tap_done();
}
