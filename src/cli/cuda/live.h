// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>

#include "capture/cuda/snapshot.h"
#include "cli/screen.h"
#include "common/json.h"

namespace kansoku::cli {

using CudaSnapshot = capture::cuda::Snapshot;
using CudaFrame = capture::cuda::Frame;
using CudaRow = capture::cuda::FrameRow;

[[nodiscard]] Lines frame_text(const CudaFrame& frame, const CudaSnapshot& snapshot,
                               std::size_t rows_max);
[[nodiscard]] Json frame_json(const CudaFrame& frame, const CudaSnapshot& snapshot);

}  // namespace kansoku::cli
