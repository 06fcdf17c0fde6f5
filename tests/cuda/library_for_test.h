// SPDX-License-Identifier: Apache-2.0
// The library that stands before a CUDA driver, as a program and a recorder see it: the test is
// both. Each test is a process of its own (ctest), with the software device behind the library.
#pragma once

#include <dlfcn.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "capture/cuda/channel.h"
#include "cuda/abi.h"
#include "softcuda/kernels_for_test.h"
#include "sys/clock.h"
#include "sys/wait_for_test.h"

namespace kansoku {

// NOLINTNEXTLINE(google-build-using-namespace): the tests speak the interface's language.
using namespace cuda;
using capture::cuda::Channel;
using capture::cuda::Mode;

constexpr Nanos kLong = std::chrono::seconds{60};

using LaunchKernel = CUresult(CUfunction, unsigned, unsigned, unsigned, unsigned, unsigned,
                              unsigned, unsigned, CUstream, void**, void**);

struct Seen {
  std::vector<std::pair<wire_cuda_record, std::uint32_t>> records;
  [[nodiscard]] std::size_t count(std::uint32_t what, std::uint8_t with,
                                  std::uint8_t without) const {
    std::size_t out = 0;
    for (const auto& [record, is] : records)
      out += is == what && (record.flags & with) == with && (record.flags & without) == 0 ? 1 : 0;
    return out;
  }
};

class LibraryTest : public ::testing::Test {
 protected:
  void SetUp() override {
    if (geteuid() != 0)
      GTEST_SKIP() << "needs root: the memory is opened through /proc/PID/map_files";
    setenv("KANSOKU_CUDA_DRIVER", KANSOKU_SOFTCUDA_LIBRARY, 1);
    library_ = dlopen(KANSOKU_CUDA_LIBRARY, RTLD_NOW | RTLD_LOCAL);
    ASSERT_NE(library_, nullptr) << dlerror();
  }

  template <class F>
  F* entry(const char* name) {
    auto* const symbol = reinterpret_cast<F*>(dlsym(library_, name));
    EXPECT_NE(symbol, nullptr) << name;
    return symbol;
  }

  /// cuInit, the primary context, the kernels of the tests, a stream of its own, a channel.
  void start() {
    ASSERT_EQ(entry<CUresult(unsigned)>("cuInit")(0), CUDA_SUCCESS);
    ASSERT_EQ(entry<CUresult(CUcontext*, CUdevice)>("cuDevicePrimaryCtxRetain")(&context_, 0), 0);
    ASSERT_EQ(entry<CUresult(CUcontext)>("cuCtxSetCurrent")(context_), 0);
    load();
    ASSERT_EQ(entry<CUresult(CUstream*, unsigned)>("cuStreamCreate")(&stream_, 1), 0);
    ASSERT_EQ(entry<CUresult(CUdeviceptr*, std::size_t)>("cuMemAlloc_v2")(&memory_, 1 << 16), 0);
    auto channel = Channel::open(sys::Procfs(), getpid());
    ASSERT_TRUE(channel) << channel.error().what;
    channel_ = std::move(*channel);
  }
  void load() {
    ASSERT_EQ(entry<CUresult(CUmodule*, const void*)>("cuModuleLoadData")(&module_,
                                                                          softcuda::kTestKernels),
              0);
  }
  CUfunction function(const char* name) {
    CUfunction out = nullptr;
    EXPECT_EQ(entry<CUresult(CUfunction*, CUmodule, const char*)>("cuModuleGetFunction")(
                  &out, module_, name),
              0);
    return out;
  }

  void set(Mode mode, std::uint32_t every_n = 0) {
    const sys::RealClock clock;
    channel_->request(mode, every_n, clock.now() + kLong);
    wait([&] { return channel_->mode() == mode; });
  }
  static void wait(const std::function<bool()>& is_done) {
    ASSERT_TRUE(sys::poll_for_test(is_done));
  }
  void take(Seen& seen) {
    channel_->drain([&](const wire_cuda_record& record,
                        std::uint32_t what) { seen.records.emplace_back(record, what); },
                    WIRE_CUDA_RING_SLOTS);
  }
  /// All records until `count` operations with times are there.
  Seen timed(std::uint32_t what, std::size_t count) {
    Seen seen;
    wait([&] {
      take(seen);
      return seen.count(what, WIRE_CUDA_TIMED, 0) >= count;
    });
    return seen;
  }

  CUresult launch_store(CUstream stream, std::uint32_t value = 1) {
    if (store_ == nullptr) store_ = function("store");
    void* arguments[] = {&memory_, &value};
    return entry<LaunchKernel>("cuLaunchKernel")(store_, 1, 1, 1, 1, 1, 1, 0, stream, arguments,
                                                 nullptr);
  }
  void synchronize() { ASSERT_EQ(entry<CUresult(CUstream)>("cuStreamSynchronize")(stream_), 0); }
  std::uint64_t calls(const std::string& name) {
    for (const auto& one : channel_->entries())
      if (one.name == name) return one.calls;
    return 0;
  }
  std::uint64_t untimed() {
    const wire_cuda_losses lost = channel_->state().losses;
    return lost.no_event + lost.queue_full + lost.legacy + lost.programmatic + lost.interleaved +
           lost.streams_over_limit + lost.lost_context + lost.event_error;
  }

  void* library_{nullptr};
  CUcontext context_{nullptr};
  CUmodule module_{nullptr};
  CUstream stream_{nullptr};
  CUdeviceptr memory_{0};
  CUfunction store_{nullptr};
  std::unique_ptr<Channel> channel_;
};

}  // namespace kansoku
