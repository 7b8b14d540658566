#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Programs of frameworks as their users write them, with nothing between them and
# muster but the environment: JAX, accelerate, DeepSpeed, and Lightning and PyTorch's
# FSDP, which also go on from a checkpoint.
. "${MUSTER_SRCDIR:-$(dirname "$0")/..}/tests/lib/harness.sh"
need_muster
need_command mpirun
need_module torch jax accelerate deepspeed pytorch_lightning
examples=$MUSTER_SRCDIR/examples
export PYTHONPATH=$MUSTER_SRCDIR/python PYTHONDONTWRITEBYTECODE=1 PYTHONWARNINGS=ignore
export HF_HUB_OFFLINE=1 JAX_PLATFORMS=cpu DS_ACCELERATOR=cpu
two=(--allow-run-as-root --run-dir run --nproc-per-node 2)

# train PROGRAM...: two workers of it. PyTorch was seen to abort in its own teardown,
# after the last step ("terminate called without an active exception"): that may be
# run again, and what workers say may then stand there twice.
train() {
    rm -rf run
    run timeout 600 "$MUSTER" run "${two[@]}" --max-restarts 2 --set restart.backoff=10ms..20ms -- \
        "$MODULE_PYTHON" "$@"
    [ "$(field restarts)" = 0 ] || like "$(cat err)" 'terminate called' 'only PyTorch fails, at its end' || show
}
field() { "$MUSTER" status run -o json | json "$1"; }

# jax.distributed.initialize() without arguments, also where the environment has
# what its other ways to find out would take.
test_jax() {
    train "$examples/jax_train.py"
    is "$status" 0 'JAX trains' || show
    is "$(grep -o 'process [01] of .*' out | sort -u | tr '\n' ';')" \
        'process 0 of 2: 2 devices;process 1 of 2: 2 devices;' 'two processes see two devices'
    like "$(cat out)" 'done: loss 0.0000' 'to the end'
    rm -rf run
    run env SLURM_JOB_ID=7 SLURM_STEP_NODELIST=nowhere SLURM_NTASKS=9 SLURM_PROCID=8 SLURM_LOCALID=8 \
        timeout 600 "$MUSTER" run "${two[@]}" --max-restarts 0 -- "$MODULE_PYTHON" "$examples/jax_train.py" 10
    is "$status" 0 'among the variables of Slurm, too' || show
    is "$(grep -c 'process [01] of 2: 2 devices' out)" 2 'two processes'
}

test_accelerate() {
    train "$examples/accelerate_train.py"
    is "$status" 0 'accelerate trains' || show
    is "$(grep -o 'process [01] of .*' out | sort -u | tr '\n' ';')" 'process 0 of 2;process 1 of 2;' 'in two processes'
    like "$(cat out)" 'after 60 steps' 'that share the data'
}

test_deepspeed() {
    train "$examples/deepspeed_zero.py"
    is "$status" 0 'DeepSpeed trains' || show
    is "$(grep -o 'rank [01] of 2, ZeRO stage 1' out | sort -u | tr '\n' ';')" \
        'rank 0 of 2, ZeRO stage 1;rank 1 of 2, ZeRO stage 1;' 'with ZeRO over two processes'
    like "$(cat out)" 'done: loss 0.' 'to the end'
}

# A Trainer whose rank 1 is killed when it begins its fourth epoch, once.
test_lightning() {
    cat >killed.py <<'E2'
import os, runpy, signal, sys
import pytorch_lightning as pl

def begin(self):
    if os.environ["MUSTER_GENERATION"] == "1" and os.environ["RANK"] == "1" and self.current_epoch == 3:
        os.kill(os.getpid(), signal.SIGKILL)

pl.LightningModule.on_train_epoch_start = begin
sys.argv = sys.argv[1:]
runpy.run_path(sys.argv[0], run_name="__main__")
E2
    rm -rf run
    run timeout 600 "$MUSTER" run "${two[@]}" --max-restarts 3 --set restart.backoff=10ms..20ms -- \
        "$MODULE_PYTHON" killed.py "$examples/lightning_train.py" --epochs 6 --dir light.d
    is "$status" 0 'Lightning trains on after the loss of a worker' || show
    is "$(grep -o 'rank [01] of 2, from epoch [03]' out | sort -u | tr '\n' ';')" \
        'rank 0 of 2, from epoch 0;rank 0 of 2, from epoch 3;rank 1 of 2, from epoch 0;rank 1 of 2, from epoch 3;' \
        'two processes, which go on from the last checkpoint'
    like "$(cat out)" 'done after 6 epochs' 'to the end'
    num "$(field restarts)" -ge 1 'in another generation'
}

# One restart is for the kill.
test_fsdp() {
    rm -rf run
    spawn fsdp timeout 600 "$MUSTER" run "${two[@]}" --max-restarts 3 --set restart.backoff=10ms..20ms -- \
        "$MODULE_PYTHON" "$examples/fsdp.py" --steps 60 --every 5
    ok 'FSDP has saved a checkpoint' wait_for 300 eval '"$MUSTER" status run -o json | grep -q resume_path' ||
        diag "$(cat fsdp.out fsdp.err)"
    kill -KILL "$(field workers.1.pid)"
    wait_exit 600 "$spawned"
    is "$status" 0 'and goes on after the loss of a worker' || diag "$(cat fsdp.out fsdp.err)"
    matches "$(cat fsdp.out)" 'rank 1 holds 6[0-9]{3} of 12545 weights, from step [1-9]' 'from there, each with its half'
    like "$(cat fsdp.out)" 'step 60 loss 0.' 'to the end'
    is "$(field resume_step)" 60 'muster knows the last checkpoint'
}

run_cases
