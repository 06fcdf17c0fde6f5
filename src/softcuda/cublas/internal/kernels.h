// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "softcuda/cublas/internal/driver.h"

namespace kansoku::softcuda::cublas {

/// A text of PTX: the matrix products of one element type, or the triangular systems.
enum class Text { kF32, kF64, kF16, kBF16, kS8, kSolve };

struct Kernel {
  Text text;
  const char* name;  // of a string constant
};

/// The function of a kernel in the context that is current; its text is loaded into a context when
/// it is first needed there. Any thread.
[[nodiscard]] cuda::CUresult function_of(const Driver& driver, Kernel kernel,
                                         cuda::CUfunction& function);

}  // namespace kansoku::softcuda::cublas
