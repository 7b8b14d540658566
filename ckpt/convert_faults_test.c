/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A conversion of which something fails, or with which somebody interferes: what is told, and
 * that nothing is left, also of one that was killed before. And how tensors are shared out.
 */
#include <config.h>

#include "ckpt/convert.h"

#include "base/cleanup.h"
#include "base/fs.h"
#include "ckpt/found_bed.h"
#include "tests/lib/tap.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { MAX_SYNCED = 32 };

static char top[FOUND_BED_PATH_BYTES];
static int dir = -1;

/* --- the disk --- */

int __real_fsync(int fd);
int __wrap_fsync(int fd);
int __real_fallocate(int fd, int mode, off_t at, off_t len);
int __wrap_fallocate(int fd, int mode, off_t at, off_t len);
ssize_t __real_pwrite(int fd, const void *data, size_t len, off_t at);
ssize_t __wrap_pwrite(int fd, const void *data, size_t len, off_t at);
int __real_close(int fd);
int __wrap_close(int fd);
int __real_renameat2(int from_dir, const char *from, int to_dir, const char *to,
                     unsigned flags);
int __wrap_renameat2(int from_dir, const char *from, int to_dir, const char *to,
                     unsigned flags);

enum call { NO_CALL, SYNC, ALLOCATE, WRITE, CLOSE, RENAME };
static struct {
    enum call call;
    const char *name; /* of the file, or a part of it; NULL: of any */
    int no;
    unsigned after; /* so many that do not */
    const char *comes; /* by that name somebody puts a file there before */
} fault;
static char synced[MAX_SYNCED][64]; /* in order */
static size_t n_synced;

static void name_of(int fd, char to[64])
{
    char link[32], path[PATH_MAX];
    ssize_t n;

    snprintf(link, sizeof(link), "/proc/self/fd/%d", fd);
    n = readlink(link, path, sizeof(path) - 1);
    path[n > 0 ? n : 0] = '\0';
    snprintf(to, 64, "%.63s", strrchr(path, '/') ? strrchr(path, '/') + 1 : path);
}

static bool fails(enum call call, const char *name)
{
    if (fault.call != call || (fault.name && !strstr(name, fault.name))) {
        return false;
    }
    if (fault.after > 0) {
        fault.after--;
        return false;
    }
    fault.call = NO_CALL;
    errno = fault.no;
    return true;
}

static bool fails_of(enum call call, int fd)
{
    char name[64] = "";

    if (fault.call == call) {
        name_of(fd, name);
    }
    return fails(call, name);
}

int __wrap_fsync(int fd)
{
    if (n_synced < MAX_SYNCED) {
        name_of(fd, synced[n_synced++]);
    }
    return fails_of(SYNC, fd) ? -1 : __real_fsync(fd);
}

int __wrap_fallocate(int fd, int mode, off_t at, off_t len)
{
    return fails_of(ALLOCATE, fd) ? -1 : __real_fallocate(fd, mode, at, len);
}

ssize_t __wrap_pwrite(int fd, const void *data, size_t len, off_t at)
{
    return fails_of(WRITE, fd) ? -1 : __real_pwrite(fd, data, len, at);
}

int __wrap_close(int fd)
{
    bool is_failing = fails_of(CLOSE, fd);
    int rc = __real_close(fd);

    errno = is_failing ? fault.no : errno;
    return is_failing ? -1 : rc;
}

int __wrap_renameat2(int from_dir, const char *from, int to_dir, const char *to,
                     unsigned flags)
{
    if (fault.comes) {
        found_bed_put(dir, fault.comes, "other", 5);
        fault.comes = NULL;
    }
    return fails(RENAME, from) ? -1 : __real_renameat2(from_dir, from, to_dir, to, flags);
}

/* --- a bed --- */

/* A safetensors file: tensors of 16, 12 and 4 bytes. */
static void put_source(void)
{
    static const char header[] =
        "{\"a\":{\"dtype\":\"F32\",\"shape\":[4],\"data_offsets\":[0,16]},"
        "\"b\":{\"dtype\":\"U16\",\"shape\":[6],\"data_offsets\":[16,28]},"
        "\"c\":{\"dtype\":\"F4\",\"shape\":[8],\"data_offsets\":[28,32]}}";
    char bytes[512] = {(char)strlen(header), (char)(strlen(header) >> 8)};
    size_t n = ST_PREFIX_BYTES + strlen(header);

    memcpy(bytes + ST_PREFIX_BYTES, header, strlen(header));
    for (size_t i = 0; i < 32; i++) {
        bytes[n + i] = (char)(i + 1);
    }
    found_bed_put(dir, "m.safetensors", bytes, n + 32);
}

