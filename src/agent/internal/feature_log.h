// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "agent/feature_row.h"
#include "common/result.h"
#include "sys/fd.h"

namespace kansoku::agent {

/// Feature rows as CSV: time_s, job, rank, pid, then one column a feature; an empty field is a
/// missing value. Input of `kansoku detect`. Goes on behind the rows of an earlier agent.
class FeatureLog {
 public:
  /// kUnsupported if the file has other columns.
  [[nodiscard]] static Result<FeatureLog> open(const std::string& path);
  /// Appends the rows of one window, which ended at `wall_ns`.
  [[nodiscard]] Result<void> append(std::int64_t wall_ns, const std::vector<FeatureRow>& rows);

 private:
  FeatureLog(std::unique_ptr<sys::FileSink> sink, std::string header)
      : sink_(std::move(sink)), header_(std::move(header)) {}
  std::unique_ptr<sys::FileSink> sink_;
  std::string header_;
};

}  // namespace kansoku::agent
