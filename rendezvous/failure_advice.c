/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "rendezvous/failure.h"

#include "base/cleanup.h"

#include <string.h>

/* The words of PyTorch (allocator, driver and libraries), of JAX, and of NCCL
 * where a call of the driver failed. */
static const char *const gpu_memory[] = {
    "CUDA out of memory",
    "HIP out of memory",
    "XPU out of memory",
    "OutOfMemoryError",
    "CUDA error: out of memory",
    "HIP error: out of memory",
    "cudaErrorMemoryAllocation",
    "CUBLAS_STATUS_ALLOC_FAILED",
    "CUDNN_STATUS_ALLOC_FAILED",
    "RESOURCE_EXHAUSTED: Out of memory",
};

/* PyTorch of a process that loads data: the kernel may kill that instead of the
 * worker, which then fails by itself. */
static const char *const loader_killed[] = {
    "is killed by signal: Killed",
};

static const char *const shared_memory[] = {
    "insufficient shared memory (shm)",
    "workers are out of shared memory",
};

static bool has_any(const char *text, const char *const *words, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        if (strstr(text, words[i])) {
            return true;
        }
    }
    return false;
}

/* What the worker said of its end counts. Of what it printed before, it may have
 * got over: that counts where it said nothing else. */
static bool says_any(const struct failure *f, const char *const *words, size_t n)
{
    return has_any(f->what[0] ? f->what : f->text, words, n);
}

/* Its exception may say no more than that the process "exited unexpectedly", and
 * the one before why. */
static bool says_of_loader(const struct failure *f, const char *const *words,
                           size_t n)
{
    return says_any(f, words, n) ||
           (strstr(f->what, "DataLoader worker") && has_any(f->text, words, n));
}

/* Exceptions that blame NCCL leave the reason in its log. */
static bool lacked_gpu_memory(const struct failure *f)
{
    if (strstr(f->what, "NCCL") && strstr(f->text, "Cuda failure") &&
        strstr(f->text, "'out of memory'")) {
        return true;
    }
    return says_any(f, gpu_memory, ARRAY_SIZE(gpu_memory));
}

const char *failure_advice(const struct failure *f)
{
    bool is_own = f->kind != FAILURE_EXEC && f->kind != FAILURE_AGENT;

    if (f->kind == FAILURE_OOM) {
        return "the memory of the host, or what its job or pod may have, was "
               "full: ask for more, or use fewer data loaders, fewer processes "
               "on the node, or a smaller batch";
    }
    if (is_own && says_of_loader(f, loader_killed, ARRAY_SIZE(loader_killed))) {
        return "a process that loads data was killed, as the kernel does where "
               "memory does not suffice: ask for more, or use fewer data "
               "loaders";
    }
    if (is_own && says_of_loader(f, shared_memory, ARRAY_SIZE(shared_memory))) {
        return "/dev/shm was full: a pod has 64 MB there unless a volume "
               "(emptyDir, medium: Memory) is mounted at it; or use fewer data "
               "loaders";
    }
    if (is_own && lacked_gpu_memory(f)) {
        return "the memory of the GPU was full: use a smaller batch, gradient "
               "checkpointing, DeepSpeed ZeRO-3 or FSDP, or QLoRA instead of "
               "LoRA; `muster nodes` shows what else is on the GPUs";
    }
    return NULL;
}
