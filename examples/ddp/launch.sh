#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Starts RANKS[4] processes of train.py (or of the script named) on this host and waits for them.
#   RANKS=4 STEPS=100 ./launch.sh
# MASTER_PORT[a free one] PYTHON[/usr/bin/python3]. INT and TERM end the ranks that it started, and no others.
set -u
ranks=${RANKS:-4}
here=$(cd "$(dirname "$0")" && pwd)
[ $# -gt 0 ] || set -- "$here/train.py"
python=${PYTHON:-/usr/bin/python3}
export MASTER_ADDR=${MASTER_ADDR:-127.0.0.1}
export MASTER_PORT=${MASTER_PORT:-$("$python" -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])')}
export WORLD_SIZE=$ranks OMP_NUM_THREADS=1
pids=()
stop() { for p in "${pids[@]}"; do kill "$p" 2>/dev/null; done; }
trap stop INT TERM
for ((r = 0; r < ranks; r++)); do
  RANK=$r LOCAL_RANK=$r "$python" "$@" &
  pids+=($!)
done
status=0
for p in "${pids[@]}"; do
  wait "$p"; ended=$?
  # A signal to this script ends the wait early: wait again for the rank itself.
  if [ $ended -gt 128 ] && kill -0 "$p" 2>/dev/null; then wait "$p"; ended=$?; fi
  [ $ended = 0 ] || status=$ended
done
exit $status
