/* SPDX-License-Identifier: Apache-2.0 */
/* The C API of checkpoints: alone, and by ranks that are threads. */
#include <config.h>

#include "muster.h"

#include "base/cleanup.h"
#include "base/fs.h"
#include "ckpt/io.h"
#include "ckpt/step.h"
#include "ckpt/model_bed.h"
#include "ckpt/team.h"
#include "tests/lib/tap.h"

#include <errno.h>
#include <fcntl.h>
#include <glob.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static char root[4096];

static struct muster_ckpt *open_in(const char *name,
                                   const struct muster_ckpt_group *group,
                                   const struct muster_ckpt_options *options)
{
    struct muster_ckpt *ck = NULL;
    char path[5000];

    snprintf(path, sizeof(path), "dir:%s/%s", root, name);
    if (muster_ckpt_open(NULL, group, path, options, &ck) < 0) {
        bail_out("open %s: %s", path, muster_ckpt_error_text(ck));
    }
    return ck;
}

static void test_alone(void)
{
    struct muster_ckpt *ck = open_in("alone", NULL, NULL);
    float w[6] = {1, 2, 3, 4, 5, 6}, column[2];
    const uint64_t shape[2] = {2, 3}, at[2] = {0, 1}, len[2] = {2, 1};
    struct muster_ckpt_tensor t = {.name = "w", .dtype = MUSTER_F32,
                                   .n_dims = 2, .shape = shape, .data = w};
    char json[] = "{\"lr\": 0.5}", rng[] = "abcd", text[100] = "";
    uint64_t save = 0;
    int64_t step = -1;
    size_t n = 0;

    is_int(muster_ckpt_load(ck, MUSTER_CKPT_LATEST, 0, &step), -ENOENT,
           "nothing to load");
    is_int(muster_ckpt_tensor(ck, &t), 0, "a tensor");
    is_int(muster_ckpt_blob(ck, "config", json, strlen(json), MUSTER_JSON), 0,
           "JSON");
    is_int(muster_ckpt_blob(ck, "rng", rng, 4, MUSTER_PER_RANK), 0, "a blob");
    is_int(muster_ckpt_save(ck, 10, 0, &save), 0, "a save: %s",
           muster_ckpt_error_text(ck));
    is_int(muster_ckpt_test(ck, save, MUSTER_CKPT_DURABLE), 1, "durable");
    is_int(muster_ckpt_wait(ck, 0, MUSTER_CKPT_SNAPSHOT, 0), 0, "as the newest");
    is_int(muster_ckpt_test(ck, save, MUSTER_CKPT_REMOTE), -ENOTSUP, "no store");
    is_int(muster_ckpt_test(ck, save + 1, MUSTER_CKPT_DURABLE), -EINVAL,
           "none such");
    memset(w, 0, sizeof(w));
    memset(rng, 0, 4);
    is_int(muster_ckpt_load(ck, MUSTER_CKPT_LATEST, 0, &step), 0, "loaded: %s",
           muster_ckpt_error_text(ck));
    is_int(step, 10, "its step");
    ok(w[0] == 1 && w[5] == 6 && memcmp(rng, "abcd", 4) == 0, "its bytes");
    t = (struct muster_ckpt_tensor){.name = "w", .dtype = MUSTER_F32,
                                    .n_dims = 2, .shape = shape, .at = at,
                                    .len = len, .data = column};
    is_int(muster_ckpt_read(ck, 10, &t), 0, "a column");
    ok(column[0] == 2 && column[1] == 5, "its elements");
    is_int(muster_ckpt_read_blob(ck, 10, "config", text, sizeof(text), &n), 0,
           "JSON comes back");
    is_str(text, "{\"lr\":0.5}", "as JSON");
    is_int(muster_ckpt_read_blob(ck, 10, "rng", NULL, 0, &n), 0, "how long");
    is_int((int)n, 4, "that long");
    is_int(muster_ckpt_read_blob(ck, 10, "none", NULL, 0, &n), -ENODATA,
           "no such blob");
    like(muster_ckpt_error_text(ck), "blob 'none' is not in it", "named");
    muster_ckpt_close(ck);
}

