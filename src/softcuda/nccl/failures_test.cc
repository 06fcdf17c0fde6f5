// SPDX-License-Identifier: Apache-2.0
// libnccl.so.2 between processes: ranks that do not come, die, differ, give up. Nobody may hang.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <atomic>
#include <csignal>

#include "softcuda/nccl/rank_processes_test.h"

namespace kansoku::softcuda::nccl {
namespace {

using testing::Each;
using testing::ElementsAre;
using testing::HasSubstr;

constexpr std::size_t kBytes = std::size_t{64} << 20;
// Ranks that come have all the time that they need for it.
const std::vector<std::string> kSoon{"KANSOKU_NCCL_TIMEOUT=300ms",
                                     "KANSOKU_NCCL_CONNECT_TIMEOUT=10m"};

ncclResult_t sum(Rank& self, std::byte* array, std::size_t bytes) {
  return self.nccl.ncclAllReduce(array, array, bytes, ncclUint8, ncclSum, self.comm, self.stream);
}

TEST(Failures, RankThatNeverComes) {
  const auto body = [](Rank& self) {
    self.load();
    const auto id = self.share_id();
    if (self.rank == 1) return;
    EXPECT_EQ(self.nccl.ncclCommInitRank(&self.comm, 2, id, 0), ncclRemoteError);
    EXPECT_STREQ(self.nccl.ncclGetLastError(nullptr),
                 "ncclCommInitRank: meet the other ranks: 1 of 2 ranks joined within 0.3 s; rank 1 "
                 "did not");
    EXPECT_EQ(self.comm, nullptr);
  };
  EXPECT_THAT(run_ranks(2, body, {"KANSOKU_NCCL_TIMEOUT=300ms"}), Each(0));
  EXPECT_THAT(run_ranks(2, body, {"KANSOKU_NCCL_CONNECT_TIMEOUT=300ms"}), Each(0));
}

TEST(Failures, CreatorOfTheIdIsGone) {
  const auto body = [](Rank& self) {
    self.load();
    const auto id = self.share_id();
    if (self.rank == 0) {
      self.meet();
      _exit(0);
    }
    self.meet();
    // The call is refused or hung up on, depending on how far the other one has gone.
    EXPECT_EQ(self.nccl.ncclCommInitRank(&self.comm, 2, id, 1), ncclRemoteError);
    EXPECT_THAT(self.nccl.ncclGetLastError(nullptr), HasSubstr("ncclCommInitRank: "));
  };
  EXPECT_THAT(run_ranks(2, body), Each(0));
}

TEST(Failures, RankThatNeverCalls) {
  const auto body = [](Rank& self) {
    self.join();
    std::byte* const array = self.nccl.device_copy(std::vector<std::byte>(64));
    if (self.rank == 0) {
      EXPECT_EQ(sum(self, array, 64), ncclSuccess);
      EXPECT_EQ(self.finish(), ncclRemoteError);
      EXPECT_EQ(self.last_error(),
                "ncclAllReduce 0 (64 uint8): rank 1 did not take part within 0.3 s");
      // A failed operation is not tried again, and the error stays.
      EXPECT_EQ(sum(self, array, 64), ncclRemoteError);
      EXPECT_EQ(self.finish(), ncclRemoteError);
      EXPECT_EQ(self.nccl.ncclCommAbort(self.comm), ncclSuccess);
    }
    self.meet();
  };
  EXPECT_THAT(run_ranks(2, body, kSoon), Each(0));
}

TEST(Failures, RanksThatCallDifferentThings) {
  const auto body = [](Rank& self) {
    self.join();
    std::byte* const array = self.nccl.device_copy(std::vector<std::byte>(4096));
    // Sizes first: neither side may write beyond its array.
    EXPECT_EQ(sum(self, array, self.rank == 0 ? 64 : 4096), ncclSuccess);
    EXPECT_EQ(self.finish(), ncclRemoteError);
    EXPECT_THAT(self.last_error(), HasSubstr(self.rank == 0 ? "(64 uint8)" : "(4096 uint8)"));
    self.meet();
  };
  EXPECT_THAT(run_ranks(2, body, kSoon), Each(0));
}

TEST(Failures, KilledBeforeItsCall) {
  const auto body = [](Rank& self) {
    self.join();
    std::byte* const array = self.nccl.device_copy(std::vector<std::byte>(1 << 20));
    if (self.rank == 2) raise(SIGKILL);
    EXPECT_EQ(sum(self, array, 1 << 20), ncclSuccess);
    EXPECT_EQ(self.finish(), ncclRemoteError);
    EXPECT_THAT(self.last_error(), HasSubstr("ncclAllReduce 0 (1048576 uint8): "));
    EXPECT_NE(self.nccl.ncclCommDestroy(self.comm), ncclSuccess);
  };
  EXPECT_THAT(run_ranks(3, body), ElementsAre(0, 0, kKilled + SIGKILL));
}

TEST(Failures, KilledInTheMiddle) {
  const auto body = [](Rank& self) {
    self.join();
    std::byte* const array = self.nccl.device_copy(std::vector<std::byte>(kBytes));
    EXPECT_EQ(sum(self, array, 16), ncclSuccess);
    EXPECT_EQ(self.finish(), ncclSuccess);
    ncclResult_t last = ncclSuccess;
    for (int i = 0; i < 1000 && last == ncclSuccess; ++i) {
      last = sum(self, array, kBytes);
      // It dies while its stream works.
      if (self.rank == 1 && i == 1) raise(SIGKILL);
      if (last == ncclSuccess) last = self.finish();
    }
    EXPECT_EQ(last, ncclRemoteError);
  };
  EXPECT_THAT(run_ranks(2, body), ElementsAre(0, kKilled + SIGKILL));
}

/// Only rank 0 talks to the dead one; who waits for rank 0 hears of it.
TEST(Failures, ErrorsSpread) {
  const auto body = [](Rank& self) {
    self.join();
    std::byte* const array = self.nccl.device_copy(std::vector<std::byte>(64));
    if (self.rank == 1) raise(SIGKILL);
    const auto call = self.rank == 0
                          ? self.nccl.ncclRecv(array, 64, ncclInt8, 1, self.comm, self.stream)
                          : self.nccl.ncclRecv(array, 64, ncclInt8, 0, self.comm, self.stream);
    EXPECT_EQ(call, ncclSuccess);
    EXPECT_EQ(self.finish(), ncclRemoteError);
    EXPECT_THAT(self.last_error(), HasSubstr("ncclRecv 0 from rank "));
  };
  EXPECT_THAT(run_ranks(3, body), ElementsAre(0, kKilled + SIGKILL, 0));
}

struct Marker {
  std::atomic<bool> was_reached{false};
  static void reach(void* raw) {
    auto* const self = static_cast<Marker*>(raw);
    self->was_reached = true;
    self->was_reached.notify_all();
  }
};

TEST(Failures, AbortEndsWhatWaits) {
  const auto body = [](Rank& self) {
    self.join();
    std::byte* const array = self.nccl.device_copy(std::vector<std::byte>(1 << 20));
    if (self.rank == 0) {
      Marker marker, after;
      EXPECT_EQ(self.nccl.launch_host(self.stream, Marker::reach, &marker), cuda::CUDA_SUCCESS);
      EXPECT_EQ(sum(self, array, 1 << 20), ncclSuccess);
      EXPECT_EQ(sum(self, array, 1 << 20), ncclSuccess);
      EXPECT_EQ(self.nccl.launch_host(self.stream, Marker::reach, &after), cuda::CUDA_SUCCESS);
      marker.was_reached.wait(false);
      EXPECT_EQ(self.nccl.ncclCommAbort(self.comm), ncclSuccess);
      EXPECT_EQ(self.nccl.stream_synchronize(self.stream), cuda::CUDA_SUCCESS);
      EXPECT_TRUE(after.was_reached);
      EXPECT_EQ(sum(self, array, 1), ncclInvalidArgument);
      self.meet();
      return;
    }
    self.meet();
    // The other end is told.
    EXPECT_EQ(sum(self, array, 1 << 20), ncclSuccess);
    EXPECT_EQ(self.finish(), ncclRemoteError);
    EXPECT_EQ(self.nccl.ncclCommAbort(self.comm), ncclSuccess);
  };
  EXPECT_THAT(run_ranks(2, body), Each(0));
}

TEST(Failures, AbortOfAllRanksAtOnce) {
  const auto body = [](Rank& self) {
    for (int round = 0; round < 10; ++round) {
      self.join();
      std::byte* const array = self.nccl.device_copy(std::vector<std::byte>(kBytes));
      EXPECT_EQ(sum(self, array, kBytes), ncclSuccess);
      self.meet();
      EXPECT_EQ(self.nccl.ncclCommAbort(self.comm), ncclSuccess);
      EXPECT_EQ(self.nccl.stream_synchronize(self.stream), cuda::CUDA_SUCCESS);
      self.meet();
    }
  };
  EXPECT_THAT(run_ranks(2, body), Each(0));
}

/// A kernel that faults: what is behind it on the stream never runs.
TEST(Failures, FaultOnTheStream) {
  const auto body = [](Rank& self) {
    self.join();
    std::byte* const array = self.nccl.device_copy(std::vector<std::byte>(64));
    cuda::CUmodule module = nullptr;
    cuda::CUfunction kernel = nullptr;
    ASSERT_EQ(self.nccl.module_load(&module, R"(
.version 8.0
.target sm_80
.address_size 64
.visible .entry stop() { trap; }
)"),
              cuda::CUDA_SUCCESS);
    ASSERT_EQ(self.nccl.module_function(&kernel, module, "stop"), cuda::CUDA_SUCCESS);
    if (self.rank == 0) {
      std::atomic<bool> go{false};
      const auto hold = [](void* raw) { static_cast<std::atomic<bool>*>(raw)->wait(false); };
      EXPECT_EQ(self.nccl.launch_host(self.stream, hold, &go), cuda::CUDA_SUCCESS);
      EXPECT_EQ(self.nccl.launch_kernel(kernel, 1, 1, 1, 1, 1, 1, 0, self.stream, nullptr, nullptr),
                cuda::CUDA_SUCCESS);
      EXPECT_EQ(sum(self, array, 64), ncclSuccess);
      go = true;
      go.notify_all();
      EXPECT_NE(self.nccl.stream_synchronize(self.stream), cuda::CUDA_SUCCESS);
      EXPECT_EQ(self.nccl.ncclCommDestroy(self.comm), ncclUnhandledCudaError);
      EXPECT_THAT(self.nccl.ncclGetLastError(nullptr), HasSubstr("CUDA_ERROR_LAUNCH_FAILED"));
    } else {
      EXPECT_EQ(sum(self, array, 64), ncclSuccess);
      EXPECT_EQ(self.finish(), ncclRemoteError);
    }
  };
  EXPECT_THAT(run_ranks(2, body), Each(0));
}

}  // namespace
}  // namespace kansoku::softcuda::nccl
