// SPDX-License-Identifier: Apache-2.0
#include "capture/host_reader.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdint>
#include <vector>

#include "sys/fault_price.h"

namespace kansoku::capture {
namespace {

TEST(HostReader, ReadsWhatIsAskedForOfWhoIsThere) {
  HostReader reader;
  const std::int32_t self = ::getpid();
  const std::vector<std::int32_t> pids{self, -1};
  const auto memory = reader.read(pids, boot_time(1), {.memory = true});
  ASSERT_EQ(memory.size(), 2U);
  EXPECT_GT(memory.at(self).resident_bytes.value_or(0), 1U << 20);
  EXPECT_TRUE(memory.at(self).memory_room.has_value());
  EXPECT_FALSE(memory.at(self).throttled_ns || memory.at(self).tcp);
  EXPECT_FALSE(memory.at(-1).resident_bytes.has_value());
  const auto connections = reader.read(pids, boot_time(2), {.connections = true});
  EXPECT_FALSE(connections.at(self).resident_bytes.has_value());
  ASSERT_TRUE(connections.at(self).tcp.has_value());
  EXPECT_EQ(connections.at(self).tcp->pid, self);
  EXPECT_FALSE(connections.at(-1).tcp.has_value());
}

TEST(HostReader, CountsTheMainThreadsFaults) {
  HostReader reader;
  const std::int32_t self = ::getpid();
  const std::vector<std::int32_t> pids{self, -1};
  const auto read = [&] { return reader.read(pids, boot_time(1), {.main_thread = true}); };
  const auto before = read();
  ASSERT_TRUE(before.at(self).main_thread.has_value());
  EXPECT_FALSE(before.at(-1).main_thread.has_value());
  EXPECT_FALSE(before.at(self).resident_bytes.has_value());
  ASSERT_TRUE(sys::page_fault_ns().has_value());  // touches 512 pages five times
  const auto after = read();
  EXPECT_GE(after.at(self).main_thread->minor_faults,
            before.at(self).main_thread->minor_faults + std::uint64_t{3 * 512});
  EXPECT_GE(after.at(self).main_thread->system_ns + after.at(self).main_thread->user_ns,
            before.at(self).main_thread->system_ns + before.at(self).main_thread->user_ns);
}

TEST(HostReader, LimitsAreKeptForTenReadings) {
  HostReader reader;
  const std::vector<std::int32_t> pids{::getpid()};
  const auto room = [&] {
    return reader.read(pids, boot_time(1), {.memory = true}).at(pids[0]).memory_room;
  };
  const auto first = room();
  for (int i = 1; i < 10; ++i)
    EXPECT_EQ(room(), first);
}

}  // namespace
}  // namespace kansoku::capture
