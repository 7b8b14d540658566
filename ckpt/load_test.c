/* SPDX-License-Identifier: Apache-2.0 */
/* Boxes out of one checkpoint: what is read of its file, and how. */
#include <config.h>

#include "muster.h"

#include "base/cleanup.h"
#include "base/fs.h"
#include "base/str.h"
#include "ckpt/digest.h"
#include "ckpt/load.h"
#include "tests/lib/mapped.h"
#include "tests/lib/tap.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

/* Three tensors that do not end with blocks: 4 rows of a block and a little, 6 MB, and
 * a few bytes; with the header 6 blocks. */
enum { ROWS = 4, WIDE = (4 << 20) + 1000, LONG = 6000000, SHORT = 77 };

static char root_path[PATH_MAX];
static int root = -1;
static uint8_t *wide, *long_one, short_one[SHORT];
static uint64_t file_bytes;

/* --- a layer that counts --- */

static _Atomic uint64_t n_read;
static _Atomic bool is_data[1024]; /* by descriptor: each thread has its own */

static int open_file(struct io *io, int dir, const char *name)
{
    int fd = io_system_ops.open_file(io, dir, name);

    if (fd >= (int)ARRAY_SIZE(is_data)) {
        bail_out("descriptor %d", fd);
    }
    if (fd >= 0) {
        is_data[fd] = strcmp(name, "r00000.safetensors") == 0;
    }
    return fd;
}

static ssize_t read_at(struct io *io, int fd, void *to, size_t len, uint64_t at)
{
    ssize_t n = io_system_ops.read(io, fd, to, len, at);

    if (is_data[fd] && n > 0) {
        n_read += (size_t)n;
    }
    return n;
}

static struct io *counting(void)
{
    static struct io_ops ops;
    static struct io io = {.ops = &ops};

    ops = io_system_ops;
    ops.open_file = open_file;
    ops.read = read_at;
    return &io;
}

/* --- the bed --- */

static uint8_t byte_at(uint64_t i)
{
    return (uint8_t)(i * 2654435761u >> 13);
}

static void add(struct muster_ckpt *ck, const char *name, uint32_t n_dims,
                const uint64_t *shape, uint8_t *data)
{
    struct muster_ckpt_tensor t = {.name = name, .dtype = MUSTER_U8, .n_dims = n_dims,
                                   .shape = shape, .data = data};

    if (muster_ckpt_tensor(ck, &t) < 0) {
        bail_out("%s: %s", name, muster_ckpt_error_text(ck));
    }
}

static const uint64_t wide_shape[] = {ROWS, WIDE}, long_shape[] = {LONG},
                      short_shape[] = {SHORT};

static void begin(void)
{
    const char *tmp = getenv("TMPDIR");
    struct muster_ckpt *ck = NULL;

    snprintf(root_path, sizeof(root_path), "%s/load_test.XXXXXX", tmp ? tmp : "/tmp");
    root = mkdtemp(root_path) ? open(root_path, O_RDONLY | O_DIRECTORY | O_CLOEXEC)
                              : -1;
    wide = malloc((size_t)ROWS * WIDE);
    long_one = malloc(LONG);
    if (root < 0 || !wide || !long_one ||
        muster_ckpt_open(NULL, NULL, root_path, NULL, &ck) < 0) {
        bail_out("no checkpoint in %s", root_path);
    }
    for (uint64_t i = 0; i < (uint64_t)ROWS * WIDE; i++) {
        wide[i] = byte_at(i);
    }
    for (uint64_t i = 0; i < LONG; i++) {
        long_one[i] = byte_at(i + 1);
    }
    memset(short_one, 'x', sizeof(short_one));
    add(ck, "a.short", 1, short_shape, short_one);
    add(ck, "long", 1, long_shape, long_one);
    add(ck, "wide", 2, wide_shape, wide);
    if (muster_ckpt_save(ck, 1, MUSTER_CKPT_WAIT, NULL) < 0) {
        bail_out("save: %s", muster_ckpt_error_text(ck));
    }
    muster_ckpt_close(ck);
}

static void open_load(struct io *io, struct load *ret)
{
    _step_ struct step s = {0};
    struct error e = {0};

    if (step_find_newest(io, root, false, NULL, NULL, &s, &e) < 0 ||
        load_open(&s, ret, &e) < 0) {
        bail_out("%s", e.text);
    }
    file_bytes = ret->step.manifest.files[0].bytes;
}

