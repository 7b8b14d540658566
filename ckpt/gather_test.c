/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What ranks have written becomes a checkpoint that says so of each; where something fails on
 * the way that is told, and there is none. A filesystem that fails at a call stands before
 * the kernel's, and counts what is open.
 */
#include <config.h>

#include "ckpt/gather.h"

#include "base/cleanup.h"
#include "base/fs.h"
#include "base/str.h"
#include "ckpt/load.h"
#include "ckpt/part.h"
#include "ckpt/step_priv.h"
#include "tests/lib/tap.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { N = 2, BYTES = 8 /* of each rank */ };

static char root_path[] = "/tmp/gather_test.XXXXXX";
static int root = -1;

/* --- a filesystem --- */

enum call { NO_CALL, OPEN, SIZE, READ, UNLINK, LIST, CREATE };

static struct odd {
    struct io io;
    struct io_ops ops;
    enum call call; /* that fails, of that file, or of its descriptor */
    const char *name;
    int rc;
    int fd;
    int n_open;
    bool had_new; /* when a COMMIT was looked for last there was one on its way */
} odd;

static bool fails(enum call call, const char *name)
{
    return odd.call == call && strcmp(odd.name, name) == 0;
}

static int opened(int fd)
{
    odd.n_open += fd >= 0;
    return fd;
}

static int open_dir_odd(struct io *io, int dir, const char *name)
{
    (void)io;
    return opened(io_system()->ops->open_dir(io_system(), dir, name));
}

static int open_file_odd(struct io *io, int dir, const char *name)
{
    int fd;

    (void)io;
    if (strcmp(name, STEP_COMMIT) == 0) {
        odd.had_new = faccessat(dir, STEP_COMMIT_NEW, F_OK, 0) == 0;
    }
    if (fails(OPEN, name)) {
        return odd.rc;
    }
    fd = opened(io_system()->ops->open_file(io_system(), dir, name));
    if (odd.name && strcmp(odd.name, name) == 0) {
        odd.fd = fd;
    }
    return fd;
}

static int create_odd(struct io *io, int dir, const char *name)
{
    (void)io;
    return fails(CREATE, name) ? odd.rc
                               : opened(io_system()->ops->create(io_system(), dir, name));
}

static int close_odd(struct io *io, int fd)
{
    (void)io;
    odd.n_open--;
    odd.fd = fd == odd.fd ? -1 : odd.fd;
    return io_system()->ops->close(io_system(), fd);
}

static int size_odd(struct io *io, int fd, uint64_t *ret)
{
    (void)io;
    return odd.call == SIZE && fd == odd.fd ? odd.rc
                                            : io_system()->ops->size(io_system(), fd, ret);
}

static ssize_t read_odd(struct io *io, int fd, void *to, size_t len, uint64_t at)
{
    (void)io;
    return odd.call == READ && fd == odd.fd
               ? odd.rc : io_system()->ops->read(io_system(), fd, to, len, at);
}

static int unlink_odd(struct io *io, int dir, const char *name)
{
    (void)io;
    return fails(UNLINK, name) ? odd.rc : io_system()->ops->unlink(io_system(), dir, name);
}

static int list_odd(struct io *io, int dir, int (*each)(void *arg, const char *name), void *arg)
{
    (void)io;
    return odd.call == LIST ? odd.rc : io_system()->ops->list(io_system(), dir, each, arg);
}

static struct io *with(enum call call, const char *name, int rc)
{
    odd = (struct odd){.ops = *io_system()->ops, .call = call, .name = name, .rc = rc, .fd = -1};
    odd.ops.open_dir = open_dir_odd;
    odd.ops.open_file = open_file_odd;
    odd.ops.create = create_odd;
    odd.ops.close = close_odd;
    odd.ops.size = size_odd;
    odd.ops.read = read_odd;
    odd.ops.unlink = unlink_odd;
    odd.ops.list = list_odd;
    odd.io.ops = &odd.ops;
    return &odd.io;
}

/* --- what ranks have written --- */

static unsigned nth; /* save of a step, below 16 */

static const char *uuid_of(uint64_t step)
{
    static char uuid[COMMIT_UUID_BYTES];

    snprintf(uuid, sizeof(uuid), "%07x%x%024x", (unsigned)step & 0xfffffff, nth & 0xf, 0);
    return uuid;
}

