/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "comm/device.h"

#include "base/symbol.h"

#include <dlfcn.h>
#include <errno.h>
#include <link.h>
#include <stdint.h>
#include <stdlib.h>
#ifdef HAVE_CUDA_H
#include <cuda.h>
#endif

/* cuda.h: CUresult, CUpointer_attribute, CUmemorytype. */
enum {
    CUDA_OK = 0,
    ATTRIBUTE_CONTEXT = 1,
    ATTRIBUTE_MEMORY_TYPE = 2,
    ATTRIBUTE_IS_MANAGED = 8,
    ATTRIBUTE_ORDINAL = 9,
    TYPE_DEVICE = 2,
};
typedef uint64_t cu_pointer_t; /* CUdeviceptr */
#ifdef HAVE_CUDA_H
_Static_assert((int)CUDA_OK == (int)CUDA_SUCCESS &&
                   (int)ATTRIBUTE_CONTEXT == (int)CU_POINTER_ATTRIBUTE_CONTEXT &&
                   (int)ATTRIBUTE_MEMORY_TYPE ==
                       (int)CU_POINTER_ATTRIBUTE_MEMORY_TYPE &&
                   (int)ATTRIBUTE_IS_MANAGED ==
                       (int)CU_POINTER_ATTRIBUTE_IS_MANAGED &&
                   (int)ATTRIBUTE_ORDINAL ==
                       (int)CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL &&
                   (int)TYPE_DEVICE == (int)CU_MEMORYTYPE_DEVICE &&
                   sizeof(cu_pointer_t) == sizeof(CUdeviceptr),
               "numbers are those of the driver");
#endif

struct device {
    void *handle;
    int (*attribute)(void *data, int attribute, cu_pointer_t p);
    int (*push)(void *context);
    int (*pop)(void **ret_context);
    int (*synchronize)(void);
    int (*retain_primary)(void **ret_context, int device);
    int (*release_primary)(int device);
    int (*device_get)(int *ret_device, int ordinal);
    int (*to_host)(void *to, cu_pointer_t from, size_t len);
    int (*to_device)(cu_pointer_t to, const void *from, size_t len);
    int (*name)(int result, const char **ret_name);
};

static struct device *open_driver(void)
{
    struct device *d = calloc(1, sizeof(*d));

    if (!d) {
        return NULL;
    }
    d->handle = dlopen("libcuda.so.1", RTLD_NOLOAD | RTLD_NOW | RTLD_LOCAL);
    if (d->handle && symbol_find(d->handle, "cuPointerGetAttribute", &d->attribute) &&
        symbol_find(d->handle, "cuCtxPushCurrent_v2", &d->push) &&
        symbol_find(d->handle, "cuCtxPopCurrent_v2", &d->pop) &&
        symbol_find(d->handle, "cuCtxSynchronize", &d->synchronize) &&
        symbol_find(d->handle, "cuDevicePrimaryCtxRetain", &d->retain_primary) &&
        symbol_find(d->handle, "cuDevicePrimaryCtxRelease_v2", &d->release_primary) &&
        symbol_find(d->handle, "cuDeviceGet", &d->device_get) &&
        symbol_find(d->handle, "cuMemcpyDtoH_v2", &d->to_host) &&
        symbol_find(d->handle, "cuMemcpyHtoD_v2", &d->to_device) &&
        symbol_find(d->handle, "cuGetErrorName", &d->name)) {
        return d;
    }
    if (d->handle) {
        dlclose(d->handle);
    }
    free(d);
    return NULL;
}

void device_finder_release(struct device_finder *f)
{
    if (f->found) {
        dlclose(f->found->handle);
        free(f->found);
    }
    *f = (struct device_finder){0};
}

static int count_loaded(struct dl_phdr_info *info, size_t size, void *arg)
{
    (void)size;
    *(unsigned long long *)arg = info->dlpi_adds;
    return 1; /* the count is the same for each */
}

/* Looking for a library takes as long as registering a tensor does; whether one was
 * loaded since is known at once. */
static void find(struct device_finder *f)
{
    unsigned long long n = 0;

    dl_iterate_phdr(count_loaded, &n);
    if (!f->found && n != f->n_loaded) {
        f->n_loaded = n;
        f->found = open_driver();
    }
}

