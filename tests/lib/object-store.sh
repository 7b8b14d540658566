# SPDX-License-Identifier: Apache-2.0
#
# An object store on loopback that checks signatures (tests/py/s3_server.py), for
# tests that source this behind harness.sh: store_up, then $S3_SERVER is its URL,
# AWS_* say who we are, and s3_do does what muster does not. proxy_up puts
# tests/py/s3_proxy.py before it; `rules JSON` says what harm it does from now on.

debian=/usr/bin/python3
export AWS_ACCESS_KEY_ID=test:tester AWS_SECRET_ACCESS_KEY=testing HOME=$TRASH
export no_proxy=127.0.0.1
export AWS_EC2_METADATA_DISABLED=true # the machine that runs the tests is nobody here
unset AWS_PROFILE AWS_REGION AWS_DEFAULT_REGION AWS_SESSION_TOKEN AWS_ENDPOINT_URL_S3 AWS_CA_BUNDLE
unset AWS_CONTAINER_CREDENTIALS_RELATIVE_URI AWS_CONTAINER_CREDENTIALS_FULL_URI AWS_EC2_METADATA_SERVICE_ENDPOINT

need_object_store() {
    [ -x "$MUSTER_BUILDDIR/muster-store" ] || skip_rig 'muster was built without libcurl'
    "$debian" -c 'import swift, boto3' 2>/dev/null ||
        skip_rig 'no python3-swift, or no python3-boto3: see scripts/install-deps'
}

# serve NAME COMMAND...: in the background until the test ends; its port is in
# NAME.port.
serve() {
    local name=$1
    shift
    mkfifo "$name.stdin"
    "$@" <"$name.stdin" >"$name.out" 2>&1 &
    exec {serve_fd}>"$name.stdin"
    wait_for 60 test -s "$name.port" || bail_out "no $name: $(cat "$name.out")"
}

store_up() {
    serve store "$debian" "$MUSTER_SRCDIR/tests/py/s3_server.py" store store.port
    export S3_SERVER=http://127.0.0.1:$(cat store.port) AWS_ENDPOINT_URL
    AWS_ENDPOINT_URL=$S3_SERVER
    s3_do make bucket || bail_out "no bucket: $(cat store.out)"
}

s3_do() { "$debian" "$MUSTER_SRCDIR/tests/py/s3_do.py" "$@"; }

proxy_up() {
    rules '{}'
    serve proxy "$debian" "$MUSTER_SRCDIR/tests/py/s3_proxy.py" "$(cat store.port)" proxy.port rules log
    AWS_ENDPOINT_URL=http://127.0.0.1:$(cat proxy.port)
}

n_rules=0
rules() {
    n_rules=$((n_rules + 1))
    sed "s/^{/{\"id\": $n_rules,/; s/,}$/}/" <<<"$1" >rules.new
    mv rules.new rules
    : >log
}

# make_step DIRECTORY STEP [FILES BYTES [JSON]]: one of muster's own; sets $step.
make_step() {
    mkdir -p "$1"
    step=$("$MUSTER_BUILDDIR/make_step" "$1" "$2" "$(printf '%08x%024x' "$2" 1)" "${3:-2}" "${4:-1000}" ${5:+"$5"}) ||
        bail_out 'no checkpoint made'
}

ckpt() { "$MUSTER" ckpt "$@"; }
