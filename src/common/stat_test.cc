// SPDX-License-Identifier: Apache-2.0
#include "common/stat.h"

#include <gtest/gtest.h>

namespace kansoku {
namespace {

STAT(stat_test_counter, kDataLoss, kImport, "what to do");

TEST(Stat, DeclaresACounterUnderItsName) {
  EXPECT_EQ(stat_test_counter.name, "stat_test_counter");
  EXPECT_EQ(stat_test_counter.severity, Severity::kDataLoss);
  EXPECT_EQ(stat_test_counter.origin, Origin::kImport);
  EXPECT_EQ(stat_test_counter.advice, "what to do");
}

TEST(Severity, HasANameThatGivesItBack) {
  EXPECT_EQ(severity_name(Severity::kInfo), "info");
  EXPECT_EQ(severity_name(Severity::kError), "error");
  for (const Severity severity :
       {Severity::kInfo, Severity::kNotice, Severity::kDataLoss, Severity::kError}) {
    EXPECT_EQ(severity_from_name(severity_name(severity)), severity);
  }
}

TEST(Severity, IsDataLossIfNobodyKnowsTheName) {
  for (const char* name : {"", "Info", "warning", "data_loss "})
    EXPECT_EQ(severity_from_name(name), Severity::kDataLoss) << name;
}

TEST(Severity, IsOrdered) {
  EXPECT_LT(Severity::kInfo, Severity::kNotice);
  EXPECT_LT(Severity::kNotice, Severity::kDataLoss);
  EXPECT_LT(Severity::kDataLoss, Severity::kError);
}

}  // namespace
}  // namespace kansoku
