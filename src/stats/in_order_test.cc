// SPDX-License-Identifier: Apache-2.0
#include "stats/internal/in_order.h"

#include <gtest/gtest.h>

#include <vector>

namespace kansoku::stats::internal {
namespace {

TEST(InOrder, MergesEachChunkOnceInOrder) {
  for (const std::size_t chunks : {0U, 1U, 2U, 57U}) {
    for (const std::size_t workers : {1U, 2U, 5U, 64U}) {
      std::vector<std::size_t> at(workers), merged;
      in_order(
          chunks, workers, [&](std::size_t worker, std::size_t chunk) { at[worker] = chunk; },
          [&](std::size_t worker) { merged.push_back(at[worker]); });
      ASSERT_EQ(merged.size(), chunks);
      for (std::size_t i = 0; i < chunks; ++i)
        EXPECT_EQ(merged[i], i) << chunks << ' ' << workers;
    }
  }
}

}  // namespace
}  // namespace kansoku::stats::internal
