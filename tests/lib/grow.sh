# SPDX-License-Identifier: Apache-2.0
#
# Hosts that are wanted and not there: one that does not answer at the start, one that
# is switched off and comes back; and commands that want more or fewer of four. Sourced
# by a test for each MPI; needs what hosts-run.sh needs.
. "$MUSTER_SRCDIR/tests/lib/hosts-run.sh"
export PYTHONPATH=$MUSTER_SRCDIR/python

told() { ok "$1" wait_for 90 eval '[ "$(grep -c "'"$2"'" run.out)" -ge '"$3"' ]' || show_run; }

# start OPTION...: workers say where they are, save again and again, and end when there
# is a file "go".
start() {
    cd "$SHARED" && rm -rf run
    cat >work.py <<'END'
import os, socket, time, muster
run, g = os.environ["MUSTER_RUN_DIR"], os.environ["MUSTER_GENERATION"]
print(g, "has", muster.rank(), "of", os.environ["WORLD_SIZE"], "on", socket.gethostname(), flush=True)
print(g, "meets over", os.environ.get("GLOO_SOCKET_IFNAME"), os.environ.get("NCCL_SOCKET_IFNAME"), flush=True)
step = 1000 * int(g)
while not os.path.exists(run + "/go") and not muster.should_stop():
    step += 1
    if muster.rank() == 0 and step % 20 == 0 and not os.path.exists(run + "/still"):
        open("%s/ckpt/%d" % (run, step), "w").close()
        muster.checkpoint_saved("%s/ckpt/%d" % (run, step), step)
    time.sleep(0.05)
END
    spawn run on node1 timeout 250 "$there/muster" run $root --run-dir run --hosts $four \
        --nproc-per-node 1 --set elastic.growInterval=1s --set heartbeat.timeout=3s "$@" -- python3 work.py
    runner=$spawned
}
go_home() {
    : >run/go
    wait_exit 90 "$runner"
    is "$status" 0 'the run ends well' || show_run
    nobody_left
}

# One of the hosts is not there when the run starts, and one is spare.
test_absent() {
    lose_power node2
    start --nnodes 2:4
    told 'a run of two to four nodes starts on the three that answer' '1 has . of 3 on' 3
    like "$(cat run.err)" 'starting on 3 of 4 hosts: host node2: ' 'which is said'
    hosts power_on node2
    hosts link_up node2
    told 'the fourth comes in when it answers, after a checkpoint' ' of 4 on node2' 1
    ok 'as the fourth' wait_for 60 running 4
    is "$(field nodes.3.host):$(field restarts):$(field node_failures)" node2:0:0 'that counts in no budget'
    is "$(on node1 "$there/muster" shell "$SHARED/run" 3 -- hostname)" node2 'a shell is where its worker is'
    num "$(field resume_step)" -gt 1000 'and all go on from there'
    go_home
    like "$(cat run.err)" 'node2 can be reached: a new MPI world' 'an MPI world was made with it'
}

# gpus HOST N: it has so many, in a /dev of its own.
gpus() {
    on "$1" sh -ec '[ -L /dev/null ] || { mkdir -p "$0"; mount --rbind /dev "$0"; mount -t tmpfs tmpfs /dev; ln -s "$0"/* /dev; }
        rm -f /dev/nvidia?; for i in $(seq "$1"); do : >/dev/nvidia$i; done' "$BED/state/$1.dev" "$2"
}

# A host that has just booted may lack its driver.
test_misfit() {
    local host
    [ ! -e /dev/nvidia0 ] || { skip 'this machine has GPUs of its own' 10; return; }
    lose_power node2
    gpus node1 1
    gpus node3 1
    start --nnodes 2:3 --nproc-per-node gpu
    told 'a run on two hosts with GPUs' '1 has . of 2 on node[13]$' 2
    hosts power_on node2
    hosts link_up node2
    ok 'goes on without a third that has none' wait_for 90 \
        grep -q 'excluded node 2 (node2): node2: procsPerNode is gpu, but there is no GPU' run.err || show_run
    ok 'as is shown' wait_for 60 eval '[ "$(field nodes.2.state):$(field nodes.2.excluded)" = Excluded:misfit ]' || show_run
    is "$(field generation):$(field state)" 1:Running 'while nothing else happens'
    gpus node2 2
    ok 'nor with another number than all others' wait_for 120 \
        grep -q 'excluded node 3 (node2): node[13] would run 1 processes and node2 2: set procsPerNode' run.err || show_run
    gpus node2 1
    told 'it comes in once it fits' ' of 3 on node2$' 1
    is "$(field nodes.4.host):$(field restarts):$(field node_failures)" node2:0:0 'with a later agent, and in no budget'
    go_home
    for host in node1 node2 node3; do gpus $host 0; done
}

test_too_few() {
    hosts power_off node2
    start --nnodes 4
    wait_exit 60 "$runner"
    is "$status" 69 'a run that needs all four does not start' || show_run
    like "$(cat run.err)" 'host node2: ' 'and names the one that is missing'
    hosts power_on node2
    nothing_left
}

