// SPDX-License-Identifier: Apache-2.0
#include "detect/internal/words.h"

#include <gtest/gtest.h>

#include <vector>

namespace kansoku::detect::words {
namespace {

TEST(Words, RanksOrWhoStandsInForThem) {
  EXPECT_EQ(ranks_text({}, "all ranks"), "all ranks");
  EXPECT_EQ(ranks_text(std::vector<std::int32_t>{2}, ""), "rank 2");
  EXPECT_EQ(ranks_text(std::vector<std::int32_t>{1, 3}, ""), "ranks 1, 3");
}

TEST(Words, ChangesAreTheFirstThreeThatMatter) {
  const auto row = [](const char* feature, double share) {
    return trace::Evidence{feature, "s", "tcp", 0.001, 0.002, share};
  };
  const std::vector<trace::Evidence> rows{row("tcp_rtt", 0.01), row("cpu_wait", 0.5),
                                          row("gpu_busy", 0.2), row("step_mean", 0.2)};
  EXPECT_EQ(changes_text(rows, Names::kSpoken),
            ": TCP rtt 1 ms -> 2 ms, CPU wait 1 ms -> 2 ms, GPU busy 1 ms -> 2 ms")
      << "the first one whatever its share";
  EXPECT_EQ(changes_text(rows, Names::kAsWritten).substr(0, 10), ": tcp_rtt ");
  const std::vector<trace::Evidence> slight{row("step_mean", 0.9), row("tcp_rtt", 0.04)};
  EXPECT_EQ(changes_text(slight, Names::kSpoken), ": step mean 1 ms -> 2 ms");
  EXPECT_EQ(changes_text({}, Names::kSpoken), "");
}

}  // namespace
}  // namespace kansoku::detect::words
