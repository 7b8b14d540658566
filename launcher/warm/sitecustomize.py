# SPDX-License-Identifier: Apache-2.0
"""The warm interpreter: imports once what workers import, and forks them.

muster starts the very command of a worker with this file at the front of
PYTHONPATH, so that Python runs it when it is set up, but has not begun with the
program. Here it stays, with the modules of restart.preload imported. A process
that is forked from it waits for the job of a worker; then it returns, and Python
goes on with the program as if nothing had been. So `__main__`, sys.path[0],
tracebacks, exit codes and all else are those of a plain start because they come
from where those come from.

Who forks whom: the interpreter a midwife, that one the worker, and ends; so the
worker comes to the agent, which is a subreaper, and is its child. launcher/warm.c
has the other end of the sockets.
"""

import os
import sys

PROBED, READY, REFUSED, FORK, BORN, ADOPTED, WAITING, JOB, GO = range(1, 10)
STAGE_CWD, STAGE_GATE = 4, 12  # of launcher/exec.h
MAX_MESSAGE = 60000
MAX_SAID = 64 * 1024  # of what the imports print, to be printed by each worker
DEVICES = ("/dev/nvidia", "/dev/kfd", "/dev/dri/", "/dev/infiniband/", "/dev/accel", "/dev/habanalabs")


class Refused(Exception):
    """Why no worker can be forked from here."""


# --- messages: a 16-bit type, bytes, descriptors ---


def send(sock, kind, data=b""):
    sock.send(kind.to_bytes(2, "big") + data)


def receive(sock):
    """(0, b"", []) at the end."""
    import array
    import socket

    fds = array.array("i")
    data, control, _, _ = sock.recvmsg(65536, socket.CMSG_SPACE(4 * fds.itemsize), socket.MSG_CMSG_CLOEXEC)
    for level, kind, more in control:
        if level == socket.SOL_SOCKET and kind == socket.SCM_RIGHTS:
            fds.frombytes(more[: len(more) - len(more) % fds.itemsize])
    return int.from_bytes(data[:2], "big"), data[2:], list(fds)


def expect(sock, kind, status=0):
    got, data, fds = receive(sock)
    if got != kind:
        os._exit(status)  # nobody needs it any more
    return data, fds


# --- the imports ---


def first_of_path():
    """sys.path[0] as the program will have it; None for none."""
    if getattr(sys.flags, "safe_path", False):
        return None
    if sys.argv[0] == "-c":
        return ""
    if sys.argv[0] == "-m":
        return os.getcwd()
    program = os.path.realpath(sys.argv[0])
    return sys.argv[0] if os.path.isdir(program) else os.path.dirname(program)


def recording(environ, names):
    """From now on, what is asked of it is noted."""
    encode = environ.encodekey

    def note(key):
        encoded = encode(key)
        names.add(encoded)
        return encoded

    environ.encodekey = note
    return encode


def import_all(modules):
    """Imports them; returns the variables that were asked for, and those that
    were changed."""
    import importlib

    before, names = dict(os.environb), set()
    first = first_of_path()
    both = [(environ, recording(environ, names)) for environ in (os.environ, os.environb)]
    if first is not None:
        sys.path.insert(0, first)
    try:
        for module in modules:
            importlib.import_module(module)
    finally:
        if first is not None and first in sys.path:
            sys.path.remove(first)
        for environ, encode in both:
            environ.encodekey = encode
    after = dict(os.environb)
    changed = {k: after.get(k) for k in set(before) | set(after) if before.get(k) != after.get(k)}
    return names | set(changed), changed


def traceback_text():
    import traceback

    here = os.path.abspath(__file__)
    kind, error, trace = sys.exc_info()
    while trace is not None and (
        os.path.abspath(trace.tb_frame.f_code.co_filename) == here or "importlib" in trace.tb_frame.f_code.co_filename
    ):
        trace = trace.tb_next
    return "".join(traceback.format_exception(kind, error, trace))[-8000:]


# --- may it fork? ---


def thread_names():
    names = []
    for task in os.listdir("/proc/self/task"):
        if int(task) != os.getpid():
            try:
                with open("/proc/self/task/%s/comm" % task, encoding="utf-8", errors="replace") as f:
                    names.append(f.read().strip())
            except OSError:
                pass
    return sorted(names)


def open_devices():
    found = set()
    for fd in os.listdir("/proc/self/fd"):
        try:
            path = os.readlink("/proc/self/fd/" + fd)
        except OSError:
            continue
        if path.startswith(DEVICES):
            found.add(path)
    return sorted(found)


def try_fork():
    """What pthread_atfork() handlers end (OpenBLAS its threads) is gone then.
    True if the child finds itself usable."""
    pid = os.fork()
    if pid == 0:
        status = 1
        try:
            torch = sys.modules.get("torch")
            status = int(torch is not None and bool(torch.cuda._is_in_bad_fork()))
        finally:
            os._exit(status)
    return os.waitpid(pid, 0)[1] == 0


