// SPDX-License-Identifier: Apache-2.0
#include "capture/bpf/engine.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <map>

#include "capture/bpf/calls_for_test.h"
#include "capture/bpf/python_str_for_test.h"
#include "capture/bpf/sites.h"
#include "sys/elf.h"

extern "C" long metered_call(long value);
asm(".text\n.globl metered_call\n.type metered_call, @function\nmetered_call:\npush %rbx\n"
    "lea 1(%rdi), %rax\npop %rbx\nret\n.size metered_call, . - metered_call\n");

// As PyTorch calls an operator for Python: the arguments are a tuple.
extern "C" void metered_operator(const void* operators, const void* name, const void* arguments);
asm(".text\n.globl metered_operator\n.type metered_operator, @function\nmetered_operator:\n"
    "push %rbx\npop %rbx\nret\n.size metered_operator, . - metered_operator\n");

namespace kansoku::capture::bpf {
namespace {

std::uint64_t target_offset(const std::string& name = "metered_call") {
  auto file = sys::ElfFile::open("/proc/self/exe");
  EXPECT_TRUE(file.has_value());
  const sys::Symbol* symbol = (*file)->find_symbol(name);
  EXPECT_NE(symbol, nullptr);
  return *(*file)->file_offset(pick_site(**file, *symbol, {true, true}).address);
}

struct Seen {
  std::uint64_t count{0}, sum_ns{0}, bytes{0}, entries{0}, in_buckets{0}, dropped{0};
};

std::map<std::pair<std::uint32_t, int>, Seen> totals_of(Engine& engine, std::int32_t pid) {
  std::map<std::pair<std::uint32_t, int>, Seen> out;
  const auto read = engine.read_totals([&](const ProbeTotal& total) {
    if (total.tgid != static_cast<std::uint32_t>(pid)) return true;
    Seen seen{total.total->count,  total.total->sum_ns, total.total->bytes, total.total->entries, 0,
              total.total->dropped};
    for (const std::uint32_t count : total.total->buckets)
      seen.in_buckets += count;
    out[{total.probe, total.kind}] = seen;
    return true;
  });
  EXPECT_TRUE(read.has_value()) << read.error().what;
  return out;
}

class TotalsModes : public ::testing::TestWithParam<AttachMode> {
 protected:
  void SetUp() override {
    engine_ = engine_for_test(GetParam());
    if (!engine_) GTEST_SKIP() << "needs root and bpf";
  }
  void describe(std::uint32_t index, const wire_probe& probe) {
    const auto described = engine_->describe_probe(index, probe);
    ASSERT_TRUE(described.has_value()) << described.error().what;
  }
  Result<Engine::Handle> attach(std::uint64_t cookie) {
    const UprobeSpec spec{target_offset(), 0, cookie};
    return engine_->attach_uprobes("/proc/self/exe", {&spec, 1}, true);
  }
  std::unique_ptr<Engine> engine_;
};

TEST_P(TotalsModes, CountsEveryCallWithItsBytes) {
  wire_probe probe = probe_for_test(WIRE_SINK_TOTALS, WIRE_PROBE_STEPS);
  add_capture_for_test(probe, 0);
  add_capture_for_test(probe, 0);
  probe.factors = 1;
  probe.type = 2;
  constexpr std::array<std::uint8_t, 10> kTypeBytes{1, 1, 4, 4, 8, 8, 2, 4, 8, 2};
  std::copy(kTypeBytes.begin(), kTypeBytes.end(), std::begin(probe.sizes));
  describe(7, probe);
  const auto attached = attach(7);
  ASSERT_TRUE(attached.has_value()) << attached.error().what;
  constexpr std::uint64_t kCalls = 200;
  std::uint64_t bytes = 0;
  for (std::uint64_t i = 0; i < kCalls; ++i) {
    const std::uint64_t type = i % kTypeBytes.size();
    ASSERT_EQ(metered_call(static_cast<long>(type)), static_cast<long>(type) + 1);
    bytes += type * kTypeBytes.at(type);
  }
  auto totals = totals_of(*engine_, ::getpid());
  const Seen calls = totals[{7, WIRE_TOTAL_CALL}];
  EXPECT_EQ(calls.count, kCalls);
  EXPECT_EQ(calls.entries, kCalls);
  EXPECT_EQ(calls.in_buckets, kCalls);
  EXPECT_EQ(calls.bytes, bytes);
  EXPECT_GT(calls.sum_ns, 0U);
  const Seen intervals = totals[{7, WIRE_TOTAL_INTERVAL}];
  const Seen gaps = totals[{7, WIRE_TOTAL_GAP}];
  EXPECT_EQ(intervals.count, kCalls - 1);
  EXPECT_EQ(gaps.count, kCalls - 1);
  EXPECT_GT(intervals.sum_ns, gaps.sum_ns);
  EXPECT_GE(engine_->counters().hits, kCalls);
}

TEST_P(TotalsModes, CallsThatExceptionsEndAreNotOpenForEver) {
  auto file = sys::ElfFile::open("/proc/self/exe");
  ASSERT_TRUE(file.has_value());
  describe(3, probe_for_test(WIRE_SINK_TOTALS));
  const auto specs = call_specs_for_test(**file, "nested_for_test", 3);
  ASSERT_TRUE(engine_->attach_uprobes("/proc/self/exe", specs, false).has_value());
  EXPECT_EQ(nested_for_test(4), 4);
  Seen seen = totals_of(*engine_, ::getpid())[{3, WIRE_TOTAL_CALL}];
  EXPECT_EQ(seen.entries, 1U) << "what runs inside of a call is part of it";
  EXPECT_EQ(seen.count, 1U);
  for (int i = 0; i < 3; ++i)
    EXPECT_THROW(nested_for_test(0), std::invalid_argument);
  EXPECT_EQ(nested_for_test(1), 1);
  seen = totals_of(*engine_, ::getpid())[{3, WIRE_TOTAL_CALL}];
  EXPECT_EQ(seen.entries, 5U);
  EXPECT_EQ(seen.count, 2U);
  EXPECT_EQ(seen.dropped, 3U);
  EXPECT_EQ(seen.in_buckets, 2U);
}

/// A tuple of CPython, and the pointer to it that stands for pybind11's arguments.
struct Arguments {
  std::uint64_t references{1}, type{0}, count{0};
  std::array<const void*, 3> items{};
};

class TotalsScopes : public TotalsModes {
 protected:
  static constexpr std::uint32_t kInput = 5, kOptimizer = 6;
  void attach_scopes(std::uint64_t times) {
    wire_probe scopes = probe_for_test(WIRE_SINK_TOTALS, WIRE_PROBE_SCOPE | WIRE_PROBE_INSTANT);
    scopes.scope_name = 0;
    scopes.scope_arguments = 1;
    add_capture_for_test(scopes, 2, 8, WIRE_TEXT_PYTHON, {0, 24});
    add_capture_for_test(scopes, 2, 8, WIRE_TEXT_NONE, {0, 16});
    for (const std::string_view prefix : {"enumerate(DataLo", "Optimize"}) {
      wire_scope& scope = scopes.scopes[scopes.scope_count++];
      std::memcpy(scope.prefix, prefix.data(), prefix.size());
      std::memset(scope.mask, 0xff, prefix.size());
    }
    describe(kInput, scopes);
    const UprobeSpec spec{target_offset("metered_operator"), 0,
                          kInput | WIRE_COOKIE_INSTANT | times << WIRE_COOKIE_TIMES_SHIFT};
    const auto handle = engine_->attach_uprobes("/proc/self/exe", {&spec, 1}, false);
    ASSERT_TRUE(handle.has_value()) << handle.error().what;
    handle_ = *handle;
  }
  static void call(const Arguments& arguments) {
    const Arguments* pointer = &arguments;
    metered_operator(nullptr, nullptr, &pointer);
  }
  static void enter(std::string_view name, bool has_ready = true,
                    PythonStrForTest::Kind kind = PythonStrForTest::Kind::kAscii) {
    const PythonStrForTest text(name, has_ready, kind);
    call({.count = 2, .items = {text.object(), nullptr}});
  }
  static void leave() { call({.count = 1, .items = {&handle_object}}); }
  static constexpr int handle_object = 0;
  [[nodiscard]] Seen seen(std::uint32_t probe) {
    return totals_of(*engine_, ::getpid())[{probe, WIRE_TOTAL_CALL}];
  }
  Engine::Handle handle_{0};
};

constexpr std::string_view kNext = "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__";
constexpr std::string_view kStep = "Optimizer.step#SGD.step";

TEST_P(TotalsScopes, TellDataLoadersFromOptimizers) {
  attach_scopes(1);
  leave();  // of a scope that was entered before
  for (int i = 0; i < 3; ++i) {
    enter(kNext, i % 2 == 0);
    leave();
  }
  enter(kStep);
  EXPECT_EQ(seen(kOptimizer).entries, 1U);
  EXPECT_EQ(seen(kOptimizer).count, 0U) << "it is open";
  leave();
  for (const std::string_view other : {"DistributedDataParallel.forward", "short"}) {
    enter(other);
    leave();
  }
  enter(kNext, true, PythonStrForTest::Kind::kWide);
  leave();
  enter(kNext, true, PythonStrForTest::Kind::kNoStr);  // another operator
  const PythonStrForTest name(kNext, true);
  call({.count = 3, .items = {name.object(), nullptr, nullptr}});  // and another
  EXPECT_EQ(seen(kInput).count, 3U);
  EXPECT_EQ(seen(kInput).entries, 3U);
  EXPECT_EQ(seen(kOptimizer).count, 1U);
}

TEST_P(TotalsScopes, InsideOfOthersArePartOfThem) {
  attach_scopes(1);
  enter(kStep);
  for (const std::string_view inner : {kNext, kStep, std::string_view("user's own")}) {
    enter(inner);
    leave();
    EXPECT_EQ(seen(kOptimizer).count, 0U) << inner;
  }
  enter("one with other letters", true, PythonStrForTest::Kind::kWide);
  leave();
  EXPECT_EQ(seen(kOptimizer).count, 0U);
  enter("no name", true, PythonStrForTest::Kind::kNoStr);
  leave();
  EXPECT_EQ(seen(kOptimizer).count, 1U);
  EXPECT_EQ(seen(kInput).entries, 0U);
}

TEST_P(TotalsScopes, ThatWereOpenWhenTheirProbeWasTakenOffHideNoOthers) {
  attach_scopes(1);
  enter(kNext);
  engine_->detach(handle_);
  leave();
  attach_scopes(2);
  enter(kNext);
  leave();
  EXPECT_EQ(seen(kInput).count, 1U);
  EXPECT_EQ(seen(kInput).entries, 2U);
}

TEST_P(TotalsModes, DetachedProbesCountNothing) {
  describe(3, probe_for_test(WIRE_SINK_TOTALS));
  const auto handle = attach(3);
  ASSERT_TRUE(handle.has_value());
  metered_call(1);
  engine_->detach(*handle);
  EXPECT_EQ(engine_->link_count(), 0U);
  metered_call(1);
  EXPECT_EQ((totals_of(*engine_, ::getpid())[{3, WIRE_TOTAL_CALL}]).count, 1U);
}

TEST_P(TotalsModes, ForgottenProcessesLeaveNothingBehind) {
  describe(3, probe_for_test(WIRE_SINK_TOTALS));
  ASSERT_TRUE(attach(3).has_value());
  metered_call(1);
  EXPECT_FALSE(totals_of(*engine_, ::getpid()).empty());
  engine_->forget_process(::getpid());
  ASSERT_TRUE(engine_->read_totals([](const ProbeTotal&) { return false; }).has_value());
  metered_call(1);
  EXPECT_TRUE(totals_of(*engine_, ::getpid()).empty());
}

const auto kModes = ::testing::Values(AttachMode::kSession, AttachMode::kMulti, AttachMode::kPerf);
std::string mode_name(const ::testing::TestParamInfo<AttachMode>& mode) {
  return std::string(attach_mode_name(mode.param));
}
INSTANTIATE_TEST_SUITE_P(AllModes, TotalsModes, kModes, mode_name);
INSTANTIATE_TEST_SUITE_P(AllModes, TotalsScopes, kModes, mode_name);

TEST(Totals, ReadTheThreadsOfObservedProcessesOnly) {
  auto engine = Engine::create({});
  if (!engine) GTEST_SKIP() << "needs root and bpf: " << engine.error().what;
  std::vector<wire_thread> threads;
  const auto add = [&](const wire_thread& thread) { threads.push_back(thread); };
  ASSERT_TRUE((*engine)->read_threads(add).has_value());
  EXPECT_TRUE(threads.empty());
  ASSERT_TRUE((*engine)->observe_process(::getpid()).has_value());
  for (rusage used{}; used.ru_stime.tv_sec == 0 && used.ru_stime.tv_usec < 100'000;)
    ASSERT_EQ(::getrusage(RUSAGE_SELF, &used), 0);  // each spends some of it in the kernel
  ASSERT_TRUE((*engine)->read_threads(add).has_value());
  ASSERT_EQ(threads.size(), 1U);
  EXPECT_EQ(threads[0].tgid, static_cast<std::uint32_t>(::getpid()));
  EXPECT_EQ(threads[0].tid, static_cast<std::uint32_t>(::getpid()));
  EXPECT_GT(threads[0].runtime_ns, 0U);
  EXPECT_GT(threads[0].system_ns, 20'000'000U);  // ticks are rough
  EXPECT_LT(threads[0].system_ns, 2 * threads[0].runtime_ns);
  EXPECT_GT(threads[0].minor_faults, 0U);
  EXPECT_EQ(threads[0].state, 0U);  // this one runs
}

TEST(Buckets, QuantilesAreWithinABucketOfTheTruth) {
  std::array<std::uint32_t, WIRE_BUCKETS> buckets{};
  EXPECT_EQ(bucket_quantile_ns(buckets, 0.5), 0);
  for (std::uint32_t i = 0; i + 1 < WIRE_BUCKETS; ++i)
    EXPECT_LT(bucket_upper_ns(i), bucket_upper_ns(i + 1)) << i;
  EXPECT_EQ(bucket_upper_ns(0), 256);
  EXPECT_EQ(bucket_upper_ns(1), 320);
  EXPECT_EQ(bucket_upper_ns(4), 512);
  EXPECT_TRUE(std::isinf(bucket_upper_ns(WIRE_BUCKETS - 1)));
  buckets[1] = 100;  // 256 to 320 ns
  buckets[5] = 1;    // 512 to 640 ns
  EXPECT_NEAR(bucket_quantile_ns(buckets, 0.5), 256 + 64 * 50.5 / 100, 1e-9);
  EXPECT_GE(bucket_quantile_ns(buckets, 0.999), 512);
  EXPECT_LE(bucket_quantile_ns(buckets, 1), 640);
}

}  // namespace
}  // namespace kansoku::capture::bpf
