// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "common/result.h"
#include "common/stat.h"
#include "common/time.h"
#include "export/metrics.h"

namespace kansoku::exporter {

STAT(post_dropped_messages, kDataLoss, kCapture,
     "messages to a webhook or collector were pushed out of a full queue; the target is down or "
     "slow");
STAT(post_failed_messages, kDataLoss, kCapture,
     "messages that a webhook or collector refused, or did not take within their deadline");

/// An http:// or https:// address in parts.
struct HttpUrl {
  bool is_secure{false};
  std::string host;  // without brackets
  std::uint16_t port{80};
  std::string path{"/"};  // with the query, if any
};

/// kUnsupported for another scheme, kCorrupt for a text that is no address: no host, accounts
/// ("user@"), blanks and control characters, over 2,048 bytes.
[[nodiscard]] Result<HttpUrl> parse_http_url(std::string_view text);

struct HttpPostOptions {
  std::string url;
  std::vector<std::pair<std::string, std::string>> headers;  // e.g. Authorization
  std::string ca_file;  // https: certificates to trust instead of the system's; empty: the system's
  std::size_t queue_max{256};                    // messages
  std::size_t message_bytes_max{4U << 20U};      // a longer one is dropped at once
  Nanos timeout{std::chrono::seconds{5}};        // of connecting, and of one read or write
  Nanos backoff_first{std::chrono::seconds{1}};  // doubles with every failure in a row
  Nanos backoff_max{std::chrono::minutes{1}};
  Nanos deadline{std::chrono::minutes{15}};  // of one message, since it was queued
};

/// Posts messages to one address in order, from one thread of its own. Answers 2xx are success;
/// 408, 429, 5xx and no answer are tried again with growing pauses until the message's deadline;
/// any other answer is a failure at once. Redirections are not followed. Memory is bounded by
/// queue_max * message_bytes_max.
class HttpPoster {
 public:
  /// kUnsupported or kCorrupt for an address, option or header that makes no sense. Does not
  /// connect. `clock` is borrowed.
  [[nodiscard]] static Result<std::unique_ptr<HttpPoster>> start(const HttpPostOptions& options,
                                                                 const Clock& clock);
  HttpPoster(const HttpPoster&) = delete;
  HttpPoster& operator=(const HttpPoster&) = delete;
  /// Gives up messages that are queued (counted as dropped) or under way.
  ~HttpPoster();

  /// Queues a message; never waits for the network. A full queue loses its oldest message. Any
  /// thread.
  void post(std::string_view content_type, std::string body);
  /// True once nothing is queued or under way; false if that took longer than `limit`. Blocks.
  [[nodiscard]] bool drain(Nanos limit);

  struct Counts {
    std::uint64_t sent{0}, failed{0}, dropped{0}, retries{0};
    std::size_t queued{0};   // now, the one under way included
    std::string last_error;  // of the latest failure; empty after a success
  };
  [[nodiscard]] Counts counts() const;

 private:
  struct Impl;
  explicit HttpPoster(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

/// Adds kansoku_export_messages{target, outcome} and kansoku_export_queue_length{target}.
void add_post_metrics(MetricSet& set, std::string_view target, const HttpPoster::Counts& counts);

}  // namespace kansoku::exporter
