#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# run.sh [soft|gpu] [--build FOLDER] [OPTION OF gpu_check]...: builds the checks of checks.inc and runs them.
#   soft   by softgpu-clang, on the software device; needs a kansoku with its toolkit (make softgpu)
#   gpu    by nvcc, on the NVIDIA GPU of this machine; needs no Kansoku: cmake, or nvcc and g++ alone
# Without a word: the first half where there is a kansoku, and the second where there is a GPU. Programs of nvcc are never run on the
# software device.
#   KANSOKU    the kansoku binary [build/kansoku]     NVCC  [nvcc of PATH]
# FOLDER [build/gpu_check] gets soft/ and gpu/, each with result.json. Exit status: 0 all passed, 1 a check failed or a limit was
# passed, 2 the checks could not run, 77 a tool is missing.
set -u
here=$(dirname "$(readlink -f "$0")")
root=$here/../..
seconds_max=480
megabytes_max=64
halves=
build=$root/build/gpu_check
options=()
while [ $# -gt 0 ]; do
    case $1 in
        soft|gpu) halves="$halves $1" ;;
        --build) build=${2:?--build needs a folder}; shift ;;
        -h|--help) sed -n '3,10s/^# \{0,1\}//p' "$0"; exit 0 ;;
        *) options+=("$1") ;;
    esac
    shift
done
missing() { echo "gpu-check: $1" >&2; exit 77; }
has() { command -v "$1" > /dev/null 2>&1; }
begin=$(date +%s)
mkdir -p "$build" || exit 2
build=$(readlink -f "$build")

has_gpu() { ls /dev/nvidia[0-9]* > /dev/null 2>&1 || { has nvidia-smi && nvidia-smi -L 2> /dev/null | grep -q GPU; }; }
nvcc=${NVCC:-$(command -v nvcc || true)}
kansoku=${KANSOKU:-$root/build/kansoku}
[ -x "$kansoku" ] || kansoku=

