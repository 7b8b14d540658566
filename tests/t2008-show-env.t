#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# muster run --dry-run --show-env: what is shown is what workers then get.
. "${MUSTER_SRCDIR:-$(dirname "$0")/..}/tests/lib/harness.sh"
need_muster
need_command python3

cat >job.yaml <<'E2'
apiVersion: muster/v1
kind: Job
name: tiny
nodes: 2
procsPerNode: 2
command: [cp, /proc/self/environ, "env.$(RANK)"]
env:
  LR: "0.1"
  WHO: $(RANK) of $(WORLD_SIZE) at $(MASTER_PORT)
  DB_PASSWORD: correcthorse
  DB_URL: db://me:correcthorse@host
E2
export WANDB_API_KEY=batterystaple KEPT='some value' PMIX_RANK=77
show_env() { run "$MUSTER" run --allow-run-as-root --agent-is-node --dry-run "$@"; }

# row NAME: origin and value of one line of the table.
row() { sed -n "s/^$1  *//p" out | sed 's/   */ | /'; }

# Every difference between what is shown (a file of JSON) and what worker RANK
# got (a file like /proc/PID/environ), but for what only the start decides.
differences() {
    python3 - "$1" "$2" "$3" <<'E2'
import json, sys
shown = next(w for w in json.load(open(sys.argv[1]))["workers"] if w["rank"] == int(sys.argv[3]))
want = {v["name"]: v["value"] for v in shown["env"]}
raw = open(sys.argv[2], "rb").read().decode(errors="surrogateescape")
got = dict(item.split("=", 1) for item in raw.split("\0") if "=" in item)
late = ("RUN-ID", "RUN-DIR", "AGENT-DIR", "<at the start>")
for name in sorted(want.keys() | got.keys()):
    value = want.get(name)
    if name in ("_", "MUSTER_RAN_SECONDS") or (value and value.startswith(late) and got.get(name)):
        continue
    if value != got.get(name):
        print(name, value, got.get(name))
E2
}

test_as_in_the_run() {
    local rank
    show_env --show-env --show-secrets -o json job.yaml
    is "$status" 0 'it is shown' || show
    cp out shown.json
    run timeout 120 "$MUSTER" run --allow-run-as-root --agent-is-node --quiet job.yaml
    is "$status" 0 'the same job runs' || show
    for rank in 0 1 2 3; do
        is "$(differences shown.json "env.$rank" "$rank")" '' "worker $rank got what was shown"
    done
    python3 -c 'import json; d = json.load(open("shown.json")); d["workers"][0]["env"] = d["workers"][0]["env"][1:]; json.dump(d, open("less.json", "w"))'
    isnt "$(differences less.json env.0 0)" '' 'a variable that was not shown would be seen'
}

test_origins() {
    show_env --show-env=3 job.yaml
    is "$status" 0 'one rank is shown' || show
    is "$(row RANK)" 'muster | 3' 'what is muster'\''s'
    is "$(row LR)" 'the job, job.yaml:8:7 | 0.1' 'what the job says, and where'
    is "$(row KEPT)" 'passed on | some value' 'what is passed on'
    is "$(row OMP_NUM_THREADS)" 'muster, as nobody else sets it | 1' 'a default'
    is "$(row WHO)" 'the job, job.yaml:9:8 | <at the start>' 'what only the start decides, through the job too'
    like "$(row MUSTER_RUN_DIR)" RUN-DIR 'or a name that says so'
    like "$(sed -n '/not passed on/,$p' out)" 'PMIX_RANK' 'what is not passed on'
    like "$(cat out)" 'worker 1 of node 1' 'the place of the worker'
    show_env --show-env job.yaml
    is "$(grep -c '^KEPT ' out):$(grep -c '^RANK ' out)" 1:4 'of all ranks: once what is alike'
}