static void put(struct step_save *s, const struct part *p, const char *data)
{
    char name[PART_NAME_BYTES];
    _buf_ struct buf b = {0};
    struct error e = {0};
    int rc = part_encode(p, &b, &e);

    part_data_name(p->rank, name);
    rc = rc < 0 ? rc : step_save_file(s, name, data, p->file_bytes, &e);
    part_file_name(p->rank, name);
    rc = rc < 0 ? rc : step_save_note(s, name, b.data, b.len, &e);
    if (rc < 0) {
        bail_out("%s", e.text);
    }
}

/* Rank 0 has "aaaaaaaa" of a tensor, rank 1 what is behind that, "bbbbbbbb". As `like` says:
 * nodes, blobs, state, and of how many ranks. */
static void put_rank(struct step_save *s, uint64_t step, uint32_t rank, const struct part *like)
{
    const uint64_t shape = N * BYTES, at = rank * BYTES, len = BYTES;
    struct part_piece piece = {"t", DTYPE_U8, 1, &shape, &at, &len, 0};
    struct part p = *like;
    char data[BYTES];
    uint64_t block;

    memset(data, 'a' + (int)rank, sizeof(data));
    block = digest_short_of(data, sizeof(data));
    p.step = step;
    str_copy(p.uuid, sizeof(p.uuid), uuid_of(step));
    p.rank = rank;
    p.file_bytes = BYTES;
    p.n_pieces = 1;
    p.pieces = &piece;
    p.n_blocks = 1;
    p.blocks = &block;
    put(s, &p, data);
}

static struct step_save *begin(uint64_t step)
{
    struct step_save *s = NULL;
    struct error e = {0};

    if (step_save_begin(io_system(), root, step, uuid_of(step), &s, &e) < 0) {
        bail_out("%s", e.text);
    }
    return s;
}

static void write_ranks(uint64_t step)
{
    const struct part like = {.n_ranks = N};
    struct step_save *s = begin(step);

    put_rank(s, step, 0, &like);
    put_rank(s, step, 1, &like);
    step_save_destroy(s);
}

/* As a lead does it, on the node of no rank. */
static int commit(struct io *io, uint64_t step, uint64_t token, uint32_t n_ranks,
                  struct error *e)
{
    struct gather g = {.step = step, .uuid = uuid_of(step), .generation = 3, .token = token,
                       .n_ranks = n_ranks};
    struct step_save *s = NULL;
    char name[STEP_NAME_BYTES];
    int rc;

    step_name(step, uuid_of(step), name);
    *e = (struct error){0};
    rc = step_save_join(io, root, name, &s, e);
    rc = rc < 0 ? rc : gather_commit(s, &g, e);
    step_save_destroy(s);
    return rc;
}

static bool has(uint64_t step, const char *file)
{
    char name[STEP_NAME_BYTES], path[128];

    step_name(step, uuid_of(step), name);
    snprintf(path, sizeof(path), "%s/%s", name, file);
    return faccessat(root, path, F_OK, 0) == 0;
}

static void leave(uint64_t step, const char *file)
{
    char name[STEP_NAME_BYTES], path[128];
    _close_ int fd = -1;

    step_name(step, uuid_of(step), name);
    snprintf(path, sizeof(path), "%s/%s", name, file);
    fd = openat(root, path, O_CREAT | O_WRONLY | O_CLOEXEC, 0600);
    if (fd < 0 || write(fd, "x", 1) != 1) {
        bail_out("no %s", path);
    }
}

static void drop(uint64_t step)
{
    char name[STEP_NAME_BYTES];

    step_name(step, uuid_of(step), name);
    step_remove(io_system(), root, name, NULL);
}

static void open_step(uint64_t step, struct step *ret)
{
    char name[STEP_NAME_BYTES];
    struct error e = {0};

    step_name(step, uuid_of(step), name);
    if (step_open(io_system(), root, name, ret, &e) < 0) {
        bail_out("no checkpoint: %s", e.text);
    }
}

/* --- what becomes of it --- */

