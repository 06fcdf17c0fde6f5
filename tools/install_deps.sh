#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Installs the Debian packages that a goal needs, by name:
# tools/install_deps.sh build|softgpu|demo|test|bench|faults|watch|kernels|fresh-root|check|fuzz|llama|torch|store|otlp
# `store` is DuckDB and `otlp` OpenTelemetry's decoder, for the tests; Debian has neither: from npm into build/npm, without running
# any of the packages' scripts.
# Prints the apt line first. Without root it prints the line and stops. Installs nothing when nothing is missing.
set -eu
goal=${1:-build}
# Node.js may stand already from elsewhere than Debian, in a package that brings npm and conflicts with Debian's.
npm=""
command -v npm > /dev/null && command -v node > /dev/null || npm="nodejs npm"
build="cmake ninja-build g++ ccache pkg-config clang llvm git python3 linux-libc-dev libc6-dev libbpf-dev bpftool libelf-dev
 libprotozero-dev libdeflate-dev libfmt-dev libcli11-dev nlohmann-json3-dev libtomlplusplus-dev libzydis-dev
 librandom123-dev libsimdjson-dev libsqlite3-dev zlib1g-dev libzstd-dev liblz4-dev libboost-math-dev libnlopt-dev
 libcpp-httplib-dev libnats-dev"
softgpu="libgloo-dev clang-19 libclc-19"
demo="python3-torch libopenblas0-serial"
tests="$softgpu libgtest-dev libgmock-dev clang-format-14 chromium protobuf-compiler python3-protobuf python3-pil binutils
 iproute2 procps util-linux gcc prometheus nats-server python3-halide libhalide14-0 python3-numpy python3-clang-14 $npm"
bench="python3-simpy3 python3-numpy python3-scipy python3-sklearn python3-threadpoolctl
 pocl-opencl-icd ocl-icd-opencl-dev opencl-headers"
llama="$softgpu $npm"
faults="iproute2 util-linux"
watch="$faults $softgpu python3-numpy python3-sklearn"
kernels="qemu-system-x86 busybox-static cpio kmod libgtest-dev libgmock-dev"
case $goal in
  build) wanted=$build ;;
  softgpu) wanted="$build $softgpu" ;;
  demo) wanted="$build $demo" ;;
  test) wanted="$build $demo $tests" ;;
  bench) wanted="$build $demo $tests $bench" ;;
  faults) wanted="$build $demo $faults" ;;
  llama) wanted="$build $llama" ;;
  torch) wanted="$build $demo python3-venv" ;;
  watch) wanted="$build $demo $watch" ;;
  kernels) wanted="$build $kernels" ;;
  fresh-root) wanted="debootstrap util-linux" ;;
  check) wanted="$build $demo $tests clang-tidy-14" ;;
  # Debian's clang comes without the runtimes of its sanitizers and of libFuzzer.
  fuzz) wanted="$build $demo $tests libclang-rt-14-dev" ;;
  store | otlp) wanted="$npm" ;;
  *) echo "usage: $0 build|softgpu|demo|test|bench|faults|watch|kernels|fresh-root|check|fuzz|llama|torch|store|otlp" >&2; exit 2 ;;
esac

duckdb_package=@duckdb/node-bindings-linux-x64
duckdb_version=1.5.6-r.1
duckdb_sha256=3f4962cdd266eab2b479a5b5a4a6d063d279b2954ae814ed00385d553b747633
otlp_package=@opentelemetry/otlp-transformer
otlp_version=0.52.1
otlp_sha256=0866b8f8fa85c9404834ead99e9ff68b035ddef296da6a84e83f6aab13751a38
# install_npm PACKAGE VERSION FILE SHA256 WHY: nothing to do if the FILE of the package is there and right.
install_npm() {
  cd "$(dirname "$0")/.."
  local file=build/npm/node_modules/$1/$3
  echo "$4  $file" | sha256sum --check --status 2> /dev/null && return
  echo "$5: npm install --prefix build/npm $1@$2"
  mkdir -p build/npm
  npm install --prefix build/npm --ignore-scripts --no-audit --no-fund --loglevel=error "$1@$2"
  echo "$4  $file" | sha256sum --check --quiet && return
  rm -f "$file"
  return 1
}
install_from_npm() {
  case $goal in
    store) install_npm "$duckdb_package" "$duckdb_version" libduckdb.so "$duckdb_sha256" \
                       "kansoku writes Parquet and history with DuckDB" ;;
    otlp) install_npm "$otlp_package" "$otlp_version" build/src/generated/root.js "$otlp_sha256" \
                      "tests read OTLP with OpenTelemetry's decoder" ;;
    bench) unpack_openblas || echo "without it the benchmark of stats has no peer with two threads" ;;
  esac
}

# OpenBLAS with threads, for the peer of bench/stats_bench.cc: unpacked, not installed, since installing it would switch the BLAS
# of every job on the machine.
unpack_openblas() {
  cd "$(dirname "$0")/.."
  [ -e build/openblas/usr/lib/x86_64-linux-gnu/openblas-pthread/libblas.so.3 ] && return
  echo "kansoku unpacks a Debian package into build/openblas: apt-get download libopenblas0-pthread"
  mkdir -p build/openblas
  (cd build/openblas && apt-get download -qq libopenblas0-pthread && dpkg -x libopenblas0-pthread_*.deb . && rm -f ./*.deb)
}

missing=""
for package in $wanted; do
  dpkg-query -W -f='${db:Status-Status}\n' "$package" 2>/dev/null | grep -qx installed || missing="$missing $package"
done
if [ -z "$missing" ]; then
  install_from_npm
  exit 0
fi
line="apt-get install -y --no-install-recommends$missing"
echo "kansoku needs Debian packages: $line"
if [ "$(id -u)" != 0 ]; then
  echo "not root: run that line as root, then try again" >&2
  exit 1
fi
export DEBIAN_FRONTEND=noninteractive
apt-get update -qq
$line
install_from_npm
