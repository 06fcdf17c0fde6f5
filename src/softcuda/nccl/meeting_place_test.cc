// SPDX-License-Identifier: Apache-2.0
#include "softcuda/nccl/internal/meeting_place.h"

#include <gtest/gtest.h>
#include <sys/socket.h>

#include <cstring>
#include <thread>

#include "common/rng.h"
#include "sys/clock.h"
#include "sys/port_for_test.h"
#include "sys/wait_for_test.h"

namespace kansoku::softcuda::nccl {
namespace {

constexpr std::uint32_t kAddressBytes = 8;
constexpr std::uint32_t kLongMs = 600'000;

class MeetingPlaceTest : public testing::Test {
 protected:
  void SetUp() override {
    auto opened = MeetingPlace::open(loopback(), clock_);
    ASSERT_TRUE(opened) << opened.error().what;
    place_ = *std::move(opened);
  }
  sys::Fd connect() {
    auto made = connect_to(loopback(), place_->port(), deadline());
    EXPECT_TRUE(made);
    return *std::move(made);
  }
  [[nodiscard]] Deadline deadline() const { return {clock_, clock_.now() + sys::kPatienceForTest}; }
  Result<std::vector<std::byte>> join(const Invitation& invitation, std::uint32_t rank,
                                      std::uint32_t ranks, std::uint32_t timeout_ms = kLongMs) {
    const std::vector<std::byte> addresses(std::size_t{ranks} * kAddressBytes,
                                           static_cast<std::byte>(rank + 1));
    JoinHead head;
    head.secret = invitation.secret;
    head.rank = rank;
    head.ranks = ranks;
    head.timeout_ms = timeout_ms;
    head.address_bytes = kAddressBytes;
    return join_meeting(connect(), head, addresses, clock_);
  }
  /// The peer hangs up.
  void expect_end(const sys::Fd& connection) {
    std::byte byte{};
    EXPECT_EQ(receive_all(connection, {&byte, 1}, deadline()).error().code, Code::kUnavailable);
  }
  sys::RealClock clock_;
  std::unique_ptr<MeetingPlace> place_;
};

TEST_F(MeetingPlaceTest, RanksMeet) {
  const auto invitation = *place_->invite();
  EXPECT_EQ(invitation.port, place_->port());
  constexpr std::uint32_t kRanks = 4;
  std::vector<std::thread> threads;
  for (std::uint32_t rank = 0; rank < kRanks; ++rank) {
    threads.emplace_back([&, rank] {
      const auto table = join(invitation, rank, kRanks);
      ASSERT_TRUE(table) << table.error().what;
      for (std::size_t other = 0; other < kRanks; ++other)
        EXPECT_EQ((*table)[other * kAddressBytes], static_cast<std::byte>(other + 1));
    });
  }
  for (auto& thread : threads)
    thread.join();
}

TEST_F(MeetingPlaceTest, WaitsNoLongerThanAsked) {
  const auto table = join(*place_->invite(), 0, 2, 20);
  ASSERT_FALSE(table);
  EXPECT_EQ(table.error().code, Code::kTimeout);
  EXPECT_EQ(table.error().what,
            "meet the other ranks: 1 of 2 ranks joined within 0.02 s; rank 1 did not");
}

TEST_F(MeetingPlaceTest, WrongSecretsGetNothing) {
  auto invitation = *place_->invite();
  ++invitation.secret;
  EXPECT_EQ(join(invitation, 0, 1).error().code, Code::kUnavailable);
}

TEST_F(MeetingPlaceTest, SurvivesHostileBytes) {
  const auto invitation = *place_->invite();
  Rng rng(7);
  for (int round = 0; round < 200; ++round) {
    const auto connection = connect();
    std::vector<std::byte> bytes(rng.below(4000) + sizeof(JoinHead));
    for (auto& byte : bytes)
      byte = static_cast<std::byte>(rng.next_u64());
    if (round % 2 == 0) {
      // Half of them know how a join begins.
      JoinHead head;
      head.secret = rng.next_u64();
      head.ranks = static_cast<std::uint32_t>(rng.next_u64());
      head.address_bytes = static_cast<std::uint32_t>(rng.next_u64());
      std::memcpy(bytes.data(), &head, sizeof(head));
    }
    // The place may hang up in the middle of it.
    if (!send_all(connection, bytes, deadline())) continue;
    expect_end(connection);
  }
  const auto table = join(invitation, 0, 1);
  EXPECT_TRUE(table) << table.error().what;
}

TEST_F(MeetingPlaceTest, WhoHangsUpIsMissed) {
  const auto invitation = *place_->invite();
  std::thread first([&] {
    const auto table = join(invitation, 0, 3);
    ASSERT_FALSE(table);
    EXPECT_EQ(table.error().code, Code::kUnavailable);
    EXPECT_EQ(table.error().what, "meet the other ranks: rank 1 left before all ranks had joined");
  });
  {
    JoinHead head;
    head.secret = invitation.secret;
    head.rank = 1;
    head.ranks = 3;
    head.timeout_ms = kLongMs;
    head.address_bytes = kAddressBytes;
    std::vector<std::byte> bytes(sizeof(head) + std::size_t{3} * kAddressBytes);
    std::memcpy(bytes.data(), &head, sizeof(head));
    EXPECT_TRUE(send_all(connect(), bytes, deadline()));
  }
  first.join();
}

TEST_F(MeetingPlaceTest, DestructionHangsUp) {
  const auto connection = connect();
  place_.reset();
  expect_end(connection);
}

TEST(MeetingPlace, NobodyListens) {
  const sys::RealClock clock;
  const Deadline deadline{clock, clock.now() + sys::kPatienceForTest};
  const sys::PortForTest port;
  const auto none = connect_to(loopback(), port.number(), deadline);
  ASSERT_FALSE(none);
  EXPECT_EQ(none.error().code, Code::kUnavailable);
  const sys::Fd server = port.silent_server();
  EXPECT_TRUE(connect_to(loopback(), port.number(), deadline));
}

}  // namespace
}  // namespace kansoku::softcuda::nccl
