# SPDX-License-Identifier: Apache-2.0
"""What a test does in a store by another client, boto3: s3_do.py VERB BUCKET [...]

    make BUCKET              keys BUCKET [PREFIX]     rm BUCKET KEY...
    put BUCKET KEY TEXT      get BUCKET KEY           (to standard output)
    send BUCKET KEY FILE
    many BUCKET PREFIX N     N empty objects          uploads BUCKET (unfinished ones)
    begin BUCKET KEY         an upload in parts, which nobody goes on with
    abort BUCKET             ends all of those
"""
import os
import sys

import boto3
from botocore.config import Config

s3 = boto3.client("s3", endpoint_url=os.environ["S3_SERVER"], aws_access_key_id="test:tester",
                  aws_secret_access_key="testing", region_name="us-east-1",
                  config=Config(s3={"addressing_style": "path"}))
verb, bucket, rest = sys.argv[1], sys.argv[2], sys.argv[3:]
if verb == "make":
    s3.create_bucket(Bucket=bucket)
elif verb == "keys":
    pages = s3.get_paginator("list_objects_v2").paginate(Bucket=bucket, Prefix=rest[0] if rest else "")
    for page in pages:
        for item in page.get("Contents", []):
            print(item["Key"])
elif verb == "rm":
    for key in rest:
        s3.delete_object(Bucket=bucket, Key=key)
elif verb == "put":
    s3.put_object(Bucket=bucket, Key=rest[0], Body=rest[1].encode())
elif verb == "send":
    s3.upload_file(rest[1], bucket, rest[0])
elif verb == "get":
    sys.stdout.buffer.write(s3.get_object(Bucket=bucket, Key=rest[0])["Body"].read())
elif verb == "many":
    for i in range(int(rest[1])):
        s3.put_object(Bucket=bucket, Key=f"{rest[0]}/{i:05d}", Body=b"")
elif verb == "begin":
    s3.create_multipart_upload(Bucket=bucket, Key=rest[0])
elif verb == "abort":
    for item in s3.list_multipart_uploads(Bucket=bucket).get("Uploads", []):
        s3.abort_multipart_upload(Bucket=bucket, Key=item["Key"], UploadId=item["UploadId"])
elif verb == "uploads":
    for item in s3.list_multipart_uploads(Bucket=bucket).get("Uploads", []):
        print(item["Key"])
else:
    sys.exit("s3_do.py: " + verb + "?")
