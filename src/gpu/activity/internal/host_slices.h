// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "gpu/activity/activity.h"
#include "gpu/activity/device_work.h"
#include "gpu/activity/internal/arg_reader.h"
#include "trace/model.h"

namespace kansoku::gpu::activity {

/// How the slices of threads that call CUDA lie in each other. Borrows all that it is made of.
class HostSlices {
 public:
  HostSlices(const trace::Trace& trace, const DeviceWork& work);

  /// The slice around `slice` on its thread, or kNoIndex.
  [[nodiscard]] std::uint32_t parent(std::uint32_t slice) const { return parents_[slice]; }
  [[nodiscard]] stats::Interval time(std::uint32_t slice) const;

 private:
  const trace::Trace& trace_;
  std::vector<std::uint32_t> parents_;  // by slice
};

/// Inputs of a recording's figures.
struct Input {
  const trace::Trace& trace;
  const DeviceWork& work;
  const ArgReader& args;
  const HostSlices& host;
  const Options& options;
  const Recorded& recorded;
  const std::vector<ProcessSteps>& steps;  // of the caller, or the profiler's
};

}  // namespace kansoku::gpu::activity
