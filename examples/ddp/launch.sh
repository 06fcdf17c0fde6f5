#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Starts RANKS[4] processes of train.py (or of the script named) on this host and waits for them.
#   RANKS=4 STEPS=100 ./launch.sh
# MASTER_PORT[a free one] PYTHON[/usr/bin/python3]. INT and TERM end the ranks that it started, and no others. If one fails, the others
# end, too: they would wait for it, half an hour where it never came.
set -u
ranks=${RANKS:-4}
here=$(cd "$(dirname "$0")" && pwd)
[ $# -gt 0 ] || set -- "$here/train.py"
python=${PYTHON:-/usr/bin/python3}
export MASTER_ADDR=${MASTER_ADDR:-127.0.0.1}
# Below the ports that the kernel gives to whoever connects: rank 0 listens some seconds later, and nobody has it meanwhile.
free_port='
import random, socket
for port in random.sample(range(20000, 32768), 100):
    try:
        socket.socket().bind(("127.0.0.1", port))
        print(port)
        break
    except OSError:
        pass'
export MASTER_PORT=${MASTER_PORT:-$("$python" -c "$free_port")}
export WORLD_SIZE=$ranks OMP_NUM_THREADS=1
declare -A pids=()
stop() { [ ${#pids[@]} = 0 ] || kill "${pids[@]}" 2>/dev/null; }
trap stop INT TERM
for ((r = 0; r < ranks; r++)); do
  RANK=$r LOCAL_RANK=$r "$python" "$@" &
  pids[$!]=$!
done
status=0
while [ ${#pids[@]} -gt 0 ]; do
  one=
  wait -n -p one "${pids[@]}" 2> /dev/null; ended=$?
  # 127: they have all ended, and the shell tells of them one by one alone.
  if [ -z "${one:-}" ] && [ $ended = 127 ]; then one=${pids[*]}; one=${one%% *}; wait "$one"; ended=$?; fi
  [ -n "${one:-}" ] || continue  # a signal to this script ends the wait early: no rank has ended
  unset "pids[$one]"
  [ $ended = 0 ] && continue
  [ $status = 0 ] && stop
  [ $status != 0 ] || status=$ended
done
exit $status
