// SPDX-License-Identifier: Apache-2.0
#include "detect/table.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

namespace kansoku::detect {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

TEST(Table, KnownAndForeignColumns) {
  const auto table = read_table(
      "step,rank,pid,cpu_cores,data_ms,load_percent,loss\n"
      "0,1,7,1.5,2,50,-3\n1,1,7,1.6,4,60,-2\n",
      "t.csv");
  ASSERT_TRUE(table.has_value()) << table.error().what;
  ASSERT_EQ(table->columns.size(), 4U);
  EXPECT_EQ(table->columns[0].floor, 0.02);  // as in known_features()
  EXPECT_EQ(table->columns[1].unit, "s");
  EXPECT_DOUBLE_EQ(table->row(0)[1], 0.002);
  EXPECT_DOUBLE_EQ(table->columns[1].floor, 0.002 * 0.003);
  EXPECT_EQ(table->columns[2].scale, Scale::kLinear);
  EXPECT_DOUBLE_EQ(table->row(1)[2], 0.6);
  EXPECT_EQ(table->columns[3].scale, Scale::kLinear);  // it goes below zero
  EXPECT_THAT(table->times, ElementsAre(0, 1));
  EXPECT_THAT(table->ranks, ElementsAre(1, 1));
}

TEST(Table, OddCellsAreMissingOddColumnsAreDropped) {
  const auto table =
      read_table("rank,a,b,c\n0,1,x,\n0,inf,x,\n0,,x,\n0,nan,x,\n0,1e99,x,\n0,text,x,\n", "t.csv");
  ASSERT_TRUE(table.has_value());
  ASSERT_EQ(table->columns.size(), 1U);
  EXPECT_THAT(table->dropped, ElementsAre("b", "c"));
  EXPECT_EQ(table->row(0)[0], 1);
  for (std::size_t i = 1; i < 6; ++i)
    EXPECT_TRUE(std::isnan(table->row(i)[0])) << i;
  EXPECT_EQ(table->bad_cells, 9U);                           // six texts, inf, 1e99 and "text"
  EXPECT_THAT(table->times, ElementsAre(0, 1, 2, 3, 4, 5));  // counted by rank
}

TEST(Table, ConfigurationsAndJobsAreChosen) {
  const std::string text = "config,job,rank,a\nC0,x,0,1\nC1,x,0,2\nC1,y,0,3\n";
  EXPECT_THAT(read_table(text, "t").error().hint, HasSubstr("--config: C0, C1"));
  EXPECT_THAT(read_table(text, "t", {.config = "C1"}).error().hint, HasSubstr("--job: x, y"));
  const auto table = read_table(text, "t", {.config = "C1", .job = "y"});
  ASSERT_TRUE(table.has_value());
  EXPECT_THAT(table->values, ElementsAre(3));
  EXPECT_EQ(read_table(text, "t", {.config = "C2"}).error().code, Code::kNotFound);
}

TEST(Table, WhatCannotBeReadSaysWhere) {
  const auto error = [](std::string_view text, const TableOptions& options = {}) {
    const auto table = read_table(text, "t.csv", options);
    return table ? std::string("read") : table.error().what;
  };
  EXPECT_THAT(error(""), HasSubstr("it is empty"));
  EXPECT_THAT(error("a,b\n"), HasSubstr("no rows"));
  EXPECT_THAT(error("rank\n1\n"), HasSubstr("no column of values"));
  EXPECT_THAT(error("a,b\n1,2\n3\n"), HasSubstr("line 3 has 1 fields, the header 2"));
  EXPECT_THAT(error("rank,a\n-2,2\n"), HasSubstr("line 2: the rank"));
  EXPECT_THAT(error("rank,a\n1.5,2\n"), HasSubstr("line 2: the rank"));
  EXPECT_THAT(error("step,a\nx,2\n"), HasSubstr("line 2: the time"));
  EXPECT_THAT(error("a\nx\n"), HasSubstr("no column holds numbers"));
  EXPECT_THAT(error("a\n1\n2\n", {.rows_max = 1}), HasSubstr("limit of 1"));
  EXPECT_THAT(error("a,b\n1,2\n", {.columns_max = 1}), HasSubstr("limit is 1"));
  EXPECT_THAT(error("a\n1\n", {.columns = {"b"}}), HasSubstr("no column \"b\""));
}

TEST(Cube, GapsAreMissingAndTheLastRowOfATimeCounts) {
  const auto table = read_table("step,rank,a\n5,3,1\n4,3,2\n5,1,3\n5,3,9\n", "t");
  ASSERT_TRUE(table.has_value());
  const auto cube = make_cube(*table);
  ASSERT_TRUE(cube.has_value());
  EXPECT_THAT(cube->times, ElementsAre(4, 5));
  EXPECT_THAT(cube->ranks, ElementsAre(1, 3));
  EXPECT_TRUE(std::isnan(cube->at(0, 0, 0)));
  EXPECT_EQ(cube->at(0, 1, 0), 2);
  EXPECT_EQ(cube->at(1, 0, 0), 3);
  EXPECT_EQ(cube->at(1, 1, 0), 9);
}

TEST(Cube, RanksThatNeverMeetAreRefused) {
  std::string text = "time,rank,a\n";
  for (int i = 0; i < 100; ++i)
    text += std::to_string(i) + "," + std::to_string(i) + ",1\n";
  const auto table = read_table(text, "t");
  ASSERT_TRUE(table.has_value());
  EXPECT_EQ(make_cube(*table).error().code, Code::kLimit);
}

}  // namespace
}  // namespace kansoku::detect