/* --- what is opened --- */

static void test_is_damage(void)
{
    static const int of_this_process[] = {0, -ENODATA, -EINVAL, -ENOMEM, -EMFILE, -ENFILE,
                                          -EREMOTEIO};
    static const int damage[] = {-ERR_FORMAT, -ERR_VERSION, -EIO, -ENOENT, -ESTALE};

    for (size_t i = 0; i < ARRAY_SIZE(of_this_process); i++) {
        ok(!load_is_damage(of_this_process[i]), "%d says nothing of a checkpoint",
           of_this_process[i]);
    }
    for (size_t i = 0; i < ARRAY_SIZE(damage); i++) {
        ok(load_is_damage(damage[i]), "%d does", damage[i]);
    }
}

static int index_fd = -1;

static int open_index(struct io *io, int dir, const char *name)
{
    int fd = io_system_ops.open_file(io, dir, name);

    index_fd = strcmp(name, "tensors.index") == 0 ? fd : index_fd;
    return fd;
}

static ssize_t read_cut(struct io *io, int fd, void *to, size_t len, uint64_t at)
{
    return fd == index_fd ? 0 : io_system_ops.read(io, fd, to, len, at);
}

static void refuse(struct step *s, const char *why)
{
    struct load l = {0};
    struct error e = {0};

    is_int(load_open(s, &l, &e), -ERR_FORMAT, "%s", why);
    like(e.text, why, "is told");
    ok(!l.index && s->io, "and nothing is opened");
    step_close(s);
}

static struct step newest(struct io *io)
{
    struct step s = {0};

    if (step_find_newest(io, root, false, NULL, NULL, &s, NULL) < 0) {
        bail_out("no checkpoint");
    }
    return s;
}

/* An index that is whole, and not that of this manifest. */
static void test_differ(void)
{
    struct io_ops ops = io_system_ops;
    struct io io = {.ops = &ops};
    struct step s = newest(io_system());

    s.manifest.files[0].digest = s.manifest.files[1].digest;
    refuse(&s, "the index and the manifest differ in r00000.safetensors");
    s = newest(io_system());
    s.manifest.files[0].bytes -= DIGEST_BLOCK_BYTES;
    refuse(&s, "the index and the manifest differ in r00000.safetensors");
    s = newest(io_system());
    s.manifest.n_files = 0;
    refuse(&s, "the index has 1 files, and the manifest 0");
    s = newest(io_system());
    s.manifest.files[1].digest = s.manifest.files[0].digest;
    refuse(&s, "tensors.index is damaged");
    ops.open_file = open_index;
    ops.read = read_cut;
    s = newest(&io);
    refuse(&s, "tensors.index is damaged: its 0 bytes");
}

static const uint64_t zeros[2];

/* As far as it has dimensions they are those. */
static void test_dimensions(void)
{
    const uint64_t shape[] = {LONG, 1};
    struct load_want want = {.name = "long", .dtype = DTYPE_U8, .n_dims = 2, .shape = shape,
                             .at = zeros, .len = shape};
    _load_ struct load l = {0};
    struct step s = newest(io_system());
    struct error e = {0};
    size_t at = 7;

    is_int(load_open(&s, &l, &e), 0, "opened: %s", e.text);
    is_int(load_find(&l, &want, 0, &at, &e), -EINVAL, "one dimension more");
    like(e.text, "is U8 [0:6000000] there, and registered as U8 [0:6000000, 0:1]",
         "is another shape");
    ok(at == 7, "and is not found");
    want.n_dims = 1;
    is_int(load_find(&l, &want, 0, &at, &e), 0, "without it");
    ok(at == 1, "it is");
}

static struct load_want want_all(const char *name, uint32_t n_dims,
                                 const uint64_t *shape, void *to)
{
    return (struct load_want){name, DTYPE_U8, n_dims, shape, zeros, shape, NULL, to, NULL, 0};
}

