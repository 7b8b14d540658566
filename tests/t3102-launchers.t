#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Lines that start deepspeed and accelerate: muster takes their place, and the
# programs behind them get what they would get there.
. "${MUSTER_SRCDIR:-$(dirname "$0")/..}/tests/lib/harness.sh"
need_muster
need_command mpirun
need_module torch accelerate deepspeed
bin=$(dirname "$MODULE_PYTHON")
export PYTHONDONTWRITEBYTECODE=1 PYTHONWARNINGS=ignore HF_HUB_OFFLINE=1 DS_ACCELERATOR=cpu HF_HOME=$TRASH/hf
export HOME=$TRASH
one=(--allow-run-as-root --quiet --run-dir run --log-prefix none)
show_env=$MUSTER_SRCDIR/tests/py/launch_env.py

# same WORDS...: what accelerate launch itself would set, and what muster does.
same() {
    "$bin/accelerate" launch "$@" "$show_env" >theirs 2>err || { fail "accelerate launch $*"; show; return; }
    rm -rf run
    run timeout 300 "$MUSTER" run "${one[@]}" --nproc-per-node 1 -- "$bin/accelerate" launch "$@" "$show_env"
    is "$status" 0 "muster takes accelerate launch $*" || show
    # USE_CPU=false, which some of its ways set, says what its absence says.
    is "$(grep -v USE_CPU=false out)" "$(grep -v USE_CPU=false theirs)" 'and sets what that sets'
}

test_accelerate_variables() {
    same --num_processes 1 --mixed_precision bf16 --dynamo_backend inductor --dynamo_use_dynamic --debug
    same --cpu --num_processes 1 --enable_cpu_affinity
    same --use_fsdp --num_processes 1 --fsdp_version 2 --fsdp_offload_params true --fsdp_auto_wrap_policy NO_WRAP \
        --use_parallelism_config --parallelism_config_dp_shard_size 1
    same --use_deepspeed --num_processes 1 --zero_stage 2 --gradient_accumulation_steps 4 --offload_optimizer_device cpu
    same --use_megatron_lm --num_processes 1 --megatron_lm_tp_degree 2
}

test_accelerate_config() {
    mkdir -p hf/accelerate
    cat >hf/accelerate/default_config.yaml <<'E2'
compute_environment: LOCAL_MACHINE
debug: false
distributed_type: FSDP
downcast_bf16: 'no'
enable_cpu_affinity: false
fsdp_config:
  fsdp_activation_checkpointing: false
  fsdp_auto_wrap_policy: TRANSFORMER_BASED_WRAP
  fsdp_cpu_ram_efficient_loading: true
  fsdp_offload_params: true
  fsdp_reshard_after_forward: true
  fsdp_state_dict_type: SHARDED_STATE_DICT
  fsdp_version: 2
machine_rank: 0
main_training_function: main
mixed_precision: bf16
num_machines: 1
num_processes: 1
rdzv_backend: static
same_network: true
tpu_env: []
tpu_use_cluster: false
tpu_use_sudo: false
use_cpu: false
E2
    same
    same --mixed_precision no --fsdp_version 1
    rm -rf hf
}

# Its library, in two processes that its options ask for.
test_accelerate_state() {
    rm -rf run
    run timeout 300 "$MUSTER" run "${one[@]}" -- "$bin/accelerate" launch --cpu --num_processes 2 \
        --mixed_precision bf16 "$show_env" --state
    is "$status" 0 'accelerate launch of two processes' || show
    is "$(sort out | tr '\n' ';')" '0 of 2 on cpu: bf16 NO MULTI_CPU;1 of 2 on cpu: bf16 NO MULTI_CPU;' \
        'each in its place, with its precision'
}

test_deepspeed() {
    cat >args.py <<'E2'
import argparse
import os
import sys

import deepspeed

parser = deepspeed.add_config_arguments(argparse.ArgumentParser())
parser.add_argument("--local_rank", type=int)
parser.add_argument("--lr")
args = parser.parse_args()
deepspeed.ops.__compatible_ops__ = {}  # plain gloo: what DeepSpeed has of its own for CPUs is compiled first
deepspeed.init_distributed("gloo")
sys.stdout.write(f"{deepspeed.comm.get_rank()} of {deepspeed.comm.get_world_size()}: local_rank {args.local_rank} "
                 f"{args.deepspeed_config} {args.lr} {os.environ.get('FROM_FILE')}\n")
E2
    echo FROM_FILE=yes >.deepspeed_env
    rm -rf run
    run timeout 300 "$MUSTER" run "${one[@]}" -- "$bin/deepspeed" --num_accelerators 2 --master_port 1 \
        args.py --deepspeed_config c.json --lr 3
    is "$status" 0 'deepspeed of two processes' || show
    is "$(grep local_rank out | sort | tr '\n' ';')" \
        '0 of 2: local_rank 0 c.json 3 yes;1 of 2: local_rank 1 c.json 3 yes;' \
        'each with its local rank, its arguments and the variables of .deepspeed_env'
    rm -rf run
    run timeout 300 "$MUSTER" run "${one[@]}" -- "$bin/deepspeed" --num_gpus 1 --no_local_rank args.py
    like "$(cat out)" '0 of 1: local_rank None' 'or without it'
}

run_cases
