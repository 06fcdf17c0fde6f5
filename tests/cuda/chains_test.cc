// SPDX-License-Identifier: Apache-2.0
// Launches with programmatic attributes, and the ones in front of them: one chain, one time.
#include <gtest/gtest.h>

#include <algorithm>
#include <thread>

#include "library_for_test.h"

namespace kansoku {
namespace {

class ChainsTest : public LibraryTest {
 protected:
  /// A stream that is known to have programmatic launches, of which the first has no time.
  void begin(Mode mode, std::uint32_t every_n = 0) {
    start();
    store_ = function("store");
    await_ = function("await");
    entry<CUresult(void**, std::size_t)>("cuMemAllocHost_v2")(&flag_, 4);
    set(mode, every_n);
    expect_chains(stream_);
  }
  void expect_chains(CUstream stream) {
    ASSERT_EQ(launch(stream, true), 0);
    fill(stream);
    ASSERT_EQ(entry<CUresult(CUstream)>("cuStreamSynchronize")(stream), 0);
    ++launches_;
  }
  CUresult launch(CUstream stream, bool is_programmatic, bool is_gate = false) {
    CUlaunchAttribute attribute{};
    attribute.id = CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION;
    attribute.value.programmaticStreamSerializationAllowed = 1;
    CUlaunchConfig config{};
    config.gridDimX = config.gridDimY = config.gridDimZ = 1;
    config.blockDimX = config.blockDimY = config.blockDimZ = 1;
    config.hStream = stream;
    config.attrs = is_programmatic ? &attribute : nullptr;
    config.numAttrs = is_programmatic ? 1 : 0;
    std::uint32_t value = 1;
    auto address = reinterpret_cast<std::uintptr_t>(flag_);
    void* of_store[] = {&memory_, &value};
    void* of_await[] = {&address, &memory_};
    return entry<CUresult(const CUlaunchConfig*, CUfunction, void**, void**)>("cuLaunchKernelEx")(
        &config, is_gate ? await_ : store_, is_gate ? of_await : of_store, nullptr);
  }
  void fill(CUstream stream) {
    ASSERT_EQ(entry<CUresult(CUdeviceptr, unsigned char, std::size_t, CUstream)>("cuMemsetD8Async")(
                  memory_, 1, 4, stream),
              0);
  }
  /// The streams' work waits from here on, so that none is idle before release().
  void hold(CUstream stream) {
    *static_cast<volatile std::uint32_t*>(flag_) = 0;
    ASSERT_EQ(launch(stream, false, /*is_gate=*/true), 0);
    fill(stream);
    ++launches_;
  }
  void release() { *static_cast<volatile std::uint32_t*>(flag_) = 1; }
  /// One launch and so many programmatic ones behind it.
  void chain(CUstream stream, std::size_t count) {
    ASSERT_EQ(launch(stream, false), 0);
    for (std::size_t i = 0; i < count; ++i)
      ASSERT_EQ(launch(stream, true), 0);
    launches_ += 1 + count;
  }
  /// Launches of each chain, in the order of the records; 1: a launch of its own.
  static std::vector<std::size_t> chains_of(const Seen& seen) {
    std::vector<std::size_t> out;
    for (const auto& [record, what] : seen.records) {
      if (what != WIRE_CUDA_LAUNCH || (record.flags & WIRE_CUDA_TIMED) == 0) continue;
      const bool is_chain = (record.flags & WIRE_CUDA_PROGRAMMATIC) != 0;
      out.push_back(is_chain ? record.u.chain.launches : 1);
    }
    return out;
  }
  static std::size_t sum(const std::vector<std::size_t>& chains) {
    std::size_t out = 0;
    for (const std::size_t one : chains)
      out += one;
    return out;
  }
  /// All launches have a time or are counted, and none twice.
  Seen all() {
    Seen seen;
    wait([&] {
      take(seen);
      return sum(chains_of(seen)) + untimed() >= launches_;
    });
    EXPECT_EQ(sum(chains_of(seen)) + untimed(), launches_);
    return seen;
  }
  [[nodiscard]] std::uint64_t timed_count() const { return channel_->state().timed; }
  [[nodiscard]] wire_cuda_losses losses() const { return channel_->state().losses; }