/* Everything, into fresh memory; whether it is right. */
static bool load_all(const struct load *l, const struct load_source *source,
                     unsigned n_threads, struct error *e)
{
    _free_ uint8_t *w = calloc(ROWS, WIDE), *o = calloc(1, LONG);
    uint8_t s[SHORT] = {0};
    struct load_want wants[] = {want_all("wide", 2, wide_shape, w),
                                want_all("a.short", 1, short_shape, s),
                                want_all("long", 1, long_shape, o)};

    return load_boxes(l, source, wants, 3, n_threads, e) == 0 &&
           memcmp(w, wide, (size_t)ROWS * WIDE) == 0 && memcmp(o, long_one, LONG) == 0 &&
           memcmp(s, short_one, SHORT) == 0;
}

/* --- tests --- */

static void test_once(void)
{
    _load_ struct load l = {0};
    struct error e = {0};

    open_load(counting(), &l);
    n_read = 0;
    ok(load_all(&l, NULL, 1, &e), "all, by one thread: %s", e.text);
    ok(n_read == file_bytes, "each byte is read once");
    ok(file_bytes % 4096 != 0 && file_bytes > 5 * DIGEST_BLOCK_BYTES,
       "of a file that does not end with a block");
}

/* Of a column that lies in all rows only the blocks that have some of it. */
static void test_column(void)
{
    const uint64_t at[] = {0, 5}, len[] = {ROWS, 3};
    uint8_t got[ROWS * 3] = {0};
    struct load_want want = {"wide", DTYPE_U8, 2, wide_shape, at, len, NULL, got, NULL, 0};
    _load_ struct load l = {0};
    struct error e = {0};
    unsigned n_wrong = 0;

    open_load(counting(), &l);
    n_read = 0;
    is_int(load_boxes(&l, NULL, &want, 1, 1, &e), 0, "a column: %s", e.text);
    for (unsigned i = 0; i < sizeof(got); i++) {
        n_wrong += got[i] != wide[(uint64_t)(i / 3) * WIDE + 5 + i % 3];
    }
    is_int((int)n_wrong, 0, "its bytes");
    ok(n_read <= ROWS * DIGEST_BLOCK_BYTES, "no more than a block a row is read");
}

static int data_file(int flags)
{
    char path[2 * PATH_MAX];
    _load_ struct load l = {0};

    open_load(io_system(), &l);
    snprintf(path, sizeof(path), "%s/%s/r00000.safetensors", root_path, l.step.name);
    return open(path, flags | O_CLOEXEC);
}

/* Past the page cache, through it, and both in one file. */
static void test_cache(void)
{
    static const struct {
        const char *text;
        uint64_t cached; /* so many bytes at its beginning */
    } cases[] = {{"not in the page cache", 0}, {"in it", UINT64_MAX},
                 {"half of it", 2 * DIGEST_BLOCK_BYTES + 100}};
    _free_ char *bytes = malloc(1 << 20);
    int fd = data_file(O_RDONLY);
    _load_ struct load l = {0};

    open_load(io_system(), &l);
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        struct error e = {0};

        fdatasync(fd);
        posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED);
        for (uint64_t at = 0; at < cases[i].cached && at < file_bytes; at += 1 << 20) {
            if (pread(fd, bytes, 1 << 20, (off_t)at) < 0) {
                bail_out("read");
            }
        }
        for (unsigned n = 1; n <= 4; n += 3) {
            ok(load_all(&l, NULL, n, &e), "%s, %u threads: %s", cases[i].text, n,
               e.text);
        }
    }
    close(fd);
}

static const char *held_file(void *arg, const struct step *s, uint32_t file)
{
    return strcmp(s->manifest.files[file].name, "r00000.safetensors") == 0 ? arg : NULL;
}

/* What a source was asked. */
struct asked {
    const char *memory;
    int n_looks, n_before; /* in all, and before the first one was asked for */
    _Atomic int n_files;
};

static void look_asked(void *arg, const struct step *s, uint32_t file)
{
    struct asked *a = arg;

    ok(strcmp(s->manifest.files[file].name, "r00000.safetensors") == 0,
       "%s is going to be read", s->manifest.files[file].name);
    a->n_looks++;
    a->n_before += a->n_files == 0;
}

static const char *file_asked(void *arg, const struct step *s, uint32_t file)
{
    struct asked *a = arg;

    (void)s, (void)file;
    a->n_files++;
    return a->n_looks > 0 ? a->memory : NULL;
}

