/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A libcuda.so.1 without a GPU, of the calls that muster makes, with the numbers of
 * cuda.h. Its memory cannot be touched by the processor: who follows a pointer there
 * dies. Work is done when it is waited for, and not before, and a copy needs the context
 * of its memory to be current, as on the real thing.
 *
 * mock_cuda_*() are for tests: memory, work, a view of it, and failures.
 */
#include <config.h>

#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

/* The prototypes are those of cuda.h, and of nobody. */
#pragma GCC diagnostic ignored "-Wmissing-prototypes"
#pragma GCC visibility push(default)

enum {
    OK = 0, INVALID_VALUE = 1, OUT_OF_MEMORY = 2, NOT_INITIALIZED = 3,
    INVALID_CONTEXT = 201, ILLEGAL_ADDRESS = 700,
    CONTEXT = 1, MEMORY_TYPE = 2, IS_MANAGED = 8, ORDINAL = 9,
    HOST = 1, DEVICE = 2,
    MAX_AREAS = 64, MAX_WORK = 64, MAX_DEPTH = 16,
};
typedef uint64_t pointer_t;

struct area {
    char *at;     /* what programs have; no access */
    char *shadow; /* what is there; of managed memory the same */
    size_t len;
    void *context; /* NULL: of a pool */
    unsigned type, is_managed;
};

struct work {
    char *to;
    int byte;
    size_t len;
};

static struct area areas[MAX_AREAS];
static struct work queue[MAX_WORK];
static int n_areas, n_work, n_retained, n_copies, failing, fail_result;
static const char *fail_call;
static char primary;
static _Thread_local void *stack[MAX_DEPTH];
static _Thread_local int depth;

static struct area *find(pointer_t p, size_t len)
{
    for (int i = 0; i < n_areas; i++) {
        pointer_t at = (pointer_t)(uintptr_t)areas[i].at;

        if (p >= at && p - at < areas[i].len && len <= areas[i].len - (p - at)) {
            return &areas[i];
        }
    }
    return NULL;
}

static int fails(const char *call)
{
    return failing && strcmp(call, fail_call) == 0 && --failing == 0 ? fail_result
                                                                     : OK;
}

/* --- for tests --- */

/* `kind`: 0 of a context, 1 of a pool, 2 managed, 3 pinned memory of the host. */
void *mock_cuda_alloc(size_t len, int kind)
{
    struct area *a = &areas[n_areas];
    int is_hidden = kind < 2;

    if (n_areas == MAX_AREAS) {
        return NULL;
    }
    *a = (struct area){.len = len, .context = kind == 1 ? NULL : &primary,
                       .type = kind == 3 ? HOST : DEVICE, .is_managed = kind == 2};
    a->shadow = mmap(NULL, len, PROT_READ | PROT_WRITE,
                     MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    a->at = is_hidden ? mmap(NULL, len, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS,
                             -1, 0) : a->shadow;
    n_areas++;
    return a->at;
}

/* What is at `p`, for the processor. */
void *mock_cuda_view(void *p)
{
    struct area *a = find((pointer_t)(uintptr_t)p, 1);

    return a ? a->shadow + ((char *)p - a->at) : NULL;
}

/* A kernel that will set bytes. */
void mock_cuda_launch(void *to, int byte, size_t len)
{
    if (n_work < MAX_WORK) {
        queue[n_work++] = (struct work){mock_cuda_view(to), byte, len};
    }
}

/* The n-th of these calls from here on fails. */
void mock_cuda_fail(const char *call, int n, int result)
{
    fail_call = call;
    failing = n;
    fail_result = result;
}

/* Contexts that are retained or current, and should not be. */
int mock_cuda_left(void)
{
    return n_retained + depth;
}

int mock_cuda_copies(void)
{
    return n_copies;
}

/* --- the driver's --- */

int cuPointerGetAttribute(void *data, int attribute, pointer_t p)
{
    const struct area *a = find(p, 1);

    if (!a) {
        return INVALID_VALUE;
    }
    switch (attribute) {
    case CONTEXT:
        *(void **)data = a->context;
        return OK;
    case MEMORY_TYPE:
        *(unsigned *)data = a->type;
        return OK;
    case IS_MANAGED:
        *(unsigned *)data = a->is_managed;
        return OK;
    case ORDINAL:
        *(int *)data = 0;
        return OK;
    default:
        return INVALID_VALUE;
    }
}

int cuDeviceGet(int *device, int ordinal)
{
    *device = ordinal;
    return OK;
}

int cuDevicePrimaryCtxRetain(void **context, int device)
{
    (void)device;
    __atomic_add_fetch(&n_retained, 1, __ATOMIC_SEQ_CST);
    *context = &primary;
    return OK;
}

int cuDevicePrimaryCtxRelease_v2(int device)
{
    (void)device;
    __atomic_sub_fetch(&n_retained, 1, __ATOMIC_SEQ_CST);
    return OK;
}

int cuCtxPushCurrent_v2(void *context)
{
    int rc = fails("push");

    if (rc != OK || depth == MAX_DEPTH || context != &primary) {
        return rc ? rc : INVALID_CONTEXT;
    }
    stack[depth++] = context;
    return OK;
}

int cuCtxPopCurrent_v2(void **context)
{
    if (depth == 0) {
        return INVALID_CONTEXT;
    }
    *context = stack[--depth];
    return OK;
}

int cuCtxSynchronize(void)
{
    int rc = depth ? fails("synchronize") : INVALID_CONTEXT;

    for (int i = 0; i < n_work && rc == OK; i++) {
        memset(queue[i].to, queue[i].byte, queue[i].len);
    }
    n_work = rc == OK ? 0 : n_work;
    return rc;
}

int cuMemcpyDtoH_v2(void *to, pointer_t from, size_t len)
{
    const struct area *a = find(from, len);
    int rc = depth ? fails("get") : INVALID_CONTEXT;

    if (rc != OK || !a) {
        return rc ? rc : INVALID_VALUE;
    }
    __atomic_add_fetch(&n_copies, 1, __ATOMIC_SEQ_CST);
    memcpy(to, a->shadow + (from - (pointer_t)(uintptr_t)a->at), len);
    return OK;
}

int cuMemcpyHtoD_v2(pointer_t to, const void *from, size_t len)
{
    const struct area *a = find(to, len);
    int rc = depth ? fails("put") : INVALID_CONTEXT;

    if (rc != OK || !a) {
        return rc ? rc : INVALID_VALUE;
    }
    __atomic_add_fetch(&n_copies, 1, __ATOMIC_SEQ_CST);
    memcpy(a->shadow + (to - (pointer_t)(uintptr_t)a->at), from, len);
    return OK;
}

int cuGetErrorName(int result, const char **name)
{
    *name = result == ILLEGAL_ADDRESS ? "CUDA_ERROR_ILLEGAL_ADDRESS"
            : result == OUT_OF_MEMORY ? "CUDA_ERROR_OUT_OF_MEMORY" : NULL;
    return *name ? OK : INVALID_VALUE;
}
