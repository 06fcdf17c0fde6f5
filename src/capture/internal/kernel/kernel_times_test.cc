// SPDX-License-Identifier: Apache-2.0
#include "capture/internal/kernel/kernel_times.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <array>
#include <map>
#include <string>

#include "capture/bpf/work_for_test.h"
#include "common/bytes.h"
#include "trace/reader.h"

namespace kansoku::capture {
namespace {

using ::testing::Contains;
using ::testing::Gt;
using ::testing::Key;
using ::testing::Not;
using ::testing::Pair;

constexpr BootTime kTraceBegin = boot_time(1'000'000'000), kNextPoll = boot_time(2'000'000'000);
constexpr Nanos kWorkTime = std::chrono::milliseconds{200};

/// Contents of a trace after this thread, as the main thread of a rank, has done `work` for
/// kWorkTime: the last value of each counter, in ns.
template <typename Work>
std::map<std::string, double> counters_of(const Work& work) {
  MemorySink sink;
  auto writer = std::move(trace::Writer::create(sink, kTraceBegin)).value();
  KernelTimes times(*writer, {});
  times.begin_trace(kTraceBegin);
  Processes processes;
  Observed& self = processes[::getpid()];
  self.facts.pid = ::getpid();
  self.place.role = Role::kRank;
  times.poll(processes, kTraceBegin);
  bpf::spend(kWorkTime, work);
  times.poll(processes, kNextPoll);
  times.end_trace(kNextPoll);
  Losses losses;
  times.add_losses(losses);
  std::map<std::string, double> out;
  for (const Losses::Total& one : losses.all())
    if (one.total > 0) out[std::string(one.stat->name)] = static_cast<double>(one.total);
  EXPECT_TRUE(writer->flush().has_value());
  const auto read = trace::read_trace(as_bytes(sink.data()));
  EXPECT_TRUE(read.has_value());
  for (std::size_t i = 0; i < read->counters.size(); ++i) {
    const trace::Track& track = read->tracks[read->counters.track[i].raw];
    out[std::string(read->str(track.name))] = read->counters.value[i];
  }
  return out;
}

class KernelTimesTest : public ::testing::Test {
 protected:
  void SetUp() override {
    if (::gettid() != ::getpid()) GTEST_SKIP() << "needs the main thread";
#ifdef __SANITIZE_THREAD__
    GTEST_SKIP() << "the thread sanitizer takes most of the time itself";
#endif
    if (auto made = bpf::ThreadSampler::create(); !made)
      GTEST_SKIP() << "needs root and bpf: " << made.error().what;
  }
};

TEST_F(KernelTimesTest, ComputingIsUserCode) {
  volatile double value = 1;
  const auto counters = counters_of([&] {
    for (int i = 0; i < 10'000; ++i)
      value = value * 1.0000001;
  });
  EXPECT_THAT(counters, Contains(Pair("time in user code", Gt(0.7 * kWorkTime.count()))));
  const auto faults = counters.find("time in page faults");
  EXPECT_TRUE(faults == counters.end() || faults->second < 0.1 * kWorkTime.count());
  EXPECT_THAT(counters, Not(Contains(Key("capture_without_kernel_times"))));
}

TEST_F(KernelTimesTest, TouchingMemoryIsPageFaultsAndGivingItBackACall) {
  const auto counters = counters_of(bpf::touch_memory);
  EXPECT_THAT(counters, Contains(Pair("time in page faults", Gt(0.3 * kWorkTime.count()))));
  EXPECT_THAT(counters, Contains(Key("time in call munmap")));
  EXPECT_THAT(counters, Contains(Pair("page faults in memory mapped and dropped", Gt(10'000))));
  EXPECT_THAT(counters, Not(Contains(Key("page faults in the heap"))));
}

TEST_F(KernelTimesTest, FaultsInMemoryThatStaysAreInAMapping) {
  constexpr std::size_t kBytes = std::size_t{256} << 20, kPageBytes = 4096;
  void* const memory =
      ::mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  ASSERT_NE(memory, MAP_FAILED);
  ::madvise(memory, kBytes, MADV_NOHUGEPAGE);
  const auto counters = counters_of([&] {
    for (std::size_t at = 0; at < kBytes; at += kPageBytes)
      static_cast<volatile char*>(memory)[at] = 1;
  });
  ::munmap(memory, kBytes);
  EXPECT_THAT(counters, Contains(Pair("page faults in mapped memory", Gt(60'000))));
  EXPECT_THAT(counters, Not(Contains(Key("page faults in memory mapped and dropped"))));
}

// Between two windows, and while it is switched off, nothing is sampled.
TEST_F(KernelTimesTest, EachWindowBeginsAnew) {
  MemorySink sink;
  auto writer = std::move(trace::Writer::create(sink, kTraceBegin)).value();
  KernelTimes times(*writer, {});
  Processes processes;
  Observed& self = processes[::getpid()];
  self.facts.pid = ::getpid();
  self.place.role = Role::kRank;
  EXPECT_EQ(times.due(), BootTime::max());
  for (const bool is_interrupted : {false, false, true}) {
    times.begin_trace(kTraceBegin);
    EXPECT_EQ(times.due(), kTraceBegin);
    times.poll(processes, kTraceBegin);
    if (is_interrupted) {
      times.set_enabled(false);
      EXPECT_EQ(times.due(), BootTime::max());
      bpf::spend(kWorkTime, bpf::touch_memory);
      times.set_enabled(true);
      times.poll(processes, kTraceBegin);
    }
    bpf::spend(kWorkTime, bpf::touch_memory);
    times.poll(processes, kNextPoll);
    times.end_trace(kNextPoll);
    bpf::spend(kWorkTime, bpf::touch_memory);
  }
  ASSERT_TRUE(writer->flush().has_value());
  const auto read = trace::read_trace(as_bytes(sink.data()));
  ASSERT_TRUE(read.has_value());
  std::size_t faults = 0;
  for (std::size_t i = 0; i < read->counters.size(); ++i) {
    const trace::Track& track = read->tracks[read->counters.track[i].raw];
    if (read->str(track.name) != "time in page faults") continue;
    ++faults;
    EXPECT_LT(read->counters.value[i], 1.5 * kWorkTime.count());
  }
  EXPECT_EQ(faults, 3U);
}

TEST_F(KernelTimesTest, ACallIsNamed) {
  const auto counters = counters_of([] {
    std::array<char, 65536> buffer{};
    static const int zeros = ::open("/dev/zero", O_RDONLY | O_CLOEXEC);
    for (int i = 0; i < 20; ++i)
      ASSERT_EQ(::read(zeros, buffer.data(), buffer.size()), 65536);
  });
  EXPECT_THAT(counters, Contains(Pair("time in call read", Gt(0.5 * kWorkTime.count()))));
}

}  // namespace
}  // namespace kansoku::capture
