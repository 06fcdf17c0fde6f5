#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# What run.py has another kernel do: the unit tests of probing and metering. Those of ways to attach that the kernel does not have are
# skipped.
cd "$(dirname "$0")/../.." || exit 1
echo "kernel $(uname -r)"
"${BUILD:-build/release}/kansoku" doctor
exec "${BUILD:-build/release}/src/capture/bpf/capture_bpf_test" --gtest_brief=1
