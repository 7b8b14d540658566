/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Checkpoints in a store that is a directory: which there are, in what order, and whether
 * they are whole; what is told where a request fails; and that one which goes is none from
 * the first request on.
 */
#include <config.h>

#include "ckpt/store_priv.h"

#include "base/fs.h"
#include "ckpt/gather.h"
#include "ckpt/part.h"
#include "ckpt/step_bed.h"
#include "ckpt/store_bed.h"
#include "ckpt/tree.h"
#include "tests/lib/tap.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { MAX_CALLS = 64 };

/* --- requests --- */

int __real_s3_get(struct s3 *s, const char *key, size_t max, struct buf *to, struct error *e);
int __wrap_s3_get(struct s3 *s, const char *key, size_t max, struct buf *to, struct error *e);
int __real_s3_get_range(struct s3 *s, const char *key, uint64_t at, void *to, size_t len,
                        struct error *e);
int __wrap_s3_get_range(struct s3 *s, const char *key, uint64_t at, void *to, size_t len,
                        struct error *e);
int __real_s3_delete(struct s3 *s, const char *key, struct error *e);
int __wrap_s3_delete(struct s3 *s, const char *key, struct error *e);
int __real_s3_list(struct s3 *s, const char *prefix, bool is_flat, struct s3_listing *ret,
                   struct error *e);
int __wrap_s3_list(struct s3 *s, const char *prefix, bool is_flat, struct s3_listing *ret,
                   struct error *e);
void __real_s3_go_on(struct s3 *s);
void __wrap_s3_go_on(struct s3 *s);

/* What is asked of a key that ends so fails. */
static struct {
    enum { NO_CALL, GET, RANGE, DELETE, LIST } call;
    const char *end;
    int rc;
} fault;
static char deleted[MAX_CALLS][128]; /* in order */
static unsigned n_deleted, n_went_on;
static const char *const *odd_names; /* that the store lists besides */
static size_t n_odd_names;

static int fail(int call, const char *key, struct error *e)
{
    size_t n = strlen(key), k = fault.end ? strlen(fault.end) : 0;

    return (int)fault.call == call && n >= k && strcmp(key + n - k, fault.end) == 0
               ? error_text(e, -fault.rc, "%s: no", key) : 0;
}

int __wrap_s3_get(struct s3 *s, const char *key, size_t max, struct buf *to, struct error *e)
{
    int rc = fail(GET, key, e);

    return rc < 0 ? rc : __real_s3_get(s, key, max, to, e);
}

int __wrap_s3_get_range(struct s3 *s, const char *key, uint64_t at, void *to, size_t len,
                        struct error *e)
{
    int rc = fail(RANGE, key, e);

    return rc < 0 ? rc : __real_s3_get_range(s, key, at, to, len, e);
}

int __wrap_s3_delete(struct s3 *s, const char *key, struct error *e)
{
    int rc = fail(DELETE, key, e);

    if (n_deleted < MAX_CALLS) {
        snprintf(deleted[n_deleted++], sizeof(deleted[0]), "%s", key);
    }
    return rc < 0 ? rc : __real_s3_delete(s, key, e);
}

int __wrap_s3_list(struct s3 *s, const char *prefix, bool is_flat, struct s3_listing *ret,
                   struct error *e)
{
    int rc = fail(LIST, prefix, e);

    for (size_t i = 0; i < n_odd_names && is_flat; i++) {
        strlist_add(&ret->prefixes, odd_names[i]);
    }
    return rc < 0 ? rc : __real_s3_list(s, prefix, is_flat, ret, e);
}

void __wrap_s3_go_on(struct s3 *s)
{
    n_went_on++;
    __real_s3_go_on(s);
}

static void fails(int call, const char *end, int rc)
{
    fault.call = call;
    fault.end = end;
    fault.rc = rc;
}

/* --- a bed --- */

