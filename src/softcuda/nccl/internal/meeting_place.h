// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <map>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "common/result.h"
#include "common/time.h"
#include "softcuda/nccl/internal/invitation.h"
#include "softcuda/nccl/internal/meetings.h"
#include "softcuda/nccl/internal/net.h"

namespace kansoku::softcuda::nccl {

/// Meetings at a TCP port of this process, served by one thread until destruction. Bytes that come
/// there are hostile until they know a secret. Any thread.
class MeetingPlace {
 public:
  /// `clock` outlives it.
  [[nodiscard]] static Result<std::unique_ptr<MeetingPlace>> open(const HostAddress& host,
                                                                  const Clock& clock);
  MeetingPlace(const MeetingPlace&) = delete;
  MeetingPlace& operator=(const MeetingPlace&) = delete;
  ~MeetingPlace();

  /// A new id's invitation. Fails without random numbers.
  [[nodiscard]] Result<Invitation> invite();

  [[nodiscard]] const HostAddress& host() const { return host_; }
  [[nodiscard]] std::uint16_t port() const { return listener_.port; }

 private:
  struct Connection {
    sys::Fd fd;
    Meetings::GuestId guest{0};
    std::vector<std::byte> outbox;
    std::size_t sent{0};
    bool is_leaving{false};  // has its letter
    BootTime leave_by{};
  };
  MeetingPlace(const HostAddress& host, Listener listener, sys::Fd wake, const Clock& clock);
  void serve();
  void welcome();
  void read_from(Connection& connection);
  void write_to(Connection& connection);
  void deliver_letters();
  [[nodiscard]] int wait_ms();

  const HostAddress host_;
  const Listener listener_;
  const sys::Fd wake_;
  const Clock& clock_;
  std::vector<Connection> connections_;  // of the thread
  std::mutex mutex_;
  Meetings meetings_;       // guarded by mutex_
  bool is_closing_{false};  // guarded by mutex_
  std::thread thread_;
};

/// Comes to the meeting as `head.rank` (the secret is filled in) over `connection`; `addresses` as
/// a join carries them. Gives the addresses that the others have for this rank. Blocks until all
/// are there. kUnavailable, kTimeout; kUnsupported if the ranks do not fit together.
[[nodiscard]] Result<std::vector<std::byte>> join_meeting(const sys::Fd& connection,
                                                          const JoinHead& head, ByteSpan addresses,
                                                          const Clock& clock);

}  // namespace kansoku::softcuda::nccl
