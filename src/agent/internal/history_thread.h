// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "agent/feature_row.h"
#include "common/result.h"
#include "store/history.h"
#include "trace/incident.h"

namespace kansoku::agent {

STAT(history_queue_dropped, kDataLoss, kCapture,
     "windows or incidents did not reach the history: the disk is too slow");

/// Keeps history in a thread of its own, since writing it takes up to seconds. If the disk is too
/// slow, data are dropped, oldest first, and counted.
class HistoryThread {
 public:
  static constexpr std::size_t kQueueMax = 600;  // windows of a host, and incidents

  HistoryThread(store::History history, std::function<void(const std::string&)> log);
  /// Writes all that waits, then ends.
  ~HistoryThread();
  HistoryThread(const HistoryThread&) = delete;
  HistoryThread& operator=(const HistoryThread&) = delete;

  void add(std::int64_t wall_ns, const std::vector<FeatureRow>& rows);
  void put(const trace::IncidentRecord& incident);

  [[nodiscard]] std::uint64_t dropped() const;
  /// Writes that failed. The words of the first of each run of failures go to `log`.
  [[nodiscard]] std::uint64_t failed() const;

 private:
  using Task = std::function<Result<void>(store::History&)>;
  void queue(Task task);
  void run();

  store::History history_;  // of the thread alone
  std::function<void(const std::string&)> log_;
  std::int64_t retain_at_ns_{0};  // of the caller's thread
  mutable std::mutex mu_;
  std::condition_variable wake_;
  std::deque<Task> tasks_;                // guarded by mu_
  std::uint64_t dropped_{0}, failed_{0};  // guarded by mu_
  std::string problem_;                   // guarded by mu_: of the last failure, not told yet
  bool ends_{false};                      // guarded by mu_
  std::thread thread_;
};

}  // namespace kansoku::agent
