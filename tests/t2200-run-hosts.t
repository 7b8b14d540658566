#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# A run over four hosts: started by ssh, trained across, and what is lost on the
# way: workers, agents, mpirun and its daemons, whole hosts.
. "${MUSTER_SRCDIR:-$(dirname "$0")/..}/tests/lib/harness.sh"
need_muster
need_command mpirun
rig_hosts_up
cd "$SHARED" || bail_out "no $SHARED"
charlm=$MUSTER_BUILDDIR/examples/charlm/charlm
four=node1,node2,node3,node4

# mrun HOST OPTION...: the front end on that host, the run in ./run.
mrun() {
    local from=$1
    shift
    cd "$SHARED" && rm -rf run
    run on "$from" timeout 200 "$MUSTER" run --allow-run-as-root --run-dir run "$@"
}
field() { "$MUSTER" status "$SHARED/run" -o json | json "$1"; }
nobody_left() { run_gone "$(json id "$SHARED/run/run.json")"; }

start_run() {
    local from=$1
    shift
    cd "$SHARED" && rm -rf run
    spawn run on "$from" "$MUSTER" run --allow-run-as-root --run-dir run "$@"
    runner=$spawned
    wait_for 60 running
}
running() { [ "$(field state 2>/dev/null)" = Running ] && [ "$(field workers.3.state)" = Running ]; }

event() { grep -q "$1" "$SHARED/run/events.jsonl"; }

test_four_hosts() {
    mrun node1 --hosts $four --nnodes 4 --nproc-per-node 2 -- sh -c 'echo $(hostname) $RANK $LOCAL_RANK $GROUP_RANK $MASTER_ADDR'
    is "$status" 0 'four hosts run a job' || show
    is "$(sed 's/^\[.*\] //' out | sort | cut -d ' ' -f 1-4 | tr '\n' ';')" \
        'node1 0 0 0;node1 1 1 0;node2 2 0 1;node2 3 1 1;node3 4 0 2;node3 5 1 2;node4 6 0 3;node4 7 1 3;' \
        'each two workers, numbered by hosts' || show
    is "$(sed 's/.* //' out | sort -u)" 10.77.0.1 'all told the same address' || show
    ok 'nobody is left' wait_for 60 nobody_left
}

# order FROM OPTION...: "node of rank 0, of rank 1, ..."
order() {
    mrun "$1" "${@:2}" --nproc-per-node 1 -- sh -c 'echo $RANK $(hostname)'
    [ "$status" = 0 ] || show
    sed 's/^\[.*\] //' out | sort -n | cut -d ' ' -f 2 | tr '\n' ' '
}
# A batch system may have made it for one host.
test_tmpdir() {
    on node1 mkdir -p /tmp/of-a-job
    cd "$SHARED" && rm -rf run
    run on node1 env TMPDIR=/tmp/of-a-job timeout 120 "$MUSTER" run --allow-run-as-root --run-dir run \
        --hosts node1,node2 --nnodes 2 --nproc-per-node 1 -- sh -c 'echo $TMPDIR; sleep 1'
    is "$status:$(sort -u out | tr '\n' ' ')" '0:[0] /tmp/of-a-job [1] /tmp/of-a-job ' 'a TMPDIR reaches all workers' || show
    like "$(cat err)" 'TMPDIR /tmp/of-a-job is not there on node2 (No such file or directory)' 'a host that lacks it is named' || show
    unlike "$(cat err)" 'not there on node1' 'but not one that has it'
    run on node1 timeout 120 "$MUSTER" run --allow-run-as-root --hosts node1,node2 --nnodes 2 --nproc-per-node 1 \
        --set env.TMPDIR=/proc/version -- true
    like "$(cat err)" 'TMPDIR /proc/version' 'one that the job sets counts' || show
    ok 'nobody is left' wait_for 60 nobody_left
}

