// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <compare>
#include <cstddef>
#include <cstdint>
#include <functional>

namespace kansoku {

/// A number that means one thing: ids of different tags do not convert into each other.
template <class Tag, class Rep = std::uint32_t>
struct Id {
  Rep raw{};
  friend constexpr auto operator<=>(Id, Id) = default;
};

}  // namespace kansoku

template <class Tag, class Rep>
struct std::hash<kansoku::Id<Tag, Rep>> {
  std::size_t operator()(kansoku::Id<Tag, Rep> id) const noexcept {
    return std::hash<Rep>{}(id.raw);
  }
};