/* What each rank says, and what is said of all of them. */
static void test_manifest(void)
{
    struct part_blob of_all = {(char *)"config", false}, of_each = {(char *)"random", true};
    struct part_blob first[] = {of_each, of_all};
    const struct part one = {.n_ranks = N, .node = 4, .n_blobs = 2, .blobs = first,
                             .state = (char *)"{\"loss\": 1}"};
    const struct part other = {.n_ranks = N, .node = 1};
    struct step_save *s = begin(10);
    _step_ struct step found = {0};
    const struct manifest *m = &found.manifest;
    struct error e = {0};

    put_rank(s, 10, 0, &one);
    put_rank(s, 10, 1, &other);
    step_save_destroy(s);
    is_int(commit(with(NO_CALL, NULL, 0), 10, 7, N, &e), 0, "a checkpoint of two: %s", e.text);
    is_int(odd.n_open, 0, "nothing stays open");
    open_step(10, &found);
    ok(m->n_ranks == N && m->n_nodes == 5, "of two ranks, on one of five nodes each");
    ok(m->generation == 3 && m->token == 7, "by whom it was saved");
    ok(m->wall_ns > UINT64_C(1600000000) * 1000000000 && m->version[0],
       "and when, and with what");
    ok(m->n_blobs == 2 && m->blobs[0].is_per_rank && m->blobs[0].n == N &&
           !m->blobs[1].is_per_rank && m->blobs[1].n == 1,
       "a blob of each rank, and one of all");
    like(m->state ? m->state : "", "loss", "and what the first rank says of it");
}

/* Each rank's bytes are in its own file, under its own digest. */
static void test_bytes(void)
{
    const uint64_t shape = N * BYTES, at = 0;
    char data[N * BYTES + 1] = "";
    struct load_want want = {.name = "t", .dtype = DTYPE_U8, .n_dims = 1, .shape = &shape,
                             .at = &at, .len = &shape, .data = data};
    _step_ struct step found = {0};
    _load_ struct load l = {0};
    struct error e = {0};

    open_step(10, &found);
    is_int(step_verify(&found, &e), 0, "is what it says: %s", e.text);
    is_int(load_open(&found, &l, &e), 0, "it is opened: %s", e.text);
    is_int(load_boxes(&l, NULL, &want, 1, 1, &e), 0, "and read: %s", e.text);
    is_str(data, "aaaaaaaabbbbbbbb", "what each of both had");
}

/* Whether all of a file that is longer than a block goes to the disk in blocks that it takes
 * past the page cache. */
static int n_long, n_even;

static int write_blocks_seen(struct io *io, int fd, const struct io_blocks *b)
{
    struct io plain = {.ops = io->ops};

    if (b->len > DIGEST_BLOCK_BYTES) {
        n_long++;
        n_even += (uintptr_t)b->data % 4096 == 0 && b->block_bytes == DIGEST_BLOCK_BYTES;
    }
    return io_write_blocks(&plain, fd, b);
}

/* Of more than one block. */
static void test_long_index(void)
{
    enum { MANY = 80, NAME_BYTES = 60000 };
    static char names[MANY][NAME_BYTES];
    const uint64_t one = 1, at = 0;
    struct part_piece pieces[MANY];
    struct part p = {.step = 11, .n_ranks = 1, .file_bytes = MANY, .n_pieces = MANY,
                     .pieces = pieces, .n_blocks = 1};
    struct step_save *s = begin(11);
    struct io *io = with(NO_CALL, NULL, 0);
    char data[MANY] = "";
    uint64_t block = digest_short_of(data, sizeof(data));
    _step_ struct step found = {0};
    struct error e = {0};

    for (size_t i = 0; i < MANY; i++) {
        memset(names[i], 'n', NAME_BYTES - 1);
        names[i][0] = (char)('0' + i / 10);
        names[i][1] = (char)('0' + i % 10);
        pieces[i] = (struct part_piece){names[i], DTYPE_U8, 1, &one, &at, &one, i};
    }
    str_copy(p.uuid, sizeof(p.uuid), uuid_of(11));
    p.blocks = &block;
    put(s, &p, data);
    step_save_destroy(s);
    io->write_blocks = write_blocks_seen;
    is_int(commit(io, 11, 1, 1, &e), 0, "one with long names: %s", e.text);
    ok(n_long == 1 && n_even == 1, "whose index needs no page cache");
    open_step(11, &found);
    ok(found.manifest.files[found.manifest.index].bytes > DIGEST_BLOCK_BYTES &&
           step_verify(&found, &e) == 0,
       "whose index is right in all its blocks: %s", e.text);
    drop(11);
}

