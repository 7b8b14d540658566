/* SPDX-License-Identifier: Apache-2.0 */
/* Boxes of tensors that are mapped: out of files, and what becomes of memory that is
 * written to again. What an agent has is mapped in t4101. */
#include <config.h>

#include "muster.h"

#include "base/cleanup.h"
#include "base/fs.h"
#include "ckpt/view.h"
#include "tests/lib/tap.h"

#include <errno.h>
#include <fcntl.h>
#include <glob.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

static char root[4096];
static int n_looked_for; /* libraries */

void *__real_dlopen(const char *name, int flags);
void *__wrap_dlopen(const char *name, int flags);

void *__wrap_dlopen(const char *name, int flags)
{
    n_looked_for++;
    return __real_dlopen(name, flags);
}

static struct muster_ckpt *open_in(const char *name)
{
    struct muster_ckpt_options options = {.size = sizeof(options), .keep = 1};
    struct muster_ckpt *ck = NULL;
    char path[5000];

    snprintf(path, sizeof(path), "%s/%s", root, name);
    if (muster_ckpt_open(NULL, NULL, path, &options, &ck) < 0) {
        bail_out("open %s: %s", path, muster_ckpt_error_text(ck));
    }
    return ck;
}

/* --- a state --- */

static const uint64_t w_shape[2] = {4, 6}, cut_shape[1] = {8}, none_shape[2] = {0, 3};
static float w[24], cut[2][4];
static double scalar;
static uint8_t odd[3];

/* "cut" lies in two pieces, apart in the file. */
static void save(struct muster_ckpt *ck, int64_t step)
{
    struct muster_ckpt_tensor t = {.name = "w", .dtype = MUSTER_F32, .n_dims = 2,
                                   .shape = w_shape, .data = w};
    const uint64_t odd_shape[1] = {3}, half[1] = {4}, second[1] = {4};

    for (int i = 0; i < 24; i++) {
        w[i] = (float)(100 * step + i);
    }
    for (int i = 0; i < 8; i++) {
        cut[i / 4][i % 4] = (float)(1000 * step + i);
    }
    scalar = (double)step / 2;
    memcpy(odd, "odd", 3);
    muster_ckpt_tensor(ck, &t);
    t = (struct muster_ckpt_tensor){.name = "cut", .dtype = MUSTER_F32, .n_dims = 1,
                                    .shape = cut_shape, .len = half, .data = cut[0]};
    muster_ckpt_tensor(ck, &t);
    t.at = second;
    t.data = cut[1];
    muster_ckpt_tensor(ck, &t);
    t = (struct muster_ckpt_tensor){.name = "s", .dtype = MUSTER_F64, .data = &scalar};
    muster_ckpt_tensor(ck, &t);
    t = (struct muster_ckpt_tensor){.name = "odd", .dtype = MUSTER_U8, .n_dims = 1,
                                    .shape = odd_shape, .data = odd};
    muster_ckpt_tensor(ck, &t);
    t = (struct muster_ckpt_tensor){.name = "none", .dtype = MUSTER_F32, .n_dims = 2,
                                    .shape = none_shape};
    muster_ckpt_tensor(ck, &t);
    if (muster_ckpt_save(ck, step, 0, NULL) < 0) {
        bail_out("save: %s", muster_ckpt_error_text(ck));
    }
}

static struct muster_ckpt_tensor of_w(const uint64_t *at, const uint64_t *len)
{
    return (struct muster_ckpt_tensor){.name = "w", .dtype = MUSTER_F32, .n_dims = 2,
                                       .shape = w_shape, .at = at, .len = len};
}

static struct muster_ckpt_view *map(struct muster_ckpt *ck, int64_t step,
                                    const struct muster_ckpt_tensor *t, unsigned flags)
{
    struct muster_ckpt_view *v = NULL;

    is_int(muster_ckpt_map(ck, step, t, flags, &v), 0, "'%s' is mapped: %s", t->name,
           muster_ckpt_error_text(ck));
    if (!v) {
        bail_out("no view");
    }
    return v;
}

/* --- where --- */

struct box_case {
    const char *what;
    uint64_t at[2], len[2];
    enum muster_ckpt_where where;
    float first, last;
};

