// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "gpu/exec/internal/decode/code.h"

namespace kansoku::gpu::exec {

struct Warp;

/// mma.sync, wmma.mma: extra: index into CompiledFunction::matrices.
const Code* run_mma(Warp& warp, const Code* code);
/// movmatrix: d, a: 8 by 8 elements of 16 bits each.
const Code* run_movmatrix(Warp& warp, const Code* code);
/// ldmatrix: a: address; d, b, c, site: the registers; extra: count, 8: transposed, 16: the address
/// is a generic one.
const Code* run_ldmatrix(Warp& warp, const Code* code);
/// cp.async: a: destination in shared memory, b: source in global memory; offset and site: their
/// offsets; c: slot of the number of bytes to take from the source, or 0xffff for all; extra:
/// bytes.
const Code* run_async_copy(Warp& warp, const Code* code);

}  // namespace kansoku::gpu::exec
