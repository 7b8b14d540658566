/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What muster-stacks has printed. faulthandler names the thread that got the
 * signal "Current thread", most recent call first; gdb ends with "Thread 1 ",
 * eu-stack begins with the first TID.
 */
#include <config.h>

#include "launcher/stacks.h"

#include "base/cleanup.h"
#include "base/str.h"

#include <stdio.h>
#include <string.h>

/* Python's innermost frame is in one of these files where a rank waits. */
static const char *const python_waits[] = {
    "/torch/distributed/", "/torch/autograd/graph.py",
    "/torch/autograd/__init__.py", "/torch/cuda/", "/muster/_barrier.py",
    "/muster/_store.py", "/horovod/", "/jax/", "/jaxlib/", "/mpi4py/",
};

/* And one of these is in the stack of the first thread. */
static const char *const native_waits[] = {
    "c10d::", "gloo::", "ncclGroup", "ncclComm", "PMPI_", "ompi_", "MPI_",
    "muster_allreduce", "muster_broadcast", "muster_barrier",
    "cudaStreamSynchronize", "cuStreamSynchronize", "cuEventSynchronize",
};

struct block {
    const char *at;
    size_t len;
};

/* From a line that starts with `head` to the next empty one, or the next of the
 * lines that part blocks. */
static struct block find_block(const char *text, const char *head,
                               const char *next)
{
    const char *at = text;
    const char *end;

    while (at && !str_starts(at, head)) {
        at = strchr(at, '\n');
        at = at ? at + 1 : NULL;
    }
    if (!at) {
        return (struct block){0};
    }
    for (end = strchr(at, '\n'); end; end = strchr(end + 1, '\n')) {
        if (end[1] == '\n' || str_starts(end + 1, "-- ") ||
            str_starts(end + 1, "== ") || str_starts(end + 1, next)) {
            break;
        }
    }
    return (struct block){at, end ? (size_t)(end + 1 - at) : strlen(at)};
}

static struct block python_block(const char *text)
{
    return find_block(text, "Current thread ", "Thread ");
}

static struct block native_block(const char *text)
{
    struct block b = find_block(text, "Thread 1 ", "Thread ");

    return b.len ? b : find_block(text, "TID ", "TID ");
}

static bool has_any(struct block b, const char *const *words, size_t n)
{
    for (size_t i = 0; b.len && i < n; i++) {
        if (memmem(b.at, b.len, words[i], strlen(words[i]))) {
            return true;
        }
    }
    return false;
}

/* The line behind the head. */
static struct block innermost(struct block b)
{
    const char *line = memchr(b.at, '\n', b.len);
    const char *end = line ? memchr(line + 1, '\n',
                                    b.len - (size_t)(line + 1 - b.at)) : NULL;

    return end ? (struct block){line + 1, (size_t)(end - line - 1)}
               : (struct block){0};
}

enum hang_wait stacks_wait(const char *text)
{
    struct block python = python_block(text), native = native_block(text);

    if (python.len &&
        has_any(innermost(python), python_waits, ARRAY_SIZE(python_waits))) {
        return HANG_WAIT_YES;
    }
    if (native.len && has_any(native, native_waits, ARRAY_SIZE(native_waits))) {
        return HANG_WAIT_YES;
    }
    return python.len || native.len ? HANG_WAIT_NO : HANG_WAIT_UNKNOWN;
}

void stacks_excerpt(const char *text, char *to, size_t size)
{
    struct block b = python_block(text);

    b = b.len ? b : native_block(text);
    snprintf(to, size, "%.*s", (int)(b.len < size ? b.len : size - 1),
             b.len ? b.at : "");
}
