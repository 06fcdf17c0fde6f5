// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>

#include "trace/model.h"

namespace kansoku::trace {

/// Which device operations of a trace are collectives: by the names of NCCL's and RCCL's kernels
/// (ncclKernel_AllReduce_RING_LL_..., ncclDevKernel_..., rcclKernel..., mangled or not), or because
/// the profiler says which collective they compute, whatever the library. Borrows the trace.
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
