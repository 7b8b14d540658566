#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# The commands that look at runs, on run directories made by hand: what they
# print, to whom, and with which exit status.
. "${MUSTER_SRCDIR:-$(dirname "$0")/..}/tests/lib/harness.sh"
need_muster

# make_run NAME ID STATE [MORE-JSON]: a run directory, updated now.
make_run() {
    local dir=$TRASH/runs/$1/$2 now
    now=$(date +%s)
    mkdir -p "$dir/logs" "$dir/control" "$XDG_STATE_HOME/muster/runs/$1"
    echo "{\"v\":1,\"id\":\"$2\",\"name\":\"$1\",\"created\":$((now - 60)).5}" >"$dir/run.json"
    echo "{\"v\":1,\"id\":\"$2\",\"name\":\"$1\",\"state\":\"$3\",\"generation\":2,
        \"created\":$((now - 60)),\"started\":$((now - 50)),\"updated\":$now,
        \"restarts\":1,\"max_restarts\":3,\"step\":120,
        \"metrics\":[{\"name\":\"loss\",\"value\":0.25,\"step\":120,\"rank\":0}],
        \"nodes\":[{\"rank\":0,\"host\":\"n0\",\"state\":\"Running\",\"agent_pid\":11,\"n_procs\":2}],
        \"workers\":[{\"rank\":0,\"node\":0,\"pid\":21,\"state\":\"Running\"},
                     {\"rank\":1,\"node\":0,\"pid\":0,\"state\":\"Exited\",\"signal\":9}]
        ${4:-}}" >"$dir/status.json"
    ln -sfn "$dir" "$XDG_STATE_HOME/muster/runs/$1/$2"
    run_dir=$dir
}

all_commands() { "$MUSTER" --help | sed -n 's/^  \([a-z]*\)  .*/\1/p'; }

test_help() {
    local c
    run "$MUSTER" --help
    is "$status" 0 'muster --help succeeds'
    like "$(cat out)" 'usage: muster COMMAND' 'and shows the usage'
    num "$(all_commands | wc -l)" -ge 5 'with the commands'
    for c in $(all_commands); do
        run "$MUSTER" "$c" --help
        is "$status:$(wc -c <err)" 0:0 "$c --help succeeds"
        like "$(head -n 1 out)" 'usage: muster' "$c --help shows the usage"
        cp out direct
        run "$MUSTER" help "$c"
        ok "help $c is the same" cmp -s out direct
        is "$(awk 'length > 80' direct)" '' "$c --help fits 80 columns"
    done
    unlike "$("$MUSTER" --help)" ' agent ' 'what is not for people is not listed'
}

test_bad_usage() {
    local c
    run "$MUSTER"
    is "$status" 2 'no command is bad usage'
    like "$(cat err)" 'usage:' 'which is shown on stderr'
    run "$MUSTER" statsu
    is "$status" 2 'an unknown command is bad usage'
    like "$(cat err)" "did you mean 'status'?" 'the nearest one is named'
    run "$MUSTER" zzzzzz
    unlike "$(cat err)" 'did you mean' 'where there is one'
    run "$MUSTER" $'\e[31m\e]0;x\arun'
    is "$(head -n 1 err)" "muster: unknown command '\\x1b[31m\\x1b]0;x\\x07run'" 'it does not drive the terminal'
    run "$MUSTER" help statsu
    is "$status" 2 'help of an unknown command too'
    for c in $(all_commands | grep -v help); do
        run "$MUSTER" "$c" --no-such-option
        is "$status:$(wc -c <out)" 2:0 "$c: an unknown option is bad usage"
        like "$(cat err)" '--no-such-option' "$c: it is named"
    done
    run "$MUSTER" status a b
    is "$status" 2 'too many arguments are bad usage'
    run "$MUSTER" cancel
    is "$status" 2 'too few arguments are bad usage'
    run "$MUSTER" status -o xml
    like "$status:$(cat err)" "2:muster status: option --output: expected json, yaml or wide, found 'xml'" 'an unknown format'
    run "$MUSTER" logs --rank x
    is "$status" 2 'a rank that is none'
    run "$MUSTER" logs -g 0
    like "$status:$(cat err)" '2:muster: expected a generation from 1 on' 'nor is there a generation 0'
    run "$MUSTER" logs --stdout --stderr
    is "$status" 2 'options that exclude each other'
}

