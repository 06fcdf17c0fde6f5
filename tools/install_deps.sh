#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Installs the Debian packages that a goal needs, by name: tools/install_deps.sh build|demo|test|bench|faults|check|store
# `store` is DuckDB, which Debian does not have: from npm into build/npm, without running any of the package's scripts.
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
  store) wanted=""; command -v npm > /dev/null || wanted="nodejs npm" ;;
  check) wanted="$build $demo $tests clang-tidy-14" ;;
  *) echo "usage: $0 build|demo|test|bench|faults|check|store" >&2; exit 2 ;;
esac

duckdb_package=@duckdb/node-bindings-linux-x64
duckdb_version=1.5.6-r.1
duckdb_sha256=3f4962cdd266eab2b479a5b5a4a6d063d279b2954ae814ed00385d553b747633
install_duckdb() {
  cd "$(dirname "$0")/.."
  local library=build/npm/node_modules/$duckdb_package/libduckdb.so
  echo "$duckdb_sha256  $library" | sha256sum --check --status 2> /dev/null && return
  echo "kansoku writes Parquet with DuckDB: npm install --prefix build/npm $duckdb_package@$duckdb_version"
  mkdir -p build/npm
  npm install --prefix build/npm --ignore-scripts --no-audit --no-fund --loglevel=error "$duckdb_package@$duckdb_version"
  echo "$duckdb_sha256  $library" | sha256sum --check --quiet && return
  rm -f "$library"
  return 1
}

missing=""
for package in $wanted; do
  dpkg-query -W -f='${db:Status-Status}\n' "$package" 2>/dev/null | grep -qx installed || missing="$missing $package"
done
if [ -z "$missing" ]; then
  if [ "$goal" = store ]; then install_duckdb; fi
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
if [ "$goal" = store ]; then install_duckdb; fi
