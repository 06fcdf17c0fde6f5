// SPDX-License-Identifier: Apache-2.0
// libnccl.so.2 between processes: values.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <numeric>
#include <vector>

#include "common/rng.h"
#include "softcuda/nccl/internal/half.h"
#include "softcuda/nccl/internal/reduction.h"
#include "softcuda/nccl/rank_processes_test.h"

namespace kansoku::softcuda::nccl {
namespace {

using testing::Each;

constexpr std::array<ncclDataType_t, kDataTypeCount> kTypes{
    ncclInt8,   ncclUint8,   ncclInt32,   ncclUint32,  ncclInt64,
    ncclUint64, ncclFloat16, ncclFloat32, ncclFloat64, ncclBfloat16};
constexpr std::array<ncclRedOp_t, kRedOpCount> kOps{ncclSum, ncclProd, ncclMax, ncclMin, ncclAvg};

template <class T>
void append(std::vector<std::byte>& to, T value) {
  const auto* const bytes = reinterpret_cast<const std::byte*>(&value);
  to.insert(to.end(), bytes, bytes + sizeof(T));
}

/// The numbers, all of which the type can hold, as an array of it.
std::vector<std::byte> encoded(ncclDataType_t type, const std::vector<double>& numbers) {
  std::vector<std::byte> made;
  for (const double number : numbers) {
    switch (type) {
      case ncclInt8:
        append(made, static_cast<std::int8_t>(number));
        break;
      case ncclUint8:
        append(made, static_cast<std::uint8_t>(number));
        break;
      case ncclInt32:
        append(made, static_cast<std::int32_t>(number));
        break;
      case ncclUint32:
        append(made, static_cast<std::uint32_t>(number));
        break;
      case ncclInt64:
        append(made, static_cast<std::int64_t>(number));
        break;
      case ncclUint64:
        append(made, static_cast<std::uint64_t>(number));
        break;
      case ncclFloat16:
        append(made, half_from_float(static_cast<float>(number)));
        break;
      case ncclFloat32:
        append(made, static_cast<float>(number));
        break;
      case ncclFloat64:
        append(made, number);
        break;
      case ncclBfloat16:
        append(made, bfloat_from_float(static_cast<float>(number)));
        break;
    }
  }
  return made;
}

bool is_integer(ncclDataType_t type) {
  return type <= ncclUint64;
}

/// Input of rank `rank`: small, so that neither sums nor products of four leave the type.
double input(ncclDataType_t type, int rank, std::size_t i) {
  const bool is_signed = type != ncclUint8 && type != ncclUint32 && type != ncclUint64;
  const int whole = static_cast<int>((i * 7 + static_cast<std::size_t>(rank) * 3) % 4);
  if (is_integer(type)) return is_signed ? whole - 1 : whole;
  return (whole - 1) * 0.5;
}

std::vector<double> inputs(ncclDataType_t type, int rank, std::size_t begin, std::size_t count) {
  std::vector<double> made;
  for (std::size_t i = begin; i < begin + count; ++i)
    made.push_back(input(type, rank, i));
  return made;
}

double combined(ncclDataType_t type, ncclRedOp_t op, int ranks, std::size_t i) {
  double all = input(type, 0, i);
  for (int rank = 1; rank < ranks; ++rank) {
    const double next = input(type, rank, i);
    all = op == ncclProd  ? all * next
          : op == ncclMax ? std::max(all, next)
          : op == ncclMin ? std::min(all, next)
                          : all + next;
  }
  if (op != ncclAvg) return all;
  return is_integer(type) ? std::trunc(all / ranks) : all / ranks;
}

std::vector<double> all_combined(ncclDataType_t type, ncclRedOp_t op, int ranks, std::size_t begin,
                                 std::size_t count) {
  std::vector<double> made;
  for (std::size_t i = begin; i < begin + count; ++i)
    made.push_back(combined(type, op, ranks, i));
  return made;
}

/// The array as it is after the stream has come to its end.
std::vector<std::byte> result(Rank& self, const std::byte* array, std::size_t bytes) {
  EXPECT_EQ(self.finish(), ncclSuccess) << self.last_error();
  return {array, array + bytes};
}

void check_all_reduce(Rank& self, ncclDataType_t type, ncclRedOp_t op, std::size_t count) {
  const auto mine = encoded(type, inputs(type, self.rank, 0, count));
  const auto expected = encoded(type, all_combined(type, op, self.ranks, 0, count));
  std::byte* const from = self.nccl.device_copy(mine);
  std::byte* const to = self.nccl.device_copy(std::vector<std::byte>(mine.size()));
  ASSERT_EQ(self.nccl.ncclAllReduce(from, to, count, type, op, self.comm, self.stream),
            ncclSuccess);
  EXPECT_EQ(result(self, to, mine.size()), expected) << name_of(type) << op;
  EXPECT_TRUE(std::equal(mine.begin(), mine.end(), from));
  ASSERT_EQ(self.nccl.ncclAllReduce(from, from, count, type, op, self.comm, self.stream),
            ncclSuccess);
  EXPECT_EQ(result(self, from, mine.size()), expected) << name_of(type) << op;
}

void check_reduce(Rank& self, ncclDataType_t type, ncclRedOp_t op, std::size_t count) {
  const auto mine = encoded(type, inputs(type, self.rank, 0, count));
  const int root = self.ranks - 1;
  const bool is_root = self.rank == root;
  const auto expected = encoded(type, all_combined(type, op, self.ranks, 0, count));
  std::byte* const from = self.nccl.device_copy(mine);
  std::byte* const to = is_root ? self.nccl.device_copy(mine) : nullptr;
  const auto& reduce = self.nccl.ncclReduce;
  ASSERT_EQ(reduce(from, to, count, type, op, root, self.comm, self.stream), ncclSuccess);
  if (is_root) {
    EXPECT_EQ(result(self, to, mine.size()), expected);
  }
  ASSERT_EQ(reduce(from, from, count, type, op, root, self.comm, self.stream), ncclSuccess);
  EXPECT_EQ(result(self, from, mine.size()), is_root ? expected : mine);
}

void check_reduce_scatter(Rank& self, ncclDataType_t type, ncclRedOp_t op, std::size_t count) {
  const auto all = static_cast<std::size_t>(self.ranks), own = static_cast<std::size_t>(self.rank);
  const auto mine = encoded(type, inputs(type, self.rank, 0, all * count));
  const auto expected = encoded(type, all_combined(type, op, self.ranks, own * count, count));
  std::byte* const from = self.nccl.device_copy(mine);
  std::byte* const to = self.nccl.device_copy(expected);
  const auto& scatter = self.nccl.ncclReduceScatter;
  ASSERT_EQ(scatter(from, to, count, type, op, self.comm, self.stream), ncclSuccess);
  EXPECT_EQ(result(self, to, expected.size()), expected);
  std::byte* const block = from + own * expected.size();
  ASSERT_EQ(scatter(from, block, count, type, op, self.comm, self.stream), ncclSuccess);
  EXPECT_EQ(result(self, block, expected.size()), expected);
}

void check_gather(Rank& self, ncclDataType_t type, std::size_t count) {
  std::vector<std::byte> expected;
  for (int rank = 0; rank < self.ranks; ++rank) {
    const auto block = encoded(type, inputs(type, rank, 5, count));
    expected.insert(expected.end(), block.begin(), block.end());
  }
  const auto mine = encoded(type, inputs(type, self.rank, 5, count));
  std::byte* const from = self.nccl.device_copy(mine);
  std::byte* const to = self.nccl.device_copy(std::vector<std::byte>(expected.size()));
  const auto& gather = self.nccl.ncclAllGather;
  ASSERT_EQ(gather(from, to, count, type, self.comm, self.stream), ncclSuccess);
  EXPECT_EQ(result(self, to, expected.size()), expected);
  std::byte* const whole = self.nccl.device_copy(std::vector<std::byte>(expected.size()));
  std::byte* const block = whole + static_cast<std::size_t>(self.rank) * mine.size();
  if (!mine.empty()) std::memcpy(block, mine.data(), mine.size());
  ASSERT_EQ(gather(block, whole, count, type, self.comm, self.stream), ncclSuccess);
  EXPECT_EQ(result(self, whole, expected.size()), expected);
}

void check_broadcast(Rank& self, ncclDataType_t type, std::size_t count, int root) {
  const auto mine = encoded(type, inputs(type, self.rank, 0, count));
  const auto expected = encoded(type, inputs(type, root, 0, count));
  const bool is_root = self.rank == root;
  std::byte* const from = is_root ? self.nccl.device_copy(mine) : nullptr;
  std::byte* const to = self.nccl.device_copy(mine);
  ASSERT_EQ(self.nccl.ncclBroadcast(from, to, count, type, root, self.comm, self.stream),
            ncclSuccess);
  EXPECT_EQ(result(self, to, mine.size()), expected);
  std::byte* const both = self.nccl.device_copy(mine);
  ASSERT_EQ(self.nccl.ncclBcast(both, count, type, root, self.comm, self.stream), ncclSuccess);
  EXPECT_EQ(result(self, both, mine.size()), expected);
  std::byte* const place = self.nccl.device_copy(mine);
  ASSERT_EQ(self.nccl.ncclBroadcast(place, place, count, type, root, self.comm, self.stream),
            ncclSuccess);
  EXPECT_EQ(result(self, place, mine.size()), expected);
}

/// Each rank sends to the next one and receives from the one before.
void check_ring(Rank& self, ncclDataType_t type, std::size_t count) {
  const int next = (self.rank + 1) % self.ranks, last = (self.rank + self.ranks - 1) % self.ranks;
  const auto mine = encoded(type, inputs(type, self.rank, 0, count));
  const auto expected = encoded(type, inputs(type, last, 0, count));
  const std::byte* const from = self.nccl.device_copy(mine);
  std::byte* const to = self.nccl.device_copy(std::vector<std::byte>(mine.size()));
  ASSERT_EQ(self.nccl.ncclGroupStart(), ncclSuccess);
  ASSERT_EQ(self.nccl.ncclSend(from, count, type, next, self.comm, self.stream), ncclSuccess);
  ASSERT_EQ(self.nccl.ncclRecv(to, count, type, last, self.comm, self.stream), ncclSuccess);
  ASSERT_EQ(self.nccl.ncclGroupEnd(), ncclSuccess);
  EXPECT_EQ(result(self, to, mine.size()), expected);
}

void check_everything(Rank& self) {
  self.join();
  // None, one, fewer than a shard for each rank, what is handled at once, and what in slices.
  constexpr std::array<std::size_t, 5> kCounts{0, 1, 3, 100, 40'000};
  for (const std::size_t count : kCounts) {
    for (const auto type : kTypes) {
      if (count > 100 && type != ncclFloat32 && type != ncclBfloat16) continue;
      for (const auto op : kOps) {
        check_all_reduce(self, type, op, count);
        check_reduce(self, type, op, count);
        check_reduce_scatter(self, type, op, count);
      }
      check_gather(self, type, count);
      for (int root = 0; root < self.ranks; ++root)
        check_broadcast(self, type, count, root);
      check_ring(self, type, count);
    }
  }
  EXPECT_EQ(self.nccl.ncclCommDestroy(self.comm), ncclSuccess);
}

TEST(Collectives, OneRank) {
  EXPECT_THAT(run_ranks(1, check_everything), Each(0));
}
TEST(Collectives, TwoRanks) {
  EXPECT_THAT(run_ranks(2, check_everything), Each(0));
}
TEST(Collectives, FourRanks) {
  EXPECT_THAT(run_ranks(4, check_everything), Each(0));
}

/// Floats whose sum depends on its order.
std::vector<float> hard_floats(int rank, std::size_t count) {
  Rng rng(3, static_cast<std::uint64_t>(rank));
  std::vector<float> made(count);
  for (float& value : made) {
    const auto bits = static_cast<std::uint32_t>(rng.next_u64());
    // Any sign and mantissa, exponents of 2^-31 to 2^32.
    value = std::bit_cast<float>((bits & 0x807fffffU) | ((0x60U + ((bits >> 23) & 0x3fU)) << 23));
  }
  return made;
}

/// Their sums in the order of ranks, as bytes.
std::vector<std::byte> summed(int ranks, std::size_t count) {
  auto all = hard_floats(0, count);
  for (int rank = 1; rank < ranks; ++rank) {
    const auto next = hard_floats(rank, count);
    for (std::size_t i = 0; i < count; ++i)
      all[i] += next[i];
  }
  const auto bytes = std::as_bytes(std::span(all));
  return {bytes.begin(), bytes.end()};
}

constexpr std::size_t kLarge = std::size_t{8} << 20;  // bytes
constexpr std::size_t kFloats = kLarge / sizeof(float);

void check_same_bits(Rank& self) {
  self.join();
  const auto mine = hard_floats(self.rank, kFloats);
  const auto expected = summed(self.ranks, kFloats);
  for (int round = 0; round < 3; ++round) {
    std::byte* const array = self.nccl.device_copy(std::as_bytes(std::span(mine)));
    ASSERT_EQ(self.nccl.ncclAllReduce(array, array, kFloats, ncclFloat32, ncclSum, self.comm,
                                      self.stream),
              ncclSuccess);
    const auto got = result(self, array, kLarge);
    EXPECT_EQ(got, expected);
  }
  // The first elements alone go another way, to the same bits.
  constexpr std::size_t kFew = 1000;
  std::byte* const few = self.nccl.device_copy(std::as_bytes(std::span(mine)).first(kFew * 4));
  ASSERT_EQ(self.nccl.ncclAllReduce(few, few, kFew, ncclFloat32, ncclSum, self.comm, self.stream),
            ncclSuccess);
  const auto got = result(self, few, kFew * sizeof(float));
  EXPECT_TRUE(std::equal(got.begin(), got.end(), expected.begin()));
  EXPECT_EQ(self.nccl.ncclCommDestroy(self.comm), ncclSuccess);
}

TEST(Collectives, SumsHaveTheSameBitsAlways) {
  EXPECT_THAT(run_ranks(2, check_same_bits), Each(0));
  EXPECT_THAT(run_ranks(3, check_same_bits), Each(0));
}

void check_large(Rank& self) {
  self.join();
  check_reduce(self, ncclBfloat16, ncclAvg, kLarge / 8 + 1);
  check_reduce_scatter(self, ncclFloat64, ncclMax, kLarge / 32 + 3);
  check_gather(self, ncclFloat64, kLarge / 32 + 1);
  check_broadcast(self, ncclInt64, 3 * kLarge / 8 + 1, 1);  // more than one message
  check_ring(self, ncclInt32, kLarge / 8 + 1);
  EXPECT_EQ(self.nccl.ncclCommDestroy(self.comm), ncclSuccess);
}

TEST(Collectives, LargeArrays) {
  EXPECT_THAT(run_ranks(4, check_large), Each(0));
}

/// Everybody sends two arrays to everybody, itself included, in one group with a sum among them.
void check_exchange(Rank& self) {
  self.join();
  constexpr std::size_t kCount = 50'000;
  const auto all = static_cast<std::size_t>(self.ranks);
  std::vector<std::byte*> got;
  std::byte* const sum = self.nccl.device_copy(encoded(ncclInt32, {1.0 + self.rank}));
  ASSERT_EQ(self.nccl.ncclGroupStart(), ncclSuccess);
  for (int round = 0; round < 2; ++round) {
    for (int peer = 0; peer < self.ranks; ++peer) {
      const std::vector<double> numbers(kCount, self.rank * 100 + peer * 10 + round);
      const std::byte* const from = self.nccl.device_copy(encoded(ncclInt32, numbers));
      got.push_back(self.nccl.device_copy(std::vector<std::byte>(kCount * 4)));
      ASSERT_EQ(self.nccl.ncclSend(from, kCount, ncclInt32, peer, self.comm, self.stream),
                ncclSuccess);
      ASSERT_EQ(self.nccl.ncclGroupStart(), ncclSuccess);  // groups nest
      ASSERT_EQ(self.nccl.ncclRecv(got.back(), kCount, ncclInt32, peer, self.comm, self.stream),
                ncclSuccess);
      ASSERT_EQ(self.nccl.ncclGroupEnd(), ncclSuccess);
    }
    if (round > 0) continue;
    ASSERT_EQ(self.nccl.ncclAllReduce(sum, sum, 1, ncclInt32, ncclSum, self.comm, self.stream),
              ncclSuccess);
  }
  ASSERT_EQ(self.nccl.ncclGroupEnd(), ncclSuccess) << self.last_error();
  EXPECT_EQ(self.finish(), ncclSuccess) << self.last_error();
  const auto self_tens = static_cast<std::size_t>(self.rank) * 10;
  for (std::size_t i = 0; i < got.size(); ++i) {
    const std::size_t sender = i % all, round = i / all;
    const auto number = static_cast<double>(sender * 100 + self_tens + round);
    const auto expected = encoded(ncclInt32, std::vector<double>(kCount, number));
    EXPECT_EQ(std::memcmp(got[i], expected.data(), expected.size()), 0) << i;
  }
  EXPECT_EQ(*reinterpret_cast<std::int32_t*>(sum), self.ranks * (self.ranks + 1) / 2);
  EXPECT_EQ(self.nccl.ncclCommDestroy(self.comm), ncclSuccess);
}

TEST(Collectives, EverybodySendsToEverybody) {
  EXPECT_THAT(run_ranks(2, check_exchange), Each(0));
  EXPECT_THAT(run_ranks(4, check_exchange), Each(0));
}

/// The first to go does not take with it what it has sent.
void check_leaving(Rank& self) {
  self.join();
  const std::size_t bytes = 4 * kLarge;
  std::vector<std::byte> content(bytes, std::byte{0x5a});
  std::byte* const array =
      self.nccl.device_copy(self.rank == 0 ? content : std::vector<std::byte>(bytes));
  ASSERT_EQ(self.nccl.ncclBcast(array, bytes, ncclInt8, 0, self.comm, self.stream), ncclSuccess);
  EXPECT_EQ(result(self, array, bytes), content);
}

TEST(Collectives, WhatWasSentArrivesAfterTheEnd) {
  EXPECT_THAT(run_ranks(3, check_leaving), Each(0));
  const auto destroying = [](Rank& self) {
    check_leaving(self);
    EXPECT_EQ(self.nccl.ncclCommDestroy(self.comm), ncclSuccess);
    self.meet();
  };
  EXPECT_THAT(run_ranks(3, destroying), Each(0));
}

TEST(Collectives, TakeTheInterfaceThatIsNamed) {
  const auto body = [](Rank& self) {
    self.join();
    check_all_reduce(self, ncclInt32, ncclSum, 100);
    EXPECT_EQ(self.nccl.ncclCommDestroy(self.comm), ncclSuccess);
  };
  EXPECT_THAT(run_ranks(2, body, {"NCCL_SOCKET_IFNAME==lo"}), Each(0));
}

TEST(Collectives, RunOnTwoStreamsOfOneCommunicator) {
  const auto body = [](Rank& self) {
    self.join();
    const auto other = self.nccl.make_stream();
    std::vector<std::byte*> arrays;
    for (int i = 0; i < 20; ++i) {
      arrays.push_back(self.nccl.device_copy(encoded(ncclFloat64, {i + 0.25 * self.rank})));
      ASSERT_EQ(self.nccl.ncclAllReduce(arrays.back(), arrays.back(), 1, ncclFloat64, ncclSum,
                                        self.comm, i % 2 == 0 ? self.stream : other),
                ncclSuccess);
    }
    EXPECT_EQ(self.nccl.stream_synchronize(other), cuda::CUDA_SUCCESS);
    EXPECT_EQ(self.finish(), ncclSuccess);
    for (int i = 0; i < 20; ++i)
      EXPECT_EQ(*reinterpret_cast<double*>(arrays[static_cast<std::size_t>(i)]), 2 * i + 0.25);
    EXPECT_EQ(self.nccl.ncclCommDestroy(self.comm), ncclSuccess);
  };
  EXPECT_THAT(run_ranks(2, body), Each(0));
}

}  // namespace
}  // namespace kansoku::softcuda::nccl
