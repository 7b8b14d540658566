/* SPDX-License-Identifier: Apache-2.0 */
/* One rank that saves again: the same step, the same tensors, and others. */
#include <config.h>

#include "ckpt/api_bed.h"

#include "base/cleanup.h"
#include "ckpt/save_priv.h"
#include "tests/lib/tap.h"

#include <errno.h>
#include <glob.h>
#include <stdio.h>
#include <string.h>

static char root[API_BED_ROOT_BYTES];

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
    struct muster_ckpt *ck = api_bed_open(root, "same", NULL, NULL);
    int32_t v = 1;
    struct muster_ckpt_tensor t = {.name = "v", .dtype = MUSTER_I32,
                                   .data = &v};
    char older[] = "older", newer[] = "newer", first[5000] = "", path[5000] = "";

    is_int(muster_ckpt_tensor(ck, &t), 0, "a number");
    muster_ckpt_blob(ck, "b", older, strlen(older), MUSTER_REPLICATED);
    is_int(muster_ckpt_save(ck, 10, 0, NULL), 0, "a save");
    is_blob(ck, "older", "what was saved");
    api_bed_find_file(root, "same", NULL, first, sizeof(first));
    muster_ckpt_blob(ck, "b", newer, strlen(newer), MUSTER_REPLICATED);
    v = 2;
    is_int(muster_ckpt_save(ck, 10, 0, NULL), 0, "another of that step");
    is_blob(ck, "newer", "the newest is read");
    api_bed_find_file(root, "same", first, path, sizeof(path));
    ok(api_bed_flip(path, api_bed_length(path) - 1, 1), "a bit of it is changed");
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
    struct muster_ckpt *ck = api_bed_open(root, "again", NULL, NULL);
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
        is_int((long long)ck->n_plans, step < 12 ? 1 : 2, "planned once for the same tensors");
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

/* Between saves a tensor moves, or changes, and blobs grow: what is saved is what is
 * registered then. */
static void test_changed(void)
{
    struct muster_ckpt *ck = api_bed_open(root, "changed", NULL, NULL);
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
        other = api_bed_open(root, "changed", NULL, NULL);
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

/* Nothing is registered between saves: only the bytes change, also where one of them
 * fails, and the order by name is another one than that of the program. */
static void test_registered_once(void)
{
    struct muster_ckpt *ck = api_bed_open(root, "once", NULL, NULL), *other;
    uint8_t z[3], a[5], got_z[3], got_a[5];
    const uint64_t three = 3, five = 5;
    char json[] = "{\"at\":0}", text[32];
    struct muster_ckpt_tensor of_z = {.name = "z", .dtype = MUSTER_U8, .n_dims = 1,
                                      .shape = &three, .data = z};
    struct muster_ckpt_tensor of_a = {.name = "a", .dtype = MUSTER_U8, .n_dims = 1,
                                      .shape = &five, .data = a};
    size_t n = 0;
    int rc = muster_ckpt_tensor(ck, &of_z) | muster_ckpt_tensor(ck, &of_a) |
             muster_ckpt_blob(ck, "j", json, strlen(json), MUSTER_JSON);

    for (int step = 1; step <= 5; step++) {
        memset(z, step, sizeof(z));
        memset(a, 10 * step, sizeof(a));
        json[6] = (char)('0' + step);
        if (step == 3) {
            json[0] = '[';
            is_int(muster_ckpt_save(ck, step, 0, NULL), -EINVAL, "one that fails");
            json[0] = '{';
        }
        rc |= muster_ckpt_save(ck, step, step == 2 ? MUSTER_CKPT_LAZY : 0, NULL) |
              muster_ckpt_fence(ck);
    }
    is_int(rc, 0, "five saves: %s", muster_ckpt_error_text(ck));
    muster_ckpt_close(ck);
    other = api_bed_open(root, "once", NULL, NULL);
    of_z.data = got_z;
    of_a.data = got_a;
    rc = muster_ckpt_tensor(other, &of_z) | muster_ckpt_tensor(other, &of_a);
    for (int step = 1; step <= 5; step++) {
        rc |= muster_ckpt_load(other, step, 0, NULL) |
              muster_ckpt_read_blob(other, step, "j", text, sizeof(text) - 1, &n);
        ok(rc == 0 && got_z[2] == step && got_a[4] == 10 * step && n == strlen(json) &&
               text[6] == '0' + step,
           "step %d: %s", step, muster_ckpt_error_text(other));
    }
    muster_ckpt_close(other);
}

/* A step that is saved again, by another one. */
static void test_read_again(void)
{
    struct muster_ckpt *ck = api_bed_open(root, "read-again", NULL, NULL);
    struct muster_ckpt *other = api_bed_open(root, "read-again", NULL, NULL);
    int32_t v = 1;
    struct muster_ckpt_tensor t = {.name = "v", .dtype = MUSTER_I32, .data = &v};
    int64_t step = -1;

    is_int(muster_ckpt_tensor(other, &t), 0, "a number");
    is_int(muster_ckpt_save(other, 10, MUSTER_CKPT_WAIT, NULL), 0, "saved");
    is_int(muster_ckpt_read(ck, 10, &t), 0, "it is read");
    v = 2;
    is_int(muster_ckpt_save(other, 10, MUSTER_CKPT_WAIT, NULL), 0, "and saved again");
    is_int(muster_ckpt_read(ck, 10, &t), 0, "what is open is read as it was");
    is_int(v, 1, "with what it had");
    is_int(muster_ckpt_latest(ck, MUSTER_CKPT_LATEST, &step), 0, "until somebody looks for newer");
    is_int(muster_ckpt_read(ck, 10, &t), 0, "then that");
    is_int(v, 2, "is read");
    muster_ckpt_close(other);
    muster_ckpt_close(ck);
}

int main(void)
{
    api_bed_begin(root);
    test_same_step();
    test_planned_again();
    test_changed();
    test_registered_once();
    test_read_again();
    return api_bed_end(root);
}
