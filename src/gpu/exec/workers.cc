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

/// Work that the threads of a call still have to do.
struct WorkersCall {
  explicit WorkersCall(const std::function<void(std::uint64_t)>& its_work) : work(its_work) {}
  const std::function<void(std::uint64_t)>& work;
  std::uint64_t left{0};  // indices that have not returned; guarded by the mutex of the workers
  std::condition_variable ended;
};

struct Workers::State {
  struct Job {
    WorkersCall* call{nullptr};
    std::uint64_t index{0};
  };
  std::mutex mutex;
  std::condition_variable came;
  std::deque<Job> jobs;              // guarded by mutex
  std::size_t idle_count{0};         // without a job, begun or not; guarded by mutex
  bool is_over{false};               // guarded by mutex
  std::vector<std::thread> threads;  // guarded by mutex

  void serve() {
    std::unique_lock lock(mutex);
    while (true) {
      came.wait(lock, [this] { return !jobs.empty() || is_over; });
      --idle_count;
      if (jobs.empty()) return;
      const Job job = jobs.front();
      jobs.pop_front();
      lock.unlock();
      job.call->work(job.index);
      lock.lock();
      ++idle_count;
      if (--job.call->left == 0) job.call->ended.notify_one();
    }
  }

  /// With the mutex held. The threads inherit that all signals are blocked: handlers of the program
  /// that loads this must not run on them.
  void add_threads(std::size_t count) {
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    for (std::size_t i = 0; i < count; ++i) {
      threads.emplace_back([this] { serve(); });
      ++idle_count;  // before it runs: on a busy machine the next call would make another
    }
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

Helpers::Helpers(Workers& workers, Share share, const std::function<void(std::uint64_t)>& work)
    : state_(*workers.state_), share_(share), call_(std::make_unique<WorkersCall>(work)) {}

Helpers::~Helpers() {
  finish();
}

void Helpers::start(std::uint64_t count) {
  if (count <= 1) return;
  {
    const std::scoped_lock lock(state_.mutex);
    call_->left = count - 1;
    for (std::uint64_t i = 1; i < count; ++i)
      state_.jobs.push_back({call_.get(), i});
    if (state_.jobs.size() > state_.idle_count)
      state_.add_threads(state_.jobs.size() - state_.idle_count);
  }
  for (std::uint64_t i = 1; i < count; ++i)
    state_.came.notify_one();
}

void Helpers::finish() {
  std::unique_lock lock(state_.mutex);
  if (share_ == Share::kOfRest) {
    call_->left -= std::erase_if(
        state_.jobs, [&](const Workers::State::Job& job) { return job.call == call_.get(); });
  }
  call_->ended.wait(lock, [&] { return call_->left == 0; });
}

}  // namespace kansoku::gpu::exec