test_no_runs() {
    run "$MUSTER" list
    is "$status:$(cat out):$(cat err)" '0::muster: no runs' 'an empty list'
    run "$MUSTER" list $'no\ene'
    is "$status:$(cat out):$(cat err)" '0::muster: no runs called no\x1bne' 'none of a name'
    run "$MUSTER" gc nope
    is "$status:$(cat out):$(cat err)" '0:nothing to remove:muster: no runs called nope' 'nor can any be removed' || show
    run "$MUSTER" list -o json
    is "$status:$(cat out)" '0:[]' 'an empty list as JSON'
    run "$MUSTER" list -o yaml
    is "$status:$(cat out)" '0:[]' 'an empty list as YAML'
    for c in status logs; do
        run "$MUSTER" $c
        is "$status" 1 "$c without any run fails"
        like "$(cat err)" 'there is no run yet' 'and says so'
    done
    run "$MUSTER" status nope
    is "$status:$(cat out)" '1:' 'status of a missing run fails'
    like "$(cat err)" "no run 'nope'" 'and names it'
    run "$MUSTER" cancel nope
    is "$status" 1 'so does cancel'
    run env -u HOME -u XDG_STATE_HOME "$MUSTER" list
    is "$status" 0 'no home is no failure'
}

test_status() {
    make_run tiny a1 Running
    run "$MUSTER" status tiny
    is "$status:$(wc -c <err)" 0:0 'status by name'
    like "$(cat out)" 'tiny/a1: Running' 'names run and state'
    like "$(cat out)" '1 of 2 workers alive, 1 node, restarts 1 of 3' 'counts'
    like "$(cat out)" 'step 120, loss 0.25' 'shows metrics'
    like "$(cat out)" 'NODE  HOST  STATE    WORKERS  AGENT' 'has a table of nodes'
    like "$(cat out)" '0*    n0    Running  1/2      11' 'whose columns line up'
    matches "$(cat out)" '1 +0 +n0 +Exited +- +signal 9 \(Killed\)' 'and one of workers'
    unlike "$(cat out)" $'\e' 'without colours in a file'
    cp out by_name
    for arg in a1 "$run_dir" ''; do
        run "$MUSTER" status ${arg:+"$arg"}
        is "$(sed 's/for [0-9sm]*/for X/' out)" "$(sed 's/for [0-9sm]*/for X/' by_name)" "status by '$arg' is the same"
    done
    run "$MUSTER" status tiny -o json
    is "$(json state out):$(json stale out):$(json workers.1.signal out)" 'Running:false:9' 'status as JSON'
    run "$MUSTER" status tiny -o yaml
    like "$(cat out)" $'workers:\n  - rank: 0\n    node: 0' 'status as YAML'
    python3 -c 'import yaml' 2>/dev/null &&
        is "$(python3 -c 'import yaml,json,sys; print(json.dumps(yaml.safe_load(open("out")), sort_keys=True))')" \
            "$("$MUSTER" status tiny -o json | python3 -c 'import json,sys; print(json.dumps(json.load(sys.stdin), sort_keys=True))')" \
            'YAML and JSON say the same'
}

test_script_terminal() {
    command -v script >/dev/null || { skip 'no script(1)' 2; return; }
    TERM=xterm script -qec "'$MUSTER' status tiny" /dev/null >out </dev/null
    like "$(cat out)" $'\e[32mRunning' 'colours on a terminal'
    NO_COLOR=1 TERM=xterm script -qec "'$MUSTER' status tiny" /dev/null >out </dev/null
    unlike "$(cat out)" $'\e' 'but not with NO_COLOR'
}

test_failure() {
    make_run bad b1 Failed ',"ended":1795206400,
        "failure":{"generation":1,"rank":1,"node":0,"host":"n0","pid":22,"signal":9,
            "reason":"rank 1 was killed by SIGKILL","lines":"one\n\u001b[31mtwo\n"},
        "verdict":{"exit_status":137,"resumable":false,"reason":"a worker failed"},
        "future":{"key":1}'
    run "$MUSTER" status bad
    is "$status" 0 'status of a failed run'
    like "$(cat out)" 'rank 1 was killed by SIGKILL' 'says why'
    like "$(cat out)" '    | one' 'shows last lines'
    like "$(cat out)" '    | ?[31mtwo' 'without what drives a terminal'
    like "$(cat out)" 'exit status 137: a worker failed' 'and the verdict'
    is "$("$MUSTER" status bad -o json | json future.key)" 1 'keys of a later version are kept'
    run "$MUSTER" cancel bad
    like "$status:$(cat out)" '0:run b1 is over already: Failed' 'nothing is left to cancel'
}

