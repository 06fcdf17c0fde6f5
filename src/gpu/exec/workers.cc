// SPDX-License-Identifier: Apache-2.0
#include "gpu/exec/workers.h"

#include <csignal>

#include <algorithm>
#include <condition_variable>
#include <deque>
#include <mutex>
#include <thread>
#include <vector>

namespace kansoku::gpu::exec {
namespace {

/// One call of run(): what its threads still have to do.
struct Call {
  const std::function<void(std::uint64_t)>& work;
  std::uint64_t left;  // indices that have not returned
  std::condition_variable ended{};
};
struct Job {
  Call* call{nullptr};
  std::uint64_t index{0};
};

}  // namespace

struct Workers::State {
  std::mutex mutex;
  std::condition_variable came;
  std::deque<Job> jobs;              // guarded by mutex
  std::size_t idle_count{0};         // guarded by mutex
  bool is_over{false};               // guarded by mutex
  std::vector<std::thread> threads;  // guarded by mutex

  void serve() {
    std::unique_lock lock(mutex);
    while (true) {
      ++idle_count;
      came.wait(lock, [this] { return !jobs.empty() || is_over; });
      --idle_count;
      if (jobs.empty()) return;
      const Job job = jobs.front();
      jobs.pop_front();
      lock.unlock();
      job.call->work(job.index);
      lock.lock();
      if (--job.call->left == 0) job.call->ended.notify_one();
    }
  }

  /// With the mutex held. The threads inherit that all signals are blocked: handlers of the program
  /// that loads this must not run on them.
  void add_threads(std::size_t count) {
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    for (std::size_t i = 0; i < count; ++i)
      threads.emplace_back([this] { serve(); });
    pthread_sigmask(SIG_SETMASK, &before, nullptr);
  }
};

Workers::Workers() : state_(std::make_unique<State>()) {}

Workers::~Workers() {
  {
    const std::scoped_lock lock(state_->mutex);
    state_->is_over = true;
  }
  state_->came.notify_all();
  for (std::thread& thread : state_->threads)
    thread.join();
}

void Workers::run(std::uint64_t count, Share share,
                  const std::function<void(std::uint64_t)>& work) {
  if (count <= 1) {
    work(0);
    return;
  }
  State& state = *state_;
  Call call{.work = work, .left = count - 1};
  {
    const std::scoped_lock lock(state.mutex);
    for (std::uint64_t i = 1; i < count; ++i)
      state.jobs.push_back({&call, i});
    if (state.jobs.size() > state.idle_count)
      state.add_threads(state.jobs.size() - state.idle_count);
  }
  state.came.notify_all();
  work(0);
  std::unique_lock lock(state.mutex);
  if (share == Share::kOfRest) {
    call.left -= std::erase_if(state.jobs, [&](const Job& job) { return job.call == &call; });
  }
  call.ended.wait(lock, [&] { return call.left == 0; });
}

}  // namespace kansoku::gpu::exec
