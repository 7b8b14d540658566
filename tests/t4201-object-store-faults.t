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

# cut_push CASE: one that is killed with parts under way.
cut_push() {
    rules '{"kill_after": 4}'
    as_pid push "d/$step" "s3://rights/$1" -j 1 --part-size 1Mi
    [ "$status" = 137 ] || bail_out "not killed: $status"
    grep -q '^PUT .*uploadId' log || bail_out "no part was sent: $(cat log)"
}

# Rights may end at objects, and not every store knows all calls, or answers as others do.
test_untold() {
    make_step untold 1 1 4300000
    s3_do make rights || bail_out 'no bucket'
    local what answer n=0
    rm -rf d && cp -r untold d
    while read -r what answer; do
        n=$((n + 1))
        cut_push "untold-$n"
        rules "{\"fail\": {\"match\": \"$what\", \"times\": 99, $answer}}"
        as_pid push "d/$step" "s3://rights/untold-$n" -j 1 --part-size 1Mi
        is "$status" 0 "a push goes on where nobody tells what was sent, case $n" || show
        is "$(grep -c 'is sent again' err)" 1 'and says once that it sends it again' || show
        matches "$(cat err)" "^muster: (uploads|parts) of untold-$n/.*safetensors" 'of which file, and why'
        rules '{}'
        is "$(state_of "s3://rights/untold-$n")" whole 'it is whole'
    done <<'EOF'
GET.*[?&]uploads "status": 403, "code": "AccessDenied"
GET.*[?&]uploads "status": 501, "code": "NotImplemented"
GET.*uploadId= "status": 403, "code": "AccessDenied"
GET.*uploadId= "status": 200, "body": "<Parts>"
EOF
    is "$(s3_do uploads rights | grep 'untold-[34]' || :)" '' 'where uploads are told the one before has ended'
    rules '{"fail": {"match": "GET.*[?&]uploads", "times": 99, "status": 500, "code": "InternalError"}}'
    AWS_MAX_ATTEMPTS=2 run ckpt push "untold/$step" s3://rights/untold-failed --part-size 1Mi
    is "$status" 75 'a store that fails is none that does not tell' || show
    rules '{}'
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

# there PREFIX: the numbers of those that are there.
there() { s3_do keys bucket "$1/" | cut -d/ -f2 | sed 's/^step-0*\([0-9]*\)-.*/\1/; s/^checkpoint-\([0-9]*\)-.*/\1/' | sort -nu | tr '\n' ' '; }

# What cannot be looked at may be the best: neither it goes, nor anything because of it.
test_unjudged() {
    local i loss=(0 0.5 0.1 0.4 0.3) AWS_MAX_ATTEMPTS=1 busy='"times": 99, "status": 503, "code": "SlowDown", "retry_after": 0'
    export AWS_MAX_ATTEMPTS
    rules '{}'
    for i in 1 2 3 4; do
        make_step unjudged "$i" 1 100 "{\"loss\": ${loss[i]}}"
        ckpt push "unjudged/$step" s3://bucket/unjudged >/dev/null 2>&1
        mkdir -p "unjudged/checkpoint-$i"
        others_file "unjudged/checkpoint-$i/model.safetensors"
        echo "{\"global_step\": $i, \"log_history\": [{\"loss\": ${loss[i]}}]}" >"unjudged/checkpoint-$i/trainer_state.json"
        ckpt push "unjudged/checkpoint-$i" s3://bucket/unjudged2 >/dev/null 2>&1
    done
    rules "{\"fail\": {\"match\": \"GET .*/step-0*2-.*/COMMIT\", $busy}}"
    run ckpt prune s3://bucket/unjudged --keep 1 --best loss
    is "$status:$(there unjudged)" '0:2 4 ' 'one whose seal cannot be read stays' || show
    like "$(cat err)" 'left alone, unreadable: GET ' 'which is told' || show
    rules "{\"fail\": {\"match\": \"GET .*/checkpoint-2-.*/trainer_state.json\", $busy}}"
    run ckpt prune s3://bucket/unjudged2 --keep 1 --best loss
    is "$status:$(there unjudged2)" '0:2 4 ' 'so does one whose metric cannot be read' || show
    like "$(cat err)" 'left alone, unreadable: GET ' 'which is told' || show
    # A name has the words that the seal has: without them these would be of one series.
    for i in data-2024 data-2025 step-1; do
        others_file "unjudged/$i.safetensors"
        rules '{}'
        ckpt push "unjudged/$i.safetensors" s3://bucket/unjudged3 >/dev/null 2>&1
    done
    rules "{\"fail\": {\"match\": \"GET .*/step-1.safetensors.*/.muster-copy\", $busy}}"
    run ckpt prune s3://bucket/unjudged3 --keep 1
    is "$status:$(cat out)" 0: 'nothing goes for what another one could not be' || show
    rules "{\"fail\": {\"match\": \"GET .*/data-2024.safetensors.*/.muster-copy\", $busy}}"
    run ckpt prune s3://bucket/unjudged3 --keep 1
    is "$status:$(grep -c 'left alone, unreadable: GET ' err)" 0:1 'what would be left alone anyway is told, too' || show
}

# Nobody is told of an older one as the newest, nor of damage, as a store is busy.
test_busy_answers() {
    local AWS_MAX_ATTEMPTS=1 old new busy='"times": 99, "status": 503, "code": "SlowDown", "retry_after": 0'
    export AWS_MAX_ATTEMPTS
    rules '{}'
    make_step answers 1
    old=$step
    make_step answers 2
    new=$step
    ckpt push "answers/$old" s3://bucket/answers >/dev/null 2>&1
    ckpt push "answers/$new" s3://bucket/answers >/dev/null 2>&1
    local file
    for file in COMMIT r00000.safetensors; do
        rules "{\"fail\": {\"match\": \"GET .*/$new/$file\", $busy}}"
        run ckpt last-valid s3://bucket/answers
        is "$status:$(cat out)" 75: "$file cannot be read: which is the last valid one nobody knows" || show
        run ckpt verify s3://bucket/answers
        is "$status" 75 'nor whether it is whole' || show
    done
    rules "{\"fail\": {\"match\": \"GET .*/$new/COMMIT\", $busy}}"
    run ckpt ls s3://bucket/answers
    is "$status:$(grep -c whole out)" 75:1 'in a list it is unreadable' || show
    run ckpt pull s3://bucket/answers answers2
    is "$status:$(ls answers2)" 75: 'nor is an older one fetched' || show
    s3_do rm bucket "answers/$old/r00000.safetensors"
    run ckpt verify s3://bucket/answers
    is "$status" 1 'one that is damaged is so all the same' || show
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
    AWS_MAX_ATTEMPTS=abc run ckpt ls s3://bucket/cut
    is "$status:$(cat err)" "1:muster: AWS_MAX_ATTEMPTS is 'abc': expected a whole number, 1 or more" \
        'a number of attempts that is none'
    AWS_ENDPOINT_URL=http://127.0.0.1:99999 run ckpt ls s3://bucket/cut
    is "$status" 1 'a port that is none'
    like "$(cat err)" "the endpoint 'http://127.0.0.1:99999' (AWS_ENDPOINT_URL_S3, AWS_ENDPOINT_URL" 'named'
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

# What others began of an object is ended by whoever completes it.
test_begun() {
    make_step begun 7 1 4300000
    rules '{}'
    s3_do begin bucket "begun/$step/r00000.safetensors"
    s3_do begin bucket "begun/$step/r00000.safetensors"
    is "$(s3_do uploads bucket | wc -l)" 2 'two have begun to send it'
    run ckpt push "begun/$step" s3://bucket/begun --part-size 1Mi
    is "$status" 0 'a third one goes on with one of them' || show
    is "$(s3_do uploads bucket)" '' 'and neither is left behind'
}

# Answers that make no sense are errors, not reasons to go on, but for those of what was sent
# before.
test_nonsense() {
    local code
    make_step nonsense 8 1 4300000
    rules '{"fail": {"match": "PUT .*partNumber", "times": 999, "status": 200, "body": ""}}'
    run ckpt push "nonsense/$step" s3://bucket/no-etag --part-size 1Mi
    is "$status" 1 'a part that is taken without an ETag' || show
    like "$(cat err)" 'the answer has no ETag' 'is told'
    s3_do begin bucket "pages/$step/r00000.safetensors"
    rules '{"fail": {"match": "GET .*[?&]uploadId=", "times": 50, "status": 200, "body": "<ListPartsResult><IsTruncated>true</IsTruncated><NextPartNumberMarker>5</NextPartNumberMarker></ListPartsResult>"}}'
    run ckpt push "nonsense/$step" s3://bucket/pages --part-size 1Mi
    is "$status" 0 'a page of parts behind which the same comes: they are sent again' || show
    like "$(cat err)" "parts of pages/$step/r00000.safetensors: pages go back; " 'which is told'
    is "$(grep -c 'GET .*[?&]uploadId=' log)" 2 'and asked for no more'
    rules '{"fail": {"match": "GET .*list-type", "times": 99, "status": 200, "bytes": 17825792}}'
    run ckpt push "nonsense/$step" s3://bucket/long
    is "$status" 1 'an answer without an end' || show
    like "$(cat err)" 'the answer has more bytes than there can be' 'is not read to it'
    for code in 301 307 400; do
        rules '{"fail": {"match": "GET ", "times": 99, "status": '$code', "headers": {"x-amz-bucket-region": "far-away-1"}}}'
        run ckpt ls s3://bucket/pages
        like "$(cat err)" "bucket 'bucket' is in region far-away-1: set AWS_REGION to it" "a bucket that is elsewhere, status $code" || show
    done
    rules '{}'
    s3_do abort bucket
}

# Where there are many uploads or parts, the store tells them by pages.
test_pages() {
    make_step pages 11 1 4300000
    s3_do begin bucket "paged/$step/r00000.safetensors"
    rules '{"fail": {"match": "GET .*[?&]uploads=", "times": 1, "status": 200, "body": "<ListMultipartUploadsResult><IsTruncated>true</IsTruncated><NextKeyMarker>a&amp;b</NextKeyMarker><NextUploadIdMarker>7</NextUploadIdMarker></ListMultipartUploadsResult>"},
        "also": {"match": "GET .*[?&]uploadId=", "times": 1, "status": 200, "body": "<ListPartsResult><IsTruncated>true</IsTruncated><NextPartNumberMarker>1</NextPartNumberMarker></ListPartsResult>"}}'
    run ckpt push "pages/$step" s3://bucket/paged --part-size 1Mi
    is "$status" 0 'pages of both' || show
    is "$(grep -c 'GET .*[?&]key-marker=a%26b.*upload-id-marker=7' log)" 1 'the next one of uploads is asked for'
    is "$(grep -c 'GET .*[?&]part-number-marker=1&' log)" 1 'and of parts'
    is "$(s3_do uploads bucket)" '' 'and the upload is gone on with'
    is "$(state_of s3://bucket/paged)" whole 'to its end'
}

# What lies there under the same names and with the same lengths is looked at.
test_same_length() {
    local commit
    make_step same 12 1 3000
    rules '{}'
    s3_do put bucket "same/$step/r00000.safetensors" "$(printf "%$(stat -c %s "same/$step/r00000.safetensors")s" x)"
    run ckpt push "same/$step" s3://bucket/same
    is "$status" 0 'a file of as many other bytes' || show
    is "$(ckpt verify s3://bucket/same -o json | json 0.state)" whole 'is written over'
    commit=$(tr 0-4 1-5 <"same/$step/COMMIT"; echo .)
    s3_do put bucket "same/$step/COMMIT" "${commit%.}"
    run ckpt push "same/$step" s3://bucket/same
    is "$status" 1 'another seal of the same length' || show
    like "$(cat err)" "same/$step/COMMIT is there already, with other content" 'is not, and told'
}

# Nobody waits for minutes to try again what has failed as a whole meanwhile.
test_given_up() {
    make_step given_up 9 2
    rules '{"fail": {"match": "PUT .*r00000", "times": 99, "status": 503, "code": "SlowDown", "retry_after": 300},
        "also": {"match": "PUT .*r00001", "times": 99, "status": 403, "code": "AccessDenied"}}'
    run timeout 100 "$MUSTER" ckpt push "given_up/$step" s3://bucket/given-up -j 2
    is "$status" 1 'one file is refused, and another is to be sent in five minutes' || show
    like "$(cat err)" 'r00001.safetensors is refused' 'the first is the reason'
}

