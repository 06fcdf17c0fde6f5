// SPDX-License-Identifier: Apache-2.0
// Bytes of several guests at the place where ranks meet. The first byte of each step says who (its
// upper bits) does what (its lower two): comes, leaves, lets time pass, or says as many bytes as
// the next byte counts.
#include <algorithm>
#include <cstdint>
#include <cstring>
#include <vector>

#include "common/check.h"
#include "softcuda/nccl/internal/meetings.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using kansoku::ByteSpan;
  using kansoku::softcuda::nccl::Meetings;
  kansoku::ManualClock clock;
  Meetings meetings(clock);
  // Secrets that an input can hit.
  meetings.expect(0);
  meetings.expect(0x4141414141414141ULL);
  std::vector<Meetings::GuestId> guests;
  ByteSpan rest = std::as_bytes(std::span(data, size));
  while (!rest.empty()) {
    const auto step = std::to_integer<unsigned>(rest[0]);
    rest = rest.subspan(1);
    if (guests.empty() || (step & 3) == 0) guests.push_back(meetings.opened());
    const auto guest = guests[(step >> 2) % guests.size()];
    if ((step & 3) == 0) continue;
    if ((step & 3) == 1) {
      meetings.closed(guest);
    } else if ((step & 3) == 2) {
      clock.advance(std::chrono::milliseconds{step});
      meetings.expire();
    } else {
      const std::size_t wanted = rest.empty() ? 0 : std::to_integer<std::size_t>(rest[0]) + 1;
      const std::size_t count = std::min(rest.size(), wanted);
      if (count == 0) break;
      meetings.received(guest, rest.first(count).subspan(1));
      rest = rest.subspan(count);
    }
    for (const auto& letter : meetings.take_letters())
      CHECK(letter.bytes.size() <= 16 + std::size_t{256} * 256);
    CHECK(meetings.meeting_count() <= 2 && meetings.guest_count() <= guests.size());
  }
  return 0;
}
