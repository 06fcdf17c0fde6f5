// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "agent/feature_row.h"
#include "agent/job_table.h"
#include "common/result.h"
#include "common/time.h"
#include "fleet/bus.h"
#include "fleet/nats_bus.h"
#include "fleet/summary_writer.h"

namespace kansoku::agent {

/// How long an ending agent waits for each peer to take its messages.
inline constexpr Nanos kFinishLimit = std::chrono::seconds{2};

/// Sends one host's reports to a collector of the fleet, within the budget of the summaries.
/// Single-threaded.
class FleetOutput {
 public:
  [[nodiscard]] static Result<std::unique_ptr<FleetOutput>> create(const std::string& host,
                                                                   fleet::NatsOptions collector,
                                                                   BootTime now,
                                                                   std::int64_t wall_ns);
  void on_window(std::int64_t wall_ns, BootTime now, const std::vector<FeatureRow>& rows,
                 const std::vector<JobTable::JobStatus>& jobs);
  void on_incident(const trace::IncidentRecord& incident);
  void finish(std::int64_t wall_ns, BootTime now);
  [[nodiscard]] fleet::BusStatus status() const { return bus_->status(); }

 private:
  FleetOutput(std::string host, std::unique_ptr<fleet::Bus> bus, fleet::SummaryWriter writer)
      : host_(std::move(host)), bus_(std::move(bus)), writer_(std::move(writer)) {}
  void send(std::int64_t wall_ns, BootTime now);

  std::string host_;
  std::unique_ptr<fleet::Bus> bus_;
  fleet::SummaryWriter writer_;
  struct Job {
    fleet::SummaryWriter::JobId id;
    std::vector<std::int32_t> ranks;
    BootTime seen_at{};
  };
  std::map<std::string, Job> jobs_;
};

}  // namespace kansoku::agent