static void test_newest(void)
{
    struct muster_ckpt_options o = {.size = sizeof(o), .keep = 2,
                                    .every_steps = 5};
    struct muster_ckpt *ck = open_in("newest", NULL, &o);
    int32_t v = 0;
    struct muster_ckpt_tensor t = {.name = "v", .dtype = MUSTER_I32,
                                   .data = &v};
    int64_t step = -1;

    is_int(muster_ckpt_tensor(ck, &t), 0, "a number");
    for (v = 1; v <= 4; v++) {
        is_int(muster_ckpt_save(ck, v * 10, MUSTER_CKPT_WAIT, NULL), 0,
               "step %d", v * 10);
    }
    v = 50;
    is_int(muster_ckpt_save(ck, 40, 0, NULL), 0, "one of the same step");
    is_int(muster_ckpt_latest(ck, MUSTER_CKPT_LATEST, &step), 0, "the newest");
    is_int(step, 40, "its step");
    is_int(muster_ckpt_load(ck, 40, 0, NULL), 0, "loaded");
    is_int(v, 50, "the later one of that step");
    is_int(muster_ckpt_latest(ck, 30, &step), -ENOENT, "only two are kept");
    is_int(muster_ckpt_load(ck, 10, 0, NULL), -ENOENT, "one that is gone");
    like(muster_ckpt_error_text(ck), "no checkpoint", "said");
    v = 7;
    is_int(muster_ckpt_save(ck, 5, 0, NULL), 0, "an older step");
    is_int(muster_ckpt_load(ck, 5, 0, &step), 0, "it is not removed itself");
    is_int(muster_ckpt_due(ck, 10), MUSTER_CKPT_BY_STEPS, "due by steps");
    is_int(muster_ckpt_due(ck, 11), 0, "not due");
    is_int(muster_ckpt_should_stop(ck, NULL), 0, "goes on");
    muster_ckpt_close(ck);
}

/* The path of the newest that is there, and a newline. */
static void newest_line(const char *name, char *to, size_t size)
{
    _free_ struct step_entry *entries = NULL;
    char path[5000];
    _close_ int dir = -1;
    size_t n = 0;

    snprintf(path, sizeof(path), "%s/%s", root, name);
    dir = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (step_list(io_system(), dir, &entries, &n, NULL) < 0 || n == 0) {
        bail_out("nothing in %s", path);
    }
    snprintf(to, size, "%s/%s\n", path, entries[0].name);
}

/* From some of them nobody is to start for now. */
static void test_avoided(void)
{
    struct muster_ckpt_options o = {.size = sizeof(o), .keep = 1};
    struct muster_ckpt *ck = open_in("avoided", NULL, NULL);
    int32_t v = 0;
    struct muster_ckpt_tensor t = {.name = "v", .dtype = MUSTER_I32,
                                   .data = &v};
    char lines[3][16384], both[32768];
    int64_t step = -1;

    is_int(muster_ckpt_tensor(ck, &t), 0, "a number");
    for (v = 1; v <= 3; v++) {
        is_int(muster_ckpt_save(ck, v * 10, MUSTER_CKPT_WAIT, NULL), 0,
               "step %d", v * 10);
        newest_line("avoided", lines[v - 1], sizeof(lines[0]));
    }
    muster_ckpt_close(ck);
    setenv("MUSTER_AVOID_PATHS", lines[2], 1);
    ck = open_in("avoided", NULL, &o);
    is_int(muster_ckpt_tensor(ck, &t), 0, "again");
    is_int(muster_ckpt_latest(ck, MUSTER_CKPT_LATEST, &step), 0, "the newest");
    is_int(step, 20, "of the others");
    is_int(muster_ckpt_load(ck, MUSTER_CKPT_LATEST, 0, &step), 0,
           "nothing is passed over for it");
    ok(step == 20 && v == 2, "it is loaded");
    is_int(muster_ckpt_load(ck, 30, 0, NULL), 0, "who asks for that one has it");
    is_int(v, 3, "loaded");
    v = 4;
    is_int(muster_ckpt_save(ck, 25, MUSTER_CKPT_WAIT, NULL), 0, "one is saved");
    is_int(muster_ckpt_load(ck, 30, 0, NULL), 0, "it is not removed");
    is_int(muster_ckpt_load(ck, 20, 0, NULL), -ENOENT, "but what is not kept is");
    is_int(muster_ckpt_load(ck, MUSTER_CKPT_LATEST, 0, &step), 0, "and the newest");
    is_int(step, 25, "is that");
    muster_ckpt_close(ck);
    snprintf(both, sizeof(both), "%s%s", lines[2], lines[1]);
    setenv("MUSTER_AVOID_PATHS", both, 1);
    ck = open_in("avoided", NULL, &o);
    is_int(muster_ckpt_tensor(ck, &t), 0, "once more");
    v = 5;
    is_int(muster_ckpt_load(ck, MUSTER_CKPT_LATEST, 0, &step), 0, "there is one");
    is_int(step, 25, "that");
    is_int(muster_ckpt_latest(ck, 25, &step), -ENOENT, "below it there is none");
    is_int(muster_ckpt_latest(ck, 31, &step), 0, "however many are avoided");
    is_int(step, 25, "as far as there is another");
    muster_ckpt_close(ck);
    unsetenv("MUSTER_AVOID_PATHS");
}

