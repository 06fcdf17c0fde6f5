// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "common/result.h"

namespace kansoku::cli {

/// Options and arguments of `kansoku gpu run`, as text.
struct GpuRunOptions {
  std::string path, kernel, grid{"1"}, block{"1"}, limit{"60s"};
  std::vector<std::string> arguments, shown;
  std::uint32_t shared{0}, workers{0};
  bool check{false}, profile{false}, json{false};
  std::optional<int> device;  // of the machine's driver; none: the software device
};

/// Runs a kernel of a file through a driver, the machine's or the software device's, and prints the
/// result; gives the exit status. Sets the environment variables that the software device's driver
/// reads. May block as long as the limit says; if a GPU's kernel passes it, this process ends
/// there.
[[nodiscard]] Result<int> run_gpu_kernel(const GpuRunOptions& wanted);

}  // namespace kansoku::cli
