// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <map>
#include <string_view>
#include <vector>

namespace kansoku {

enum class Severity { kInfo, kNotice, kDataLoss, kError };
enum class Origin { kCapture, kImport, kAnalysis };

/// One counter of lost, odd or skipped data. Its total travels with the trace and marks every
/// report built on it.
struct StatDef {
  std::string_view name;
  Severity severity;
  Origin origin;
  std::string_view advice;
};

/// "info", "notice", "data_loss", "error". Never null; any thread.
[[nodiscard]] std::string_view severity_name(Severity severity);
/// Inverse of severity_name; text nobody wrote gives kDataLoss, the cautious reading.
[[nodiscard]] Severity severity_from_name(std::string_view name);

/// Totals of counters, by whom they were counted or all together. Single-threaded.
class Losses {
 public:
  void add(const StatDef& stat, std::uint64_t total) {
    auto& [known, sum] = totals_[stat.name];
    known = &stat;
    sum += total;
  }
  struct Total {
    const StatDef* stat{nullptr};
    std::uint64_t total{0};
  };
  /// By name, also those that are 0.
  [[nodiscard]] std::vector<Total> all() const {
    std::vector<Total> out;
    out.reserve(totals_.size());
    for (const auto& [name, total] : totals_)
      out.push_back(total);
    return out;
  }

 private:
  std::map<std::string_view, Total> totals_;
};

}  // namespace kansoku

/// Declares a counter: STAT(ring_dropped_records, kDataLoss, kCapture, "BPF ring was full; raise
/// --ring-bytes")
#define STAT(id, severity, origin, advice)                                \
  inline constexpr ::kansoku::StatDef id {                                \
#id, ::kansoku::Severity::severity, ::kansoku::Origin::origin, advice \
  }