/* There is no other one. */
static void test_avoided_all(void)
{
    struct muster_ckpt *ck = open_in("avoided-all", NULL, NULL);
    int32_t v = 1;
    struct muster_ckpt_tensor t = {.name = "v", .dtype = MUSTER_I32,
                                   .data = &v};
    char line[16384];
    int64_t step = -1;

    is_int(muster_ckpt_tensor(ck, &t), 0, "a number");
    is_int(muster_ckpt_save(ck, 10, MUSTER_CKPT_WAIT, NULL), 0, "saved");
    newest_line("avoided-all", line, sizeof(line));
    muster_ckpt_close(ck);
    setenv("MUSTER_AVOID_PATHS", line, 1);
    ck = open_in("avoided-all", NULL, NULL);
    is_int(muster_ckpt_tensor(ck, &t), 0, "again");
    is_int(muster_ckpt_load(ck, MUSTER_CKPT_LATEST, 0, &step), 0,
           "it is better than none");
    is_int(step, 10, "its step");
    is_int(muster_ckpt_latest(ck, MUSTER_CKPT_LATEST, &step), 0, "likewise");
    is_int(muster_ckpt_latest(ck, 10, &step), -ENOENT, "below it there is none");
    muster_ckpt_close(ck);
    unsetenv("MUSTER_AVOID_PATHS");
}

static void test_refused(void)
{
    struct muster_ckpt_options wrong = {.size = 3};
    struct muster_ckpt *ck = NULL, *none = NULL;
    float w[4] = {0};
    const uint64_t shape[1] = {4}, at[1] = {3}, len[1] = {2};
    struct muster_ckpt_tensor good = {.name = "w", .dtype = MUSTER_F32,
                                      .n_dims = 1, .shape = shape, .data = w};
    struct muster_ckpt_tensor t;
    char bad[] = "{";

    is_int(muster_ckpt_open(NULL, NULL, "dir:/nonexistent/a/b", NULL, &none),
           -ENOENT, "no such place");
    like(muster_ckpt_error_text(none), "make /nonexistent/a/b", "named");
    is_int(muster_ckpt_save(none, 1, 0, NULL), -EINVAL, "good for nothing");
    muster_ckpt_close(none);
    unsetenv("MUSTER_CHECKPOINT_DIR");
    is_int(muster_ckpt_open(NULL, NULL, NULL, NULL, &none), -EINVAL, "no place");
    like(muster_ckpt_error_text(none), "MUSTER_CHECKPOINT_DIR, which names it", "a "
         "variable would say it");
    muster_ckpt_close(none);
    setenv("MUSTER_CHECKPOINT_DIR", "", 1);
    is_int(muster_ckpt_open(NULL, NULL, NULL, NULL, &none), -EINVAL, "an empty one");
    unsetenv("MUSTER_CHECKPOINT_DIR");
    muster_ckpt_close(none);
    is_int(muster_ckpt_open(NULL, NULL, "s4://x", NULL, &none), -ENOTSUP,
           "an unknown kind of place");
    muster_ckpt_close(none);
    is_int(muster_ckpt_open(NULL, NULL, "/tmp", &wrong, &none), -EINVAL,
           "options of another size");
    muster_ckpt_close(none);
    ck = open_in("refused", NULL, NULL);
    is_int(muster_ckpt_save(ck, 1, 0, NULL), -EINVAL, "nothing registered");
    t = good;
    t.name = ".hidden";
    is_int(muster_ckpt_tensor(ck, &t), -EINVAL, "a name of ours");
    t = good;
    t.dtype = (enum muster_dtype)77;
    is_int(muster_ckpt_tensor(ck, &t), -EINVAL, "no type");
    t = good;
    t.at = at;
    t.len = len;
    is_int(muster_ckpt_tensor(ck, &t), -EINVAL, "a box outside");
    like(muster_ckpt_error_text(ck), "tensor 'w': its box", "said");
    t = good;
    t.data = NULL;
    is_int(muster_ckpt_tensor(ck, &t), -EINVAL, "no data");
    t = good;
    t.is_flat = 1;
    t.flat_end = 5;
    is_int(muster_ckpt_tensor(ck, &t), -EINVAL, "a range outside");
    t.flat_end = 3;
    is_int(muster_ckpt_tensor(ck, &t), 0, "a part of it");
    is_int(muster_ckpt_save(ck, 1, 0, NULL), -EINVAL, "a hole");
    like(muster_ckpt_error_text(ck), "tensor 'w': no rank has [3:4]", "where");
    is_int(muster_ckpt_tensor(ck, &good), 0, "all of it, too");
    is_int(muster_ckpt_save(ck, 1, 0, NULL), -EINVAL, "an overlap");
    like(muster_ckpt_error_text(ck), "overlap", "said");
    is_int(muster_ckpt_blob(ck, "j", bad, 1, MUSTER_JSON), 0, "bad JSON");
    is_int(muster_ckpt_save(ck, 1, 0, NULL), -EINVAL, "is found when saved");
    is_int(muster_ckpt_clear(ck), 0, "all is forgotten");
    is_int(muster_ckpt_save(ck, 1, 0, NULL), -EINVAL, "and nothing is left");
    is_int(muster_ckpt_save(ck, -1, 0, NULL), -EINVAL, "a negative step");
    is_int(muster_ckpt_load(ck, 1, 2, NULL), -EINVAL, "flags");
    is_int(muster_ckpt_load(ck, 1, MUSTER_CKPT_CANNOT, NULL), -EILSEQ, "cannot");
    muster_ckpt_close(ck);
    muster_ckpt_close(NULL);
}

