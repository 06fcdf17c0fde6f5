// SPDX-License-Identifier: Apache-2.0
#include "export/http_server.h"

#include <arpa/inet.h>
#include <dirent.h>
#include <httplib.h>
#include <sys/socket.h>

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <deque>
#include <map>
#include <mutex>
#include <thread>
#include <utility>

#include "common/parse.h"
#include "export/openmetrics.h"

namespace kansoku::exporter {
namespace {

/// A fixed number of threads and a short line before them: with the line full, accepting waits, and
/// the kernel's backlog bounds the rest. `busy` counts the threads that serve.
class BoundedQueue final : public httplib::TaskQueue {
 public:
  BoundedQueue(std::size_t thread_count, std::size_t waiting_max, std::atomic<int>& busy)
      : waiting_max_(waiting_max), busy_(busy) {
    for (std::size_t i = 0; i < thread_count; ++i)
      threads_.emplace_back([this] { work(); });
  }
  void enqueue(std::function<void()> task) override {
    std::unique_lock lock(mu_);
    room_.wait(lock, [&] { return tasks_.size() < waiting_max_ || is_over_; });
    tasks_.push_back(std::move(task));  // also at the end: the task closes its connection
    work_.notify_one();
  }
  void shutdown() override {
    {
      const std::lock_guard lock(mu_);
      is_over_ = true;
    }
    work_.notify_all();
    room_.notify_all();
    for (std::thread& thread : threads_)
      thread.join();
  }

 private:
  void work() {
    for (;;) {
      std::function<void()> task;
      {
        std::unique_lock lock(mu_);
        work_.wait(lock, [&] { return !tasks_.empty() || is_over_; });
        if (tasks_.empty()) return;
        task = std::move(tasks_.front());
        tasks_.pop_front();
      }
      room_.notify_one();
      ++busy_;
      task();
      --busy_;
    }
  }

  std::size_t waiting_max_;
  std::atomic<int>& busy_;
  std::mutex mu_;
  std::condition_variable work_, room_;
  std::deque<std::function<void()>> tasks_;  // guarded by mu_
  bool is_over_{false};                      // guarded by mu_
  std::vector<std::thread> threads_;
};

bool is_loopback(std::string_view host) {
  if (host == "localhost" || host == "::1" || host == "[::1]") return true;
  // The address itself, not a name that begins like one.
  in_addr address{};
  return ::inet_pton(AF_INET, std::string(host).c_str(), &address) == 1 &&
         (ntohl(address.s_addr) >> 24U) == 127;
}

/// A Host header without its port.
std::string_view host_name(std::string_view header) {
  if (header.starts_with('[')) return header.substr(0, header.find(']') + 1);
  return header.substr(0, header.find(':'));
}

bool is_good_path(std::string_view path) {
  return path.starts_with('/') && path.size() <= 128 &&
         std::all_of(path.begin(), path.end(), [](char c) {
           return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
                  c == '/' || c == '_' || c == '-' || c == '.';
         });
}

/// The library takes paths for patterns.
std::string as_pattern(std::string_view path) {
  std::string out;
  for (const char c : path)
    out += c == '.' ? std::string("\\.") : std::string(1, c);
  return out;
}

std::uint16_t port_of(const sockaddr_storage& address) {
  if (address.ss_family == AF_INET)
    return ntohs(reinterpret_cast<const sockaddr_in&>(address).sin_port);
  if (address.ss_family == AF_INET6)
    return ntohs(reinterpret_cast<const sockaddr_in6&>(address).sin6_port);
  return 0;
}

std::uint16_t local_port(int socket) {
  sockaddr_storage address{};
  socklen_t size = sizeof address;
  return ::getsockname(socket, reinterpret_cast<sockaddr*>(&address), &size) == 0 ? port_of(address)
                                                                                  : 0;
}

/// 0 for a socket that listens.
std::uint16_t peer_port(int socket) {
  sockaddr_storage address{};
  socklen_t size = sizeof address;
  return ::getpeername(socket, reinterpret_cast<sockaddr*>(&address), &size) == 0 ? port_of(address)
                                                                                  : 0;
}

/// The own sockets at `port`. The library keeps them to itself.
std::vector<int> sockets_at(std::uint16_t port) {
  std::vector<int> out;
  DIR* const folder = ::opendir("/proc/self/fd");
  if (folder == nullptr) return out;
  while (const dirent* const entry = ::readdir(folder)) {
    const auto raw = parse_int<int>(entry->d_name);
    if (raw && local_port(*raw) == port) out.push_back(*raw);
  }
  ::closedir(folder);
  return out;
}

/// Ends connections that clients of `port` hold open: one that sends a byte now and then would hold
/// up the end for ever.
void end_connections(std::uint16_t port) {
  for (const int socket : sockets_at(port))
    ::shutdown(socket, SHUT_RDWR);
}

/// Ends connections that were there at more looks than `looks_max`, of looks that follow each
/// other.
class Overdue {
 public:
  void end_overdue(std::uint16_t port, int looks_max) {
    std::map<std::pair<int, std::uint16_t>, int> now;  // descriptor, the peer's port
    for (const int socket : sockets_at(port)) {
      const std::uint16_t peer = peer_port(socket);
      if (peer == 0) continue;
      const auto before = seen_.find({socket, peer});
      const int looks = before == seen_.end() ? 1 : before->second + 1;
      if (looks > looks_max) ::shutdown(socket, SHUT_RDWR);
      now[{socket, peer}] = looks;
    }
    seen_ = std::move(now);
  }
  void forget() { seen_.clear(); }

