#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# library.sh KANSOKU FOLDER soft|gpu [--perturb]: what Kansoku's CUDA library says of programs against what they know themselves.
# FOLDER has the program `library` (run.sh builds it) and gets the recordings. Needs root and python3. --perturb: the programs' numbers
# are changed, so each check has to fail. Exit status: 0 all passed, 1 one failed, 77 not run.
set -u
kansoku=$1 folder=$2 device=$3 perturb=${4:-}
here=$(dirname "$(readlink -f "$0")")
not_run() { echo "gpu-check: NOT RUN: Kansoku's CUDA library: $1"; exit 77; }
[ "$(id -u)" = 0 ] || not_run "it needs root"
command -v python3 > /dev/null || not_run "it needs python3"
[ -x "$folder/library" ] || not_run "there is no $folder/library"
start=()
[ "$device" = gpu ] || start=("$kansoku" run --softgpu --)
out=$(mktemp -d "$folder/library.XXXXXX") || exit 2
background=
end() { [ -z "$background" ] || { touch "$out/stuck.release"; wait "$background"; }; rm -rf "$out"; }
trap end EXIT
record() { # NAME COMMAND...
    local name=$1
    shift
    "$kansoku" record -q --no-bpf --cuda --force -o "$out/$name.pftrace" -- ${start[@]+"${start[@]}"} "$@" > "$out/$name.log" 2>&1 ||
        { cat "$out/$name.log"; echo "failed   library.$name  its program, or its recording, failed"; return 1; }
}
report() { "$kansoku" cuda report --json --top 100 "$out/$1.pftrace" > "$out/$1.json" 2> "$out/$1.log" || true; }
status=0
${start[@]+"${start[@]}"} "$folder/library" events "$out/alone" > "$out/alone.log" 2>&1 || { cat "$out/alone.log"; status=1; }
for name in times events; do
    record $name "$folder/library" $name "$out/$name" && report $name || status=1
done
# It is asked while the kernel runs, and asked again until the deadline of such a kernel is over: a minute at most.
record stuck "$folder/library" stuck "$out/stuck" &
background=$!
for _ in $(seq 120); do
    pid=$(sed -n 's/^pid //p' "$out/stuck" 2> /dev/null)
    if [ -n "$pid" ]; then
        "$kansoku" hang -p "$pid" --json > "$out/hang.json" 2> "$out/hang.log"
        [ $? != 10 ] || break # stuck
    fi
    kill -0 "$background" 2> /dev/null || break
    sleep 0.5 # allowed: the pause of a poll loop
done
touch "$out/stuck.release"
wait "$background" && report stuck || status=1
background=
python3 "$here/library.py" "$out" $perturb || status=1
if python3 -c 'import sys, torch; sys.exit(0 if torch.cuda.is_available() else 1)' 2> /dev/null && [ "$device" = gpu ]; then
    start=()
    record torch python3 "$here/library_torch.py" "$out/torch" && report torch && python3 "$here/library.py" "$out" torch $perturb || status=1
else
    echo "gpu-check: NOT RUN: PyTorch against its own profiler: no python3 here has torch with a GPU"
fi
exit $status
