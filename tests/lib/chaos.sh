# SPDX-License-Identifier: Apache-2.0
#
# Faults for t2340 and t2341, to be sourced after harness.sh. Each is a function
# fault_NAME HOST, done with it when it returns: what it cut, stopped or filled is
# as before. Needs $run (the run directory), $lease (s), $BED, $there (the folder of
# muster in it).

# chaos_next N: a number below N in $drawn, the next of the sequence that began
# with chaos_seed. Of our own, so that a seed means the same in every bash.
chaos_seed() { chaos_state=$(($1 & 0x7fffffff)); }
chaos_next() {
    chaos_state=$(((chaos_state * 1103515245 + 12345) & 0x7fffffff))
    drawn=$(((chaos_state >> 8) % $1))
}

# On any host; those that take a node away for longer than its lease, or its
# agent, only where the loss of that node is one that the run survives.
chaos_faults_anywhere=(worker exec mpi link_short stop_short pause_short)
chaos_faults_node=(agent watch everything link_long stop_long pause_long power)
chaos_faults_once=(mpirun orted front full stall)

takes_node() { case " ${chaos_faults_node[*]} orted " in *" $1 "*) true ;; *) false ;; esac; }

# chaos_draw [FAULT]: the next fault in $fault and $host, and how long to wait after it in
# $rest (ms). $may_lose: the hosts that may be lost.
chaos_draw() {
    local all=("${chaos_faults_anywhere[@]}" "${chaos_faults_node[@]}" "${chaos_faults_once[@]}")
    local hosts=(node1 node2 node3 node4)
    chaos_next ${#all[@]}
    fault=${1:-${all[drawn]}}
    ! takes_node "$fault" || hosts=($may_lose)
    chaos_next ${#hosts[@]}
    host=${hosts[drawn]}
    chaos_next 3
    rest=$((drawn * drawn * 1000))
}

# kill_one SIGNAL PIDS...: the first that is there; nothing where there is none.
kill_one() { [ $# -lt 2 ] || kill -"$1" "$2" 2>/dev/null; }

worker_on() { pids_on "$1" '^[^ ]*charlm --steps'; }
agent_on() { pids_on "$1" '^[^ ]*muster agent --dir'; }

fault_worker() { kill_one KILL $(worker_on "$1"); }
# The program that becomes the worker: there for a moment, at a start.
fault_exec() {
    local until=$(($(now_ms) + 5000)) pids=
    kill_one KILL $(worker_on "$1")
    while [ -z "$pids" ] && [ "$(now_ms)" -lt $until ]; do pids=$(pids_on "$1" '^[^ ]*muster-exec'); done
    kill_one KILL $pids
}
fault_agent() { kill_one KILL $(agent_on "$1"); }
fault_watch() { kill_one KILL $(pids_on "$1" '^[^ ]*muster-watch'); }
fault_mpi() { kill_one KILL $(pids_on "$1" '^[^ ]*muster-mpi --run-id'); }
fault_orted() { kill_one KILL $(pids_on "$1" '^[^ ]*(orted|prted)'); }
fault_mpirun() { kill_one KILL $(pids_on node1 '^[^ ]*(mpirun|prterun) .*muster-mpi'); }
# Nobody is left there who could take the agent's files away, unless another one
# comes: that is for muster gc.
swept=
fault_everything() {
    swept="$swept $1"
    kill -KILL $(pids_on "$1" 'orted|prted|muster|charlm --steps') 2>/dev/null
    [ "$1" != node1 ] || take_over
}

# nsenter stops when what it runs does, and where both are told to go on it may be
# heard first.
runner_gone() {
    kill -CONT "$runner" $(child_of "$runner") 2>/dev/null
    gone "$runner"
}
has_attached() { grep -q '^muster: attached to run' attach.err; }
# take_over: the front end, which is on node1, is gone: another one comes. It may be
# refused while the death of the first one has not been noticed.
take_over() {
    local n
    wait_for 60 runner_gone
    for n in 1 2 3 4 5; do
        spawn attach on node1 "$there/muster" attach "$run"
        runner=$spawned
        wait_for 60 eval 'gone "$runner" || has_attached'
        ! has_attached || return 0
    done
    return 1
}
fault_front() {
    kill -KILL "$(inner_pid "$runner")"
    take_over
}

link_for() { hosts link_down "$1"; sleep "$2"; hosts link_up "$1"; }
fault_link_short() { link_for "$1" 2; }
fault_link_long() { link_for "$1" $((2 * lease + 2)); }

stop_for() {
    local pid
    pid=$(agent_on "$1")
    kill_one STOP $pid
    sleep "$2"
    kill_one CONT $pid
}
fault_stop_short() { stop_for "$1" 2; }
fault_stop_long() { stop_for "$1" $((2 * lease + 2)); }

pause_for() { hosts pause "$1"; sleep "$2"; hosts resume "$1"; }
fault_pause_short() { pause_for "$1" 2; }
fault_pause_long() { pause_for "$1" $((2 * lease + 2)); }

fault_power() {
    hosts power_off "$1"
    sleep 2
    hosts power_on "$1"
    [ "$1" != node1 ] || take_over
}

# The run directory: full for a while, or without an answer to anybody.
fault_full() {
    dd if=/dev/zero of="$SHARED/filler" bs=64k 2>/dev/null
    sleep 3
    rm -f "$SHARED/filler"
}
# Whoever writes there cannot even be killed meanwhile. The one who thaws is not
# a part of this script, which could be ended before.
fault_stall() {
    fsfreeze -f "$SHARED"
    setsid sh -c 'sleep 3; fsfreeze -u "$1"' sh "$SHARED"
}