test_stale() {
    make_run old o1 Running
    sed -i 's/"updated":[0-9]*/"updated":1000/' "$run_dir/status.json"
    run "$MUSTER" status old
    like "$(cat out)" 'Running (stale: no word for' 'a status that nobody refreshed'
    is "$("$MUSTER" status old -o json | json stale)" true 'is stale in JSON too'
    like "$("$MUSTER" list old)" 'Running (stale)' 'and in the list'
    run "$MUSTER" cancel old
    is "$status" 1 'it cannot be cancelled'
    like "$(cat err)" 'not alive' 'because it is not alive'
}

test_fresh() {
    make_run fresh f1 Running
    rm "$run_dir/status.json"
    run "$MUSTER" status fresh
    like "$(cat out)" 'fresh/f1: Created' 'a run without a status yet'
    is "$("$MUSTER" status fresh -o json | json state)" Created 'as JSON'
}

test_broken() {
    local n=0 text
    make_run broken x1 Running
    for text in '' '{' '[]' '{"v":99,"state":"Running"}' '{"v":1,"state":5}' "$(head -c 3000 /dev/zero | tr '\0' '[')"; do
        printf '%s' "$text" >"$run_dir/status.json"
        run "$MUSTER" status broken
        is "$status:$(wc -c <out)" 1:0 "broken status $((n += 1)) is refused"
        like "$(cat err)" "muster: $TRASH/runs/broken/x1: status: " 'and named'
        run "$MUSTER" list broken
        is "$status" 0 'the list goes on'
    done
    echo '{"v":2,"id":"x1","name":"broken"}' >"$run_dir/run.json"
    run "$MUSTER" status "$run_dir"
    like "$status:$(cat err)" 'written by a newer muster (format 2' 'a newer run directory is refused'
    rm -r "$TRASH/runs/broken"
}

test_list() {
    run "$MUSTER" list --limit -1
    is "$status,$(cat err)" '2,muster: option --limit: expected a number of runs, or 0 for all, found -1' 'no fewer than none'
    run "$MUSTER" list
    is "$(sed -n 1p out)" 'NAME   ID  STATE            AGE    NODES  WORKERS  STEP  RESTARTS' 'the head of the list'
    is "$(sed -n 2p out | cut -c 1-26)" 'fresh  f1  Created (stale)' 'newest first'
    is "$(wc -l <out)" 5 'all runs'
    run "$MUSTER" list tiny -o wide
    is "$(wc -l <out)" 2 'those of one name'
    like "$(cat out)" "$TRASH/runs/tiny/a1" 'with directories when wide'
    is "$("$MUSTER" list -o json | json 3.name)" tiny 'as JSON'
    run "$MUSTER" list -n 1
    is "$(wc -l <out)" 2 'at most so many'
    rm -r "$TRASH/runs/fresh"
    unlike "$("$MUSTER" list)" fresh 'a run that was removed is left out'
}

test_closed_stdout() {
    local c
    # explain prints more than fits into a buffer: what fails is not the last write.
    for c in version list 'status tiny' --help 'help status' 'explain -- true'; do
        "$MUSTER" $c >&- 2>err
        is "$?" 1 "$c: closed stdout is a failure"
        like "$(cat err)" 'write to standard output' 'which is told'
        "$MUSTER" $c >/dev/full 2>err
        is "$?" 1 "$c: a full disk too"
        like "$(cat err)" 'No space left on device' 'with the reason'
        "$MUSTER" $c 2>err | true
        is "${PIPESTATUS[0]}:$(cat err)" 0: "$c: a reader that went away is none"
        ok "$c: closed stdin and stderr do no harm" bash -c "'$MUSTER' $c <&- 2>&- >/dev/null"
    done
}

test_version() {
    run "$MUSTER" version
    matches "$(cat out)" '^muster [0-9]+\.' 'version'
    is "$("$MUSTER" --version)" "$(cat out)" '--version is the same'
    "$MUSTER" version -o json >json
    is "$(json version json) (build $(json build json))" "$(sed "s/muster //" out)" 'as JSON'
}

