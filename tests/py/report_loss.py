# SPDX-License-Identifier: Apache-2.0
"""A worker that reports to muster until it is told to stop, or SECONDS are over.

    report_loss.py [SECONDS]
"""

import signal
import sys
import time

import muster

signal.signal(signal.SIGTERM, signal.SIG_IGN)  # muster.should_stop() says it too
until = time.monotonic() + float(sys.argv[1] if len(sys.argv) > 1 else 60)
step = 0
while time.monotonic() < until and not muster.should_stop():
    step += 1
    muster.report(step, loss=0.25 + muster.rank(), throughput=100.0)
    time.sleep(0.05)
print(f"rank {muster.rank()} of {muster.world()} stopped at step {step}", flush=True)
