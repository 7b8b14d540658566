/* SPDX-License-Identifier: Apache-2.0 */
/*
 * An agent that writes what its workers have saved, and the lead's agent that makes
 * checkpoints of it, on the real filesystem: killed at every system call, and every
 * call fails with everything that it may. The agent that comes after it finds memory
 * that is right, or none, and goes on saving; and the newest checkpoint is the last
 * that was told, or a newer one, bit by bit. Once more, at
 * half as many points, with an agent that writes what is being filled, and makes memory for
 * the next save meanwhile.
 *
 *   snap_sweep_test [STRIDE]      of all points every STRIDEth; 1: all
 */
#include <config.h>

#include "base/cleanup.h"
#include "base/fs.h"
#include "base/str.h"
#include "ckpt/part.h"
#include "ckpt/step.h"
#include "ckpt/sweep_bed.h"
#include "launcher/snap_commit.h"
#include "launcher/snap_hold.h"
#include "tests/lib/tap.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { USUAL_STRIDE = 25, BYTES = 9000, STEPS = 3, BUDGET = 1 << 20 };

/* What a step has. */
static void fill(char *to, uint64_t step)
{
    for (size_t i = 0; i < BYTES; i++) {
        to[i] = (char)(step * 131 + i * 7 + i / 256);
    }
}

static bool is_filled(const void *data, uint64_t step)
{
    char want[BYTES];

    fill(want, step);
    return memcmp(data, want, BYTES) == 0;
}

static void places(const char *path, char *shm, char *root)
{
    snprintf(shm, PATH_MAX, "%.4000s/shm", path);
    snprintf(root, PATH_MAX, "%.4000s/ck", path);
}

static void make_places(const char *path, struct sweep_told *told)
{
    char shm[PATH_MAX], root[PATH_MAX];

    places(path, shm, root);
    if (mkdir(root, 0700) < 0) {
        bail_out("no %s", root);
    }
    told->newest = 0;
}

/* --- the agent --- */

struct agent {
    uv_loop_t loop;
    struct snap_hold *hold;
    char shm[PATH_MAX], root[PATH_MAX];
    struct snap *snap; /* borrowed: what was begun, NULL for an error */
    int n_answers;     /* to what was asked for last */
    bool is_well;
    bool is_ahead;     /* what is filled is written, and memory for the next save is made,
                          meanwhile */
};

static void on_begun(void *arg, uint64_t question, const struct snap *s,
                     const struct error *e)
{
    struct agent *a = arg;

    (void)question;
    (void)e;
    a->snap = (struct snap *)s;
    a->n_answers++;
}

static void on_written(void *arg, const struct snap_head *head,
                       const struct error *e)
{
    struct agent *a = arg;

    (void)head;
    a->is_well = e->code == 0;
    a->n_answers++;
}

static void await(struct agent *a)
{
    while (a->n_answers == 0 && uv_run(&a->loop, UV_RUN_ONCE) != 0) {
    }
    a->n_answers = 0;
}

static int start(struct agent *a, const char *path)
{
    struct snap_hold_config config = {
        .loop = &a->loop, .dir = a->shm, .agent = 1, .budget = BUDGET,
        .budget_why = "all", .io = io_system(), .finish = part_finish,
        .on_begun = on_begun, .on_written = on_written, .arg = a,
    };

    places(path, a->shm, a->root);
    if (uv_loop_init(&a->loop) < 0) {
        return -ENOMEM;
    }
    return snap_hold_create(&config, &a->hold, NULL);
}

static int put_part(char *to, uint64_t step, const char *uuid, uint64_t *ret_len)
{
    const uint64_t shape = BYTES, at = 0;
    struct part_piece piece = {"t", DTYPE_U8, 1, &shape, &at, &shape, 0};
    struct part p = {.step = step, .n_ranks = 1, .file_bytes = BYTES,
                     .n_pieces = 1, .pieces = &piece};
    _buf_ struct buf b = {0};
    int rc;

    str_copy(p.uuid, sizeof(p.uuid), uuid);
    rc = part_encode(&p, &b, NULL);
    if (rc == 0) {
        memcpy(to, b.data, b.len);
        *ret_len = b.len;
    }
    return rc;
}

/* The memory of a worker gets to the disk. */
static int hold(struct agent *a, uint64_t step, const char *uuid)
{
    const struct snap_rank who = {.n_ranks = 1, .generation = 1, .token = 1};
    uint64_t part_bytes = 0;
    int rc = snap_hold_begin(a->hold, &who, step, uuid, a->root,
                             snap_room(BYTES, 4096), step, NULL);

    if (rc < 0) {
        return rc;
    }
    await(a);
    if (!a->snap) {
        return -ENOMEM;
    }
    if (a->is_ahead) {
        snap_hold_drain_ahead(a->hold, 0, uuid, BYTES, false);
    }
    fill(a->snap->map + SNAP_PAGE_BYTES, step);
    atomic_store(snap_filled(a->snap->map), 1);
    rc = put_part(a->snap->map + SNAP_PAGE_BYTES + snap_room(BYTES, 0), step,
                  uuid, &part_bytes);
    rc = rc < 0 ? rc : snap_hold_done(a->hold, 0, uuid, BYTES, part_bytes, NULL);
    if (rc == 0) {
        if (a->is_ahead) {
            snap_hold_make_ahead(a->hold, 0);
        }
        await(a);
    }
    return rc < 0 ? rc : a->is_well ? 0 : -EIO;
}

