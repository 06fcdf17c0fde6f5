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
#include "agent/internal/incident_book.h"
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

constexpr Nanos kInheritFor = std::chrono::minutes{2};
constexpr Nanos kAliveEvery = std::chrono::seconds{10};
constexpr Nanos kRemindEvery = std::chrono::minutes{10};
constexpr Nanos kFinishLimit = std::chrono::seconds{2};

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
  static const auto all = [] {
    std::vector<std::pair<std::string, exporter::MetricDef>> out;
    out.reserve(detect::known_features().size());  // the texts must not move
    for (const detect::Feature& feature : detect::known_features()) {
      out.emplace_back(exporter::feature_metric(feature.name, feature.unit), exporter::MetricDef{});
      out.back().second = {out.back().first, exporter::unit_word(feature.unit),
                           exporter::MetricType::kGauge, feature.meaning};
    }
    return out;
  }();
  return all;
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
  std::optional<store::IncidentLog> incident_log;
  std::unique_ptr<HistoryThread> history;
  std::optional<FeatureLog> feature_log;
  std::unique_ptr<sys::FileSink> incident_lines;
  std::unique_ptr<FleetOutput> fleet;
  BootTime next_otlp{}, next_reminder{};
  IncidentBook book;
  BootTime inherits_until{}, next_alive{};
  std::int64_t alive_ns{0};  // when the agent before this one was last seen
  std::uint64_t failed_writes{0};
  std::map<std::string, std::string> problems;  // the last of each target
  // Of incidents whose last state could not be kept, by id; the log would call them open for ever.
  std::map<std::string, trace::IncidentRecord> unkept;

  Impl(const Clock& clock_in, OutputOptions options_in)
      : clock(clock_in), options(std::move(options_in)) {}

  // The first failure of a run of failures is told, all are counted.
  void written(const Result<void>& result) {
    if (result) return;
    if (failed_writes++ % 100 == 0) options.log(result.error().what);
  }
  Result<void> open_files();
  void inherit();
  void settle_inherited(BootTime now);
  /// The time of a file says until when there was an agent.
  void say_alive(BootTime now);
  [[nodiscard]] std::string alive_path() const { return options.state_folder + "/alive"; }
  void tell(const trace::IncidentRecord& incident, exporter::IncidentEvent event);
  void keep(const trace::IncidentRecord& incident);
  void keep_unkept();
  Result<void> open_network();
  void remind_collector(BootTime now);
  void add_features(MetricSet& set, const std::vector<FeatureRow>& rows,
                    const std::set<std::string>& jobs) const;
  void add_jobs(MetricSet& set, const std::vector<JobTable::JobStatus>& jobs, bool is_paused) const;
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
  if (options.state_folder.empty()) return {};
  TRY(auto log, store::IncidentLog::open(options.state_folder + "/incidents.jsonl", {}));
  incident_log.emplace(std::move(log));
  inherit();
  if (!options.keeps_history) return {};
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

void Outputs::Impl::inherit() {
  inherits_until = clock.now() + kInheritFor;
  const std::int64_t now_ns = sys::wall_time_ns();
  struct stat file {};
  alive_ns = ::stat(alive_path().c_str(), &file) == 0
                 ? std::min(now_ns, file.st_mtim.tv_sec * 1'000'000'000 + file.st_mtim.tv_nsec)
                 : now_ns - kInheritFor.count();
  // After a longer pause nobody knows whether it is the same job, or the same fault.
  if (now_ns - alive_ns > kInheritFor.count()) inherits_until = clock.now();
  store::IncidentFilter recent;
  recent.since_ns = now_ns - kInheritFor.count();
  const auto page = incident_log->incidents(recent);
  if (!page) {
    options.log(page.error().what);
    return;
  }
  book.inherit(page->incidents);
}

void Outputs::Impl::say_alive(BootTime now) {
  if (options.state_folder.empty() || now < next_alive) return;
  next_alive = now + kAliveEvery;
  written(sys::write_file(alive_path(), ""));
}

/// What nobody continued has ended when the agent before this one did, as far as is known.
void Outputs::Impl::settle_inherited(BootTime now) {
  if (!book.has_inherited() || now < inherits_until) return;
  for (trace::IncidentRecord& incident : book.take_unclaimed()) {
    incident.end_ns = std::max(incident.begin_ns, alive_ns);
    tell(incident, exporter::IncidentEvent::kClosed);
  }
}

void Outputs::Impl::tell(const trace::IncidentRecord& incident, exporter::IncidentEvent event) {
  if (options.on_incident) options.on_incident(incident);
  if (incident_lines) written(incident_lines->append(as_bytes(incident.to_json().dump() + "\n")));
  keep(incident);
  if (history) history->put(incident);
  if (fleet) fleet->on_incident(incident);
  if (webhook) webhook->send(event, incident);
}

void Outputs::Impl::keep(const trace::IncidentRecord& incident) {
  constexpr std::size_t kUnkeptMax = 256;
  if (!incident_log) return;
  const auto kept = incident_log->put(incident);
  written(kept);
  if (kept || kept.error().code == Code::kUnsupported) {  // too long: it will be so later
    unkept.erase(incident.id);
  } else if (unkept.size() < kUnkeptMax || unkept.contains(incident.id)) {
    unkept.insert_or_assign(incident.id, incident);
  }
}

/// Until one fails again.
void Outputs::Impl::keep_unkept() {
  while (!unkept.empty()) {
    if (!incident_log->put(unkept.begin()->second)) return;
    unkept.erase(unkept.begin());
  }
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
  }
}

