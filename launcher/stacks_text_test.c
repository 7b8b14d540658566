/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "base/cleanup.h"
#include "launcher/stacks.h"
#include "tests/lib/tap.h"

#include <string.h>

#define PYTHON(frame) \
    "== process 7 (python3), state S\n" \
    "-- Python\n" \
    "Thread 0x00007f01 (most recent call first):\n" \
    "  File \"/x/torch/distributed/distributed_c10d.py\", line 1 in watch\n" \
    "\n" \
    "Current thread 0x00007f02 (most recent call first):\n" \
    "  File \"" frame "\", line 12 in f\n" \
    "  File \"train.py\", line 30 in <module>\n" \
    "wchan: futex_wait\n"

#define GDB(frame) \
    "-- native, by gdb\n[New LWP 9]\n\n" \
    "Thread 2 (Thread 0x1 (LWP 9)):\n#0  gloo::transport::loop ()\n\n" \
    "Thread 1 (Thread 0x2 (LWP 7)):\n#0  read ()\n#1  " frame " ()\n" \
    "[Inferior 1 (process 7) detached]\n== end\n"

static const struct {
    const char *name, *text;
    enum hang_wait wait;
    const char *excerpt; /* part of it */
} cases[] = {
    {"nothing", "", HANG_WAIT_UNKNOWN, ""},
    {"nothing but words", "== process 7 (sh)\nwchan: do_wait\n== end\n",
     HANG_WAIT_UNKNOWN, ""},
    {"a script", PYTHON("train.py"), HANG_WAIT_NO, "\"train.py\", line 12"},
    {"a collective of torch", PYTHON("/x/torch/distributed/c10d.py"),
     HANG_WAIT_YES, "c10d.py"},
    {"a backward pass", PYTHON("/x/torch/autograd/graph.py"), HANG_WAIT_YES,
     "graph.py"},
    {"a barrier of ours", PYTHON("/y/muster/_barrier.py"), HANG_WAIT_YES,
     "_barrier.py"},
    {"Python at work, gloo below", PYTHON("train.py") GDB("c10d::Work::wait"),
     HANG_WAIT_YES, "train.py"},
    {"C at work", GDB("main"), HANG_WAIT_NO, "#1  main"},
    {"C in MPI", GDB("PMPI_Allreduce"), HANG_WAIT_YES, "PMPI_Allreduce"},
    {"by eu-stack", "-- native, by eu-stack\nPID 7 - process\nTID 7:\n"
     "#0  0x1 poll\n#1  0x2 ompi_sync_wait\nTID 8:\n#0  0x3 x\n== end\n",
     HANG_WAIT_YES, "ompi_sync_wait"},
    {"another thread by eu-stack", "TID 7:\n#0  0x1 main\nTID 8:\n"
     "#0  0x3 ompi_progress\n", HANG_WAIT_NO, "main"},
    {"cut short", "Current thread 0x1 (most recent", HANG_WAIT_NO,
     "Current thread 0x1"},
};

int main(void)
{
    char got[4096];
    char small[16];

    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        is_int(stacks_wait(cases[i].text), cases[i].wait, "%s",
               cases[i].name);
        stacks_excerpt(cases[i].text, got, sizeof(got));
        if (cases[i].excerpt[0]) {
            like(got, cases[i].excerpt, "%s: what is shown", cases[i].name);
        } else {
            is_str(got, "", "%s: nothing to show", cases[i].name);
        }
        ok(!strstr(got, "== ") && !strstr(got, "Thread 2") &&
           !strstr(got, "TID 8"), "%s: nothing else", cases[i].name);
    }
    stacks_excerpt(cases[2].text, small, sizeof(small));
    is_str(small, "Current thread ", "cut to fit");
    return tap_done();
}
