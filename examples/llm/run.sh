#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Generates with a small random model on the prebuilt llama.cpp of an npm package, looks inside it while it runs, and prints where its time
# goes (root, a C++ compiler; the first run fetches 65 MB):
#   examples/llm/run.sh [KANSOKU]
set -eu
root=$(cd "$(dirname "$0")/../.." && pwd)
kansoku=${1:-$root/build/kansoku}
folder=$(mktemp -d)
driver=$(cd "$root/tests/llm" && /usr/bin/python3 -c 'import models; print(models.driver("npm"))')
model=$(cd "$root/tests/llm" && /usr/bin/python3 -c 'import models; print(models.model("mid"))')
libraries=$(cd "$root/tests/llm" && /usr/bin/python3 -c 'import models; print(models.libraries("npm")[0])')
GGML_DIR=$libraries "$driver" --model "$model" --tokens 1000000 --prompt-tokens 64 > /dev/null 2>&1 &
job=$!
trap 'kill $job; wait; rm -rf "$folder"' EXIT

"$kansoku" llm top -p $job --once
"$kansoku" llm record -q -p $job --budget none --duration 5s -o "$folder/run.pftrace"
"$kansoku" llm report "$folder/run.pftrace" --html "${PAGE:-$folder/run.html}" || [ $? = 10 ]
