// SPDX-License-Identifier: Apache-2.0
#include "agent/agent.h"

#include <fmt/format.h>
#include <poll.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <set>
#include <utility>

#include "agent/call_source.h"
#include "agent/cuda_source.h"
#include "agent/device_source.h"
#include "agent/governor.h"
#include "agent/host_source.h"
#include "agent/job_key.h"
#include "agent/job_table.h"
#include "agent/status.h"
#include "agent/window_source.h"
#include "common/parse.h"
#include "fleet/request.h"
#include "incident/book.h"
#include "sys/clock.h"
#include "sys/fd.h"
#include "sys/unix_socket.h"

namespace kansoku::agent {
namespace {

constexpr Nanos kPollEvery = std::chrono::milliseconds{400};

Result<void> make_folder(const std::string& path) {
  if (::mkdir(path.c_str(), 0700) == 0 || errno == EEXIST) return {};
  return errno_error(errno, "create folder", path);
}

double own_cpu_s() {
  rusage usage{};
  ::getrusage(RUSAGE_SELF, &usage);
  const auto seconds = [](const timeval& time) {
    return static_cast<double>(time.tv_sec) + 1e-6 * static_cast<double>(time.tv_usec);
  };
  return seconds(usage.ru_utime) + seconds(usage.ru_stime);
}

std::uint64_t own_resident_bytes() {
  const auto text = sys::read_file("/proc/self/statm", 4096);
  if (!text) return 0;
  const auto first = text->find(' ');
  const auto second = text->find(' ', first + 1);
  if (second == std::string::npos) return 0;
  const auto pages =
      parse_int<std::uint64_t>(std::string_view(*text).substr(first + 1, second - first - 1));
  return pages.value_or(0) * static_cast<std::uint64_t>(::sysconf(_SC_PAGESIZE));
}

}  // namespace

struct Agent::Impl {
  const Clock& clock;
  const sys::Procfs& procfs;
  AgentOptions options;
  std::unique_ptr<capture::Watcher> watcher;
  struct Asked {
    std::unique_ptr<WindowSource> source;
    Nanos cpu{};
  };
  std::vector<Asked> sources;  // sources of the rows
  std::unique_ptr<JobTable> jobs;
  std::optional<incident::Book> book;
  std::unique_ptr<Outputs> outputs;
  std::unique_ptr<IncidentRecorder> recorder;  // null: incidents are not recorded
  std::optional<sys::UnixServer> control;
  fleet::RequestTable requests;
  std::vector<FeatureRow> rows;  // of the last window; their processes are gone
  BootTime started{};
  bool is_paused{false};
  Governor governor;
  double cpu_before{own_cpu_s()};
  std::int64_t last_wall_ns{0}, ahead_ns{0};
  std::uint64_t windows{0}, clock_jumps{0};

  Impl(const Clock& clock_in, const sys::Procfs& procfs_in, AgentOptions options_in)
      : clock(clock_in),
        procfs(procfs_in),
        options(std::move(options_in)),
        governor(Governor::Options{.budget = options.budget}) {}