const struct device *device_of(struct device_finder *f, const void *p)
{
    unsigned type = 0, is_managed = 0;
    cu_pointer_t at = (cu_pointer_t)(uintptr_t)p;

    if (!p) {
        return NULL;
    }
    find(f);
    /* Of memory that it does not know the driver says that the value is invalid. */
    if (!f->found ||
        f->found->attribute(&type, ATTRIBUTE_MEMORY_TYPE, at) != CUDA_OK ||
        type != TYPE_DEVICE ||
        (f->found->attribute(&is_managed, ATTRIBUTE_IS_MANAGED, at) == CUDA_OK &&
         is_managed)) {
        return NULL;
    }
    return f->found;
}

static int fail(const struct device *d, int result, const char *what,
                struct error *e)
{
    const char *name = NULL;

    if (d->name(result, &name) != CUDA_OK || !name) {
        name = "unknown";
    }
    return error_text(e, EREMOTEIO, "%s: the driver says %d (%.60s)", what, result, name);
}

struct visit {
    void *context;
    int retained; /* device whose context it is, or -1 */
};

/* Memory that was mapped into place (as that of a pool) belongs to no one context: that
 * of its device does, which every program of the runtime API has. */
static int find_context(const struct device *d, const void *p, struct visit *v,
                        struct error *e)
{
    cu_pointer_t at = (cu_pointer_t)(uintptr_t)p;
    int ordinal = 0, device = 0;
    int rc = d->attribute(&v->context, ATTRIBUTE_CONTEXT, at);

    v->retained = -1;
    if (rc != CUDA_OK || !v->context) {
        rc = d->attribute(&ordinal, ATTRIBUTE_ORDINAL, at);
        rc = rc == CUDA_OK ? d->device_get(&device, ordinal) : rc;
        rc = rc == CUDA_OK ? d->retain_primary(&v->context, device) : rc;
        v->retained = rc == CUDA_OK ? device : -1;
    }
    return rc == CUDA_OK ? 0 : fail(d, rc, "find the GPU's context", e);
}

static void forget(const struct device *d, const struct visit *v)
{
    if (v->retained >= 0) {
        d->release_primary(v->retained);
    }
}

static int enter(const struct device *d, struct visit *v, struct error *e)
{
    int rc = d->push(v->context);

    if (rc != CUDA_OK) {
        forget(d, v);
        return fail(d, rc, "enter the GPU's context", e);
    }
    return 0;
}

/* `rc` is the driver's. */
static int leave(const struct device *d, const struct visit *v, int rc,
                 const char *what, struct error *e)
{
    void *ours;

    d->pop(&ours);
    forget(d, v);
    return rc == CUDA_OK ? 0 : fail(d, rc, what, e);
}

int device_settle(const struct device *d, const void *p, void **last,
                  struct error *e)
{
    struct visit v = {0};
    int rc = find_context(d, p, &v, e);

    if (rc == 0 && *last == v.context) {
        forget(d, &v);
        return 0;
    }
    rc = rc < 0 ? rc : enter(d, &v, e);
    if (rc == 0) {
        *last = v.context;
        rc = leave(d, &v, d->synchronize(), "wait for the GPU", e);
    }
    return rc;
}

int device_get(const struct device *d, void *to, const void *from, size_t len,
               struct error *e)
{
    struct visit v = {0};
    int rc = len > 0 ? find_context(d, from, &v, e) : 0;

    if (rc < 0 || len == 0) {
        return rc;
    }
    rc = enter(d, &v, e);
    return rc < 0 ? rc : leave(d, &v, d->to_host(to, (uintptr_t)from, len),
                               "copy from the GPU", e);
}

int device_put(const struct device *d, void *to, const void *from, size_t len,
               struct error *e)
{
    struct visit v = {0};
    int rc = len > 0 ? find_context(d, to, &v, e) : 0;

    if (rc < 0 || len == 0) {
        return rc;
    }
    rc = enter(d, &v, e);
    return rc < 0 ? rc : leave(d, &v, d->to_device((uintptr_t)to, from, len),
                               "copy to the GPU", e);
}
