#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Starts a nats-server, a collector and 20 synthetic hosts, and shows what the collector makes of them:
#   examples/collect/run.sh [BUILD_FOLDER]
# Real hosts run agents instead; the hosts here are build/release/tests/fleet_hosts, a test program.
set -eu
build=${1:-$(dirname "$0")/../../build/release}
port=${PORT:-14222}
export PATH="$PATH:/usr/sbin"
command -v nats-server > /dev/null || { echo "no nats-server: apt-get install nats-server" >&2; exit 77; }
[ -x "$build/tests/fleet_hosts" ] ||
  { echo "no $build/tests/fleet_hosts: cmake --build --preset release --target fleet_hosts" >&2; exit 77; }
nats-server -a 127.0.0.1 -p "$port" > /dev/null 2>&1 &
server=$!
trap 'kill $server; wait' EXIT

echo "\$ kansoku collect --nats nats://127.0.0.1:$port --once --every 6s --feature feature_0"
"$build/kansoku" collect -q --nats "nats://127.0.0.1:$port" --once --every 6s --feature feature_0 &
collector=$!
sleep 2  # so that the collector has subscribed: what is published to nobody is gone
"$build/tests/fleet_hosts" "nats://127.0.0.1:$port" 20 10 10 > /dev/null
wait $collector
