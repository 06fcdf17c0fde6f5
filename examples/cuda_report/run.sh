#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Records starved.cu on the software GPU and reports what its device did: run.sh [CAUSE] [FOLDER]
set -euo pipefail
cause=${1:-synchronise}
folder=${2:-$(mktemp -d)}
here=$(cd "$(dirname "$0")" && pwd)
kansoku=${KANSOKU:-kansoku}
"$here/../../share/softgpu/softgpu-clang" -std=c++17 -O2 -o "$folder/starved" "$here/starved.cu"
"$kansoku" record --cuda every -o "$folder/$cause.pftrace" --force -- "$kansoku" run --softgpu -- "$folder/starved" "$cause" 60
"$kansoku" export --kineto "$folder/$cause.pftrace" -o "$folder/$cause.json"
echo "recording: $folder/$cause.pftrace"
"$kansoku" cuda report "$folder/$cause.pftrace"