static void test_mismatch(void)
{
    struct muster_ckpt *ck = open_in("mismatch", NULL, NULL);
    struct muster_ckpt *other = open_in("mismatch", NULL, NULL);
    const uint64_t shape[2] = {2, 3}, turned[2] = {3, 2};
    float w[6] = {0};
    struct muster_ckpt_tensor t = {.name = "w", .dtype = MUSTER_F32,
                                   .n_dims = 2, .shape = shape, .data = w};
    char blob[8] = "abc";

    is_int(muster_ckpt_tensor(ck, &t), 0, "a tensor");
    is_int(muster_ckpt_blob(ck, "b", blob, 3, MUSTER_REPLICATED), 0, "a blob");
    is_int(muster_ckpt_save(ck, 1, 0, NULL), 0, "saved");
    t.shape = turned;
    is_int(muster_ckpt_tensor(other, &t), 0, "the other way round");
    is_int(muster_ckpt_load(other, 1, 0, NULL), -EINVAL, "is another shape");
    like(muster_ckpt_error_text(other), "is F32 [0:2, 0:3] there, and registered "
         "as F32 [0:3, 0:2]", "both are said");
    muster_ckpt_close(other);
    other = open_in("mismatch", NULL, NULL);
    t.name = "v";
    is_int(muster_ckpt_tensor(other, &t), 0, "another name");
    is_int(muster_ckpt_load(other, 1, 0, NULL), -ENODATA, "is not there");
    like(muster_ckpt_error_text(other), "tensor 'v' is not in it", "named");
    muster_ckpt_close(other);
    other = open_in("mismatch", NULL, NULL);
    is_int(muster_ckpt_blob(other, "b", blob, 8, MUSTER_REPLICATED), 0, "longer");
    is_int(muster_ckpt_load(other, 1, 0, NULL), -EINVAL, "another length");
    like(muster_ckpt_error_text(other), "has 3 bytes there, and 8 are", "both");
    muster_ckpt_close(other);
    muster_ckpt_close(ck);
}

/* --- together --- */

static int expected[TEAM_MAX];
static char texts[TEAM_MAX][512];

static void save_differently(void *arg, const struct muster_ckpt_group *group)
{
    struct muster_ckpt *ck = open_in("differ", group, NULL);
    const char *what = arg;
    const uint64_t shape[1] = {4}, other[1] = {5}, at[1] = {2}, len[1] = {2};
    float w[5] = {0};
    struct muster_ckpt_tensor t = {.name = "w", .dtype = MUSTER_F32,
                                   .n_dims = 1, .shape = shape, .data = w};
    char same[2] = {'x', (char)group->rank};
    int64_t step = 1;

    if (strcmp(what, "shape") == 0 && group->rank == 1) {
        t.shape = other;
    }
    if (strcmp(what, "overlap") == 0 && group->rank == 1) {
        t.at = at;
        t.len = len;
    }
    if (strcmp(what, "step") == 0) {
        step = group->rank;
    }
    muster_ckpt_tensor(ck, &t);
    if (strcmp(what, "blob") == 0) {
        muster_ckpt_blob(ck, "b", same, 2, MUSTER_REPLICATED);
    }
    if (strcmp(what, "list") == 0 && group->rank == 2) {
        muster_ckpt_blob(ck, "b", same, 2, MUSTER_PER_RANK);
    }
    if (strcmp(what, "death") == 0 && group->rank == 1) {
        muster_ckpt_close(ck);
        return;
    }
    expected[group->rank] = muster_ckpt_save(ck, step, 0, NULL);
    snprintf(texts[group->rank], sizeof(texts[0]), "%s",
             muster_ckpt_error_text(ck));
    muster_ckpt_close(ck);
}

