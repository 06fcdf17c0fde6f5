#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# flaky.sh BUILD: the tests that a change touches, for so many minutes as $KANSOKU_FLAKY_MINUTES says; 77: it says nothing.
minutes=$KANSOKU_FLAKY_MINUTES
unset KANSOKU_FLAKY_MINUTES  # this test may be one of them
[ -n "$minutes" ] || { echo "not asked for: make test FLAKY=1"; exit 77; }
# One pair and no load of its own: the live tests beside it are one.
exec "$(dirname "$0")/../../tools/check_flaky.py" --build "$1" --changed --minutes "$minutes" --jobs 1 --busy 0
