// SPDX-License-Identifier: Apache-2.0
#include "softcuda/nccl/internal/link.h"

#include <gtest/gtest.h>

#include <array>
#include <thread>

#include "softcuda/nccl/internal/signals.h"
#include "sys/clock.h"
#include "sys/wait_for_test.h"

namespace kansoku::softcuda::nccl {
namespace {

/// Two ranks in this process.
class LinkTest : public testing::Test {
 protected:
  void connect(const std::string& host, Nanos timeout = sys::kPatienceForTest,
               std::uint64_t greeting = 5) {
    for (int rank = 0; rank < 2; ++rank) {
      auto opened = Link::open({rank, 2, host, timeout, sys::kPatienceForTest}, clock_);
      if (!opened) GTEST_SKIP() << opened.error().what;
      links_.at(static_cast<std::size_t>(rank)) = *std::move(opened);
    }
    // Addresses that each has for the other, in the place of the one who has it.
    const std::size_t bytes = links_[0]->address_bytes();
    std::array<std::vector<std::byte>, 2> tables;
    for (std::size_t rank = 0; rank < 2; ++rank) {
      const std::size_t other = 1 - rank;
      const ByteSpan theirs = links_.at(other)->addresses().subspan(rank * bytes, bytes);
      tables.at(rank).resize(2 * bytes);
      std::copy(theirs.begin(), theirs.end(),
                tables.at(rank).begin() + static_cast<std::ptrdiff_t>(other * bytes));
    }
    const bool is_right = greeting == 5;
    std::thread first([&] { EXPECT_EQ(is_right, links_[0]->connect(tables[0], 5).has_value()); });
    EXPECT_EQ(is_right, links_[1]->connect(tables[1], greeting).has_value());
    first.join();
  }
  const SigpipeBlocked quiet_;
  sys::RealClock clock_;
  std::array<std::unique_ptr<Link>, 2> links_;
};

void check_link_exchange(const std::array<std::unique_ptr<Link>, 2>& links) {
  std::array<std::byte, 100> sent{}, got{};
  sent.fill(std::byte{7});
  Exchange here(links[0].get()), there(links[1].get());
  // In any order, and what shares a slot in the order of posting.
  EXPECT_TRUE(there.receive(0, 11, got.data() + 50, 50));
  EXPECT_TRUE(here.send(1, 10, sent.data(), 20));
  sent[20] = std::byte{8};
  EXPECT_TRUE(here.send(1, 10, sent.data() + 20, 30));
  EXPECT_TRUE(here.send(1, 11, sent.data(), 50));
  EXPECT_TRUE(here.send(1, 12, sent.data(), 0));
  EXPECT_TRUE(there.receive(0, 10, got.data(), 20));
  EXPECT_TRUE(there.receive(0, 10, got.data() + 20, 30));
  EXPECT_TRUE(here.wait());
  EXPECT_TRUE(there.wait());
  sent[70] = std::byte{8};
  EXPECT_EQ(got, sent);
}

TEST_F(LinkTest, PassesBytes) {
  connect("127.0.0.1");
  check_link_exchange(links_);
}

TEST_F(LinkTest, PassesBytesOverIpv6) {
  connect("::1");
  if (links_[1] != nullptr) check_link_exchange(links_);
}

TEST_F(LinkTest, WaitsNoLongerThanAsked) {
  connect("127.0.0.1", std::chrono::milliseconds{50});
  std::byte byte{};
  Exchange exchange(links_[0].get());
  EXPECT_TRUE(exchange.receive(1, 1, &byte, 1));
  const auto waited = exchange.wait();
  ASSERT_FALSE(waited);
  EXPECT_EQ(waited.error().code, Code::kTimeout);
  EXPECT_EQ(waited.error().what, "rank 1 did not take part within 0.05 s");
  // The link is closed by that, on both sides.
  EXPECT_FALSE(exchange.receive(1, 2, &byte, 1));
  Exchange other(links_[1].get());
  const auto sent = other.send(0, 1, &byte, 1);
  EXPECT_FALSE(sent && other.wait());
}

TEST_F(LinkTest, ClosingWakesWhoWaits) {
  connect("127.0.0.1");
  std::byte byte{};
  Exchange exchange(links_[0].get());
  EXPECT_TRUE(exchange.receive(1, 1, &byte, 1));
  std::thread closer([&] { links_[0]->close(); });
  EXPECT_EQ(exchange.wait().error().code, Code::kUnavailable);
  closer.join();
}

/// Wherever a message is when its sender goes, its receiver hears of it.
TEST_F(LinkTest, ClosingInTheMiddle) {
  std::vector<std::byte> sent(std::size_t{8} << 20, std::byte{1}), got(sent.size());
  for (int round = 0; round < 30; ++round) {
    connect("127.0.0.1");
    Exchange here(links_[0].get()), there(links_[1].get());
    EXPECT_TRUE(there.send(0, 10, sent.data(), sent.size()));
    got.back() = std::byte{0};
    EXPECT_TRUE(here.receive(1, 10, got.data(), got.size()));
    if (round % 2 == 0) {
      EXPECT_TRUE(there.wait());  // written, perhaps not received yet
    }
    links_[1]->close();
    const auto waited = here.wait();
    EXPECT_EQ(waited.has_value(), got.back() == std::byte{1});
  }
}

TEST_F(LinkTest, StrangersAreNotRanks) {
  connect("127.0.0.1", sys::kPatienceForTest, 6);
}

TEST_F(LinkTest, DamagedTableIsRefused) {
  auto opened =
      Link::open({0, 2, "127.0.0.1", sys::kPatienceForTest, sys::kPatienceForTest}, clock_);
  ASSERT_TRUE(opened);
  EXPECT_EQ((*opened)->connect({}, 5).error().code, Code::kCorrupt);
  std::vector<std::byte> zeros(2 * (*opened)->address_bytes());
  EXPECT_EQ((*opened)->connect(zeros, 5).error().code, Code::kUnavailable);
}

TEST(Link, AddressMustBeOwn) {
  const sys::RealClock clock;
  const auto opened =
      Link::open({0, 2, "192.0.2.1", sys::kPatienceForTest, sys::kPatienceForTest}, clock);
  ASSERT_FALSE(opened);
  EXPECT_EQ(opened.error().what.find("open the network at 192.0.2.1: "), 0U);
}

}  // namespace
}  // namespace kansoku::softcuda::nccl