static void test_differ(void)
{
    static const struct {
        const char *what;
        int rc;
        const char *text;
    } cases[] = {
        {"shape", -EINVAL, "tensor 'w': [0:4] of rank 0 and [0:5] of rank 1 are "
                           "of tensors of different shapes"},
        {"overlap", -EINVAL, "tensor 'w': [0:4] of rank 0 and [2:4] of rank 1 "
                             "overlap"},
        {"step", -EINVAL, "ranks 0 and 1 do not make the same call"},
        {"blob", -EINVAL, "differ between rank 0 and rank 1"},
        {"list", -EINVAL, "blob 'b': ranks 0 and 2 have not"},
        {"death", -ECONNABORTED, "the others cannot be heard of"},
        {"nothing", 0, ""},
    };

    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        memset(expected, 0, sizeof(expected));
        memset(texts, 0, sizeof(texts));
        team_run(3, false, save_differently, (void *)cases[i].what);
        is_int(expected[0], cases[i].rc, "%s: rank 0", cases[i].what);
        is_int(expected[2], cases[i].rc, "%s: rank 2", cases[i].what);
        like(texts[0], cases[i].text, "%s: what", cases[i].what);
    }
}

/* --- the matrix --- */

struct trip {
    const char *name;
    int64_t step;
    uint64_t seed;
    bool is_save;
    uint64_t n_wrong[TEAM_MAX];
    int rc[TEAM_MAX];
    int64_t got[TEAM_MAX];
    char text[TEAM_MAX][512];
};

static void travel(void *arg, const struct muster_ckpt_group *group)
{
    struct trip *t = arg;
    struct muster_ckpt *ck = open_in(t->name, group, NULL);
    struct model *m = model_create(ck, (uint32_t)group->rank,
                                   (uint32_t)group->world, t->seed);
    int64_t step = 0;

    model_set(m, t->is_save ? t->step : 0);
    t->rc[group->rank] = t->is_save
                             ? muster_ckpt_save(ck, t->step, 0, NULL)
                             : muster_ckpt_load(ck, t->step, 0, &step);
    t->got[group->rank] = step;
    t->n_wrong[group->rank] =
        model_wrong(m, t->step == MUSTER_CKPT_LATEST ? step : t->step);
    snprintf(t->text[group->rank], sizeof(t->text[0]), "%s",
             muster_ckpt_error_text(ck));
    model_destroy(m);
    muster_ckpt_close(ck);
}

static bool went_well(const struct trip *t, int world)
{
    for (int r = 0; r < world; r++) {
        if (t->rc[r] != 0 || t->n_wrong[r] != 0) {
            diag("rank %d of %d: %d, %llu wrong: %s", r, world, t->rc[r],
                 (unsigned long long)t->n_wrong[r], t->text[r]);
            return false;
        }
    }
    return true;
}

static void test_matrix(int most)
{
    int n_bad = 0;

    for (int n = 1; n <= most; n++) {
        struct trip out = {.name = "matrix", .step = n, .seed = (uint64_t)n,
                           .is_save = true};

        team_run(n, false, travel, &out);
        n_bad += !went_well(&out, n);
        for (int k = 1; k <= most; k++) {
            struct trip back = {.name = "matrix", .step = n,
                                .seed = (uint64_t)(n * 100 + k)};

            team_run(k, false, travel, &back);
            n_bad += !went_well(&back, k);
        }
    }
    is_int(n_bad, 0, "saved by 1 to %d ranks, loaded by 1 to %d", most, most);
}

/* --- damage --- */

static bool flip(const char *path, long byte, int bit)
{
    _fclose_ FILE *f = fopen(path, "r+");
    int c = f && fseek(f, byte, SEEK_SET) == 0 ? fgetc(f) : EOF;

    return c != EOF && fseek(f, byte, SEEK_SET) == 0 &&
           fputc(c ^ 1 << bit, f) != EOF;
}

static long length_of(const char *path)
{
    _fclose_ FILE *f = fopen(path, "r");

    return f && fseek(f, 0, SEEK_END) == 0 ? ftell(f) : -1;
}

static char name_of_two[64];

static int find_step_two(void *arg, const char *name)
{
    (void)arg;
    if (strncmp(name, "step-000000000002-", 18) == 0) {
        snprintf(name_of_two, sizeof(name_of_two), "%s", name);
    }
    return 0;
}

