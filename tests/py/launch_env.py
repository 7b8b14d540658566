# SPDX-License-Identifier: Apache-2.0
"""Prints the variables that accelerate's launcher leaves for its library, and, asked
with --state, what the library made of them."""
import os
import sys

PREFIXES = ("ACCELERATE_", "FSDP_", "MEGATRON_LM_", "PARALLELISM_CONFIG_")

if "--state" in sys.argv:
    from accelerate import Accelerator

    a = Accelerator()
    sys.stdout.write(f"{a.process_index} of {a.num_processes} on {a.device.type}: {a.mixed_precision} "
                     f"{a.state.dynamo_plugin.backend.value} {a.distributed_type.value}\n")
elif os.environ.get("RANK", "0") == "0":
    for name in sorted(os.environ):
        if name.startswith(PREFIXES):
            sys.stdout.write(f"{name}={os.environ[name].lower()}\n")
