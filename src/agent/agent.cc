// SPDX-License-Identifier: Apache-2.0
#include "agent/agent.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <poll.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <set>
#include <utility>

#include "agent/feature_values.h"
#include "agent/governor.h"
#include "agent/host_meter.h"
#include "agent/job_key.h"
#include "agent/job_table.h"
#include "agent/status.h"
#include "capture/nvml/counters.h"
#include "common/parse.h"
#include "fleet/request.h"
#include "incident/book.h"
#include "sys/clock.h"
#include "sys/fd.h"
#include "sys/unix_socket.h"

namespace kansoku::agent {
namespace {

constexpr Nanos kPollEvery = std::chrono::milliseconds{400};
constexpr Nanos kDevicesRetry = std::chrono::minutes{1};

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

bool has_device_calls(const capture::WatchWindow& window, const capture::MetricTable& metrics) {
  constexpr std::string_view kOfDevices = "cuda";  // the category of probes
  for (const capture::ProcessWindow& process : window.processes) {
    for (std::size_t i = 0; i < process.metrics.size(); ++i)
      if (process.metrics[i].is_known && metrics.category(i) == kOfDevices) return true;
  }
  return false;
}

/// What no detector can tell: whoever it happened to is gone.
incident::Observation observation_of(const OrphanedErrors& errors, std::uint64_t number,
                                     std::int64_t begin_ns, std::int64_t end_ns) {
  incident::Observation out{errors.users.front().job, incident::Source::kHardware, number, {}};
  trace::IncidentFacts& facts = out.facts;
  facts.begin_ns = begin_ns;
  facts.end_ns = end_ns;
  facts.kind = trace::IncidentKind::kHardwareFault;
  for (const OrphanedErrors::User& user : errors.users) {
    if (user.job != out.job) continue;
    facts.pids.push_back(user.pid);
    if (user.rank >= 0) facts.ranks.push_back(user.rank);
  }
  facts.tests = {"event"};
  facts.window_count = 1;
  const double seen = static_cast<double>(errors.count) * 1e9 /
                      static_cast<double>(std::max<std::int64_t>(1, end_ns - begin_ns));
  facts.evidence.push_back({"gpu_xid", "1/s", "gpu", 0, seen, 1});
  facts.summary =
      fmt::format("device {}: {}; {} ended with it", errors.device,
                  errors.last_xid ? fmt::format("XID error {}", *errors.last_xid) : "it is lost",
                  facts.ranks.empty() ? fmt::format("pid {}", fmt::join(facts.pids, ", "))
                                      : fmt::format("rank {}", fmt::join(facts.ranks, ", ")));
  facts.suggestion = "dmesg --ctime | grep -i xid";
  return out;
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
  AgentOptions options;
  std::unique_ptr<capture::Watcher> watcher;
  std::unique_ptr<capture::nvml::DeviceCounters> devices;
  std::vector<capture::nvml::DeviceSample> samples;  // the last ones
  std::unique_ptr<JobTable> jobs;
  std::optional<incident::Book> book;
  std::uint64_t hardware_errors{0};
  std::unique_ptr<Outputs> outputs;
  std::unique_ptr<IncidentRecorder> recorder;  // null: incidents are not recorded
  std::optional<sys::UnixServer> control;
  fleet::RequestTable requests;
  std::vector<FeatureRow> rows;  // of the last window; their processes are gone
  std::string devices_state{"none"};
  BootTime started{};
  bool is_paused{false};
  HostMeter host_meter;
  FeatureMaker maker;
  Governor governor;
  BootTime devices_retry{};
  bool uses_devices{false};
  double cpu_before{own_cpu_s()};
  std::int64_t last_wall_ns{0}, ahead_ns{0};
  std::uint64_t windows{0}, clock_jumps{0};

  Impl(const Clock& clock_in, AgentOptions options_in)
      : clock(clock_in),
        options(std::move(options_in)),
        governor(Governor::Options{.budget = options.budget}) {}

  void log(const std::string& line) const {
    if (options.log) options.log(line);
  }
  void open_devices(BootTime now);
  void on_window(BootTime now);
  [[nodiscard]] std::int64_t rising_wall_ns();
  void sample_devices(BootTime now, bool is_rare_turn);
  void govern(BootTime now, const capture::WatchWindow& window);
  void observe(const std::vector<incident::Observation>& seen);
  void tell(const incident::Told& told);
  [[nodiscard]] AgentFigures figures() const;
  [[nodiscard]] StatusView status() const;
  Result<bool> label(std::string_view id, trace::IncidentLabel label);
  void take_requests();
  void serve(BootTime now);
  void wait(Nanos at_most) const;
};

// A library that has devices on every host (the software device's) is opened only for a process
// that uses one.
void Agent::Impl::open_devices(BootTime now) {
  if (devices || now < devices_retry) return;
  const bool is_first = devices_retry == BootTime{};
  devices_retry = now + kDevicesRetry;
  for (const std::string& library : options.device_libraries) {
    if (!uses_devices && &library != &options.device_libraries.front()) break;
    auto opened = capture::nvml::open_nvml({.library = library});
    if (opened) {
      devices = std::move(opened).value();
      devices_state = fmt::format("{} by {}", devices->devices().size(), library);
      log("devices: " + devices_state);
      return;
    }
    devices_state = "none: " + opened.error().what;
    if (is_first) log(opened.error().what);
    if (opened.error().code == Code::kTimeout) {  // each try leaves a thread that hangs behind
      devices_retry = BootTime::max();
      log("devices are not asked for again until the agent is started anew");
      return;
    }
  }
}

/// When watching costs too much devices are asked less often, and their last figures stand. What
/// they report of themselves is logged, whether or not a process is there to which it belongs.
void Agent::Impl::sample_devices(BootTime now, bool is_rare_turn) {
  if (!devices || (!is_rare_turn && !samples.empty())) return;
  const auto before = std::exchange(samples, devices->sample(now));
  for (const capture::nvml::DeviceSample& sample : samples) {
    const auto last = std::find_if(before.begin(), before.end(),
                                   [&](const auto& one) { return one.index == sample.index; });
    if (last == before.end()) continue;
    if (sample.xid_count > last->xid_count)
      log(fmt::format("device {}: XID error {}, {} since the agent started", sample.index,
                      sample.last_xid.value_or(0), sample.xid_count));
    if (sample.is_lost != last->is_lost)
      log(fmt::format("device {} {}", sample.index,
                      sample.is_lost ? "is lost: its figures are missing from now on" : "is back"));
  }
}

void Agent::Impl::observe(const std::vector<incident::Observation>& seen) {
  for (const incident::Observation& one : seen) {
    const incident::Told told = book->observe(one);
    tell(told);
    // Labelled while the agent before this one watched it.
    if (told.word) jobs->take_word({one.job, one.source, one.episode}, *told.word);
  }
}

void Agent::Impl::tell(const incident::Told& told) {
  outputs->on_incident(told);
  const bool has_begun = told.event == trace::IncidentEvent::kOpened && told.incident.end_ns == 0;
  if (!recorder || !has_begun) return;
  std::vector<std::int32_t> pids;
  for (const FeatureRow& row : rows)
    if (row.job == told.incident.job) pids.push_back(row.window.pid);
  recorder->on_opened(told.incident, std::move(pids), clock.now());
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
    log(fmt::format("watching itself costs {:.2f} % of a core, budget {:.2f} %: {} looks",
                    governor.own_share() * 100, options.budget * 100,
                    governor.slowness() > slowness ? "rarer" : "more frequent"));
  }
}

void Agent::Impl::on_window(BootTime now) {
  const capture::WatchWindow window = watcher->take_window();
  if (!uses_devices && has_device_calls(window, watcher->metrics())) {
    uses_devices = true;
    devices_retry = now;
  }
  open_devices(now);
  const auto rare = static_cast<std::uint64_t>(governor.slowness());
  const bool is_rare_turn = windows++ % rare == 0;
  const HostWindow host = host_meter.sample(window, is_rare_turn);
  sample_devices(now, is_rare_turn);
  rows = maker.make(window, host, samples);
  const std::int64_t wall_ns = rising_wall_ns();
  // Without its calls a job is not the one that was learnt.
  for (const incident::Told& told : book->tick(now))
    tell(told);
  observe(is_paused ? jobs->pass(wall_ns, now, rows) : jobs->on_rows(wall_ns, now, rows));
  for (const OrphanedErrors& errors : maker.orphaned_errors())
    observe({observation_of(errors, ++hardware_errors, wall_ns - options.window.count(), wall_ns)});
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
  view.devices = devices_state;
  if (devices) view.device_stats = devices->stats();
  view.is_paused = is_paused;
  view.deliveries = outputs->deliveries();
  if (recorder) view.recordings = recorder->counters();
  return view;
}

Result<bool> Agent::Impl::label(std::string_view id, trace::IncidentLabel label) {
  TRY(const incident::Book::Labelled done, book->label(id, label));
  if (done.told) tell(*done.told);
  return done.reporter && jobs->take_word(*done.reporter, label);
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
  auto impl = std::make_unique<Impl>(clock, std::move(options));
  const AgentOptions& given = impl->options;
  // Before anything asks which features there are.
  TRY(const auto rules, metric_features(given.packs, capture::MetricTable(given.packs)));
  impl->maker = FeatureMaker(rules);
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
      return Error{Code::kUnsupported, "record incidents: there is no state folder"};
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
  impl->open_devices(clock.now());
  std::vector<std::string> device_names;
  if (impl->devices) {
    for (const auto& device : impl->devices->devices())
      device_names.push_back(device.name);
  }
  JobTableOptions judging;
  judging.host = given.host;
  judging.hardware = hardware_text(device_names);
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
