#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Runs every fuzz target built in a folder once: tools/fuzz_once.sh BUILD_FOLDER [SECONDS]
# Each target runs for SECONDS [20] from tests/corpus/<target>; new inputs go into a temporary folder, what crashes is kept in
# BUILD_FOLDER/crashes/<target>. Prints a line a target. Exit status: 0 no crash, 1 a crash, 2 usage, 77 no target built.
set -u
root=$(cd "$(dirname "$0")/.." && pwd)
if [ $# -lt 1 ] || [ $# -gt 2 ] || [ ! -d "$1" ]; then
  echo "usage: $0 BUILD_FOLDER [SECONDS]" >&2
  exit 2
fi
build=$1
seconds=${2:-20}
case $seconds in
  '' | *[!0-9]* | 0) echo "usage: SECONDS is a whole number above 0, not '$seconds'" >&2; exit 2 ;;
esac

work=$(mktemp -d -t kansoku-fuzz-XXXXXX)
trap 'rm -rf "$work"' EXIT
export ASAN_OPTIONS="${ASAN_OPTIONS:-abort_on_error=0:detect_leaks=1}"
export UBSAN_OPTIONS="${UBSAN_OPTIONS:-print_stacktrace=1}"

stat_of() {  # stat_of NAME LOG: a number of libFuzzer's final statistics, 0 if it did not get so far
  sed -n "s/^stat::$1: *//p" "$2" | tail -1 | grep . || echo 0
}

targets=0
crashed=0
while IFS= read -r -d '' target; do
  name=$(basename "$target")
  log=$work/$name.log
  crashes=$build/crashes/$name
  mkdir -p "$work/$name" "$crashes"
  touch "$work/start"
  seeds=()
  [ -d "$root/tests/corpus/$name" ] && seeds=("$root/tests/corpus/$name")
  begin=$SECONDS
  "$target" -max_total_time="$seconds" -timeout=10 -rss_limit_mb=2048 -print_final_stats=1 -verbosity=1 \
    -artifact_prefix="$crashes/" "$work/$name" "${seeds[@]}" > "$log" 2>&1 < /dev/null
  status=$?
  mapfile -d '' -t found < <(find "$crashes" -type f -newer "$work/start" -print0 | sort -z)
  count=${#found[@]}
  [ $status -ne 0 ] && [ "$count" -eq 0 ] && count=1  # it ended badly without an input to blame
  new=$(find "$work/$name" -type f | wc -l)
  echo "fuzz $name runs=$(stat_of number_of_executed_units "$log") seconds=$((SECONDS - begin)) new=$new crashes=$count"
  targets=$((targets + 1))
  if [ "$count" -ne 0 ]; then
    crashed=$((crashed + 1))
    cp "$log" "$crashes/log"
    grep -m 3 -E 'ERROR|runtime error|SUMMARY|CHECK failed' "$log" | sed 's/^/  /'
    for input in "${found[@]}"; do
      echo "  input: $input"
      echo "  reproduce: $target $input"
    done
    echo "  log: $crashes/log (exit status $status)"
  else
    rmdir "$crashes" 2> /dev/null
  fi
done < <(find "$build" -type f -perm -u+x -name '*_fuzz' -not -path '*/crashes/*' -print0 | sort -z)

rmdir "$build/crashes" 2> /dev/null
if [ $targets -eq 0 ]; then
  echo "fuzz: no target in $build (cmake --preset fuzz && cmake --build --preset fuzz)" >&2
  exit 77
fi
echo "fuzz: $targets targets, $crashed with a crash"
[ $crashed -eq 0 ]
