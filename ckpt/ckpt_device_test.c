/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Tensors in the memory of a GPU, by a driver that has none (tests/lib/mock_cuda.c):
 * the processor cannot touch that memory, and work is done when it is waited for.
 */
#include <config.h>

#include "base/cleanup.h"
#include "base/fs.h"
#include "ckpt/api_bed.h"
#include "comm/device.h"
#include "muster_ckpt.h"
#include "tests/lib/tap.h"

#include <dlfcn.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { OF_CONTEXT, OF_POOL, MANAGED, PINNED, ILLEGAL_ADDRESS = 700 };
enum { N = 2500000 }; /* floats: several blocks */

static struct {
    void *(*alloc)(size_t len, int kind);
    void *(*view)(void *p);
    void (*launch)(void *to, int byte, size_t len);
    void (*fail)(const char *call, int n, int result);
    int (*left)(void);
} mock;

static char root[4096];
static const uint64_t shape[] = {N};

static void *look_up(void *handle, const char *name)
{
    void *found = dlsym(handle, name);

    if (!found) {
        bail_out("%s: %s", name, dlerror());
    }
    return found;
}

static void load_driver(void)
{
    const char *build = getenv("MUSTER_BUILDDIR");
    char path[4096];
    void *handle;

    snprintf(path, sizeof(path), "%s/tests/lib/libcuda.so.1", build ? build : ".");
    handle = dlopen(path, RTLD_NOW | RTLD_GLOBAL);
    if (!handle) {
        bail_out("%s", dlerror());
    }
    *(void **)&mock.alloc = look_up(handle, "mock_cuda_alloc");
    *(void **)&mock.view = look_up(handle, "mock_cuda_view");
    *(void **)&mock.launch = look_up(handle, "mock_cuda_launch");
    *(void **)&mock.fail = look_up(handle, "mock_cuda_fail");
    *(void **)&mock.left = look_up(handle, "mock_cuda_left");
}

static void test_find(void)
{
    struct device_finder f = {0};
    char here = 0;
    void *p;

    ok(!device_of(&f, &here), "without a driver no pointer is a GPU's");
    load_driver();
    ok(!device_of(&f, &here), "with one, the program's memory is none");
    ok(!device_of(&f, NULL), "nor is nothing");
    p = mock.alloc(100, OF_CONTEXT);
    ok(device_of(&f, p) != NULL, "but that of a GPU, the driver having come later");
    ok(device_of(&f, (char *)p + 99) != NULL, "to its last byte");
    ok(device_of(&f, mock.alloc(100, OF_POOL)) != NULL, "and that of a pool");
    ok(!device_of(&f, mock.alloc(100, MANAGED)), "managed memory is the processor's, too");
    ok(!device_of(&f, mock.alloc(100, PINNED)), "as is pinned memory");
    device_finder_release(&f);
}

static int add(struct muster_ckpt *ck, const char *name, void *data)
{
    struct muster_ckpt_tensor t = {.name = name, .dtype = MUSTER_F32, .n_dims = 1,
                                   .shape = shape, .data = data};

    return muster_ckpt_tensor(ck, &t);
}

static void set(void *data, float first)
{
    float *f = data;

    for (int i = 0; i < N; i++) {
        f[i] = first + (float)i;
    }
}

static bool has(const void *data, float first)
{
    const float *f = data;

    for (int i = 0; i < N; i++) {
        if (f[i] != first + (float)i) {
            return false;
        }
    }
    return true;
}

static bool is_all(const void *data, int byte)
{
    const char *c = data;

    return c[0] == byte && memcmp(c, c + 1, N * sizeof(float) - 1) == 0;
}

static void *make(int kind, float first)
{
    void *p = mock.alloc(N * sizeof(float), kind);

    set(mock.view(p), first);
    return p;
}

