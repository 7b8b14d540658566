# SPDX-License-Identifier: Apache-2.0
"""A worker that checks what it was given, and leaves a file named by its rank.

    env_check.py DIR [NAME=VALUE...]

Fails (1) with one line for each thing that is wrong in the environment that
torchrun's contract names, or where NAME is not VALUE ("NAME=" wants it empty,
"-NAME" wants it absent). Needs no PyTorch.
"""

import os
import sys

NUMBERS = (
    "RANK WORLD_SIZE LOCAL_RANK LOCAL_WORLD_SIZE GROUP_RANK GROUP_WORLD_SIZE ROLE_RANK"
    " ROLE_WORLD_SIZE MASTER_PORT TORCHELASTIC_RESTART_COUNT TORCHELASTIC_MAX_RESTARTS"
).split()
TEXTS = (
    "ROLE_NAME MASTER_ADDR TORCHELASTIC_RUN_ID TORCHELASTIC_USE_AGENT_STORE"
    " TORCHELASTIC_ERROR_FILE TORCH_NCCL_ASYNC_ERROR_HANDLING OMP_NUM_THREADS"
).split()
# rank and its size: 0 <= rank < size
PAIRS = (
    ("RANK", "WORLD_SIZE"),
    ("LOCAL_RANK", "LOCAL_WORLD_SIZE"),
    ("GROUP_RANK", "GROUP_WORLD_SIZE"),
    ("ROLE_RANK", "ROLE_WORLD_SIZE"),
    ("LOCAL_WORLD_SIZE", "WORLD_SIZE+1"),
)
# What launchers leave behind, and would make MPI or JAX in a worker go wrong.
ABSENT_PREFIXES = ("PMIX_", "PMI_", "ORTE_", "PRTE_", "OMPI_MCA_ess", "OMPI_MCA_orte_")

# But for how the user has an mpirun of theirs set up.
USERS_OWN = ("PRTE_MCA_", "PMIX_MCA_")


def wrong_numbers(env):
    numbers = {}
    for name in NUMBERS:
        if name not in env:
            yield f"{name} is not set"
        elif not env[name].isdecimal():
            yield f"{name} is not a number: {env[name]!r}"
        else:
            numbers[name] = int(env[name])
    for low, high in PAIRS:
        name, _, plus = high.partition("+")
        if low in numbers and name in numbers:
            if not numbers[low] < numbers[name] + int(plus or 0):
                yield f"{low}={numbers[low]} does not fit {name}={numbers[name]}"
    if numbers.get("MASTER_PORT", 1) not in range(1, 65536):
        yield f"MASTER_PORT={numbers['MASTER_PORT']}"


def wrong_texts(env):
    for name in TEXTS:
        if not env.get(name):
            yield f"{name} is not set"
    if env.get("TORCHELASTIC_USE_AGENT_STORE") not in ("True", "False"):
        yield "TORCHELASTIC_USE_AGENT_STORE is neither True nor False"
    for name, value in env.items():
        if name == "OMPI_MCA_orte_hnp_uri" and value.startswith("0.0;tcp"):
            continue  # muster's own word to JAX
        if name.startswith(USERS_OWN):
            continue
        if name.startswith(ABSENT_PREFIXES):
            yield f"{name} is left over"


def wrong_wishes(env, wishes):
    for wish in wishes:
        name, eq, value = wish.partition("=")
        if wish.startswith("-"):
            if wish[1:] in env:
                yield f"{wish[1:]} is set: {env[wish[1:]]!r}"
        elif not eq or env.get(name) != value:
            yield f"{name} is {env.get(name)!r}, expected {value!r}"


def main():
    env = dict(os.environ)
    wrong = [*wrong_numbers(env), *wrong_texts(env), *wrong_wishes(env, sys.argv[2:])]
    for line in wrong:
        print(f"env_check: rank {env.get('RANK', '?')}: {line}", file=sys.stderr)
    if not wrong:
        with open(os.path.join(sys.argv[1], env["RANK"]), "x", encoding="utf-8") as f:
            f.write(f"{os.getpid()}\n")
    sys.exit(1 if wrong else 0)


main()
