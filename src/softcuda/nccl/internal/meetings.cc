// SPDX-License-Identifier: Apache-2.0
#include "softcuda/nccl/internal/meetings.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cstring>
#include <utility>

#include "common/check.h"

namespace kansoku::softcuda::nccl {
namespace {

static_assert(std::endian::native == std::endian::little);

std::vector<std::byte> answer(std::uint32_t code, ByteSpan content) {
  AnswerHead head;
  head.code = code;
  head.bytes = static_cast<std::uint32_t>(content.size());
  std::vector<std::byte> made(sizeof(head) + content.size());
  std::memcpy(made.data(), &head, sizeof(head));
  if (!content.empty()) std::memcpy(made.data() + sizeof(head), content.data(), content.size());
  return made;
}

std::string missing_rank(const std::map<std::uint32_t, std::uint64_t>& seats) {
  std::uint32_t rank = 0;
  while (seats.contains(rank))
    ++rank;
  return fmt::format("rank {}", rank);
}

}  // namespace

Result<JoinHead> parse_join(ByteSpan untrusted) {
  ByteReader reader(untrusted);
  TRY(const auto head, reader.read<JoinHead>("join"));
  if (head.magic != kJoinMagic) return Error{Code::kCorrupt, "read join: wrong magic"};
  if (head.ranks == 0 || head.ranks > kRanksMax || head.rank >= head.ranks)
    return Error{Code::kCorrupt, fmt::format("read join: rank {} of {}", head.rank, head.ranks)};
  if (head.address_bytes == 0 || head.address_bytes > kAddressBytesMax)
    return Error{Code::kCorrupt,
                 fmt::format("read join: addresses of {} bytes", head.address_bytes)};
  return head;
}

Error refusal_of(std::uint32_t code, std::string_view text) {
  if (code == kAnswerWelcome || code > 1 + static_cast<std::uint32_t>(Code::kInternal))
    return Error{Code::kCorrupt, "meet the other ranks: the answer is damaged"};
  return Error{static_cast<Code>(code - 1), fmt::format("meet the other ranks: {}", text)};
}

void Meetings::expect(std::uint64_t secret) {
  if (meetings_.size() >= kMeetingsMax) {
    const auto oldest = std::min_element(
        meetings_.begin(), meetings_.end(),
        [](const auto& a, const auto& b) { return a.second.number < b.second.number; });
    fail(oldest->second, {Code::kLimit, "too many ids are in use"});
    meetings_.erase(oldest);
  }
  meetings_[secret].number = next_meeting_++;
}

Meetings::GuestId Meetings::opened() {
  if (guests_.size() >= kGuestsMax) {
    const auto idle = std::find_if(guests_.begin(), guests_.end(),
                                   [](const auto& entry) { return !entry.second.is_seated; });
    if (idle != guests_.end()) dismiss(idle->first);
  }
  const GuestId id = next_guest_++;
  if (guests_.size() >= kGuestsMax) {
    letters_.push_back({id, {}});  // all places are taken by ranks that wait
    return id;
  }
  guests_[id].deadline = clock_.now() + kManners;
  return id;
}

void Meetings::dismiss(GuestId guest) {
  guests_.erase(guest);
  letters_.push_back({guest, {}});
}

void Meetings::refuse(GuestId guest, const Error& error) {
  guests_.erase(guest);
  const auto text = std::string_view(error.what).substr(0, kAnswerTextMax);
  letters_.push_back({guest, answer(1 + static_cast<std::uint32_t>(error.code), as_bytes(text))});
}

void Meetings::fail(Meeting& meeting, Error error) {
  meeting.has_failed = true;
  meeting.failure = std::move(error);
  for (const auto& [rank, guest] : meeting.seats)
    refuse(guest, meeting.failure);
  meeting.seats.clear();
}

/// True if the guest may go on; needs its first bytes.
bool Meetings::take_head(Guest& guest) {
  const auto head = parse_join(guest.inbox);
  if (!head || !meetings_.contains(head->secret)) return false;
  guest.head = *head;
  guest.has_head = true;
  return true;
}

void Meetings::received(GuestId id, ByteSpan untrusted) {
  const auto found = guests_.find(id);
  if (found == guests_.end()) return;
  Guest& guest = found->second;
  while (!untrusted.empty()) {
    if (guest.is_seated) {  // whoever talks on after its join is none of ours
      closed(id);
      return dismiss(id);
    }
    const std::size_t wanted =
        sizeof(JoinHead) +
        (guest.has_head ? std::size_t{guest.head.ranks} * guest.head.address_bytes : 0);
    const std::size_t taken = std::min(untrusted.size(), wanted - guest.inbox.size());
    guest.inbox.insert(guest.inbox.end(), untrusted.begin(),
                       untrusted.begin() + static_cast<std::ptrdiff_t>(taken));
    untrusted = untrusted.subspan(taken);
    if (guest.inbox.size() < wanted) return;
    if (!guest.has_head) {
      if (!take_head(guest)) return dismiss(id);
    } else {
      seat(id, guest);
      if (!guests_.contains(id)) return;
    }
  }
}

void Meetings::seat(GuestId id, Guest& guest) {
  const JoinHead& head = guest.head;
  const auto found = meetings_.find(head.secret);
  if (found == meetings_.end()) return dismiss(id);
  Meeting& meeting = found->second;
  if (meeting.has_failed) return refuse(id, meeting.failure);
  if (meeting.ranks == 0) {
    meeting.ranks = head.ranks;
    meeting.address_bytes = head.address_bytes;
  }
  guest.is_seated = true;
  guest.deadline = clock_.now() + std::chrono::milliseconds{head.timeout_ms};
  if (head.ranks != meeting.ranks || head.address_bytes != meeting.address_bytes) {
    refuse(id, {Code::kUnsupported, fmt::format("rank {} expects {} ranks, the others expect {}",
                                                head.rank, head.ranks, meeting.ranks)});
    return fail(meeting, {Code::kUnsupported, "the ranks disagree on the number of ranks"});
  }
  if (!meeting.seats.emplace(head.rank, id).second) {
    const Error error{Code::kUnsupported, fmt::format("rank {} joined twice", head.rank)};
    refuse(id, error);
    return fail(meeting, error);
  }
  if (meeting.seats.size() == meeting.ranks) conclude(head.secret, meeting);
}

/// All have come.
void Meetings::conclude(std::uint64_t secret, const Meeting& meeting) {
  const std::size_t bytes = meeting.address_bytes;
  std::vector<std::byte> table(meeting.ranks * bytes);
  for (const auto& [rank, guest] : meeting.seats) {
    for (const auto& [other, other_guest] : meeting.seats) {
      const auto& inbox = guests_.at(other_guest).inbox;
      std::memcpy(table.data() + other * bytes, inbox.data() + sizeof(JoinHead) + rank * bytes,
                  bytes);
    }
    letters_.push_back({guest, answer(kAnswerWelcome, table)});
  }
  for (const auto& [rank, guest] : meeting.seats)
    guests_.erase(guest);
  meetings_.erase(secret);
}

void Meetings::closed(GuestId id) {
  const auto found = guests_.find(id);
  if (found == guests_.end()) return;
  const JoinHead head = found->second.head;
  const bool was_seated = found->second.is_seated;
  guests_.erase(found);
  if (!was_seated) return;
  const auto meeting = meetings_.find(head.secret);
  if (meeting == meetings_.end()) return;
  meeting->second.seats.erase(head.rank);
  fail(meeting->second,
       {Code::kUnavailable, fmt::format("rank {} left before all ranks had joined", head.rank)});
}

void Meetings::expire() {
  const BootTime now = clock_.now();
  while (true) {
    const auto late = std::find_if(guests_.begin(), guests_.end(), [now](const auto& entry) {
      return entry.second.deadline <= now;
    });
    if (late == guests_.end()) return;
    const auto meeting = meetings_.find(late->second.head.secret);
    if (!late->second.is_seated || meeting == meetings_.end()) {
      dismiss(late->first);
      continue;
    }
    fail(meeting->second,
         {Code::kTimeout,
          fmt::format("{} of {} ranks joined within {} s; {} did not", meeting->second.seats.size(),
                      meeting->second.ranks, late->second.head.timeout_ms / 1000.0,
                      missing_rank(meeting->second.seats))});
  }
}

BootTime Meetings::next_deadline() const {
  BootTime next = BootTime::max();
  for (const auto& [id, guest] : guests_)
    next = std::min(next, guest.deadline);
  return next;
}

std::vector<Meetings::Letter> Meetings::take_letters() {
  return std::exchange(letters_, {});
}

}  // namespace kansoku::softcuda::nccl
