// SPDX-License-Identifier: Apache-2.0
#include "cli/record/kineto_server.h"

#include <poll.h>

#include <utility>

#include "sys/clock.h"

namespace kansoku::cli {
namespace {

constexpr int kPollMs = 250;  // how late a stop may be noticed

}  // namespace

KinetoServer::KinetoServer(std::unique_ptr<capture::kineto::Daemon> daemon)
    : daemon_(std::move(daemon)), thread_([this] { serve(); }) {}

Result<std::unique_ptr<KinetoServer>> KinetoServer::start() {
  TRY(auto daemon, capture::kineto::Daemon::open({}));
  return std::unique_ptr<KinetoServer>(new KinetoServer(std::move(daemon)));
}

KinetoServer::~KinetoServer() {
  stops_ = true;
  thread_.join();
}

void KinetoServer::serve() {
  const sys::RealClock clock;
  pollfd wanted{.fd = daemon_->fd(), .events = POLLIN, .revents = 0};
  while (!stops_) {
    static_cast<void>(::poll(&wanted, 1, kPollMs));
    const std::lock_guard lock(mu_);
    daemon_->pump(clock.now());
  }
}

void KinetoServer::request(const capture::kineto::Window& window) {
  const std::lock_guard lock(mu_);
  daemon_->request(window);
}

std::size_t KinetoServer::process_count() const {
  const std::lock_guard lock(mu_);
  return daemon_->processes().size();
}

std::size_t KinetoServer::handed_out() const {
  const std::lock_guard lock(mu_);
  return daemon_->handed_out();
}

}  // namespace kansoku::cli
