#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Stops a rank of a job that trains, and asks who holds it up: ./run.sh [KANSOKU]
set -eu
here=$(cd "$(dirname "$0")" && pwd)
kansoku=${1:-$here/../../build/kansoku}
STEPS=1000000 "$here/../ddp/launch.sh" > /dev/null &
job=$!
stopped=
end() {
  [ -z "$stopped" ] || kill -CONT "$stopped" 2> /dev/null || true
  kill "$job" 2> /dev/null || true
  wait "$job" || true
}
trap end EXIT
echo "waiting until it trains"
until "$kansoku" hang -p "$job" > /dev/null; do kill -0 "$job"; done
stopped=$(pgrep -P "$job" | sed -n 3p)
kill -STOP "$stopped"
echo "process $stopped is stopped"
"$kansoku" hang -p "$job" || [ $? = 10 ]