  void log(const std::string& line) const {
    if (options.log) options.log(line);
  }
  void on_window(BootTime now);
  [[nodiscard]] std::int64_t rising_wall_ns();
  void add_sources(const std::vector<MetricFeature>& rules);
  void make_rows(const capture::WatchWindow& window);
  void govern(BootTime now, const capture::WatchWindow& window);
  void observe(const std::vector<incident::Observation>& seen);
  void send_notice(const incident::Notice& notice);
  [[nodiscard]] AgentFigures figures() const;
  [[nodiscard]] StatusView status() const;
  Result<bool> label(std::string_view id, trace::IncidentLabel label);
  void take_requests();
  void serve(BootTime now);
  void wait(Nanos at_most) const;
};

void Agent::Impl::observe(const std::vector<incident::Observation>& seen) {
  for (const incident::Observation& one : seen) {
    const incident::Notice notice = book->observe(one);
    send_notice(notice);
    // Labelled while the agent before this one watched it.
    if (notice.label) jobs->take_label({one.job, one.source, one.episode}, *notice.label);
  }
}

void Agent::Impl::send_notice(const incident::Notice& notice) {
  outputs->on_incident(notice);
  const bool has_begun =
      notice.event == trace::IncidentEvent::kOpened && notice.incident.end_ns == 0;
  if (!recorder || !has_begun) return;
  std::vector<std::int32_t> pids;
  for (const FeatureRow& row : rows)
    if (row.job == notice.incident.job) pids.push_back(row.window.pid);
  recorder->on_opened(notice.incident, std::move(pids), clock.now());
}

AgentFigures Agent::Impl::figures() const {
  const capture::Watcher::Status watching = watcher->status();
  AgentFigures out;
  out.cpu_s = own_cpu_s();
  out.resident_bytes = own_resident_bytes();
  out.probe_hits = watching.hits;
  out.lost = watching.ring_full + watching.totals_full + watching.over_limit;
  out.process_count = watching.target_count;
  out.own_share = governor.own_share();
  out.lowered_probes = governor.lowered_count();
  out.slowness = governor.slowness();
  out.is_paused = is_paused;
  return out;
}

// Detectors take windows in order: after the wall clock was set back, time goes on from where it
// was until the agent starts anew, and the log says by how much it is off.
std::int64_t Agent::Impl::rising_wall_ns() {
  const std::int64_t read_ns = sys::wall_time_ns();
  if (read_ns + ahead_ns <= last_wall_ns) {
    ahead_ns = last_wall_ns + options.window.count() - read_ns;
    ++clock_jumps;
    log(fmt::format("the wall clock was set back; times here are {:.1f} s ahead of it from now on",
                    static_cast<double>(ahead_ns) * 1e-9));
  } else if (ahead_ns > 0 && read_ns > last_wall_ns) {
    ahead_ns = 0;  // it has caught up
  }
  last_wall_ns = read_ns + ahead_ns;
  return last_wall_ns;
}

void Agent::Impl::govern(BootTime now, const capture::WatchWindow& window) {
  const auto entries = watcher->entries();
  std::vector<Governor::Entry> seen;
  seen.reserve(entries.size());
  for (const auto& entry : entries)
    seen.push_back({entry.name, entry.hits_of_one, entry.enabled, entry.call_s});
  const double cpu = own_cpu_s() - (recorder ? recorder->cpu_s() : 0);
  const double window_s = static_cast<double>((window.end - window.begin).count()) * 1e-9;
  const int slowness = governor.slowness();
  for (const Governor::Change& change : governor.on_window(now, window_s, seen, cpu - cpu_before)) {
    watcher->set_entry_enabled(change.entry, change.enabled);
    log(change.reason);
  }
  cpu_before = cpu;
  if (governor.slowness() != slowness) {
    log(fmt::format("the agent costs {:.2f} % of a core, budget {:.2f} %: {} readings",
                    governor.own_share() * 100, options.budget * 100,
                    governor.slowness() > slowness ? "rarer" : "more frequent"));
  }
}

void Agent::Impl::add_sources(const std::vector<MetricFeature>& rules) {
  sources.push_back({std::make_unique<CallSource>(rules)});
  sources.push_back({std::make_unique<HostSource>()});
  sources.push_back({std::make_unique<DeviceSource>(
      clock, watcher->metrics(),
      DeviceSource::Options{.libraries = options.device_libraries, .log = options.log})});
  sources.push_back({std::make_unique<CudaSource>(clock, procfs, options.log)});
}

// When watching costs too much whatever is dear is read less often.
void Agent::Impl::make_rows(const capture::WatchWindow& window) {
  const auto rare = static_cast<std::uint64_t>(governor.slowness());
  const bool is_full = windows++ % rare == 0;
  rows = rows_of(window);
  for (Asked& asked : sources) {
    const Nanos before = sys::thread_cpu_time();
    asked.source->fill(window, is_full, rows);
    asked.cpu += sys::thread_cpu_time() - before;
  }
}

void Agent::Impl::on_window(BootTime now) {
  const capture::WatchWindow window = watcher->take_window();
  make_rows(window);
  const std::int64_t wall_ns = rising_wall_ns();
  // Without its calls a job is not the one that was learnt.
  for (const incident::Notice& notice : book->tick(now))
    send_notice(notice);
  observe(is_paused ? jobs->pass(wall_ns, now, rows) : jobs->on_rows(wall_ns, now, rows));
  for (const Asked& asked : sources)
    observe(asked.source->observations(wall_ns - options.window.count(), wall_ns));
  const auto judged = jobs->status();
  std::set<std::string> names;
  for (const JobTable::JobStatus& job : judged)
    names.insert(job.name);
  book->count_only(names, now);
  outputs->on_window(wall_ns, now, rows, judged, *book, figures());
  for (FeatureRow& row : rows)
    row.process = nullptr;  // it goes with the window
  if (recorder) recorder->poll();
  govern(now, window);
}

StatusView Agent::Impl::status() const {
  StatusView view;
  view.host = options.host;
  view.version = options.version;
  view.started = started;
  view.now = clock.now();
  view.watching = watcher->status();
  view.entries = watcher->entries();
  view.problems = watcher->problems();
  view.figures = figures();
  view.jobs = jobs->status();
  view.incidents = book->open_ones();
  view.rows = &rows;
  const JobTable::Counters& judging = jobs->counters();
  view.failed_writes = outputs->failed_writes() + book->failed_writes() + judging.failed_writes;
  view.jobs_over_limit = judging.over_limit;
  view.refused_models = judging.refused_models;
  for (const Asked& asked : sources) {
    SourceStatus& status = view.sources.emplace_back();
    status.name = asked.source->name();
    status.state = asked.source->state();
    status.cpu_s = static_cast<double>(asked.cpu.count()) * 1e-9;
    asked.source->add_losses(status.losses);
  }
  view.is_paused = is_paused;
  view.deliveries = outputs->deliveries();
  if (recorder) view.recordings = recorder->counters();
  return view;
}

Result<bool> Agent::Impl::label(std::string_view id, trace::IncidentLabel label) {
  TRY(const incident::Book::Labelled done, book->label(id, label));
  if (done.notice) send_notice(*done.notice);
  bool is_learnt = false;
  for (const incident::Reporter& reporter : done.reporters)
    is_learnt = jobs->take_label(reporter, label) || is_learnt;
  return is_learnt;
}

void Agent::Impl::take_requests() {
  requests.on<fleet::StatusRequest>([this](const auto&) -> Result<fleet::StatusRequest::Reply> {
    return fleet::StatusRequest::Reply{status_json(status())};
  });
  requests.on<fleet::IncidentsRequest>(
      [this](const auto& asked) -> Result<fleet::IncidentsRequest::Reply> {
        store::IncidentFilter filter;
        filter.since_ns = asked.since_ns;
        filter.job = asked.job;
        filter.kind = asked.kind;
        filter.only_open = asked.only_open;
        filter.count_max = static_cast<std::size_t>(asked.count);
        TRY(auto found, book->incidents(filter));
        return fleet::IncidentsRequest::Reply{std::move(found)};
      });
  requests.on<fleet::LabelRequest>([this](const auto& asked) -> Result<fleet::LabelRequest::Reply> {
    TRY(const bool is_learnt, label(asked.id, asked.label));
    return fleet::LabelRequest::Reply{is_learnt};
  });
  const auto pause = [this](bool paused) {
    is_paused = paused;
    watcher->set_enabled(!paused);
    for (const Asked& asked : sources)
      asked.source->set_enabled(!paused);
    return fleet::PauseRequest::Reply{};
  };
  requests.on<fleet::PauseRequest>([pause](const auto&) { return pause(true); });
  requests.on<fleet::ResumeRequest>([pause](const auto&) { return pause(false); });
}

void Agent::Impl::serve(BootTime now) {
  if (!control) return;
  control->serve(now, [this](std::string_view line) { return requests.answer(line); });
}

// Until then, a request, or a signal.
void Agent::Impl::wait(Nanos at_most) const {
  const timespec limit{.tv_sec = at_most.count() / 1'000'000'000,
                       .tv_nsec = at_most.count() % 1'000'000'000};
  pollfd waiting{.fd = control ? control->poll_fd() : -1, .events = POLLIN, .revents = 0};
  static_cast<void>(::ppoll(&waiting, 1, &limit, nullptr));
}

Agent::Agent(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Agent::~Agent() = default;

Result<std::unique_ptr<Agent>> Agent::create(const Clock& clock, const sys::Procfs& procfs,
                                             AgentOptions options) {
  auto impl = std::make_unique<Impl>(clock, procfs, std::move(options));
  const AgentOptions& given = impl->options;
  // Before anything asks which features there are.
  TRY(const auto rules, metric_features(given.packs, capture::MetricTable(given.packs)));
  std::string models;
  if (!given.state_folder.empty()) {
    TRY_VOID(make_folder(given.state_folder));
    models = given.state_folder + "/models";
    TRY_VOID(make_folder(models));
  }
  OutputOptions out = given.outputs;
  out.host = given.host;
  out.version = given.version;
  out.state_folder = given.state_folder;
  out.log = [raw = impl.get()](const std::string& line) { raw->log(line); };
  // First: where another agent runs already, its files are not touched.
  if (!given.state_folder.empty()) {
    TRY(auto control, sys::UnixServer::listen(given.state_folder + "/control.sock"));
    impl->control.emplace(std::move(control));
  }
  incident::BookOptions keeping;
  keeping.host = given.host;
  keeping.folder = given.state_folder;
  keeping.pause = detect::kEpisodePause;
  keeping.log = [raw = impl.get()](const std::string& line) { raw->log(line); };
  TRY(auto book, incident::Book::open(std::move(keeping), clock.now(), sys::wall_time_ns()));
  impl->book.emplace(std::move(book));
  TRY(impl->outputs, Outputs::create(clock, std::move(out)));
  if (given.recording.duration != Nanos{}) {
    if (given.state_folder.empty())
      return Error{Code::kUnsupported, "record incidents: no state folder"};
    impl->recorder = std::make_unique<IncidentRecorder>(
        clock, procfs, given.recording, given.state_folder,
        [raw = impl.get()](const std::string& line) { raw->log(line); });
  }
  impl->started = clock.now();
  capture::WatcherOptions watching;
  watching.packs = given.packs;
  watching.attach_mode = given.attach_mode;
  watching.wants = given.wants;
  watching.log = given.log;
  TRY(impl->watcher, capture::Watcher::create(clock, procfs, std::move(watching)));
  impl->add_sources(rules);
  std::vector<std::string> hardware;
  for (const Impl::Asked& asked : impl->sources) {
    const auto more = asked.source->hardware();
    hardware.insert(hardware.end(), more.begin(), more.end());
  }
  JobTableOptions judging;
  judging.host = given.host;
  judging.hardware = hardware_text(hardware);
  judging.models_folder = models;
  judging.window = given.window;
  judging.learn_time = given.learn_time;
  judging.alarms_per_day = given.alarms_per_day;
  judging.log = [raw = impl.get()](const std::string& line) { raw->log(line); };
  impl->jobs = std::make_unique<JobTable>(std::move(judging));
  impl->take_requests();
  return std::unique_ptr<Agent>(new Agent(std::move(impl)));
}

Result<void> Agent::run(const std::function<bool()>& should_stop) {
  Impl& impl = *impl_;
  const BootTime begin = impl.clock.now();
  const BootTime end =
      impl.options.duration == Nanos{} ? BootTime::max() : begin + impl.options.duration;
  BootTime next_window = begin + impl.options.window;
  while (!should_stop()) {
    BootTime now = impl.clock.now();
    if (now >= end) break;
    impl.watcher->poll();
    impl.serve(now);
    if (now >= next_window) {
      impl.on_window(now);
      // Windows that a suspended machine or a busy one missed are not made up for.
      next_window += impl.options.window;
      now = impl.clock.now();
      if (next_window <= now) next_window = now + impl.options.window;
    }
    const BootTime wake = std::min({now + kPollEvery * impl.governor.slowness(), next_window, end});
    impl.wait(wake - now);
  }
  const std::int64_t wall_ns = impl.rising_wall_ns();
  impl.observe(impl.jobs->finish(wall_ns));
  impl.outputs->finish(wall_ns, impl.clock.now());
  return {};
}

}  // namespace kansoku::agent