def check_fork():
    import time

    torch = sys.modules.get("torch")
    if torch is not None and torch.cuda.is_initialized():
        raise Refused("the imports have initialised CUDA, which does not work in a forked process")
    devices = open_devices()
    if devices:
        raise Refused("the imports have opened %s, which does not work in a forked process" % ", ".join(devices))
    if not try_fork():
        raise Refused("after the imports CUDA does not work in a forked process")
    for _ in range(50):
        names = thread_names()
        if not names:
            return
        time.sleep(0.02)  # one that is about to end
    more = "" if len(names) < 4 else " ..."
    raise Refused(
        "the imports have started %d thread%s (%s%s), and a forked process would lack %s"
        % (len(names), "s"[len(names) == 1 :], ", ".join(names[:3]), more, "it" if len(names) == 1 else "them")
    )


# --- what the imports print ---


def divert():
    """Descriptors 1 and 2 to memory; Python's own objects do not notice."""
    fds = [os.memfd_create("stdout"), os.memfd_create("stderr")]
    for i, fd in enumerate(fds):
        os.dup2(fd, i + 1)
    return fds


def take_said(fds):
    import ctypes

    for stream in (sys.stdout, sys.stderr):
        if stream is not None:
            stream.flush()
    ctypes.CDLL(None).fflush(None)
    said = [os.pread(fd, MAX_SAID, 0) for fd in fds]
    for fd in fds:
        os.close(fd)
    return said


def print_again(said):
    for fd, data in zip((1, 2), said):
        while data:
            data = data[os.write(fd, data) :]


# --- one that is born ---


def tie_to(agent):
    import ctypes
    import signal

    if ctypes.CDLL(None).prctl(1, int(signal.SIGKILL), 0, 0, 0) != 0 or os.getppid() != agent:  # PR_SET_PDEATHSIG
        os._exit(0)


def fail(status, number, stage, error, detail):
    """As muster-exec tells of it."""
    detail = os.fsencode(detail)[:500]
    record = b"".join(n.to_bytes(4, "big") for n in (number, stage, error, len(detail))) + detail
    os.write(status, len(record).to_bytes(4, "big") + record)
    os._exit(126)


def renew(changed, env):
    """The environment of the worker, with what the imports change in it."""
    for key in list(os.environb):
        del os.environb[key]
    for entry in env:
        key, sign, value = entry.partition(b"=")
        if key and sign and key not in os.environb:
            os.environb[key] = value
    for key, value in changed.items():
        if value is not None:
            os.environb[key] = value
        elif key in os.environb:
            del os.environb[key]


def forget_common():
    """What a plain start would have drawn anew. Python's random does so itself."""
    numpy_random, torch = sys.modules.get("numpy.random"), sys.modules.get("torch")
    process = sys.modules.get("multiprocessing.process")
    if numpy_random is not None:
        numpy_random.seed()
    if torch is not None:
        torch.default_generator.seed()
    if process is not None:
        process.current_process().authkey = os.urandom(32)