static void test_trip(void)
{
    struct muster_ckpt *ck = api_bed_open(root, "trip", NULL, NULL);
    void *a = make(OF_CONTEXT, 1), *b = make(OF_POOL, 2), *m = make(MANAGED, 3);
    void *worked = make(OF_CONTEXT, 0);
    float *host = calloc(N, sizeof(*host)), *back = calloc(N, sizeof(*back));
    float *again = calloc(N, sizeof(*again));
    int64_t step = 0;

    set(host, 4);
    ok(add(ck, "a", a) == 0 && add(ck, "b", b) == 0 && add(ck, "m", m) == 0 &&
           add(ck, "host", host) == 0 && add(ck, "worked", worked) == 0,
       "tensors of a GPU, and others");
    mock.launch(worked, 7, N * sizeof(float));
    is_int(muster_ckpt_save(ck, 1, 0, NULL), 0, "a save: %s",
           muster_ckpt_error_text(ck));
    ok(is_all(mock.view(worked), 7), "which waits for what was to be done first");
    memset(mock.view(a), 0, N * sizeof(float));
    memset(mock.view(b), 0, N * sizeof(float));
    memset(m, 0, N * sizeof(float));
    memset(host, 0, N * sizeof(float));
    mock.launch(a, 9, N * sizeof(float));
    is_int(muster_ckpt_load(ck, MUSTER_CKPT_LATEST, 0, &step), 0, "a load: %s",
           muster_ckpt_error_text(ck));
    ok(has(mock.view(a), 1), "into a GPU, after what was to be done there");
    ok(has(mock.view(b), 2) && has(m, 3) && has(host, 4), "and elsewhere");
    is_int(add(ck, "a", back) | add(ck, "worked", again), 0,
           "the same in the program's memory");
    is_int(muster_ckpt_load(ck, MUSTER_CKPT_LATEST, 0, &step), 0, "is loaded");
    ok(has(back, 1) && is_all(again, 7), "from what was saved of a GPU");
    muster_ckpt_close(ck);
    is_int(mock.left(), 0, "no context is left current, or retained");
    free(host);
    free(back);
    free(again);
}

/* One name is here, then there, and then gone from there. */
static void test_moves(void)
{
    struct muster_ckpt *ck = api_bed_open(root, "moves", NULL, NULL);
    void *there = make(OF_CONTEXT, 0);
    float *here = calloc(N, sizeof(*here));

    ok(add(ck, "t", here) == 0 && add(ck, "t", there) == 0, "a tensor moves to a GPU");
    mock.launch(there, 6, N * sizeof(float));
    is_int(muster_ckpt_save(ck, 1, 0, NULL), 0, "a save");
    ok(is_all(mock.view(there), 6), "waits for what is done there");
    ok(add(ck, "t", here) == 0, "it moves back");
    mock.launch(there, 5, N * sizeof(float));
    is_int(muster_ckpt_save(ck, 2, 0, NULL), 0, "a save");
    ok(is_all(mock.view(there), 6), "has nothing to wait for");
    ok(add(ck, "t", there) == 0 && muster_ckpt_save(ck, 3, 0, NULL) == 0 &&
           is_all(mock.view(there), 5),
       "until it moves again");
    muster_ckpt_close(ck);
    free(here);
}

static void test_lazy(void)
{
    struct muster_ckpt *ck = api_bed_open(root, "lazy", NULL, NULL);
    void *a = make(OF_CONTEXT, 5);
    int64_t step = 0;

    add(ck, "a", a);
    is_int(muster_ckpt_save(ck, 1, MUSTER_CKPT_LAZY, NULL), 0, "a lazy save");
    is_int(muster_ckpt_fence(ck), 0, "and its fence");
    memset(mock.view(a), 0, N * sizeof(float));
    is_int(muster_ckpt_load(ck, MUSTER_CKPT_LATEST, 0, &step), 0, "loaded");
    ok(has(mock.view(a), 5), "as it was");
    mock.fail("get", 1, ILLEGAL_ADDRESS);
    is_int(muster_ckpt_save(ck, 2, MUSTER_CKPT_LAZY, NULL), 0, "another one");
    is_int(muster_ckpt_fence(ck), -EREMOTEIO, "fails at the fence");
    muster_ckpt_close(ck);
}

