# SPDX-License-Identifier: Apache-2.0
"""A real S3 server on loopback: OpenStack Swift with its s3api, in one process.

    s3_server.py DIRECTORY PORT-FILE

Swift checks signatures (version 4) of its one user: key "test:tester", secret
"testing". What is stored lies under DIRECTORY, whose filesystem must have extended
attributes; the port is written to PORT-FILE once it listens. It ends when its
standard input does, so that it never outlives a test.
"""
import os
import sys

import eventlet
from swift.common import utils

utils.eventlet_monkey_patch()

from eventlet import wsgi
from swift.account import server as account_server
from swift.common import storage_policy
from swift.common.ring import RingBuilder
from swift.common.wsgi import SwiftHttpProtocol, loadapp
from swift.container import server as container_server
from swift.obj import server as object_server

PROXY = """
[DEFAULT]
swift_dir = {root}
log_name = proxy
log_level = ERROR
[pipeline:main]
pipeline = catch_errors gatekeeper listing_formats s3api tempauth bulk slo proxy-logging proxy-server
[app:proxy-server]
use = egg:swift#proxy
account_autocreate = true
node_timeout = 60
conn_timeout = 10
[filter:tempauth]
use = egg:swift#tempauth
user_test_tester = testing .admin
[filter:s3api]
use = egg:swift#s3api
force_swift_request_proxy_log = no
s3_acl = no
min_segment_size = 1
max_bucket_listing = 50
max_multi_delete_objects = 1000
[filter:slo]
use = egg:swift#slo
rate_limit_after_segment = 100000
[filter:bulk]
use = egg:swift#bulk
[filter:catch_errors]
use = egg:swift#catch_errors
[filter:gatekeeper]
use = egg:swift#gatekeeper
[filter:listing_formats]
use = egg:swift#listing_formats
[filter:proxy-logging]
use = egg:swift#proxy_logging
access_log_name = proxy
access_log_level = CRITICAL
"""


class Quiet:
    def write(self, *_):
        pass


class Cache(dict):
    """What Swift asks of memcached, which must be there; nothing expires."""
    def __bool__(self):
        return True

    def get(self, key, **_):
        return dict.get(self, key)

    def set(self, key, value, **_):
        self[key] = value

    def delete(self, key, **_):
        self.pop(key, None)

    def incr(self, key, delta=1, **_):
        self[key] = dict.get(self, key, 0) + delta
        return self[key]


def with_cache(app):
    cache = Cache()

    def call(env, start_response):
        env["swift.cache"] = cache
        return app(env, start_response)
    return call


def listen():
    return eventlet.listen(("127.0.0.1", 0), backlog=256)


def serve(sock, app):
    wsgi.server(sock, app, log=Quiet(), protocol=SwiftHttpProtocol,
                max_size=256,
                socket_timeout=None)


def make_ring(root, name, port):
    builder = RingBuilder(1, 1, 0)
    builder.add_dev({"region": 1, "zone": 1, "ip": "127.0.0.1", "port": port,
                     "device": "disk", "weight": 1.0, "meta": "",
                     "replication_ip": "127.0.0.1", "replication_port": port})
    builder.rebalance()
    builder.get_ring().save(os.path.join(root, name + ".ring.gz"))


def main():
    root, port_file = os.path.abspath(sys.argv[1]), sys.argv[2]
    os.makedirs(os.path.join(root, "disk"))
    with open(os.path.join(root, "swift.conf"), "w") as f:
        f.write("[swift-hash]\nswift_hash_path_suffix = test\n")
    utils.SWIFT_CONF_FILE = os.path.join(root, "swift.conf")
    utils.HASH_PATH_SUFFIX = b"test"
    storage_policy.reload_storage_policies()
    conf = {"devices": root, "swift_dir": root, "mount_check": "false",
            "log_level": "ERROR", "allowed_sync_hosts": "127.0.0.1",
            "network_chunk_size": "1048576", "disk_chunk_size": "1048576"}
    for name, make in [("account", account_server.AccountController),
                       ("container", container_server.ContainerController),
                       ("object", object_server.ObjectController)]:
        sock = listen()
        make_ring(root, name, sock.getsockname()[1])
        eventlet.spawn(serve, sock, make(conf))
    path = os.path.join(root, "proxy.conf")
    with open(path, "w") as f:
        f.write(PROXY.format(root=root))
    sock = listen()
    eventlet.spawn(serve, sock, with_cache(loadapp(path)))
    with open(port_file + ".new", "w") as f:
        f.write(str(sock.getsockname()[1]))
    os.rename(port_file + ".new", port_file)
    from eventlet.green import os as green_os
    from eventlet.hubs import trampoline
    while True:
        trampoline(0, read=True)
        if not green_os.read(0, 4096):
            os._exit(0)


main()
