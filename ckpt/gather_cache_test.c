/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Saves one after the other that keep the index of the one before: each has its own bytes,
 * whether its pieces are the same or not, and whatever became of the save before.
 */
#include <config.h>

#include "ckpt/gather.h"

#include "base/cleanup.h"
#include "base/fs.h"
#include "base/str.h"
#include "ckpt/load.h"
#include "ckpt/part.h"
#include "tests/lib/tap.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { MAX_RANKS = 3, BYTES = 8 /* of each rank, of each tensor */ };

static char root_path[] = "/tmp/gather_cache_test.XXXXXX";
static int root = -1;

static const char *uuid_of(uint64_t step)
{
    static char uuid[COMMIT_UUID_BYTES];

    snprintf(uuid, sizeof(uuid), "%08x%024x", (unsigned)step, 0);
    return uuid;
}

/* Tensors of that many bytes a rank, in its file one after the other, or, where `is_turned`,
 * the first one last. All bytes are `fill`, and more by 1 for each rank. */
struct save {
    uint64_t step;
    uint32_t n_ranks;
    const char *const *names;
    size_t n_names;
    bool is_turned;
    bool is_damaged; /* the part of the last rank */
    char fill;
};

static void put_rank(struct step_save *s, const struct save *save, uint32_t rank)
{
    const uint64_t shape = (uint64_t)save->n_ranks * BYTES, at = rank * BYTES, len = BYTES;
    struct part_piece pieces[4];
    struct part p = {.step = save->step, .rank = rank, .n_ranks = save->n_ranks,
                     .n_pieces = save->n_names, .pieces = pieces, .n_blocks = 1,
                     .file_bytes = save->n_names * BYTES};
    char data[4 * BYTES], name[PART_NAME_BYTES];
    _buf_ struct buf b = {0};
    struct error e = {0};
    uint64_t block;
    int rc;

    for (size_t i = 0; i < save->n_names; i++) {
        size_t place = save->is_turned ? save->n_names - 1 - i : i;

        pieces[i] = (struct part_piece){save->names[i], DTYPE_U8, 1, &shape, &at, &len,
                                        place * BYTES};
    }
    memset(data, save->fill + (int)rank, sizeof(data));
    block = digest_short_of(data, p.file_bytes);
    p.blocks = &block;
    str_copy(p.uuid, sizeof(p.uuid), uuid_of(save->step));
    rc = part_encode(&p, &b, &e);
    if (rc == 0 && save->is_damaged && rank + 1 == save->n_ranks) {
        b.data[b.len / 2] ^= 1;
    }
    part_data_name(rank, name);
    rc = rc < 0 ? rc : step_save_file(s, name, data, p.file_bytes, &e);
    part_file_name(rank, name);
    rc = rc < 0 ? rc : step_save_note(s, name, b.data, b.len, &e);
    if (rc < 0) {
        bail_out("%s", e.text);
    }
}

static int commit(const struct save *save, struct index_cache *cache, struct error *e)
{
    struct gather g = {.step = save->step, .uuid = uuid_of(save->step), .generation = 1,
                       .token = 1, .n_ranks = save->n_ranks, .cache = cache};
    _cleanup_(step_save) struct step_save *s = NULL;

    *e = (struct error){0};
    if (step_save_begin(io_system(), root, save->step, uuid_of(save->step), &s, e) < 0) {
        bail_out("%s", e->text);
    }
    for (uint32_t r = 0; r < save->n_ranks; r++) {
        put_rank(s, save, r);
    }
    return gather_commit(s, &g, e);
}

/* It verifies, to the last byte, and that tensor has what each rank had. */
static bool is_right(const struct save *save, const char *tensor)
{
    const uint64_t shape = (uint64_t)save->n_ranks * BYTES, at = 0;
    char data[MAX_RANKS * BYTES] = "", name[STEP_NAME_BYTES];
    struct load_want want = {.name = tensor, .dtype = DTYPE_U8, .n_dims = 1, .shape = &shape,
                             .at = &at, .len = &shape, .data = data};
    _step_ struct step found = {0};
    _load_ struct load l = {0};
    struct error e = {0};
    bool is = true;
    int rc;

    step_name(save->step, uuid_of(save->step), name);
    rc = step_open(io_system(), root, name, &found, &e);
    rc = rc < 0 ? rc : step_verify(&found, &e);
    rc = rc < 0 ? rc : load_open(&found, &l, &e);
    rc = rc < 0 ? rc : load_boxes(&l, NULL, &want, 1, 1, &e);
    for (size_t i = 0; i < shape; i++) {
        is = is && data[i] == (char)(save->fill + (int)(i / BYTES));
    }
    if (rc < 0 || !is || index_n_files(l.index) != save->n_ranks) {
        diag("step %llu, %s: %s", (unsigned long long)save->step, tensor,
             rc < 0 ? e.text : "other bytes");
        return false;
    }
    return true;
}

static const char *const two[] = {"a", "b"}, *const other[] = {"a", "c"};

