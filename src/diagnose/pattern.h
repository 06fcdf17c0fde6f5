// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "common/bytes.h"
#include "common/result.h"

namespace kansoku::diagnose {

/// Kind of activity of an execution; decides who owns an instant when several run at once.
enum class Activity : std::uint8_t {
  kGpuCompute,
  kGpuMemory,
  kCollective,
  kInput,  // waiting for, or preparing, the next batch
  kCpuOp,
  kCopy,
  kIoWait,
  kPython,
};
inline constexpr std::size_t kActivityCount = 8;
[[nodiscard]] std::string_view activity_name(Activity activity);

/// Highest first. The owner of an instant is the first activity that has a live execution.
using Priorities = std::array<Activity, kActivityCount>;
/// GPU compute > GPU memory > collectives > input > operators > copies > I/O wait > Python.
/// Source: PerfTracker's order (second-hand), with input split off Python (ours).
inline constexpr Priorities kGpuPriorities{
    Activity::kGpuCompute, Activity::kGpuMemory, Activity::kCollective, Activity::kInput,
    Activity::kCpuOp,      Activity::kCopy,      Activity::kIoWait,     Activity::kPython};
/// Input > operators > copies > collectives > I/O wait > Python, for jobs without a GPU: there the
/// operators that prepare a batch run on the same processor as the model's, and are no excuse.
inline constexpr Priorities kCpuPriorities{
    Activity::kGpuCompute, Activity::kGpuMemory,  Activity::kInput,  Activity::kCpuOp,
    Activity::kCopy,       Activity::kCollective, Activity::kIoWait, Activity::kPython};

/// One execution of a function. Equal functions have equal numbers; Python functions are equal only
/// with equal call stacks.
struct Execution {
  std::int64_t begin_ns{0}, end_ns{0};  // half open; begin <= end
  std::uint32_t function{0};
  Activity activity{Activity::kPython};
  float use{0};  // of the resource it depends on: 0..1, or a rate in the resource's unit
};

/// The behaviour of one function on one rank in one window.
struct PatternRow {
  std::uint32_t function{0};
  Activity activity{Activity::kPython};
  std::uint32_t count{0};  // executions that owned some time
  double beta{0};          // share of the window in which it is on the critical path
  double mu{0};            // mean use of its resource over that time
  double sigma{0};         // standard deviation of that use
};

struct Pattern {
  std::int32_t rank{0};
  std::int64_t window_ns{0};
  std::vector<PatternRow> rows;  // by beta, greatest first
  double idle{0};                // share of the window that nothing owns
};

/// Gives each instant of [begin_ns, end_ns) one owner (the innermost, that is the latest started
/// live execution of the highest activity) and sums up by function. Executions in any order; those
/// outside of the window are cut to it. Deterministic; pure; any thread; O(n log n), O(n) if
/// sorted. The shares and `idle` sum to 1. Source: PerfTracker, arXiv 2506.08528 (second-hand); the
/// innermost rule is ours.
/// `on_owned`, if there is one, is told each stretch of time and the execution that owns it, in
/// order.
using OnOwned =
    std::function<void(const Execution& owner, std::int64_t begin_ns, std::int64_t end_ns)>;
[[nodiscard]] Pattern build_pattern(std::span<const Execution> executions, std::int64_t begin_ns,
                                    std::int64_t end_ns, const Priorities& priorities,
                                    const OnOwned& on_owned = {});

/// Shortest part of a piecewise constant signal that holds `share` of its whole; `levels[i]` >= 0
/// holds for `lengths[i]` >= 0. Gives the mean and standard deviation of the level over that part.
/// This leaves out the waiting at the beginning or end of an execution.
struct CriticalUse {
  double length{0}, mean{0}, deviation{0};
};
[[nodiscard]] CriticalUse critical_use(std::span<const double> levels,
                                       std::span<const double> lengths, double share);

/// A pattern as it goes over a wire: names included, at most `bytes_max`, which must be at least
/// kPatternBytesMin; rows that do not fit are summed into one named "(others)". Names are cut after
/// 240 bytes. Format: docs/formats/pattern.md.
inline constexpr std::size_t kPatternBytesMin = 52;  // the header and "(others)"
struct NamedPattern {
  Pattern pattern;
  std::vector<std::string> names;  // by PatternRow::function
};
[[nodiscard]] std::string encode_pattern(const Pattern& pattern,
                                         std::span<const std::string> names_by_function,
                                         std::size_t bytes_max);
/// kCorrupt names the offset, kUnsupported another version.
[[nodiscard]] Result<NamedPattern> decode_pattern(ByteSpan untrusted);

}  // namespace kansoku::diagnose