static void test_boxes(void)
{
    static const struct box_case cases[] = {
        {"all", {0, 0}, {4, 6}, MUSTER_CKPT_IN_FILE, 100, 123},
        {"rows", {1, 0}, {2, 6}, MUSTER_CKPT_IN_FILE, 106, 117},
        {"a part of a row", {2, 3}, {1, 2}, MUSTER_CKPT_IN_FILE, 115, 116},
        {"one element", {3, 5}, {1, 1}, MUSTER_CKPT_IN_FILE, 123, 123},
        {"columns", {0, 1}, {4, 2}, MUSTER_CKPT_COPIED, 101, 120},
    };
    struct muster_ckpt *ck = open_in("boxes");

    save(ck, 1);
    n_looked_for = 0;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        const struct box_case *c = &cases[i];
        struct muster_ckpt_tensor t = of_w(c->at, c->len);

        for (unsigned flags = 0; flags < 4; flags++) {
            struct muster_ckpt_view *v = map(ck, 1, &t, flags);
            size_t n = c->len[0] * c->len[1];
            const float *data = v->data;

            is_int(v->where, c->where, "%s, flags %u: where", c->what, flags);
            is_int(v->bytes, n * 4, "its bytes");
            ok(data[0] == c->first && data[n - 1] == c->last, "its elements");
            is_int((uintptr_t)data % sizeof(float), 0, "aligned");
            muster_ckpt_unmap(v);
        }
    }
    is_int(n_looked_for, 0, "no driver of GPUs is looked for anew");
    muster_ckpt_close(ck);
}

static void test_kinds(void)
{
    struct muster_ckpt *ck = open_in("kinds");
    struct muster_ckpt_tensor t = {.name = "cut", .dtype = MUSTER_F32, .n_dims = 1,
                                   .shape = cut_shape};
    const uint64_t at[1] = {5}, len[1] = {2}, odd_shape[1] = {3};
    struct muster_ckpt_view *v;

    save(ck, 1);
    v = map(ck, 1, &t, 0);
    is_int(v->where, MUSTER_CKPT_COPIED, "what lies in two places is read");
    ok(((float *)v->data)[0] == 1000 && ((float *)v->data)[7] == 1007, "its elements");
    muster_ckpt_unmap(v);
    t.at = at;
    t.len = len;
    v = map(ck, 1, &t, 0);
    is_int(v->where, MUSTER_CKPT_IN_FILE, "a box of one of them is mapped");
    ok(((float *)v->data)[0] == 1005 && ((float *)v->data)[1] == 1006, "its elements");
    muster_ckpt_unmap(v);
    t = of_w(NULL, NULL);
    t.is_flat = 1;
    t.flat_begin = 6;
    t.flat_end = 18;
    v = map(ck, 1, &t, 0);
    is_int(v->where, MUSTER_CKPT_IN_FILE, "a flat range of rows is mapped");
    ok(((float *)v->data)[0] == 106 && ((float *)v->data)[11] == 117, "its elements");
    muster_ckpt_unmap(v);
    t.flat_begin = 5;
    v = map(ck, 1, &t, 0);
    is_int(v->where, MUSTER_CKPT_COPIED, "one that is several boxes is read");
    ok(((float *)v->data)[0] == 105 && ((float *)v->data)[12] == 117, "its elements");
    muster_ckpt_unmap(v);
    t = (struct muster_ckpt_tensor){.name = "s", .dtype = MUSTER_F64};
    v = map(ck, 1, &t, 0);
    ok(v->where == MUSTER_CKPT_IN_FILE && *(double *)v->data == 0.5, "a scalar");
    muster_ckpt_unmap(v);
    t = (struct muster_ckpt_tensor){.name = "odd", .dtype = MUSTER_U8, .n_dims = 1,
                                    .shape = odd_shape};
    v = map(ck, 1, &t, MUSTER_CKPT_VERIFY);
    ok(v->bytes == 3 && memcmp(v->data, "odd", 3) == 0, "some bytes");
    muster_ckpt_unmap(v);
    t = (struct muster_ckpt_tensor){.name = "none", .dtype = MUSTER_F32, .n_dims = 2,
                                    .shape = none_shape};
    v = map(ck, 1, &t, 0);
    is_int(v->bytes, 0, "nothing");
    muster_ckpt_unmap(v);
    muster_ckpt_unmap(NULL);
    muster_ckpt_close(ck);
}

/* --- how long --- */

