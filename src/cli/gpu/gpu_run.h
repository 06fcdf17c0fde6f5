// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "common/result.h"

namespace kansoku::cli {

/// What `kansoku gpu run` was asked for, as text.
struct GpuRunOptions {
  std::string path, kernel, grid{"1"}, block{"1"}, limit{"60s"};
  std::vector<std::string> arguments, shown;
  std::uint32_t shared{0}, workers{0};
  bool check{false}, profile{false}, json{false};
};

/// Runs a kernel of a file on the software device, in this process, and prints what came out; gives
/// the exit status. May block as long as the limit says.
[[nodiscard]] Result<int> run_gpu_kernel(const GpuRunOptions& wanted);

}  // namespace kansoku::cli