/* Two of ours and one of another program, below "runs", beside which there are others. */
struct bench {
    char path[64];
    int from, dir; /* the store's, below the prefix */
    struct store st;
    char own[STEP_NAME_BYTES], newer[STEP_NAME_BYTES], other[PARCEL_NAME_BYTES];
};

static void put(int dir, const char *path, const char *text)
{
    _close_ int fd = -1;

    tree_unlink(dir, path);
    fd = tree_create_file(dir, path);
    if (fd < 0 || fs_write_all(fd, text, strlen(text)) < 0) {
        bail_out("write %s", path);
    }
}

static int make_dir(const struct bench *b, const char *name)
{
    char path[128];

    snprintf(path, sizeof(path), "%s/%s", b->path, name);
    mkdir(path, 0700);
    return open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
}

static void store_one(struct bench *b, const char *name, char ret[PARCEL_NAME_BYTES])
{
    struct found f;
    _store_bed_ struct store below = {0};
    _parcel_ struct parcel p = {0};
    char path[128];

    snprintf(path, sizeof(path), "%s/store/runs", b->path);
    if (!found_one(io_system(), b->from, name, &f) || !store_bed_open(path, &below) ||
        store_bed_put(&below, b->from, &f) < 0 ||
        parcel_pack(io_system(), b->from, &f, &p, NULL) < 0) {
        bail_out("no %s in the store", name);
    }
    if (ret) {
        str_copy(ret, PARCEL_NAME_BYTES, p.name);
    }
}

static void setup(struct bench *b)
{
    char path[80];

    *b = (struct bench){.path = "/tmp/store_test.XXXXXX"};
    if (!mkdtemp(b->path)) {
        bail_out("mkdtemp");
    }
    b->from = make_dir(b, "from");
    snprintf(path, sizeof(path), "%s/store", b->path);
    if (!store_bed_open(path, &b->st) ||
        bed_save(io_system(), b->from, 10, 1, NULL) < 0 ||
        bed_save(io_system(), b->from, 20, 2, NULL) < 0) {
        bail_out("no store");
    }
    b->st.prefix = "runs";
    b->dir = make_dir(b, "store/runs");
    close(make_dir(b, "store/others"));
    put(b->dir, "../others/x", "x");
    bed_name(10, 1, b->own);
    bed_name(20, 2, b->newer);
    put(b->from, "checkpoint-5/a.bin", "aaa");
    put(b->from, "checkpoint-5/sub/b.bin", "bbbb");
    put(b->from, "checkpoint-5/trainer_state.json",
        "{\"global_step\": 5, \"log_history\": [{\"eval_loss\": 0.5, \"step\": 5}]}");
    store_one(b, b->own, NULL);
    store_one(b, b->newer, NULL);
    store_one(b, "checkpoint-5", b->other);
    fails(NO_CALL, NULL, 0);
    n_deleted = n_went_on = 0;
}

static void teardown(struct bench *b)
{
    store_bed_close(&b->st);
    close(b->from);
    close(b->dir);
    fs_remove_tree(b->path, NULL);
}

static const char *in(const char *name, const char *file)
{
    static char path[PATH_MAX];

    snprintf(path, sizeof(path), "%s/%s", name, file);
    return path;
}

/* Of that name, as it is in a list. */
static struct store_entry entry_of(const struct bench *b, const char *name, bool is_deep)
{
    _free_ struct store_entry *all = NULL;
    struct store_entry ret = {.rc = 1};
    struct error e = {0};
    size_t n = 0;

    if (store_list(&b->st, is_deep, &all, &n, &e) < 0) {
        bail_out("no list: %s", e.text);
    }
    for (size_t i = 0; i < n; i++) {
        ret = strcmp(all[i].name, name) == 0 ? all[i] : ret;
    }
    return ret;
}

static int open_and_check(const struct bench *b, const char *name, bool is_deep,
                          struct error *e)
{
    _parcel_ struct parcel p = {0};
    int rc;

    *e = (struct error){0};
    rc = store_open(&b->st, name, &p, e);
    return rc < 0 ? rc : store_check(&b->st, &p, is_deep, e);
}