test_logs() {
    make_run logs l1 Succeeded
    for r in 0 1 10; do
        mkdir -p "$run_dir/logs/2/$r" "$run_dir/logs/1/$r"
        printf 'first\nlast of %s' $r >"$run_dir/logs/2/$r/stdout"
        echo "err of $r" >"$run_dir/logs/2/$r/stderr"
        echo "old" >"$run_dir/logs/1/$r/stdout"
    done
    run "$MUSTER" logs logs
    is "$status:$(wc -c <err)" 0:0 'logs'
    is "$(head -n 4 out)" $'[0] first\n[0] last of 0\n[0] err of 0\n[1] first' 'rank by rank, with labels, newest generation'
    is "$(tail -n 1 out)" '[10] err of 10' 'in order of ranks'
    run "$MUSTER" logs logs --rank 10 --stdout --no-label
    is "$(cat out)" $'first\nlast of 10' 'one rank, one stream, bare'
    run "$MUSTER" logs logs --stderr -r 0 -r 1
    is "$(cat out)" $'[0] err of 0\n[1] err of 1' 'two ranks, the other stream'
    run "$MUSTER" logs logs -g 1 -r 0
    is "$(cat out)" '[0] old' 'an older generation'
    run "$MUSTER" logs logs -f -r 1
    is "$status:$(cat out)" $'0:[1] first\n[1] err of 1\n[1] last of 1' 'following a run that is over ends'
    run "$MUSTER" logs logs -r 7
    is "$status:$(cat out)" 0: 'a rank that is not there'
    rm -r "$run_dir/logs/2/1"
    run "$MUSTER" logs logs
    is "$(cat err)" '' 'a rank that printed nothing is no news'
    sed -i 's/"rank":1,"node":0/"rank":1,"node":1/; s/"nodes":\[/&{"rank":1,"host":"n1","state":"Running"},/' "$run_dir/status.json"
    run "$MUSTER" logs logs
    like "$(cat err)" 'no log of 1 rank here (rank 1 first)' 'one whose node left nothing here is'
    "$MUSTER" logs logs >/dev/full 2>err
    is $? 1 'a full disk is a failure'
}

set_state() { sed -i "s/\"state\":\"[A-Z][a-z]*\",\"gen/\"state\":\"$1\",\"gen/" "$run_dir/status.json"; }

test_follow() {
    make_run follow f2 Running
    spawn follow "$MUSTER" logs follow -f
    mkdir -p "$run_dir/logs/1/0"
    printf 'one\ntw' >"$run_dir/logs/1/0/stdout"
    ok 'the first line comes' wait_for 60 grep -qx '\[0\] one' follow.out
    printf 'o\n' >>"$run_dir/logs/1/0/stdout"
    ok 'the next one when it is whole' wait_for 60 grep -qx '\[0\] two' follow.out
    mkdir -p "$run_dir/logs/1/1"
    echo late >"$run_dir/logs/1/1/stderr"
    ok 'a rank that comes later' wait_for 60 grep -qx '\[1\] late' follow.out
    mkdir -p "$run_dir/logs/2/0"
    echo again >"$run_dir/logs/2/0/stdout"
    ok 'the next generation' wait_for 60 grep -qx '\[0\] again' follow.out
    like "$(cat follow.err)" 'muster: generation 2' 'is announced'
    sed -i 's/"updated":[0-9]*/"updated":9999999990/' "$run_dir/status.json"
    printf 'end' >>"$run_dir/logs/2/0/stdout"
    set_state Succeeded
    wait_exit 10 $spawned
    is "$status" 0 'ends with the run'
    is "$(tail -n 1 follow.out)" '[0] end' 'having shown everything'
}

test_cancel_by_file() {
    make_run far r1 Running
    run "$MUSTER" cancel far --force
    is "$status" 0 'cancelling a run of other hosts'
    like "$(cat out)" "left a request in $run_dir/control" 'leaves a request'
    is "$(cat "$run_dir"/control/*.json | json op)" cancel 'to cancel'
    is "$(cat "$run_dir"/control/*.json | json force)" true 'by force'
    is "$(stat -c %a "$run_dir"/control/*.json)" 600 'that only this user can read'
}

