// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "infer/run.h"

namespace kansoku::infer {

/// The last of `list`, sorted by begin, of that thread that spans the time; kNone: none does.
template <class T>
[[nodiscard]] std::size_t enclosing(const std::vector<T>& list, std::uint32_t caller,
                                    const Span& span) {
  constexpr std::size_t kBack = 64;  // of other threads, in between
  auto at =
      std::upper_bound(list.begin(), list.end(), span.begin_ns,
                       [](std::int64_t time, const T& one) { return time < one.span.begin_ns; });
  for (std::size_t i = 0; i < kBack && at != list.begin(); ++i) {
    --at;
    if (at->caller == caller && at->span.end_ns >= span.end_ns)
      return static_cast<std::size_t>(at - list.begin());
  }
  return kNone;
}

}  // namespace kansoku::infer
