// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "fleet/collector.h"
#include "fleet/report.h"
#include "stats/sketch.h"

namespace kansoku::fleet::internal {

/// Names as small numbers, for as long as the collector lives; bounded.
class Names {
 public:
  explicit Names(std::size_t count_max) : count_max_(count_max) {}
  /// kNoIndex if there are too many.
  [[nodiscard]] std::uint32_t id_of(std::string_view name);
  [[nodiscard]] const std::string& name(std::uint32_t id) const { return *names_[id]; }
  [[nodiscard]] std::size_t size() const { return names_.size(); }

 private:
  std::size_t count_max_;
  std::map<std::string, std::uint32_t, std::less<>> ids_;
  std::vector<const std::string*> names_;
};

/// A name that outlives its host here: hosts come and go.
using HostName = std::shared_ptr<const std::string>;

/// The most extreme ranks by the median of one message. Which they are does not depend on the order
/// in which they are added.
class Extremes {
 public:
  static constexpr std::size_t kCount = 3;
  struct Entry {
    double p50{0};
    std::int32_t rank{-1};
    HostName host;
  };
  void add(const Entry& entry);
  [[nodiscard]] const std::vector<Entry>& highest() const { return highest_; }
  [[nodiscard]] const std::vector<Entry>& lowest() const { return lowest_; }

 private:
  std::vector<Entry> highest_, lowest_;
};

/// The values of all jobs, by slot and feature: as sketches for the slots that are filled now, as
/// the bytes of sketches before.
class JobStore {
 public:
  JobStore(const CollectorOptions& options, FleetLoss& loss);

  /// Takes in the sketches of `summary`, whose values belong to `slot`.
  void add(const Summary& summary, const HostName& host, std::int64_t slot);
  /// Forgets slots before `first`, and packs those before `first_live`.
  void move_on(std::int64_t first, std::int64_t first_live);
  /// The jobs with values, by key; hosts and ranks are left to be filled in. `now_slot`: the slot
  /// that is being filled.
  [[nodiscard]] std::vector<FleetJob> jobs(std::int64_t now_slot) const;
  [[nodiscard]] std::size_t bytes() const { return bytes_; }

 private:
  struct Cell {
    stats::LogSketch live;
    Extremes extremes;
    std::string packed;  // sketches that were live before
    [[nodiscard]] std::size_t bytes() const;
  };
  using Slot = std::map<std::uint32_t, Cell>;  // by feature
  struct Job {
    std::string name;
    std::int32_t world_size{0};
    std::int64_t named_ns{0};  // when the message ended that said so
    std::map<std::int64_t, Slot> slots;
  };

  void add_part(Job& job, const Summary& summary, const SummaryPart& part, const HostName& host,
                std::int64_t slot);
  [[nodiscard]] Job* job_of(const SummaryJob& job, std::int64_t end_ns);
  void pack(Cell& cell);
  [[nodiscard]] FleetFeature feature_of(const Job& job, std::uint32_t feature,
                                        std::int64_t now_slot) const;

  const CollectorOptions& options_;
  FleetLoss& loss_;
  Names features_;
  std::vector<std::uint32_t> places_;             // of features: the first place a host gave it
  std::map<std::string, Job, std::less<>> jobs_;  // by key
  std::size_t bytes_{0};
};

}  // namespace kansoku::fleet::internal
