#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Records train.cu on the software GPU and reports its ranges: run.sh [FOLDER]. NVTX_INCLUDE: the
# folder that has nvtx3/, if it is not in a toolkit below /usr/local.
set -euo pipefail
folder=${1:-$(mktemp -d)}
here=$(cd "$(dirname "$0")" && pwd)
kansoku=${KANSOKU:-kansoku}
include=${NVTX_INCLUDE:-}
for one in /usr/local/cuda*/include; do
  if [ -z "$include" ] && [ -e "$one/nvtx3/nvToolsExt.h" ]; then include=$one; fi
done
if [ -z "$include" ]; then
  echo "run.sh: no nvtx3/nvToolsExt.h: set NVTX_INCLUDE to the folder of NVTX's headers" >&2
  exit 2
fi
# Behind the software GPU's own headers: a toolkit's folder has other ones of the same names.
"$here/../../share/softgpu/softgpu-clang" -std=c++17 -O2 -idirafter "$include" -o "$folder/train" "$here/train.cu"
"$kansoku" record --cuda -o "$folder/run.pftrace" --force -- "$kansoku" run --softgpu -- "$folder/train"
"$kansoku" cuda report "$folder/run.pftrace"
