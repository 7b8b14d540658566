#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Who failed first, where the order of the ends says otherwise: workers that have
# failed and do not end, beside those that end because of it. And what workers
# leave in their error files, well-formed or not.
. "${MUSTER_SRCDIR:-$(dirname "$0")/..}/tests/lib/harness.sh"
need_muster
need_command mpirun python3

# mrun OPTION... -- COMMAND...: no restarts.
mrun() {
    rm -rf run there && mkdir there
    run timeout 120 "$MUSTER" run --allow-run-as-root --run-dir run --max-restarts 0 "$@"
}
field() { "$MUSTER" status run -o json | json "$1"; }
nobody_left() { run_gone "$(json id run/run.json)"; }

# blame.py RANK:ACTION...: each rank does what it is told, once the one before it
# in the list has. Ranks that are not named wait for their end.
cat >blame.py <<'END'
import json, os, signal, sys, time
rank = os.environ["RANK"]

def done(n):
    os.close(os.open("there/%d" % n, os.O_CREAT))

def write_file():
    path = os.environ["TORCHELASTIC_ERROR_FILE"]
    with open(path + ".part", "w") as f:
        json.dump({"message": {"message": "ValueError: shard 7 is bad", "extraInfo": {
            "py_callstack": "Traceback (most recent call last):\n  File \"t.py\", line 3, in f\n"
                            "ValueError: shard 7 is bad\n", "timestamp": "1795206357"}}}, f)
    os.rename(path + ".part", path)

def say(what):
    sys.stderr.write("Traceback (most recent call last):\n  File \"t.py\", line 3, in f\n%s\n" % what)
    sys.stderr.flush()

signal.alarm(100)
for n, word in enumerate(sys.argv[1:]):
    who, action = word.split(":")
    if who != rank:
        continue
    while n and not os.path.exists("there/%d" % (n - 1)):
        time.sleep(0.01)
    time.sleep(0.05)  # longer than a tick of the clock of file times
    if action == "file":
        write_file()
    elif action == "say":
        say("ValueError: shard 7 is bad")
    done(n)
    if action == "echo":
        raise ConnectionResetError(104, "Connection reset by peer")
    if action == "segv":
        os.kill(os.getpid(), signal.SIGSEGV)
    if action == "exit":
        sys.exit(3)
while True:
    time.sleep(1)
END

test_slow_end() {
    local nodes
    for nodes in 1 2; do
        mrun --nnodes $nodes --agent-is-node --nproc-per-node $((2 / nodes)) -- python3 blame.py 1:file 0:echo
        is "$status" 1 "on $nodes node(s), a worker has written its error file and does not end" || show
        is "$(field failure.rank)" 1 'it is the cause, not the one that lost it' || show
        like "$(cat err)" 'failed, and had not ended yet: ValueError: shard 7 is bad' 'which is told' || show
        is "$(field failure.error_file)" errors/1-1.json 'with its error file'
        is "$(json message.message run/errors/1-1.json)" 'ValueError: shard 7 is bad' 'which is kept'
        like "$(field failure.lines)" 'line 3, in f' 'and its traceback'
        mrun --nnodes $nodes --agent-is-node --nproc-per-node $((2 / nodes)) -- python3 blame.py 1:say 0:echo
        is "$(field failure.rank)" 1 'so has one that has printed its traceback' || show
        is "$(field failure.error_file 2>/dev/null)" '' 'without a file'
        ok 'nobody is left' wait_for 60 nobody_left
    done
}

# The time of the error file counts, however the others end.
test_order() {
    mrun --nproc-per-node 2 -- python3 blame.py 1:file 0:segv
    is "$(field failure.rank)" 1 'a crash after an error file is not the cause' || show
    mrun --nnodes 2 --agent-is-node --nproc-per-node 1 -- python3 blame.py 1:file 0:exit
    is "$(field failure.rank)" 1 'nor is an exit on another node' || show
    mrun --nproc-per-node 2 -- python3 blame.py 1:say 0:segv
    is "$status" 139 'but a traceback alone may have been survived' || show
    is "$(field failure.rank)" 0 'so the crash is the cause'
    mrun --nproc-per-node 3 -- python3 blame.py 2:file 1:file 0:exit
    is "$(field failure.rank)" 2 'of two error files the first is' || show
    mrun --nproc-per-node 2 -- python3 blame.py 0:echo
    is "$(field failure.rank)" 0 'an echo of nobody is the cause in the end' || show
}

