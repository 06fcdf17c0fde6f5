// SPDX-License-Identifier: Apache-2.0
#include "common/isa.h"

#include <gtest/gtest.h>

namespace kansoku {
namespace {

TEST(IsaTest, EachHasANameThatLeadsBackToIt) {
  for (const Isa isa : {Isa::kV2, Isa::kV3, Isa::kV4})
    EXPECT_EQ(isa_from_name(isa_name(isa)), isa);
  EXPECT_EQ(isa_name(Isa::kV3), "x86-64-v3");
  EXPECT_FALSE(isa_from_name("x86-64-v5"));
  EXPECT_FALSE(isa_from_name(""));
}

}  // namespace
}  // namespace kansoku
