// SPDX-License-Identifier: Apache-2.0
#include "stats/internal/in_order.h"

#include <atomic>
#include <condition_variable>
#include <mutex>
#include <system_error>
#include <thread>
#include <vector>

namespace kansoku::stats::internal {
namespace {

/// Lets the merges pass one by one, in the order of their chunks.
class Turnstile {
 public:
  void pass(std::size_t chunk, const std::function<void()>& merge) {
    std::unique_lock lock(mutex_);
    turned_.wait(lock, [&] { return next_ == chunk; });
    merge();
    ++next_;
    turned_.notify_all();
  }

 private:
  std::mutex mutex_;
  std::condition_variable turned_;
  std::size_t next_{0};  // guarded by mutex_
};

}  // namespace

void in_order(std::size_t chunks, std::size_t workers,
              const std::function<void(std::size_t worker, std::size_t chunk)>& work,
              const std::function<void(std::size_t worker)>& merge) {
  std::atomic<std::size_t> next{0};
  Turnstile turnstile;
  const auto run = [&](std::size_t worker) {
    for (std::size_t chunk = next++; chunk < chunks; chunk = next++) {
      work(worker, chunk);
      turnstile.pass(chunk, [&] { merge(worker); });
    }
  };
  std::vector<std::jthread> threads;  // joined on leaving
  for (std::size_t worker = 1; worker < workers; ++worker) {
    try {
      threads.emplace_back(run, worker);
    } catch (const std::system_error&) {
      break;  // chunks are taken, not given: those that run do all
    }
  }
  run(0);
}

}  // namespace kansoku::stats::internal