/* --- keys --- */

static void test_keys(void)
{
    static char name[S3_KEY_MAX_BYTES + 1];
    struct store st = {.prefix = ""}, below = {.prefix = "a/b"};
    _buf_ struct buf key = {0};
    struct error e = {0};

    is_int(store_key(&st, "one", "file", &key, &e), 0, "a key");
    is_str(buf_str(&key), "one/file", "without a prefix");
    is_int(store_key(&below, "one", "", &key, &e), 0, "another one");
    is_str(buf_str(&key), "a/b/one/", "with one, and nothing of the one before");
    memset(name, 'n', S3_KEY_MAX_BYTES - 2);
    is_int(store_key(&st, name, "f", &key, &e), 0, "as long as there are");
    is_int(store_key(&st, name, "ff", &key, &e), -ENAMETOOLONG, "one more");
}

/* --- lists --- */

static void test_list(void)
{
    static char long_name[PARCEL_NAME_BYTES + 20];
    static const char *const odd[] = {"runs//", "runs/../", "runs/./", "runs/", "runs/a/b/",
                                      long_name};
    _free_ struct store_entry *all = NULL;
    struct error e = {0};
    size_t n = 0;
    struct bench b;

    setup(&b);
    memset(long_name, 'n', sizeof(long_name) - 1);
    memcpy(long_name, "runs/", 5);
    long_name[sizeof(long_name) - 2] = '/';
    put(b.dir, "checkpoint-7-0123abcd/a.bin", "a");
    put(b.dir, "run-8-0123abcd/a.bin", "a");
    odd_names = odd;
    n_odd_names = ARRAY_SIZE(odd);
    is_int(store_list(&b.st, false, &all, &n, &e), 0, "a list: %s", e.text);
    n_odd_names = 0;
    ok(n_went_on > 0, "requests go on afterwards");
    is_int(n, 5, "of all that are names");
    if (n == 5) {
        is_str(all[0].name, b.newer, "the highest step first");
        is_str(all[1].name, b.own, "then the one below");
        is_str(all[2].name, b.other, "then another program's");
        ok(all[2].has_seal && all[2].rc == 0 && all[2].n_files == 3 && all[2].bytes > 7 &&
               all[2].found.kind == FOUND_TRAINER,
           "which is whole, and what it is");
        is_str(all[3].name, "checkpoint-7-0123abcd", "then what was never finished");
        ok(!all[3].has_seal && all[3].rc == -ENOENT && all[3].found.is_step,
           "which is one of a step by its name");
        ok(!all[4].has_seal && all[4].rc == -ENOENT && !all[4].found.is_step,
           "or is not");
    }
    teardown(&b);
}

static void test_order(void)
{
    struct store_entry of[] = {
        {.name = "e", .found = {.has_step = true, .step = 9, .kind = FOUND_MUSTER}},
        {.name = "f", .found = {.has_step = true, .step = 8, .kind = FOUND_MUSTER, .token = 7}},
        {.name = "d", .found = {.has_step = true, .step = 8, .kind = FOUND_MUSTER, .token = 6}},
        {.name = "a", .found = {.has_step = true, .step = 8, .kind = FOUND_TRAINER, .token = 9}},
        {.name = "b", .found = {.has_step = true, .step = 8, .kind = FOUND_TRAINER}},
        {.name = "s-fedcba98", .n_files = 3,
         .found = {.has_step = true, .step = 8, .kind = FOUND_TORCH_DIR}},
        {.name = "s-01234567", .n_files = 2,
         .found = {.has_step = true, .step = 8, .kind = FOUND_TORCH_DIR}},
        {.name = "s-89abcdef", .n_files = 2,
         .found = {.has_step = true, .step = 8, .kind = FOUND_TORCH_DIR}},
        {.name = "s-1", .n_files = 9,
         .found = {.has_step = true, .step = 8, .kind = FOUND_TORCH_DIR}},
        {.name = "0", .found = {.kind = FOUND_TRAINER}},
        {.name = "1", .found = {.kind = FOUND_MUSTER}},
    };
    unsigned n_wrong = 0;

    for (size_t i = 0; i < ARRAY_SIZE(of); i++) {
        for (size_t k = 0; k < ARRAY_SIZE(of); k++) {
            int order = store_newest_first(&of[i], &of[k]);

            n_wrong += i < k ? order >= 0 : i > k ? order <= 0 : order != 0;
        }
    }
    is_int(n_wrong, 0, "of each two which is first");
}