test_secrets() {
    local format
    for format in wide json yaml; do
        show_env --show-env -o $format job.yaml
        is "$status" 0 "$format" || show
        unlike "$(cat out err)" correcthorse "$format: no secret of the job"
        unlike "$(cat out err)" batterystaple "$format: nor of the user"
    done
    show_env --show-env=0 job.yaml
    like "$(row DB_URL)" 'db://me:<hidden>@host' 'within another value it is cut out'
    like "$(row WANDB_API_KEY)" '<hidden>' 'that it is there is shown'
    like "$(row PWD)" "$TRASH" 'a directory is none'
    show_env --show-env=0 --show-secrets job.yaml
    like "$(row DB_PASSWORD)" correcthorse 'all is shown on demand'
}

test_besides() {
    (
        umask 027
        ulimit -Sn 200
        ulimit -Sl 64
        show_env --show-env -o json --nproc-per-node 1 --nnodes 1 -- true
        cp out shown.json
        run timeout 120 "$MUSTER" run --allow-run-as-root --quiet --logs none --run-dir run --nproc-per-node 1 -- \
            sh -c 'pwd; umask; ulimit -n; ulimit -c; sed -n "s/^Max locked memory *\([^ ]*\) .*/\1/p" /proc/self/limits; cat /proc/self/oom_score_adj'
    )
    limit() { python3 -c 'import json,sys; print(next(l["soft"] for l in json.load(open("shown.json"))["limits"] if l["name"] == sys.argv[1]))' "$1"; }
    is "$(cat run/logs/1/0/stdout)" "$(json cwd shown.json)
$(json umask shown.json)
$(limit 'open files')
$(limit 'core file')
$(limit 'locked memory')
$(json oom_score_adj shown.json)" 'directory, umask and limits are those of the worker'
    is "$(json umask shown.json)" 0027 'the umask of the shell'
    num "$(limit 'open files')" -gt 200 'the limit of open files is raised'
    isnt "$(limit 'locked memory')" 65536 'and so is that of locked memory'
    show_env --show-env=0 --set workdir=/ -- true
    is "$(row directory)" '--set | /' 'a directory of the job, and who says so'
}

# What users load into their shell reaches workers: modules, with the function that
# loads more of them, and the Python of an environment.
test_shells() {
    mkdir -p venv/bin
    printf '#!/bin/sh\necho the python of $VIRTUAL_ENV\n' >venv/bin/python
    chmod +x venv/bin/python
    (
        module() { echo "module $* beside $LOADEDMODULES"; }
        hidden() { :; }
        export -f module
        export LOADEDMODULES=gcc/12:openmpi/4.1 VIRTUAL_ENV=$TRASH/venv PATH=$TRASH/venv/bin:$PATH
        run timeout 120 "$MUSTER" run --allow-run-as-root --quiet --log-prefix none --run-dir shells --nproc-per-node 1 -- \
            bash -c 'module load cuda; python; type hidden 2>/dev/null || echo no more'
        show_env --show-env=0 --nproc-per-node 1 --nnodes 1 -- true
        cp out shown
    )
    is "$(cat shells/logs/1/0/stdout)" "module load cuda beside gcc/12:openmpi/4.1
the python of $TRASH/venv
no more" 'a function that was exported, what it has loaded, and a python by PATH' || diag "$(cat shells/logs/1/0/stderr)"
    like "$(cat shown)" 'LOADEDMODULES' 'which is shown'
    like "$(cat shown)" 'BASH_FUNC_module' 'with the function'
}

test_bad_usage() {
    run "$MUSTER" run --allow-run-as-root --show-env job.yaml
    is "$status" 2 'without --dry-run it is refused'
    like "$(cat err)" '--dry-run' 'with a hint'
    show_env --show-env=9 job.yaml
    is "$status" 2 'a rank that is none'
    like "$(cat err)" 'ranks 0 to 3' 'is told which there are'
    show_env --show-env=x job.yaml
    is "$status" 2 'and so is what is no rank'
    show_env -o json job.yaml
    is "$status" 2 '-o goes with --show-env'
    show_env --show-secrets job.yaml
    is "$status" 2 'and --show-secrets too'
}

run_cases