def listen():
    """What the sitecustomize of muster-python does in a plain start."""
    import faulthandler
    import signal

    prefix = os.environ.get("MUSTER_STACKS")
    if not prefix or signal.getsignal(signal.SIGURG) is not signal.SIG_DFL:
        return
    try:
        fd = os.open("%s.%d" % (prefix, os.getpid()), os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
    except OSError:
        return
    faulthandler.register(signal.SIGURG, file=fd, all_threads=True, chain=False)


def become(job, fds, said, changed):
    """The worker that the agent describes: returns into its program."""
    import gc

    number, cwd, n_args, rest = job.split(b"\0", 3)
    fields = rest.split(b"\0")[:-1]
    n_args = int(n_args)
    for i in (0, 1):
        os.dup2(fds[i], i + 1)
        os.close(fds[i])
    status, gate = fds[2:]
    try:
        if cwd:
            os.chdir(cwd)
    except OSError as error:
        fail(status, int(number), STAGE_CWD, error.errno, cwd)
    args = [os.fsdecode(arg) for arg in fields[:n_args]]
    n_same = len(sys.argv) - 1
    if hasattr(sys, "orig_argv"):
        sys.orig_argv[len(sys.orig_argv) - n_same :] = args
    sys.argv[1:] = args
    renew(changed, fields[n_args:])
    forget_common()
    gc.unfreeze()
    if os.read(gate, 1) == b"":
        fail(status, int(number), STAGE_GATE, 0, "")
    os.close(gate)
    os.close(status)
    listen()
    print_again(said)


def read_blob(fd):
    data, size = b"", os.fstat(fd).st_size
    while len(data) < size:
        data += os.pread(fd, size - len(data), len(data))
    os.close(fd)
    return data


def wait_for_job(fd, agent, midwife):
    """Returns what become() needs, once there is a job."""
    import socket
    import time

    while os.getppid() == midwife:
        time.sleep(0.0002)
    tie_to(agent)
    sock = socket.socket(fileno=fd)
    send(sock, BORN, b"%d" % os.getpid())
    expect(sock, ADOPTED)
    os.setsid()  # not before the agent knows whose session it is
    send(sock, WAITING)
    _, blob = expect(sock, JOB)
    job = read_blob(blob[0])
    _, fds = expect(sock, GO, 1)  # a worker by now: no success
    sock.close()
    return job, fds


def serve(sock, agent):
    """Forks whenever it is asked to. Returns in a worker, with its job."""
    import gc

    gc.collect()
    gc.freeze()
    while True:
        _, fds = expect(sock, FORK)
        try:
            pid = os.fork()
        except OSError:
            pid = -1
        if pid == 0:
            midwife = os.getpid()
            if os.fork() != 0:
                os._exit(0)
            sock.close()
            return wait_for_job(fds[0], agent, midwife)
        os.close(fds[0])
        if pid > 0:
            os.waitpid(pid, 0)


def memory_mib():
    with open("/proc/self/statm", encoding="ascii") as f:
        return int(f.read().split()[1]) * os.sysconf("SC_PAGE_SIZE") >> 20


def warm_up(sock, modules):
    """Imports and tells what came of it."""
    import time

    start = time.monotonic()
    to = divert()
    try:
        names, changed = import_all(modules)
    except BaseException:  # also of a module that exits
        text = traceback_text().strip()
        last = text.rpartition("\n")[2]
        send(sock, REFUSED, os.fsencode("an import fails: %s%s" % (last, "" if text == last else "\n" + text)))
        os._exit(0)
    said = take_said(to)
    try:
        check_fork()
    except Refused as error:
        send(sock, REFUSED, os.fsencode(str(error)))
        os._exit(0)
    text = "%.1f s, %d MiB" % (time.monotonic() - start, memory_mib())
    fields = [b"%d" % (len(sys.argv) - 1), text.encode(), *sorted(names)]
    ready = b"".join(field + b"\0" for field in fields)
    if len(ready) > MAX_MESSAGE:
        send(sock, REFUSED, b"the imports look at too many environment variables")
        os._exit(0)
    send(sock, READY, ready)
    return said, changed


def be_warm(fd, agent, modules):
    import socket

    if os.getppid() != agent:
        os._exit(0)
    os.set_inheritable(fd, False)
    sock = socket.socket(fileno=fd)
    if sys.version_info < (3, 8):
        send(sock, REFUSED, b"a warm interpreter needs Python 3.8, and this is %d.%d" % sys.version_info[:2])
        os._exit(0)
    if modules is None:
        send(sock, PROBED)
        os._exit(0)
    said, changed = warm_up(sock, modules)
    become(*serve(sock, agent), said, changed)


# --- instead of another sitecustomize ---


def take_word():
    """(descriptor, agent, modules or None) of the agent, which takes its words
    out of the environment again."""
    word, path = os.environ.pop("MUSTER_WARM", None), os.environ.pop("MUSTER_WARM_PATH", None)
    modules = os.environ.pop("MUSTER_WARM_IMPORT", None)
    if word is None:
        return None
    if path is None:
        os.environ.pop("PYTHONPATH", None)
    else:
        os.environ["PYTHONPATH"] = path
    fd, agent = word.split(":")
    return int(fd), int(agent), None if modules is None else modules.split(",")


def import_next():
    """Another sitecustomize, as if this one were not there. True if there is
    one."""
    here = os.path.dirname(os.path.abspath(__file__))
    sys.path[:] = [p for p in sys.path if os.path.abspath(p) != here]
    sys.path_importer_cache.pop(here, None)
    this = sys.modules.pop("sitecustomize", None)
    try:
        import sitecustomize  # noqa: F401

        return True
    except ImportError as error:
        if error.name != "sitecustomize":
            raise
        return False
    finally:
        if "sitecustomize" not in sys.modules and this is not None:
            sys.modules["sitecustomize"] = this


def main():
    word = take_word()
    try:
        os.unlink(__cached__)
        os.rmdir(os.path.dirname(__cached__))
    except (OSError, NameError):
        pass
    is_there = import_next()
    if word is not None:
        try:
            be_warm(*word)
        except BaseException:  # whatever it is: the program must not run here
            os.write(2, os.fsencode(traceback_text()))
            os._exit(1)
    if not is_there:
        raise ImportError("no other one", name="sitecustomize")


main()
