// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "common/result.h"
#include "common/stat.h"
#include "common/time.h"
#include "export/metrics.h"

namespace kansoku::exporter {

STAT(http_refused_requests, kNotice, kCapture,
     "requests of the wrong host, origin, path or size were refused; check who asks");

/// Request as a handler sees it. Everything in it is from outside.
struct HttpRequest {
  std::string method, path, body;
  std::map<std::string, std::string> query;  // decoded; of several with one name the first
  std::string accept;
};

struct HttpResponse {
  int status{200};
  std::string content_type{"application/json"};
  std::string body;
};

/// Runs on the server's threads, several at once: it must look after its own locks.
using HttpHandler = std::function<HttpResponse(const HttpRequest&)>;

struct HttpRoute {
  std::string method;  // "GET" or "POST"
  std::string path;    // letters, digits and /_-. only; exact
  HttpHandler handler;
};

/// GET /metrics: the board's latest snapshot in the format that the scraper asks for.
[[nodiscard]] HttpRoute metrics_route(const MetricBoard& board);
/// GET /healthz: 200 and "ok", or 503 and "not ok" while `is_healthy` says so.
[[nodiscard]] HttpRoute health_route(std::function<bool()> is_healthy);

struct HttpOptions {
  std::string address{"127.0.0.1"};  // an address of this machine; nobody else's reaches 127.0.0.1
  std::uint16_t port{0};             // 0: one that is free
  std::size_t thread_count{2};
  std::size_t waiting_max{8};  // accepted connections that wait for a thread
  std::size_t body_bytes_max{std::size_t{64} * 1024};
  Nanos timeout{std::chrono::seconds{5}};  // of one read and of one write
  // Limit of a whole connection, which is for one request: a client that sends a byte now and then
  // is cut off after this, at most a third later.
  Nanos connection_timeout{std::chrono::seconds{15}};
};

/// A small HTTP/1.1 server for scrapers and local tools; no TLS, no accounts. A server on loopback
/// answers requests for a loopback Host only (a page in a browser cannot name it otherwise), and
/// requests that change something never those of another origin.
class HttpServer {
 public:
  /// Binds and starts its threads. kUnavailable with the address if it cannot be bound, kCorrupt
  /// for a route that makes no sense.
  [[nodiscard]] static Result<std::unique_ptr<HttpServer>> start(const HttpOptions& options,
                                                                 std::vector<HttpRoute> routes);
  HttpServer(const HttpServer&) = delete;
  HttpServer& operator=(const HttpServer&) = delete;
  /// Ends open connections and joins the threads; waits for handlers that run.
  ~HttpServer();

  [[nodiscard]] std::uint16_t port() const;
  struct Counts {
    std::uint64_t served{0}, refused{0};  // answers below 400; those above, bodies too long aside
  };
  [[nodiscard]] Counts counts() const;

 private:
  struct Impl;
  explicit HttpServer(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace kansoku::exporter