test_validate() {
    cat >job.yaml <<'END'
apiVersion: muster/v1
kind: Job
name: tiny
nodes: 2
procsPerNode: 4
command: [python, "my train.py"]
END
    run "$MUSTER" validate job.yaml
    is "$status:$(cat err)" 0: 'a good spec'
    like "$(cat out)" "ok: job tiny, 2 nodes x 4 processes: python 'my train.py'" 'is summed up'
    run "$MUSTER" validate - <job.yaml
    is "$status" 2 'run has no standard input'
    "$MUSTER" validate - <job.yaml >out 2>err
    like "$?:$(cat out)" '0:ok: job tiny' 'a spec from standard input'
    run "$MUSTER" validate job.yaml --set nodes=1..3 --set procs_per_node=1
    is "$status" 2 'a path is no option: underscores are not dashes there'
    run "$MUSTER" validate job.yaml --set nodes=1..3 --set procsPerNode=1
    like "$(cat out)" '1 to 3 nodes x 1 process:' 'values can be overridden'
    run "$MUSTER" validate job.yaml --quiet
    is "$status:$(cat out)" 0: 'nothing is said of a good one with --quiet'
    sed -i 's/^nodes: 2/nodes: two/; s/^command/comand/' job.yaml
    run "$MUSTER" validate job.yaml
    is "$status:$(cat out)" 2: 'a bad spec'
    like "$(cat err)" 'job.yaml:4:8: nodes is "two"' 'every error has its place'
    like "$(cat err)" 'job.yaml:6:1: unknown key "comand"' 'and all are told'
    for f in missing.yaml . /dev/null; do
        run "$MUSTER" validate $f
        is "$status:$(cat out)" 2: "$f is no spec"
        isnt "$(cat err)" '' 'and a reason is given'
    done
    run "$MUSTER" validate job.yaml --set nodes
    is "$status" 2 '--set without a value'
    like "$(cat err)" "expected PATH=VALUE, found 'nodes'" 'is told'
}

# dry COMMAND NAME: job.yaml resolves, and what would be started is shown.
dry() {
    CUDA_VISIBLE_DEVICES= run timeout 600 "$MUSTER" run --allow-run-as-root --agent-is-node --dry-run job.yaml
    is "$status" 0 "$2: a dry run" || show
    like "$(cat out)" $'\n'"command: [$1]" "$2: the command" || show
    like "$(cat out)" '# started by' "$2: and what would start it"
    ok "$2: nothing is made" test ! -e muster-runs
}
ome_job() { printf 'apiVersion: ome.io/v1beta1\nkind: TrainingJob\nmetadata: {name: %s}\nspec:\n' "$1"; cat; }

# A rule that is not honoured is named each time, and why.
test_ome_metrics() {
    local rule='metrics is not honoured: muster does not scale by load. The job has as many of its 1 to 2 nodes as there are; muster scale RUN N sets how many'
    command -v mpirun >/dev/null || { skip 'no mpirun: see scripts/install-deps' 5; return; }
    ome_job busy >job.yaml <<'END'
  runtimeRef: {name: busy}
---
apiVersion: ome.io/v1beta1
kind: TrainingRuntime
metadata: {name: busy}
spec:
  mlPolicy:
    torch:
      numProcPerNode: 1
      elasticPolicy:
        minNodes: 1
        maxNodes: 2
        metrics: [{type: Resource, resource: {name: cpu, target: {type: Utilization, averageUtilization: 80}}}]
  template:
    spec:
      replicatedJobs:
      - name: worker
        template: {spec: {template: {spec: {containers: [{name: trainer, command: ["true"]}]}}}}
END
    run "$MUSTER" validate --quiet job.yaml
    is "$status" 0 'a rule for the load is no error' || show
    like "$(cat err)" "warning: job.yaml:17:18: spec.mlPolicy.torch.elasticPolicy.$rule" 'validate tells what becomes of it, where it is'
    rm -rf metrics
    run timeout 600 "$MUSTER" run --allow-run-as-root --quiet --run-dir metrics job.yaml
    is "$status" 0 'such a job runs' || show
    like "$(cat err)" "$rule" 'and says it at its start'
    run timeout 600 "$MUSTER" run --allow-run-as-root --quiet --set nodes=1 --dry-run job.yaml
    like "$(cat err)" "metrics is not honoured" 'whatever else is given'
}

