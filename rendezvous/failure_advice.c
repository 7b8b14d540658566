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
 * got over: that counts where it said nothing else, or blames NCCL, whose
 * exceptions leave the reason in its log. */
static bool lacked_gpu_memory(const struct failure *f)
{
    if (has_any(f->what, gpu_memory, ARRAY_SIZE(gpu_memory))) {
        return true;
    }
    if (strstr(f->what, "NCCL") && strstr(f->text, "Cuda failure") &&
        strstr(f->text, "'out of memory'")) {
        return true;
    }
    return !f->what[0] && has_any(f->text, gpu_memory, ARRAY_SIZE(gpu_memory));
}

const char *failure_advice(const struct failure *f)
{
    if (f->kind == FAILURE_OOM) {
        return "the memory of the host, or what its job or pod may have, was "
               "full: ask for more, or use fewer data loaders, fewer processes "
               "on the node, or a smaller batch";
    }
    if (f->kind != FAILURE_EXEC && f->kind != FAILURE_AGENT &&
        lacked_gpu_memory(f)) {
        return "the memory of the GPU was full: use a smaller batch, gradient "
               "checkpointing, DeepSpeed ZeRO-3 or FSDP, or QLoRA instead of "
               "LoRA; `muster nodes` shows what else is on the GPUs";
    }
    return NULL;
}
