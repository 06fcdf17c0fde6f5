// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <vector>

#include "common/time.h"

namespace kansoku::capture {

/// Slices of one track that come in the order of their ends, an inner one before the outer one, as
/// nested ranges of a thread do.
class NestedSlices {
 public:
  /// False: it laps over one that is there, or begins with it, and has to go elsewhere.
  [[nodiscard]] bool add(BootTime begin, BootTime end);

 private:
  static constexpr std::size_t kKeptMax = 1024;
  struct Slice {
    BootTime begin, end;
  };
  std::deque<Slice> outermost_;  // by time, the last ones; disjoint
};

/// Ranges that the threads of one program pushed and popped, and the operations that they launched
/// within: gives the cover of each range on each stream. Bounded: further ones are counted, and
/// left out.
class CudaRanges {
 public:
  static constexpr std::size_t kOperationsMax = 1U << 20;
  static constexpr std::size_t kRangesMax = 1U << 18;
  static constexpr std::size_t kSpansMax = 1U << 20;
  static constexpr std::size_t kOpenMax = 128;  // of one thread, in each other
  static constexpr std::size_t kLanesMax = 16;  // of one stream

  struct Range {
    std::uint32_t tid{0};
    BootTime begin{}, end{};
    std::uint16_t name{0}, domain{0};
  };
  struct Operation {
    std::uint32_t tid{0};     // of the thread that launched it
    std::uint32_t stream{0};  // whatever number the caller gives it
    BootTime launched{};
    BootTime begin{}, end{};  // on the stream's track
  };
  /// From the begin of the first operation to the end of the last one.
  struct Span {
    std::uint32_t stream{0};
    std::uint32_t lane{0};  // spans of one lane nest
    BootTime begin{}, end{};
    std::uint16_t name{0}, domain{0};
    std::uint64_t operation_count{0};
    std::size_t order{0};  // of the range: an outer one is before its inner ones
  };

  void add(const Range& range);
  void add(const Operation& operation);
  /// By stream and begin, the outer before the inner; those of no lane are left out. Forgets all
  /// that was added. O(n log n + operations * kOpenMax).
  [[nodiscard]] std::vector<Span> project();
  [[nodiscard]] std::uint64_t left_out() const { return left_out_; }

 private:
  void choose_lanes(std::vector<Span>& spans);

  std::vector<Range> ranges_;
  std::vector<Operation> operations_;
  std::uint64_t left_out_{0};  // ranges, operations and spans
};

}  // namespace kansoku::capture
