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

/* Rows in turn, a range of elements, a scalar, nothing, a type of half bytes, a blob. */
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
         .len = (uint64_t[]){end - first, COLUMNS}, .data = rows},
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
    _contents_ struct contents c = {0};
    struct error e = {0};

    is_int(open_contents(step_dir, &c, &e), 0, "what is in it: %s", e.text);
    is_int(c.n_tensors, 5, "tensors, and no blob");
    is_str(c.tensors[0].name, "a.one", "by name");
    is_int(tensor(&c, "rows")->files.n, WORLD, "one lies in three files");
    is_int(tensor(&c, "rows")->n_pieces, WORLD, "in three pieces");
    ok(c.is_verified && has_all(&c), "with all that was saved");
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
    is_int(convert("checkpoint-12", "again.safetensors", 0, 0, &facts, &e), 0,
           "and made one file: %s", e.text);
    is_int(open_contents("again.safetensors", &c, &e), 0, "read again");
    ok(has_all(&c), "with all of it");
    ok(linkat(dir, "again.safetensors", dir, "\xff.safetensors", 0) == 0 &&
           convert("\xff.safetensors", "utf8.safetensors", 0, 0, &facts, &e) == 0,
       "also of a name that is not UTF-8: %s", e.text);
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
    like(e.text, "does not run", "with the reason");
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
    test_file();
    test_shards();
    test_refused();
    close(dir);
    fs_remove_tree(top, NULL);
    return tap_done();
}