/* Of a file of the newer of two checkpoints, one bit is changed: both ranks load the
 * older one, and say which file it was. */
/* To verify it names the file, and of a rank's what is in it and whose it is. */
static bool is_blamed(const char *file, long byte)
{
    _step_ struct step s = {0};
    struct error e = {0};
    char dir[4200], rank[64] = "";
    _close_ int fd = -1;
    bool is_named;
    int rc;

    snprintf(dir, sizeof(dir), "%s/damage", root);
    fd = open(dir, O_RDONLY | O_DIRECTORY);
    rc = step_open(io_system(), fd, name_of_two, &s, &e);
    rc = rc < 0 ? rc : step_verify(&s, &e);
    if (file[0] == 'r') {
        snprintf(rank, sizeof(rank), " of rank %d, do not have their", file[5] - '0');
    }
    is_named = rc == -ERR_FORMAT && strstr(e.text, file) && strstr(e.text, rank) &&
               (!*rank || strstr(e.text, "tensor '") || strstr(e.text, "its header"));
    if (!is_named) {
        diag("%s, byte %ld: verified: %d, %s", file, byte, rc, e.text);
    }
    return is_named;
}

static unsigned count_unseen(const char *path, const char *file, long byte)
{
    struct trip back = {.name = "damage", .step = MUSTER_CKPT_LATEST,
                        .seed = 5};
    unsigned n_bad = 0;

    if (!flip(path, byte, (int)(byte % 8))) {
        bail_out("flip %s", path);
    }
    team_run(2, false, travel, &back);
    for (int r = 0; r < 2; r++) {
        bool is_seen = back.rc[r] == 1 && back.got[r] == 1 &&
                       back.n_wrong[r] == 0 && strstr(back.text[r], file);

        if (!is_seen) {
            diag("%s, byte %ld: rank %d: %d, step %d: %s", file, byte, r,
                 back.rc[r], (int)back.got[r], back.text[r]);
        }
        n_bad += !is_seen;
    }
    n_bad += !is_blamed(file, byte);
    flip(path, byte, (int)(byte % 8));
    return n_bad;
}

static void test_damage(int n_places)
{
    static const char *const files[] = {"COMMIT", "manifest.json",
                                        "tensors.index", "r00000.safetensors",
                                        "r00001.safetensors"};
    struct trip one = {.name = "damage", .step = 1, .seed = 3, .is_save = true};
    struct trip two = {.name = "damage", .step = 2, .seed = 4, .is_save = true};
    char dir[4200], path[4400];
    int fd;

    team_run(2, false, travel, &one);
    team_run(2, false, travel, &two);
    snprintf(dir, sizeof(dir), "%s/damage", root);
    fd = open(dir, O_RDONLY | O_DIRECTORY);
    io_system()->ops->list(io_system(), fd, find_step_two, NULL);
    close(fd);
    for (size_t i = 0; i < ARRAY_SIZE(files); i++) {
        unsigned n_bad = 0;
        long len;

        snprintf(path, sizeof(path), "%s/%s/%s", dir, name_of_two, files[i]);
        len = length_of(path);
        for (int k = 0; k <= n_places; k++) {
            n_bad += count_unseen(path, files[i], (len - 1) * k / n_places);
        }
        is_int((int)n_bad, 0, "%s: a changed bit at %d places of %ld bytes",
               files[i], n_places + 1, len);
    }
}

/* The file of the only checkpoint in `name`, or of the one that is not `other`. */
static void find_file(const char *name, const char *other, char *to, size_t size)
{
    char pattern[5000];
    glob_t found = {0};

    snprintf(pattern, sizeof(pattern), "%s/%s/step-*/r00000.safetensors", root,
             name);
    is_int(glob(pattern, 0, NULL, &found), 0, "files of checkpoints");
    is_int((int)found.gl_pathc, other ? 2 : 1, "so many");
    for (size_t i = 0; i < found.gl_pathc; i++) {
        if (!other || strcmp(found.gl_pathv[i], other) != 0) {
            snprintf(to, size, "%s", found.gl_pathv[i]);
        }
    }
    globfree(&found);
}

static void is_blob(struct muster_ckpt *ck, const char *should,
                    const char *what)
{
    char text[8] = "";

    is_int(muster_ckpt_read_blob(ck, 10, "b", text, sizeof(text) - 1, NULL), 0,
           "a blob");
    is_str(text, should, "%s", what);
}

