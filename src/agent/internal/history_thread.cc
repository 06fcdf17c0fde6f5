// SPDX-License-Identifier: Apache-2.0
#include "agent/internal/history_thread.h"

#include <map>
#include <utility>

namespace kansoku::agent {
namespace {

constexpr std::int64_t kRetainEveryNs = 600'000'000'000;

/// The rows of one window, with values of their own.
struct Rows {
  std::int64_t wall_ns{0};
  struct Row {
    std::string job;
    std::int32_t rank{-1}, pid{0};
    std::vector<double> values;
  };
  std::vector<Row> rows;
};

Result<void> write(store::History& history, const Rows& window, bool retains) {
  std::map<std::string_view, std::vector<store::HistoryRow>> by_job;
  for (const Rows::Row& row : window.rows)
    by_job[row.job].push_back({row.rank, row.pid, row.values});
  Result<void> result{};
  for (const auto& [job, rows] : by_job) {
    if (auto added = history.add_windows(window.wall_ns, job, rows); !added)
      result = std::move(added);
  }
  if (!retains) return result;
  if (auto retained = history.retain(window.wall_ns); !retained) result = std::move(retained);
  return result;
}

}  // namespace

HistoryThread::HistoryThread(store::History history, std::function<void(const std::string&)> log)
    : history_(std::move(history)), log_(std::move(log)), thread_([this] { run(); }) {}

HistoryThread::~HistoryThread() {
  {
    const std::lock_guard lock(mu_);
    ends_ = true;
  }
  wake_.notify_one();
  thread_.join();
}

void HistoryThread::queue(Task task) {
  std::string problem;
  {
    const std::lock_guard lock(mu_);
    if (tasks_.size() >= kQueueMax) {
      tasks_.pop_front();
      ++dropped_;
    }
    tasks_.push_back(std::move(task));
    problem = std::exchange(problem_, {});
  }
  wake_.notify_one();
  if (!problem.empty()) log_(problem);  // here, so that only one thread logs
}

void HistoryThread::run() {
  bool failed_before = false;
  for (;;) {
    Task task;
    {
      std::unique_lock lock(mu_);
      wake_.wait(lock, [this] { return ends_ || !tasks_.empty(); });
      if (tasks_.empty()) break;
      task = std::move(tasks_.front());
      tasks_.pop_front();
    }
    const auto done = task(history_);
    if (!done) {
      const std::lock_guard lock(mu_);
      ++failed_;
      if (!failed_before) problem_ = done.error().what;
    }
    failed_before = !done;
  }
  static_cast<void>(history_.flush());
}

void HistoryThread::add(std::int64_t wall_ns, const std::vector<FeatureRow>& rows) {
  auto window = std::make_shared<Rows>();
  window->wall_ns = wall_ns;
  for (const FeatureRow& row : rows)
    window->rows.push_back({row.job, row.window.rank, row.window.pid, row.window.values});
  const bool retains = wall_ns >= retain_at_ns_ || wall_ns + kRetainEveryNs < retain_at_ns_;
  if (retains) retain_at_ns_ = wall_ns + kRetainEveryNs;
  queue([window, retains](store::History& history) { return write(history, *window, retains); });
}

void HistoryThread::put(const trace::IncidentRecord& incident) {
  queue([incident](store::History& history) { return history.put_incident(incident); });
}

std::uint64_t HistoryThread::dropped() const {
  const std::lock_guard lock(mu_);
  return dropped_;
}

std::uint64_t HistoryThread::failed() const {
  const std::lock_guard lock(mu_);
  return failed_;
}

}  // namespace kansoku::agent
