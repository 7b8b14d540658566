/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What several ranks have saved in pieces comes out whole: in one file, in several with
 * an index, and again from those; whatever the pieces are that it is read in. What is
 * damaged or cannot be known is refused, and leaves nothing.
 */
#include <config.h>

#include "base/cleanup.h"
#include "base/fs.h"
#include "ckpt/convert.h"
#include "ckpt/flock_fails.h"
#include "ckpt/step.h"
#include "ckpt/team.h"
#include "tests/lib/tap.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

enum { WORLD = 3, ROWS = 7, COLUMNS = 5, FLAT = 40 };

static char top[PATH_MAX];
static int dir = -1;
static char step_dir[NAME_MAX + 1];

static float value(uint64_t row, uint64_t column)
{
    return (float)(row * 100 + column);
}

/* Rows in turn, in two pieces, a range of elements, a scalar, nothing, a type of half bytes,
 * a blob. */
static void save_rank(void *arg, const struct muster_ckpt_group *g)
{
    struct muster_ckpt *ck = NULL;
    uint64_t first = (uint64_t)g->rank * ROWS / WORLD;
    uint64_t end = ((uint64_t)g->rank + 1) * ROWS / WORLD;
    float rows[ROWS][COLUMNS];
    uint16_t flat[FLAT];
    double one = 2.5;
    uint8_t nibbles[4] = {1, 2, 3, 4};
    char blob[] = "of all";
    uint64_t flat_first = (uint64_t)g->rank * FLAT / WORLD;
    uint64_t flat_end = ((uint64_t)g->rank + 1) * FLAT / WORLD;
    const struct muster_ckpt_tensor all[] = {
        {.name = "rows", .dtype = MUSTER_F32, .n_dims = 2,
         .shape = (uint64_t[]){ROWS, COLUMNS}, .at = (uint64_t[]){first, 0},
         .len = (uint64_t[]){1, COLUMNS}, .data = rows},
        {.name = "rows", .dtype = MUSTER_F32, .n_dims = 2,
         .shape = (uint64_t[]){ROWS, COLUMNS}, .at = (uint64_t[]){first + 1, 0},
         .len = (uint64_t[]){end - first - 1, COLUMNS}, .data = rows[1]},
        {.name = "flat", .dtype = MUSTER_U16, .n_dims = 3,
         .shape = (uint64_t[]){2, 4, 5}, .is_flat = 1,
         .flat_begin = flat_first, .flat_end = flat_end, .data = flat},
        {.name = "a.one", .dtype = MUSTER_F64, .data = &one},
        {.name = "nothing", .dtype = MUSTER_I8, .n_dims = 2,
         .shape = (uint64_t[]){0, 3}, .data = NULL},
        {.name = "nibbles", .dtype = MUSTER_F4, .n_dims = 1,
         .shape = (uint64_t[]){8}, .data = nibbles},
    };

    for (uint64_t r = first; r < end; r++) {
        for (uint64_t c = 0; c < COLUMNS; c++) {
            rows[r - first][c] = value(r, c);
        }
    }
    for (uint64_t i = flat_first; i < flat_end; i++) {
        flat[i - flat_first] = (uint16_t)(i * 3);
    }
    if (muster_ckpt_open(NULL, g, arg, NULL, &ck) < 0) {
        abort();
    }
    for (size_t i = 0; i < ARRAY_SIZE(all); i++) {
        if (muster_ckpt_tensor(ck, &all[i]) < 0) {
            abort();
        }
    }
    if (muster_ckpt_blob(ck, "note", blob, sizeof(blob), MUSTER_REPLICATED) < 0 ||
        muster_ckpt_save(ck, 12, 0, NULL) < 0) {
        fprintf(stderr, "%s\n", muster_ckpt_error_text(ck));
        abort();
    }
    muster_ckpt_close(ck);
}

