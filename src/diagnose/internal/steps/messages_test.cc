// SPDX-License-Identifier: Apache-2.0
#include "diagnose/internal/steps/messages.h"

#include <gtest/gtest.h>

#include <vector>

namespace kansoku::diagnose {
namespace {

using CallKind = MessageEvent::Kind;

MessageEvent call(CallKind kind, std::int64_t begin_ns, std::uint64_t peer, std::uint64_t work,
                  std::uint64_t tag = 0) {
  MessageEvent out;
  out.kind = kind;
  out.time = {begin_ns, begin_ns + 10};
  out.peer = peer;
  out.work = work;
  out.tag = tag;
  return out;
}

MessageEvent wait(std::int64_t begin_ns, std::int64_t end_ns, std::uint64_t work) {
  MessageEvent out;
  out.time = {begin_ns, end_ns};
  out.work = work;
  return out;
}

JobData ranks(std::size_t count) {
  JobData job;
  job.ranks.resize(count);
  for (std::size_t r = 0; r < count; ++r)
    job.ranks[r].rank = static_cast<std::int32_t>(r);
  return job;
}

TEST(MatchMessages, AReceiveIsOverWhenItsWaitIs) {
  JobData job = ranks(2);
  job.ranks[0].messages = {call(CallKind::kSend, 300, 1, 7)};
  job.ranks[1].messages = {call(CallKind::kReceive, 100, 0, 9), wait(120, 350, 9)};
  match_messages(job);
  ASSERT_EQ(job.messages.size(), 1U);
  EXPECT_EQ(job.messages[0].from, 0U);
  EXPECT_EQ(job.messages[0].to, 1U);
  EXPECT_EQ(job.messages[0].sent_ns, 300);
  EXPECT_EQ(job.messages[0].awaited_ns, 120);
  EXPECT_EQ(job.messages[0].received_ns, 350);
  EXPECT_EQ(job.ranks[1].messages[1].sent_ns, 300);
}

// Memory of a work that is gone is the next one's.
TEST(MatchMessages, AWaitBelongsToTheNewestOwnerOfItsWork) {
  JobData job = ranks(2);
  job.ranks[0].messages = {call(CallKind::kSend, 10, 1, 5), call(CallKind::kSend, 400, 1, 6)};
  job.ranks[1].messages = {call(CallKind::kReceive, 20, 0, 9), wait(40, 50, 9),
                           call(CallKind::kReceive, 100, 0, 9), wait(120, 420, 9)};
  match_messages(job);
  ASSERT_EQ(job.messages.size(), 2U);
  EXPECT_EQ(job.messages[0].received_ns, 50);
  EXPECT_EQ(job.messages[1].received_ns, 420);
}

TEST(MatchMessages, TagsAreChannelsOfTheirOwn) {
  JobData job = ranks(2);
  job.ranks[0].messages = {call(CallKind::kSend, 10, 1, 5, 1), call(CallKind::kSend, 20, 1, 6, 2)};
  job.ranks[1].messages = {call(CallKind::kReceive, 30, 0, 8, 2),
                           call(CallKind::kReceive, 50, 0, 9, 1)};
  match_messages(job);
  ASSERT_EQ(job.messages.size(), 2U);
  EXPECT_EQ(job.messages[0].received_ns, 60);
  EXPECT_EQ(job.messages[1].received_ns, 40);
}

TEST(MatchMessages, SeatsOfAGroupAreThoseThatItsMembersTell) {
  JobData job = ranks(4);
  const auto in_group = [](MessageEvent event, std::uint32_t group, std::uint64_t seat) {
    event.group = {group};
    event.seat = seat;
    return event;
  };
  job.ranks[1].messages = {in_group(call(CallKind::kSend, 10, 1, 5), 3, 0)};
  job.ranks[3].messages = {in_group(call(CallKind::kReceive, 20, 0, 6), 3, 1)};
  job.ranks[2].messages = {in_group(call(CallKind::kReceive, 20, 0, 6), 4, 1)};
  match_messages(job);
  ASSERT_EQ(job.messages.size(), 1U);
  EXPECT_EQ(job.messages[0].from, 1U);
  EXPECT_EQ(job.messages[0].to, 3U);
  EXPECT_EQ(job.receives_alone, 1U);
}

TEST(MatchMessages, AnOpenWaitIsNoMessage) {
  JobData job = ranks(2);
  job.ranks[1].messages = {call(CallKind::kReceive, 100, 0, 9), wait(120, 350, 9)};
  job.ranks[1].messages[1].is_open = true;
  match_messages(job);
  EXPECT_TRUE(job.messages.empty());
  EXPECT_EQ(job.receives_alone, 1U);
}

std::vector<ChannelEnd> ends(std::initializer_list<std::int64_t> times) {
  std::vector<ChannelEnd> out;
  for (const std::int64_t time : times)
    out.push_back({time, time});
  return out;
}

TEST(ChannelShift, NothingIsReceivedBeforeItIsSent) {
  EXPECT_EQ(channel_shift(ends({10, 30, 50}), ends({15, 35, 55})), 0);
  EXPECT_EQ(channel_shift(ends({10, 30, 50, 70}), ends({35, 55, 75})), 1);
  EXPECT_EQ(channel_shift(ends({30, 50}), ends({15, 35, 55})), -1);
  EXPECT_EQ(channel_shift(ends({10, 30}), ends({15, 35, 55})), 0);
  // A receiver that is always one behind: both sides have as many.
  EXPECT_EQ(channel_shift(ends({10, 20, 30}), ends({25, 35, 45})), 0);
  EXPECT_EQ(channel_shift(ends({90}), ends({15})), std::nullopt);
  EXPECT_EQ(channel_shift({}, ends({15})), std::nullopt);
}

}  // namespace
}  // namespace kansoku::diagnose