# others_file FILE: of others, with few bytes.
others_file() {
    python3 - "$1" <<'END'
import json, struct, sys
h = json.dumps({"w": {"dtype": "U8", "shape": [9], "data_offsets": [0, 9]}}).encode()
with open(sys.argv[1], "wb") as f:
    f.write(struct.pack("<Q", len(h)) + h + bytes(9))
END
}

# What comes here while it is fetched stays.
test_in_the_way() {
    local pid
    others_file one-5.safetensors
    rules '{}'
    run ckpt push one-5.safetensors s3://bucket/way
    is "$status" 0 'a file of others' || show
    mkdir way
    rules '{"stall": {"match": "GET .*/one-5.safetensors$", "times": 999}}'
    AWS_MAX_ATTEMPTS=1000 spawn late "$MUSTER" ckpt pull s3://bucket/way way --timeout 1
    pid=$spawned
    ok 'it is being fetched' wait_for 60 grep -q 'GET .*/one-5.safetensors$' log
    echo mine >way/one-5.safetensors
    rules '{}'
    wait_exit 120 "$pid"
    is "$status" 1 'and another one has come under its name' || diag "$(cat late.err)"
    is "$(cat way/one-5.safetensors)" mine 'which is not written over'
}

# What is wrong is the store, not what it has.
test_seen() {
    others_file seen-6.safetensors
    rules '{}'
    run ckpt push seen-6.safetensors s3://bucket/seen
    is "$status" 0 'a file of others' || show
    local at
    at=$(cat out)
    run ckpt show "$at"
    is "$status" 0 'is looked into' || show
    rules '{"fail": {"match": "GET .*/seen-6.safetensors$", "times": 99, "status": 403, "code": "AccessDenied"}}'
    run ckpt show "$at"
    is "$status" 1 'as long as that is allowed' || show
    matches "$(cat err)" 'GET .*/seen-6.safetensors is refused .*AccessDenied' 'else the store says why'
}

once_is_enough test_killed
run_cases