struct heard {
    uint64_t done, of, end; /* told last; given up from that on */
};

static bool hear(void *arg, uint64_t done, uint64_t of)
{
    struct heard *h = arg;

    h->done = done;
    h->of = of;
    return done < h->end;
}

static int convert(const char *to, uint64_t shard_bytes, uint64_t piece_bytes,
                   struct heard *h, struct convert_facts *facts, struct error *e)
{
    _contents_ struct contents c = {0};
    struct convert job = {.from = &c, .shard_bytes = shard_bytes, .piece_bytes = piece_bytes,
                          .progress = h ? hear : NULL, .arg = h};
    struct found f;
    int rc;

    *e = (struct error){0};
    if (!found_one(io_system(), dir, "m.safetensors", &f) ||
        contents_open(io_system(), dir, &f, &c, e) < 0) {
        bail_out("no source: %s", e->text);
    }
    n_synced = 0;
    rc = convert_run(&job, dir, to, facts, e);
    fault.call = NO_CALL;
    return rc;
}

static bool is_there(const char *name)
{
    return faccessat(dir, name, F_OK, AT_SYMLINK_NOFOLLOW) == 0;
}

/* Nothing of that name, and nothing on its way there. */
static bool is_clean(const char *name)
{
    char temp[128];

    snprintf(temp, sizeof(temp), ".%s.muster-part", name);
    return !is_there(name) && !is_there(temp);
}

static size_t place_of(const char *name)
{
    size_t i = 0;

    while (i < n_synced && strcmp(synced[i], name) != 0) {
        i++;
    }
    return i;
}

static void drop(const char *name)
{
    char path[128];

    snprintf(path, sizeof(path), "%s/%s", top, name);
    fs_remove_tree(path, NULL);
    unlinkat(dir, name, 0);
}

/* --- sharing out --- */

static void test_cut(void)
{
    static const struct {
        uint64_t bytes;
        size_t n_files;
        const char *what;
    } cases[] = {
        {32, 1, "all of them are as much as may be in one"},
        {31, 2, "a byte less"}, {28, 2, "the first two just fit"}, {27, 2, "and do not"},
        {16, 2, "the last two do"}, {15, 3, "one larger than may be has its own"},
        {1, 3, "so all have"},
    };
    struct convert_facts facts;
    struct error e;

    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        is_int(convert("out", cases[i].bytes, 0, NULL, &facts, &e), 0, "%s: %s",
               cases[i].what, e.text);
        ok(facts.n_files == cases[i].n_files && facts.bytes == 32, "in %zu", facts.n_files);
        ok(is_there("out/model.safetensors.index.json") == (cases[i].n_files > 1),
           "with an index where there are several");
        drop("out");
    }
}