test_order() {
    is "$(order node2 --hosts node1,node2 --nnodes 2)" 'node1 node2 ' 'ranks go by the list of hosts'
    is "$(order node2 --hosts node4,node3,node2,node1 --nnodes 4)" 'node4 node3 node2 node1 ' \
        'wherever the front end is in it'
    is "$(order node2 --hosts node3,node1 --nnodes 2)" 'node3 node1 ' 'or is not'
    printf '# a comment\n\nnode4 slots=2 max-slots=8\nnode2:2   # the front end\n' >"$SHARED/hosts.txt"
    is "$(order node2 --hostfile "$SHARED/hosts.txt" --nnodes 2)" 'node4 node2 ' 'a file of hosts, with slots'
    is "$(order node2 --hosts node3,node2 --nnodes 4 --agent-is-node --agents-per-node 2)" 'node3 node3 node2 node2 ' \
        'several agents a host'
    cd "$SHARED" && rm -rf 'a run' && run on node2 timeout 200 "$MUSTER" run --allow-run-as-root --run-dir 'a run' \
        --hosts node1,node2 --nnodes 2 -- true
    is "$status" 0 'a run directory with a blank' || show
}

# What a worker of another host finds is what muster run was started with, and not
# what sshd gives there.
test_surroundings() {
    cd "$SHARED" && mkdir -p 'far away' venv/bin
    printf '#!/bin/sh\necho the python of $VIRTUAL_ENV\n' >venv/bin/python
    printf 'pwd; umask; python; module load cuda; echo "ssh:$SSH_CONNECTION"; ulimit -n; ulimit -l; ulimit -s; cat' >look.sh
    chmod +x venv/bin/python
    cat >start.sh <<'END'
cd 'far away'
umask 027
ulimit -Sn 200
ulimit -Sl 16
export VIRTUAL_ENV=$OLDPWD/venv PATH=$OLDPWD/venv/bin:$PATH LOADEDMODULES=gcc/12
module() { echo "module $* beside $LOADEDMODULES"; }
export -f module
rm -rf ../run
exec "$MUSTER" run --allow-run-as-root --run-dir ../run --logs none --hosts node1,node2 --nnodes 2 --nproc-per-node 1 -- \
    bash "$OLDPWD/look.sh"
END
    run on node1 env MUSTER="$MUSTER" timeout 200 bash start.sh
    is "$status" 0 'a run from a directory of its own' || show
    is "$(head -n 5 run/logs/1/1/stdout)" "$SHARED/far away
0027
the python of $SHARED/venv
module load cuda beside gcc/12
ssh:" 'directory, umask, Python and modules are there on the other host' || diag "$(cat run/logs/1/1/std*)"
    is "$(cat run/logs/1/1/stdout)" "$(cat run/logs/1/0/stdout)" 'as on the first, limits as well' || diag "$(cat run/logs/1/1/std*)"
}

test_bad_hosts() {
    : >"$SHARED/empty"
    mrun node1 --hostfile "$SHARED/empty" -- true
    is "$status" 2 'a file without hosts' || show
    like "$(cat err)" "$SHARED/empty names no host" 'is named'
    mrun node1 --hosts node1,node2,node1 -- true
    is "$status" 2 'a host twice' || show
    like "$(cat err)" 'host node1 is given twice' 'is named'
    mrun node1 --hosts node1,node2,nowhere --nnodes 3 -- true
    is "$status" 69 'a host that is not there' || show
    like "$(cat err)" 'host nowhere' 'is named'
    hosts link_down node3
    mrun node1 --hosts node1,node3 --nnodes 2 --ssh "$BED/ssh" -- true
    hosts link_up node3
    is "$status" 69 'a host that does not answer' || show
    like "$(cat err)" 'host node3' 'is named'
}

