// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>

#include "common/result.h"
#include "common/stat.h"
#include "common/time.h"

namespace kansoku::fleet {

STAT(bus_dropped_outgoing, kDataLoss, kCapture,
     "messages for other hosts were dropped while the server was away or slow");
STAT(bus_dropped_incoming, kDataLoss, kImport,
     "messages of other hosts arrived faster than they were handled; poll more often");

/// Message of a bus. Any bytes.
struct BusMessage {
  std::string subject;
  std::string reply;  // subject of the answer; empty: none is awaited
  std::string bytes;
};

/// How a bus is doing.
struct BusStatus {
  bool is_connected{false};
  std::uint64_t sent{0};              // handed to the network
  std::uint64_t received{0};          // put into the inbox
  std::uint64_t dropped_outgoing{0};  // bus_dropped_outgoing
  std::uint64_t dropped_incoming{0};  // bus_dropped_incoming
  std::uint64_t connects{0};          // times a connection was made
  std::uint64_t failed_connects{0};
  std::size_t queued_messages{0};  // wait to be sent
  std::string last_error;          // of the connection; never a secret
};

struct BusLimits {
  std::size_t outgoing_bytes{8U << 20};  // wait while the server is away; the oldest are dropped
  std::size_t outgoing_messages{4096};
  std::size_t incoming_bytes{256U << 20};  // wait for poll; the newest are dropped
  std::size_t incoming_messages{65'536};
};

/// Messages between hosts: at most once, in order from one publisher to one subscription. Subjects
/// are words between dots (letters, digits, "-", "_", "$"); in a pattern "*" stands for one word
/// and a last ">" for one or more. Handlers run in `poll`, on its thread, one at a time, and may
/// call every method but `poll`. Nothing here waits for the network but `poll` and `flush`. One
/// thread. Source: subjects and patterns as NATS has them.
class Bus {
 public:
  using Handler = std::function<void(const BusMessage&)>;
  using ReplyHandler = std::function<void(Result<std::string>)>;
  using SubscriptionId = std::uint64_t;
  static constexpr std::size_t kPayloadBytesMax = 1'000'000;
  static constexpr std::size_t kSubjectBytesMax = 256;
  static constexpr std::size_t kRequestsMax = 4096;  // unanswered

  Bus() = default;
  Bus(const Bus&) = delete;
  Bus& operator=(const Bus&) = delete;
  virtual ~Bus() = default;

  /// Sends `bytes` to all who subscribed; whether anybody did is not known. Success says only that
  /// the message was queued. kUnsupported: not a subject; kLimit: more than kPayloadBytesMax.
  [[nodiscard]] virtual Result<void> publish(std::string_view subject, std::string_view bytes) = 0;
  /// Calls `handler` for messages whose subject fits `pattern`, from about now on.
  [[nodiscard]] virtual Result<SubscriptionId> subscribe(std::string_view pattern,
                                                         Handler handler) = 0;
  virtual void unsubscribe(SubscriptionId id) = 0;
  /// Publishes with a reply subject; `handler` is called exactly once in `poll`: with the first
  /// answer, kUnavailable if nobody subscribed, kTimeout after `deadline` (also while the server is
  /// away), or not at all if the bus is destroyed before. kLimit: kRequestsMax wait already.
  [[nodiscard]] virtual Result<void> request(std::string_view subject, std::string_view bytes,
                                             Nanos deadline, ReplyHandler handler) = 0;
  /// Runs the handlers of messages that have arrived and of requests that ran out of time. Waits up
  /// to `wait` for the first. Returns how many ran.
  virtual std::size_t poll(Nanos wait) = 0;
  /// Waits until all that was published has reached the server, at most `deadline`: kTimeout.
  [[nodiscard]] virtual Result<void> flush(Nanos deadline) = 0;
  [[nodiscard]] virtual BusStatus status() const = 0;

  /// Publishes an answer to `message`; nothing if none is awaited.
  [[nodiscard]] Result<void> respond(const BusMessage& message, std::string_view bytes) {
    if (message.reply.empty()) return {};
    return publish(message.reply, bytes);
  }
};

/// True if `subject` can be published to, or `pattern` subscribed to.
[[nodiscard]] bool is_subject(std::string_view subject);
[[nodiscard]] bool is_subject_pattern(std::string_view pattern);
/// True if a message to `subject` is for `pattern`. Both are well-formed.
[[nodiscard]] bool subject_fits(std::string_view pattern, std::string_view subject);
/// `text` (a host, the key of a job) as one word of a subject: other bytes become "_". Never empty.
[[nodiscard]] std::string subject_word(std::string_view text);

}  // namespace kansoku::fleet
