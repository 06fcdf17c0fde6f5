// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "agent/feature_row.h"
#include "agent/job_table.h"
#include "common/result.h"
#include "common/time.h"
#include "export/http_post.h"
#include "export/metrics.h"
#include "fleet/nats_bus.h"
#include "incident/book.h"
#include "store/history.h"
#include "trace/incident.h"

namespace kansoku::agent {

STAT(agent_failed_writes, kDataLoss, kAnalysis,
     "feature rows or incidents that could not be written; the disk is full or not writable");

struct OutputOptions {
  std::string host, version;
  std::string state_folder;  // of the history; "" = none
  bool keeps_history{true};
  Nanos history_age{std::chrono::hours{24 * 30}};
  std::uint64_t history_bytes{512U << 20U};
  std::string features_csv;     // "" = none
  std::string incidents_jsonl;  // "" = none
  std::string listen;           // "ADDRESS:PORT" of the metrics endpoint; "" = none
  std::string webhook, otlp;    // addresses; "" = none
  std::vector<std::pair<std::string, std::string>> webhook_headers, otlp_headers;
  Nanos otlp_every{std::chrono::seconds{15}};
  std::optional<fleet::NatsOptions> collector;  // summaries go there
  std::function<void(const incident::Notice&)> on_incident;
  std::function<void(const std::string&)> log;
};

/// Figures of the agent itself, for its metrics.
struct AgentFigures {
  double cpu_s{0};
  std::uint64_t resident_bytes{0}, probe_hits{0}, lost{0};
  std::size_t process_count{0};
  double own_share{0};            // of a core, a moving mean
  std::size_t lowered_probes{0};  // entries of the pack that are off for their cost
  int slowness{1};                // windows between two looks at costly data
  bool is_paused{false};          // nothing is judged
};

/// Counts of the messages to one target, since the agent started.
struct Delivery {
  std::string target;  // "webhook", "otlp", "collector"
  exporter::HttpPoster::Counts counts;
};

/// Everything that leaves the agent: metrics, notices of incidents, history, summaries. Data that
/// cannot be written or sent are counted and never stop watching. One thread calls; sending has
/// threads of its own.
class Outputs {
 public:
  /// Errors name the option that cannot be served: a port in use, an address that is none, a file
  /// that cannot be made. Without libduckdb there is no history: logged, not an error.
  [[nodiscard]] static Result<std::unique_ptr<Outputs>> create(const Clock& clock,
                                                               OutputOptions options);
  ~Outputs();
  Outputs(const Outputs&) = delete;
  Outputs& operator=(const Outputs&) = delete;

  void on_window(std::int64_t wall_ns, BootTime now, const std::vector<FeatureRow>& rows,
                 const std::vector<JobTable::JobStatus>& jobs, const incident::Book& book,
                 const AgentFigures& figures);
  void on_incident(const incident::Notice& notice);
  /// Writes and sends all that waits, each target for two seconds at most.
  void finish(std::int64_t wall_ns, BootTime now);

  /// Counts of the messages to each target there is.
  [[nodiscard]] std::vector<Delivery> deliveries() const;
  /// The port that the metrics endpoint listens on; 0 = none.
  [[nodiscard]] std::uint16_t port() const;
  [[nodiscard]] std::uint64_t failed_writes() const;

 private:
  struct Impl;
  explicit Outputs(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace kansoku::agent
