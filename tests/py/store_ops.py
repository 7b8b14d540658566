# SPDX-License-Identifier: Apache-2.0
"""Clients of a c10d TCPStore, of the PyTorch that runs this file.

    store_ops.py serve [--no-libuv]            PyTorch's own server; prints its port
    store_ops.py ops NAME:PORT... [--no-libuv] every operation; NAME.ops has what came of each
    store_ops.py abandon PORT                  a wait given up, then other requests

What `ops` writes of two servers can be compared: it has no times, no
addresses and no order that is left open. An operation that this PyTorch does
not have is not written. All servers are asked by one process, for importing
PyTorch takes longer than all operations.
"""

import contextlib
import datetime
import sys
import threading
import time

import torch.distributed as dist

SHORT = datetime.timedelta(milliseconds=300)
LONG = datetime.timedelta(seconds=20)


def options():
    """use_libuv where it exists."""
    if "use_libuv" not in (dist.TCPStore.__init__.__doc__ or ""):
        return {}
    return {"use_libuv": "--no-libuv" not in sys.argv}


def serve():
    store = dist.TCPStore("127.0.0.1", 0, None, True, wait_for_workers=False, **options())
    print(store.port, flush=True)
    sys.stdin.read()


def connect(port, timeout=LONG):
    """`timeout` is that of the operations: old clients connect within whole seconds."""
    store = dist.TCPStore(
        "127.0.0.1", port, 2, False, timeout=LONG, wait_for_workers=False, **options()
    )
    store.set_timeout(timeout)
    return store


def show(name, function):
    """Prints what `function` gives or raises."""
    try:
        result = repr(function())
    except Exception as error:  # what a client sees of a server's refusal
        result = "raises " + type(error).__name__
    print(f"{name}: {result}", flush=True)


def later(function):
    """Runs it in a thread, after the caller has begun to wait, most likely."""

    def run():
        time.sleep(0.2)
        function()

    thread = threading.Thread(target=run)
    thread.start()
    return thread


def basics(s, port):
    show("set", lambda: s.set("k", "v"))
    show("get", lambda: s.get("k"))
    show("set again", lambda: s.set("k", "other"))
    show("get again", lambda: s.get("k"))
    show("empty value", lambda: (s.set("empty", ""), s.get("empty"))[1])
    show("unicode", lambda: (s.set("schlüssel", "wert ü"), s.get("schlüssel"))[1])
    show("long key", lambda: (s.set("l" * 4000, "x"), s.get("l" * 4000))[1])
    show("1 MiB", lambda: (s.set("big", "x" * (1 << 20)), len(s.get("big")))[1])
    show("many", lambda: [s.set(f"m{i}", str(i)) for i in range(500)] and s.get("m499"))
    show("add new", lambda: s.add("n", 5))
    show("add", lambda: s.add("n", -7))
    show("add 0", lambda: s.add("n", 0))
    show("add gives text", lambda: s.get("n"))
    show("add to text", lambda: (s.set("t", "41"), s.add("t", 1))[1])
    show("add large", lambda: s.add("large", 2**62))
    show("num_keys", lambda: s.num_keys())
    show("delete_key", lambda: s.delete_key("k"))
    show("delete_key again", lambda: s.delete_key("k"))
    show("num_keys after", lambda: s.num_keys())
    show("compare_set unequal", lambda: s.compare_set("n", "5", "6"))
    show("compare_set equal", lambda: s.compare_set("n", "-2", "6"))
    show("compare_set missing", lambda: s.compare_set("cs", "old", "new"))
    show("compare_set missing, none expected", lambda: s.compare_set("cs", "", "new"))
    show("compare_set result", lambda: s.get("cs"))