static void test_list_fails(void)
{
    static const int all_refused[] = {-EACCES, -ENXIO};
    _free_ struct store_entry *all = NULL;
    struct error e = {0};
    size_t n = 0;
    struct bench b;

    setup(&b);
    for (size_t i = 0; i < ARRAY_SIZE(all_refused); i++) {
        fails(GET, "COMMIT", all_refused[i]);
        is_int(store_list(&b.st, false, &all, &n, &e), all_refused[i],
               "who may not read one may read none");
        like(e.text, "COMMIT: no", "is told");
    }
    fails(LIST, "runs/", -EACCES);
    is_int(store_list(&b.st, false, &all, &n, &e), -EACCES, "nor who may not list");
    fails(GET, in(b.own, "COMMIT"), -EIO);
    is_int(entry_of(&b, b.own, false).rc, -EIO, "one that cannot be read");
    is_int(entry_of(&b, b.newer, false).rc, 0, "is not another one");
    ok(store_is_known(0) && store_is_known(-ENOENT) && store_is_known(-ERR_FORMAT) &&
           !store_is_known(-EIO) && !store_is_known(-EAGAIN),
       "of which nobody knows what it is");
    teardown(&b);
}

/* --- whole, or not --- */

static void test_check(void)
{
    static const struct {
        const char *file, *text, *told; /* NULL: it is not there */
    } cases[] = {
        {"a.bin", "aa", "a.bin is cut: expected 3 bytes, found 2"},
        {"a.bin", "aaaa", "a.bin is too long"},
        {"a.bin", NULL, "a.bin is missing"},
        {"trainer_state.json", NULL, "trainer_state.json is missing"},
        {"sub/b.bin", NULL, "sub/b.bin is missing"},
    };
    struct error e;
    struct bench b;

    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        setup(&b);
        if (cases[i].text) {
            put(b.dir, in(b.other, cases[i].file), cases[i].text);
        } else {
            tree_unlink(b.dir, in(b.other, cases[i].file));
        }
        is_int(open_and_check(&b, b.other, false, &e), -ERR_FORMAT, "%s", cases[i].told);
        like(e.text, cases[i].told, "is told");
        is_int(entry_of(&b, b.other, false).rc, -ERR_FORMAT, "also in a list");
        like(entry_of(&b, b.other, true).why.text, cases[i].told, "as that");
        teardown(&b);
    }
    setup(&b);
    put(b.dir, in(b.other, "a.bin"), "aba");
    is_int(open_and_check(&b, b.other, false, &e), 0, "other bytes are not looked at");
    is_int(entry_of(&b, b.other, false).rc, 0, "nor in a list");
    is_int(open_and_check(&b, b.other, true, &e), -ERR_FORMAT, "unless all are");
    like(e.text, "a.bin", "which is told");
    is_int(entry_of(&b, b.other, true).rc, -ERR_FORMAT, "nor in a list");
    is_int(entry_of(&b, b.own, true).rc, 0, "others are right");
    fails(RANGE, "a.bin", -EIO);
    is_int(open_and_check(&b, b.other, true, &e), -EIO, "what cannot be read");
    like(e.text, "a.bin: no", "is told");
    fails(LIST, "", -EACCES);
    is_int(open_and_check(&b, b.other, false, &e), -EACCES, "nor can it be listed");
    teardown(&b);
}