static void test_shapes(void)
{
    struct muster_ckpt *ck = api_bed_open(root, "shapes", NULL, NULL);
    char *a = make(OF_CONTEXT, 0);
    const uint64_t rows[] = {300, 3000}, one_row[] = {1, 3000}, at[] = {7, 0};
    const int64_t by_rows[] = {3000, 1}, by_columns[] = {1, 300};
    struct muster_ckpt_tensor t = {.name = "t", .dtype = MUSTER_F32, .n_dims = 2,
                                   .shape = rows, .data = a, .strides = by_columns};
    float back[3000] = {0};

    is_int(muster_ckpt_tensor(ck, &t), -EINVAL, "columns in a GPU are refused");
    like(muster_ckpt_error_text(ck), "tensor 't': it is in the memory of a GPU",
         "with the reason");
    t.strides = by_rows;
    is_int(muster_ckpt_tensor(ck, &t), 0, "rows are not, however they are described");
    t = (struct muster_ckpt_tensor){
        .name = "flat", .dtype = MUSTER_F32, .n_dims = 1, .shape = shape,
        .data = a + 40, .is_flat = 1, .flat_begin = 10, .flat_end = N};
    is_int(muster_ckpt_tensor(ck, &t), 0, "a flat range");
    t.data = a;
    t.flat_begin = 0;
    t.flat_end = 10;
    is_int(muster_ckpt_tensor(ck, &t), 0, "and the rest of it");
    is_int(muster_ckpt_blob(ck, "blob", a, 10, MUSTER_REPLICATED), -EINVAL,
           "a blob is refused");
    like(muster_ckpt_error_text(ck), "memory of a GPU", "for its place");
    is_int(muster_ckpt_save(ck, 1, 0, NULL), 0, "saved: %s", muster_ckpt_error_text(ck));
    t = (struct muster_ckpt_tensor){.name = "t", .dtype = MUSTER_F32, .n_dims = 2,
                                    .shape = rows, .at = at, .len = one_row,
                                    .data = back};
    is_int(muster_ckpt_read(ck, 1, &t), 0, "a row is read: %s",
           muster_ckpt_error_text(ck));
    ok(back[0] == 21000 && back[2999] == 23999, "the one that it is");
    t.data = a;
    memset(mock.view(a), 0, sizeof(back));
    is_int(muster_ckpt_read(ck, 1, &t), 0, "into a GPU");
    ok(memcmp(mock.view(a), back, sizeof(back)) == 0, "where it comes to");
    muster_ckpt_close(ck);
}

/* What a GPU fails of is no fault of a checkpoint. */
static void test_failures(void)
{
    struct muster_ckpt *ck = api_bed_open(root, "failures", NULL, NULL);
    void *a = make(OF_POOL, 1);
    static const char *const calls[] = {"push", "synchronize", "get"};
    int64_t step = 0;

    add(ck, "grad", a);
    is_int(muster_ckpt_save(ck, 1, 0, NULL), 0, "a save");
    for (size_t i = 0; i < ARRAY_SIZE(calls); i++) {
        mock.fail(calls[i], i < 2 ? 1 : 2, ILLEGAL_ADDRESS);
        is_int(muster_ckpt_save(ck, 2, 0, NULL), -EREMOTEIO, "%s fails: the save does",
               calls[i]);
        like(muster_ckpt_error_text(ck), "700 (CUDA_ERROR_ILLEGAL_ADDRESS)",
             "in the driver's words");
    }
    like(muster_ckpt_error_text(ck), "tensor 'grad'", "with the tensor");
    is_int(muster_ckpt_latest(ck, MUSTER_CKPT_LATEST, &step), 0, "a checkpoint");
    is_int((int)step, 1, "is there, the first one");
    mock.fail("put", 1, 999);
    is_int(muster_ckpt_load(ck, MUSTER_CKPT_LATEST, 0, &step), -EREMOTEIO,
           "a load that the GPU fails is not one of another checkpoint");
    like(muster_ckpt_error_text(ck), "999 (unknown)", "and says so");
    is_int(muster_ckpt_load(ck, MUSTER_CKPT_LATEST, 0, &step), 0, "the next succeeds");
    ok(has(mock.view(a), 1), "with all of it");
    is_int(muster_ckpt_save(ck, 2, 0, NULL), 0, "as does the next save");
    muster_ckpt_close(ck);
    is_int(mock.left(), 0, "no context is left");
}

int main(void)
{
    snprintf(root, sizeof(root), "%s/ckpt-XXXXXX",
             getenv("TMPDIR") ? getenv("TMPDIR") : "/tmp");
    if (!mkdtemp(root)) {
        bail_out("no temporary directory");
    }
    test_find();
    test_trip();
    test_moves();
    test_lazy();
    test_shapes();
    test_failures();
    fs_remove_tree(root, NULL);
    return tap_done();
}
