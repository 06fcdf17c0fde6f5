// SPDX-License-Identifier: Apache-2.0
#include "agent/outputs.h"

#include <fmt/format.h>
#include <sys/stat.h>

#include <algorithm>
#include <set>
#include <utility>

#include "agent/internal/feature_log.h"
#include "agent/internal/fleet_output.h"
#include "agent/internal/history_thread.h"
#include "common/parse.h"
#include "detect/feature.h"
#include "export/http_post.h"
#include "export/http_server.h"
#include "export/otlp.h"
#include "export/watch_metrics.h"
#include "export/webhook.h"
#include "sys/clock.h"
#include "sys/fd.h"

namespace kansoku::agent {
namespace {

using exporter::MetricSet;
namespace metrics = exporter::watch_metrics;

constexpr Nanos kRemindEvery = std::chrono::minutes{10};

/// "127.0.0.1:9464" or "[::1]:9464" in its parts.
Result<std::pair<std::string, std::uint16_t>> parse_listen(const std::string& text) {
  const auto colon = text.rfind(':');
  std::string address = text.substr(0, colon == std::string::npos ? 0 : colon);
  const auto port = colon == std::string::npos
                        ? std::nullopt
                        : parse_int<std::uint16_t>(std::string_view(text).substr(colon + 1));
  if (address.size() > 2 && address.front() == '[' && address.back() == ']')
    address = address.substr(1, address.size() - 2);
  if (!port || address.empty()) {
    return Error{Code::kUnsupported, fmt::format("listen at {}: not ADDRESS:PORT", text),
                 "e.g. 127.0.0.1:9464"};
  }
  return std::pair(address, *port);
}

exporter::Labels labels_of(const std::string& job, std::int32_t rank, std::int32_t pid) {
  return {{"job", job}, {"rank", rank < 0 ? fmt::format("pid-{}", pid) : std::to_string(rank)}};
}

/// The exported definitions of all features, in their order. The names live as long as the program.
const std::vector<std::pair<std::string, exporter::MetricDef>>& feature_metrics() {
  static const auto kAll = [] {
    std::vector<std::pair<std::string, exporter::MetricDef>> out;
    out.reserve(detect::known_features().size());  // the texts must not move
    for (const detect::Feature& feature : detect::known_features()) {
      out.emplace_back(exporter::feature_metric(feature.name, feature.unit), exporter::MetricDef{});
      out.back().second = {out.back().first, exporter::unit_word(feature.unit),
                           exporter::MetricType::kGauge, feature.meaning};
    }
    return out;
  }();
  return kAll;
}

}  // namespace

struct Outputs::Impl {
  const Clock& clock;
  OutputOptions options;
  exporter::MetricBoard board;
  std::unique_ptr<exporter::HttpServer> server;
  std::optional<exporter::Webhook> webhook;
  std::unique_ptr<exporter::HttpPoster> otlp;
  exporter::OtlpSource otlp_source;
  std::unique_ptr<HistoryThread> history;
  std::optional<FeatureLog> feature_log;
  std::unique_ptr<sys::FileSink> incident_lines;
  std::unique_ptr<FleetOutput> fleet;
  BootTime next_otlp{}, next_reminder{};
  std::uint64_t failed_writes{0};
  std::map<std::string, std::string> problems;  // the last of each target

  Impl(const Clock& clock_in, OutputOptions options_in)
      : clock(clock_in), options(std::move(options_in)) {}

