// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <string_view>

#include "trace/model.h"

namespace kansoku::trace {

/// True for kernels of NCCL and of RCCL: ncclKernel_AllReduce_RING_LL_..., ncclDevKernel_...,
/// rcclKernel..., with "void " in front, too.
[[nodiscard]] bool is_collective_kernel(std::string_view name);

/// Which device operations of a trace are collectives: by their names, or because the profiler says
/// which collective they compute, whatever the library. Borrows the trace.
class CollectiveKernels {
 public:
  explicit CollectiveKernels(const Trace& trace);
  /// False for a slice whose name or arguments the trace does not have.
  [[nodiscard]] bool contains(std::size_t slice) const;

 private:
  const Trace& trace_;
  StringId key_;
};

}  // namespace kansoku::trace
