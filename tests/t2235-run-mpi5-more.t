#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Runs over hosts with Open MPI 5 that are suspended, told of their end, or hang; and an
# unmodified PyTorch script that loses a worker and a host.
. "${MUSTER_SRCDIR:-$(dirname "$0")/..}/tests/lib/harness.sh"
need_muster
need_command python3
need_torch
# The Python here has PyTorch, the one there is another: what it consists of is shown to
# the hosts, at the same places but for the program.
ask() { "$TORCH_PYTHON" -c "import importlib.util, os, sys, sysconfig; print($1)"; }
rig_mpi5_up --keep "$(ask 'sysconfig.get_path("stdlib")')"
cp "$(readlink -f "$(ask 'getattr(sys, "_base_executable", sys.executable)')")" "$SHARED/python3"
cat >"$SHARED/torch-python" <<END
#!/bin/sh
export TORCHINDUCTOR_CACHE_DIR=$SHARED/inductor # else it leaves a directory in /tmp
PYTHONPATH=$(ask 'os.path.dirname(os.path.dirname(importlib.util.find_spec("torch").origin))'):\$PYTHONPATH \\
    exec $SHARED/python3 "\$@"
END
chmod +x "$SHARED/torch-python"
. "$MUSTER_SRCDIR/tests/lib/hosts-run.sh"
export PYTHONPATH=$MUSTER_SRCDIR/python
front_on=node4

test_suspend() {
    local step
    start_run 4 --nnodes 4 -- "$charlm" "${small[@]}" --batch 8 --steps 1000000 --step-time 20 --checkpoint-every 10000000
    ok 'charlm over four hosts trains' wait_for 60 eval '[ "$(field step)" -ge 5 ]' || show_run
    run on node2 "$there/muster" suspend "$SHARED/run"
    is "$status" 0 'and is suspended' || show
    wait_exit 60 "$runner"
    is "$status:$(field state)" 75:Suspended 'which ends muster run' || show_run
    step=$(field resume_step)
    num "$step" -gt 0 'its workers have saved'
    nobody_left
    spawn run on node4 "$there/muster" resume $root run
    runner=$spawned
    ok 'muster resume goes on' wait_for 60 grep -q "resumed from step $step " run.out || show_run
    ok 'and is at work' wait_for 60 eval '[ "$(field step)" -gt '"$step"' ]' || show_run
    is "$(field generation):$(field starts)" 2:2 'in its next generation'
    kill -USR1 "$(inner_pid "$runner")"
    wait_exit 60 "$runner"
    is "$status:$(field state)" 75:Stopped 'SIGUSR1 tells of its end' || show_run
    num "$(field resume_step)" -gt "$step" 'further on'
    nobody_left
}

test_hang() {
    touch "$SHARED/others_go_on"
    start_run 4 --nnodes 4 --hang-timeout 3s --max-restarts 1 -- python3 "$MUSTER_SRCDIR/tests/py/hang_once.py" 2 spin report
    ended_well 'a worker that makes no progress is ended, and the next try is well'
    is "$(field restarts)" 1 'by a restart'
    matches "$(cat run.err)" 'rank 2 \(node 2, node3[^)]*\) hangs: no report' 'the one that is behind is named, with its host'
    is "$(ls run/errors | tr '\n' ' ')" '1-0.stack 1-1.stack 1-2.stack 1-3.stack ' 'all have left a stack'
    nobody_left
}

test_ddp() {
    on node1 "$SHARED/torch-python" -c 'import torch' 2>err || { skip_rig "PyTorch does not run there: $(tail -n 1 err)" 9; return; }
    export OMP_NUM_THREADS=1
    start_run 4 --nnodes 2:4 --max-restarts 1 --set heartbeat.timeout=5s --set restart.backoff=10ms..20ms -- \
        "$SHARED/torch-python" "$MUSTER_SRCDIR/examples/ddp.py" --steps 80 --step-time 0.2
    is $? 0 'a PyTorch script over four hosts'
    ok 'trains' wait_for 90 grep -q 'step 20 ' run.out || show_run
    kill -KILL $(pids_on node3 '^[^ ]*python3 .*ddp.py')
    ok 'goes on where a worker of it is killed' wait_for 90 grep -Eq 'world 4: from step (20|40) to 80' run.out || show_run
    wait_for 60 running 4
    lose_power node2
    ended_well 'and to its end over three when a host is switched off'
    matches "$(cat run.out)" 'world 3: from step [2468]0 to 80' 'from a checkpoint'
    like "$(cat run.out)" 'done: accuracy' 'with its result'
    is "$(field restarts),$(field node_failures)" 1,1 'by one restart and one loss'
    hosts power_on node2
    nobody_left
}

run_cases