static void test_index(void)
{
    static const char *const lines[] = {
        "\"total_size\": 32", "\"a\": \"model-00001-of-00002.safetensors\"",
        "\"b\": \"model-00001-of-00002.safetensors\"",
        "\"c\": \"model-00002-of-00002.safetensors\"",
    };
    _free_ char *text = NULL;
    _close_ int sub = -1;
    struct convert_facts facts;
    struct error e;
    size_t len = 0;

    is_int(convert("out", 28, 0, NULL, &facts, &e), 0, "two files: %s", e.text);
    sub = openat(dir, "out", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    is_int(io_read_file(io_system(), sub, "model.safetensors.index.json", 4096, &text, &len),
           0, "have an index");
    for (size_t i = 0; i < ARRAY_SIZE(lines) && text; i++) {
        like(text, lines[i], "which says so");
    }
    drop("out");
}

/* Half bytes are not cut anywhere. */
static void test_pieces(void)
{
    struct heard h = {.end = UINT64_MAX};
    _contents_ struct contents c = {0};
    struct convert_facts facts;
    unsigned char got[32] = {0};
    struct found f;
    struct error e;
    unsigned n_wrong = 0;

    is_int(convert("out.safetensors", 0, 4, &h, &facts, &e), 0, "in pieces of four: %s",
           e.text);
    ok(h.done == 32 && h.of == 32, "all of them are told");
    if (!found_one(io_system(), dir, "out.safetensors", &f) ||
        contents_open(io_system(), dir, &f, &c, &e) < 0) {
        bail_out("not converted: %s", e.text);
    }
    for (size_t i = 0; i < c.n_tensors; i++) {
        n_wrong += contents_read(&c, &c.tensors[i], 0, contents_elements(&c.tensors[i]),
                                 got + (i == 0 ? 0 : i == 1 ? 16 : 28), &e) < 0;
    }
    for (size_t i = 0; i < 32; i++) {
        n_wrong += got[i] != i + 1;
    }
    is_int(n_wrong, 0, "and are what they were");
    ok(c.n_meta == 2 && strcmp(c.meta[0].key, "format") == 0 &&
           strcmp(c.meta[0].value, "pt") == 0,
       "with a format, which libraries want");
    drop("out.safetensors");
}

/* A tensor of half bytes comes as a whole, or not. */
static void test_too_large(void)
{
    static const char header[] =
        "{\"c\":{\"dtype\":\"F4\",\"shape\":[32],\"data_offsets\":[0,16]}}";
    struct convert_facts facts;
    struct error e;
    char bytes[256] = {(char)strlen(header)};

    memcpy(bytes + ST_PREFIX_BYTES, header, strlen(header));
    found_bed_put(dir, "m.safetensors", bytes, ST_PREFIX_BYTES + strlen(header) + 16);
    is_int(convert("out.safetensors", 0, 16, NULL, &facts, &e), 0, "as large as a piece: %s",
           e.text);
    drop("out.safetensors");
    is_int(convert("out.safetensors", 0, 15, NULL, &facts, &e), -ENOTSUP, "one larger");
    like(e.text, "tensor 'c' of F4 is too large", "is told");
    ok(is_clean("out.safetensors"), "nothing is left");
    put_source();
}

/* --- what fails --- */

static void test_fails(void)
{
    static const struct {
        enum call call;
        const char *name;
        int no;
        const char *told;
    } cases[] = {
        {ALLOCATE, NULL, ENOSPC, "write "}, {WRITE, NULL, EDQUOT, "write "},
        {SYNC, "model-00001", EIO, "model-00001-of-00002.safetensors: sync"},
        {CLOSE, "model-00001", EDQUOT, "model-00001-of-00002.safetensors: close"},
        {WRITE, "model.safetensors.index", ENOSPC, "write model.safetensors.index.json"},
        {SYNC, "model.safetensors.index", EIO, "write model.safetensors.index.json"},
        {CLOSE, "model.safetensors.index", EDQUOT, "write model.safetensors.index.json"},
        {SYNC, ".out.muster-part", EIO, "sync it"},
        {RENAME, ".out.muster-part", EACCES, "name it out"},
    };
    struct convert_facts facts = {.n_files = 77};
    struct heard h = {.end = 20};
    struct error e;

    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        fault.call = cases[i].call;
        fault.name = cases[i].name;
        fault.no = cases[i].no;
        is_int(convert("out", 28, 0, NULL, &facts, &e), -cases[i].no, "%s: %s",
               cases[i].name ? cases[i].name : "any", e.text);
        like(e.text, cases[i].told, "is told");
        ok(is_clean("out"), "nothing is left");
    }
    is_int(convert("out", 28, 4, &h, &facts, &e), -ECANCELED, "who gives up");
    ok(h.done == 20 && is_clean("out"), "does at once, and leaves nothing");
    is_int(facts.n_files, 77, "of none is told what it has");
}

/* The same of one file. */
static void test_file_fails(void)
{
    struct convert_facts facts;
    struct error e;

    fault.name = ".one.safetensors.muster-part";
    for (enum call call = SYNC; call <= RENAME; call++) {
        fault.call = call;
        fault.no = EIO;
        is_int(convert("one.safetensors", 0, 0, NULL, &facts, &e), -EIO, "one file: %s",
               e.text);
        ok(is_clean("one.safetensors"), "nothing is left");
    }
    fault.call = WRITE;
    fault.after = 2; /* the header, and a tensor */
    is_int(convert("one.safetensors", 0, 0, NULL, &facts, &e), -EIO, "the second tensor");
    like(e.text, "write tensor 'b'", "is told");
    ok(is_clean("one.safetensors"), "nothing is left");
}

