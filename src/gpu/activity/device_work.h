// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "common/result.h"
#include "common/stat.h"
#include "stats/intervals.h"
#include "trace/model.h"

namespace kansoku::gpu::activity {

inline constexpr std::uint32_t kNoIndex = std::numeric_limits<std::uint32_t>::max();

/// Class of an operation of a stream. Host functions and waits occupy a stream, not the device.
enum class OpClass : std::uint8_t {
  kKernel,
  kCollective,
  kCopy,
  kSet,
  kGraph,
  kHostFunction,
  kWait
};
inline constexpr std::size_t kOpClassCount = 7;
[[nodiscard]] std::string_view op_class_name(OpClass what);
/// True if the device works while an operation of this class runs.
[[nodiscard]] constexpr bool is_busy(OpClass what) {
  return what != OpClass::kHostFunction && what != OpClass::kWait;
}

/// An operation of a device, as it stands in the recording.
struct Op {
  stats::Interval time;
  std::uint32_t slice{0};        // index into Trace::slices
  std::uint32_t stream{0};       // index into DeviceWork::streams
  std::uint32_t call{kNoIndex};  // index into DeviceWork::calls: its launch
  std::optional<std::uint64_t> correlation;
  OpClass what{OpClass::kKernel};
  bool is_further{false};  // another one of the same call began before it: a node of a graph
  bool is_shared{false};   // another operation ran beside it: its duration is not its own
};

enum class CallClass : std::uint8_t {
  kLaunch,
  kCopy,
  kSet,
  kAlloc,      // of device memory
  kFree,       // likewise
  kHostAlloc,  // of pinned memory, and its release
  kSync,
  kModule,  // loads of code, first-use compilation
  kOther
};

/// A call of the CUDA runtime or driver.
struct Call {
  stats::Interval time;  // ends with the recording if `is_open`
  std::uint32_t slice{0};
  std::uint32_t thread{0};  // index into DeviceWork::threads
  std::optional<std::uint64_t> correlation;
  CallClass what{CallClass::kOther};
  bool is_open{false};
  bool is_nested{false};  // inside another call of the same thread: the runtime's into the driver
  bool is_first_use{false};  // the first launch of a kernel, long: its code was loaded or compiled
  bool is_blocking{false};  // returns when the device is done: synchronisations, synchronous copies
  bool is_staged{false};    // a copy that need not block, and held its caller all the same: its
                            // memory is pageable
};

/// A thread that called CUDA, with all of its slices.
struct Thread {
  trace::TrackId track{};
  std::int32_t pid{0}, tid{0};
  std::vector<std::uint32_t> slices{};  // by begin, the outer before the inner
};

/// A device as one process sees it: ordinals of two processes need not mean one device.
struct Device {
  std::int32_t pid{0};  // of the process that launches, where it is known
  std::int32_t rank{trace::kNoRank};
  std::int64_t ordinal{-1};          // -1: the recording does not say
  std::vector<std::uint32_t> ops{};  // by begin
  std::int64_t map_error_ns{0};      // of its times on the host's clock, as far as it is stated
};

struct Stream {
  std::uint32_t device{0};  // index into DeviceWork::devices
  std::int64_t number{0};
  std::vector<std::uint32_t> ops{};  // by begin
};

/// The device work of a recording: operations and their launches.
struct DeviceWork {
  std::vector<Op> ops;      // by begin
  std::vector<Call> calls;  // by begin
  std::vector<Thread> threads;
  std::vector<Device> devices;         // by rank, process, ordinal
  std::vector<Stream> streams;         // by device, number
  std::uint64_t unlinked_count{0};     // operations whose launch is not in the recording
  std::uint64_t ambiguous_count{0};    // whose number two processes used
  std::uint64_t open_count{0};         // device operations without an end
  std::int64_t moved_ns{0};            // the furthest that a process's device times were moved
  std::uint64_t other_clock_count{0};  // a few on a clock of their own, left out
  std::uint64_t odd_count{0};          // slices with times outside 0 .. 2^61
};

/// The streams of a device.
[[nodiscard]] std::span<const Stream> streams_of(const DeviceWork& work, std::uint32_t device);

/// Finds the device operations and CUDA calls of `trace` and links them by correlation, else by
/// flow: recordings of Kansoku as well as imported profiles of PyTorch and Nsight Systems. kCorrupt
/// if columns have different lengths. Deterministic; pure; any thread. O(n log n).
[[nodiscard]] Result<DeviceWork> read_device_work(const trace::Trace& trace);

}  // namespace kansoku::gpu::activity
