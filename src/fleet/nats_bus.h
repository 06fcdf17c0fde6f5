// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "common/time.h"
#include "fleet/bus.h"

namespace kansoku::fleet {

/// Address of a NATS server, and how to talk to it. Secrets stay in here: no error, status or log
/// holds them.
struct NatsOptions {
  /// "nats://host:port", "tls://host:port", several separated by commas; "user:password@" or
  /// "token@" before the host, %XX for other bytes. Without a scheme nats://, without a port 4222.
  std::string url{"nats://127.0.0.1:4222"};
  std::string user, password, token;       // instead of those of the URL
  std::string ca_file;                     // certificates that are trusted (PEM); switches TLS on
  std::string certificate_file, key_file;  // of this client (PEM), both or neither
  std::string client_name{"kansoku"};      // shown by the server
  Nanos connect_timeout{std::chrono::seconds{2}};
  Nanos backoff_first{std::chrono::milliseconds{100}};  // doubled each failure, with jitter
  Nanos backoff_max{std::chrono::seconds{30}};
  std::uint64_t seed{1};  // of the jitter: give each host another one
  BusLimits limits{};
};

/// A URL taken apart, without secrets in `servers`.
struct NatsServers {
  std::vector<std::string> servers;  // "nats://host:4222"
  bool uses_tls{false};
  std::string user, password, token;
};

/// Takes NatsOptions::url apart. kUnsupported names the mistake, without secrets: a scheme that is
/// neither nats nor tls, an empty host, servers with different credentials.
[[nodiscard]] Result<NatsServers> parse_nats_url(std::string_view untrusted);

/// A bus through a NATS server. Returns at once: connecting, and connecting again whenever the
/// server goes away, is done by a thread of its own, with growing pauses. Until then messages wait,
/// bounded; subscriptions hold over reconnects. Messages under way when a connection breaks are
/// lost. `clock` (borrowed, real) times requests. Its destructor may wait for `connect_timeout`.
/// kUnsupported: the URL, or TLS files that cannot be read.
[[nodiscard]] Result<std::unique_ptr<Bus>> connect_nats(const NatsOptions& options,
                                                        const Clock& clock);

}  // namespace kansoku::fleet
