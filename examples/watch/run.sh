#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Watches an example job, stops one of its ranks for some seconds, and shows what was told and recorded (two minutes, root):
#   examples/watch/run.sh [KANSOKU]
set -eu
here=$(cd "$(dirname "$0")" && pwd)
kansoku=${1:-$here/../../build/kansoku}
state=$(mktemp -d)
port=${PORT:-29671}
STEPS=1000000 MASTER_PORT=$port "$here/../ddp/launch.sh" > /dev/null 2>&1 &
job=$!
trap 'kill $job; wait; rm -rf "$state"' EXIT

echo "learning for a minute, then rank 2 is stopped for 12 s"
"$kansoku" watch --state "$state/agent" --learn 60s --for 115s --no-history --record-on-incident 10s &
agent=$!
sleep 75
rank=$("$kansoku" jobs --json | /usr/bin/python3 -c '
import json, sys
jobs = [job for job in json.load(sys.stdin)["jobs"] if job["name"] == sys.argv[1]]
print(*(rank["pid"] for job in jobs for rank in job["ranks"] if rank["rank"] == 2))' "127.0.0.1:$port")
[ -n "$rank" ] || { echo "the job does not run; is PyTorch installed (make demo)?" >&2; exit 1; }
kill -STOP "$rank"
sleep 12
kill -CONT "$rank"
"$kansoku" top --once --state "$state/agent"
wait $agent
"$kansoku" incidents list --state "$state/agent"
# The incident was recorded as it began: its evidence, and what the recording says.
id=$("$kansoku" incidents list --json --state "$state/agent" | /usr/bin/python3 -c '
import json, sys
print(*[json.loads(line)["id"] for line in sys.stdin][-1:])')
[ -z "$id" ] || "$kansoku" incidents show "$id" --state "$state/agent"