static void test_same(void)
{
    struct save save = {.step = 1, .n_ranks = 2, .names = two, .n_names = 2, .fill = 'a'};
    _index_cache_ struct index_cache cache = {0};
    const struct index *first;
    struct error e;

    is_int(commit(&save, &cache, &e), 0, "a first save: %s", e.text);
    ok(is_right(&save, "a"), "it is right");
    first = cache.index;
    ok(first && cache.n == 2, "and its index stays");
    save.step = 2;
    save.fill = 'p';
    is_int(commit(&save, &cache, &e), 0, "one of the same pieces: %s", e.text);
    ok(cache.index == first, "has the same index");
    ok(is_right(&save, "a") && is_right(&save, "b"), "and its own bytes");
    save.step = 3;
    save.is_turned = true;
    is_int(commit(&save, &cache, &e), 0, "one that has them in other places: %s", e.text);
    ok(is_right(&save, "a") && is_right(&save, "b"), "has those");
    save.step = 4;
    save.fill = 'x';
    is_int(commit(&save, &cache, &e), 0, "and the next one: %s", e.text);
    ok(is_right(&save, "b"), "has those as well");
}

/* Of another program, of more ranks, of fewer. */
static void test_other(void)
{
    struct save save = {.step = 10, .n_ranks = 2, .names = two, .n_names = 2, .fill = 'a'};
    _index_cache_ struct index_cache cache = {0};
    struct error e;

    is_int(commit(&save, &cache, &e), 0, "a save of two: %s", e.text);
    save.step = 11;
    save.names = other;
    is_int(commit(&save, &cache, &e), 0, "one of other tensors: %s", e.text);
    ok(is_right(&save, "c") && !is_right(&save, "b"), "has those");
    save.step = 12;
    save.n_ranks = 3;
    save.fill = 'k';
    is_int(commit(&save, &cache, &e), 0, "one of three ranks: %s", e.text);
    ok(is_right(&save, "c") && cache.n == 3, "has all of them");
    save.step = 13;
    save.n_ranks = 1;
    is_int(commit(&save, &cache, &e), 0, "one of one: %s", e.text);
    ok(is_right(&save, "c") && cache.n == 1, "has its own");
    save.step = 14;
    save.n_names = 1;
    is_int(commit(&save, &cache, &e), 0, "one of fewer tensors: %s", e.text);
    ok(is_right(&save, "a") && !is_right(&save, "c"), "has only those");
}

/* Where one rank alone has its pieces elsewhere, those of the others are needed again. */
static void test_one_other(void)
{
    static const char *const names[] = {"a"};
    struct save save = {.step = 20, .n_ranks = 2, .names = names, .n_names = 1, .fill = 'a'};
    struct save both = {.step = 21, .n_ranks = 2, .names = two, .n_names = 2, .fill = 'g'};
    struct gather g = {.step = 21, .generation = 1, .token = 1, .n_ranks = 2};
    _cleanup_(step_save) struct step_save *s = NULL;
    _index_cache_ struct index_cache cache = {0};
    struct error e;

    is_int(commit(&both, &cache, &e), 0, "both have two: %s", e.text);
    g.step = save.step;
    g.uuid = uuid_of(save.step);
    g.cache = &cache;
    step_save_begin(io_system(), root, save.step, uuid_of(save.step), &s, &e);
    both.step = save.step;
    put_rank(s, &both, 0);
    put_rank(s, &save, 1);
    is_int(gather_commit(s, &g, &e), -EINVAL, "one has one: its half of 'b' is missing");
    like(e.text, "tensor 'b'", "which is told");
    step_save_abort(s);
    ok(cache.index && cache.n == 2, "and the index from before stays");
    save.step = 22;
    is_int(commit(&save, &cache, &e), 0, "both have one: %s", e.text);
    ok(is_right(&save, "a"), "which is right");
}

/* What a save fails of is none of the next one. */
static void test_after_failure(void)
{
    struct save save = {.step = 30, .n_ranks = 2, .names = two, .n_names = 2, .fill = 'a'};
    _index_cache_ struct index_cache cache = {0};
    struct error e;

    is_int(commit(&save, &cache, &e), 0, "a save: %s", e.text);
    save.step = 31;
    save.fill = 'j';
    save.is_damaged = true;
    ok(commit(&save, &cache, &e) == -ERR_FORMAT && strstr(e.text, "r00001.part"),
       "a part that is damaged is told, also where it is known: %s", e.text);
    save.step = 32;
    save.is_damaged = false;
    is_int(commit(&save, &cache, &e), 0, "the next save: %s", e.text);
    ok(is_right(&save, "a") && is_right(&save, "b"), "is right");
    save.step = 33;
    is_int(commit(&save, NULL, &e), 0, "so is one that keeps no index: %s", e.text);
    ok(is_right(&save, "b"), "to the last byte");
}

int main(void)
{
    root = mkdtemp(root_path) ? open(root_path, O_RDONLY | O_DIRECTORY | O_CLOEXEC) : -1;
    if (root < 0) {
        bail_out("no directory %s", root_path);
    }
    test_same();
    test_other();
    test_one_other();
    test_after_failure();
    close(root);
    fs_remove_tree(root_path, NULL);
    return tap_done();
}