/* What says that it is there comes last. */
static void test_synced(void)
{
    struct convert_facts facts;
    struct error e;
    const char *root = strrchr(top, '/') + 1;

    is_int(convert("out", 28, 0, NULL, &facts, &e), 0, "two files: %s", e.text);
    ok(place_of("model-00001-of-00002.safetensors") < n_synced &&
           place_of("model-00002-of-00002.safetensors") < n_synced &&
           place_of("model.safetensors.index.json") < place_of(".out.muster-part"),
       "are synced, then their names");
    ok(place_of(".out.muster-part") < place_of(root) && place_of(root) < n_synced,
       "and then theirs");
    drop("out");
    is_int(convert("one.safetensors", 0, 0, NULL, &facts, &e), 0, "one: %s", e.text);
    ok(place_of(".one.safetensors.muster-part") < place_of(root) && place_of(root) < n_synced,
       "is synced, and then its name");
    drop("one.safetensors");
}

/* --- names --- */

static void test_comes(void)
{
    struct convert_facts facts;
    struct error e;

    for (int i = 0; i < 2; i++) {
        fault.call = i == 0 ? NO_CALL : RENAME; /* that such a rename is not known */
        fault.name = NULL;
        fault.no = EINVAL;
        fault.comes = "one.safetensors";
        ok(convert("one.safetensors", 0, 0, NULL, &facts, &e) < 0,
           "something of that name comes meanwhile: %s", e.text);
        ok(is_there("one.safetensors") && !is_there(".one.safetensors.muster-part"),
           "it alone stays");
        drop("one.safetensors");
    }
    fault.call = RENAME;
    is_int(convert("one.safetensors", 0, 0, NULL, &facts, &e), 0,
           "where no rename of that kind is known: %s", e.text);
    ok(is_there("one.safetensors"), "it is there");
    drop("one.safetensors");
}

static void test_names(void)
{
    char name[NAME_MAX + 1];
    struct convert_facts facts;
    struct error e;

    ok(symlinkat("nowhere", dir, "link") == 0, "a link to nothing");
    is_int(convert("link", 0, 0, NULL, &facts, &e), -EEXIST, "is something");
    unlinkat(dir, "link", 0);
    memset(name, 'n', sizeof(name));
    name[224] = '\0';
    is_int(convert(name, 0, 0, NULL, &facts, &e), -ENAMETOOLONG,
           "a name that leaves no room for what it is called before");
    name[223] = '\0';
    is_int(convert(name, 0, 0, NULL, &facts, &e), 0, "one that does: %s", e.text);
    drop(name);
}

/* By whoever was killed. */
static void test_left(void)
{
    struct convert_facts facts;
    struct error e;

    found_bed_put(dir, ".out.muster-part", "half", 4);
    is_int(convert("out", 28, 0, NULL, &facts, &e), 0, "a file was left: %s", e.text);
    drop("out");
    mkdirat(dir, ".out.muster-part", 0700);
    found_bed_put(dir, ".out.muster-part/model-00001-of-00002.safetensors", "half", 4);
    found_bed_put(dir, ".out.muster-part/model-00009-of-00009.safetensors", "half", 4);
    is_int(convert("out", 28, 0, NULL, &facts, &e), 0, "a directory was left: %s", e.text);
    ok(!is_there("out/model-00009-of-00009.safetensors"), "nothing of that is in the new one");
    drop("out");
    mkdirat(dir, ".out.muster-part", 0700);
    is_int(convert("out", 0, 0, NULL, &facts, &e), 0, "a directory where a file is wanted: %s",
           e.text);
    drop("out");
}

int main(void)
{
    dir = found_bed_open(top);
    put_source();
    test_cut();
    test_index();
    test_pieces();
    test_too_large();
    test_fails();
    test_file_fails();
    test_synced();
    test_comes();
    test_names();
    test_left();
    found_bed_close(dir, top);
    return tap_done();
}