static void make(void)
{
    const char *tmp = getenv("TMPDIR");
    _free_ struct step_entry *entries = NULL;
    size_t n = 0;

    snprintf(top, sizeof(top), "%s/convert_test.XXXXXX", tmp ? tmp : "/tmp");
    if (!mkdtemp(top)) {
        bail_out("no directory %s", top);
    }
    dir = open(top, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    team_run(WORLD, true, save_rank, top);
    if (step_list(io_system(), dir, &entries, &n, NULL) < 0 || n != 1) {
        bail_out("no checkpoint");
    }
    snprintf(step_dir, sizeof(step_dir), "%s", entries[0].name);
}

static int open_contents(const char *name, struct contents *ret, struct error *e)
{
    struct found f;

    return found_one(io_system(), dir, name, &f)
               ? contents_open(io_system(), dir, &f, ret, e) : -ENOENT;
}

static const struct contents_tensor *tensor(const struct contents *c,
                                            const char *name)
{
    for (size_t i = 0; i < c->n_tensors; i++) {
        if (strcmp(c->tensors[i].name, name) == 0) {
            return &c->tensors[i];
        }
    }
    return NULL;
}

static bool has_all(const struct contents *c)
{
    float rows[ROWS][COLUMNS];
    uint16_t flat[FLAT];
    double one = 0;
    uint8_t nibbles[4] = {0};
    bool is_right = c->n_tensors == 5 && tensor(c, "nothing") &&
                    tensor(c, "nothing")->bytes == 0;

    is_right = is_right &&
               contents_read(c, tensor(c, "rows"), 0, ROWS * COLUMNS, rows,
                             NULL) == 0 &&
               contents_read(c, tensor(c, "flat"), 0, FLAT, flat, NULL) == 0 &&
               contents_read(c, tensor(c, "a.one"), 0, 1, &one, NULL) == 0 &&
               contents_read(c, tensor(c, "nibbles"), 0, 8, nibbles, NULL) == 0;
    for (size_t i = 0; i < ROWS * COLUMNS && is_right; i++) {
        is_right = rows[i / COLUMNS][i % COLUMNS] ==
                   value(i / COLUMNS, i % COLUMNS);
    }
    for (size_t i = 0; i < FLAT && is_right; i++) {
        is_right = flat[i] == i * 3;
    }
    return is_right && one == 2.5 && memcmp(nibbles, "\1\2\3\4", 4) == 0;
}

static int convert(const char *from, const char *to, uint64_t shard_bytes,
                   uint64_t piece_bytes, struct convert_facts *facts,
                   struct error *e)
{
    _contents_ struct contents c = {0};
    struct convert job = {.from = &c, .shard_bytes = shard_bytes,
                          .piece_bytes = piece_bytes};
    int rc = open_contents(from, &c, e);

    return rc < 0 ? rc : convert_run(&job, dir, to, facts, e);
}

static void test_contents(void)
{
    struct contents c = {0};
    struct error e = {0};
    int fd;

    is_int(open_contents(step_dir, &c, &e), 0, "what is in it: %s", e.text);
    is_int(c.n_tensors, 5, "tensors, and no blob");
    is_str(c.tensors[0].name, "a.one", "by name");
    is_int(tensor(&c, "rows")->files.n, WORLD, "one lies in three files");
    is_int(tensor(&c, "rows")->n_pieces, 2 * WORLD, "in two pieces each");
    ok(c.is_verified && has_all(&c), "with all that was saved");
    fd = c.load.step.dir;
    contents_release(&c);
    ok(fcntl(fd, F_GETFD) < 0 && errno == EBADF, "and is closed again");
}

/* As somebody calls one that is not to go. */
static void test_renamed(void)
{
    _contents_ struct contents c = {0};
    struct error e = {0};
    struct found f;

    ok(renameat(dir, step_dir, dir, "best") == 0, "one by another name");
    ok(found_renamed(io_system(), dir, "best", &f), "is found");
    is_int(contents_open(io_system(), dir, &f, &c, &e), 0, "and opened: %s", e.text);
    ok(c.is_verified && has_all(&c), "with all that was saved");
    ok(renameat(dir, "best", dir, step_dir) == 0, "it gets its own again");
}

/* In pieces of a few bytes, of a few rows, and at once. */
static void test_file(void)
{
    static const uint64_t pieces[] = {8, 48, 0};

    for (size_t i = 0; i < ARRAY_SIZE(pieces); i++) {
        _contents_ struct contents c = {0};
        struct convert_facts facts = {0};
        struct error e = {0};

        is_int(convert(step_dir, "out.safetensors", 0, pieces[i], &facts, &e), 0,
               "a file, in pieces of %d: %s", (int)pieces[i], e.text);
        is_int(facts.n_files, 1, "one file");
        is_int(open_contents("out.safetensors", &c, &e), 0, "that is one: %s",
               e.text);
        ok(has_all(&c), "with all of it");
        unlinkat(dir, "out.safetensors", 0);
    }
}

static void test_shards(void)
{
    _contents_ struct contents c = {0};
    struct convert_facts facts = {0};
    struct error e = {0};
    struct stat st;
    char path[PATH_MAX];

    is_int(convert(step_dir, "checkpoint-12", 100, 0, &facts, &e), 0,
           "files of 100 bytes: %s", e.text);
    is_int(facts.n_files, 2, "are two");
    ok(fstatat(dir, "checkpoint-12/model.safetensors.index.json", &st, 0) == 0 &&
           fstatat(dir, "checkpoint-12/model-00002-of-00002.safetensors", &st,
                   0) == 0, "by their usual names");
    is_int(convert(step_dir, "whole", 1 << 20, 0, &facts, &e), 0, "one of them");
    ok(fstatat(dir, "whole/model.safetensors", &st, 0) == 0, "needs no index");
    /* What makes it one of the Trainer's. */
    snprintf(path, sizeof(path), "%.200s/checkpoint-12/trainer_state.json", top);
    fs_write_atomic(path, "{\"global_step\": 12}", 19, NULL);
    is_int(open_contents("checkpoint-12", &c, &e), 0, "read again: %s", e.text);
    ok(has_all(&c), "with all of it");
    contents_release(&c);
    is_int(convert("checkpoint-12", "again.safetensors", 0, 16, &facts, &e), 0,
           "and made one file, in small pieces: %s", e.text);
    is_int(open_contents("again.safetensors", &c, &e), 0, "read again");
    ok(has_all(&c), "with all of it");
    ok(linkat(dir, "again.safetensors", dir, "\xff.safetensors", 0) == 0 &&
           convert("\xff.safetensors", "utf8.safetensors", 0, 0, &facts, &e) == 0,
       "also of a name that is not UTF-8: %s", e.text);
}

/* --- what goes along --- */

static const char *meta(const struct contents *c, const char *key)
{
    for (size_t i = 0; i < c->n_meta; i++) {
        if (strcmp(c->meta[i].key, key) == 0) {
            return c->meta[i].value;
        }
    }
    return NULL;
}

static void put_st(const char *path, const char *header)
{
    char bytes[512] = {(char)strlen(header)};
    size_t n = ST_PREFIX_BYTES + strlen(header);

    memcpy(bytes + ST_PREFIX_BYTES, header, strlen(header));
    if (fs_write_atomic(path, bytes, n, NULL) < 0) {
        bail_out("no %s", path);
    }
}

/* A file's own, one directory's that has two which differ in a key. */
static void test_meta(void)
{
    static const char one[] = "{\"__metadata__\":{\"format\":\"np\",\"lora\":\"8\","
                              "\"muster.from\":\"x\",\"part\":\"1\"}}";
    static const char two[] = "{\"__metadata__\":{\"lora\":\"8\",\"part\":\"2\","
                              "\"title\":\"y\"}}";
    static const char state[] = "{\"global_step\": 7}";
    _contents_ struct contents c = {0};
    struct convert_facts facts = {0};
    struct error e = {0};
    char path[PATH_MAX];

    snprintf(path, sizeof(path), "%.200s/one.safetensors", top);
    put_st(path, one);
    is_int(convert("one.safetensors", "to.safetensors", 0, 0, &facts, &e), 0,
           "a file with metadata: %s", e.text);
    is_int(open_contents("to.safetensors", &c, &e), 0, "read again: %s", e.text);
    is_str(meta(&c, "lora"), "8", "has it");
    is_str(meta(&c, "format"), "np", "and its format");
    is_str(meta(&c, "muster.from"), "one.safetensors", "and what it was made of");
    is_int(c.n_meta, 4, "and no more");
    contents_release(&c);

    mkdirat(dir, "checkpoint-7", 0700);
    snprintf(path, sizeof(path), "%.200s/checkpoint-7/model-1.safetensors", top);
    put_st(path, one);
    snprintf(path, sizeof(path), "%.200s/checkpoint-7/model-2.safetensors", top);
    put_st(path, two);
    snprintf(path, sizeof(path), "%.200s/checkpoint-7/trainer_state.json", top);
    fs_write_atomic(path, state, strlen(state), NULL);
    is_int(open_contents("checkpoint-7", &c, &e), 0, "of two files: %s", e.text);
    ok(c.n_meta == 4 && c.n_meta_left_out == 1 && !meta(&c, "part"),
       "what they do not agree on is left out");
    is_str(meta(&c, "lora"), "8", "what both have stays");
    is_str(meta(&c, "title"), "y", "and what one has");
    contents_release(&c);
    is_int(open_contents(step_dir, &c, &e), 0, "muster's own");
    is_int(c.n_meta, 0, "say nothing of themselves");
    unlinkat(dir, "to.safetensors", 0);
}

/* Of a directory it is named, and the file in it. */
static void test_named(void)
{
    static const char one[] = "{\"w\":{\"dtype\":\"U8\",\"shape\":[0],\"data_offsets\":[0,0]}}";
    _contents_ struct contents c = {0};
    struct error e = {0};
    char path[256];

    mkdirat(dir, "epoch_9", 0700);
    snprintf(path, sizeof(path), "%.200s/epoch_9/config.json", top);
    fs_write_atomic(path, "{}", 2, NULL);
    snprintf(path, sizeof(path), "%.200s/epoch_9/model-1.safetensors", top);
    put_st(path, one);
    snprintf(path, sizeof(path), "%.200s/epoch_9/model.safetensors", top);
    put_st(path, one);
    is_int(open_contents("epoch_9", &c, &e), -EINVAL, "a tensor twice");
    is_str(e.text, "epoch_9: model-1.safetensors and model.safetensors both have a tensor 'w'",
           "is told with its directory");
    unlink(path);
    mkdir(path, 0700);
    is_int(open_contents("epoch_9", &c, &e), -EINVAL, "a directory in the place of a file");
    like(e.text, "epoch_9: model.safetensors is no file", "is called none");
    snprintf(path, sizeof(path), "%.200s/epoch_9", top);
    fs_remove_tree(path, NULL);
}

static unsigned mode_of(const char *name)
{
    struct stat st = {0};

    fstatat(dir, name, &st, AT_SYMLINK_NOFOLLOW);
    return st.st_mode & 07777;
}

static void test_modes(void)
{
    mode_t before = umask(0);
    struct convert_facts facts;
    struct error e = {0};

    is_int(convert(step_dir, "mine.safetensors", 0, 0, &facts, &e), 0,
           "a file: %s", e.text);
    is_int(mode_of("mine.safetensors"), 0600, "for nobody else");
    is_int(convert(step_dir, "mine", 100, 0, &facts, &e), 0, "a directory: %s",
           e.text);
    is_int(mode_of("mine"), 0700, "nor is that");
    is_int(mode_of("mine/model.safetensors.index.json"), 0600, "nor its files");
    umask(before);
}

/* --- locks --- */

static void test_locks(void)
{
    static const int none[] = {EBADF, ENOLCK, ENOSYS, EOPNOTSUPP};
    struct convert_facts facts;
    struct error e = {0};
    char name[NAME_MAX + 1];

    flock_fails_of = EIO;
    is_int(convert(step_dir, "lock.safetensors", 0, 0, &facts, &e), -EIO,
           "no lock for another reason than that somebody has it");
    like(e.text, "lock the directory", "which is said");
    mkdirat(dir, ".lock0.safetensors.muster-part", 0700);
    for (size_t i = 0; i < ARRAY_SIZE(none); i++) {
        flock_fails_of = none[i];
        snprintf(name, sizeof(name), "lock%zu.safetensors", i);
        is_int(convert(step_dir, name, 0, 0, &facts, &e), 0,
               "where directories have no locks (%s)", strerror(none[i]));
    }
    flock_fails_of = 0;
    ok(faccessat(dir, ".lock0.safetensors.muster-part", F_OK, 0) == 0,
       "nobody takes away what another one may be writing");
}

static void test_refused(void)
{
    _close_ int other = open(top, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    struct convert_facts facts;
    struct error e = {0};
    struct stat st;
    char path[PATH_MAX];

    is_int(convert(step_dir, "again.safetensors", 0, 0, &facts, &e), -EEXIST,
           "nothing is written over");
    like(e.text, "there already", "which is said");
    flock(dir, LOCK_UN);
    flock(other, LOCK_EX);
    is_int(convert(step_dir, "busy.safetensors", 0, 0, &facts, &e), -EBUSY,
           "nor two at a time");
    close_fd(&other);
    snprintf(path, sizeof(path), "%.200s/old.bin", top);
    fs_write_atomic(path, "\x80\x02}.", 4, NULL);
    is_int(convert("old.bin", "new.safetensors", 0, 0, &facts, &e), -ENOTSUP,
           "a pickle");
    like(e.text, "old.bin cannot be converted: it is a pickle, and none of torch.save",
         "with the reason");
    /* A bit of the last row. */
    snprintf(path, sizeof(path), "%.200s/%.60s/r00002.safetensors", top, step_dir);
    other = open(path, O_RDWR | O_CLOEXEC);
    fstat(other, &st);
    ok(pwrite(other, "\x5a", 1, st.st_size - 1) == 1, "a byte is changed");
    is_int(convert(step_dir, "bad.safetensors", 0, 0, &facts, &e), -ERR_FORMAT,
           "it is seen");
    like(e.text, "r00002.safetensors", "and named");
    ok(fstatat(dir, "bad.safetensors", &st, 0) < 0 &&
           fstatat(dir, ".bad.safetensors.muster-part", &st, 0) < 0,
       "nothing is left");
    is_int(convert(step_dir, "bad", 60, 0, &facts, &e), -ERR_FORMAT,
           "in several files, too");
    ok(fstatat(dir, "bad", &st, 0) < 0 &&
           fstatat(dir, ".bad.muster-part", &st, 0) < 0, "nothing is left");
}

int main(void)
{
    make();
    test_contents();
    test_renamed();
    test_file();
    test_shards();
    test_meta();
    test_named();
    test_modes();
    test_locks();
    test_refused();
    close(dir);
    fs_remove_tree(top, NULL);
    return tap_done();
}
