#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Data-parallel training with JAX over several processes.

    muster run --nproc-per-node 2 -- python3 examples/jax_train.py
    python3 examples/jax_train.py

jax.distributed.initialize() finds everything by itself under muster. A linear
model is fitted; each process computes the loss of its own rows, and XLA adds up
the gradients over all of them.
"""

import os
import sys

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec

if int(os.environ.get("WORLD_SIZE", "1")) > 1:
    jax.distributed.initialize()

ROWS, COLUMNS = 64, 8
steps = int(sys.argv[1]) if len(sys.argv) > 1 else 100

mesh = Mesh(np.array(jax.devices()), ("rows",))
by_rows = NamedSharding(mesh, PartitionSpec("rows"))
everywhere = NamedSharding(mesh, PartitionSpec())


def rows(seed):
    """A global array of which each process makes its own part."""
    whole = np.random.default_rng(seed).normal(size=(ROWS, COLUMNS)).astype(np.float32)
    return jax.make_array_from_callback(whole.shape, by_rows, lambda where: whole[where])


truth = jnp.arange(1.0, COLUMNS + 1)


@jax.jit
def step(weights, x):
    def loss_of(weights):
        return jnp.mean((x @ weights - x @ truth) ** 2)

    loss, gradient = jax.value_and_grad(loss_of)(weights)
    return weights - 0.1 * gradient, loss


def main():
    me, world = jax.process_index(), jax.process_count()
    print(f"process {me} of {world}: {jax.device_count()} devices", flush=True)
    weights = jax.device_put(np.zeros(COLUMNS, np.float32), everywhere)
    for i in range(steps):
        weights, loss = step(weights, rows(i))
    loss = float(loss.addressable_data(0))
    if me == 0:
        print(f"done: loss {loss:.6f} after {steps} steps", flush=True)


main()
