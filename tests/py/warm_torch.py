# SPDX-License-Identifier: Apache-2.0
"""A DDP step with DataLoader workers, in the second generation; the first one fails
once the file of the first argument is there."""
import os
import sys
import time

import torch
import torch.distributed as dist
from torch.utils.data import DataLoader, Dataset


class Numbers(Dataset):
    def __len__(self):
        return 8

    def __getitem__(self, i):
        return torch.full((2,), float(i))


def main():
    if os.environ["TORCHELASTIC_RESTART_COUNT"] == "0":
        while not os.path.exists(sys.argv[1]):
            time.sleep(0.02)
        sys.exit(9)
    with open("/proc/self/environ", "rb") as f:
        print("warm" if b"MUSTER_WARM=" in f.read() else "plain")
    dist.init_process_group("gloo")
    model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(2, 1))
    drawn = [None] * dist.get_world_size()
    dist.all_gather_object(drawn, torch.rand(1).item())
    print("drawn", len(set(drawn)))
    for method in "fork", "spawn":
        loader = DataLoader(Numbers(), batch_size=4, num_workers=2, multiprocessing_context=method)
        loss = sum(model(batch).sum() for batch in loader)
        loss.backward()
        print(method, sum(batch.sum().item() for batch in loader))
    total = torch.ones(1)
    dist.all_reduce(total)
    print("sum", int(total), flush=True)
    # PyTorch 1.13 may hang in its teardown: the main thread waits for one of gloo,
    # with the interpreter's lock, which that one needs to free a tensor.
    os._exit(0)


if __name__ == "__main__":
    main()
