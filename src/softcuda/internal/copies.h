// SPDX-License-Identifier: Apache-2.0
#pragma once

// Copies that several entry points ask for.
#include "softcuda/internal/runtime.h"

namespace kansoku::softcuda {

enum class Side { kDevice, kHost, kEither };

struct CopyRequest {
  std::uint64_t to{0}, from{0};
  std::size_t bytes{0};
  Side to_side{Side::kEither}, from_side{Side::kEither};
  CUstream stream{nullptr};
  bool is_per_thread{false};
  bool is_async{false};
  bool reads_now{false};  // the source is not read after the call
};

/// CUDA_SUCCESS if a copy may read or write there.
CUresult check_side(std::uint64_t address, std::size_t bytes, Side side);
/// A line of bytes. In the stream; waits if it goes to pageable memory, and unless `is_async`.
CUresult copy_line(const CopyRequest& request);
/// The same for a box. Without bytes both do nothing.
CUresult copy_box(const CUDA_MEMCPY3D& shape, CUstream handle, bool is_per_thread, bool is_async);

}  // namespace kansoku::softcuda