  // The first failure of a run of failures is logged, all are counted.
  void written(const Result<void>& result) {
    if (result) return;
    if (failed_writes++ % 100 == 0) options.log(result.error().what);
  }
  Result<void> open_files();
  Result<void> open_network();
  void remind_collector(BootTime now, const incident::Book& book);
  void add_features(MetricSet& set, const std::vector<FeatureRow>& rows,
                    const std::set<std::string>& jobs) const;
  static void add_jobs(MetricSet& set, const std::vector<JobTable::JobStatus>& jobs,
                       bool is_paused);
  static void add_incidents(MetricSet& set, const std::vector<JobTable::JobStatus>& jobs,
                            const incident::Book& book);
  void add_agent(MetricSet& set, const AgentFigures& figures);
  [[nodiscard]] std::vector<Delivery> deliveries() const;
  void log_problems();
};

Result<void> Outputs::Impl::open_files() {
  if (!options.features_csv.empty()) {
    TRY(auto log, FeatureLog::open(options.features_csv));
    feature_log.emplace(std::move(log));
  }
  if (!options.incidents_jsonl.empty()) {
    TRY(incident_lines,
        sys::FileSink::create(options.incidents_jsonl,
                              {.append = true, .torn_line = sys::FileSink::TornLine::kEnd}));
  }
  if (options.state_folder.empty() || !options.keeps_history) return {};
  store::HistoryOptions keeping;
  keeping.age = options.history_age;
  keeping.bytes = options.history_bytes;
  for (const detect::Feature& feature : detect::known_features())
    keeping.features.emplace_back(feature.name);
  auto opened_history = store::History::open(options.state_folder + "/history", keeping);
  if (opened_history) {
    history = std::make_unique<HistoryThread>(std::move(opened_history).value(), options.log);
  } else {
    options.log(fmt::format("no history of features: {}", opened_history.error().what));
  }
  return {};
}

Result<void> Outputs::Impl::open_network() {
  if (!options.listen.empty()) {
    TRY(const auto place, parse_listen(options.listen));
    exporter::HttpOptions serving;
    serving.address = place.first;
    serving.port = place.second;
    TRY(server,
        exporter::HttpServer::start(serving, {exporter::metrics_route(board),
                                              exporter::health_route([] { return true; })}));
    options.log(fmt::format("metrics at http://{}:{}/metrics", place.first, server->port()));
  }
  if (!options.webhook.empty()) {
    exporter::HttpPostOptions posting;
    posting.url = options.webhook;
    posting.headers = options.webhook_headers;
    TRY(auto made, exporter::Webhook::create(posting, clock));
    webhook.emplace(std::move(made));
  }
  if (!options.otlp.empty()) {
    exporter::HttpPostOptions posting;
    posting.url = options.otlp;
    posting.headers = options.otlp_headers;
    TRY(const auto url, exporter::parse_http_url(options.otlp));
    if (url.path == "/") {  // the address of a collector alone
      if (posting.url.back() == '/') posting.url.pop_back();
      posting.url += exporter::kOtlpMetricsPath;
    }
    posting.queue_max = 16;  // a later snapshot says more than an old one
    TRY(otlp, exporter::HttpPoster::start(posting, clock));
    const std::int64_t started = sys::wall_time_ns();
    otlp_source = {options.host, options.version, fmt::format("{}-{}", options.host, started),
                   started};
  }
  if (options.collector) {
    TRY(fleet,
        FleetOutput::create(options.host, *options.collector, clock.now(), sys::wall_time_ns()));
  }
  return {};
}

Outputs::Outputs(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Outputs::~Outputs() = default;

Result<std::unique_ptr<Outputs>> Outputs::create(const Clock& clock, OutputOptions options) {
  auto impl = std::make_unique<Impl>(clock, std::move(options));
  TRY_VOID(impl->open_files());
  TRY_VOID(impl->open_network());
  return std::unique_ptr<Outputs>(new Outputs(std::move(impl)));
}

/// Processes that are no job yet have none: each script of a second would leave series behind.
void Outputs::Impl::add_features(MetricSet& set, const std::vector<FeatureRow>& rows,
                                 const std::set<std::string>& jobs) const {
  const auto& defs = feature_metrics();
  const bool all_are_judged = jobs.size() < JobTable::kJobsMax;
  for (const FeatureRow& row : rows) {
    if (all_are_judged && !jobs.contains(row.job)) continue;
    const auto labels = labels_of(row.job, row.window.rank, row.window.pid);
    for (std::size_t i = 0; i < defs.size(); ++i)
      set.add(defs[i].second, labels, row.window.values[i]);
    for (const KernelShare& kernel : row.kernels) {
      exporter::Labels of_kernel = labels;
      of_kernel.emplace_back("kernel", kernel.name);
      set.add(metrics::kKernelTime, of_kernel, kernel.share);
    }
  }
}

void Outputs::Impl::add_jobs(MetricSet& set, const std::vector<JobTable::JobStatus>& jobs,
                             bool is_paused) {
  for (const JobTable::JobStatus& job : jobs) {
    if (job.detector.state != detect::Detector::State::kWatching) continue;
    set.add(metrics::kThreshold, {{"job", job.name}}, job.detector.threshold);
    if (is_paused) continue;  // the scores are old
    for (const auto& rank : job.detector.ranks)
      set.add(metrics::kScore, labels_of(job.name, rank.rank, rank.pid), rank.score);
  }
}

void Outputs::Impl::add_incidents(MetricSet& set, const std::vector<JobTable::JobStatus>& jobs,
                                  const incident::Book& book) {
  std::map<std::pair<std::string, std::string_view>, int> open;
  for (const trace::IncidentRecord& one : book.open_ones())
    ++open[{one.job, word_of(one.kind)}];
  for (const auto& [what, count] : open) {
    set.add(metrics::kIncidentOpen, {{"job", what.first}, {"kind", std::string(what.second)}},
            count);
  }
  // From zero on, or the first of a kind would be no increase.
  std::set<std::string> counted = book.counted_jobs();
  for (const JobTable::JobStatus& job : jobs)
    counted.insert(job.name);
  for (const std::string& job : counted) {
    for (std::size_t kind = 0; kind < trace::kIncidentKinds.size(); ++kind)
      set.add(metrics::kIncidents,
              {{"job", job}, {"kind", std::string(trace::kIncidentKinds.at(kind))}},
              static_cast<double>(book.opened(job, static_cast<trace::IncidentKind>(kind))));
  }
}

void Outputs::Impl::add_agent(MetricSet& set, const AgentFigures& figures) {
  set.add(metrics::kAgentCpu, {}, figures.cpu_s);
  set.add(metrics::kAgentResident, {}, static_cast<double>(figures.resident_bytes));
  set.add(metrics::kProbeHits, {}, static_cast<double>(figures.probe_hits));
  set.add(metrics::kLostRecords, {}, static_cast<double>(figures.lost));
  set.add(metrics::kProcesses, {}, static_cast<double>(figures.process_count));
  set.add(metrics::kLoweredProbes, {}, static_cast<double>(figures.lowered_probes));
  set.add(metrics::kLookEvery, {}, figures.slowness);
  for (const Delivery& one : deliveries())
    exporter::add_post_metrics(set, one.target, one.counts);
}

std::vector<Delivery> Outputs::Impl::deliveries() const {
  std::vector<Delivery> out;
  if (webhook) out.push_back({"webhook", webhook->poster().counts()});
  if (otlp) out.push_back({"otlp", otlp->counts()});
  if (!fleet) return out;
  const fleet::BusStatus bus = fleet->status();
  exporter::HttpPoster::Counts counts;
  counts.sent = bus.sent;
  counts.dropped = bus.dropped_outgoing;
  counts.retries = bus.failed_connects;
  counts.queued = bus.queued_messages;
  if (!bus.is_connected) counts.last_error = bus.last_error;
  out.push_back({"collector", std::move(counts)});
  return out;
}

/// The first problem of a run of them is logged.
void Outputs::Impl::log_problems() {
  for (const Delivery& one : deliveries()) {
    std::string& before = problems[one.target];
    const std::string& now = one.counts.last_error;
    if (before.empty() && !now.empty()) options.log(fmt::format("{}: {}", one.target, now));
    before = now;
  }
}

/// Open incidents are told again: a collector forgets an incident that it hears nothing of, and one
/// that was started later never heard of it.
void Outputs::Impl::remind_collector(BootTime now, const incident::Book& book) {
  if (!fleet || now < next_reminder) return;
  next_reminder = now + kRemindEvery;
  for (const trace::IncidentRecord& incident : book.open_ones())
    fleet->on_incident(incident);
}

void Outputs::on_window(std::int64_t wall_ns, BootTime now, const std::vector<FeatureRow>& rows,
                        const std::vector<JobTable::JobStatus>& jobs, const incident::Book& book,
                        const AgentFigures& figures) {
  Impl& impl = *impl_;
  if (impl.feature_log) impl.written(impl.feature_log->append(wall_ns, rows));
  if (impl.history) impl.history->add(wall_ns, rows);
  std::set<std::string> names;
  for (const JobTable::JobStatus& job : jobs)
    names.insert(job.name);
  impl.remind_collector(now, book);
  if (impl.fleet) impl.fleet->on_window(wall_ns, now, rows, jobs);
  impl.log_problems();
  if (!impl.server && !impl.otlp) return;
  MetricSet set;
  // If there are more series than may be, the first ones stay.
  impl.add_agent(set, figures);
  Impl::add_jobs(set, jobs, figures.is_paused);
  Impl::add_incidents(set, jobs, book);
  impl.add_features(set, rows, names);
  impl.board.publish(std::move(set));
  if (impl.otlp && now >= impl.next_otlp) {
    impl.next_otlp = now + impl.options.otlp_every;
    impl.otlp->post(exporter::kOtlpContentType,
                    exporter::to_otlp(*impl.board.latest(), impl.otlp_source, wall_ns));
  }
}

void Outputs::on_incident(const incident::Notice& notice) {
  Impl& impl = *impl_;
  const trace::IncidentRecord& incident = notice.incident;
  using trace::IncidentEvent;
  const bool is_news = notice.event != IncidentEvent::kLabelled;
  if (is_news && impl.options.on_incident) impl.options.on_incident(notice);
  if (is_news && impl.incident_lines)
    impl.written(impl.incident_lines->append(as_bytes(incident.to_json().dump() + "\n")));
  if (impl.history) impl.history->put(incident);
  if (impl.fleet) impl.fleet->on_incident(incident);
  if (!impl.webhook || !is_news || notice.event == IncidentEvent::kNoted) return;
  // A receiver that pages when an incident opens hears of one that is over already, too.
  if (notice.is_first && notice.event == IncidentEvent::kClosed) {
    trace::IncidentRecord begun = incident;
    begun.end_ns = 0;
    impl.webhook->send(IncidentEvent::kOpened, begun);
  }
  impl.webhook->send(notice.event, incident);
}

void Outputs::finish(std::int64_t wall_ns, BootTime now) {
  Impl& impl = *impl_;
  impl.history.reset();  // writes waiting rows
  if (impl.fleet) impl.fleet->finish(wall_ns, now);
  if (impl.webhook) static_cast<void>(impl.webhook->poster().drain(kFinishLimit));
  if (impl.otlp) static_cast<void>(impl.otlp->drain(kFinishLimit));
}

std::vector<Delivery> Outputs::deliveries() const {
  return impl_->deliveries();
}

std::uint16_t Outputs::port() const {
  return impl_->server ? impl_->server->port() : std::uint16_t{0};
}
std::uint64_t Outputs::failed_writes() const {
  const std::uint64_t kept =
      impl_->history ? impl_->history->failed() + impl_->history->dropped() : 0;
  return impl_->failed_writes + kept;
}

}  // namespace kansoku::agent