/* Of two checkpoints of one step, blobs are of the one that tensors are of. */
static void test_same_step(void)
{
    struct muster_ckpt *ck = open_in("same", NULL, NULL);
    int32_t v = 1;
    struct muster_ckpt_tensor t = {.name = "v", .dtype = MUSTER_I32,
                                   .data = &v};
    char older[] = "older", newer[] = "newer", first[5000] = "", path[5000] = "";

    is_int(muster_ckpt_tensor(ck, &t), 0, "a number");
    muster_ckpt_blob(ck, "b", older, strlen(older), MUSTER_REPLICATED);
    is_int(muster_ckpt_save(ck, 10, 0, NULL), 0, "a save");
    is_blob(ck, "older", "what was saved");
    find_file("same", NULL, first, sizeof(first));
    muster_ckpt_blob(ck, "b", newer, strlen(newer), MUSTER_REPLICATED);
    v = 2;
    is_int(muster_ckpt_save(ck, 10, 0, NULL), 0, "another of that step");
    is_blob(ck, "newer", "the newest is read");
    find_file("same", first, path, sizeof(path));
    ok(flip(path, length_of(path) - 1, 1), "a bit of it is changed");
    is_int(muster_ckpt_load(ck, 10, 0, NULL), 1, "which is passed over: %s",
           muster_ckpt_error_text(ck));
    ok(v == 1, "for the other");
    is_blob(ck, "older", "which is read then");
    muster_ckpt_close(ck);
}

/* Whether the file of that step says so itself. */
static bool names_step(const char *name, int step)
{
    char pattern[5000], said[64], head[4096] = "";
    glob_t found = {0};
    bool is_named = false;

    snprintf(pattern, sizeof(pattern), "%s/%s/step-%012d-*/r00000.safetensors", root,
             name, step);
    snprintf(said, sizeof(said), "\"muster.step\":\"%d\",\"muster.uuid\":\"", step);
    if (glob(pattern, 0, NULL, &found) == 0) {
        _fclose_ FILE *f = fopen(found.gl_pathv[0], "r");
        const char *uuid = strrchr(found.gl_pathv[0], '/') - 8;
        const char *at = f && fread(head, 1, sizeof(head) - 1, f) > 8
                             ? strstr(head + 8, said) : NULL;

        is_named = at && strncmp(at + strlen(said), uuid, 8) == 0;
    }
    globfree(&found);
    return is_named;
}

/* What was planned for one save does for the next: with other memory of the same
 * tensors, and as long as no other ones come. */
static void test_planned_again(void)
{
    struct muster_ckpt *ck = open_in("again", NULL, NULL);
    const uint64_t shape[2] = {2, 3};
    const int64_t turned[2] = {1, 2};
    float a[6] = {1, 2, 3, 4, 5, 6}, b[6] = {1, 4, 2, 5, 3, 6}, to[6];
    int32_t v = 7;
    struct muster_ckpt_tensor t = {.name = "w", .dtype = MUSTER_F32, .n_dims = 2,
                                   .shape = shape, .data = a};
    struct muster_ckpt_tensor more = {.name = "v", .dtype = MUSTER_I32, .data = &v};

    for (int step = 8; step <= 12; step++) {
        muster_ckpt_clear(ck);
        t.data = step % 2 ? b : a; /* the same numbers in another order */
        t.strides = step % 2 ? turned : NULL;
        muster_ckpt_tensor(ck, &t);
        if (step >= 12) {
            muster_ckpt_tensor(ck, &more);
        }
        is_int(muster_ckpt_save(ck, step, step % 3 ? 0 : MUSTER_CKPT_LAZY, NULL), 0,
               "step %d: %s", step, muster_ckpt_error_text(ck));
        is_int(muster_ckpt_fence(ck), 0, "is saved");
        ok(names_step("again", step), "its file is of that step and save");
    }
    muster_ckpt_clear(ck);
    t.data = to;
    t.strides = NULL;
    muster_ckpt_tensor(ck, &t);
    for (int step = 8; step <= 12; step++) {
        memset(to, 0, sizeof(to));
        is_int(muster_ckpt_load(ck, step, 0, NULL), 0, "loaded: %s",
               muster_ckpt_error_text(ck));
        ok(memcmp(to, a, sizeof(a)) == 0, "what was saved");
    }
    muster_ckpt_close(ck);
}

/* A file of several blocks and an odd end, which is not in the page cache. */
/* Between saves a tensor moves, or changes, and blobs grow: what is saved is what is
 * registered then. */
