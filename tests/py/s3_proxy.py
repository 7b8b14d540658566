# SPDX-License-Identifier: Apache-2.0
"""Stands between a client and an object store on loopback, and does harm.

    s3_proxy.py SERVER-PORT PORT-FILE RULES LOG [CERTIFICATE]

It speaks TLS to the client where it is given a certificate, with its key in that file.

Each request goes into LOG as a line "METHOD PATH". RULES, read again before each
one, is JSON; what is in it is counted anew when its "id" changes:

    kill_before, kill_after   the number of a request: the process whose pid is in
                              the file "pid" is killed before the server has the
                              request, or before the client has the answer
    fail, also   {match, times, status, code, retry_after, date, headers, body, bytes}
                               answered in the server's place: with an error of that
                               code, or that body, or so many bytes
    cut       {match, times}   the answer's head says more bytes than come
    stall     {match, times}   never answered, the connection stays open
    flip      {match, times}   a bit of the request's body is changed on the way

`match` is a regular expression for "METHOD PATH". It ends with its standard input.
"""
import json
import os
import re
import signal
import socket
import ssl
import sys
import threading
import time

SERVER, PORT_FILE, RULES, LOG = int(sys.argv[1]), sys.argv[2], sys.argv[3], sys.argv[4]
TLS = None
if len(sys.argv) > 5:
    TLS = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    TLS.load_cert_chain(sys.argv[5])
lock = threading.Lock()
state = {"id": None, "requests": 0, "used": {}}


def read_head(f):
    lines = []
    while True:
        line = f.readline(65536)
        if not line:
            return None
        lines.append(line)
        if line == b"\r\n":
            return lines


def length_of(head):
    for line in head[1:]:
        name, _, value = line.partition(b":")
        if name.lower() == b"content-length":
            return int(value)
    return 0


def plan(what):
    """What is to be done about this request."""
    with lock:
        try:
            with open(RULES) as f:
                rules = json.load(f)
        except FileNotFoundError:
            rules = {}
        if rules.get("id") != state["id"]:
            state.update(id=rules.get("id"), requests=0, used={})
        state["requests"] += 1
        with open(LOG, "a") as f:
            f.write(what + "\n")
        found = {name: True for name in ("kill_before", "kill_after")
                 if rules.get(name) == state["requests"]}
        for name in ("fail", "also", "cut", "stall", "flip"):
            rule = rules.get(name)
            if not rule or not re.search(rule["match"], what):
                continue
            state["used"][name] = state["used"].get(name, 0) + 1
            if state["used"][name] <= rule.get("times", 1):
                found[name] = rule
        return found


def kill_client():
    """When this returns it does nothing more."""
    with open("pid") as f:
        pid = int(f.read())
    os.kill(pid, signal.SIGKILL)
    while True:
        try:
            with open(f"/proc/{pid}/stat") as f:
                if f.read().rsplit(") ", 1)[1][0] in "ZX":
                    return
        except FileNotFoundError:
            return
        time.sleep(0.005)


def error(rule):
    body = rule.get("body", f"<Error><Code>{rule.get('code', '')}</Code><Message>by the proxy</Message></Error>")
    body = "x" * rule["bytes"] if "bytes" in rule else body
    head = f"HTTP/1.1 {rule['status']} x\r\nContent-Length: {len(body)}\r\n"
    for name, key in (("Retry-After", "retry_after"), ("Date", "date")):
        if key in rule:
            head += f"{name}: {rule[key]}\r\n"
    for name, value in rule.get("headers", {}).items():
        head += f"{name}: {value}\r\n"
    return (head + "\r\n" + body).encode()


def forward(head, body):
    """To the server, on a connection of its own: its whole answer."""
    with socket.create_connection(("127.0.0.1", SERVER)) as server:
        lines = [line for line in head if not line.lower().startswith(b"connection:")]
        server.sendall(b"".join(lines[:-1]) + b"Connection: close\r\n\r\n" + body)
        f = server.makefile("rb")
        answer_head = read_head(f)
        return answer_head, f.read()


def answer(client, head, body, found):
    for name in ("fail", "also"):
        if name in found:
            client.sendall(error(found[name]))
            return True
    if "flip" in found:
        body = bytes([body[0] ^ 1]) + body[1:]
    got_head, got = forward(head, body)
    if "kill_after" in found:
        kill_client()
        return False
    if got_head is None:
        return False
    data = b"".join(got_head) + got
    client.sendall(data[:-1 - len(got) // 2] if "cut" in found else data)
    return False  # the server's "Connection: close" is the client's, too


def serve(client):
    if TLS:
        try:
            client = TLS.wrap_socket(client, server_side=True)
        except OSError:  # it does not trust us
            return
    with client:
        f = client.makefile("rb")
        while True:
            head = read_head(f)
            if not head:
                return
            body = f.read(length_of(head))
            what = b" ".join(head[0].split()[:2]).decode()
            found = plan(what)
            if "kill_before" in found:
                kill_client()
                return
            if "stall" in found:
                f.read(1)
                return
            if not answer(client, head, body, found):
                return


def accept(listener):
    while True:
        client, _ = listener.accept()
        threading.Thread(target=serve, args=(client,), daemon=True).start()


def main():
    listener = socket.create_server(("127.0.0.1", 0), backlog=128)
    threading.Thread(target=accept, args=(listener,), daemon=True).start()
    with open(PORT_FILE + ".new", "w") as f:
        f.write(str(listener.getsockname()[1]))
    os.rename(PORT_FILE + ".new", PORT_FILE)
    sys.stdin.buffer.read()


main()
