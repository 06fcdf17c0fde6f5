// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "common/bytes.h"
#include "common/result.h"
#include "common/time.h"
#include "sys/fd.h"

namespace kansoku::softcuda::nccl {

/// An IPv4 or IPv6 address of a host.
struct HostAddress {
  bool is_v6{false};
  std::array<std::uint8_t, 16> bytes{};  // IPv4: the first four, the others 0
  friend bool operator==(const HostAddress&, const HostAddress&) = default;
};

/// 127.0.0.1.
[[nodiscard]] HostAddress loopback();
/// "10.0.0.1", "::1".
[[nodiscard]] std::string text_of(const HostAddress& address);

/// The address of the first interface that `filter` admits, in the form of NCCL_SOCKET_IFNAME:
/// names begin with one of "eth,ib"; are one of "=eth0,eth1"; do not begin with (are not) one of
/// "^docker"
/// ("^=lo"). IPv4 before IPv6; no link-local IPv6. kNotFound if there is none.
[[nodiscard]] Result<HostAddress> interface_address(std::string_view filter);
/// True if `filter` admits an interface of that name.
[[nodiscard]] bool admits(std::string_view filter, std::string_view name);

/// Until when something may take.
struct Deadline {
  const Clock& clock;
  BootTime at;
  /// For poll(2): the time left, rounded up, 0 if it has passed.
  [[nodiscard]] int left_ms() const;
  [[nodiscard]] bool has_passed() const { return clock.now() >= at; }
};

struct Listener {
  sys::Fd fd;
  std::uint16_t port{0};
};
/// Listens at a port that the kernel chooses; does not block.
[[nodiscard]] Result<Listener> listen_at(const HostAddress& address);
/// A connection, non-blocking. kUnavailable if nobody listens, kTimeout. Blocks.
[[nodiscard]] Result<sys::Fd> connect_to(const HostAddress& address, std::uint16_t port,
                                         const Deadline& deadline);
/// This end's address of a connection.
[[nodiscard]] Result<HostAddress> local_address(const sys::Fd& connection);

/// Sends all of `bytes`, receives exactly `to.size()` bytes, of a non-blocking connection. Block.
/// kUnavailable if the peer is gone, kTimeout.
[[nodiscard]] Result<void> send_all(const sys::Fd& connection, ByteSpan bytes,
                                    const Deadline& deadline);
[[nodiscard]] Result<void> receive_all(const sys::Fd& connection, std::span<std::byte> to,
                                       const Deadline& deadline);

}  // namespace kansoku::softcuda::nccl
