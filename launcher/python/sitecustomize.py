# SPDX-License-Identifier: Apache-2.0
"""Lets muster ask a worker that hangs for its traceback.

Python imports this at its start where hang.timeout is set. From then on SIGURG,
which is ignored otherwise, has all threads' tracebacks written to a file of this
process; nothing else changes. A sitecustomize of somebody else is imported as if
this one were not there.
"""

import os
import sys


def _listen(prefix):
    import faulthandler
    import signal

    if signal.getsignal(signal.SIGURG) is not signal.SIG_DFL:
        return
    name = "%s.%d" % (prefix, os.getpid())
    fd = os.open(name, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
    faulthandler.register(signal.SIGURG, file=fd, all_threads=True, chain=False)


def _next():
    here = os.path.dirname(os.path.abspath(__file__))
    sys.path[:] = [p for p in sys.path if os.path.abspath(p) != here]
    this = sys.modules.pop("sitecustomize", None)
    try:
        import sitecustomize  # noqa: F401
    except ImportError as error:
        if error.name != "sitecustomize":
            raise
        if this is not None:
            sys.modules["sitecustomize"] = this


try:
    if os.environ.get("MUSTER_STACKS"):
        _listen(os.environ["MUSTER_STACKS"])
except Exception:  # of no help, but no reason to fail either
    pass
_next()