# Writes what a command prints into a file, and shows it if the command fails.
quietly() {
    local log=$1
    shift
    "$@" > "$log" 2>&1 || { cat "$log" >&2; echo "gpu-check: the build failed: $*" >&2; return 2; }
}
build_with_cmake() { # FOLDER OPTION...
    local folder=$1
    shift
    local generator=()
    has ninja && [ ! -e "$folder/CMakeCache.txt" ] && generator=(-G Ninja)
    quietly "$folder/configure.log" cmake -S "$here" -B "$folder" "${generator[@]}" "$@" &&
        quietly "$folder/build.log" cmake --build "$folder" -j "$(nproc)"
}
# Where cmake is missing: the same files and flags by nvcc alone.
build_with_nvcc() { # FOLDER ARCH
    local folder=$1 flags=(-std=c++17 -O2 -arch="sm_$2") library
    library=$(dirname "$(dirname "$(readlink -f "$nvcc")")")/lib64
    {
        for file in "$here"/*.cu; do [ "$(basename "$file")" = library.cu ] || echo "$nvcc ${flags[*]} -c -o $folder/$(basename "$file").o $file"; done
        for file in "$here"/*.cc; do echo "g++ -std=gnu++17 -O2 -frounding-math -c -o $folder/$(basename "$file").o $file"; done
        for file in "$here/library.cu" "$root"/examples/cuda_samples/*.cu; do echo "$nvcc ${flags[*]} -o $folder/$(basename "$file" .cu) $file"; done
    } > "$folder/commands"
    quietly "$folder/build.log" xargs -P "$(nproc)" -I{} bash -c '{}' < "$folder/commands" &&
        quietly "$folder/link.log" "$nvcc" -cudart shared -o "$folder/gpu_check" "$folder"/*.o -L"$library" -L"$library/stubs" \
            -lcublas -lcuda -lpthread -Xlinker "-rpath,$library"
}

# With the library of a kansoku at hand, too, unless single checks were asked for.
with_library() { # FOLDER soft|gpu STATUS
    [ ${#options[@]} = 0 ] || return "$3"
    [ -n "$kansoku" ] || { echo "gpu-check: NOT RUN: Kansoku's CUDA library: no kansoku; set KANSOKU"; return "$3"; }
    "$here/library.sh" "$kansoku" "$1" "$2"
    local own=$?
    [ $own = 77 ] || [ $own = 0 ] || return 1
    return "$3"
}

soft() {
    [ -n "$kansoku" ] || missing "no kansoku: make softgpu, or set KANSOKU"
    local toolkit
    toolkit=$(dirname "$(readlink -f "$kansoku")")/softgpu/toolkit
    [ -e "$toolkit/nvvm/libdevice/libdevice.10.bc" ] || missing "no toolkit in $toolkit: clang-19 and libclc-19, then make softgpu"
    has "${CLANG:-clang++-19}" || missing "no clang-19"
    has cmake || missing "no cmake"
    mkdir -p "$build/soft"
    echo "gpu-check: built by softgpu-clang, for the software device"
    build_with_cmake "$build/soft" -DCMAKE_TOOLCHAIN_FILE="$toolkit/softgpu-toolchain.cmake" || return 2
    : > "$build/soft/log.txt"
    "$kansoku" run --softgpu -- "$build/soft/gpu_check" --json "$build/soft/result.json" --log "$build/soft/log.txt" \
        ${options[@]+"${options[@]}"}
    with_library "$build/soft" soft $?
}
gpu() {
    has_gpu || missing "no NVIDIA GPU is here: /dev/nvidia0 is missing, and nvidia-smi names none"
    [ -n "$nvcc" ] || missing "no nvcc: install CUDA's toolkit, or set NVCC"
    local arch
    # PTX of sm_80, which has all forms of the list, runs on every later GPU.
    arch=$(nvidia-smi --query-gpu=compute_cap --format=csv,noheader 2> /dev/null | head -1 | tr -d '. ')
    ! [ "${arch:-80}" -lt 80 ] 2> /dev/null || missing "the GPU is sm_$arch, and the checks need sm_80 or later"
    arch=80
    mkdir -p "$build/gpu"
    echo "gpu-check: built by $nvcc for sm_$arch, for the GPU"
    if has cmake && { has ninja || has make; }; then
        build_with_cmake "$build/gpu" -DCMAKE_CUDA_COMPILER="$nvcc" -DCMAKE_CUDA_ARCHITECTURES="$arch" || return 2
    else
        build_with_nvcc "$build/gpu" "$arch" || return 2
    fi
    : > "$build/gpu/log.txt"
    "$build/gpu/gpu_check" --json "$build/gpu/result.json" --log "$build/gpu/log.txt" ${options[@]+"${options[@]}"}
    with_library "$build/gpu" gpu $?
    local status=$?
    echo "gpu-check: not run: llama.cpp's operators. They need its sources and CPU libraries (tests/llama/run.py sources fetches both),"
    echo "  then: cmake -S tests/llama/lean -B FOLDER -DLLAMA=... -DPREBUILT=... -DCMAKE_CUDA_ARCHITECTURES=$arch, and"
    echo "  FOLDER/bin/test-backend-ops test -b CUDA0 -o MUL_MAT"
    return $status
}

status=0
run_half() {
    ( "$1" )
    local own=$?
    [ $own -eq 0 ] || [ $status -ne 0 ] || status=$own
}
if [ -n "$halves" ]; then
    for half in $halves; do run_half "$half"; done
else
    ran=0
    if [ -n "$kansoku" ]; then
        run_half soft
        ran=1
    else
        echo "gpu-check: NOT RUN: the half on the software device: there is no $root/build/kansoku (make softgpu)"
    fi
    if has_gpu; then
        run_half gpu
        ran=1
    else
        echo "gpu-check: NOT RUN: the half with nvcc on a GPU: no NVIDIA GPU is here"
    fi
    [ $ran = 1 ] || exit 77
fi
[ $status -le 1 ] || exit $status
seconds=$(($(date +%s) - begin))
megabytes=$((($(du -sk "$here" "$root/examples/cuda_samples" "$build" | awk '{ sum += $1 } END { print sum }') + 1023) / 1024))
echo "gpu-check: took $seconds s of at most $seconds_max; sources and programs have $megabytes MB of at most $megabytes_max"
[ $seconds -le $seconds_max ] && [ $megabytes -le $megabytes_max ] || { echo "gpu-check: a limit was passed" >&2; exit 1; }
exit $status
