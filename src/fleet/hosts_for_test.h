// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "common/rng.h"
#include "fleet/summary_writer.h"

namespace kansoku::fleet::test {

/// When all synthetic hosts begin, wall clock; a whole minute.
inline constexpr std::int64_t kBeginNs = 1'700'000'040'000'000'000;

/// A synthetic host: every rank of its one job has, each second, values uniform from 1 to 1.2 times
/// (1 + its feature's number); rank 5 half as much again in feature 0. One lost record a minute.
class HostForTest {
 public:
  struct Options {
    int index{0};
    int ranks{4};
    int hosts_a_job{4};
    int features{8};
    int epoch{1};  // 1, 2, 3: the agent was restarted
    std::string boot_id{"boot"};
    std::int64_t begin_ns{kBeginNs};
    std::uint32_t bytes_per_second{2048};
    bool with_rows{false};  // it sends cluster features too
    double factor{1};       // of all its values
  };
  explicit HostForTest(const Options& options);

  /// The message of minute `minute`, from 1: it ends then. The values are of that minute alone.
  [[nodiscard]] std::string minute(int minute);
  /// An incident, in seconds after the beginning; `end_s` 0: open. Its summary is "score <score>".
  void add_incident(const std::string& id, int begin_s, int end_s, int score);
  /// The job is in no later message.
  void end_job() { writer_.remove_job(job_); }

 private:
  Options options_;
  RandomStream random_;
  SummaryWriter writer_;
  SummaryWriter::JobId job_;
  std::vector<double> values_;
};

}  // namespace kansoku::fleet::test