static void test_changed(void)
{
    struct muster_ckpt *ck = open_in("changed", NULL, NULL);
    uint8_t here[6] = {1, 2, 3, 4, 5, 6}, there[8] = {11, 12, 13, 14, 15, 16, 17, 18};
    uint8_t got[8];
    char blob[] = "abcdef", back[6];
    const struct {
        const char *what;
        uint8_t *data;
        uint64_t shape;
        enum muster_dtype dtype;
        size_t blob_bytes;
    } saves[] = {
        {"first", here, 6, MUSTER_U8, 3},        {"as it was", here, 6, MUSTER_U8, 3},
        {"elsewhere", there, 6, MUSTER_U8, 3},   {"longer", there, 8, MUSTER_U8, 3},
        {"another type", there, 8, MUSTER_I8, 3}, {"a longer blob", there, 8, MUSTER_I8, 6},
        {"shorter", here, 6, MUSTER_I8, 2},
    };

    for (size_t i = 0; i < ARRAY_SIZE(saves); i++) {
        struct muster_ckpt_tensor t = {.name = "t", .dtype = saves[i].dtype,
                                       .n_dims = 1, .shape = &saves[i].shape,
                                       .data = saves[i].data};
        struct muster_ckpt *other;
        size_t n = 0;
        int rc;

        if (i > 2) { /* a tensor of another shape would be one more piece */
            muster_ckpt_clear(ck);
        }
        rc = muster_ckpt_tensor(ck, &t) | muster_ckpt_blob(ck, "b", blob,
                                                           saves[i].blob_bytes,
                                                           MUSTER_PER_RANK);
        rc |= muster_ckpt_save(ck, 10 + (int64_t)i, MUSTER_CKPT_WAIT, NULL);
        is_int(rc, 0, "%s: %s", saves[i].what, muster_ckpt_error_text(ck));
        other = open_in("changed", NULL, NULL);
        t.data = got;
        rc = muster_ckpt_tensor(other, &t) | muster_ckpt_load(other, 10 + (int64_t)i, 0, NULL);
        rc |= muster_ckpt_read_blob(other, 10 + (int64_t)i, "b", back, sizeof(back), &n);
        ok(rc == 0 && memcmp(got, saves[i].data, saves[i].shape) == 0 &&
               n == saves[i].blob_bytes && memcmp(back, blob, n) == 0,
           "comes back: %s", muster_ckpt_error_text(other));
        muster_ckpt_close(other);
    }
    muster_ckpt_close(ck);
}

static void test_from_disk(void)
{
    enum { N = 9000001 };
    struct muster_ckpt *ck = open_in("cold", NULL, NULL);
    const uint64_t shape[1] = {N};
    unsigned char *v = malloc(N), *to = malloc(N);
    struct muster_ckpt_tensor t = {.name = "v", .dtype = MUSTER_U8, .n_dims = 1,
                                   .shape = shape, .data = v};
    char path[5000];
    int fd;

    for (size_t i = 0; v && i < N; i++) {
        v[i] = (unsigned char)(i * 7 + i / 251);
    }
    muster_ckpt_tensor(ck, &t);
    is_int(muster_ckpt_save(ck, 1, 0, NULL), 0, "a save of %d bytes", N);
    find_file("cold", NULL, path, sizeof(path));
    t.data = to;
    muster_ckpt_tensor(ck, &t);
    for (int i = 0; i < 2; i++) {
        fd = open(path, O_RDONLY);
        is_int(i == 0 ? posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED) : 0, 0,
               i == 0 ? "out of the page cache" : "as it is now");
        close(fd);
        memset(to, 0, N);
        is_int(muster_ckpt_load(ck, 1, 0, NULL), 0, "loaded: %s",
               muster_ckpt_error_text(ck));
        ok(memcmp(to, v, N) == 0, "every byte");
    }
    ok(flip(path, length_of(path) - 1, 3), "its last byte is changed");
    is_int(muster_ckpt_load(ck, 1, 0, NULL), -EILSEQ, "which is seen");
    muster_ckpt_close(ck);
    free(v);
    free(to);
}

int main(int argc, char **argv)
{
    (void)argv;
    snprintf(root, sizeof(root), "%s/ckpt-XXXXXX",
             getenv("TMPDIR") ? getenv("TMPDIR") : "/tmp");
    if (!mkdtemp(root)) {
        bail_out("no temporary directory");
    }
    test_alone();
    test_newest();
    test_same_step();
    test_planned_again();
    test_changed();
    test_from_disk();
    test_avoided();
    test_avoided_all();
    test_refused();
    test_mismatch();
    test_differ();
    test_damage(tap_valgrind() ? 2 : 25);
    test_matrix(argc > 1 ? atoi(argv[1]) : tap_valgrind() ? 3 : 17);
    fs_remove_tree(root, NULL);
    return tap_done();
}