# outlives_its_lead N HOST...: who came to a run that had no node to spare makes it one that
# can do without its lead, as any other node.
outlives_its_lead() {
    local n=$1 all=$(($1 + $# - 1)) host
    shift
    for host in "$@"; do lose_power "$host"; done
    start --nnodes "$n:$all"
    told "a run that needs $n has no more" "1 has . of $n on" "$n"
    for host in "$@"; do
        hosts power_on "$host"
        hosts link_up "$host"
    done
    told "as all of $all are there" " has . of $all on" "$all"
    ok 'and run' wait_for 60 running "$all"
    : >run/still
    kill -KILL $(pids_on node1 '^[^ ]*muster agent --dir')
    told 'the lead is lost: the others go on' " has . of $((all - 1)) on node[234]$" $((all - 1))
    is "$(field lead):$(field node_failures):$(field restarts)" 1:1:0 'led by the next: one loss, and no restart'
    go_home
}
test_lead_of_two() { outlives_its_lead 2 node3 node4; }
test_lead_of_one() { outlives_its_lead 1 node2; }

# The network of nodes is that of the job also for a host that began alone.
test_interface() {
    lose_power node2
    start --nnodes 1:2 --interface eth0
    told 'alone it meets nobody over a network' '1 meets over None None' 1
    hosts power_on node2
    hosts link_up node2
    told 'as two are there both are told which it is' '2 meets over eth0 =eth0$' 2
    go_home
}

test_comes_back() {
    start --nnodes 2:4
    told 'four nodes' '1 has . of 4 on' 4
    ok 'run' wait_for 60 running 4
    lose_power node3
    told 'one is switched off: three go on' '2 has . of 3 on' 3
    : >run/still
    ok 'the others are asked for it' wait_for 60 grep -q '1 host is wanted and not there' run.err || show_run
    hosts power_on node3
    hosts link_up node3
    ok 'it comes back' wait_for 90 eval '[ "$(field nodes.4.host):$(field nodes.4.state)" = node3:Spare ]' || show_run
    is "$(field generation)" 2 'and waits while nothing is saved'
    rm run/still
    told 'until something is' '3 has . of 4 on' 4
    is "$(field restarts):$(field node_failures)" 0:1 'one loss, and no restart'
    go_home
}

# On the host of the front end, which nobody has to ask.
test_own_host() {
    start --nnodes 2:4
    told 'four nodes' '1 has . of 4 on' 4
    ok 'run' wait_for 60 running 4
    kill -KILL $(pids_on node1 '^[^ ]*muster agent --dir')
    told 'the agent beside the front end is lost: three go on' ' has . of 3 on node[234]$' 3
    told 'another one takes its place' ' has . of 4 on node1$' 2
    is "$(field nodes.4.host):$(field restarts):$(field node_failures)" node1:0:1 'one loss, and no restart'
    go_home
}

test_scale() {
    start --nnodes 1:4
    told 'four nodes' '1 has . of 4 on' 4
    ok 'run' wait_for 60 running 4
    run on node4 "$there/muster" scale "$SHARED/run" 2
    is "$status" 0 'from a host of the run' || show
    told 'two' '2 has . of 2 on node[12]$' 2
    run "$MUSTER" scale "$SHARED/run" 3
    is "$status" 0 'from another one, by file' || show
    told 'three' '3 has . of 3 on node[123]$' 3
    ok 'run' wait_for 60 running 3
    kill -KILL $(pids_on node4 '^[^ ]*muster agent --dir') $(pids_on node3 '^[^ ]*muster agent --dir')
    told 'two are lost: two go on' '[45] has . of 2 on node[12]$' 2
    told 'and the third comes back' '[56] has . of 3 on' 3
    run on node1 "$there/muster" scale "$SHARED/run" 4
    told 'four again, as soon as they are there' '[678] has . of 4 on' 4
    go_home
}

# Collectives between nodes wait for the new world, and go on in it.
test_charlm() {
    cd "$SHARED" && rm -rf run
    spawn run on node1 timeout 250 "$there/muster" run $root --run-dir run --hosts node1,node2,node3 \
        --nnodes 2:3 --nproc-per-node 1 --set elastic.growInterval=1s --set heartbeat.timeout=3s -- \
        "$charlm" "${small[@]}" --steps 1000000 --step-time 20 --batch 6 --checkpoint-every 20
    runner=$spawned
    ok 'charlm over three hosts' wait_for 60 running 3 || show_run
    lose_power node3
    ok 'goes on over two' wait_for 90 eval '[ "$(field generation)" = 2 ] && running 2' || show_run
    hosts power_on node3
    hosts link_up node3
    ok 'and over three again' wait_for 120 eval '[ "$(field generation)" = 3 ] && running 3' || show_run
    local step
    step=$(field step)
    ok 'which train' wait_for 90 eval '[ "$(field step)" -gt '"$((step + 20))"' ]' || show_run
    cancel 'until they are cancelled'
    is "$(field restarts)" 0 'and by no restart'
    nobody_left
}
