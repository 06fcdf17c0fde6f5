// SPDX-License-Identifier: Apache-2.0
#include "simulate/placement/internal/place_set.h"

#include <bit>

#include "common/check.h"

namespace kansoku::simulate::placement::internal {

void PlaceSet::set(std::size_t place, bool member) {
  std::uint64_t& word = words_[place / 64];
  const std::uint64_t bit = std::uint64_t{1} << (place % 64);
  if (((word & bit) != 0) == member) return;
  word ^= bit;
  if (member)
    ++count_;
  else
    --count_;
}

std::size_t PlaceSet::member(std::size_t rank) const {
  CHECK(rank < count_);
  std::size_t at = 0;
  while (rank >= static_cast<std::size_t>(std::popcount(words_[at])))
    rank -= static_cast<std::size_t>(std::popcount(words_[at++]));
  std::uint64_t word = words_[at];
  for (; rank > 0; --rank)
    word &= word - 1;
  return at * 64 + static_cast<std::size_t>(std::countr_zero(word));
}

}  // namespace kansoku::simulate::placement::internal
