#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# muster explain: every value of a job with its origin.
. "${MUSTER_SRCDIR:-$(dirname "$0")/..}/tests/lib/harness.sh"
need_muster

cat >job.yaml <<'E2'
apiVersion: muster/v1
kind: Job
name: tiny
nodes: 2
command: [python3, train.py]
env: {LR: "0.1", DB_PASSWORD: correcthorse, app.kind: x}
restart: {max: 5}
E2
cat >ome.yaml <<'E2'
apiVersion: ome.io/v1beta1
kind: TrainingJob
metadata: {name: wide}
spec:
  runtimeRef: {name: pytorch-distributed-runtime}
  trainer: {numNodes: 3, command: [python3, train.py]}
E2

# row KEY: value and origin of one line of the table.
row() { sed -n "s/^${1//./\\.}  *//p" out | sed 's/   */ | /'; }

test_origins() {
    run "$MUSTER" explain --nproc-per-node 4 --set limits.grace=5s job.yaml
    is "$status" 0 'a job is explained'
    is "$(row name)" 'tiny | job.yaml:3:7' 'a value of the file has its place'
    is "$(row restart.max)" '5 | job.yaml:7:16' 'one deep inside too'
    is "$(row procsPerNode)" '4 | --nproc-per-node' 'an option is named'
    is "$(row limits.grace)" '5s | --set' 'and --set'
    is "$(row restart.policy)" 'OnFailure | default' 'a default is called so'
    is "$(row env.LR)" '"0.1" | job.yaml:6:11' 'variables are listed by name'
    is "$(row env.app.kind)" 'x | job.yaml:6:55' 'also names with dots'
}

test_secrets() {
    run "$MUSTER" explain job.yaml
    unlike "$(cat out err)" correcthorse 'secrets are not shown'
    like "$(row env.DB_PASSWORD)" '<hidden>' 'but that they are there'
    run "$MUSTER" explain -o json job.yaml
    unlike "$(cat out err)" correcthorse 'not in JSON either'
}

test_runtime() {
    run "$MUSTER" explain ome.yaml
    is "$status" 0 'another dialect is explained as well'
    like "$(row nodes)" '3 | ome.yaml:6:' 'by the keys of muster'
    ok 'and what its runtime gave is named' grep -q pytorch-distributed-runtime out
}

test_program() {
    run "$MUSTER" explain -- torchrun --nproc_per_node=2 --max-restarts=7 t.py
    like "$(row procsPerNode)" '2 | ' 'options of a launcher count'
    like "$(row restart.max)" '7 | ' 'all of them'
}

test_environment() {
    run env LOG_FORMAT=json PET_NPROC_PER_NODE=3 PET_MAX_RESTARTS=9 "$MUSTER" explain -- torchrun --max-restarts=7 t.py
    is "$(row logs.format)" 'json | environment LOG_FORMAT' 'a variable is named'
    is "$(row procsPerNode)" '3 | environment PET_NPROC_PER_NODE' 'those of torchrun, too'
    is "$(row restart.max)" '7 | command line' 'but where an option has more to say'
    run env LOG_FORMAT=json "$MUSTER" explain --set logs.format=text job.yaml
    is "$(row logs.format)" 'text | --set' 'as --set has'
}

test_keys() {
    run "$MUSTER" explain --key restart job.yaml
    is "$(sed 1d out | grep -vc '^restart\.')" 0 'one key can be asked for'
    num "$(wc -l <out)" -ge 5 'with all below it'
    run "$MUSTER" explain -k restat job.yaml
    is "$status" 2 'one that does not exist is an error'
    like "$(cat err)" "no 'restat'" 'that names it'
    run "$MUSTER" explain -k env.NOTHING job.yaml
    is "$(wc -l <out)" 1 'a variable that is not set is no error'
}

test_formats() {
    run "$MUSTER" explain -k restart.max -o json job.yaml
    is "$(json 0.key out),$(json 0.value out),$(json 0.from out)" 'restart.max,5,job.yaml:7:16' 'JSON has the same'
    like "$(json 0.meaning out)" 'restarts' 'and the meaning'
    run "$MUSTER" explain -k restart.max -o wide job.yaml
    like "$(cat out)" MEANING 'which a wide table shows too'
}

test_bad() {
    run "$MUSTER" explain
    is "$status" 2 'a job must be named'
    run "$MUSTER" explain nothing.yaml
    is "$status" 2 'and exist'
    like "$(cat err)" nothing.yaml 'else its name is told'
    sed 's/nodes: 2/nodse: 2/' job.yaml >bad.yaml
    run "$MUSTER" explain bad.yaml
    is "$status" 2 'a job with an error is not explained'
    like "$(cat err)" 'bad.yaml:4:1: ' 'the error is'
    is "$(cat out)" '' 'and nothing else'
}

run_cases
