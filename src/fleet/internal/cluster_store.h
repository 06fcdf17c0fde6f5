// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "fleet/cluster_rows.h"
#include "fleet/collector.h"
#include "fleet/internal/job_store.h"
#include "fleet/report.h"
#include "stats/mixture.h"

namespace kansoku::fleet::internal {

/// The cluster features of each job's hosts, merged; the mixture of normal modes that they give;
/// and where the means of each host's latest summary lie. The data that a job is learnt of reach
/// back one to two halves of the kept slots. Merging joins clusters, so the mixture depends a
/// little on the order of arrival.
class ClusterStore {
 public:
  static constexpr std::size_t kClusters = 256;  // kept of a job, twice

  ClusterStore(const CollectorOptions& options, FleetLoss& loss) : options_(options), loss_(loss) {}

  /// A part of kind kClusterFeatures of `summary`, whose values belong to `slot`.
  void add(const Summary& summary, const SummaryPart& part, const HostName& host,
           std::int64_t slot);
  /// Forgets data before slot `first`; fits mixtures anew. Once a slot.
  void move_on(std::int64_t first, std::int64_t now_slot);
  /// Parts that were not learnt, since there were too many of a slot, or too many jobs.
  [[nodiscard]] std::uint64_t left_out() const { return left_out_; }
  /// The model of a job, by key.
  [[nodiscard]] std::optional<FleetModel> model(std::string_view job_key) const;

 private:
  struct Host {
    std::int64_t slot{INT64_MIN};
    std::vector<double> mean;  // of its rows, by dimension
  };
  struct Job {
    std::vector<std::string> features;
    std::vector<ClusterAxis> axes;
    std::int64_t begin_slot{0};  // of `now`
    // Hosts of this slot that have these features, and of those with others, by Boyer's and Moore's
    // votes, how many have the same at least; and for how many slots those have been more.
    std::set<std::string, std::less<>> heard;
    std::uint64_t alike{0}, votes{0};
    int slots_lost{0};
    std::vector<std::string> rival_features;
    std::vector<ClusterAxis> rival_axes;
    std::optional<stats::ClusterFeatures> now, before;  // kClusters each
    int modes{0};                                       // of the latest mixture; 0: none yet
    std::map<std::string, Host, std::less<>> hosts;
  };

  [[nodiscard]] Job* job_of(const std::string& key, const Summary& summary, const ClusterPart& part,
                            const std::string& host, std::int64_t slot);
  static void fit(Job& job);
  static void vote(Job& job, std::vector<std::string> features, std::vector<ClusterAxis> axes);
  [[nodiscard]] static bool begin(Job& job, std::vector<std::string> features,
                                  std::vector<ClusterAxis> axes, std::int64_t slot);

  const CollectorOptions& options_;
  FleetLoss& loss_;
  std::map<std::string, Job, std::less<>> jobs_;  // by key
  std::size_t parts_of_slot_{0};                  // that were learnt since the slot began
  std::uint64_t left_out_{0};
};

}  // namespace kansoku::fleet::internal
