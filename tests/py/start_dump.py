#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""What a process finds of itself when its program begins, as JSON in
DUMP/<rank>.json, for comparing two kinds of start. Before that, in the first
generation, it waits for the file DUMP/go, and fails."""
import ctypes
import os
import sys

FIRST = set(sys.modules)
STACK = sys._getframe().f_back


def c_environ():
    at = ctypes.POINTER(ctypes.c_char_p).in_dll(ctypes.CDLL(None), "environ")
    found = []
    while at[len(found)] is not None:
        found.append(at[len(found)])
    return sorted(found)


def status():
    keep = ("SigPnd", "ShdPnd", "SigBlk", "SigIgn", "SigCgt", "Cap", "NoNew", "Seccomp", "Threads", "Umask", "Name")
    with open("/proc/self/status", encoding="ascii") as f:
        return sorted(line.strip() for line in f if line.startswith(keep))


def descriptors():
    found = {}
    for fd in os.listdir("/proc/self/fd"):
        try:
            found[fd] = os.readlink("/proc/self/fd/" + fd).split("[")[0], os.get_inheritable(int(fd))
        except OSError:  # of the listing itself
            pass
    return found


def death_signal():
    value = ctypes.c_int()
    ctypes.CDLL(None).prctl(2, ctypes.byref(value), 0, 0, 0)
    return value.value


def stream(f):
    return [f.fileno(), f.mode, f.encoding, f.errors, f.line_buffering, f.write_through, f.newlines, f.isatty(),
            f.seekable(), f.name, type(f.buffer).__name__]


def read(path):
    with open(path, "rb") as f:
        return f.read().decode(errors="replace")


def dump():
    import __main__
    import faulthandler
    import gc
    import site
    import threading
    import traceback
    import warnings

    main = vars(__main__)
    return {
        "argv": sys.argv, "orig_argv": sys.orig_argv, "path": sys.path, "flags": list(sys.flags),
        "executable": sys.executable, "prefixes": [sys.prefix, sys.base_prefix, sys.exec_prefix],
        "warnoptions": sys.warnoptions, "xoptions": sorted(map(str, sys._xoptions.items())),
        "main": {k: repr(main.get(k)).split(" at 0x")[0] for k in sorted(main) if k.startswith("__")},
        "main is": [__main__ is sys.modules["__main__"], __name__, main["__builtins__"] is sys.modules["builtins"]],
        "caller": STACK is None, "depth": len(traceback.extract_stack()),
        "sitecustomize": repr(sys.modules.get("sitecustomize")), "site": [site.ENABLE_USER_SITE, site.PREFIXES],
        "importers": sorted(p for p in sys.path_importer_cache if "warm" in p),
        "hooks": [sys.excepthook is sys.__excepthook__, sys.displayhook is sys.__displayhook__,
                  sys.stdout is sys.__stdout__, sys.stderr is sys.__stderr__, sys.stdin is sys.__stdin__],
        "streams": [stream(f) for f in (sys.stdin, sys.stdout, sys.stderr)],
        "environ": dict(os.environ), "same in C": c_environ() == sorted(b"=".join(i) for i in os.environb.items()),
        "cwd": os.getcwd(), "umask": os.umask(0o22), "fds": descriptors(), "status": status(),
        "limits": read("/proc/self/limits"), "cpus": sorted(os.sched_getaffinity(0)),
        "oom": read("/proc/self/oom_score_adj"), "nice": os.nice(0), "comm": read("/proc/self/comm"),
        "cmdline": read("/proc/self/cmdline"), "death": death_signal(), "parent": read("/proc/%d/comm" % os.getppid()),
        "leads": [os.getpid() == os.getsid(0), os.getpid() == os.getpgid(0)],
        "threads": [threading.active_count(), threading.main_thread() is threading.current_thread(),
                    threading.get_native_id() == os.getpid(), threading.main_thread().native_id == os.getpid()],
        "gc": [gc.isenabled(), gc.get_threshold(), gc.get_freeze_count()],
        "warnings": [str(f[0:1] + f[2:3]) for f in warnings.filters], "faulthandler": faulthandler.is_enabled(),
        "modules": sorted(m for m in FIRST if m.startswith(("muster", "usercustomize"))),
    }


def main():
    import json
    import time

    to = os.environ["DUMP"]
    if os.environ["TORCHELASTIC_RESTART_COUNT"] == "0":
        while not os.path.exists(to + "/go"):
            time.sleep(0.02)
        sys.exit(9)
    found = dump()
    with open("/proc/self/environ", "rb") as f:
        warm = b"MUSTER_WARM=" in f.read()
    found["warm"] = warm
    import random

    found["random"] = random.random()
    with open("%s/%s.json" % (to, os.environ["RANK"]), "w", encoding="utf-8") as f:
        json.dump(found, f, indent=1)


main()
