// SPDX-License-Identifier: Apache-2.0
#include "capture/internal/cuda_ranges.h"

#include <algorithm>
#include <array>
#include <tuple>
#include <utility>

namespace kansoku::capture {
namespace {

/// A range that the sweep is in, with its spans so far; streams of one range are few.
struct OpenRange {
  const CudaRanges::Range* range{nullptr};
  std::size_t order{0};
  std::vector<CudaRanges::Span> spans;
};

void extend(OpenRange& open, const CudaRanges::Operation& operation) {
  const auto of_stream = [&](const CudaRanges::Span& span) {
    return span.stream == operation.stream;
  };
  auto span = std::find_if(open.spans.begin(), open.spans.end(), of_stream);
  if (span == open.spans.end()) {
    open.spans.push_back({.stream = operation.stream,
                          .begin = operation.begin,
                          .end = operation.end,
                          .name = open.range->name,
                          .domain = open.range->domain,
                          .order = open.order});
    span = std::prev(open.spans.end());
  }
  span->begin = std::min(span->begin, operation.begin);
  span->end = std::max(span->end, operation.end);
  ++span->operation_count;
}

}  // namespace

bool NestedSlices::add(BootTime begin, BootTime end) {
  std::size_t inside = 0;
  for (auto at = outermost_.rbegin(); at != outermost_.rend() && at->begin > begin; ++at) {
    if (at->end > end) return false;
    ++inside;
  }
  if (inside < outermost_.size() && outermost_[outermost_.size() - inside - 1].end > begin)
    return false;
  if (inside < outermost_.size() && outermost_[outermost_.size() - inside - 1].begin == begin)
    return false;  // without a length
  outermost_.resize(outermost_.size() - inside);
  outermost_.push_back({begin, end});
  if (outermost_.size() > kKeptMax) outermost_.pop_front();
  return true;
}

void CudaRanges::add(const Range& range) {
  if (ranges_.size() < kRangesMax)
    ranges_.push_back(range);
  else
    ++left_out_;
}

void CudaRanges::add(const Operation& operation) {
  if (operations_.size() < kOperationsMax)
    operations_.push_back(operation);
  else
    ++left_out_;
}

std::vector<CudaRanges::Span> CudaRanges::project() {
  std::vector<Span> out;
  std::stable_sort(ranges_.begin(), ranges_.end(), [](const Range& a, const Range& b) {
    return std::tie(a.tid, a.begin, b.end) < std::tie(b.tid, b.begin, a.end);
  });
  std::stable_sort(operations_.begin(), operations_.end(),
                   [](const Operation& a, const Operation& b) {
                     return std::tie(a.tid, a.launched) < std::tie(b.tid, b.launched);
                   });
  std::vector<OpenRange> open;
  const auto close_those = [&](auto is_over) {
    const auto kept = std::stable_partition(open.begin(), open.end(),
                                            [&](const OpenRange& one) { return !is_over(one); });
    for (auto one = kept; one != open.end(); ++one) {
      for (const Span& span : one->spans) {
        if (out.size() < kSpansMax)
          out.push_back(span);
        else
          ++left_out_;
      }
    }
    open.erase(kept, open.end());
  };
  auto next = ranges_.begin();
  for (const Operation& operation : operations_) {
    const auto is_over = [&](const OpenRange& one) {
      return one.range->tid != operation.tid || one.range->end < operation.launched;
    };
    close_those(is_over);
    for (; next != ranges_.end() &&
           std::tie(next->tid, next->begin) <= std::tie(operation.tid, operation.launched);
         ++next) {
      if (next->tid != operation.tid || next->end < operation.launched) continue;
      if (open.size() < kOpenMax)
        open.push_back({&*next, static_cast<std::size_t>(next - ranges_.begin()), {}});
      else
        ++left_out_;
    }
    for (OpenRange& one : open)
      extend(one, operation);
  }
  close_those([](const OpenRange&) { return true; });
  ranges_.clear();
  operations_.clear();
  choose_lanes(out);
  return out;
}

/// Spans of two threads that launch into one stream may lap over each other.
void CudaRanges::choose_lanes(std::vector<Span>& spans) {
  std::stable_sort(spans.begin(), spans.end(), [](const Span& a, const Span& b) {
    return std::tie(a.stream, a.begin, b.end, a.order) <
           std::tie(b.stream, b.begin, a.end, b.order);
  });
  std::array<std::vector<BootTime>, kLanesMax> ends;  // of the spans around, by lane
  std::vector<Span> placed;
  for (std::size_t i = 0; i < spans.size(); ++i) {
    if (i == 0 || spans[i].stream != spans[i - 1].stream)
      for (auto& lane : ends)
        lane.clear();
    const auto has_room = [&](std::vector<BootTime>& lane) {
      while (!lane.empty() && lane.back() <= spans[i].begin)
        lane.pop_back();
      return lane.empty() || lane.back() >= spans[i].end;
    };
    const auto lane = std::find_if(ends.begin(), ends.end(), has_room);
    if (lane == ends.end()) {
      ++left_out_;
      continue;
    }
    lane->push_back(spans[i].end);
    spans[i].lane = static_cast<std::uint32_t>(lane - ends.begin());
    placed.push_back(spans[i]);
  }
  spans = std::move(placed);
}

}  // namespace kansoku::capture
