#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Records a pipeline whose stage 2 is slow, then one whose stage 1 is too large, and diagnoses both: ./run.sh [KANSOKU]
set -eu
here=$(cd "$(dirname "$0")" && pwd)
kansoku=${1:-$here/../../build/kansoku}
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
for setting in SLOW_STAGE=2 BIG_STAGE=1; do
  echo "== $setting"
  env "$setting" "$kansoku" record -q -o "$folder/$setting.pftrace" -- "$here/../ddp/launch.sh" "$here/train.py"
  "$kansoku" diagnose "$folder/$setting.pftrace" || [ $? = 10 ]
done
