// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "common/bytes.h"
#include "common/result.h"
#include "common/time.h"

namespace kansoku::softcuda::nccl {

inline constexpr std::uint32_t kRanksMax = 256;  // of a communicator: each is connected to each
inline constexpr std::uint32_t kAddressBytesMax = 256;  // of one rank's address for another
inline constexpr std::size_t kGuestsMax = 1024;         // connections at a time
inline constexpr std::size_t kMeetingsMax = 4096;       // ids that wait for their ranks
// To say who one is, to take an answer: on a busy machine, too.
inline constexpr Nanos kManners = std::chrono::minutes{2};

// A rank's message when it comes, and the answer. Fields are little-endian.
inline constexpr std::uint64_t kJoinMagic = 0x314e494f4a4b534bULL;    // "KSKJOIN1"
inline constexpr std::uint64_t kAnswerMagic = 0x31524e534e4b534bULL;  // "KSKNSNR1"

/// Followed by `ranks` addresses of `address_bytes` each: at place i the one for rank i.
struct JoinHead {
  std::uint64_t magic{kJoinMagic};
  std::uint64_t secret{0};
  std::uint32_t rank{0}, ranks{0};
  std::uint32_t timeout_ms{0};
  std::uint32_t address_bytes{0};
};
static_assert(sizeof(JoinHead) == 32);

/// Followed, if `code` is kAnswerWelcome, by the addresses that the others have for this rank, at
/// place i that of rank i; else by the reason as text.
struct AnswerHead {
  std::uint64_t magic{kAnswerMagic};
  std::uint32_t code{0};
  std::uint32_t bytes{0};
};
static_assert(sizeof(AnswerHead) == 16);
inline constexpr std::uint32_t kAnswerWelcome = 0;  // else 1 + Code
inline constexpr std::uint32_t kAnswerTextMax = 1024;

/// The head of a join that is within the limits above; kCorrupt otherwise.
[[nodiscard]] Result<JoinHead> parse_join(ByteSpan untrusted);
/// A refusal (code and text that an answer carries) as an Error.
[[nodiscard]] Error refusal_of(std::uint32_t code, std::string_view text);

/// Brings the ranks of communicators together: the first that knows an id's secret decides how many
/// must come; once all are there, each is sent the addresses that the others have for it. Knows no
/// sockets: bytes come in, letters go out. Whoever does not know a secret is shown the door without
/// an answer. Not synchronised.
class Meetings {
 public:
  using GuestId = std::uint64_t;
  /// The last thing a guest is sent; then the connection is to be closed. Empty: at once.
  struct Letter {
    GuestId to{0};
    std::vector<std::byte> bytes;
  };

  explicit Meetings(const Clock& clock) : clock_(clock) {}

  /// From now on ranks may come with `secret`. Beyond kMeetingsMax, the oldest is forgotten.
  void expect(std::uint64_t secret);

  [[nodiscard]] GuestId opened();
  void received(GuestId guest, ByteSpan untrusted);
  /// The connection is gone; of an unknown guest it means nothing.
  void closed(GuestId guest);
  /// Ends the waiting of those whose time is up.
  void expire();
  /// When expire() is next of use; BootTime::max() if nobody waits.
  [[nodiscard]] BootTime next_deadline() const;
  /// Letters to send since the last call. Their guests are forgotten. Such guests are forgotten.
  [[nodiscard]] std::vector<Letter> take_letters();

  [[nodiscard]] std::size_t guest_count() const { return guests_.size(); }
  [[nodiscard]] std::size_t meeting_count() const { return meetings_.size(); }

 private:
  struct Guest {
    BootTime deadline;
    std::vector<std::byte> inbox;
    JoinHead head{};
    bool has_head{false}, is_seated{false};
  };
  struct Meeting {
    std::uint64_t number{0};                   // in order of invitation
    std::uint32_t ranks{0}, address_bytes{0};  // 0: nobody has come yet
    std::map<std::uint32_t, GuestId> seats;
    bool has_failed{false};
    Error failure{};
  };
  void dismiss(GuestId guest);
  void refuse(GuestId guest, const Error& error);
  void fail(Meeting& meeting, Error error);
  bool take_head(Guest& guest);
  void seat(GuestId id, Guest& guest);
  void conclude(std::uint64_t secret, const Meeting& meeting);

  const Clock& clock_;
  GuestId next_guest_{1};
  std::uint64_t next_meeting_{1};
  std::map<GuestId, Guest> guests_;
  std::map<std::uint64_t, Meeting> meetings_;  // by secret
  std::vector<Letter> letters_;
};

}  // namespace kansoku::softcuda::nccl
