// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <cstddef>
#include <memory>
#include <mutex>
#include <string>
#include <thread>

#include "capture/kineto/daemon.h"
#include "common/result.h"
#include "common/time.h"

namespace kansoku::cli {

/// Serves the profilers of PyTorch processes from a thread of its own: they wait 90 ms for an
/// answer, longer than a recorder that watches takes between two looks. All members from any
/// thread.
class KinetoServer {
 public:
  [[nodiscard]] static Result<std::unique_ptr<KinetoServer>> start();
  ~KinetoServer();
  KinetoServer(const KinetoServer&) = delete;
  KinetoServer& operator=(const KinetoServer&) = delete;

  void request(const capture::kineto::Window& window);
  [[nodiscard]] std::size_t process_count() const;
  [[nodiscard]] std::size_t handed_out() const;

 private:
  explicit KinetoServer(std::unique_ptr<capture::kineto::Daemon> daemon);
  void serve();

  mutable std::mutex mu_;  // guards daemon_
  std::unique_ptr<capture::kineto::Daemon> daemon_;
  std::atomic<bool> stops_{false};
  std::thread thread_;
};

}  // namespace kansoku::cli
