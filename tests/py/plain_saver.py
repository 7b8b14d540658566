# SPDX-License-Identifier: Apache-2.0
"""A PyTorch script as people write them: it saves what it goes on from into a directory of
each epoch or step, file by file, and knows nothing of muster but a variable.

    plain_saver.py DIRECTORY NAME LAST HOW [--told | --early]

Trains for LAST steps of a model of one weight, which after step N is N; after each tenth
it saves DIRECTORY/NAME, with a %d in it for the step: model.pt, optim.pt, meta.json. In its
first generation it dies by SIGKILL in its second save: HOW is "between" model.pt and
optim.pt, or "within" optim.pt. Where it starts is a line "GENERATION STEP RESUME_PATH" in
DIRECTORY.log; that all it loads is of one step, is checked. With --told it says itself
what it has saved, by the path of model.pt; with --early before the rest is there.
"""
import json
import os
import signal
import sys

import torch

top, name, last, how = sys.argv[1], sys.argv[2], int(sys.argv[3]), sys.argv[4]
when = sys.argv[5] if len(sys.argv) > 5 else ""
generation = os.environ["MUSTER_GENERATION"]


class Fatal:
    """What cannot be pickled, for the process ends while it is."""

    def __reduce__(self):
        os.kill(os.getpid(), signal.SIGKILL)
        return Fatal, ()


def tell(at, path, step):
    if at == when:
        import muster
        muster.checkpoint_saved(f"{os.path.abspath(path)}/model.pt", step)


def save(step):
    path = f"{top}/{name % step}"
    is_last = generation == "1" and step == 20
    os.makedirs(path, exist_ok=True)
    torch.save(model.state_dict(), f"{path}/model.pt")
    tell("--early", path, step)
    if is_last and how == "between":
        os.kill(os.getpid(), signal.SIGKILL)
    with open(f"{path}/optim.pt", "wb") as f:
        if is_last and how == "within":
            f.write(b"PK\x03\x04" + b"\0" * 100)
            f.flush()
            torch.save({"of": Fatal()}, f)
        torch.save({"step": step, "state": optim.state_dict()}, f)
    with open(f"{path}/meta.json", "w", encoding="utf-8") as f:
        json.dump({"step": step}, f)
    tell("--told", path, step)


model = torch.nn.Linear(1, 1, bias=False)
optim = torch.optim.SGD(model.parameters(), lr=1.0)
resume, step = os.environ.get("MUSTER_RESUME_PATH"), 0
torch.nn.init.zeros_(model.weight)
if resume:
    at = os.path.dirname(resume) if resume.endswith(".pt") else resume
    model.load_state_dict(torch.load(f"{at}/model.pt"))
    step = torch.load(f"{at}/optim.pt")["step"]
    with open(f"{at}/meta.json", encoding="utf-8") as f:
        assert json.load(f)["step"] == step == int(model.weight), f"{at} is of several steps"
with open(top + ".log", "a", encoding="utf-8") as f:
    f.write(f"{generation} {step} {resume}\n")
while step < last:
    step += 1
    optim.zero_grad()
    (-model(torch.ones(1, 1)).sum()).backward()
    optim.step()
    if step % 10 == 0:
        save(step)
