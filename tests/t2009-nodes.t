#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# muster nodes: hosts with what they have, who uses it, and those that do not
# answer. The driver's library is one of our own, with three GPUs.
. "${MUSTER_SRCDIR:-$(dirname "$0")/..}/tests/lib/harness.sh"
need_muster
need_command cc mpirun

# GPU 0 is used by the process in the file $GPU_PID, 1 by nobody, 2 by somebody
# who does not show.
cat >nvml.c <<'E2'
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>
struct memory { unsigned version; unsigned long long total, reserved, free, used; };
struct process { unsigned pid; unsigned long long used; unsigned gi, ci; };
int nvmlInit_v2(void) { if (getenv("NVML_HANGS")) pause(); return 0; }
int nvmlShutdown(void) { return 0; }
int nvmlDeviceGetCount_v2(unsigned *n) { *n = 3; return 0; }
int nvmlDeviceGetHandleByIndex_v2(unsigned i, void **d) { *d = (char *)0 + i + 1; return 0; }
int nvmlDeviceGetUUID(void *d, char *to, unsigned n) { snprintf(to, n, "GPU-%d", (int)((char *)d - (char *)1)); return 0; }
int nvmlDeviceGetName(void *d, char *to, unsigned n) { snprintf(to, n, "Toy"); return 0; }
int nvmlDeviceGetMemoryInfo_v2(void *d, struct memory *m)
{
    if (m->version != (sizeof(*m) | 2u << 24)) return 2;
    m->total = 8ull << 30;
    m->used = d == (void *)2 ? 4 << 20 : 1 << 30;
    return 0;
}
int nvmlDeviceGetComputeRunningProcesses_v3(void *d, unsigned *n, struct process *p)
{
    FILE *f = fopen(getenv("GPU_PID"), "r");
    *n = d == (void *)1 && f && fscanf(f, "%u", &p->pid) == 1;
    return 0;
}
E2
cc -shared -fPIC -o libnvidia-ml.so.1 nvml.c 2>cc.err || bail_out "$(cat cc.err)"
export LD_LIBRARY_PATH=$TRASH${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH} GPU_PID=$TRASH/gpu_pid

# A remote shell for hosts that are this machine under other names.
cat >remote <<'E2'
#!/bin/bash
host=$1
shift
case $host in
n1 | n2) exec sh -c "$*" ;;
chatty) echo "welcome to {chatty}" && exec sh -c "$*" ;;
bare) sh -c "nosuchprogram $*" ;;
silent) exec sleep 600 ;;
*) echo "ssh: no route to $host" >&2 && exit 255 ;;
esac
E2
chmod +x remote
nodes() { run "$MUSTER" nodes --ssh "$TRASH/remote" "$@"; }
root_option=
[ "$(id -u)" != 0 ] || root_option=--allow-run-as-root

test_here() {
    run env -u SLURM_JOB_ID -u SLURM_JOB_NODELIST "$MUSTER" nodes -o json
    is "$status" 0 'this machine' || show
    is "$(json 0.host out):$(json 0.state out)" "$(hostname):Up" 'is known by its name'
    num "$(json 0.cpus out)" -ge 1 'its CPUs'
    num "$(json 0.memory_bytes out)" -gt "$(json 0.memory_free_bytes out)" 'and memory'
    is "$(json 0.gpus_free out):$(json 0.gpus.0.name out):$(json 0.gpus.2.taken out)" 1:Toy:true 'and GPUs'
    nodes
    matches "$(cat out)" "Up .* 3 +1 " 'in a table: three, one free'
    nodes -o wide
    matches "$(cat out)" "  1 +Toy +8.0/8.0 GiB +-" 'each GPU, in a wide one'
    matches "$(cat out)" "  2 +Toy +7.0/8.0 GiB +somebody" 'with who uses it'
}

test_runs() {
    local id pid
    spawn used "$MUSTER" run $root_option --name used --nproc-per-node 2 -- sleep 600
    pid=$spawned
    ok 'a run' wait_for 60 eval '[ "$("$MUSTER" status used -o json 2>/dev/null | json workers.1.state)" = Running ]'
    id=$("$MUSTER" status used -o json | json id)
    "$MUSTER" status used -o json | json workers.0.pid >gpu_pid
    nodes -o json
    is "$(json 0.runs.0.id out):$(json 0.runs.0.n_workers out)" "$id:2" 'is shown with its workers' || show
    is "$(json 0.gpus.0.run out)" "$id" 'and the GPU that it uses'
    nodes -o wide
    like "$(cat out)" "used $id (2)" 'in tables too'
    "$MUSTER" cancel used >/dev/null
    wait_exit 60 "$pid"
    nodes
    unlike "$(cat out)" "$id" 'and not any more when it is over'
    nodes -o wide
    like "$(cat out)" "pid $(cat gpu_pid)" 'others that use a GPU are shown by pid'
    rm gpu_pid
}

test_hosts() {
    nodes -H n1,chatty,n2 -o json
    is "$status" 0 'several hosts' || show
    is "$(json 0.name out),$(json 1.name out),$(json 2.name out)" n1,chatty,n2 'in the order that was given'
    is "$(json 1.state out)" Up 'whatever a shell says first'
    printf 'n1\n# none\nn2 slots=4\n' >hosts
    nodes --hostfile hosts
    is "$(grep -c ' Up ' out)" 2 'of a file'
    is "$(awk '{ print $1 ":" $3 }' out | tr '\n' ' ')" 'HOST:SLOTS n1:- n2:4 ' 'with the slots that it gives' || show
    SLURM_JOB_NODELIST='n[1-2],chatty' SLURM_TASKS_PER_NODE='6(x2),1' nodes -H n2,chatty:3 -o json
    is "$(json 0.slots out),$(json 1.slots out)" 6,3 'or Slurm, where the list gives none' || show
    nodes -H n1:many
    is "$status" 2 'what is no number is refused'
    like "$(cat err)" "'many' is not a number of slots" 'and told' || show
    nodes -H n1,gone,bare
    is "$status" 1 'one that does not answer counts'
    matches "$(cat out)" 'gone +Unknown .*no route to gone' 'and why is told'
    matches "$(cat out)" 'bare +Unknown .*not installed' 'so is one without muster'
    matches "$(cat out)" 'n1 +Up' 'the others are shown'
}

test_bounded() {
    nodes -H n1,silent -t 2
    matches "$(cat out)" 'silent +Unknown .*no answer within 2 s' 'a silent host is not waited for'
    matches "$(cat out)" 'n1 +Up' 'nor are others lost to it'
    NVML_HANGS=1 nodes -t 2
    like "$(cat out)" 'no answer within 2 s' 'a driver that hangs is one as well'
}

test_bad_usage() {
    nodes --hostfile nothing
    is "$status" 2 'a file that is not there'
    nodes -H a,a
    is "$status" 2 'a host twice'
    nodes -t 0
    is "$status" 2 'no time at all'
    nodes extra
    is "$status" 2 'a word too many'
}

run_cases
