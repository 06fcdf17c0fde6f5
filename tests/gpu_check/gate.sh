#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# gate.sh list|can_fail KANSOKU FOLDER: what the tests run. With Debian's packages alone, if this user may hide the rest.
#   list      builds the checks and runs them on the software device: all pass or are skipped, and the results are written down
#   can_fail  the same program, perturbed: every check fails. Checks that are wrong on purpose, a device for which nothing was built,
#             a name that no check has: each is told.
set -u
step=$1 kansoku=$(readlink -f "$2")
mkdir -p "$3" || exit 1
folder=$(readlink -f "$3")
here=$(dirname "$(readlink -f "$0")")
if [ -z "${GPU_CHECK_HIDDEN:-}" ] && [ "$(id -u)" = 0 ] && unshare -m true 2> /dev/null; then
    GPU_CHECK_HIDDEN=1 exec "$here/../gpu/debian_alone.sh" "$0" "$@"
fi
fail() { echo "gate: $1"; exit 1; }
program=$folder/soft/gpu_check
run() { "$kansoku" run --softgpu -- "$program" "$@"; }

if [ "$step" = list ]; then
    # From a copy of the two folders that it needs, as on a machine that has no more than these.
    mkdir -p "$folder/copy/tests" "$folder/copy/examples" &&
        rm -rf "$folder/copy/tests/gpu_check" "$folder/copy/examples/cuda_samples" &&
        cp -a "$here" "$folder/copy/tests/" && cp -a "$here/../../examples/cuda_samples" "$folder/copy/examples/" || exit 1
    KANSOKU=$kansoku "$folder/copy/tests/gpu_check/run.sh" soft --build "$folder" || exit $?
    python3 - "$folder/soft/result.json" "$here/checks.inc" <<'END' || fail "the results are not as documented"
import json
import re
import sys

results = json.load(open(sys.argv[1]))
assert results["schema"] == "kansoku.gpu_check" and results["version"] == 1
about = results["about"]
for key in ("device", "driver_version", "compiler", "build", "libcuda", "libcudart", "libcublas"):
    assert about[key], key
assert about["software_device"] is True and about["build"] == "softgpu-clang"
assert "/softgpu/" in about["libcuda"] and "/softgpu/" in about["libcublas"]
listed = re.findall(r"^GPU_(?:CHECK|SAMPLE)\(", open(sys.argv[2]).read(), re.MULTILINE)
assert len(listed) == len(results["checks"]) >= 80
assert results["passed"] + results["failed"] + results["skipped"] == len(listed)
assert results["failed"] == 0
skipped = [check["name"] for check in results["checks"] if check["status"] == "skipped"]
assert skipped == ["memory.managed_variable"], skipped
END
    exit 0
fi
[ "$step" = can_fail ] || fail "no step $step"
[ -x "$program" ] || { echo "gate: no $program"; exit 77; }
output=$(run --perturb)
status=$?
[ $status = 1 ] || fail "perturbed, the status is $status"
echo "$output" | grep -q '^gpu_check: [0-9]* checks: 0 passed, [0-9]* failed, 1 skipped$' ||
    { echo "$output" | grep -v '^failed'; fail "perturbed, a check does not fail"; }
if [ "$(id -u)" = 0 ]; then
    output=$("$here/library.sh" "$kansoku" "$folder/soft" soft --perturb)
    echo "$output" | grep -q '^passed' && { echo "$output"; fail "perturbed, a check of the library passes"; }
    [ "$(echo "$output" | grep -c '^failed')" -ge 11 ] || { echo "$output"; fail "perturbed, checks of the library are missing"; }
fi
output=$(run --only selftest | grep selftest | sed 's/  */ /g')
[ "$output" = "failed selftest.compares_nothing nothing was compared
failed selftest.aborts its process ended: signal 6
failed selftest.leaves_an_error leaves cudaErrorIllegalAddress behind; 1 value
passed selftest.after_the_others 1 value" ] || fail "checks that are wrong on purpose: $output"
output=$(KANSOKU_SOFTGPU_ARCH=sm_61 run 2>&1)
status=$?
[ $status = 2 ] && [[ $output == *"no check ran: an empty kernel:"* ]] || fail "on a device for which nothing was built: $status, $output"
output=$(run --only nothing.of.this.name 2>&1)
status=$?
[ $status = 2 ] && [[ $output == *"no check has such a name"* ]] || fail "an unknown name: $status, $output"
output=$(run --json /nonexistent/result.json --only errors.names 2>&1)
status=$?
[ $status = 2 ] && [[ $output == *"cannot write /nonexistent/result.json"* ]] || fail "results that cannot be written: $status, $output"
if ! ls /dev/nvidia[0-9]* > /dev/null 2>&1; then
    output=$("$here/run.sh" gpu --build "$folder" 2>&1)
    status=$?
    [ $status = 77 ] && [[ $output == *"no NVIDIA GPU is here"* ]] || fail "the half of the GPU without one: $status, $output"
fi
echo "every check can fail"
