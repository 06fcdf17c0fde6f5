/* SPDX-License-Identifier: Apache-2.0 */
/* The hooks of hooks.txt, as tools/gen_cuda_shim.py writes them. */
#include "capture/shim/internal/shim.h"

/* After what it uses. */
#include "capture/shim/hooks.inc"