/* A source hears which files are needed before it is asked for them. */
static void test_look(void)
{
    int fd = data_file(O_RDONLY);
    char *memory = malloc(file_bytes);
    _load_ struct load l = {0};
    struct error e = {0};

    open_load(counting(), &l);
    is_int(io_read_all(io_system(), fd, memory, file_bytes, 0), 0, "in memory");
    for (unsigned n_threads = 1; n_threads <= 16; n_threads += 15) {
        struct asked a = {.memory = memory};
        struct load_source source = {.look = look_asked, .file = file_asked, .arg = &a};

        n_read = 0;
        ok(load_all(&l, &source, n_threads, &e) && n_read == 0,
           "%u threads: all is there: %s", n_threads, e.text);
        ok(a.n_looks > 0 && a.n_before > 0, "that was told before");
    }
    free(memory);
    close(fd);
}

/* Memory that is filled by the file's own bytes when they are waited for. */
struct coming {
    char *memory;
    int fd;
    uint64_t never_from; /* what lies behind does not come */
    _Atomic int n_awaited;
};

static const char *file_coming(void *arg, const struct step *s, uint32_t file)
{
    return held_file(((struct coming *)arg)->memory, s, file);
}

static bool await_coming(void *arg, const struct step *s, uint32_t file, uint64_t end)
{
    struct coming *c = arg;
    uint64_t begin = (end - 1) / DIGEST_BLOCK_BYTES * DIGEST_BLOCK_BYTES;

    (void)s, (void)file;
    atomic_fetch_add(&c->n_awaited, 1);
    return end <= c->never_from &&
           io_read_all(io_system(), c->fd, c->memory + begin, end - begin, begin) == 0;
}

/* Each block is waited for before it is looked at; one that does not come is read, and nobody
 * looks at it: there may be no memory any more. */
static void test_coming(void)
{
    struct coming c = {.fd = data_file(O_RDONLY)};
    struct load_source source = {.file = file_coming, .await = await_coming, .arg = &c};
    _load_ struct load l = {0};
    struct error e = {0};
    int n_blocks = (int)digest_n_blocks(file_bytes);

    open_load(counting(), &l);
    for (unsigned n_threads = 1; n_threads <= 8; n_threads += 7) {
        c.memory = mmap(NULL, file_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS,
                        -1, 0);
        if (c.memory == MAP_FAILED) {
            bail_out("no memory");
        }
        c.never_from = file_bytes;
        c.n_awaited = 0;
        n_read = 0;
        ok(load_all(&l, &source, n_threads, &e) && n_read == 0,
           "%u threads: all comes: %s", n_threads, e.text);
        is_int(c.n_awaited, n_blocks, "each block is waited for once");
        memset(c.memory, 0, file_bytes);
        c.never_from = 2 * DIGEST_BLOCK_BYTES;
        mprotect(c.memory + c.never_from, file_bytes - c.never_from, PROT_NONE);
        n_read = 0;
        ok(load_all(&l, &source, n_threads, &e), "the rest does not come: %s", e.text);
        ok(n_read == file_bytes - c.never_from, "that is read, and nothing else");
        munmap(c.memory, file_bytes);
    }
    close(c.fd);
}

/* A block that is damaged in memory comes from the disk; one that is damaged there, too,
 * fails the load, and is named. */
static void test_damage(void)
{
    int fd = data_file(O_RDWR);
    char *memory = malloc(file_bytes), was;
    struct load_source source = {.file = held_file, .arg = memory};
    _load_ struct load l = {0};
    struct error e = {0};
    uint64_t at;

    open_load(counting(), &l);
    is_int(io_read_all(io_system(), fd, memory, file_bytes, 0), 0, "in memory");
    n_read = 0;
    ok(load_all(&l, &source, 4, &e) && n_read == 0, "nothing is read: %s", e.text);
    was = memory[DIGEST_BLOCK_BYTES + 7];
    memory[DIGEST_BLOCK_BYTES + 7] ^= 1;
    ok(load_all(&l, &source, 1, &e), "one is damaged there: %s", e.text);
    ok(n_read == DIGEST_BLOCK_BYTES, "and only it is read");
    was ^= 2;
    is_int(io_write_all(io_system(), fd, &was, 1, DIGEST_BLOCK_BYTES + 7), 0, "spoil");
    ok(!load_all(&l, &source, 1, &e), "and on the disk, too");
    is_int(e.code, ERR_FORMAT, "that is damage");
    like(e.text, "r00000.safetensors is damaged: bytes 4194304 to 8388608, with tensor "
                 "'wide' of rank 0, do not have", "file, bytes, tensor and rank are named");
    was ^= 2;
    is_int(io_write_all(io_system(), fd, &was, 1, DIGEST_BLOCK_BYTES + 7), 0, "mend");
    at = file_bytes - 1;
    was = (char)(memory[at] ^ 4);
    is_int(io_write_all(io_system(), fd, &was, 1, at), 0, "spoil the last block");
    ok(!load_all(&l, NULL, 1, &e), "in which there are several tensors");
    like(e.text, "and 1 more of rank 0, do not have their digest", "how many is told");
    is_int(io_write_all(io_system(), fd, memory + at, 1, at), 0, "mend");
    free(memory);
    close(fd);
}

