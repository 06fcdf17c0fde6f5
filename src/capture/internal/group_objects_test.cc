// SPDX-License-Identifier: Apache-2.0
#include "capture/internal/group_objects.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <array>
#include <cstring>
#include <span>
#include <utility>

namespace kansoku::capture {
namespace {

using Object = std::array<std::byte, 32>;

/// Its words are what lies behind the pointer to the functions.
Object object_of(std::array<std::uint64_t, 3> words) {
  Object out{};
  std::memcpy(out.data() + 8, words.data(), sizeof words);
  return out;
}

std::uint64_t pair_of(std::uint32_t rank, std::uint32_t size) {
  return std::uint64_t{size} << 32 | rank;
}

// As they lay in processes of PyTorch 1.13 and 2.15.
TEST(GroupPlace, IsBehindTheCountsOfOwnersInOneWordOrTwo) {
  EXPECT_EQ(group_place(object_of({2, 1, pair_of(2, 4)})), std::pair(2, 4));
  EXPECT_EQ(group_place(object_of({0x8000000100000004, pair_of(3, 4), 0})), std::pair(3, 4));
}

TEST(GroupPlace, OfOtherWordsIsNone) {
  EXPECT_FALSE(group_place(object_of({0, 1, pair_of(2, 4)}))) << "nobody owns it";
  EXPECT_FALSE(group_place(object_of({2, 1, pair_of(4, 4)}))) << "a rank beyond the size";
  EXPECT_FALSE(group_place(object_of({2, 1, pair_of(0, 0)})));
  EXPECT_FALSE(group_place(object_of({2, 1, pair_of(0, 1U << 21)})));
  EXPECT_FALSE(group_place(object_of({2, 1, pair_of(UINT32_MAX, 4)}))) << "a negative rank";
  EXPECT_FALSE(group_place(object_of({0x8000000100000000, pair_of(3, 4), 0})));
  EXPECT_FALSE(group_place(object_of({0x7f0123456780, 0x7f0123456790, 0}))) << "pointers";
  const Object cut = object_of({2, 1, pair_of(2, 4)});
  EXPECT_FALSE(group_place(std::span(cut).first(31)));
}

TEST(GroupObjects, OfAProcessWithoutPyTorchAreNone) {
  const sys::Procfs procfs;
  GroupObjects objects(procfs);
  EXPECT_TRUE(objects.of(::getpid(), ::getppid()).empty());
  EXPECT_TRUE(objects.of(4194300, 1).empty()) << "no such process";
}

}  // namespace
}  // namespace kansoku::capture
