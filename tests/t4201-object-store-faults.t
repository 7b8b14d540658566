#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# muster ckpt push and pull with an object store that has bad days: killed at each
# request, told to slow down, cut off, never answered, bits that flip on the way.
. "${MUSTER_SRCDIR:-$(dirname "$0")/..}/tests/lib/harness.sh"
need_muster
. "$MUSTER_SRCDIR/tests/lib/object-store.sh"
need_object_store
store_up
proxy_up

state_of() { AWS_ENDPOINT_URL=$S3_SERVER ckpt ls "$1" -o json | json 0.state; }

# as_pid WORD...: muster ckpt whose pid is in the file "pid".
as_pid() {
    { bash -c 'echo $BASHPID >pid; exec "$@"' - "$MUSTER" ckpt "$@" >out 2>err; } 2>/dev/null
    status=$?
}

# killed CASE: runs a push that the proxy kills; $status is 137 if it did.
killed() {
    rm -f pid
    as_pid push "d/$step" "s3://bucket/$1" -j 1 --part-size 1Mi
}

# After a kill it is whole if it is sealed, and the next push sends the rest: no
# object and no part whose answer the first one had is sent twice.
test_killed() {
    make_step d 1 1 4300000 # more than a block of its digest: it goes in parts
    rules '{}'
    killed whole
    is "$status" 0 'a push that nobody disturbs' || show
    local n k when wrong='' twice='' parts
    n=$(wc -l <log)
    num "$n" -ge 8 "makes $n requests"
    for when in kill_before kill_after; do
        for ((k = 1; k <= n; k++)); do
            rules "{\"$when\": $k}"
            killed "$when-$k"
            [ "$status" = 137 ] || wrong+=" $when-$k: not killed, $status;"
            cp log log.1
            rules '{}'
            killed "$when-$k"
            [ "$status" = 0 ] || wrong+=" $when-$k: $(cat err);"
            # What the first had an answer for: all but its last request. (This store
            # refuses COMMIT with a condition, and gets it without.)
            parts=$(head -n -1 log.1 | grep '^PUT' | grep -v COMMIT | sed 's/&uploadId.*//' | grep -Fxf - <(grep '^PUT' log | sed 's/&uploadId.*//'))
            [ -z "$parts" ] || twice+=" $when-$k: $parts;"
        done
    done
    is "$wrong" '' "killed at each request, and gone on with"
    is "$twice" '' 'nothing is sent twice'
    AWS_ENDPOINT_URL=$S3_SERVER
    wrong=''
    for when in kill_before kill_after; do
        for k in 1 $((n / 2)) $n; do
            [ "$(ckpt verify "s3://bucket/$when-$k" -o json | json 0.state)" = whole ] || wrong+=" $when-$k"
        done
    done
    is "$wrong" '' 'the bytes are right'
    is "$(s3_do uploads bucket)" '' 'no upload is left behind'
    AWS_ENDPOINT_URL=http://127.0.0.1:$(cat proxy.port)
}

# Until COMMIT is there it is no checkpoint.
test_unsealed() {
    make_step unsealed 1 1 4300000
    rules '{"fail": {"match": "PUT .*COMMIT", "times": 99, "status": 403, "code": "AccessDenied"}}'
    run ckpt push "unsealed/$step" s3://bucket/unsealed
    is "$status" 1 'all but COMMIT' || show
    is "$(state_of s3://bucket/unsealed)" unfinished 'it is none'
    run ckpt pull "s3://bucket/unsealed/$step" p
    is "$status" 1 'and is not pulled'
    rules '{}'
    run ckpt push "unsealed/$step" s3://bucket/unsealed
    like "$(cat err)" 'sent 0 files' 'COMMIT was all that lacked'
    is "$(state_of s3://bucket/unsealed)" whole 'now it is one'
}

# spoil FILE: another byte in its middle; again: what it was.
spoil() {
    python3 - "$1" <<'END'
import sys
with open(sys.argv[1], "r+b") as f:
    at = f.seek(0, 2) // 2
    f.seek(at)
    byte = f.read(1)[0] ^ 255
    f.seek(at)
    f.write(bytes([byte]))
END
}

# What a push has read wrongly is sealed by nobody: not in one piece, and of pieces none
# is kept that has other bytes.
test_source() {
    local size
    make_step source 6 1 4300000
    rules '{}'
    for size in 1Mi 64Mi; do
        spoil "source/$step/r00000.safetensors"
        run ckpt push "source/$step" "s3://bucket/source$size" --part-size $size
        is "$status" 1 "pieces of $size: bytes that the disk has changed" || show
        like "$(cat err)" "r00000.safetensors has changed since it was looked at, or is damaged" 'are named'
        is "$(s3_do keys bucket | grep -c "^source$size/.*COMMIT")" 0 'and nothing is sealed'
        spoil "source/$step/r00000.safetensors"
        run ckpt push "source/$step" "s3://bucket/source$size" --part-size $size
        is "$status" 0 'when it is as it was it goes' || show
        is "$(AWS_ENDPOINT_URL=$S3_SERVER ckpt verify "s3://bucket/source$size" -o json | json 0.state)" whole 'with the right bytes'
    done
}

test_busy() {
    make_step busy 2
    rules '{"fail": {"match": "PUT ", "times": 3, "status": 503, "code": "SlowDown", "retry_after": 1}}'
    run ckpt push "busy/$step" s3://bucket/busy -j 1
    is "$status" 0 'a store that says wait' || show
    matches "$(cat err)" 'status 503, SlowDown.*; again in 1.[0-9] s \(2 of 8\)' 'is waited for, as long as it said'
    rules '{"fail": {"match": "GET ", "times": 2, "status": 429, "retry_after": 0}}'
    run ckpt ls s3://bucket/busy
    like "$(cat out)" whole 'too many requests' || show
    rules '{"fail": {"match": "PUT .*COMMIT", "times": 99, "status": 500, "code": "InternalError", "retry_after": 0}}'
    run ckpt push "busy/$step" s3://bucket/busy2
    is "$status" 75 'one that never comes back: later again'
    is "$(state_of s3://bucket/busy2)" unfinished 'nothing was sealed'
    rules '{"fail": {"match": "GET ", "times": 99, "status": 403, "code": "RequestTimeTooSkewed", "date": "Fri, 24 May 2013 00:00:00 GMT"}}'
    run ckpt ls s3://bucket/busy
    is "$status" 1 'a store that does not know the time' || show
    like "$(cat err)" "clock and the server's are too far apart" 'is told'
    is "$(grep -c GET log)" 2 'and asked twice'
}

# An answer of 200 that ends in an error, as when parts are put together.
test_late_error() {
    make_step late_error 3 1 4300000
    rules '{"fail": {"match": "POST .*uploadId", "times": 1, "status": 200, "code": "InternalError", "retry_after": 0}}'
    run ckpt push "late_error/$step" s3://bucket/late --part-size 1Mi
    is "$status" 0 'an error under 200' || show
    like "$(cat err)" 'InternalError' 'is seen'
    is "$(state_of s3://bucket/late)" whole 'and tried again'
    rules '{"fail": {"match": "POST .*uploadId", "times": 1, "status": 400, "code": "InvalidPart"}}'
    run ckpt push "late_error/$step" s3://bucket/lost --part-size 1Mi
    is "$status" 0 'a part that was lost' || show
    is "$(state_of s3://bucket/lost)" whole 'is sent again'
}

test_cut() {
    make_step cut 4
    rules '{"flip": {"match": "PUT .*r00000", "times": 1}}'
    run ckpt push "cut/$step" s3://bucket/cut
    is "$status" 0 'a bit that flips on the way' || show
    matches "$(cat err)" 'BadDigest|Mismatch' 'is seen by the store'
    rules '{"cut": {"match": "GET .*r0000", "times": 3}}'
    run ckpt pull "s3://bucket/cut/$step" p
    is "$status" 0 'answers that are cut' || show
    like "$(cat err)" 'again in' 'are asked for again'
    ok 'and all is there' diff -r "cut/$step" "p/$step"
    rules '{"stall": {"match": "GET .*r0000", "times": 1}}'
    run ckpt verify s3://bucket/cut --timeout 1
    is "$status" 0 'an answer that never comes' || show
    like "$(cat err)" 'again in' 'is not waited for'
    rules '{}'
    AWS_MAX_ATTEMPTS=2 AWS_ENDPOINT_URL=http://127.0.0.1:1 run ckpt ls s3://bucket/cut
    is "$status" 75 'nobody there'
    matches "$(cat err)" '(refused|connect)' 'is told' || show
    rules '{"kill_after": 5}'
    rm -rf p
    as_pid pull "s3://bucket/cut/$step" p -j 1
    is "$status" 137 'a pull that is killed'
    run ckpt last-valid p
    is "$status" 1 'leaves no checkpoint'
    rules '{}'
    run ckpt pull "s3://bucket/cut/$step" p
    ok 'and the next goes on' diff -r "cut/$step" "p/$step"
    num "$(grep -c 'GET .*r0000' log)" -lt 2 'without what is there'
}

run_cases
