# SPDX-License-Identifier: Apache-2.0
#
# Nodes that do not come together in time: who is missing, what was tried, and exit
# status 69, whatever keeps them; nobody is left waiting. Sourced by a test for each
# MPI, which has a bed of three hosts, and in $there the folder of a muster that is built
# for that MPI; what its mpirun needs on this bed is in $launch_options.
cd "$SHARED" || bail_out "no $SHARED"
root=
[ "$(id -u)" != 0 ] || root=--allow-run-as-root

left() { local h; for h in node1 node2 node3; do pids_on "$h" '(muster|muster-mpi|muster-watch|muster-exec|orted|prted|mpirun|prterun)( |$)'; done; }
nobody_left() { ok 'nobody is left' wait_for 60 eval '[ -z "$(left)" ]' || diag "$(left | xargs -r ps -o pid,args -p)"; }
# gang OPTION...: over three hosts, of which each is needed.
gang() {
    cd "$SHARED" && rm -rf run
    run on node1 timeout 120 "$there/muster" run $root --run-dir run --hosts node1,node2,node3 --nnodes 3 --nproc-per-node 1 "$@" -- true
}
# Programs in between that do something else where it is about node3.
between() {
    cd "$SHARED" || return
    printf '#!/bin/bash\n%s\nexec %s "$@"\n' "$2" "$3" >"$1"
    chmod +x "$1"
}
. "$MUSTER_SRCDIR/tests/lib/held-mpirun.sh"

test_refused() {
    between ssh-refused 'case " $* " in *" node3 "*) echo "ssh: connect to host node3 port 22: Connection refused" >&2; exit 255 ;; esac' "$BED/ssh"
    gang --ssh "$SHARED/ssh-refused"
    is "$status" 69 'a host that refuses ssh' || show
    like "$(cat err)" 'host node3: cannot be reached over ssh (ssh: connect to host node3 port 22: Connection refused)' 'is named, with what it says' || show
    nobody_left
}

test_silent() {
    between ssh-silent 'case " $* " in *" node3 "*) exec sleep 1000 ;; esac' "$BED/ssh"
    gang --ssh "$SHARED/ssh-silent" --set gang.timeout=3s
    is "$status" 69 'a host that is silent' || show
    like "$(cat err)" 'host node3: no answer within 3 s' 'is named after gang.timeout' || show
    nobody_left
}

test_other_version() {
    between ssh-other 'case " $* " in *" node3 "*probe*) '"$BED"'/ssh "$@" | sed "s/\"version\": *\"[^\"]*/\"version\":\"0.0.1/"; exit ;; esac' "$BED/ssh"
    gang --ssh "$SHARED/ssh-other"
    is "$status" 69 'a host with another version' || show
    like "$(cat err)" 'host node3: has muster 0.0.1, this machine has' 'is named, with both' || show
    nobody_left
}

test_does_not_join() {
    gang --set gang.timeout=15s --mpirun "$SHARED/held-mpirun"
    is "$status" 69 'a host whose agent does not come' || show
    like "$(cat err)" 'did not gather in time (gang.timeout): mpirun was to start muster-mpi there, and nothing was heard of it from node3' \
        'is named, with what was tried' || show
    nobody_left
}

# As Kubeflow and OME say it, in the runtime of a job.
test_schedule_timeout() {
    cd "$SHARED" && rm -rf run
    cat >job.yaml <<'YAML'
apiVersion: ome.io/v1beta1
kind: TrainingJob
metadata: {name: gang}
spec:
  runtimeRef: {name: three}
---
apiVersion: ome.io/v1beta1
kind: ClusterTrainingRuntime
metadata: {name: three}
spec:
  mlPolicy: {numNodes: 3, torch: {numProcPerNode: 1}}
  podGroupPolicy: {coscheduling: {scheduleTimeoutSeconds: 15}}
  template:
    spec:
      replicatedJobs:
      - name: node
        template:
          spec:
            template:
              spec:
                containers: [{name: trainer, command: ["true"]}]
YAML
    run on node1 timeout 120 "$there/muster" run $root --run-dir run --hosts node1,node2,node3 \
        --mpirun "$SHARED/held-mpirun" job.yaml
    is "$status" 69 'scheduleTimeoutSeconds is over' || show
    like "$(cat err)" 'did not gather in time' 'as is told' || show
    like "$(cat err)" 'nothing was heard of it from node3' 'and who is missing' || show
    nobody_left
}

test_by_hand() {
    cd "$SHARED" && rm -rf run
    run on node1 timeout 120 mpirun $root ${launch_options[@]+"${launch_options[@]}"} -np 3 --host node1:1,node2:1,node3:1 \
        "$SHARED/held" "$there/muster" run --run-dir run --nnodes 3 --nproc-per-node 1 --set gang.timeout=3s -- true
    is "$status" 69 'a rank of an mpirun by hand that does not come' || show
    like "$(cat err)" 'the nodes did not gather in time (gang.timeout)' 'is missed' || show
    nobody_left
}
