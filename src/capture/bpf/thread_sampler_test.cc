// SPDX-License-Identifier: Apache-2.0
#include "capture/bpf/thread_sampler.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include "capture/bpf/work_for_test.h"
#include "wire/samples.h"

namespace kansoku::capture::bpf {
namespace {

constexpr Nanos kEach = std::chrono::milliseconds{300};

struct Sampled {
  std::uint64_t user{0}, kernel{0}, unknown{0};
};
Sampled sampled(ThreadSampler& sampler, std::int32_t tid) {
  Sampled out;
  const auto counts = sampler.read();
  EXPECT_TRUE(counts.has_value());
  for (const ThreadSampler::Count& count : *counts) {
    if (count.tid != tid) continue;
    (count.stack == WIRE_IN_USER ? out.user
     : count.stack < 0           ? out.unknown
                                 : out.kernel) += count.samples;
    EXPECT_EQ(sampler.frames(count.stack).empty(), count.stack < 0);
  }
  return out;
}

TEST(ThreadSampler, CountsUserAndKernelTimeOfAThread) {
  auto sampler = ThreadSampler::create();
  if (!sampler) GTEST_SKIP() << "needs root and bpf: " << sampler.error().what;
  const std::int32_t tid = ::gettid();
  spend(kEach, [] {});  // nobody watches
  ASSERT_TRUE((*sampler)->watch(tid).has_value());
  ASSERT_TRUE((*sampler)->watch(tid).has_value());  // once
  volatile double value = 1;
  spend(kEach, [&] {
    for (int i = 0; i < 10'000; ++i)
      value = value * 1.0000001;
  });
  const Sampled computed = sampled(**sampler, tid);
  const auto expected =
      static_cast<double>(kEach.count()) / static_cast<double>(ThreadSampler::kPeriod.count());
  EXPECT_NEAR(static_cast<double>(computed.user + computed.kernel), expected, 0.15 * expected);
  EXPECT_GT(computed.user, 4 * computed.kernel);

  spend(kEach, touch_memory);
  const Sampled faulted = sampled(**sampler, tid);
  EXPECT_GT(static_cast<double>(faulted.kernel - computed.kernel), 0.5 * expected);
  EXPECT_EQ((*sampler)->lost(), 0U);

  const auto faults = (*sampler)->take_faults();
  ASSERT_TRUE(faults.has_value());
  EXPECT_EQ((*sampler)->faults_lost(), 0U);
  ASSERT_FALSE(faults->empty());
  for (const ThreadSampler::Fault& fault : *faults) {
    EXPECT_EQ(fault.tid, tid);
    EXPECT_NE(fault.address, 0U);
  }
  EXPECT_TRUE((*sampler)->take_faults()->empty());

  (*sampler)->forget(tid);
  const Sampled before = sampled(**sampler, tid);
  spend(kEach / 10, [] {});
  const Sampled after = sampled(**sampler, tid);
  EXPECT_EQ(before.user + before.kernel, after.user + after.kernel);
}

TEST(ThreadSampler, AThreadThatHasEndedIsNotFound) {
  auto sampler = ThreadSampler::create();
  if (!sampler) GTEST_SKIP() << "needs root and bpf: " << sampler.error().what;
  const auto watched = (*sampler)->watch(0x7ffffffe);
  ASSERT_FALSE(watched.has_value());
  EXPECT_EQ(watched.error().code, Code::kNotFound);
  EXPECT_TRUE((*sampler)->frames(-1).empty());
  EXPECT_TRUE((*sampler)->frames(1'000'000).empty());
}

}  // namespace
}  // namespace kansoku::capture::bpf
