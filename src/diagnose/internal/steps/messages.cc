// SPDX-License-Identifier: Apache-2.0
#include "diagnose/internal/steps/messages.h"

#include <algorithm>
#include <map>
#include <optional>
#include <tuple>
#include <utility>

namespace kansoku::diagnose {
namespace {

constexpr int kChannelShiftMax = 256;

using CallKind = MessageEvent::Kind;
using Seat = std::pair<trace::StringId, std::uint64_t>;

// Rank index by group and seat: each caller tells its own.
std::map<Seat, std::size_t> read_seats(const JobData& job) {
  std::map<Seat, std::size_t> seats;
  for (std::size_t r = 0; r < job.ranks.size(); ++r) {
    seats.emplace(Seat{{}, static_cast<std::uint64_t>(job.ranks[r].rank)}, r);
    for (const MessageEvent& event : job.ranks[r].messages)
      if (event.group != trace::StringId{}) seats.emplace(Seat{event.group, event.seat}, r);
  }
  return seats;
}

struct Posted {
  ChannelEnd time;
  std::uint64_t bytes{0};
  MessageEvent* wait{nullptr};  // of a receive
};

struct Channel {
  std::vector<Posted> sends, receives;
};
// From, to, group, tag.
using ChannelKey = std::tuple<std::size_t, std::size_t, trace::StringId, std::uint64_t>;
using Channels = std::map<ChannelKey, Channel>;

// The wait of each receive: the first one for its work, until that work's memory has another owner.
std::vector<MessageEvent*> receive_waits(RankData& rank) {
  std::vector<MessageEvent*> waits(rank.messages.size());
  std::map<std::uint64_t, std::size_t> owner;
  for (std::size_t i = 0; i < rank.messages.size(); ++i) {
    MessageEvent& event = rank.messages[i];
    if (event.work == 0) continue;
    if (event.kind != CallKind::kWait) {
      owner[event.work] = i;
      continue;
    }
    const auto posted = owner.find(event.work);
    if (posted != owner.end() && waits[posted->second] == nullptr) waits[posted->second] = &event;
  }
  return waits;
}

void add_posted(JobData& job, std::size_t r, const std::map<Seat, std::size_t>& seats,
                Channels& channels) {
  const std::vector<MessageEvent*> waits = receive_waits(job.ranks[r]);
  for (std::size_t i = 0; i < waits.size(); ++i) {
    MessageEvent& event = job.ranks[r].messages[i];
    if (event.kind == CallKind::kWait) continue;
    const bool is_send = event.kind == CallKind::kSend;
    const auto peer = seats.find({event.group, event.peer});
    if (peer != seats.end()) event.other = peer->second;
    if (waits[i] != nullptr) waits[i]->other = event.other;
    MessageEvent* const wait = waits[i];
    if (peer == seats.end() || peer->second == r || event.is_open || (wait && wait->is_open)) {
      ++(is_send ? job.sends_alone : job.receives_alone);
      continue;
    }
    const std::size_t from = is_send ? r : peer->second, to = is_send ? peer->second : r;
    Channel& channel = channels[{from, to, event.group, event.tag}];
    if (is_send) {
      channel.sends.push_back({{event.time.begin_ns, event.time.end_ns}, event.bytes, nullptr});
    } else {
      const Interval until = wait ? wait->time : event.time;
      channel.receives.push_back({{until.begin_ns, until.end_ns}, event.bytes, wait});
    }
  }
}

std::vector<ChannelEnd> times_of(const std::vector<Posted>& posted) {
  std::vector<ChannelEnd> out;
  out.reserve(posted.size());
  for (const Posted& one : posted)
    out.push_back(one.time);
  return out;
}

void match_channel(const ChannelKey& key, const Channel& channel, JobData& job) {
  const auto shift = channel_shift(times_of(channel.sends), times_of(channel.receives));
  std::size_t send = shift ? static_cast<std::size_t>(std::max(*shift, 0)) : channel.sends.size();
  std::size_t receive = shift ? static_cast<std::size_t>(std::max(-*shift, 0)) : 0;
  std::size_t count = 0;
  for (; send < channel.sends.size() && receive < channel.receives.size(); ++send, ++receive) {
    const Posted& sent = channel.sends[send];
    const Posted& received = channel.receives[receive];
    if (received.wait != nullptr) received.wait->sent_ns = sent.time.begin_ns;
    job.messages.push_back({std::get<0>(key), std::get<1>(key), sent.time.begin_ns,
                            received.time.begin_ns, received.time.done_ns,
                            std::max(sent.bytes, received.bytes)});
    ++count;
  }
  job.sends_alone += channel.sends.size() - count;
  job.receives_alone += channel.receives.size() - count;
}

}  // namespace

std::optional<int> channel_shift(const std::vector<ChannelEnd>& sends,
                                 const std::vector<ChannelEnd>& receives) {
  const auto agrees = [&](int shift) {
    std::size_t send = static_cast<std::size_t>(std::max(shift, 0));
    std::size_t receive = static_cast<std::size_t>(std::max(-shift, 0));
    if (send >= sends.size() || receive >= receives.size()) return false;
    for (; send < sends.size() && receive < receives.size(); ++send, ++receive)
      if (receives[receive].done_ns < sends[send].begin_ns) return false;
    return true;
  };
  if (sends.size() == receives.size() && agrees(0)) return 0;
  for (int shift = kChannelShiftMax; shift >= -kChannelShiftMax; --shift)
    if (agrees(shift)) return shift;
  return std::nullopt;
}

void match_messages(JobData& job) {
  const std::map<Seat, std::size_t> seats = read_seats(job);
  Channels channels;
  for (std::size_t r = 0; r < job.ranks.size(); ++r)
    add_posted(job, r, seats, channels);
  for (const auto& [key, channel] : channels)
    match_channel(key, channel, job);
  std::stable_sort(job.messages.begin(), job.messages.end(),
                   [](const Message& a, const Message& b) { return a.sent_ns < b.sent_ns; });
}

}  // namespace kansoku::diagnose
