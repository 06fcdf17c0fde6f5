// SPDX-License-Identifier: Apache-2.0
#include "capture/python/internal/snapshot.h"

#include <algorithm>

namespace kansoku::capture::python {
namespace {

constexpr std::size_t kArenaBytesMax = std::size_t{8} << 20;
constexpr int kStepsMax = 64;
constexpr std::uint64_t kAddressEnd = std::uint64_t{1} << 47;

}  // namespace

void Snapshot::clear() {
  arena_.clear();
  queued_.clear();
  for (Spans& spans : spans_)
    spans.clear();
  longest_bytes_ = 0;
}

void Snapshot::queue(std::uint64_t address, std::size_t bytes, std::uint8_t copy) {
  if (bytes == 0 || bytes > kArenaBytesMax - arena_.size()) return;
  if (address < 4096 || address > kAddressEnd - bytes) return;
  queued_.push_back({.address = address, .bytes = bytes, .at = arena_.size(), .copy = copy});
  arena_.resize(arena_.size() + bytes);
  longest_bytes_ = std::max(longest_bytes_, bytes);
}

bool Snapshot::fetch() {
  if (queued_.empty()) return true;
  if (batched_) {
    read_queued(0, queued_.size());
  } else {
    for (std::size_t i = 0; i < queued_.size(); ++i)
      read_queued(i, i + 1);
  }
  const auto by_address = [](const Span& a, const Span& b) { return a.address < b.address; };
  bool got_any = false;
  for (std::size_t copy = 0; copy < spans_.size(); ++copy) {
    Spans& spans = spans_[copy];
    const auto old_count = static_cast<std::ptrdiff_t>(spans.size());
    for (const Span& span : queued_) {
      if (span.bytes > 0 && span.copy == copy) spans.push_back(span);
    }
    const auto middle = spans.begin() + old_count;
    got_any = got_any || middle != spans.end();
    std::sort(middle, spans.end(), by_address);
    std::inplace_merge(spans.begin(), middle, spans.end(), by_address);
  }
  queued_.clear();
  return got_any;
}

/// Reads queued_[first, last); an unreadable one fails the call, so halves are tried until the
/// culprits, marked by a size of 0, are alone.
bool Snapshot::read_queued(std::size_t first, std::size_t last) {
  ranges_.clear();
  for (std::size_t i = first; i < last; ++i) {
    const Span& span = queued_[i];
    ranges_.push_back({span.address, arena_.data() + span.at, span.bytes});
  }
  ++costs_.read_calls;
  costs_.read_ranges += last - first;
  if (memory_.read(ranges_)) return true;
  if (last - first == 1) {
    queued_[first].bytes = 0;
    return false;
  }
  const std::size_t middle = first + (last - first) / 2;
  const bool front = read_queued(first, middle);
  const bool back = read_queued(middle, last);
  return front && back;
}

const std::byte* Snapshot::find_in(const Spans& spans, std::uint64_t address,
                                   std::size_t bytes) const {
  auto after = std::upper_bound(spans.begin(), spans.end(), address,
                                [](std::uint64_t a, const Span& span) { return a < span.address; });
  // Spans may overlap: two frames on one page each bring its neighbourhood.
  for (int step = 0; step < kStepsMax && after != spans.begin(); ++step) {
    --after;
    const std::uint64_t skipped = address - after->address;
    if (skipped >= longest_bytes_) return nullptr;
    if (skipped <= after->bytes && bytes <= after->bytes - skipped) {
      return arena_.data() + after->at + skipped;
    }
  }
  return nullptr;
}

}  // namespace kansoku::capture::python