 private:
  std::map<std::pair<int, std::uint16_t>, int> seen_;
};

}  // namespace

struct HttpServer::Impl {
  HttpOptions options;
  std::vector<HttpRoute> routes;
  httplib::Server server;
  std::atomic<std::uint64_t> served{0}, refused{0};
  std::atomic<bool> is_over{false};  // the accepting thread has ended
  std::uint16_t port{0};
  std::thread thread;
  std::atomic<int> busy{0};  // threads that serve a connection
  std::mutex mu;
  std::condition_variable ending;
  bool is_ending{false};  // guarded by mu
  std::thread guard;      // ends connections that last too long

  [[nodiscard]] Result<void> start();
  void end_overdue();
  void set_limits();
  [[nodiscard]] bool is_allowed(const httplib::Request& request) const;
  [[nodiscard]] bool is_known(const httplib::Request& request) const;
  void refuse(httplib::Response& response, int status, std::string_view why);
  void answer(const HttpHandler& handler, const httplib::Request& from, httplib::Response& to);
  void stop();
};

bool HttpServer::Impl::is_allowed(const httplib::Request& request) const {
  const std::string host = request.get_header_value("Host");
  if (is_loopback(options.address) && !is_loopback(host_name(host))) return false;
  if (request.method == "GET") return true;
  const std::string origin = request.get_header_value("Origin");
  return origin.empty() || origin == "http://" + host;
}

bool HttpServer::Impl::is_known(const httplib::Request& request) const {
  return std::any_of(routes.begin(), routes.end(), [&](const HttpRoute& route) {
    return route.method == request.method && route.path == request.path;
  });
}

void HttpServer::Impl::refuse(httplib::Response& response, int status, std::string_view why) {
  ++refused;  // before the answer is out, so that who has it finds it counted
  response.status = status;
  response.set_content(std::string(why) + "\n", "text/plain; charset=utf-8");
}

void HttpServer::Impl::answer(const HttpHandler& handler, const httplib::Request& from,
                              httplib::Response& to) {
  HttpRequest request{.method = from.method,
                      .path = from.path,
                      .body = from.body,
                      .query = {},
                      .accept = from.get_header_value("Accept")};
  for (const auto& [name, value] : from.params)
    request.query.emplace(name, value);
  const HttpResponse response = handler(request);
  ++(response.status < 400 ? served : refused);
  to.status = response.status;
  to.set_content(response.body, response.content_type);
}

void HttpServer::Impl::set_limits() {
  server.new_task_queue = [this]() -> httplib::TaskQueue* {
    return std::make_unique<BoundedQueue>(options.thread_count, options.waiting_max, busy)
        .release();
  };
  const auto timeout = std::chrono::duration_cast<std::chrono::microseconds>(options.timeout);
  server.set_read_timeout(timeout);
  server.set_write_timeout(timeout);
  server.set_keep_alive_timeout(  // until the first byte of the only request
      std::max<std::int64_t>(1, std::chrono::duration_cast<std::chrono::seconds>(timeout).count()));
  server.set_keep_alive_max_count(1);
  server.set_payload_max_length(options.body_bytes_max);
  server.set_tcp_nodelay(true);
  // The library's default shares the port with every process that asks for it.
  server.set_socket_options([](socket_t socket) {
    const int yes = 1;
    ::setsockopt(socket, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
  });
}

Result<void> HttpServer::Impl::start() {
  set_limits();
  // Before the body is read: that of a request without a handler need not be.
  server.set_pre_routing_handler([this](const httplib::Request& request, httplib::Response& to) {
    if (is_allowed(request) && is_known(request))
      return httplib::Server::HandlerResponse::Unhandled;
    if (!is_allowed(request))
      refuse(to, 403, "refused: another host or origin");
    else
      refuse(to, 404, "no such page");
    return httplib::Server::HandlerResponse::Handled;
  });
  for (const HttpRoute& route : routes) {
    const bool is_post = route.method == "POST";
    if (!is_good_path(route.path) || (!is_post && route.method != "GET"))
      return Error{Code::kCorrupt, "serve " + route.method + " " + route.path + ": no such route"};
    const auto handle = [this, &route](const httplib::Request& from, httplib::Response& to) {
      answer(route.handler, from, to);
    };
    if (is_post)
      server.Post(as_pattern(route.path), handle);
    else
      server.Get(as_pattern(route.path), handle);
  }
  const int bound = options.port == 0
                        ? server.bind_to_any_port(options.address)
                        : (server.bind_to_port(options.address, options.port) ? options.port : -1);
  if (bound <= 0)
    return Error{Code::kUnavailable,
                 "listen on " + options.address + ":" + std::to_string(options.port) + ": failed",
                 "the port may be taken: choose another one, or 0 for any"};
  port = static_cast<std::uint16_t>(bound);
  thread = std::thread([this] {
    server.listen_after_bind();
    is_over = true;
  });
  guard = std::thread([this] { end_overdue(); });
  // stop() before the library is in its loop would be forgotten.
  while (!server.is_running() && !is_over)
    std::this_thread::yield();
  return {};
}

void HttpServer::Impl::end_overdue() {
  constexpr int kLooks = 3;
  Overdue overdue;
  std::unique_lock lock(mu);
  while (!ending.wait_for(lock, options.connection_timeout / kLooks, [&] { return is_ending; })) {
    if (busy > 0)
      overdue.end_overdue(port, kLooks);
    else
      overdue.forget();
  }
}

void HttpServer::Impl::stop() {
  if (!thread.joinable()) return;
  {
    const std::lock_guard lock(mu);
    is_ending = true;
  }
  ending.notify_all();
  guard.join();
  server.stop();
  end_connections(port);
  thread.join();
}

Result<std::unique_ptr<HttpServer>> HttpServer::start(const HttpOptions& options,
                                                      std::vector<HttpRoute> routes) {
  auto impl = std::make_unique<Impl>();
  impl->options = options;
  impl->routes = std::move(routes);
  TRY_VOID(impl->start());
  return std::unique_ptr<HttpServer>(new HttpServer(std::move(impl)));
}

HttpServer::HttpServer(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
HttpServer::~HttpServer() {
  impl_->stop();
}

std::uint16_t HttpServer::port() const {
  return impl_->port;
}

HttpServer::Counts HttpServer::counts() const {
  return {.served = impl_->served.load(), .refused = impl_->refused.load()};
}

HttpRoute metrics_route(const MetricBoard& board) {
  return {"GET", "/metrics", [&board](const HttpRequest& request) {
            const TextFormat format = negotiate(request.accept);
            return HttpResponse{.status = 200,
                                .content_type = std::string(content_type(format)),
                                .body = to_text(*board.latest(), format)};
          }};
}

HttpRoute health_route(std::function<bool()> is_healthy) {
  return {"GET", "/healthz", [is_healthy = std::move(is_healthy)](const HttpRequest&) {
            const bool is_ok = is_healthy();
            return HttpResponse{.status = is_ok ? 200 : 503,
                                .content_type = "text/plain; charset=utf-8",
                                .body = is_ok ? "ok\n" : "not ok\n"};
          }};
}

}  // namespace kansoku::exporter
