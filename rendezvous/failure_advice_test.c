/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "base/cleanup.h"
#include "base/str.h"
#include "rendezvous/failure.h"
#include "tests/lib/tap.h"

static const struct {
    const char *name;
    enum failure_kind kind;
    const char *what, *text;
    const char *want; /* part of the advice; NULL: none */
} cases[] = {
    {"PyTorch's own exception", FAILURE_EXIT,
     "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB.",
     "", "a smaller batch, gradient checkpointing, DeepSpeed ZeRO-3"},
    {"its older name", FAILURE_EXIT,
     "torch.cuda.OutOfMemoryError: CUDA out of memory.", "", "of the GPU"},
    {"the driver's", FAILURE_EXIT, "RuntimeError: CUDA error: out of memory",
     "", "of the GPU"},
    {"a library's", FAILURE_SAID, "RuntimeError: CUDA error: "
     "CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`", "",
     "of the GPU"},
    {"on AMD", FAILURE_EXIT, "torch.OutOfMemoryError: HIP out of memory.", "",
     "of the GPU"},
    {"JAX", FAILURE_EXIT, "jaxlib.xla_extension.XlaRuntimeError: "
     "RESOURCE_EXHAUSTED: Out of memory while trying to allocate", "",
     "of the GPU"},
    {"NCCL, whose log has the reason", FAILURE_EXIT,
     "torch.distributed.DistBackendError: NCCL error in: x.cpp:1, unhandled "
     "cuda error", "n1:7:7 [0] NCCL WARN Cuda failure 2 'out of memory'\n",
     "of the GPU"},
    {"NCCL for another reason", FAILURE_EXIT,
     "torch.distributed.DistBackendError: NCCL error in: x.cpp:1",
     "n1:7:7 [0] NCCL WARN Cuda failure 'invalid argument'\n", NULL},
    {"killed by a signal, after it was printed", FAILURE_SIGNAL, "",
     "step 4\nCUDA out of memory. Tried to allocate\n", "of the GPU"},
    {"got over, and failed for another reason", FAILURE_EXIT,
     "ValueError: loss is nan", "CUDA out of memory, with half the batch now\n",
     NULL},
    {"host memory that Python could not have", FAILURE_EXIT, "MemoryError", "",
     NULL},
    {"a process that loads data, killed by the kernel", FAILURE_EXIT,
     "RuntimeError: DataLoader worker (pid 7) is killed by signal: Killed. ",
     "", "that loads data was killed"},
    {"the same, told by the next exception", FAILURE_EXIT,
     "RuntimeError: DataLoader worker (pid(s) 7) exited unexpectedly",
     "RuntimeError: DataLoader worker (pid 7) is killed by signal: Killed. \n",
     "that loads data was killed"},
    {"one that ended by itself", FAILURE_EXIT,
     "RuntimeError: DataLoader worker (pid(s) 7) exited unexpectedly", "", NULL},
    {"one that was got over, too", FAILURE_EXIT, "ValueError: loss is nan",
     "DataLoader worker (pid 7) is killed by signal: Killed.\n", NULL},
    {"one that was told to end", FAILURE_EXIT,
     "RuntimeError: DataLoader worker (pid 7) is killed by signal: Terminated. ",
     "", NULL},
    {"one without shared memory", FAILURE_EXIT,
     "RuntimeError: DataLoader worker (pid 7) is killed by signal: Bus error. "
     "It is possible that dataloader's workers are out of shared memory.", "",
     "/dev/shm was full"},
    {"its last words", FAILURE_SIGNAL, "", "ERROR: Unexpected bus error "
     "encountered in worker. This might be caused by insufficient shared "
     "memory (shm).\n", "medium: Memory"},
    {"one that was got over", FAILURE_EXIT, "ValueError: loss is nan",
     "insufficient shared memory (shm)\n", NULL},
    {"what the program that did not start is called", FAILURE_EXEC, "",
     "is killed by signal: Killed", NULL},
    {"the kernel", FAILURE_OOM, "", "step 4\n", "of the host"},
    {"a program of that name", FAILURE_EXEC, "", "CUDA out of memory", NULL},
    {"another failure", FAILURE_EXIT, "KeyError: 'x'", "step 4\n", NULL},
};

int main(void)
{
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        struct failure f = {.kind = cases[i].kind};
        const char *got;

        str_copy(f.what, sizeof(f.what), cases[i].what);
        str_copy(f.text, sizeof(f.text), cases[i].text);
        got = failure_advice(&f);
        if (cases[i].want) {
            like(got ? got : "", cases[i].want, "%s", cases[i].name);
        } else {
            ok(!got, "%s: no advice", cases[i].name);
        }
    }
    return tap_done();
}