# failing WORDS: a worker fails with these bytes in its error file.
failing() {
    printf "$1" >words
    mrun --nproc-per-node 1 -- sh -c 'cp words "$TORCHELASTIC_ERROR_FILE"; echo in its output; exit 3'
    is "$status" 3 "$2" || show
}
test_files() {
    failing '{"message": "plain words\\nmore"}' 'a plain message'
    like "$(cat err)" 'exited with code 3: plain words' 'is the reason'
    is "$(field failure.error_file)" errors/1-0.json 'and the file kept'
    failing '{"message": {"message": "red \\u001b[31m \\u009b31m \\u202e x", "extraInfo": {}}}' 'one that would drive a terminal'
    like "$(cat err)" 'exited with code 3: red ?[31m ?31m ? x' 'is shown without that'
    ok 'on stderr and in the status' not grep -aP '\x1b\[31m|\xc2\x9b|\xe2\x80\xae' err <("$MUSTER" status run)
    failing '{"message": {"message": "a\\u0000b \\ud800", "extraInfo": {}}}' 'one with what is no character'
    like "$(cat err)" $'exited with code 3: a\ufffdb \ufffd' 'is shown with a mark for it'
    is "$(field failure.error_file)" errors/1-0.json 'and kept'
    local bad
    for bad in 'oops' '{"message": "half' '{"message": [1]}' '\377\376' ''; do
        failing "$bad" "no error file: $(printf '%q' "$bad")"
        like "$(field failure.lines)" 'in its output' 'the output counts then'
        is "$(field failure.error_file 2>/dev/null)" '' 'and nothing is kept'
    done
    python3 -c 'import json
text = "Traceback (most recent call last):\n" * 25000
json.dump({"message": {"message": "x" * 5000, "extraInfo": {"py_callstack": text}}}, open("words", "w"))'
    mrun --nproc-per-node 1 -- sh -c 'cp words "$TORCHELASTIC_ERROR_FILE"; exit 3'
    is "$status" 3 'a very long one' || show
    like "$(cat err)" 'exited with code 3: xxxxx' 'is cut'
    num "$(grep -a 'exited with code' err | wc -L)" -lt 1500 'to a line'
    num "$(stat -c %s run/status.json)" -lt 30000 'in the status, too'
    python3 -c 'print("[" * 900000)' >words
    mrun --nproc-per-node 1 -- sh -c 'cp words "$TORCHELASTIC_ERROR_FILE"; exit 3'
    is "$status" 3 'one that is nested deeply is left aside' || show
    mrun --nproc-per-node 1 -- sh -c 'truncate -s 2M "$TORCHELASTIC_ERROR_FILE"; exit 3'
    is "$status" 3 'so is one that is too large' || show
    mrun --nproc-per-node 1 -- sh -c 'mkfifo "$TORCHELASTIC_ERROR_FILE"; exit 3'
    is "$status" 3 'and a pipe, which nobody waits for' || show
}

# What may help is said, where the worker's own words are of a full GPU.
test_advice() {
    cat >full.py <<'END'
class OutOfMemoryError(RuntimeError): pass
OutOfMemoryError.__module__ = "torch"
raise OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of 79.11 GiB")
END
    mrun --nproc-per-node 1 -- python3 full.py
    is "$status" 1 'a GPU without memory' || show
    like "$(cat err)" 'torch.OutOfMemoryError: CUDA out of memory' 'is the reason'
    like "$(cat err)" 'advice: the memory of the GPU was full: use a smaller batch, gradient checkpointing, DeepSpeed ZeRO-3' \
        'for which there is advice' || show
    is "$(grep -c advice: err)" 1 'once'
    like "$("$MUSTER" describe run)" 'advice: the memory of the GPU' 'also in what describe tells' || diag "$("$MUSTER" describe run)"
    like "$(field failure.advice)" 'QLoRA instead of LoRA' 'and in the status'
    mrun --nproc-per-node 1 -- python3 -c 'raise KeyError("x")'
    unlike "$(cat err; "$MUSTER" describe run)" 'advice' 'there is none for what says enough'
}

# What import muster writes of an exception is what the run says of it, and keeps.
test_record() {
    cat >record.py <<'END'
import sys, muster
def fails(shard):
    raise ValueError("shard %d is bad" % shard)
@muster.record
def main():
    fails(7)
if sys.argv[1] == "call":
    main()
with muster.record():
    if sys.argv[1] == "exit":
        sys.exit(4)
    fails(8)
END
    export PYTHONPATH=$MUSTER_SRCDIR/python PYTHONDONTWRITEBYTECODE=1
    local how shard
    for how in call:7 with:8; do
        shard=${how#*:}
        mrun --nproc-per-node 2 -- sh -c "[ \$RANK = 0 ] && exec sleep 1000; exec python3 record.py ${how%:*} 2>/dev/null"
        is "$status:$(field failure.rank)" 1:1 "an exception in a ${how%:*}" || show
        like "$(cat err)" "exited with code 1: ValueError: shard $shard is bad" 'is the reason' || show
        like "$(field failure.lines)" 'in fails' 'with its traceback, which was not printed'
        is "$(json message.message run/errors/1-1.json)" "ValueError: shard $shard is bad" 'and kept'
    done
    mrun --nproc-per-node 1 -- python3 record.py exit
    is "$status:$(ls run/errors 2>/dev/null)" 4: 'an exit is none' || show
    unset PYTHONPATH
}

# PyTorch's own words of a process that loads data and was killed, as the kernel does
# where memory does not suffice.
test_loader() {
    local python=/usr/bin/python3
    has_torch "$python" || { skip 'no PyTorch of the system' 3; return; }
    cat >loader.py <<'END'
import os, signal, time
from torch.utils.data import DataLoader, Dataset
class Items(Dataset):
    def __len__(self): return 100
    def __getitem__(self, i):
        if i == 50:
            time.sleep(1)  # nothing is on its way any more
            os.kill(os.getpid(), signal.SIGKILL)
        return i
# No tensors: those come by way of another connection, which may be lost first.
for batch in DataLoader(Items(), num_workers=1, collate_fn=list): pass
END
    mrun --nproc-per-node 1 -- "$python" loader.py
    is "$status" 1 'a worker whose loader is killed' || show
    like "$(cat err)" 'DataLoader worker' 'says so' || show
    like "$(cat err)" 'advice: a process that loads data was killed, as the kernel does' 'and what may help is told' || show
}

run_cases
