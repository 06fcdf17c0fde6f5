// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace kansoku::simulate::placement::internal {

/// Scores of a fixed number of places, -1 = none, and the first place with the highest one: a
/// winner tree, one byte an entry. set() costs O(log n), fewer where a place was not the best
/// around it.
class ScoreTree {
 public:
  explicit ScoreTree(std::size_t places = 0);

  void set(std::size_t place, int score);
  /// Best score of all places; -1 if no place has a score.
  [[nodiscard]] int best_score() const { return best_[1]; }
  /// The first place with the best score.
  [[nodiscard]] std::size_t best_place() const;

 private:
  std::size_t leaves_{1};          // a power of two
  std::vector<std::int8_t> best_;  // [1] is the root, [leaves_ + i] place i
};

}  // namespace kansoku::simulate::placement::internal