static int commit(const struct agent *a, uint64_t step, const char *uuid)
{
    const struct snap_commit c = {
        .root = a->root, .n_written = 1, .rule.keep = 2, .busy_from = UINT64_MAX,
        .gather = {.step = step, .uuid = uuid, .generation = 1, .token = 1,
                   .n_ranks = 1},
    };

    int rc = snap_commit(&c, io_system(), NULL, NULL);

    if (rc == 0) {
        snap_tidy(&c, io_system());
    }
    return rc;
}

static void save(struct agent *a, uint64_t step, unsigned run,
                 struct sweep_told *told)
{
    char uuid[COMMIT_UUID_BYTES];
    int rc;

    /* Names of directories have only its first digits. */
    snprintf(uuid, sizeof(uuid), "%08x%024x", run * 100 + (unsigned)step, 0);
    rc = hold(a, step, uuid);
    rc = rc < 0 ? rc : commit(a, step, uuid);
    if (rc == 0 && step > told->newest) {
        told->newest = step;
    }
    snap_hold_settle(a->hold, uuid, rc == 0);
}

/* What an agent before this one has left is what its worker loads. */
static void take_up(struct agent *a)
{
    const struct snap *s;

    snap_hold_serve(a->hold, 0, 1);
    s = snap_hold_find(a->hold, 0, "");
    if (s && snap_verify(s, NULL) == 0 &&
        (s->head.image_bytes != BYTES ||
         !is_filled(snap_image(s), s->head.step))) {
        abort();
    }
}

static void play_agent(const char *path, unsigned run, struct sweep_told *told,
                       bool is_ahead)
{
    struct agent a = {.is_ahead = is_ahead};

    if (start(&a, path) < 0) {
        return;
    }
    take_up(&a);
    for (uint64_t step = 1; step <= STEPS; step++) {
        save(&a, step, run, told);
    }
    snap_hold_destroy(a.hold);
}

static void play(const char *path, unsigned run, struct sweep_told *told)
{
    play_agent(path, run, told, false);
}

static void play_ahead(const char *path, unsigned run, struct sweep_told *told)
{
    play_agent(path, run, told, true);
}

/* --- what is left --- */

/* What can be found in memory and says that it is whole. */
static bool memory_is_right(const char *shm)
{
    DIR *d = opendir(shm);
    struct dirent *entry;
    bool is_right = true;

    while (d && (entry = readdir(d))) {
        _cleanup_(snap) struct snap *s = NULL;

        if (entry->d_name[0] == '.' ||
            snap_open(dirfd(d), entry->d_name, &s, NULL) < 0 ||
            s->head.state < SNAP_WRITTEN || snap_verify(s, NULL) < 0) {
            continue;
        }
        is_right = is_right && is_filled(snap_image(s), s->head.step);
    }
    if (d) {
        closedir(d);
    }
    return is_right;
}

static bool is_kept(const char *path, const struct sweep_told *told)
{
    char shm[PATH_MAX], root_path[PATH_MAX];
    _free_ char *data = NULL;
    _close_ int root = -1;
    _step_ struct step s = {0};
    size_t len = 0;
    int rc;

    places(path, shm, root_path);
    root = open(root_path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    rc = step_find_newest(io_system(), root, true, NULL, NULL, &s, NULL);
    if (rc < 0) {
        return rc == -ENOENT && told->newest == 0 && memory_is_right(shm);
    }
    return s.commit.step >= told->newest &&
           io_read_file(io_system(), s.dir, "r00000.safetensors", BYTES, &data,
                        &len) == 0 &&
           len == BYTES && is_filled(data, s.commit.step) &&
           memory_is_right(shm);
}

int main(int argc, char **argv)
{
    static const struct sweep_case cases[] = {
        {.name = "agent and relaunch", .prepare = make_places, .play = play,
         .is_kept = is_kept, .newest = STEPS, .except = ".part",
         .is_threaded = true},
        {.name = "agent that makes memory ahead", .prepare = make_places,
         .play = play_ahead, .is_kept = is_kept, .newest = STEPS,
         .except = ".part", .is_threaded = true},
    };
    unsigned stride = sweep_stride(argc, argv, USUAL_STRIDE);
    uint64_t kills = 0, n_errors = 0;
    const char *why = sweep_why_not(true);

    if (why) {
        skip("%s", why);
        return tap_done();
    }
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        sweep_run(&cases[i], i == 0 ? stride : 2 * stride - 1, &kills, &n_errors);
    }
    diag("under ptrace: %llu kills, %llu failing calls",
         (unsigned long long)kills, (unsigned long long)n_errors);
    return tap_done();
}
