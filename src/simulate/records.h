// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "common/bytes.h"
#include "common/result.h"
#include "common/time.h"

namespace kansoku::simulate {

struct Experiment;

enum class TaskEnd : std::uint8_t { kDone, kFailed, kRefused };

/// "done", "failed" or "refused".
[[nodiscard]] std::string_view task_end_name(TaskEnd end);

/// One task of one pipeline run, from its entry into the queue to its end.
struct TaskRecord {
  Nanos queued{0}, started{0}, ended{0};  // started: the last time, if it was started again
  std::uint32_t run{0};                   // pipeline run, by arrival
  std::uint16_t pipeline{0}, task{0};     // indices in the experiment
  std::uint16_t restarts{0};              // by preemption or failure
  TaskEnd end{TaskEnd::kDone};
  std::uint32_t units{0};
};

/// Records in order of their end, in blocks, so that growing copies nothing. Beyond the limit they
/// are counted instead of kept.
class Records {
 public:
  explicit Records(std::uint64_t limit) : limit_(limit) {}
  void add(const TaskRecord& record) {
    if (count_ == limit_) {
      ++dropped_;
      return;
    }
    if (count_ % kBlock == 0) blocks_.push_back(std::make_unique<TaskRecord[]>(kBlock));
    blocks_.back()[count_ % kBlock] = record;
    ++count_;
  }
  [[nodiscard]] std::uint64_t size() const { return count_; }
  [[nodiscard]] std::uint64_t dropped() const { return dropped_; }
  [[nodiscard]] const TaskRecord& operator[](std::uint64_t index) const {
    return blocks_[index / kBlock][index % kBlock];
  }

 private:
  static constexpr std::uint64_t kBlock = 1 << 14;
  std::uint64_t limit_;
  std::uint64_t count_{0}, dropped_{0};
  std::vector<std::unique_ptr<TaskRecord[]>> blocks_;
};

/// Writes records as CSV with a header line: replication, run, pipeline, task, cluster, queued_s,
/// started_s, ended_s, wait_s, restarts, units, end. Times in seconds with nine decimals.
class RecordWriter {
 public:
  explicit RecordWriter(ByteSink& sink) : sink_(sink) {}
  [[nodiscard]] Result<void> write(const Experiment& experiment, int replication,
                                   const Records& records);

 private:
  ByteSink& sink_;
  bool header_written_{false};
};

}  // namespace kansoku::simulate
