// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "common/result.h"
#include "cuda/device.h"
#include "gpu/ptx/ir.h"

namespace kansoku::cli {

/// A kernel's argument as a person writes it: a number, or a buffer on the device.
struct GpuArgument {
  bool is_buffer{false};
  std::string bytes;         // of the number; of a buffer, before the run and after it
  std::string output;        // file for a buffer's contents afterwards; may be empty
  std::uint64_t address{0};  // of a buffer
};

/// "i32:7", "zero:4K>out" and the like; kCorrupt lists the known forms.
[[nodiscard]] Result<GpuArgument> parse_gpu_argument(std::string_view text);

/// Layout of a kernel's parameters as its PTX declares them.
[[nodiscard]] std::vector<cuda::KernelInfo::Parameter> declared_parameters(
    const gpu::ptx::Function& kernel);

/// The arguments as the kernel's parameters lie in memory; kCorrupt if they are too many, too few,
/// or of another size.
[[nodiscard]] Result<cuda::KernelArguments> lay_out_arguments(
    std::string_view kernel, std::span<const cuda::KernelInfo::Parameter> parameters,
    std::span<const GpuArgument> arguments);

/// Numbers of a buffer that are to be printed: "2:f32:8", an argument's index, a type, how many.
struct GpuShown {
  std::size_t argument{0};
  std::string type{"f32"};
  std::size_t count{8};
};
[[nodiscard]] Result<GpuShown> parse_gpu_shown(std::string_view text,
                                               std::span<const GpuArgument> arguments);
[[nodiscard]] std::vector<double> numbers_of(const GpuArgument& argument, const GpuShown& shown);

/// Writes the contents of buffers to the files that were named for them.
[[nodiscard]] Result<void> keep_buffers(std::span<const GpuArgument> arguments);

}  // namespace kansoku::cli