test_nodes() {
    hosts link_down node4
    run on node1 "$MUSTER" nodes --hosts $four --timeout 20 --ssh "$BED/ssh" -o json
    hosts link_up node4
    is "$status" 1 'a host of four does not answer' || show
    is "$(json 0.host out),$(json 1.host out),$(json 2.host out)" node1,node2,node3 'the others tell what they have'
    is "$(json 3.name out),$(json 3.state out)" node4,Unknown 'of that one nothing is known'
    start_run node1 --hosts $four --nnodes 4 --nproc-per-node 1 -- sleep 600
    run on node1 "$MUSTER" nodes --hosts node2,node4 --ssh "$BED/ssh" -o json
    is "$(json 0.runs.0.id out),$(json 1.runs.0.n_workers out)" "$(json id run/run.json),1" 'a run is shown on each of its hosts' || show
    on node1 "$MUSTER" cancel run >/dev/null
    wait_exit 60 "$runner"
    ok 'nobody is left' wait_for 60 nobody_left
}

test_charlm() {
    mrun node1 --hosts $four --nnodes 4 --nproc-per-node 1 --max-restarts 0 -- "$charlm" --steps 20 --batch 8
    is "$status" 0 'charlm trains over four hosts' || show
    ok 'and leaves a checkpoint' eval 'ls run/ckpt/* >/dev/null'
    mrun node1 --hosts node1 --nnodes 1 --nproc-per-node 1 --max-restarts 0 -- "$charlm" --steps 0 --batch 8 --dump-gradients "$SHARED/one.grad"
    mrun node1 --hosts $four --nnodes 4 --nproc-per-node 1 --max-restarts 0 -- "$charlm" --steps 0 --batch 8 --dump-gradients "$SHARED/four.grad"
    ok 'its gradients are those of one process, to rounding' python3 "$MUSTER_SRCDIR/tests/py/same_gradients.py" "$SHARED/one.grad" "$SHARED/four.grad"
}

test_worker_dies() {
    start_run node1 --hosts $four --nnodes 4 --nproc-per-node 1 --max-restarts 2 -- \
        sh -c '[ $MUSTER_GENERATION = 2 ] && exit 0; exec sleep 1000'
    is $? 0 'a run'
    kill -KILL "$(pids_on node3 '^sleep 1000')"
    wait_exit 120 "$runner"
    is $? 0 'goes on after the loss of a worker'
    is "$status" 0 'to its end' || diag "$(cat run.err)"
    like "$(cat run.err)" 'node3' 'the host is named'
    like "$(cat run.err)" 'SIGKILL' 'and the signal'
    is "$(field restarts)" 1 'with one restart'
}

# The others wait in a collective for the one that dies: they must hear of it, and
# not sit in it until they are killed.
test_collective_fails() {
    start_run node1 --hosts $four --nnodes 4 --nproc-per-node 1 --max-restarts 0 --set limits.grace=300s -- \
        "$charlm" --steps 100000 --batch 8
    is $? 0 'charlm over four hosts'
    ok 'trains' wait_for 60 eval '[ "$(field step)" -ge 2 ]'
    kill -KILL "$(pids_on node3 '^[^ ]*charlm --steps 100000')"
    wait_exit 120 "$runner"
    is $? 0 'and ends when a worker is killed'
    is "$status" 137 'with its signal' || diag "$(cat run.err)"
    start_run node1 --hosts $four --nnodes 4 --nproc-per-node 1 --max-restarts 0 --set limits.grace=300s -- \
        sh -c "$charlm --steps 100000 --batch 8; exit 0"
    is $? 0 'charlm inside a shell that tells nothing'
    ok 'trains' wait_for 60 eval '[ "$(field step)" -ge 2 ]'
    kill -KILL "$(pids_on node3 '^[^ ]*charlm --steps 100000')"
    wait_exit 120 "$runner"
    is $? 0 'and does not hang either' || diag "$(cat run.err)"
}

