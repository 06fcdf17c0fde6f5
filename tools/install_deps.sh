#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Installs the Debian packages that a goal needs, by name: tools/install_deps.sh build|demo|test|bench|faults|check
# Prints the apt line first. Without root it prints the line and stops. Installs nothing when nothing is missing.
set -eu
goal=${1:-build}
build="cmake ninja-build g++ ccache pkg-config clang llvm git python3 linux-libc-dev libc6-dev libbpf-dev bpftool libelf-dev
 libprotozero-dev libdeflate-dev libfmt-dev libcli11-dev nlohmann-json3-dev libtomlplusplus-dev libzydis-dev
 librandom123-dev libsimdjson-dev libsqlite3-dev zlib1g-dev libzstd-dev liblz4-dev libgloo-dev libboost-math-dev libnlopt-dev"
demo="python3-torch libopenblas0-serial"
tests="libgtest-dev libgmock-dev clang-format-14 clang-19 chromium protobuf-compiler python3-protobuf binutils
 iproute2 procps util-linux gcc"
bench="python3-simpy3 python3-numpy python3-scipy pocl-opencl-icd ocl-icd-opencl-dev opencl-headers"
faults="iproute2 util-linux"
case $goal in
  build) wanted=$build ;;
  demo) wanted="$build $demo" ;;
  test) wanted="$build $demo $tests" ;;
  bench) wanted="$build $demo $tests $bench" ;;
  faults) wanted="$build $demo $faults" ;;
  check) wanted="$build $demo $tests clang-tidy-14" ;;
  *) echo "usage: $0 build|demo|test|bench|faults|check" >&2; exit 2 ;;
esac
missing=""
for package in $wanted; do
  dpkg-query -W -f='${db:Status-Status}\n' "$package" 2>/dev/null | grep -qx installed || missing="$missing $package"
done
[ -n "$missing" ] || exit 0
line="apt-get install -y --no-install-recommends$missing"
echo "kansoku needs Debian packages: $line"
if [ "$(id -u)" != 0 ]; then
  echo "not root: run that line as root, then try again" >&2
  exit 1
fi
export DEBIAN_FRONTEND=noninteractive
apt-get update -qq
$line