void Outputs::Impl::add_jobs(MetricSet& set, const std::vector<JobTable::JobStatus>& jobs,
                             bool is_paused) const {
  for (const JobTable::JobStatus& job : jobs) {
    if (job.detector.state != detect::Detector::State::kWatching) continue;
    set.add(metrics::kThreshold, {{"job", job.name}}, job.detector.threshold);
    if (is_paused) continue;  // the scores are old
    for (const auto& rank : job.detector.ranks)
      set.add(metrics::kScore, labels_of(job.name, rank.rank, rank.pid), rank.score);
  }
  std::map<std::pair<std::string, std::string>, int> open;
  for (const auto& [id, incident] : book.open())
    ++open[{incident.job, incident.kind}];
  for (const auto& [what, count] : open)
    set.add(metrics::kIncidentOpen, {{"job", what.first}, {"kind", what.second}}, count);
  // From zero on, or the first of a kind would be no increase.
  std::set<std::string> counted = book.counted_jobs();
  for (const JobTable::JobStatus& job : jobs)
    counted.insert(job.name);
  for (const std::string& job : counted) {
    for (const std::string_view kind : trace::kIncidentKinds)
      set.add(metrics::kIncidents, {{"job", job}, {"kind", std::string(kind)}},
              static_cast<double>(book.opened(job, kind)));
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

/// What is open is told again: a collector forgets what it hears nothing of, and one that was
/// started later never heard of it.
void Outputs::Impl::remind_collector(BootTime now) {
  if (!fleet || now < next_reminder) return;
  next_reminder = now + kRemindEvery;
  for (const auto& [id, incident] : book.open())
    fleet->on_incident(incident);
}

void Outputs::on_window(std::int64_t wall_ns, BootTime now, const std::vector<FeatureRow>& rows,
                        const std::vector<JobTable::JobStatus>& jobs, const AgentFigures& figures) {
  Impl& impl = *impl_;
  impl.settle_inherited(now);
  impl.say_alive(now);
  impl.keep_unkept();
  if (impl.feature_log) impl.written(impl.feature_log->append(wall_ns, rows));
  if (impl.history) impl.history->add(wall_ns, rows);
  std::set<std::string> names;
  for (const JobTable::JobStatus& job : jobs)
    names.insert(job.name);
  impl.book.count_only(names, now);
  impl.remind_collector(now);
  if (impl.fleet) impl.fleet->on_window(wall_ns, now, rows, jobs);
  impl.log_problems();
  if (!impl.server && !impl.otlp) return;
  MetricSet set;
  // What comes first stays if there are more series than may be.
  impl.add_agent(set, figures);
  impl.add_jobs(set, jobs, figures.is_paused);
  impl.add_features(set, rows, names);
  impl.board.publish(std::move(set));
  if (impl.otlp && now >= impl.next_otlp) {
    impl.next_otlp = now + impl.options.otlp_every;
    impl.otlp->post(exporter::kOtlpContentType,
                    exporter::to_otlp(*impl.board.latest(), impl.otlp_source, wall_ns));
  }
}

void Outputs::on_incident(const trace::IncidentRecord& told) {
  const IncidentBook::Told noted = impl_->book.note(told);
  // Who pages when one opens hears of one that is over already, too.
  if (noted.is_first && noted.event == exporter::IncidentEvent::kClosed && impl_->webhook) {
    trace::IncidentRecord begun = noted.incident;
    begun.end_ns = 0;
    impl_->webhook->send(exporter::IncidentEvent::kOpened, begun);
  }
  impl_->tell(noted.incident, noted.event);
}

void Outputs::finish(std::int64_t wall_ns, BootTime now) {
  Impl& impl = *impl_;
  impl.keep_unkept();
  impl.history.reset();  // writes what waits
  if (impl.fleet) impl.fleet->finish(wall_ns, now);
  if (impl.webhook) static_cast<void>(impl.webhook->poster().drain(kFinishLimit));
  if (impl.otlp) static_cast<void>(impl.otlp->drain(kFinishLimit));
}

Result<std::vector<trace::IncidentRecord>> Outputs::incidents(
    const store::IncidentFilter& filter) const {
  if (!impl_->incident_log) return std::vector<trace::IncidentRecord>{};
  TRY(auto page, impl_->incident_log->incidents(filter));
  return std::move(page.incidents);
}

Result<void> Outputs::label(std::string_view id, std::string_view label) {
  if (!impl_->incident_log)
    return Error{Code::kNotFound, fmt::format("label incident {}: none are kept", id)};
  TRY_VOID(impl_->incident_log->label(id, label));
  impl_->book.label(id, label);
  if (const auto one = impl_->unkept.find(std::string(id)); one != impl_->unkept.end())
    one->second.label = label;
  if (impl_->history) impl_->history->label(id, label);
  return {};
}

std::string Outputs::label_before(const std::string& detector_id) const {
  return impl_->book.label_before(detector_id);
}

std::string Outputs::detector_id(std::string_view id) const {
  return impl_->book.detector_id(id);
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
