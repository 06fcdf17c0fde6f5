#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Runs the benchmarks, or those of one module: bench/run.sh [trace|diagnose|stats|simulate|gpu|cuda|python|probes|overhead|llm]
# Each prints lines `bench NAME key=value ...`. Needs root and eBPF for probes, the probes of cuda and overhead.
set -eu
root=$(cd "$(dirname "$0")/.." && pwd)
bin=$root/build/release/bench
wanted=${1:-all}
ran=0
run() {  # module program args...
  local module=$1; shift
  if [ "$wanted" = all ] || [ "$wanted" = "$module" ]; then ran=1; "$@"; fi
}
# What PoCL writes while it compiles.
POCL_CACHE_DIR=$(mktemp -d)
export POCL_CACHE_DIR
trap 'rm -rf "$POCL_CACHE_DIR"' EXIT
echo "machine: $(nproc) cores, $(sed -n 's/^model name[^:]*: //p' /proc/cpuinfo | head -1), Linux $(uname -r), load $(cut -d" " -f1 /proc/loadavg)"
run trace "$bin/bench_trace"
run diagnose "$bin/bench_diagnose"
run stats "$bin/bench_stats" "${PAIRS:-3}" "${ITERATIONS:-3}"
run simulate "$bin/bench_simulate" "${PAIRS:-5}"
run gpu "$bin/bench_gpu" "${ROUNDS:-9}"
run gpu "$bin/bench_op" "${ROUNDS:-9}"
run gpu "$bin/bench_launch" "$root/build/release/softgpu/libcuda.so.1" "${PEER:-}" "${ROUNDS:-9}"
run cuda "$bin/bench_cuda" "$root/build/release/cuda/libkansoku_cuda.so" "$root/build/release/cuda_test/libnull_driver.so" null "${ROUNDS:-9}"
run cuda "$bin/bench_cuda" "$root/build/release/cuda/libkansoku_cuda.so" "$root/build/release/softgpu/libcuda.so.1" softgpu "${ROUNDS:-9}"
run cuda "$bin/bench_cuda_ranges" "$root/build/release/cuda/libkansoku_cuda.so" "$root/build/release/cuda_test/libnull_driver.so" "${ROUNDS:-9}"
run cuda "$bin/bench_cuda_probes" "${ROUNDS:-15}"
run cuda "$root/bench/cuda_cost.py" "$root/build/release" short || [ $? = 77 ]
run python "$bin/bench_python"
run probes "$bin/bench_probes"
run overhead "$bin/bench_overhead" "${PAIRS:-40}" "${WINDOW_MS:-1000}"
run llm "$bin/bench_llm"
run llm "$root/bench/llm_cost.py" "$root/build/release" "${PAIRS:-6}" || [ $? = 77 ]
[ $ran = 1 ] || { echo "bench/run.sh: no module $wanted; there are trace diagnose stats simulate gpu cuda python probes overhead llm" >&2; exit 2; }