/* --- tokens --- */

static uint64_t token_of(uint64_t step, uint64_t least)
{
    _step_ struct step found = {0};
    struct error e;

    write_ranks(step);
    if (commit(io_system(), step, least, N, &e) < 0) {
        bail_out("no checkpoint: %s", e.text);
    }
    open_step(step, &found);
    return found.manifest.token;
}

/* Of the second save of a step. */
static uint64_t above(uint64_t there, uint64_t least)
{
    uint64_t token;

    token_of(1, there);
    nth = 1;
    token = token_of(1, least);
    drop(1);
    nth = 0;
    drop(1);
    return token;
}

static void test_tokens(void)
{
    const uint64_t generation = UINT64_C(1) << 32;

    ok(above(0, 0) == 1, "two saves of a step differ, also from the lowest token");
    ok(above(5, 9) == 9, "who has more than those that are there stays with it");
    ok(above(3 * generation, 0) == 3 * generation + 1,
       "without a generation it is one more than theirs");
    ok(above(2 * generation + 5, 2 * generation) == 2 * generation + 6,
       "so it is within a generation");
    ok(above(5 * generation, 2 * generation) == 7 * generation,
       "above that of another run it is counted from there");
    ok(above(INT32_MAX * generation, 2 * generation) == INT32_MAX * generation + 1,
       "but never too high");
    token_of(2, 9 * generation);
    ok(token_of(3, 4) == 4, "those of other steps say nothing");
    drop(2);
    drop(3);
}

/* --- what fails --- */

/* Parts that cannot be read may be there, and right. */
static void test_unreadable(void)
{
    static const struct {
        enum call call;
        const char *name;
        int rc;
        const char *what;
    } cases[] = {
        {OPEN, "r00001.part", -EACCES, "read r00001.part"},
        {READ, "r00001.part", -EIO, "read r00001.part"},
        {OPEN, "r00001.safetensors", -EACCES, "look at r00001.safetensors"},
        {SIZE, "r00001.safetensors", -EIO, "look at r00001.safetensors"},
        {LIST, "", -EIO, ""},
        {OPEN, STEP_COMMIT, -EMFILE, "look for step-000000000020-00000140/COMMIT"},
        {UNLINK, STEP_COMMIT_NEW, -EROFS, "remove step-000000000020-00000140/.COMMIT.new"},
        {UNLINK, STEP_MANIFEST, -EROFS, "remove step-000000000020-00000140/manifest.json"},
        {UNLINK, STEP_INDEX, -EROFS, "remove step-000000000020-00000140/tensors.index"},
        {CREATE, STEP_INDEX, -ENOSPC, "make step-000000000020-00000140/tensors.index"},
    };
    struct error e;

    write_ranks(20);
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        is_int(commit(with(cases[i].call, cases[i].name, cases[i].rc), 20, 1, N, &e),
               cases[i].rc, "%s: %s", cases[i].what, e.text);
        like(e.text, cases[i].what, "is told");
        is_int(odd.n_open, 0, "nothing stays open");
        ok(!has(20, STEP_COMMIT) && has(20, "r00001.part"),
           "it is no checkpoint, and may become one");
    }
    is_int(commit(io_system(), 20, 1, N, &e), 0, "in the end it does: %s", e.text);
    drop(20);
}

static void test_refused(void)
{
    const struct part three = {.n_ranks = N + 1}, two = {.n_ranks = N};
    struct step_save *s = begin(21);
    struct error e;

    is_int(commit(io_system(), 21, 1, 0, &e), -EINVAL, "one of no ranks");
    put_rank(s, 21, 0, &two);
    put_rank(s, 21, 1, &three);
    step_save_destroy(s);
    is_int(commit(io_system(), 21, 1, N, &e), -ERR_FORMAT, "a part of a save of more ranks");
    like(e.text, "r00001.part: the part of rank 1 of 2 is that of rank 1 of 3", "is told");
    ok(!has(21, STEP_COMMIT), "neither is a checkpoint");
    drop(21);
}

