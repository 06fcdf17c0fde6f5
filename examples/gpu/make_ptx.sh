#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# make_ptx.sh FOLDER [FILE.cc ...]: compiles the kernels of this folder, or these, to FOLDER/NAME.ptx. Needs clang 19 and no toolkit.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
out=$1
shift
[ $# -gt 0 ] || set -- "$here"/*.cc
mkdir -p "$out"
for source in "$@"; do
    clang++-19 --target=nvptx64-nvidia-cuda -march=sm_80 --cuda-feature=+ptx80 -std=c++20 -O2 -S -ffreestanding -nogpulib \
        -nostdlibinc -nostdinc++ -fno-exceptions -fno-rtti -fno-threadsafe-statics -fconvergent-functions -ffp-contract=off \
        -I "$here" "$source" -o "$out/$(basename "$source" .cc).ptx"
done
