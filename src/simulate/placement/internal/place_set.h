// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace kansoku::simulate::placement::internal {

/// A set of places as bits, with the number of its members.
class PlaceSet {
 public:
  explicit PlaceSet(std::size_t places = 0) : words_((places + 63) / 64) {}

  void set(std::size_t place, bool member);
  [[nodiscard]] std::size_t count() const { return count_; }
  /// The member with `rank` members before it; rank < count().
  [[nodiscard]] std::size_t member(std::size_t rank) const;

 private:
  std::vector<std::uint64_t> words_;
  std::size_t count_{0};
};

}  // namespace kansoku::simulate::placement::internal
