// SPDX-License-Identifier: Apache-2.0
#include "infer/change_point.h"

#include <gtest/gtest.h>

namespace kansoku::infer {
namespace {

TEST(ChangePoint, IsFoundWhereItIs) {
  std::vector<double> values(30, 10);
  values.insert(values.end(), 50, 12);
  const auto found = find_change(values, 20);
  ASSERT_TRUE(found);
  EXPECT_EQ(found->at, 30U);
  EXPECT_DOUBLE_EQ(found->ratio, 1.2);
  EXPECT_DOUBLE_EQ(found->separation, 1.0) << "each behind it is larger than each before it";
}

TEST(ChangePoint, OneOutlierMovesNothing) {
  std::vector<double> values(30, 10);
  values.insert(values.end(), 30, 12);
  values[5] = 1e9;
  const auto found = find_change(values, 20);
  ASSERT_TRUE(found);
  EXPECT_EQ(found->at, 30U);
  EXPECT_DOUBLE_EQ(found->ratio, 1.2);
  EXPECT_NEAR(found->separation, 1 - 1.0 / 30, 1e-9) << "30 of 900 pairs are reversed";
}

TEST(ChangePoint, WhatBecomesSmallerIsNone) {
  std::vector<double> values(30, 12);
  values.insert(values.end(), 30, 10);
  const auto found = find_change(values, 20);
  EXPECT_TRUE(!found || found->ratio <= 1);
}

TEST(ChangePoint, EqualValuesHaveNone) {
  const auto found = find_change(std::vector<double>(100, 7), 20);
  EXPECT_TRUE(!found || found->separation < 0.51);
}

TEST(ChangePoint, NeedsBothSides) {
  EXPECT_FALSE(find_change(std::vector<double>(39, 1), 20));
  EXPECT_FALSE(find_change({}, 20));
  EXPECT_FALSE(find_change(std::vector<double>(100, 1), 0));
}

TEST(ChangePoint, ANullBeforeItIsNoRatio) {
  EXPECT_DOUBLE_EQ(ratio_at({0, 0, 3, 3}, 2), 1);
  EXPECT_DOUBLE_EQ(ratio_at({2, 2, 3, 3}, 2), 1.5);
}

}  // namespace
}  // namespace kansoku::infer