/* Of one save something that belongs to another one, or is not what it says. */
static void test_mixed(void)
{
    const struct part two = {.n_ranks = N};
    enum odd_part { STEP, SAVE, RANK, FEWER, MORE, N_PARTS };
    static const char *const want[N_PARTS] = {
        "is that of rank 1 of 2 of another save, of step 23",
        "is that of rank 1 of 2 of another save, of step 22",
        "is that of rank 0 of 2 of another save",
        "r00001.part: the part of rank 1 has 0 digests, and a file of 8 bytes needs 1",
        "r00001.part: the part of rank 1 has 2 digests, and a file of 8 bytes needs 1",
    };
    char name[STEP_NAME_BYTES], path[128];

    step_name(22, uuid_of(22), name);
    snprintf(path, sizeof(path), "%s/r00001.part", name);
    for (int k = 0; k < N_PARTS; k++) {
        const uint64_t blocks[2] = {0};
        struct step_save *s = begin(22);
        struct part p = {.step = 22 + (k == STEP), .n_ranks = N, .rank = k != RANK,
                         .file_bytes = BYTES, .n_blocks = k == FEWER ? 0 : k == MORE ? 2 : 1,
                         .blocks = (uint64_t *)blocks};
        _buf_ struct buf b = {0};
        struct error e;

        put_rank(s, 22, 0, &two);
        put_rank(s, 22, 1, &two);
        str_copy(p.uuid, sizeof(p.uuid), uuid_of(22));
        p.uuid[31] = k == SAVE ? 'f' : p.uuid[31];
        if (part_encode(&p, &b, &e) < 0 || step_save_drop(s, "r00001.part", NULL) < 0 ||
            step_save_note(s, "r00001.part", b.data, b.len, NULL) < 0) {
            bail_out("no %s: %s", path, e.text);
        }
        step_save_destroy(s);
        is_int(commit(io_system(), 22, 1, N, &e), -ERR_FORMAT, "%s", want[k]);
        like(e.text, want[k], "is told");
        ok(!has(22, STEP_COMMIT), "and is no checkpoint");
        drop(22);
    }
}

/* A part says how long its rank's file is. */
static void test_lengths(void)
{
    static const struct {
        int by;
        const char *want;
    } cases[] = {
        {-1, "r00001.safetensors has 7 bytes: expected 8"},
        {1, "r00001.safetensors has 9 bytes: expected 8"},
        {-BYTES, "r00001.safetensors has 0 bytes: expected 8"},
    };
    char name[STEP_NAME_BYTES], path[128];
    struct error e;

    step_name(23, uuid_of(23), name);
    snprintf(path, sizeof(path), "%s/%s/r00001.safetensors", root_path, name);
    write_ranks(23);
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        if (truncate(path, BYTES + cases[i].by) < 0) {
            bail_out("no %s", path);
        }
        is_int(commit(io_system(), 23, 1, N, &e), -ENODATA, "%s", cases[i].want);
        like(e.text, cases[i].want, "is told");
    }
    unlink(path);
    is_int(commit(io_system(), 23, 1, N, &e), -ENODATA, "a file that is not there");
    like(e.text, "r00001.safetensors has 0 bytes: expected 8", "is told");
    ok(!has(23, STEP_COMMIT), "none of these is a checkpoint");
    drop(23);
}

/* What one has left who was killed, and who was only stopped. */
static void test_again(void)
{
    struct error e;

    write_ranks(30);
    leave(30, STEP_COMMIT_NEW);
    leave(30, STEP_MANIFEST);
    leave(30, STEP_INDEX);
    is_int(commit(with(NO_CALL, NULL, 0), 30, 1, N, &e), 0, "it is made anew: %s", e.text);
    ok(!odd.had_new, "no late call makes it one once it was looked at");
    leave(30, STEP_COMMIT_NEW);
    is_int(commit(with(NO_CALL, NULL, 0), 30, 1, N, &e), -EEXIST, "one that is a checkpoint");
    ok(has(30, STEP_MANIFEST) && has(30, STEP_INDEX), "keeps all that it has");
    ok(!odd.had_new && odd.n_open == 0, "the same of what is on its way");
}

