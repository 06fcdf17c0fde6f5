// SPDX-License-Identifier: Apache-2.0
#include "export/http_post.h"

#include <fmt/format.h>
#include <httplib.h>

#include <algorithm>
#include <condition_variable>
#include <list>
#include <mutex>
#include <optional>
#include <thread>

#include "common/parse.h"

namespace kansoku::exporter {
namespace {

constexpr std::size_t kAnswerBytesMax =
    std::size_t{64} * 1024;  // of the target's answer; the rest is not read

constexpr MetricDef kMessages{"kansoku_export_messages", "", MetricType::kCounter,
                              "Messages to a webhook or collector, by result."};
constexpr MetricDef kQueue{"kansoku_export_queue_length", "", MetricType::kGauge,
                           "Messages that wait for a webhook or collector."};

Error bad_url(std::string_view why) {
  return {Code::kCorrupt, fmt::format("address to post to: {}", why),
          "write it like http://127.0.0.1:9093/hook"};
}

bool is_plain(std::string_view text) {
  return std::all_of(text.begin(), text.end(), [](char c) { return c > ' ' && c < 0x7F; });
}

/// Splits "host:port", "[::1]:port" and either without a port.
Result<void> parse_authority(std::string_view text, HttpUrl& out) {
  std::string_view port;
  if (text.starts_with('[')) {
    const std::size_t end = text.find(']');
    if (end == std::string_view::npos) return bad_url("a bracket is not closed");
    out.host = text.substr(1, end - 1);
    port = text.substr(end + 1);
  } else {
    const std::size_t colon = text.find(':');
    out.host = text.substr(0, colon);
    port = colon == std::string_view::npos ? std::string_view{} : text.substr(colon);
  }
  if (out.host.empty()) return bad_url("no host");
  out.port = out.is_secure ? 443 : 80;
  if (port.empty()) return {};
  const auto number = parse_int<std::uint16_t>(port.substr(1));
  if (port.front() != ':' || !number || *number == 0) return bad_url("the port is not a number");
  out.port = *number;
  return {};
}

struct Message {
  std::string content_type, body;
  BootTime until;
};

enum class Outcome : std::uint8_t { kSent, kRetry, kRefused };

bool is_passing(int status) {
  return status == 408 || status == 429 || status >= 500;
}

}  // namespace

Result<HttpUrl> parse_http_url(std::string_view text) {
  if (text.size() > 2048) return bad_url("longer than 2,048 bytes");
  if (!is_plain(text)) return bad_url("contains blanks or control characters");
  HttpUrl out;
  const std::size_t scheme = text.find("://");
  if (scheme == std::string_view::npos) return bad_url("no http:// or https:// at its beginning");
  const std::string_view name = text.substr(0, scheme);
  if (name != "http" && name != "https")
    return Error{Code::kUnsupported, fmt::format("address to post to: scheme {}", name),
                 "http:// and https:// are known"};
  out.is_secure = name == "https";
  text.remove_prefix(scheme + 3);
  const std::size_t slash = text.find_first_of("/?#");
  const std::string_view authority = text.substr(0, slash);
  if (authority.find('@') != std::string_view::npos)
    return bad_url("contains an account; pass it as a header");
  TRY_VOID(parse_authority(authority, out));
  if (slash != std::string_view::npos) {
    const std::string_view rest = text.substr(slash, text.find('#') - slash);
    out.path = rest.starts_with('/') ? std::string(rest) : "/" + std::string(rest);
  }
  return out;
}

struct HttpPoster::Impl {
  HttpPostOptions options;
  HttpUrl url;
  const Clock& clock;
  std::unique_ptr<httplib::Client> client;  // the thread's; stop() from any
  mutable std::mutex mu;
  std::condition_variable wake, idle;
  std::list<Message> queue;   // guarded by mu; the front may be under way, so places are stable
  bool is_over{false};        // guarded by mu
  bool is_front_busy{false};  // guarded by mu: the front is being posted, and must stay
  Counts counts;              // guarded by mu, without queued
  std::thread thread;

