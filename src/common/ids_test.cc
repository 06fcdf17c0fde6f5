// SPDX-License-Identifier: Apache-2.0
// Operations of ids and times; forbidden ones are in tests/must_not_compile.
#include "common/ids.h"

#include <gtest/gtest.h>

#include <type_traits>
#include <unordered_set>

#include "common/time.h"

namespace kansoku {
namespace {

using StreamId = Id<struct StreamTag>;
using KernelId = Id<struct KernelTag>;
using WideId = Id<struct WideTag, std::uint64_t>;

static_assert(sizeof(StreamId) == 4 && sizeof(WideId) == 8);
static_assert(std::is_trivially_copyable_v<StreamId>);
static_assert(!std::is_convertible_v<StreamId, KernelId>);
static_assert(!std::is_convertible_v<StreamId, std::uint32_t>);
static_assert(!std::is_convertible_v<std::uint32_t, StreamId>);
static_assert(!std::is_convertible_v<std::int64_t, BootTime>);
static_assert(!std::is_convertible_v<BootTime, std::chrono::steady_clock::time_point>);

TEST(Id, ComparesByItsNumber) {
  EXPECT_EQ(StreamId{}, StreamId{0});
  EXPECT_LT(StreamId{1}, StreamId{2});
  EXPECT_NE(WideId{1ULL << 40}, WideId{0});
}

TEST(Id, IsAKey) {
  const std::unordered_set<StreamId> ids{StreamId{1}, StreamId{2}, StreamId{1}};
  EXPECT_EQ(ids.size(), 2U);
}

TEST(BootTime, CountsNanoseconds) {
  constexpr BootTime kTime = boot_time(5);
  static_assert((kTime + Nanos{7}).time_since_epoch().count() == 12);
  static_assert(boot_time(-3) < boot_time(0));
  EXPECT_EQ(boot_time(12) - kTime, Nanos{7});
}

TEST(ManualClock, MovesOnlyWhenTold) {
  ManualClock clock;
  EXPECT_EQ(clock.now(), BootTime{});
  clock.advance(Nanos{6});
  clock.advance(Nanos{1});
  const Clock& seen = clock;
  EXPECT_EQ(seen.now(), boot_time(7));
  EXPECT_EQ(seen.now(), boot_time(7));
}

}  // namespace
}  // namespace kansoku
