// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

namespace kansoku::gpu::exec {

struct Warp;

inline constexpr std::uint32_t kFragmentWordsMax = 8;

/// Registers of 32 bits that hold the fragments of a matrix product d = a * b + c.
struct MatrixSlots {
  std::uint16_t d[kFragmentWordsMax], a[kFragmentWordsMax], b[kFragmentWordsMax],
      c[kFragmentWordsMax];
};

/// Multiplies the fragments of a whole warp.
using MatrixProduct = void (*)(Warp& warp, const MatrixSlots& slots);

/// Sink for the rows of a file with matrix products; a plain function, as in forms.h. The numbers:
/// words of each fragment.
struct MatrixSink {
  void* context;
  void (*add)(void* context, const char* name, const std::uint32_t (&words)[4], MatrixProduct run);
};

void list_products_v2(const MatrixSink& sink);
void list_products_v3(const MatrixSink& sink);
void list_products_v4(const MatrixSink& sink);

}  // namespace kansoku::gpu::exec
