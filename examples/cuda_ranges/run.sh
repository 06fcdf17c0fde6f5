#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Records train.cu on the software GPU and reports its ranges: run.sh [FOLDER].
set -euo pipefail
folder=${1:-$(mktemp -d)}
here=$(cd "$(dirname "$0")" && pwd)
kansoku=${KANSOKU:-kansoku}
"$here/../../share/softgpu/softgpu-clang" -std=c++17 -O2 -o "$folder/train" "$here/train.cu"
"$kansoku" record --cuda -o "$folder/run.pftrace" --force -- "$kansoku" run --softgpu -- "$folder/train"
"$kansoku" cuda report "$folder/run.pftrace"
