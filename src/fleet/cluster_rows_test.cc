// SPDX-License-Identifier: Apache-2.0
#include "fleet/cluster_rows.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "common/rng.h"

namespace kansoku::fleet {
namespace {

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
using Scale = ClusterAxis::Scale;

const std::vector<ClusterAxis> kAxes{
    {Scale::kLog, 1e-3, 0.1}, {Scale::kLinear, 0, 0.05}, {}, {Scale::kLog, 1, 0.1}};

void add(ClusterRows& rows, int count, double second, RandomStream& random) {
  for (int i = 0; i < count; ++i)
    rows.add(std::vector{0.2 * (1 + 0.1 * random.uniform()), second, 5.0, 100 * random.uniform()},
             kAxes);
}

TEST(ClusterAxis, ValuesAndBack) {
  EXPECT_DOUBLE_EQ(kAxes[0].of(1 - 1e-3), 0);
  EXPECT_DOUBLE_EQ(kAxes[0].of(-5), std::log(1e-3) / 0.1);
  EXPECT_DOUBLE_EQ(kAxes[0].value_of(kAxes[0].of(0.25)), 0.25);
  EXPECT_DOUBLE_EQ(kAxes[1].of(0.5), 10);
  EXPECT_DOUBLE_EQ(kAxes[1].value_of(10), 0.5);
}

TEST(ClusterRows, TakesTheFeaturesThatAreThere) {
  RandomStream random(1, "rows");
  ClusterRows rows;
  add(rows, 29, kNan, random);
  EXPECT_TRUE(rows.empty());
  add(rows, 101, kNan, random);  // one more to choose by
  const std::string bytes = rows.encode(kAxes, 10'000);
  const auto part = decode_cluster_part(as_bytes(bytes), 4);
  ASSERT_TRUE(part.has_value()) << part.error().what;
  EXPECT_THAT(part->features, testing::ElementsAre(0, 3));
  EXPECT_EQ(part->rows.rows(), 100U);
  EXPECT_FLOAT_EQ(static_cast<float>(part->axes[0].floor), 1e-3F);
  EXPECT_EQ(decode_cluster_part(as_bytes(bytes), 3).error().code, Code::kCorrupt);
}

TEST(ClusterRows, ChoosesAnewWhenMostWindowsLackAFeature) {
  RandomStream random(1, "rows");
  ClusterRows rows;
  add(rows, 60, 0.5, random);
  rows.end_period(kAxes);
  add(rows, 60, kNan, random);
  EXPECT_TRUE(rows.empty());
  rows.end_period(kAxes);
  add(rows, 60, kNan, random);
  const std::string bytes = rows.encode(kAxes, 10'000);
  EXPECT_THAT(decode_cluster_part(as_bytes(bytes), 4)->features, testing::ElementsAre(0, 3));
}

TEST(ClusterRows, TakesAMoreTellingFeatureThatTheStartOfTheJobDidNotHave) {
  RandomStream random(1, "rows");
  ClusterRows rows;
  const auto features = [&] {
    return decode_cluster_part(as_bytes(rows.encode(kAxes, 10'000)), 4)->features;
  };
  add(rows, 60, kNan, random);
  EXPECT_THAT(features(), testing::ElementsAre(0, 3));
  rows.end_period(kAxes);
  add(rows, 60, 0.5, random);
  EXPECT_THAT(features(), testing::ElementsAre(0, 3)) << "not within a period";
  rows.end_period(kAxes);
  add(rows, 20, 0.5, random);
  EXPECT_THAT(features(), testing::ElementsAre(0, 1, 3));
}

TEST(ClusterRows, KeepsToItsRoomWithAllRows) {
  RandomStream random(1, "rows");
  ClusterRows rows;
  add(rows, 530, 0.5, random);
  std::size_t last = 0;
  for (const std::size_t room : {20U, 50U, 100U, 200U, 400U, 10'000U}) {
    const std::string bytes = rows.encode(kAxes, room);
    EXPECT_LE(bytes.size(), room);
    EXPECT_GE(bytes.size(), last);
    last = bytes.size();
    if (bytes.empty()) continue;
    EXPECT_EQ(decode_cluster_part(as_bytes(bytes), 4)->rows.rows(), 500U) << room;
  }
  EXPECT_GT(last, 300U);
  EXPECT_EQ(rows.encode(kAxes, 20), "");
}

TEST(ClusterPart, RefusesWhatIsCutOrMakesNoSense) {
  RandomStream random(1, "rows");
  ClusterRows rows;
  add(rows, 60, 0.5, random);
  const std::string whole = rows.encode(kAxes, 10'000);
  for (std::size_t length = 0; length < whole.size(); ++length)
    EXPECT_FALSE(decode_cluster_part(as_bytes(whole).first(length), 4).has_value()) << length;
  const auto with = [&](std::size_t at, char byte) {
    std::string changed = whole;
    changed[at] = byte;
    return decode_cluster_part(as_bytes(changed), 4).has_value();
  };
  EXPECT_FALSE(with(0, 17));                        // features
  EXPECT_FALSE(with(1, 4));                         // the first one's number
  EXPECT_FALSE(with(1, 1));                         // not ascending
  EXPECT_FALSE(with(2, 0));                         // scale
  EXPECT_FALSE(with(6, static_cast<char>(0xff)));   // floor below 0
  EXPECT_FALSE(with(10, static_cast<char>(0x7f)));  // unit
}

}  // namespace
}  // namespace kansoku::fleet
