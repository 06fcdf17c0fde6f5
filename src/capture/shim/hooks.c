/* SPDX-License-Identifier: Apache-2.0 */
/* The hooks of hooks.txt, as tools/gen_cuda_shim.py writes them. */
#include "shim.h"
#include "shim_hooks.inc"
