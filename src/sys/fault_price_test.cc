// SPDX-License-Identifier: Apache-2.0
#include "sys/fault_price.h"

#include <gtest/gtest.h>

namespace kansoku::sys {
namespace {

TEST(FaultPrice, IsOfTheOrderOfAMicrosecond) {
  const auto ns = page_fault_ns();
  ASSERT_TRUE(ns.has_value());
  EXPECT_GT(*ns, 20);       // no fault at all is faster
  EXPECT_LT(*ns, 200'000);  // under every hypervisor and sanitizer seen
}

}  // namespace
}  // namespace kansoku::sys
