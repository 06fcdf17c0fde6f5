#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# debian_alone.sh COMMAND...: runs it where only packages are installed: /usr/local and /opt are empty for it. Needs root.
# Programs that compile without NVIDIA's toolkit may not find one that somebody has installed by hand.
# shellcheck disable=SC2016
exec unshare -m bash -c 'for folder in /usr/local /opt; do mount -t tmpfs none "$folder" || exit 1; done; exec "$@"' bash "$@"