/* --- files that change --- */

static bool is_cut;

ssize_t __real_pread(int fd, void *to, size_t n, off_t at);
ssize_t __wrap_pread(int fd, void *to, size_t n, off_t at);

ssize_t __wrap_pread(int fd, void *to, size_t n, off_t at)
{
    return is_cut ? 0 : __real_pread(fd, to, n, at);
}

/* A file that is not what it was when it was looked at. */
static void test_replaced(void)
{
    static const char file[] = "r00000.safetensors";
    _load_ struct load l = {0};
    struct error e = {0};

    open_load(io_system(), &l);
    is_cut = true;
    ok(!load_all(&l, NULL, 1, &e), "one that is cut now");
    is_cut = false;
    is_int(e.code, ERR_FORMAT, "is damaged");
    like(e.text, "r00000.safetensors was cut or replaced while it was read", "as that: %s", e.text);
    renameat(l.step.dir, file, l.step.dir, "away");
    symlinkat("away", l.step.dir, file);
    ok(!load_all(&l, NULL, 1, &e), "a link in its place");
    is_int(e.code, ERR_FORMAT, "is none");
    like(e.text, "was cut or replaced", "as that: %s", e.text);
    unlinkat(l.step.dir, file, 0);
    mkdirat(l.step.dir, file, 0700);
    ok(!load_all(&l, NULL, 1, &e), "or a directory");
    is_int(e.code, ERR_FORMAT, "is none, either: %s", e.text);
    unlinkat(l.step.dir, file, AT_REMOVEDIR);
    ok(!load_all(&l, NULL, 1, &e) && e.code == ENOENT, "nor nothing: %s", e.text);
    renameat(l.step.dir, "away", l.step.dir, file);
    ok(load_all(&l, NULL, 1, &e), "as it was: %s", e.text);
}

/* Of a file that is shorter than what lies in it, a tensor is told, and no damage. */
static void test_behind(void)
{
    _load_ struct load l = {0};
    struct error e = {0};

    open_load(io_system(), &l);
    l.step.manifest.files[0].bytes--;
    ok(!load_all(&l, NULL, 1, &e), "a file that is a byte too short");
    is_int(e.code, ERR_FORMAT, "is damaged");
    like(e.text, "a tensor lies behind the end of r00000.safetensors", "as that: %s", e.text);
}

/* By any number of threads, each with a buffer of its own where it reads. */
static void test_threads(void)
{
    static const unsigned numbers[] = {0, 1, 2, 64, 1000};
    _load_ struct load l = {0};
    struct error e = {0};
    unsigned long long before;

    open_load(io_system(), &l);
    for (size_t i = 0; i < ARRAY_SIZE(numbers); i++) {
        ok(load_all(&l, NULL, numbers[i], &e), "%u threads: %s", numbers[i], e.text);
    }
    before = mapped_bytes();
    for (int i = 0; i < 30; i++) {
        load_all(&l, NULL, 1, &e); /* eight, for a disk */
    }
    /* Half of what they had: of what is freed a sanitizer keeps some. */
    ok(mapped_bytes() < before + 120llu * DIGEST_BLOCK_BYTES, "their buffers go: %llu bytes more",
       mapped_bytes() - before);
}

int main(void)
{
    begin();
    test_is_damage();
    test_differ();
    test_dimensions();
    test_once();
    test_threads();
    test_column();
    test_cache();
    test_look();
    test_coming();
    test_damage();
    test_behind();
    test_replaced();
    close(root);
    fs_remove_tree(root_path, NULL);
    free(wide);
    free(long_one);
    return tap_done();
}
