// SPDX-License-Identifier: Apache-2.0
#include "simulate/placement/internal/score_tree.h"

#include <algorithm>
#include <bit>

namespace kansoku::simulate::placement::internal {

ScoreTree::ScoreTree(std::size_t places)
    : leaves_(std::bit_ceil(std::max<std::size_t>(places, 1))), best_(2 * leaves_, -1) {}

void ScoreTree::set(std::size_t place, int score) {
  std::size_t at = leaves_ + place;
  auto value = static_cast<std::int8_t>(score);
  if (best_[at] == value) return;
  best_[at] = value;
  while (at > 1) {
    value = std::max(best_[at], best_[at ^ 1]);
    at /= 2;
    if (best_[at] == value) return;
    best_[at] = value;
  }
}

std::size_t ScoreTree::best_place() const {
  std::size_t at = 1;
  while (at < leaves_) {
    at *= 2;
    if (best_[at] != best_[1]) ++at;
  }
  return at - leaves_;
}

}  // namespace kansoku::simulate::placement::internal