/* One of two ranks, of which each has a tensor of its own; returned is its name. */
static const char *save_ranks(const struct bench *b)
{
    static char name[STEP_NAME_BYTES];
    static const char *const tensors[] = {"one", "two"};
    const uint64_t len = 4, at = 0;
    struct gather g = {.step = 30, .uuid = "0123456789abcdef0123456789abcdef",
                       .token = 1, .n_ranks = 2};
    struct step_save *s = NULL;
    struct error e = {0};
    int rc = step_save_begin(io_system(), b->from, g.step, g.uuid, &s, &e);

    for (uint32_t r = 0; r < 2 && rc == 0; r++) {
        uint64_t block = digest_short_of("data", 4);
        struct part_piece piece = {tensors[r], DTYPE_U8, 1, &len, &at, &len, 0};
        struct part p = {.step = g.step, .rank = r, .n_ranks = 2, .file_bytes = 4,
                         .n_pieces = 1, .pieces = &piece, .n_blocks = 1, .blocks = &block};
        _buf_ struct buf bytes = {0};
        char file[PART_NAME_BYTES];

        str_copy(p.uuid, sizeof(p.uuid), g.uuid);
        part_data_name(r, file);
        rc = step_save_file(s, file, "data", 4, &e);
        part_file_name(r, file);
        rc = rc < 0 ? rc : part_encode(&p, &bytes, &e);
        rc = rc < 0 ? rc : step_save_note(s, file, bytes.data, bytes.len, &e);
    }
    rc = rc < 0 ? rc : gather_commit(s, &g, &e);
    if (rc < 0) {
        bail_out("no checkpoint of ranks: %s", e.text);
    }
    str_copy(name, sizeof(name), step_save_name(s));
    gather_tidy(s, 2);
    step_save_destroy(s);
    return name;
}

/* Whose bytes they are, as long as the store gives the index. */
static void test_blame(void)
{
    const char *name;
    struct error e;
    struct bench b;

    setup(&b);
    name = save_ranks(&b);
    store_one(&b, name, NULL);
    is_int(open_and_check(&b, name, true, &e), 0, "one of two ranks: %s", e.text);
    put(b.dir, in(name, "r00001.safetensors"), "dat4");
    is_int(open_and_check(&b, name, true, &e), -ERR_FORMAT, "of which one is damaged");
    like(e.text, "r00001.safetensors", "is told");
    like(e.text, "'two'", "and what is in it");
    fails(RANGE, "tensors.index", -EIO);
    is_int(open_and_check(&b, name, true, &e), -ERR_FORMAT, "where the index cannot be read");
    like(e.text, "r00001.safetensors", "the file is told");
    fails(RANGE, "r00000.safetensors", -EIO);
    is_int(open_and_check(&b, name, true, &e), -EIO, "one before it cannot be read");
    like(e.text, "r00000.safetensors: no", "that is told");
    teardown(&b);
}

static void test_seals(void)
{
    static const struct {
        bool is_own;
        const char *file, *text; /* NULL: it is not there */
        int rc;
        const char *told;
    } cases[] = {
        {true, "COMMIT", NULL, -ENOENT, "never finished: no COMMIT"},
        {true, "COMMIT", "x", -ERR_FORMAT, "COMMIT"},
        {true, "manifest.json", NULL, -ERR_FORMAT, "manifest.json is missing"},
        {true, "manifest.json", "x", -ERR_FORMAT, "manifest"},
        {false, ".muster-copy", NULL, -ENOENT, "never finished: no .muster-copy"},
        {false, ".muster-copy", "x", -ERR_FORMAT, "muster-copy"},
    };
    struct error e;
    struct bench b;

    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        const char *name;

        setup(&b);
        name = cases[i].is_own ? b.own : b.other;
        fails(GET, in(name, cases[i].file), -EIO);
        is_int(open_and_check(&b, name, false, &e), -EIO, "%s cannot be read", cases[i].file);
        fails(NO_CALL, NULL, 0);
        tree_unlink(b.dir, in(name, cases[i].file));
        if (cases[i].text) {
            put(b.dir, in(name, cases[i].file), cases[i].text);
            if (strcmp(cases[i].file, "COMMIT") == 0) {
                tree_unlink(b.dir, in(name, "manifest.json"));
            }
        }
        is_int(open_and_check(&b, name, false, &e), cases[i].rc, "%s %s", cases[i].file,
               cases[i].text ? "is damaged" : "is not there");
        like(e.text, cases[i].told, "is told");
        teardown(&b);
    }
}

