// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <vector>

#include "infer/run.h"

namespace kansoku::infer {

/// Calls of each thread by begin. Those of one thread follow each other or nest, so the time that
/// other threads take for theirs plays no part. Borrows a list that is sorted by begin.
template <class T>
class ByCaller {
 public:
  explicit ByCaller(const std::vector<T>& list) : list_(list) {
    for (std::size_t i = 0; i < list.size(); ++i)
      of_[list[i].caller].push_back(i);
  }

  /// Index of the last call of that thread that spans the time; kNone: none does.
  [[nodiscard]] std::size_t enclosing(std::uint32_t caller, const Span& span) const {
    const auto found = of_.find(caller);
    if (found == of_.end()) return kNone;
    auto at = std::upper_bound(
        found->second.begin(), found->second.end(), span.begin_ns,
        [&](std::int64_t time, std::size_t one) { return time < list_[one].span.begin_ns; });
    for (std::size_t i = 0; i < kNestedMax && at != found->second.begin(); ++i) {
      --at;
      if (list_[*at].span.end_ns >= span.end_ns) return *at;
    }
    return kNone;
  }

 private:
  static constexpr std::size_t kNestedMax = 64;  // calls that ended before, inside of one

  const std::vector<T>& list_;
  std::map<std::uint32_t, std::vector<std::size_t>> of_;
};

}  // namespace kansoku::infer
