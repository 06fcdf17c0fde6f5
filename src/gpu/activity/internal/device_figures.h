// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string_view>
#include <vector>

#include "gpu/activity/activity.h"
#include "gpu/activity/internal/host_slices.h"
#include "stats/intervals.h"

namespace kansoku::gpu::activity {

/// When a device works, by class; unions, never sums.
struct DeviceTime {
  stats::Interval window;  // from the first begin to the last end
  stats::IntervalSet busy, compute, communication, copies;
};
[[nodiscard]] DeviceTime device_time(const DeviceWork& work, const Device& device);

/// The part of the device's window that shares are of: from the first operation of the first step
/// to the last of the last, or the whole window without steps.
[[nodiscard]] stats::Interval judged_window(const Input& in, const Device& device,
                                            const DeviceTime& time);

/// The steps of a process; null if there are none.
[[nodiscard]] const ProcessSteps* steps_of(const Input& in, std::int32_t pid);

[[nodiscard]] std::optional<VoidFigures> void_figures(const Input& in, const Device& device,
                                                      const DeviceTime& time);
[[nodiscard]] OverlapFigures overlap_figures(const DeviceTime& time);
[[nodiscard]] ExposedCopies exposed_copies(const Input& in, const Device& device,
                                           const DeviceTime& time, stats::Interval window);
[[nodiscard]] std::vector<GapRow> gap_rows(const Input& in, std::uint32_t device);
[[nodiscard]] std::vector<QueueRow> queue_rows(const Input& in, std::uint32_t device);

/// Issue latency and short kernels, into `figures`.
void add_latencies(const Input& in, const Device& device, DeviceFigures& figures);

/// Runs of operations that began promptly after their launches, so that the device waited for the
/// host. `late`: the operations (indices into DeviceWork::ops) whose gap before them is in one.
struct Stretches {
  LaunchBound figures;
  std::vector<std::uint32_t> late;  // sorted
};
[[nodiscard]] Stretches launch_bound_stretches(const Input& in, const Device& device,
                                               stats::Interval window);

/// Idle time of each device by the activity of the thread that launched the next operation.
class IdleCauses {
 public:
  explicit IdleCauses(const Input& in);
  ~IdleCauses();
  IdleCauses(const IdleCauses&) = delete;
  IdleCauses& operator=(const IdleCauses&) = delete;
  [[nodiscard]] std::vector<IdleRow> rows(const Device& device, stats::Interval window,
                                          const Stretches& stretches);
  /// The gaps of a part of that window, by the cause that most of each is charged to; after rows()
  /// of the device, whose samples it uses.
  struct Gap {
    stats::Interval time;
    IdleCause cause{IdleCause::kUnknown};
    std::string_view function;
    std::uint32_t before{kNoIndex},
        after{kNoIndex};  // the operations around it, of DeviceWork::ops
  };
  [[nodiscard]] std::vector<Gap> gaps(const Device& device, stats::Interval part,
                                      const Stretches& stretches);
  /// The longest gap of that window, or the one in front of the device's first operation, from
  /// `host_begin_ns` on; after rows() of the device. Nothing without any.
  [[nodiscard]] std::optional<LongestIdle> longest(const Device& device, stats::Interval window,
                                                   const Stretches& stretches,
                                                   std::int64_t host_begin_ns);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

/// True if a call may hold its thread up for long: it waits for the device, or allocates, or loads.
[[nodiscard]] bool stalls(const Call& call);

/// True if such a call held its thread when the device had done the work that ended at
/// `device_end_ns`: it let the queue run dry.
[[nodiscard]] bool waited_for(const Call& call, std::int64_t device_end_ns);

}  // namespace kansoku::gpu::activity
