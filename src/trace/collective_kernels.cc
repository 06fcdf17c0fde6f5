// SPDX-License-Identifier: Apache-2.0
#include "trace/collective_kernels.h"

#include <algorithm>
#include <array>
#include <string_view>

namespace kansoku::trace {

namespace {

/// With the underscore, which types of parameters have not: ncclDevKernelArgsStorage.
bool is_collective_kernel(std::string_view name) {
  constexpr std::array<std::string_view, 3> kWords{"ncclKernel_", "ncclDevKernel_", "rcclKernel_"};
  return std::any_of(kWords.begin(), kWords.end(), [&](std::string_view word) {
    return name.find(word) != std::string_view::npos;
  });
}

}  // namespace

// PyTorch's profilers write so into the kernels of NCCL, of RCCL and of oneCCL.
CollectiveKernels::CollectiveKernels(const Trace& trace)
    : trace_(trace), key_(trace.strings.find("Collective name")) {}

bool CollectiveKernels::contains(std::size_t slice) const {
  const StringId name = trace_.slices.name[slice];
  if (name.raw < trace_.strings.size() && is_collective_kernel(trace_.str(name))) return true;
  if (key_ == StringId{}) return false;
  const std::size_t begin = trace_.slices.arg_begin[slice], count = trace_.slices.arg_count[slice];
  return begin <= trace_.args.size() && count <= trace_.args.size() - begin &&
         trace_.slice_arg(slice, key_) != nullptr;
}

}  // namespace kansoku::trace
