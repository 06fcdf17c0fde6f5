#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# launch.sh [RANKS] [STEPS]: builds train.cu with clang 19 and runs it with RANKS processes [4] on as many software devices.
# Rank 0 prints the loss of each step. PROGRAM=FILE uses one that is built already; ID_FILE=FILE says where the ranks meet.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
root=$here/../..
ranks=${1:-4}
steps=${2:-20}
kansoku=${KANSOKU:-$root/build/kansoku}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
libs=${SOFTGPU_LIBS:-$(dirname "$(readlink -f "$kansoku")")/softgpu}
if [ -z "${PROGRAM:-}" ]; then
    PROGRAM=$work/train
    SOFTGPU_LIBS=$libs KANSOKU=$kansoku "$root/share/softgpu/softgpu-clang" -o "$PROGRAM" "$here/train.cu" -I "$root/examples/softgpu" -L "$libs" \
        -l:libnccl.so.2
fi
id=${ID_FILE:-$work/id}
pids=
rank=$ranks
while [ "$rank" -gt 0 ]; do
    rank=$((rank - 1))
    # One worker a process: the ranks share the cores.
    KANSOKU_SOFTGPU_WORKERS=${KANSOKU_SOFTGPU_WORKERS:-1} "$kansoku" run --softgpu --devices "$ranks" --memory 64M -- \
        "$PROGRAM" "$rank" "$ranks" "$steps" "$id" &
    pids="$pids $!"
done
status=0
for pid in $pids; do
    wait "$pid" || status=$?
done
exit $status
