// SPDX-License-Identifier: Apache-2.0
// Built with -O3: these loops are where a summary's time goes.
#include "stats/internal/neighbours.h"

#include <limits>

namespace kansoku::stats::internal {
namespace {

constexpr float kFarthest = std::numeric_limits<float>::max();
constexpr float kNoCost = std::numeric_limits<float>::infinity();

/// Puts a slot at its place among the cheapest so far.
void insert(std::size_t slot, float cost, Neighbours& best) {
  if (best.count < kNeighbours) ++best.count;
  std::size_t at = best.count - 1;
  for (; at > 0 && cost < best.costs[at - 1]; --at) {
    best.costs[at] = best.costs[at - 1];
    best.slots[at] = best.slots[at - 1];
  }
  best.costs[at] = cost;
  best.slots[at] = slot;
}

}  // namespace

Neighbours cheapest_unions(const Points& points, const float* query, std::size_t self) {
  Neighbours best;
  const float own = points.inverse_rows[self];
  for (std::size_t begin = 0; begin < points.slots; begin += kSlotsPerBlock) {
    float squares[kSlotsPerBlock] = {};
    for (std::size_t j = 0; j < points.dimensions; ++j) {
      const float* const values = points.values + j * points.slots + begin;
      const float at = query[j];
      for (std::size_t i = 0; i < kSlotsPerBlock; ++i) {
        const float offset = values[i] - at;
        squares[i] += offset * offset;
      }
    }
    float costs[kSlotsPerBlock];
    float least = kNoCost;
    for (std::size_t i = 0; i < kSlotsPerBlock; ++i) {
      const float inverse = points.inverse_rows[begin + i];
      const float cost = squares[i] / (inverse + own);
      const float finite = cost < kFarthest ? cost : kFarthest;
      // Anything divided by infinity would be the cheapest of all.
      costs[i] = inverse > 1 || begin + i == self ? kNoCost : finite;
      least = costs[i] < least ? costs[i] : least;
    }
    const auto bound = [&] {
      return best.count < kNeighbours ? kNoCost : best.costs[kNeighbours - 1];
    };
    if (!(least < bound())) continue;
    for (std::size_t i = 0; i < kSlotsPerBlock; ++i) {
      if (costs[i] < bound()) insert(begin + i, costs[i], best);
    }
  }
  return best;
}

std::size_t lowest(const float* values, std::size_t count) {
  constexpr std::size_t kLanes = 16;
  float least[kLanes];
  for (float& lane : least)
    lane = values[0];
  std::size_t i = 0;
  for (; i + kLanes <= count; i += kLanes) {
    for (std::size_t lane = 0; lane < kLanes; ++lane)
      least[lane] = values[i + lane] < least[lane] ? values[i + lane] : least[lane];
  }
  float lowest = least[0];
  for (const float lane : least)
    lowest = lane < lowest ? lane : lowest;
  for (; i < count; ++i)
    lowest = values[i] < lowest ? values[i] : lowest;
  for (std::size_t at = 0; at < count; ++at) {
    if (values[at] == lowest) return at;
  }
  return 0;
}

}  // namespace kansoku::stats::internal
