// SPDX-License-Identifier: Apache-2.0
#include "trace/collective_kernels.h"

#include <algorithm>
#include <array>

namespace kansoku::trace {

bool is_collective_kernel(std::string_view name) {
  constexpr std::string_view kVoid = "void ";
  constexpr std::array<std::string_view, 3> kPrefixes{"ncclKernel", "ncclDevKernel", "rcclKernel"};
  if (name.starts_with(kVoid)) name.remove_prefix(kVoid.size());
  return std::any_of(kPrefixes.begin(), kPrefixes.end(),
                     [&](std::string_view prefix) { return name.starts_with(prefix); });
}

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
