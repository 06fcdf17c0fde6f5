// SPDX-License-Identifier: Apache-2.0
#include "capture/internal/kernel/fault_places.h"

#include <gtest/gtest.h>

#include <vector>

namespace kansoku::capture {
namespace {

std::vector<sys::Mapping> mappings() {
  return sys::parse_maps(
      "400000-401000 r-xp 00000000 08:01 5 /bin/program\n"
      "1000000-1200000 rw-p 00000000 00:00 0 [heap]\n"
      "7f0000000000-7f0000100000 rw-p 00000000 00:00 0 \n"
      "7f0000200000-7f0000300000 r--p 00000000 08:01 9 /data/tokens.bin\n"
      "7f0000400000-7f0000500000 rw-p 00000000 00:00 0 [anon:pool]\n"
      "7ff000000000-7ff000100000 rw-p 00000000 00:00 0 [stack]\n");
}

TEST(FaultPlace, IsTheMappingsKind) {
  const auto all = mappings();
  EXPECT_EQ(fault_place(0x400800, all), FaultPlace::kFile);
  EXPECT_EQ(fault_place(0x1000000, all), FaultPlace::kHeap);
  EXPECT_EQ(fault_place(0x7f0000000fff, all), FaultPlace::kMapped);
  EXPECT_EQ(fault_place(0x7f0000200000, all), FaultPlace::kFile);
  EXPECT_EQ(fault_place(0x7f0000400000, all), FaultPlace::kMapped);
  EXPECT_EQ(fault_place(0x7ff0000fffff, all), FaultPlace::kStack);
}

TEST(FaultPlace, BehindTheHeapIsWhatItGaveBack) {
  const auto all = mappings();
  EXPECT_EQ(fault_place(0x1200000, all), FaultPlace::kHeap);
  EXPECT_EQ(fault_place(0x5000000, all), FaultPlace::kHeap);
  EXPECT_EQ(fault_place(0x7e0000000000, all), FaultPlace::kDropped) << "too far away";
}

TEST(FaultPlace, NoMappingIsOneThatWasDropped) {
  const auto all = mappings();
  EXPECT_EQ(fault_place(0x7f0000100000, all), FaultPlace::kDropped);
  EXPECT_EQ(fault_place(0x1000, all), FaultPlace::kDropped);
  EXPECT_EQ(fault_place(0x1000, {}), FaultPlace::kDropped);
}

TEST(FaultPlace, HasANameEach) {
  for (std::size_t i = 0; i < kFaultPlaceCount; ++i)
    EXPECT_TRUE(fault_place_name(static_cast<FaultPlace>(i)).starts_with("page faults "));
}

}  // namespace
}  // namespace kansoku::capture
