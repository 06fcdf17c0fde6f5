// SPDX-License-Identifier: Apache-2.0
#include "softcuda/nccl/internal/meetings.h"

#include <gtest/gtest.h>

#include <cstring>

#include "softcuda/nccl/internal/invitation.h"
#include "softcuda/nccl/internal/net.h"

namespace kansoku::softcuda::nccl {
namespace {

constexpr std::uint64_t kSecret = 0x1234567890abcdefULL;
constexpr std::uint32_t kMeetingAddressBytes = 4;

/// A join whose address for rank j is {rank, j, 0, 0}.
std::vector<std::byte> join_bytes(std::uint32_t rank, std::uint32_t ranks,
                                  std::uint64_t secret = kSecret, std::uint32_t timeout_ms = 3000) {
  JoinHead head;
  head.secret = secret;
  head.rank = rank;
  head.ranks = ranks;
  head.timeout_ms = timeout_ms;
  head.address_bytes = kMeetingAddressBytes;
  std::vector<std::byte> bytes(sizeof(head) + std::size_t{ranks} * kMeetingAddressBytes);
  std::memcpy(bytes.data(), &head, sizeof(head));
  for (std::uint32_t to = 0; to < ranks; ++to) {
    bytes[sizeof(head) + std::size_t{to} * kMeetingAddressBytes] = static_cast<std::byte>(rank);
    bytes[sizeof(head) + std::size_t{to} * kMeetingAddressBytes + 1] = static_cast<std::byte>(to);
  }
  return bytes;
}

struct Answer {
  std::uint32_t code;
  std::vector<std::byte> content;
};
Answer parse(const Meetings::Letter& letter) {
  AnswerHead head;
  EXPECT_GE(letter.bytes.size(), sizeof(head));
  std::memcpy(&head, letter.bytes.data(), sizeof(head));
  EXPECT_EQ(head.magic, kAnswerMagic);
  EXPECT_EQ(head.bytes, letter.bytes.size() - sizeof(head));
  return {head.code, {letter.bytes.begin() + sizeof(head), letter.bytes.end()}};
}
std::string reason(const Meetings::Letter& letter) {
  const Answer answer = parse(letter);
  return refusal_of(answer.code, as_text(answer.content)).what;
}

class MeetingsTest : public testing::Test {
 protected:
  Meetings::GuestId come(const std::vector<std::byte>& bytes) {
    const auto guest = meetings_.opened();
    meetings_.received(guest, bytes);
    return guest;
  }
  ManualClock clock_;
  Meetings meetings_{clock_};
};

TEST_F(MeetingsTest, GivesEachRankWhereTheOthersWaitForIt) {
  meetings_.expect(kSecret);
  std::vector<Meetings::GuestId> guests;
  for (const std::uint32_t rank : {2U, 0U, 1U}) {
    EXPECT_TRUE(meetings_.take_letters().empty());
    guests.push_back(come(join_bytes(rank, 3)));
  }
  const auto letters = meetings_.take_letters();
  ASSERT_EQ(letters.size(), 3U);
  for (std::size_t rank = 0; rank < 3; ++rank) {
    const Answer answer = parse(letters[rank]);
    EXPECT_EQ(letters[rank].to, guests[(rank + 1) % 3]);
    ASSERT_EQ(answer.code, kAnswerWelcome);
    ASSERT_EQ(answer.content.size(), 3 * kMeetingAddressBytes);
    for (std::size_t other = 0; other < 3; ++other) {
      EXPECT_EQ(answer.content[other * kMeetingAddressBytes], static_cast<std::byte>(other));
      EXPECT_EQ(answer.content[other * kMeetingAddressBytes + 1], static_cast<std::byte>(rank));
    }
  }
  EXPECT_EQ(meetings_.guest_count(), 0U);
  EXPECT_EQ(meetings_.meeting_count(), 0U);
}

TEST_F(MeetingsTest, TakesBytesOneByOne) {
  meetings_.expect(kSecret);
  const auto guest = meetings_.opened();
  for (const std::byte byte : join_bytes(0, 1)) {
    EXPECT_TRUE(meetings_.take_letters().empty());
    meetings_.received(guest, {&byte, 1});
  }
  EXPECT_EQ(parse(meetings_.take_letters().at(0)).code, kAnswerWelcome);
}

TEST_F(MeetingsTest, WhoDoesNotKnowASecretGetsNoAnswer) {
  meetings_.expect(kSecret);
  come(join_bytes(0, 2, kSecret + 1));
  come(std::vector<std::byte>(5000, std::byte{'G'}));
  const auto letters = meetings_.take_letters();
  ASSERT_EQ(letters.size(), 2U);
  EXPECT_TRUE(letters[0].bytes.empty());
  EXPECT_TRUE(letters[1].bytes.empty());
  EXPECT_EQ(meetings_.guest_count(), 0U);
}

TEST_F(MeetingsTest, HeadsOutOfBoundsAreRefused) {
  const auto parsed = [](auto change) {
    JoinHead head;
    head.ranks = 2;
    head.address_bytes = 16;
    change(head);
    return parse_join(std::as_bytes(std::span(&head, 1))).has_value();
  };
  EXPECT_TRUE(parsed([](JoinHead&) {}));
  EXPECT_FALSE(parsed([](JoinHead& head) { head.magic = 1; }));
  EXPECT_FALSE(parsed([](JoinHead& head) { head.ranks = 0; }));
  EXPECT_FALSE(parsed([](JoinHead& head) { head.rank = 2; }));
  EXPECT_TRUE(parsed([](JoinHead& head) { head.ranks = kRanksMax; }));
  EXPECT_FALSE(parsed([](JoinHead& head) { head.ranks = kRanksMax + 1; }));
  EXPECT_FALSE(parsed([](JoinHead& head) { head.address_bytes = 0; }));
  EXPECT_TRUE(parsed([](JoinHead& head) { head.address_bytes = kAddressBytesMax; }));
  EXPECT_FALSE(parsed([](JoinHead& head) { head.address_bytes = kAddressBytesMax + 1; }));
  EXPECT_FALSE(parse_join({}).has_value());
}

TEST_F(MeetingsTest, SaysWhoDidNotCome) {
  meetings_.expect(kSecret);
  come(join_bytes(0, 3));
  come(join_bytes(2, 3));
  clock_.advance(std::chrono::milliseconds{2999});
  meetings_.expire();
  EXPECT_TRUE(meetings_.take_letters().empty());
  EXPECT_EQ(meetings_.next_deadline(), clock_.now() + std::chrono::milliseconds{1});
  clock_.advance(std::chrono::milliseconds{1});
  meetings_.expire();
  const auto letters = meetings_.take_letters();
  ASSERT_EQ(letters.size(), 2U);
  EXPECT_EQ(reason(letters[0]),
            "meet the other ranks: 2 of 3 ranks joined within 3 s; rank 1 did not");
  EXPECT_EQ(meetings_.next_deadline(), BootTime::max());
  // A guest that comes too late is told the same at once.
  come(join_bytes(1, 3));
  EXPECT_EQ(reason(meetings_.take_letters().at(0)), reason(letters[0]));
}

TEST_F(MeetingsTest, SaysWhoLeft) {
  meetings_.expect(kSecret);
  come(join_bytes(0, 3));
  meetings_.closed(come(join_bytes(2, 3)));
  const auto letters = meetings_.take_letters();
  ASSERT_EQ(letters.size(), 1U);
  EXPECT_EQ(reason(letters[0]), "meet the other ranks: rank 2 left before all ranks had joined");
}

TEST_F(MeetingsTest, RanksMustAgree) {
  meetings_.expect(kSecret);
  come(join_bytes(0, 3));
  come(join_bytes(1, 2));
  auto letters = meetings_.take_letters();
  ASSERT_EQ(letters.size(), 2U);
  EXPECT_EQ(reason(letters[0]),
            "meet the other ranks: rank 1 expects 2 ranks, the others expect 3");
  EXPECT_EQ(reason(letters[1]), "meet the other ranks: the ranks disagree on the number of ranks");
  meetings_.expect(kSecret + 1);
  come(join_bytes(0, 3, kSecret + 1));
  come(join_bytes(0, 3, kSecret + 1));
  letters = meetings_.take_letters();
  ASSERT_EQ(letters.size(), 2U);
  EXPECT_EQ(reason(letters[0]), "meet the other ranks: rank 0 joined twice");
}

TEST_F(MeetingsTest, TalkingOnEndsTheMeeting) {
  meetings_.expect(kSecret);
  const auto other = come(join_bytes(1, 2));
  const std::byte more{};
  meetings_.received(other, {&more, 1});
  const auto letters = meetings_.take_letters();
  ASSERT_EQ(letters.size(), 1U);
  EXPECT_TRUE(letters[0].bytes.empty());
  EXPECT_EQ(meetings_.guest_count(), 0U);
}

TEST_F(MeetingsTest, SilentGuestsAreShownTheDoor) {
  const auto guest = meetings_.opened();
  clock_.advance(kManners);
  meetings_.expire();
  const auto letters = meetings_.take_letters();
  ASSERT_EQ(letters.size(), 1U);
  EXPECT_EQ(letters[0].to, guest);
  EXPECT_TRUE(letters[0].bytes.empty());
}

TEST_F(MeetingsTest, RanksKeepTheirPlacesWhenTheHouseIsFull) {
  meetings_.expect(kSecret);
  const auto rank = come(join_bytes(0, 2));
  for (std::size_t i = 1; i < kGuestsMax; ++i)
    static_cast<void>(meetings_.opened());
  EXPECT_EQ(meetings_.guest_count(), kGuestsMax);
  EXPECT_TRUE(meetings_.take_letters().empty());
  const auto last = come(join_bytes(1, 2));
  EXPECT_EQ(meetings_.guest_count(), kGuestsMax - 2);
  const auto letters = meetings_.take_letters();
  ASSERT_EQ(letters.size(), 3U);  // one that had not said a word, then the two
  EXPECT_TRUE(letters[0].bytes.empty());
  EXPECT_EQ(letters[1].to, rank);
  EXPECT_EQ(letters[2].to, last);
}

TEST_F(MeetingsTest, ForgetsTheOldestOfTooManyIds) {
  for (std::uint64_t i = 0; i < kMeetingsMax; ++i)
    meetings_.expect(kSecret + i);
  come(join_bytes(0, 2));
  EXPECT_TRUE(meetings_.take_letters().empty());
  meetings_.expect(kSecret - 1);
  EXPECT_EQ(meetings_.meeting_count(), kMeetingsMax);
  EXPECT_EQ(reason(meetings_.take_letters().at(0)),
            "meet the other ranks: too many ids are in use");
}

TEST(Invitation, SurvivesTheId) {
  Invitation invitation{loopback(), 4711, kSecret};
  EXPECT_EQ(*to_invitation(to_unique_id(invitation)), invitation);
  invitation.host.is_v6 = true;
  invitation.host.bytes.fill(7);
  EXPECT_EQ(*to_invitation(to_unique_id(invitation)), invitation);
}

TEST(Invitation, DamageIsSeen) {
  ncclUniqueId id{};
  EXPECT_EQ(to_invitation(id).error().code, Code::kCorrupt);
  id = to_unique_id({loopback(), 0, kSecret});
  EXPECT_EQ(to_invitation(id).error().code, Code::kCorrupt);
  id = to_unique_id({loopback(), 4711, kSecret});
  id.internal[8] = 2;  // the format
  EXPECT_EQ(to_invitation(id).error().code, Code::kUnsupported);
  id = to_unique_id({loopback(), 4711, kSecret});
  id.internal[12] = 5;  // the family
  EXPECT_EQ(to_invitation(id).error().code, Code::kCorrupt);
}

TEST(Net, FiltersInterfacesAsTheVariableSays) {
  EXPECT_TRUE(admits("eth", "eth0"));
  EXPECT_TRUE(admits("ib,eth", "eth0"));
  EXPECT_FALSE(admits("ib,en", "eth0"));
  EXPECT_TRUE(admits("=eth0", "eth0"));
  EXPECT_FALSE(admits("=eth", "eth0"));
  EXPECT_FALSE(admits("^eth", "eth0"));
  EXPECT_TRUE(admits("^docker,lo", "eth0"));
  EXPECT_FALSE(admits("^docker,lo", "lo"));
  EXPECT_TRUE(admits("^=eth", "eth0"));
  EXPECT_FALSE(admits("", "eth0"));
  EXPECT_FALSE(admits(",", "eth0"));
  EXPECT_EQ(text_of(*interface_address("=lo")), "127.0.0.1");
  EXPECT_EQ(interface_address("=no_such").error().code, Code::kNotFound);
}

}  // namespace
}  // namespace kansoku::softcuda::nccl