  CUfunction await_{nullptr};
  void* flag_{nullptr};
  std::size_t launches_{0};
};

using Chains = std::vector<std::size_t>;

TEST_F(ChainsTest, HaveOneTimeEach) {
  begin(Mode::kEvery);
  hold(stream_);
  chain(stream_, 1);
  fill(stream_);
  chain(stream_, 3);
  chain(stream_, 0);  // ends the one before, and is none
  chain(stream_, 2);
  fill(stream_);
  release();
  synchronize();
  EXPECT_EQ(chains_of(all()), (Chains{1, 2, 4, 1, 3}));
  EXPECT_EQ(losses().programmatic, 1U);  // the first of the stream
  EXPECT_EQ(losses().parted, 0U);
}

TEST_F(ChainsTest, AreBounded) {
  begin(Mode::kEvery);
  hold(stream_);
  chain(stream_, 300);
  fill(stream_);
  release();
  synchronize();
  EXPECT_EQ(chains_of(all()), (Chains{1, 256, 45}));
  EXPECT_EQ(losses().parted, 1U);
}

TEST_F(ChainsTest, EndWhereTheyEndedBefore) {
  begin(Mode::kEvery);
  constexpr std::size_t kRounds = 40;
  for (std::size_t i = 0; i < kRounds; ++i) {
    chain(stream_, 2);
    synchronize();  // mostly done before it is asked for its end
  }
  const Chains chains = chains_of(all());
  // Until that is known, an idle stream has no end: at most twice for each of the beginnings.
  EXPECT_LE(losses().programmatic, 1U + 4 * 3);
  ASSERT_GE(chains.size(), kRounds - 4);
  EXPECT_EQ(chains.back(), 3U);
  EXPECT_EQ(losses().parted, 0U);
}

TEST_F(ChainsTest, AreLearntAnewWhenTheyGrow) {
  begin(Mode::kEvery);
  for (int i = 0; i < 10; ++i) {
    chain(stream_, 1);
    synchronize();
  }
  all();
  const std::uint64_t before = losses().parted;
  for (int i = 0; i < 10; ++i) {
    hold(stream_);
    chain(stream_, 2);
    fill(stream_);
    release();
    synchronize();
  }
  // The habit is one of what was launched before, too: so it may have to be learnt for both.
  EXPECT_LE(losses().parted, before + 2);
  wait([&] { return channel_->state().chains >= 8; });
}

TEST_F(ChainsTest, EndWithWhateverWaitsForThem) {
  begin(Mode::kEvery);
  CUevent event = nullptr;
  CUstream other = nullptr;
  ASSERT_EQ(entry<CUresult(CUevent*, unsigned)>("cuEventCreate")(&event, 0), 0);
  ASSERT_EQ(entry<CUresult(CUstream*, unsigned)>("cuStreamCreate")(&other, 1), 0);
  hold(stream_);
  const std::uint64_t timed_before = timed_count();
  chain(stream_, 1);
  ASSERT_EQ(entry<CUresult(CUevent, CUstream)>("cuEventRecord")(event, stream_), 0);
  EXPECT_EQ(timed_count(), timed_before + 1);
  chain(stream_, 2);
  ASSERT_EQ(entry<CUresult(CUstream, CUevent, unsigned)>("cuStreamWaitEvent")(stream_, event, 0),
            0);
  EXPECT_EQ(timed_count(), timed_before + 2);
  chain(stream_, 3);
  EXPECT_NE(entry<CUresult(CUstream)>("cuStreamQuery")(stream_), 0);
  EXPECT_EQ(timed_count(), timed_before + 3);
  chain(stream_, 4);
  std::thread waiter([&] {
    entry<CUresult(CUcontext)>("cuCtxSetCurrent")(context_);
    entry<CUresult()>("cuCtxSynchronize")();
  });
  wait([&] { return !channel_->waiters().empty() && timed_count() == timed_before + 4; });
  release();
  waiter.join();
  EXPECT_EQ(chains_of(all()), (Chains{1, 2, 3, 4, 5}));
}

TEST_F(ChainsTest, EndByThemselves) {
  begin(Mode::kEvery);
  hold(stream_);
  chain(stream_, 2);
  const auto submitted = [&] { return channel_->streams().at(0).submitted; };
  wait([&] { return submitted() >= 4; });  // two fills, the gate and the chain
  release();
  EXPECT_EQ(chains_of(all()), (Chains{1, 3}));
}

// An end that is recorded on an idle stream would count the host's pause as work.
TEST_F(ChainsTest, DoNotLastUntilTheHostComesBack) {
  begin(Mode::kEvery);
  void* const driver = dlopen(KANSOKU_SOFTCUDA_LIBRARY, RTLD_NOW | RTLD_LOCAL);
  auto* const query = reinterpret_cast<CUresult (*)(CUstream)>(dlsym(driver, "cuStreamQuery"));
  ASSERT_NE(query, nullptr);
  const sys::RealClock clock;
  const BootTime called = clock.now();
  chain(stream_, 2);
  wait([&] { return query(stream_) == CUDA_SUCCESS; });  // past the library
  const auto lasted = static_cast<std::uint64_t>((clock.now() - called).count());
  const std::uint64_t ticks = channel_->state().ticks;
  wait([&] { return channel_->state().ticks > ticks + 20; });
  fill(stream_);
  synchronize();
  for (const auto& [record, what] : all().records) {
    if (what == WIRE_CUDA_LAUNCH && (record.flags & WIRE_CUDA_TIMED) != 0) {
      EXPECT_LE(record.device_ns, lasted);
    }
  }
}

TEST_F(ChainsTest, OfTwoStreams) {
  begin(Mode::kEvery);
  CUstream other = nullptr;
  ASSERT_EQ(entry<CUresult(CUstream*, unsigned)>("cuStreamCreate")(&other, 1), 0);
  expect_chains(other);
  hold(stream_);
  hold(other);
  for (int i = 0; i < 4; ++i) {
    ASSERT_EQ(launch(stream_, i > 0), 0);
    ASSERT_EQ(launch(other, i % 2 == 1), 0);
    launches_ += 2;
  }
  fill(stream_);
  fill(other);
  release();
  ASSERT_EQ(entry<CUresult()>("cuCtxSynchronize")(), 0);
  Chains chains = chains_of(all());
  std::sort(chains.begin(), chains.end());
  EXPECT_EQ(chains, (Chains{1, 1, 2, 2, 4}));
}

TEST_F(ChainsTest, AreNotInACapture) {
  begin(Mode::kEvery);
  hold(stream_);
  const std::uint64_t before = timed_count();
  chain(stream_, 2);
  CUgraph graph = nullptr;
  ASSERT_EQ(entry<CUresult(CUstream, int)>("cuStreamBeginCapture_v2")(stream_, 0), 0);
  EXPECT_EQ(timed_count(), before + 1);
  ASSERT_EQ(launch(stream_, false), 0);
  ASSERT_EQ(launch(stream_, true), 0);
  ASSERT_EQ(entry<CUresult(CUstream, CUgraph*)>("cuStreamEndCapture")(stream_, &graph), 0);
  std::size_t nodes = 0;
  ASSERT_EQ(entry<CUresult(CUgraph, CUgraphNode*, std::size_t*)>("cuGraphGetNodes")(graph, nullptr,
                                                                                    &nodes),
            0);
  EXPECT_EQ(nodes, 2U);
  release();
  synchronize();
  EXPECT_EQ(chains_of(all()), (Chains{1, 3}));
}

TEST_F(ChainsTest, OutliveTheirStream) {
  begin(Mode::kEvery);
  for (int i = 0; i < 20; ++i) {
    CUstream stream = nullptr;
    ASSERT_EQ(entry<CUresult(CUstream*, unsigned)>("cuStreamCreate")(&stream, 1), 0);
    fill(stream);
    hold(stream);
    chain(stream, 2);
    std::thread opens([&] { release(); });
    ASSERT_EQ(entry<CUresult(CUstream)>("cuStreamDestroy_v2")(stream), 0);
    opens.join();
  }
  all();
  EXPECT_EQ(losses().lost_context, 0U);
}

TEST_F(ChainsTest, OutliveTheirContext) {
  begin(Mode::kEvery);
  timed(WIRE_CUDA_SET, 1);
  for (int i = 0; i < 30; ++i)
    chain(stream_, 2);
  ASSERT_EQ(entry<CUresult(CUdevice)>("cuDevicePrimaryCtxReset_v2")(0), 0);
  all();
}

TEST_F(ChainsTest, OfManyThreads) {
  begin(Mode::kEvery);
  constexpr std::size_t kEach = 2000, kThreads = 4;
  std::vector<std::thread> threads;
  for (std::size_t number = 0; number < kThreads; ++number)
    threads.emplace_back([&, number] {
      entry<CUresult(CUcontext)>("cuCtxSetCurrent")(context_);
      CUstream own = nullptr;
      entry<CUresult(CUstream*, unsigned)>("cuStreamCreate")(&own, 1);
      for (std::size_t i = 0; i < kEach; ++i) {
        launch(number % 2 == 0 ? own : stream_, i % 3 != 0);
        if (i % 100 == 0) entry<CUresult(CUstream)>("cuStreamQuery")(stream_);
        if (i % 250 == 0) entry<CUresult()>("cuCtxSynchronize")();
      }
    });
  for (std::thread& one : threads)
    one.join();
  launches_ += kEach * kThreads;
  ASSERT_EQ(entry<CUresult()>("cuCtxSynchronize")(), 0);
  EXPECT_GT(all().records.size(), 0U);
}

TEST_F(ChainsTest, AreTimedWhenTheirFirstIs) {
  begin(Mode::kSampled, 10);
  constexpr std::size_t kRounds = 1000;  // fewer are timed than there are events at first
  for (std::size_t i = 0; i < kRounds; ++i) {
    chain(stream_, 2);
    if (i % 100 == 0) synchronize();
  }
  fill(stream_);
  synchronize();
  wait([&] { return channel_->streams().at(0).completed == channel_->state().timed; });
  Seen seen;
  take(seen);
  const Chains chains = chains_of(seen);
  for (const std::size_t one : chains)
    EXPECT_TRUE(one == 1 || one == 3) << one;
  EXPECT_GT(channel_->state().chains, kRounds / 40);
  EXPECT_LT(channel_->state().chains, kRounds / 4);
  EXPECT_EQ(losses().parted, 0U);
  EXPECT_EQ(calls("cuLaunchKernelEx"), launches_);
}

TEST_F(ChainsTest, OnTheLegacyStream) {
  begin(Mode::kEvery);
  expect_chains(nullptr);
  hold(nullptr);
  chain(nullptr, 2);
  fill(nullptr);
  release();
  ASSERT_EQ(entry<CUresult()>("cuCtxSynchronize")(), 0);
  EXPECT_EQ(chains_of(all()), (Chains{1, 3}));
}

// Which one of them it is nobody knows.
TEST_F(ChainsTest, AreStuckAsASet) {
  begin(Mode::kEvery);
  *static_cast<volatile std::uint32_t*>(flag_) = 0;
  ASSERT_EQ(launch(stream_, false), 0);
  ASSERT_EQ(launch(stream_, true, /*is_gate=*/true), 0);
  ASSERT_EQ(launch(stream_, true), 0);
  fill(stream_);
  launches_ += 3;
  wait([&] {
    const auto stream = channel_->streams().at(0);
    return stream.waiting_since_ns != 0 && stream.suspects.size() == 3;
  });
  const auto stream = channel_->streams().at(0);
  EXPECT_TRUE(stream.is_mark);
  EXPECT_FALSE(stream.is_begun);
  release();
  synchronize();
  all();
}

}  // namespace
}  // namespace kansoku
