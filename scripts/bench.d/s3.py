# SPDX-License-Identifier: Apache-2.0
"""A checkpoint to an object store and back, against the store's own limit.

The limit: curl with the same files at the same store (tests/py/s3_server.py, Swift in one
process on loopback), as many at a time, by requests that were signed before: their checksums,
which the store verifies as it does muster's, cost curl nothing. What muster does on top is all
checksums, digests of what it reads and gets, and seals. Both directions, in turns; what is
compared are the medians."""
import json
import os
import statistics
import subprocess

FILES, JOBS = 8, 8
SIGN = """
import base64, hashlib, json, sys, boto3
from botocore.auth import S3SigV4Auth
from botocore.awsrequest import AWSRequest
from botocore.config import Config
from botocore.credentials import Credentials
endpoint, turn, files = sys.argv[1], sys.argv[2], sys.argv[3:]
s3 = boto3.client("s3", endpoint_url=endpoint, aws_access_key_id="test:tester",
                  aws_secret_access_key="testing", region_name="us-east-1",
                  config=Config(signature_version="s3v4", s3={"addressing_style": "path"}))
if turn == "0":
    s3.create_bucket(Bucket="bucket")
auth = S3SigV4Auth(Credentials("test:tester", "testing"), "s3", "us-east-1")
signed = []
for i, name in enumerate(files):
    with open(name, "rb") as f:
        data = f.read()
    md5 = base64.b64encode(hashlib.md5(data).digest()).decode()
    request = AWSRequest("PUT", f"{endpoint}/bucket/curl{turn}/{i}", data=data, headers={"Content-MD5": md5})
    auth.add_auth(request)
    get = s3.generate_presigned_url("get_object", {"Bucket": "bucket", "Key": f"curl{turn}/{i}"})
    signed.append({"put": request.url, "headers": dict(request.headers.items()), "get": get})
json.dump(signed, sys.stdout)
"""


def curl(bench, lines):
    """One curl for all of them, told by a file: how long it took."""
    (bench.directory / "curl.conf").write_text("\nnext\n".join(lines))
    return bench.seconds([bench.program("curl"), "-s", "-S", "-f", "--parallel", "--parallel-immediate",
                          "--parallel-max", str(JOBS), "-K", "curl.conf"])


def sign(bench, python, words):
    done = subprocess.run([python, "-c", SIGN, *words], check=True, env=bench.env, cwd=bench.directory,
                          stdout=subprocess.PIPE, text=True)
    return json.loads(done.stdout)


def measure(bench):
    size = (1 if bench.quick else 32) << 20
    server_program = str(bench.top / "tests/py/s3_server.py")
    for program in ("muster-store", "make_step"):
        if not os.access(bench.build / program, os.X_OK):
            raise bench.CannotMeasure(f"no {program} in {bench.build}: it is made where libcurl is, see ./configure")
    python, muster = "/usr/bin/python3", bench.muster()
    (bench.directory / "d").mkdir()
    name = subprocess.run([bench.build / "make_step", "d", "1", f"{1:032x}", str(FILES), str(size)], check=True,
                          cwd=bench.directory, stdout=subprocess.PIPE, text=True).stdout.strip()
    files = [f"d/{name}/r{i:05d}.safetensors" for i in range(FILES)]
    took = {"put": [], "push": [], "get": [], "pull": []}
    with bench.running([python, server_program, "root", "port"], "server.out", stdin=subprocess.PIPE) as server:
        port = bench.until(lambda: (bench.directory / "port").exists() and (bench.directory / "port").read_text(),
                           server, "server.out")
        endpoint = f"http://127.0.0.1:{port}"
        bench.env |= {"AWS_ENDPOINT_URL": endpoint, "AWS_ACCESS_KEY_ID": "test:tester",
                      "AWS_SECRET_ACCESS_KEY": "testing", "HOME": str(bench.directory), "no_proxy": "127.0.0.1"}
        push = pull = None
        for turn in range(bench.rounds):
            signed = sign(bench, python, [endpoint, str(turn), *files])
            push = [muster, "ckpt", "push", f"d/{name}", f"s3://bucket/muster{turn}", "--part-size", "64Mi"]
            pull = [muster, "ckpt", "pull", f"s3://bucket/muster{turn}", f"back{turn}", "--part-size", "64Mi"]
            took["put"].append(curl(bench, [
                "\n".join([f'upload-file = "{f}"', f'url = "{x["put"]}"', 'header = "Expect:"',
                           *(f'header = "{k}: {v}"' for k, v in x["headers"].items())])
                for f, x in zip(files, signed)]))
            took["push"].append(bench.seconds(push))
            took["get"].append(curl(bench, [f'output = "got{i}"\nurl = "{x["get"]}"' for i, x in enumerate(signed)]))
            took["pull"].append(bench.seconds(pull))
        server.stdin.close()
        server.wait(60)
    middle = {k: statistics.median(v) for k, v in took.items()}
    mib = FILES * size / 2**20
    for what, peer, command in (("push", "put", push), ("pull", "get", pull)):
        yield bench.result(f"s3.{what}-vs-curl", middle[what] / middle[peer], "x", "<=", 1.2,
                           f"{mib:.0f} MiB: {mib / middle[what]:.0f} MiB/s, curl: {mib / middle[peer]:.0f} MiB/s", command)
