# SPDX-License-Identifier: Apache-2.0
"""A process of Horovod as its rendezvous sees one, from the documented protocol: for
each of the three scopes it sets its address, waits until those of its peers are
there, connects to all of them, says that it is done, and sums up a number over the
connections. Prints what it found.

CRASH=N: rank 1 of generation 1 fails after N of the scopes, and leaves its keys.
"""

import http.client
import os
import socket
import struct
import sys
import time

ENV = os.environ
ADDR, PORT = ENV["HOROVOD_GLOO_RENDEZVOUS_ADDR"], int(ENV["HOROVOD_GLOO_RENDEZVOUS_PORT"])
DEADLINE = time.monotonic() + float(ENV.get("HOROVOD_GLOO_TIMEOUT_SECONDS", "120"))


def number(name):
    return int(ENV["HOROVOD_" + name])


def ask(method, scope, key, body=None):
    """One connection for each request, as Horovod's own client does it."""
    c = http.client.HTTPConnection(ADDR, PORT, timeout=60)
    try:
        c.request(method, f"/{scope}/{key}", body=body)
        r = c.getresponse()
        return r.status, r.read()
    finally:
        c.close()


def wait_for(scope, key):
    while True:
        status, value = ask("GET", scope, key)
        if status == 200:
            return value
        if status != 404 or time.monotonic() > DEADLINE:
            raise RuntimeError(f"{scope}/{key}: status {status}")
        time.sleep(0.01)


def receive(sock, n):
    data = b""
    while len(data) < n:
        more = sock.recv(n - len(data))
        if not more:
            raise RuntimeError("a peer is gone")
        data += more
    return data


def interface_address():
    """Of HOROVOD_GLOO_IFACE."""
    import fcntl

    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as s:
        request = struct.pack("256s", ENV["HOROVOD_GLOO_IFACE"].encode()[:15])
        return socket.inet_ntoa(fcntl.ioctl(s.fileno(), 0x8915, request)[20:24])


def mesh(scope, rank, size):
    status, _ = ask("GET", scope, str(rank))
    if status != 404:
        raise RuntimeError(f"{scope}/{rank} is there already: {status}")
    listener = socket.create_server((interface_address(), 0), backlog=size + 1)
    host, port = listener.getsockname()
    ask("PUT", scope, str(rank), f"{host} {port}\0{rank}".encode())
    peers = {}
    addresses = [wait_for(scope, str(r)) for r in range(size) if r != rank]
    for value in addresses:
        where, peer = value.split(b"\0")
        if int(peer) < rank:
            host, port = where.decode().split()
            peers[int(peer)] = socket.create_connection((host, int(port)), timeout=60)
            peers[int(peer)].sendall(struct.pack("!I", rank))
    while len(peers) < size - 1:
        s, _ = listener.accept()
        s.settimeout(60)
        peers[struct.unpack("!I", receive(s, 4))[0]] = s
    listener.close()
    status, _ = ask("DELETE", scope, str(rank))
    if status != 200:
        raise RuntimeError(f"DELETE {scope}/{rank}: {status}")
    return peers


def allreduce(peers, value):
    for s in peers.values():
        s.sendall(struct.pack("!Q", value))
    return value + sum(struct.unpack("!Q", receive(s, 8))[0] for s in peers.values())


def main():
    rank, local, cross = number("RANK"), number("LOCAL_RANK"), number("CROSS_RANK")
    scopes = [
        ("global", rank, number("SIZE")),
        (f"local_{ENV['HOROVOD_HOSTNAME']}", local, number("LOCAL_SIZE")),
        (f"cross_{local}", cross, number("CROSS_SIZE")),
    ]
    crash = int(ENV.get("CRASH", "-1"))
    sums = []
    for i, (scope, place, size) in enumerate(scopes):
        if i == crash and rank == 1 and ENV["MUSTER_GENERATION"] == "1":
            sys.exit(3)
        sums.append(allreduce(mesh(scope, place, size), rank + 1))
    sys.stdout.write(f"rank {rank} on {ENV['HOROVOD_GLOO_IFACE']} by {ENV['HOROVOD_CONTROLLER']}: sums {sums}\n")


main()