static void test_lifetime(void)
{
    struct muster_ckpt *ck = open_in("lifetime");
    struct muster_ckpt_tensor t = of_w(NULL, NULL);
    struct muster_ckpt_view *a, *b, *c, *own;
    struct stat st;
    char path[5000];

    save(ck, 1);
    a = map(ck, 1, &t, 0);
    own = map(ck, 1, &t, MUSTER_CKPT_WRITABLE);
    ((float *)own->data)[0] = -1;
    b = map(ck, 1, &t, 0);
    c = map(ck, 1, &t, MUSTER_CKPT_WRITABLE);
    ok(((float *)a->data)[0] == 100 && ((float *)b->data)[0] == 100 &&
       ((float *)c->data)[0] == 100, "what one writes nobody else sees");
    ok(a->data == b->data, "to be read it is mapped once");
    muster_ckpt_unmap(a);
    ok(((float *)b->data)[23] == 123, "the other one stays");
    save(ck, 2);
    snprintf(path, sizeof(path), "%s/lifetime/step-000000000001-*", root);
    ok(glob(path, 0, NULL, &(glob_t){0}) == GLOB_NOMATCH, "the checkpoint is removed");
    ok(((float *)b->data)[0] == 100, "what is mapped of it is there");
    muster_ckpt_close(ck);
    ok(((float *)b->data)[0] == 100 && ((float *)own->data)[0] == -1 &&
       ((float *)own->data)[23] == 123, "when it is closed as well");
    snprintf(path, sizeof(path), "%s/lifetime", root);
    is_int(stat(path, &st), 0, "the directory is there");
    muster_ckpt_unmap(b);
    muster_ckpt_unmap(c);
    muster_ckpt_unmap(own);
}

/* --- what is refused --- */

static void test_refused(void)
{
    struct muster_ckpt *ck = open_in("refused");
    struct muster_ckpt_tensor t = of_w(NULL, NULL), other = t;
    const uint64_t outside[2] = {3, 0}, rows[2] = {2, 6}, shape[2] = {6, 4};
    struct muster_ckpt_view *v = NULL;

    save(ck, 1);
    is_int(muster_ckpt_map(NULL, 1, &t, 0, &v), -EINVAL, "no handle");
    is_int(muster_ckpt_map(ck, 1, NULL, 0, &v), -EINVAL, "no box");
    is_int(muster_ckpt_map(ck, 1, &t, 0, NULL), -EINVAL, "nowhere to");
    is_int(muster_ckpt_map(ck, 1, &t, 4, &v), -EINVAL, "an unknown flag");
    is_int(muster_ckpt_map(ck, -1, &t, 0, &v), -EINVAL, "a step below 0");
    is_int(muster_ckpt_map(ck, MUSTER_CKPT_LATEST, &t, 0, &v), -EINVAL, "no step");
    is_int(muster_ckpt_map(ck, 2, &t, 0, &v), -ENOENT, "a step that there is not");
    other.name = "nothing";
    is_int(muster_ckpt_map(ck, 1, &other, 0, &v), -ENODATA, "an unknown tensor");
    other = t;
    other.shape = shape;
    is_int(muster_ckpt_map(ck, 1, &other, 0, &v), -EINVAL, "another shape");
    other = t;
    other.dtype = MUSTER_I32;
    is_int(muster_ckpt_map(ck, 1, &other, 0, &v), -EINVAL, "another type");
    other = of_w(outside, rows);
    is_int(muster_ckpt_map(ck, 1, &other, 0, &v), -EINVAL, "a box outside");
    ok(!v, "nothing was given");
    muster_ckpt_close(ck);
}

/* A byte in the middle of the tensor "w". */
static void damage(const char *name)
{
    char pattern[5000], value[4];
    _close_ int fd = -1;
    glob_t found = {0};
    const float wanted = 112;
    struct stat st;

    snprintf(pattern, sizeof(pattern), "%s/%s/step-*/r00000.safetensors", root, name);
    if (glob(pattern, 0, NULL, &found) != 0 ||
        (fd = open(found.gl_pathv[0], O_RDWR | O_CLOEXEC)) < 0 || fstat(fd, &st) < 0) {
        bail_out("no file %s", pattern);
    }
    globfree(&found);
    for (off_t at = 4096; at + 4 <= st.st_size; at += 4) {
        if (pread(fd, value, 4, at) == 4 && memcmp(value, &wanted, 4) == 0 &&
            pwrite(fd, "\xff", 1, at) == 1) {
            return;
        }
    }
    bail_out("no such value in the file");
}

