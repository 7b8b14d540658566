# SPDX-License-Identifier: Apache-2.0
"""Holds muster's reader of safetensors files against the reference library.

safetensors_differ.py DIRECTORY [MUSTER]

DIRECTORY is what `safetensors_test --dump` has written: files, and a list of which of
them muster takes. Prints a line for each that the library refuses and muster takes, and
for each that muster alone refuses without a reason that is listed here; then how many of
each there were. With MUSTER `muster ckpt verify` has to say the same as the list.
"""
import json
import subprocess
import sys

import safetensors

# What muster alone refuses, by what it says, and why.
STRICTER = {
    "does not begin with '{'": "the format says that it does; a blank before it moves what is aligned",
    "duplicate": "of two tensors or values of one name each reader may take another",
    "NUL byte in object key": "to a reader in C that name ends there, and is another's",
    "u0000 is not allowed": "to a reader in C a text of __metadata__ ends there",
    "at most 16 lengths": "more than shapes of muster have; no program here writes such",
    "is no object": "null where the format has an object of texts",
    "unknown dtype ''": "a tensor as a list, which the library reads by the order of its values",
    "too big integer": "a number that no 64 bits hold, beside what is known",
}

top = sys.argv[1]


def is_taken_there(data):
    try:
        safetensors.deserialize(data)
    except Exception:
        return False
    return True


said = {}
if len(sys.argv) > 2:
    out = subprocess.run([sys.argv[2], "ckpt", "verify", top, "-o", "json"], stdout=subprocess.PIPE, check=False).stdout
    said = {c["name"]: c["state"] == "whole" for c in json.loads(out)}

n = {"both": 0, "neither": 0, "stricter": 0}
with open(f"{top}/list", encoding="utf-8") as f:
    lines = f.read().splitlines()
for line in lines:
    name, state, why = line.split("\t")
    with open(f"{top}/{name}", "rb") as f:
        data = f.read()
    here, there = state == "taken", is_taken_there(data)
    if said and said.get(name) != here:
        print(f"{name}: muster ckpt verify says otherwise: {data!r}")
    if here and not there:
        print(f"{name}: muster takes what the library refuses: {data!r}")
    elif there and not here and why not in STRICTER:
        print(f"{name}: muster alone refuses it, {why!r}: {data!r}")
    n["both" if here and there else "stricter" if there else "neither"] += 1
print(f"{n['both']} taken by both, {n['neither']} refused by both, {n['stricter']} by muster alone")