# One host whose MPI library says that it is of another release.
test_other_mpi() {
    sanitized && { skip 'an instrumented program wants no library before its own' 3; return; }
    cat >"$SHARED/other.c" <<'END'
#include <string.h>
#include <unistd.h>
int MPI_Get_library_version(char *to, int *len)
{
    char host[64] = "";
    gethostname(host, sizeof(host) - 1);
    strcpy(to, strcmp(host, "node3") ? "Open MPI v4.1.4, package: a" : "Open MPI v4.1.6, package: b");
    *len = (int)strlen(to);
    return 0;
}
END
    gcc -shared -fPIC -o "$SHARED/other.so" "$SHARED/other.c" || bail_out 'no library'
    export OMPI_MCA_mca_base_env_list="LD_PRELOAD=$SHARED/other.so"
    mrun node1 --hosts $four --nnodes 4 --nproc-per-node 1 -- true
    unset OMPI_MCA_mca_base_env_list
    is "$status" 69 'hosts with different releases of MPI make no run' || show
    like "$(cat err)" 'node3 has Open MPI v4.1.6, the host of MPI rank 0 has Open MPI v4.1.4: all hosts need the same' \
        'which one differs is said' || show
    ok 'nobody is left' wait_for 60 nobody_left
}

test_mpirun_dies() {
    local before
    start_run node1 --hosts $four --nnodes 4 --nproc-per-node 1 -- sleep 1000
    is $? 0 'a run'
    before=$(field nodes | grep -o '"agent_pid": [0-9]*')
    kill -KILL $(pids_on node1 'mpirun .*muster-mpi')
    ok 'after the loss of mpirun the agents join a new MPI world' wait_for 60 event 'node4 is in a new MPI world'
    is "$(field nodes | grep -o '"agent_pid": [0-9]*')" "$before" 'they are the same agents'
    is "$(pids_on node3 '^sleep 1000' | wc -l)" 1 'with the same workers'
    kill -KILL $(pids_on node3 'orted|prted')
    ok 'and after the loss of a daemon another' wait_for 60 event '"epoch":3' || diag "$(cat run.err; tail -n 20 run/mpirun.log)"
    is "$(field generation)" 1 'still in their first generation'
    "$MUSTER" cancel run >/dev/null 2>&1 || kill -INT "$(inner_pid "$runner")"
    wait_exit 120 "$runner"
    is "$status" 130 'the run can be cancelled' || diag "$(cat run.err)"
    ok 'nobody is left' wait_for 60 nobody_left
}

test_agent_dies() {
    start_run node1 --hosts $four --nnodes 4 --nproc-per-node 1 -- sh -c 'setsid sleep 1000 & exec sleep 1000'
    is $? 0 'a run'
    kill -KILL $(pids_on node2 '^[^ ]*muster agent --dir')
    wait_exit 120 "$runner"
    is $? 0 'ends after the loss of an agent'
    is "$status" 75 'resumable' || diag "$(cat run.err)"
    like "$(cat run.err)" 'node2' 'the node is named'
    ok 'nobody is left' wait_for 60 nobody_left
}

test_host_dies() {
    start_run node1 --hosts $four --nnodes 4 --nproc-per-node 1 --set heartbeat.timeout=3s -- sleep 1000
    is $? 0 'a run'
    hosts power_off node4
    wait_exit 120 "$runner"
    is $? 0 'ends after the loss of a host'
    is "$status" 75 'resumable' || diag "$(cat run.err)"
    like "$(cat run.err)" 'node4' 'the host is named'
    ok 'nobody is left' wait_for 60 nobody_left
    hosts power_on node4
    start_run node2 --hosts node1,node3,node4 --nnodes 3 --nproc-per-node 2 \
        --set heartbeat.timeout=3s -- sleep 1000
    is $? 0 'a run led by another host'
    hosts power_off node1
    wait_exit 120 "$runner"
    is $? 0 'ends after the loss of the lead'
    is "$status" 75 'resumable' || diag "$(cat run.err)"
    like "$(cat run.err)" 'lead' 'the reason is named'
    ok 'nobody is left' wait_for 60 nobody_left
    hosts power_on node1
}

run_cases
