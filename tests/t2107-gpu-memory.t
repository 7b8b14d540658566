#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Memory of a GPU that outlives its process: workers do not start again before it is
# free, or has been waited for long enough. The driver's library is one of our own,
# and so is the device file that says that there is a GPU.
. "${MUSTER_SRCDIR:-$(dirname "$0")/..}/tests/lib/harness.sh"
need_muster
need_command cc mpirun unshare
unshare -m true 2>/dev/null || skip_rig 'no mount namespace, as the device files need'

# The GPU is used by the process in the file $GPU_PID, as long as that is there.
cat >nvml.c <<'E2'
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>
struct process { unsigned pid; unsigned long long used; unsigned gi, ci; };
int nvmlInit_v2(void) { if (access(getenv("GPU_HANGS"), F_OK) == 0) for (;;) pause(); return 0; }
int nvmlShutdown(void) { return 0; }
int nvmlDeviceGetCount_v2(unsigned *n) { *n = 1; return 0; }
int nvmlDeviceGetHandleByIndex_v2(unsigned i, void **d) { *d = (char *)0 + i + 1; return 0; }
int nvmlDeviceGetUUID(void *d, char *to, unsigned n) { (void)d; snprintf(to, n, "GPU-toy"); return 0; }
int nvmlDeviceGetName(void *d, char *to, unsigned n) { (void)d; snprintf(to, n, "Toy"); return 0; }
int nvmlDeviceGetComputeRunningProcesses_v3(void *d, unsigned *n, struct process *p)
{
    FILE *f = fopen(getenv("GPU_PID"), "r");
    (void)d;
    *n = f && fscanf(f, "%u", &p->pid) == 1;
    return 0;
}
E2
cc -shared -fPIC -o libnvidia-ml.so.1 nvml.c 2>cc.err || bail_out "$(cat cc.err)"
export LD_LIBRARY_PATH=$TRASH${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH} GPU_PID=$TRASH/gpu_pid GPU_HANGS=$TRASH/gpu_hangs

# with_gpu CMD...: with the device files of this machine, and one more.
cat >with_gpu <<'E2'
#!/bin/sh
mkdir -p "$TRASH/dev" && mount --rbind /dev "$TRASH/dev" && mount -t tmpfs -o mode=755 tmpfs /dev || exit 1
for f in "$TRASH"/dev/*; do
    to=/dev/${f##*/}
    if [ -L "$f" ]; then cp -P "$f" "$to"
    elif [ -d "$f" ]; then mkdir "$to" && mount --rbind "$f" "$to"
    elif [ -e "$f" ]; then : >"$to" && mount --bind "$f" "$to"
    fi || exit 1
done
[ -e /dev/nvidia0 ] || : >/dev/nvidia0
exec "$@"
E2
chmod +x with_gpu
export TRASH

field() { "$MUSTER" status run -o json 2>/dev/null | json "$1"; }
event() { grep -q "$1" run/events.jsonl; }
running() { [ "$(field state)" = Running ] && [ "$(field workers.0.state)" = Running ] && [ "$(field generation)" = "$1" ]; }
# The worker has the GPU, and is killed.
start_and_kill() {
    rm -rf run gpu_pid
    spawn run unshare -m ./with_gpu "$MUSTER" run --allow-run-as-root --run-dir run --nproc-per-node 1 --set restart.backoff=1ms..1ms -- \
        sh -c '[ $MUSTER_GENERATION = 1 ] || exit 0; echo $$ >$GPU_PID.new && mv $GPU_PID.new $GPU_PID; exec sleep 1000'
    wait_for 60 eval 'running 1 && [ -e gpu_pid ]'
    is $? 0 'a worker with a GPU' || diag "$(cat run.err)"
    touch "${1:-gpu_pid}"
    pid=$(cat gpu_pid)
    kill -KILL "$pid"
    wait_for 60 event worker_failed
}
asked() { pgrep -f "gpus-free .* $pid\$"; }
ended() {
    wait_exit 60 "$spawned"
    is "$status:$(field generation):$(field restarts)" 0:2:1 "$1" || diag "$(cat run.err)"
    ok 'nobody is left' wait_for 60 run_gone "$(json id run/run.json)"
    ok 'nor who asks for memory' not asked
}

test_freed() {
    start_and_kill
    ok 'that is killed, and whose memory is still there' wait_for 60 asked || diag "$(cat run.err)"
    not_ok 'is not started again' event '"generation_started","generation":2'
    rm gpu_pid
    ended 'before it is free'
    unlike "$(cat run.err)" 'holds memory' 'which is nothing to speak of'
}

test_held() {
    start_and_kill
    ended 'memory that does not get free is not waited for for ever'
    like "$(cat run.err)" "GPU 0 (GPU-toy) still holds memory of process $pid" 'which is said'
}

test_hangs() {
    start_and_kill gpu_hangs
    ended 'nor is a driver that does not answer'
    like "$(cat run.err)" 'does not say whether memory' 'which is said'
    rm gpu_hangs
}

run_cases
