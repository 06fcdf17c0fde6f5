#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# The tests of `make test` beside two busy loops and one that copies the system's libraries: loaded.sh BUILD [OPTION of ctest...]
set -uo pipefail -m  # each loop leads a group, which ends as a whole
[ $# -gt 0 ] || { echo "usage: $0 BUILD [OPTION of ctest...]" >&2; exit 2; }
build=$1
shift
place=$(mktemp -d -t kansoku-loaded-XXXXXX)
loops=()
cleanup() {
  kill -- "${loops[@]/#/-}"
  wait "${loops[@]}"
  rm -rf "$place"
} 2> /dev/null
trap cleanup EXIT
trap 'exit 130' INT TERM
for _ in 1 2; do
  while :; do :; done &
  loops+=($!)
done
while :; do
  cp -r /usr/lib/x86_64-linux-gnu "$place/copy"
  rm -rf "$place/copy"
done &
loops+=($!)
ctest --test-dir "$build" -j $(($(nproc) + 1)) --output-on-failure --no-tests=error "$@"
