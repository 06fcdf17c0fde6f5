// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <initializer_list>
#include <string_view>
#include <utility>

#include "capture/outside/call.h"

namespace kansoku::capture::outside {

inline BootTime at_ns(std::int64_t ns) {
  return boot_time(ns);
}

/// A call of `function` with these values; times in ns.
inline Call call_for_test(std::string_view function,
                          std::initializer_list<std::pair<Key, std::uint64_t>> values = {},
                          std::int64_t begin = 0, std::string_view name = {}) {
  Call out{.entry = &entry_of(function),
           .per_thread = is_per_thread(function),
           .tid = 1,
           .begin = at_ns(begin)};
  out.name = name;
  for (const auto& [key, value] : values)
    out.set(key, value);
  return out;
}

}  // namespace kansoku::capture::outside