  Impl(HttpPostOptions its_options, HttpUrl its_url, const Clock& its_clock)
      : options(std::move(its_options)), url(std::move(its_url)), clock(its_clock) {}
  [[nodiscard]] Result<void> start();
  void work();
  void finish_front(std::unique_lock<std::mutex>& lock, bool is_sent);
  [[nodiscard]] Outcome post(const Message& message, std::string& why);
  void stop();
};

Result<void> HttpPoster::Impl::start() {
  for (const auto& [name, value] : options.headers) {
    const bool is_value =
        std::all_of(value.begin(), value.end(), [](char c) { return c >= ' ' && c < 0x7F; });
    if (name.empty() || !is_plain(name) || name.find(':') != std::string::npos || !is_value)
      return Error{Code::kCorrupt, fmt::format("header to post with: {}: no such header", name)};
  }
  if (options.queue_max == 0 || options.timeout <= Nanos{0} || options.backoff_first <= Nanos{0})
    return Error{Code::kCorrupt, "post: queue, timeout and pauses must be above 0"};
  const bool is_v6 = url.host.find(':') != std::string::npos;
  const std::string host = is_v6 ? "[" + url.host + "]" : url.host;
  client = std::make_unique<httplib::Client>(
      fmt::format("{}://{}:{}", url.is_secure ? "https" : "http", host, url.port));
  if (!client->is_valid())
    return Error{Code::kUnsupported, "post to " + options.url + ": the address is not usable"};
  const auto timeout = std::chrono::duration_cast<std::chrono::microseconds>(options.timeout);
  client->set_connection_timeout(timeout);
  client->set_read_timeout(timeout);
  client->set_write_timeout(timeout);
  client->set_follow_location(false);
  client->set_keep_alive(true);
  client->enable_server_certificate_verification(true);
  if (!options.ca_file.empty()) client->set_ca_cert_path(options.ca_file.c_str());
  thread = std::thread([this] { work(); });
  return {};
}

Outcome HttpPoster::Impl::post(const Message& message, std::string& why) {
  httplib::Request request;
  request.method = "POST";
  request.path = url.path;
  request.body = message.body;
  for (const auto& [name, value] : options.headers)
    request.headers.emplace(name, value);
  request.headers.emplace("Content-Type", message.content_type);
  request.headers.emplace("User-Agent", "kansoku");
  std::size_t answer_bytes = 0;
  int status = 0;
  request.response_handler = [&](const httplib::Response& response) {
    status = response.status;
    return true;
  };
  request.content_receiver = [&](const char*, std::size_t bytes, std::uint64_t, std::uint64_t) {
    answer_bytes += bytes;
    return answer_bytes <= kAnswerBytesMax;
  };
  const httplib::Result result = client->send(request);
  // The status stands even where the body after it was too long or broke off.
  if (status == 0) {
    why = fmt::format("post to {}:{}: {}", url.host, url.port, httplib::to_string(result.error()));
    return Outcome::kRetry;
  }
  if (status >= 200 && status < 300) return Outcome::kSent;
  why = fmt::format("post to {}:{}: answer {}", url.host, url.port, status);
  return is_passing(status) ? Outcome::kRetry : Outcome::kRefused;
}

void HttpPoster::Impl::finish_front(std::unique_lock<std::mutex>&, bool is_sent) {
  ++(is_sent ? counts.sent : counts.failed);
  queue.pop_front();
  if (queue.empty()) idle.notify_all();
}

void HttpPoster::Impl::work() {
  Nanos pause = options.backoff_first;
  std::unique_lock lock(mu);
  for (;;) {
    wake.wait(lock, [&] { return is_over || !queue.empty(); });
    if (is_over) return;
    if (clock.now() >= queue.front().until) {
      finish_front(lock, false);
      continue;
    }
    is_front_busy = true;
    const Message& message = queue.front();  // stays where it is while the front is busy
    std::string why;
    lock.unlock();
    const Outcome outcome = post(message, why);
    lock.lock();
    is_front_busy = false;
    counts.last_error = why;
    if (is_over) return;
    if (outcome != Outcome::kRetry) {
      finish_front(lock, outcome == Outcome::kSent);
      pause = options.backoff_first;
      continue;
    }
    ++counts.retries;
    wake.wait_for(lock, pause, [&] { return is_over; });
    pause = std::min(pause * 2, options.backoff_max);
  }
}

void HttpPoster::Impl::stop() {
  {
    const std::lock_guard lock(mu);
    is_over = true;
  }
  wake.notify_all();
  idle.notify_all();
  if (client != nullptr) client->stop();
  if (thread.joinable()) thread.join();
}

Result<std::unique_ptr<HttpPoster>> HttpPoster::start(const HttpPostOptions& options,
                                                      const Clock& clock) {
  TRY(HttpUrl url, parse_http_url(options.url));
  auto impl = std::make_unique<Impl>(options, std::move(url), clock);
  TRY_VOID(impl->start());
  return std::unique_ptr<HttpPoster>(new HttpPoster(std::move(impl)));
}

HttpPoster::HttpPoster(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
HttpPoster::~HttpPoster() {
  impl_->stop();
}

void HttpPoster::post(std::string_view content_type, std::string body) {
  const BootTime until = impl_->clock.now() + impl_->options.deadline;
  const std::lock_guard lock(impl_->mu);
  std::list<Message>& queue = impl_->queue;
  if (body.size() > impl_->options.message_bytes_max) {
    ++impl_->counts.dropped;
    return;
  }
  if (queue.size() >= impl_->options.queue_max) {
    ++impl_->counts.dropped;
    // A message that is being posted cannot be taken back; the next one is the oldest then.
    if (impl_->is_front_busy && queue.size() == 1) return;
    queue.erase(std::next(queue.begin(), impl_->is_front_busy ? 1 : 0));
  }
  queue.push_back({std::string(content_type), std::move(body), until});
  impl_->wake.notify_one();
}

bool HttpPoster::drain(Nanos limit) {
  std::unique_lock lock(impl_->mu);
  return impl_->idle.wait_for(lock, limit, [&] { return impl_->queue.empty(); });
}

HttpPoster::Counts HttpPoster::counts() const {
  const std::lock_guard lock(impl_->mu);
  Counts out = impl_->counts;
  out.queued = impl_->queue.size();
  return out;
}

void add_post_metrics(MetricSet& set, std::string_view target, const HttpPoster::Counts& counts) {
  const auto count = [&](std::string_view outcome, std::uint64_t value) {
    set.add(kMessages, {{"target", std::string(target)}, {"outcome", std::string(outcome)}},
            static_cast<double>(value));
  };
  count("sent", counts.sent);
  count("failed", counts.failed);
  count("dropped", counts.dropped);
  count("retried", counts.retries);
  set.add(kQueue, {{"target", std::string(target)}}, static_cast<double>(counts.queued));
}

}  // namespace kansoku::exporter
