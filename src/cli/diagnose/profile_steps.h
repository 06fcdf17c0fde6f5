// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "capture/decoder.h"
#include "common/time.h"

namespace kansoku::cli {

/// Which steps a window is about, and how steps are counted.
struct StepOptions {
  std::uint64_t first{1};   // step N begins with the Nth mark that was seen of its process
  std::uint64_t count{10};  // a diagnosis needs six
  std::string mark;         // a call's name begins so; "": those that are known to come once a step
  std::uint32_t calls_per_step{1};  // of the mark
};

/// Counts the steps of each process by calls that come once a step. The window has to be open
/// before any rank begins its first step, and until every rank has ended its last one: ranks run
/// apart by less than a step, and a call is heard of a moment after it began.
class StepWindow {
 public:
  /// Processes beyond it are not counted.
  static constexpr std::size_t kProcessesMax = 4096;

  /// How surely a call comes once a step.
  enum class Sureness : std::uint8_t { kHigh, kMiddle, kLow };

  explicit StepWindow(StepOptions options) : options_(std::move(options)) {}

  /// A call on a main thread that comes once a step, by the mark's name (borrowed for the window's
  /// life). If a process has several marks, the surest counts.
  void on_call(const capture::CallMark& mark, std::string_view name, Sureness sureness);
  /// A rank is about to begin the first step.
  [[nodiscard]] bool is_due(const std::set<std::int32_t>& ranks) const;
  /// Every rank has ended the last step. Ranks that ended are no longer among `ranks`.
  [[nodiscard]] bool is_complete(const std::set<std::int32_t>& ranks) const;

  /// Those that were counted.
  [[nodiscard]] std::set<std::int32_t> processes() const;
  /// State of one rank.
  struct Row {
    /// True if the window held all of the steps.
    [[nodiscard]] bool is_whole(BootTime opened) const { return begin && end && *begin >= opened; }
    std::uint64_t seen{0};  // steps begun
    std::string_view mark;
    std::optional<BootTime> begin, end;  // of the first step, of the last one
  };
  [[nodiscard]] Row row(std::int32_t pid) const;
  [[nodiscard]] const StepOptions& options() const { return options_; }

 private:
  struct Counted {
    std::string_view name;
    std::uint64_t calls{0};
    BootTime last{};
    Nanos step{};  // the last one's length
    std::optional<BootTime> begin, end;
  };
  using Process = std::array<Counted, 3>;  // by sureness
  /// The surest mark that the process calls. Null: none yet.
  [[nodiscard]] const Counted* counted(std::int32_t pid) const;
  [[nodiscard]] std::uint64_t steps_of(const Counted& counted) const {
    return (counted.calls + options_.calls_per_step - 1) / options_.calls_per_step;
  }

  StepOptions options_;
  std::map<std::int32_t, Process> processes_;
};

}  // namespace kansoku::cli