# Jobs of the shapes that OME's documents show, with nothing installed.
test_ome_jobs() {
    command -v mpirun >/dev/null || { skip 'no mpirun: see scripts/install-deps' 10; return; }
    ome_job tune >job.yaml <<'END'
  runtimeRef: {name: pytorch-runtime, kind: ClusterTrainingRuntime, apiGroup: ome.io}
  trainer:
    image: "trainer:1"
    command: ["python", "train.py"]
    args: ["--epochs", "10"]
    numNodes: 4
    numProcPerNode: "2"
    resourcesPerNode:
      requests: {cpu: "8", memory: "32Gi", nvidia.com/gpu: "2"}
      limits: {cpu: "8", memory: "32Gi", nvidia.com/gpu: "2"}
  modelConfig:
    inputModel: base
    outputModel: {storageUri: "oci://b/out", parameters: {region: r}}
  datasets: {storageUri: "oci://b/in", storageKey: k}
  hyperParameterTuningConfig:
    method: random
    maxTrials: 10
    metric: {name: accuracy, goal: maximize}
    parameters:
      lr: {type: double, min: 0.0001, max: 0.01, scale: log}
      batch: {type: int, values: [8, 16]}
END
    dry 'python, train.py, "--epochs", "10"' 'a job with everything'
    like "$(cat err)" 'search is not acted on yet: the job runs once' 'what is left is told'
    ome_job gang >job.yaml <<'END'
  runtimeRef: {name: ddp}
  trainer: {env: [{name: MODEL_PARALLEL_SIZE, value: "2"}]}
---
apiVersion: ome.io/v1beta1
kind: TrainingRuntime
metadata: {name: ddp, namespace: training}
spec:
  mlPolicy: {numNodes: 4, torch: {numProcPerNode: gpu}}
  podGroupPolicy: {coscheduling: {scheduleTimeoutSeconds: 600}}
  template:
    spec:
      replicatedJobs:
      - name: worker
        template:
          spec:
            parallelism: 4
            completions: 4
            template:
              spec:
                containers:
                - name: pytorch-trainer
                  image: pytorch:1
                  command: ["torchrun"]
                  args: ["--nnodes=4", "--nproc_per_node=gpu", "--rdzv_endpoint=$MASTER_ADDR:1", "train.py"]
                  env: [{name: NCCL_DEBUG, value: INFO}]
END
    dry 'python3, "-u", train.py' 'a job with its runtime'
    like "$(cat err)" 'procsPerNode is gpu, but there is no GPU' 'a job with its runtime: what it would fail of here'
    ome_job bare >job.yaml <<'END'
  runtimeRef: {name: pytorch-distributed-runtime}
  trainer: {numNodes: 8, numProcPerNode: gpu}
END
    run "$MUSTER" run --allow-run-as-root --dry-run job.yaml
    is "$status" 2 'a job without a command'
    like "$(cat err)" 'job.yaml:1:1: command is missing, in the job and in runtime pytorch-distributed-runtime; expected the program' 'is told so'
    ome_job mpi >job.yaml <<'END'
  runtimeRef: {name: mpi-runtime}
  trainer: {numProcPerNode: 4, command: [mpirun], args: [-np, "8", python, train.py]}
END
    run "$MUSTER" validate job.yaml
    like "$status:$(cat out)" '0:' 'an MPI program resolves'
    like "$(cat out)" 'ok: job mpi, 2 nodes x 4 processes: python train.py' 'to nodes and processes'
    run "$MUSTER" run --allow-run-as-root --dry-run job.yaml
    is "$status" 2 'and is refused'
    like "$(cat err)" 'the job needs 2 nodes, and there is 1 host' 'where there are not enough nodes for it'
}

test_dialects() {
    local kind
    for kind in kubeflow.org/v1:PyTorchJob kubeflow.org/v2beta1:MPIJob jobset.x-k8s.io/v1alpha2:JobSet \
        trainer.kubeflow.org/v1alpha1:TrainJob batch.tensorstack.dev/v1beta1:PyTorchTrainingJob; do
        printf 'apiVersion: %s\nkind: %s\nspec: {x: 1}\n' ${kind/:/ } >job.yaml
        run "$MUSTER" validate job.yaml
        is "$status" 2 "${kind#*:}"
        is "$(cat err)" "job.yaml:2:7: kind ${kind#*:} of ${kind%%:*} cannot be run yet; expected one of Job of muster/v1, Runtime of muster/v1, TrainingJob of ome.io/v1beta1, TrainingRuntime of ome.io/v1beta1, ClusterTrainingRuntime of ome.io/v1beta1" 'what is known is told'
    done
}

# The documents that users know, where they lie beside the sources.
test_published() {
    local dir=$MUSTER_SRCDIR/../shared/fixtures/specs f
    [ -d "$dir" ] || { skip 'no published specs beside the sources'; return; }
    for f in $(find "$dir" -name '*.yaml'); do
        "$MUSTER" validate "$f" --quiet >out 2>err
        case $?:$(head -n 1 err) in
        0:* | 2:"$f":*'; expected '* | 2:"$f":*'; did you mean '*) pass "${f#$dir/} is read, or refused with a reason" ;;
        *) fail "${f#$dir/}: $(head -n 1 err)" ;;
        esac
    done
}

run_cases