/* --- tidying up --- */

static void tidy(struct io *io, uint64_t step)
{
    struct step_save *s = NULL;
    char name[STEP_NAME_BYTES];

    step_name(step, uuid_of(step), name);
    if (step_save_join(io, root, name, &s, NULL) < 0) {
        bail_out("no %s", name);
    }
    gather_tidy(s, N);
    step_save_destroy(s);
}

static void test_tidy(void)
{
    tidy(with(OPEN, STEP_COMMIT, -EIO), 30);
    ok(has(30, "r00000.part") && has(30, "r00001.part"),
       "parts of what may be no checkpoint stay");
    tidy(with(NO_CALL, NULL, 0), 30);
    ok(!has(30, "r00000.part") && !has(30, "r00001.part"), "of one that is all of them go");
    ok(has(30, "r00001.safetensors") && odd.n_open == 0, "and nothing else");
    drop(30);
    write_ranks(31);
    tidy(io_system(), 31);
    ok(has(31, "r00000.part") && has(31, "r00001.part"), "without a COMMIT they stay");
    drop(31);
}

/* --- at once --- */

static struct {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    unsigned n_now, n_most; /* in the middle of opening a part */
    unsigned n_wanted;      /* that wait for each other */
} meeting = {.lock = PTHREAD_MUTEX_INITIALIZER, .changed = PTHREAD_COND_INITIALIZER};

/* Who opens a part waits until so many do; not for ever, for it may be alone. */
static int open_file_met(struct io *io, int dir, const char *name)
{
    struct timespec until;

    (void)io;
    if (str_ends(name, ".part")) {
        clock_gettime(CLOCK_REALTIME, &until);
        until.tv_sec += 30;
        pthread_mutex_lock(&meeting.lock);
        meeting.n_now++;
        meeting.n_most = meeting.n_now > meeting.n_most ? meeting.n_now : meeting.n_most;
        pthread_cond_broadcast(&meeting.changed);
        while (meeting.n_most < meeting.n_wanted &&
               pthread_cond_timedwait(&meeting.changed, &meeting.lock, &until) == 0) {
        }
        meeting.n_now--;
        pthread_mutex_unlock(&meeting.lock);
    }
    return io_system()->ops->open_file(io_system(), dir, name);
}

static int commit_met(uint64_t step, bool is_shared, unsigned n_wanted, struct error *e)
{
    struct io_ops ops = *io_system()->ops;
    struct io io = {.ops = &ops, .is_shared = is_shared};

    ops.open_file = open_file_met;
    meeting.n_most = 0;
    meeting.n_wanted = n_wanted;
    write_ranks(step);
    return commit(&io, step, 7, N, e);
}

/* A filesystem over a network takes long to answer, and answers many as fast as one. */
static void test_at_once(void)
{
    struct error e = {0};
    char name[STEP_NAME_BYTES], path[128];

    is_int(commit_met(40, true, N, &e), 0, "a checkpoint of two: %s", e.text);
    is_int((int)meeting.n_most, N, "whose parts are read at the same time");
    is_int(commit_met(41, false, 1, &e), 0, "where that may not be: %s", e.text);
    is_int((int)meeting.n_most, 1, "they are read one after the other");
    write_ranks(42);
    step_name(42, uuid_of(42), name);
    snprintf(path, sizeof(path), "%s/r00001.part", name);
    unlinkat(root, path, 0);
    is_int(commit(io_system(), 42, 7, N, &e), -ENODATA, "one that lacks a part is none");
    like(e.text, "r00001.part is not there", "and which is told");
    for (uint64_t step = 40; step <= 42; step++) {
        drop(step);
    }
}

int main(void)
{
    root = mkdtemp(root_path) ? open(root_path, O_RDONLY | O_DIRECTORY | O_CLOEXEC) : -1;
    if (root < 0) {
        bail_out("no directory %s", root_path);
    }
    test_manifest();
    test_bytes();
    test_long_index();
    test_tokens();
    test_unreadable();
    test_refused();
    test_mixed();
    test_lengths();
    test_again();
    test_tidy();
    test_at_once();
    close(root);
    fs_remove_tree(root_path, NULL);
    return tap_done();
}