def waits(s, port):
    other = connect(port)
    show("wait there", lambda: s.wait(["n"]))
    show("wait timeout", lambda: connect(port).wait(["never"], SHORT))
    show("get timeout", lambda: connect(port, SHORT).get("never"))
    thread = later(lambda: (other.set("w1", "1"), other.add("w2", 1)))
    show("wait for two", lambda: s.wait(["w1", "w2"]))
    thread.join()
    thread = later(lambda: other.set("w3", "late"))
    show("get waits", lambda: s.get("w3"))
    thread.join()
    prefix = dist.PrefixStore("p", s)
    show("prefix", lambda: (prefix.set("k", "in p"), prefix.get("k"))[1])
    show("prefix from outside", lambda: s.get("p/k"))
    show("prefix add", lambda: (prefix.add("n", 3), s.get("p/n"))[1])
    nested = dist.PrefixStore("q", prefix)
    show("prefix in prefix", lambda: (nested.set("k", "deep"), s.get("p/q/k"))[1])


def extended(s, port):
    other = connect(port)
    if hasattr(s, "check"):
        show("check", lambda: (s.check(["n"]), s.check(["n", "zz"]), s.check([])))
    if hasattr(s, "append"):
        show("append new", lambda: (s.append("a", "1"), s.get("a"))[1])
        show("append", lambda: (s.append("a", "23"), s.get("a"))[1])
        show("multi_set", lambda: s.multi_set(["x", "y"], ["1", "22"]))
        show("multi_get", lambda: s.multi_get(["y", "x", "a"]))
        show("multi_get timeout", lambda: connect(port, SHORT).multi_get(["x", "zz"]))
        thread = later(lambda: other.append("ap", "x"))
        show("append wakes", lambda: s.get("ap"))
        thread.join()
    if hasattr(s, "list_keys"):
        show("list_keys", lambda: sorted(k for k in s.list_keys() if len(k) < 4))
    if hasattr(s, "barrier"):
        arrive = [later(lambda: connect(port).barrier("b", 3, LONG)) for _ in range(2)]
        show("barrier", lambda: s.barrier("b", 3, LONG))
        for thread in arrive:
            thread.join()
        show("barrier timeout", lambda: connect(port).barrier("b2", 2, SHORT))
        show("barrier count", lambda: s.get("b2"))


def queues(s, port):
    if not hasattr(s, "queue_push"):
        return
    other = connect(port)
    show("queue_push", lambda: (s.queue_push("q", "1"), s.queue_push("q", "2")))
    show("queue_len", lambda: (s.queue_len("q"), s.queue_len("none")))
    show("queue_pop", lambda: (other.queue_pop("q"), s.queue_pop("q")))
    show("queue_pop empty", lambda: s.queue_pop("q", False))
    thread = later(lambda: other.queue_push("q", "late"))
    show("queue_pop waits", lambda: s.queue_pop("q"))
    thread.join()
    show("queue_pop timeout", lambda: connect(port, SHORT).queue_pop("q"))


def refusals(s, port):
    bad = connect(port, SHORT)
    show("add to no number", lambda: (bad.set("text", "abc"), bad.add("text", 1)))
    show("the others go on", lambda: s.get("text"))


def abandon(port):
    """The key of a wait that timed out is set while the client does other
    things: it must not be answered now, or the client takes that answer for
    the one to its next request. (What is set before it does anything else, an
    old client is told: it did not say that it gave up.)"""
    store = connect(port, SHORT)
    show("gives up", lambda: store.get("slow"))
    show("add", lambda: store.add("sum", 41))
    connect(port).set("slow", "x")
    time.sleep(0.2)
    show("add again", lambda: store.add("sum", 1))
    show("get", lambda: store.get("slow"))


def ops(name, port):
    with open(name + ".ops", "w") as to, contextlib.redirect_stdout(to):
        s = connect(int(port))
        for part in (basics, waits, extended, queues, refusals):
            part(s, int(port))


def main():
    if sys.argv[1] == "serve":
        serve()
    elif sys.argv[1] == "abandon":
        abandon(int(sys.argv[2]))
    else:
        for word in sys.argv[2:]:
            if word != "--no-libuv":
                ops(*word.split(":"))


main()