static void test_damage(void)
{
    struct muster_ckpt *ck = open_in("damage");
    struct muster_ckpt_tensor t = of_w(NULL, NULL);
    struct muster_ckpt_view *v = NULL;

    save(ck, 1);
    damage("damage");
    v = map(ck, 1, &t, 0);
    ok(((float *)v->data)[12] != 112, "what is mapped is as it is");
    is_int(muster_ckpt_map(ck, 1, &t, MUSTER_CKPT_VERIFY, &(struct muster_ckpt_view *){0}),
           -EILSEQ, "unless it is to be verified");
    like(muster_ckpt_error_text(ck), "r00000.safetensors is damaged", "and says so");
    ok(((float *)v->data)[0] == 100, "another view stays");
    muster_ckpt_unmap(v);
    muster_ckpt_close(ck);
}

/* --- memory that is written to again --- */

static void test_leave(void)
{
    enum { BYTES = 40000, SKIP = 4096 };
    struct views *l = NULL;
    _close_ int fd = memfd_create("ckpt_map_test", MFD_CLOEXEC);
    struct view_source s = {.uuid = "u", .where = MUSTER_CKPT_IN_MEMORY, .fd = fd,
                            .skip = SKIP, .bytes = BYTES};
    struct muster_ckpt_view *a = NULL, *b = NULL, *own = NULL;
    struct view_map *m = NULL;
    struct error e = {0};
    char bytes[BYTES];
    struct stat st;

    memset(bytes, 1, sizeof(bytes));
    if (ftruncate(fd, SKIP) < 0 || pwrite(fd, bytes, BYTES, SKIP) != BYTES ||
        fstat(fd, &st) < 0 || views_create(&l) < 0) {
        bail_out("no memory");
    }
    is_int(views_map(l, &s, false, 0, 0, &m, &e), 0, "it is mapped: %s", e.text);
    view_create(m, 100, 10, &a, &e);
    view_create(m, 20000, 20000, &b, &e);
    ok(views_find(l, &s) == m, "and found");
    is_int(views_map(l, &s, true, 30000, 40000, &m, &e), 0, "a part of its own");
    view_create(m, 30000, 10000, &own, &e);
    ((char *)own->data)[5] = 7;
    is_int(views_leave(l, st.st_dev, st.st_ino + 1, &e), 0, "another file");
    is_int(a->where, MUSTER_CKPT_IN_MEMORY, "changes nothing");
    is_int(views_leave(l, st.st_dev, st.st_ino, &e), 0, "it is left");
    ok(a->where == MUSTER_CKPT_COPIED && b->where == MUSTER_CKPT_COPIED &&
       own->where == MUSTER_CKPT_COPIED, "all of them are copies then");
    ok(!views_find(l, &s), "which nobody finds");
    memset(bytes, 2, sizeof(bytes));
    is_int(pwrite(fd, bytes, BYTES, SKIP), BYTES, "it is written to again");
    ok(((char *)a->data)[0] == 1 && ((char *)a->data)[9] == 1 &&
       ((char *)b->data)[19999] == 1 && ((char *)own->data)[9999] == 1,
       "they are as they were");
    is_int(((char *)own->data)[5], 7, "with what was written to one");
    is_int(views_leave(NULL, st.st_dev, st.st_ino, &e), 0, "no list");
    s.bytes = BYTES + 1;
    is_int(views_map(l, &s, false, 0, 0, &m, &e), -ERR_FORMAT, "it is shorter");
    s.bytes = UINT64_MAX;
    is_int(views_map(l, &s, false, 0, 0, &m, &e), -ERR_FORMAT, "and by far");
    view_destroy(a);
    views_forget(l);
    ok(((char *)b->data)[0] == 1, "the list goes, and they stay");
    view_destroy(b);
    view_destroy(own);
}

int main(void)
{
    snprintf(root, sizeof(root), "/tmp/ckpt_map_test.XXXXXX");
    if (!mkdtemp(root)) {
        bail_out("no directory");
    }
    test_boxes();
    test_kinds();
    test_lifetime();
    test_refused();
    test_damage();
    test_leave();
    fs_remove_tree(root, NULL);
    return tap_done();
}