/* --- removing --- */

static bool is_gone(const struct bench *b, const char *name)
{
    _s3_listing_ struct s3_listing l = {0};
    char prefix[128];

    snprintf(prefix, sizeof(prefix), "runs/%s/", name);
    return __real_s3_list(b->st.s3, prefix, false, &l, NULL) == 0 && l.n == 0;
}

static void test_remove(void)
{
    struct error e = {0};
    struct bench b;

    for (int i = 0; i < 2; i++) {
        const char *name, *seal = i == 0 ? "COMMIT" : PARCEL_COPY;
        const char *last = i == 0 ? "tensors.index" : "trainer_state.json";

        setup(&b);
        name = i == 0 ? b.own : b.other;
        put(b.dir, in(name, "!"), "of a push that was cut, before all others by its name");
        fails(LIST, "", -EIO);
        is_int(store_remove(&b.st, name, &e), -EIO, "what cannot be listed");
        fails(DELETE, seal, -EACCES);
        is_int(store_remove(&b.st, name, &e), -EACCES, "or whose seal cannot be taken away");
        fails(NO_CALL, NULL, 0);
        is_int(open_and_check(&b, name, true, &e), 0, "stays whole: %s", e.text);
        ok(faccessat(b.dir, in(name, "!"), F_OK, 0) == 0, "and has all that it had");
        fails(DELETE, last, -EIO);
        is_int(store_remove(&b.st, name, &e), -EIO, "where a file cannot");
        fails(NO_CALL, NULL, 0);
        is_int(open_and_check(&b, name, true, &e), -ENOENT, "it is none any more");
        is_int(store_remove(&b.st, name, &e), 0, "then all goes");
        ok(is_gone(&b, name) && !is_gone(&b, b.newer), "and nothing else");
        is_int(store_remove(&b.st, name, &e), 0, "what is not there is no error");
        teardown(&b);
        setup(&b);
        name = i == 0 ? b.own : b.other;
        put(b.dir, in(name, "!"), "so");
        is_int(store_remove(&b.st, name, &e), 0, "one goes");
        ok(n_deleted > 1 && strcmp(deleted[0] + strlen("runs/"), in(name, seal)) == 0,
           "the first that does is its seal");
        teardown(&b);
    }
}

/* --- metrics --- */

static void test_metric(void)
{
    struct store_entry entry;
    struct error e = {0};
    double value = 0;
    struct bench b;

    setup(&b);
    entry = entry_of(&b, b.other, false);
    is_int(store_metric(&b.st, &entry, "eval_loss", &value, &e), 1, "a metric%s", e.text);
    ok(value == 0.5, "is read");
    is_int(store_metric(&b.st, &entry, "eval_other", &value, &e), 0, "another is not there");
    fails(GET, "trainer_state.json", -EIO);
    is_int(store_metric(&b.st, &entry, "eval_loss", &value, &e), -EIO, "nor can it be read");
    fails(NO_CALL, NULL, 0);
    put(b.dir, in(b.other, "trainer_state.json"), "x");
    is_int(store_metric(&b.st, &entry, "eval_loss", &value, &e), -ERR_FORMAT, "or is none");
    teardown(&b);
}

int main(void)
{
    test_keys();
    test_list();
    test_order();
    test_list_fails();
    test_check();
    test_blame();
    test_seals();
    test_remove();
    test_metric();
    return tap_done();
}
