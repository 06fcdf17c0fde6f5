// SPDX-License-Identifier: Apache-2.0
#include "stats/intervals.h"

#include <algorithm>

namespace kansoku::stats {

IntervalSet::IntervalSet(std::vector<Interval> sorted_disjoint)
    : items_(std::move(sorted_disjoint)), sums_ns_(items_.size() + 1) {
  for (std::size_t i = 0; i < items_.size(); ++i)
    sums_ns_[i + 1] = sums_ns_[i] + (items_[i].end_ns - items_[i].begin_ns);
}

IntervalSet IntervalSet::of(std::vector<Interval> intervals) {
  std::erase_if(intervals, [](const Interval& i) { return i.end_ns <= i.begin_ns; });
  std::sort(intervals.begin(), intervals.end(),
            [](const Interval& a, const Interval& b) { return a.begin_ns < b.begin_ns; });
  std::vector<Interval> merged;
  for (const Interval& next : intervals) {
    if (!merged.empty() && next.begin_ns <= merged.back().end_ns) {
      merged.back().end_ns = std::max(merged.back().end_ns, next.end_ns);
    } else {
      merged.push_back(next);
    }
  }
  return IntervalSet(std::move(merged));
}

IntervalSet IntervalSet::unite(const IntervalSet& other) const {
  std::vector<Interval> all(items_);
  all.insert(all.end(), other.items_.begin(), other.items_.end());
  return of(std::move(all));
}

IntervalSet IntervalSet::intersect(const IntervalSet& other) const {
  std::vector<Interval> out;
  std::size_t a = 0;
  std::size_t b = 0;
  while (a < items_.size() && b < other.items_.size()) {
    const std::int64_t begin = std::max(items_[a].begin_ns, other.items_[b].begin_ns);
    const std::int64_t end = std::min(items_[a].end_ns, other.items_[b].end_ns);
    if (begin < end) out.push_back({begin, end});
    if (items_[a].end_ns < other.items_[b].end_ns) {
      ++a;
    } else {
      ++b;
    }
  }
  return IntervalSet(std::move(out));
}

IntervalSet IntervalSet::subtract(const IntervalSet& other) const {
  std::vector<Interval> out;
  std::size_t b = 0;
  for (const Interval& whole : items_) {
    std::int64_t from = whole.begin_ns;
    while (b < other.items_.size() && other.items_[b].end_ns <= from)
      ++b;
    for (std::size_t k = b; k < other.items_.size(); ++k) {
      if (other.items_[k].begin_ns >= whole.end_ns) break;
      if (other.items_[k].begin_ns > from) out.push_back({from, other.items_[k].begin_ns});
      from = std::max(from, other.items_[k].end_ns);
      b = k;  // may still reach into the next interval of this set
    }
    if (from < whole.end_ns) out.push_back({from, whole.end_ns});
  }
  return IntervalSet(std::move(out));
}

std::int64_t IntervalSet::before_ns(std::int64_t time_ns) const {
  const auto after = std::partition_point(items_.begin(), items_.end(),
                                          [&](const Interval& i) { return i.begin_ns < time_ns; });
  const auto count = static_cast<std::size_t>(after - items_.begin());
  if (count == 0) return 0;
  const Interval& last = items_[count - 1];
  return sums_ns_[count - 1] + std::min(last.end_ns, time_ns) - last.begin_ns;
}

std::int64_t IntervalSet::measure_ns(Interval window) const {
  if (window.end_ns <= window.begin_ns) return 0;
  return before_ns(window.end_ns) - before_ns(window.begin_ns);
}

IntervalSet IntervalSet::within(Interval window) const {
  std::vector<Interval> parts;
  auto at = std::partition_point(items_.begin(), items_.end(),
                                 [&](const Interval& i) { return i.end_ns <= window.begin_ns; });
  for (; at != items_.end() && at->begin_ns < window.end_ns; ++at) {
    const Interval part{std::max(at->begin_ns, window.begin_ns),
                        std::min(at->end_ns, window.end_ns)};
    if (part.begin_ns < part.end_ns) parts.push_back(part);
  }
  return IntervalSet(std::move(parts));
}

bool IntervalSet::contains(std::int64_t time_ns) const {
  const auto after = std::partition_point(items_.begin(), items_.end(),
                                          [&](const Interval& i) { return i.begin_ns <= time_ns; });
  return after != items_.begin() && time_ns < (after - 1)->end_ns;
}

}  // namespace kansoku::stats
