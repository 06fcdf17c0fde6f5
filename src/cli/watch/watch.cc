// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <string>
#include <vector>

#include "agent/agent.h"
#include "cli/commands.h"
#include "cli/option_values.h"
#include "cli/watch/nats_options.h"
#include "cli/watch/watch_client.h"
#include "cli/wiring.h"
#include "common/parse.h"
#include "common/text.h"
#include "fleet/request.h"
#include "sys/capabilities.h"
#include "sys/clock.h"
#include "sys/process.h"

namespace kansoku::cli {
namespace {

class WatchCommand final : public Command {
 public:
  void declare(CLI::App& app) override {
    options_.state_folder = kStateFolder;
    app.add_option("--state", options_.state_folder,
                   "folder for models, incidents, history and the control socket")
        ->capture_default_str();
    app.add_option("--for", duration_, "stop after this time (default: until stopped)");
    app.add_option("--window", window_, "length of a window")->capture_default_str();
    app.add_option("--learn", learn_, "learning time of a new job")->capture_default_str();
    app.add_option(
           "--budget", budget_,
           "limit of the processor time, as a share of one core and of each process, e.g. 1%")
        ->capture_default_str();
    app.add_option("--alarms", options_.alarms_per_day, "target for false alarms a day and job")
        ->check(CLI::Range(1e-3, 1000.0))
        ->capture_default_str();
    app.add_option("--probes", probes_, "packs with the metrics to count")->capture_default_str();
    app.add_option("--record-on-incident", record_,
                   "record all ranks of a job for this long when an incident begins, e.g. 20s;\n"
                   "`kansoku incidents show ID` then names and diagnoses the file");
    app.add_option("--record-probes", record_probes_, "packs of these recordings")
        ->capture_default_str();
    app.add_option("--record-size", record_size_, "limit of all recordings; the oldest are deleted")
        ->capture_default_str();
    app.add_option("-p,--pid", pids_, "watch only these processes and their descendants");
    app.add_option("--job", job_, "watch only this job");
    app.add_option("--host", options_.host,
                   "name of this host in all outputs (default: KANSOKU_HOST, or the kernel's name)")
        ->envname("KANSOKU_HOST");
    app.add_option("--features", options_.outputs.features_csv,
                   "append the features of each window to this file (CSV)");
    app.add_option("--incidents", options_.outputs.incidents_jsonl,
                   "also append incidents to this file, one JSON line each time an incident "
                   "begins, changes or ends");
    app.add_option(
        "--listen", options_.outputs.listen,
        "serve metrics at this address, e.g. 127.0.0.1:9464 (Prometheus and OpenMetrics)");
    app.add_option("--otlp", options_.outputs.otlp, "send metrics to this OTLP/HTTP collector")
        ->envname("KANSOKU_OTLP");
    app.add_option("--webhook", options_.outputs.webhook,
                   "post incidents to this address; put a secret address into the environment")
        ->envname("KANSOKU_WEBHOOK");
    collector_.declare_collector(app);
    app.add_option("--nvml", options_.device_libraries.front(),
                   "path of the driver's management library, if the loader does not find it, e.g.\n"
                   "/run/nvidia/driver/usr/lib/x86_64-linux-gnu/libnvidia-ml.so.1")
        ->envname("KANSOKU_NVML")
        ->capture_default_str();
    app.add_flag("!--no-history", options_.outputs.keeps_history, "keep no history of features");
    app.add_option("--history-age", history_age_, "delete history older than this")
        ->capture_default_str();
    app.add_option("--history-size", history_size_, "delete the oldest history above this size")
        ->capture_default_str();
    app.add_flag("--keep-sys-admin", keeps_sys_admin_,
                 "keep CAP_SYS_ADMIN: cheaper TCP figures of other network namespaces");
    app.add_flag("--status", status_, "print the state of the running agent and exit");
    app.add_option(
           "--control", control_,
           "control the running agent: pause detaches all probes, resume attaches them again")
        ->check(CLI::IsMember({"pause", "resume"}));
    app.add_flag("--json", json_, "print incidents as JSON lines (kansoku.watch_incident/1)");
    app.add_flag("-q,--quiet", quiet_, "print only errors on standard error");
    app.footer(
        "Finds the AI processes of this host by the libraries that they map, counts their calls,\n"
        "reads the counters of kernel and GPU, learns normal behaviour and reports incidents.\n"
        "Examples:\n"
        "  kansoku watch                         # until Ctrl-C; incidents on standard output\n"
        "  kansoku watch --learn 2m --for 1h --json > incidents.jsonl\n"
        "Exit status: 0 when stopped.");
  }

  int run() override {
    if (status_) return run_status();
    if (!control_.empty()) {
      const auto agent = fleet::local_socket(options_.state_folder);
      const auto done = control_ == fleet::PauseRequest::kName
                            ? fleet::ask(agent, fleet::PauseRequest{})
                            : fleet::ask(agent, fleet::ResumeRequest{});
      return done ? kExitOk : report(done.error());
    }
    if (const auto bad = read_options(); !bad) return report(bad.error());
    install_signal_counter();
    sys::raise_descriptor_limit();
    if (const auto kept = give_up_rights(); !kept) return report(kept.error());
    const sys::RealClock clock;
    const sys::Procfs procfs;
    options_.log = [this](const std::string& line) {
      if (!quiet_) say(stderr, "kansoku: " + printable(line));
    };
    options_.outputs.on_incident = [this](const incident::Notice& notice) { print(notice); };
    auto agent = agent::Agent::create(clock, procfs, options_);
    if (!agent) return report(agent.error());
    if (const auto ran = (*agent)->run([] { return signal_count() > 0; }); !ran)
      return report(ran.error());
    return kExitOk;
  }

 private:
  /// Names missing parts, and keeps no right that watching does not need.
  Result<void> give_up_rights() const {
    using sys::Capability;
    TRY(const std::uint64_t have, sys::effective_capabilities());
    for (const auto& missing : sys::missing_capabilities(have)) {
      if (!quiet_)
        say(stderr, fmt::format("kansoku: without {}: {}", missing.name, missing.purpose));
    }
    std::vector<Capability> kept{Capability::kBpf,       Capability::kPerfmon,
                                 Capability::kSysPtrace, Capability::kDacReadSearch,
                                 Capability::kNetAdmin,  Capability::kCheckpointRestore};
    // Older runtimes know no CAP_BPF: then the one that includes it has to stay.
    const auto stands_in = [&](Capability wanted) {
      return sys::has_capability(have, wanted) && (have >> static_cast<unsigned>(wanted) & 1U) == 0;
    };
    const bool is_needed = stands_in(Capability::kBpf) || stands_in(Capability::kPerfmon);
    if (is_needed && !keeps_sys_admin_ && !quiet_)
      say(stderr, "kansoku: keeping CAP_SYS_ADMIN, because CAP_BPF or CAP_PERFMON is missing");
    if (keeps_sys_admin_ || is_needed) kept.push_back(Capability::kSysAdmin);
    return sys::keep_only(kept);
  }

  int run_status() const {
    const auto answer =
        fleet::ask(fleet::local_socket(options_.state_folder), fleet::StatusRequest{});
    if (!answer) return report(answer.error());
    const Json& status = answer->status;
    if (json_) {
      fmt::print("{}\n", status.dump(2));
      return kExitOk;
    }
    fmt::print("watching {} processes for {:.0f} s{}\n", status.at("processes").as_int(),
               status.at("up_s").as_double(),
               status.at("paused").as_bool() ? ", paused: probes are off" : "");
    fmt::print("eBPF     {}; {} probes in {} files, {} hits, {} lost\n",
               status.at("bpf").as_string(), status.at("probes").as_int(),
               status.at("files").as_int(), status.at("probe_hits").as_int(),
               status.at("lost").as_int());
    fmt::print("devices  {}\n", status.at("devices").as_string());
    const Json sources = status.at("sources");
    for (std::size_t i = 0; i < sources.size(); ++i)
      if (sources.at(i).at("name").as_string() == "cuda")
        fmt::print("cuda     {}\n", sources.at(i).at("state").as_string());
    fmt::print("cost     {:.2f} % of a core, {:.0f} MB; {} failed writes\n",
               status.at("cpu_share").as_double() * 100,
               status.at("resident_bytes").as_double() * 1e-6, status.at("failed_writes").as_int());
    const auto off = status.at("lowered_probes").as_int(), every = status.at("look_every").as_int();
    if (off > 0 || every > 1)
      fmt::print("lowered  {} probes are off, connections are read every {} windows\n", off, every);
    const Json recordings = status.at("recordings");
    if (recordings.at("made").as_int() + recordings.at("failed").as_int() +
            recordings.at("skipped").as_int() >
        0)
      fmt::print("recorded {} incidents; {} failed, {} skipped\n", recordings.at("made").as_int(),
                 recordings.at("failed").as_int(), recordings.at("skipped").as_int());
    const Json deliveries = status.at("deliveries");
    for (std::size_t i = 0; i < deliveries.size(); ++i) {
      const Json one = deliveries.at(i);
      const std::string problem = one.at("problem").as_string();
      fmt::print("sending  {}: {} messages sent, {} wait, {} failed, {} dropped{}{}\n",
                 one.at("target").as_string(), one.at("sent").as_int(), one.at("queued").as_int(),
                 one.at("failed").as_int(), one.at("dropped").as_int(), problem.empty() ? "" : "; ",
                 printable(problem));
    }
    const Json jobs = status.at("jobs");
    for (std::size_t i = 0; i < jobs.size(); ++i) {
      const Json job = jobs.at(i);
      const Json alarms = job.at("false_alarms_per_day");
      // An interval that reaches this far says that there are too few windows yet.
      constexpr double kTellingMax = 10;
      const double high = alarms.at("high").as_double();
      fmt::print("job      {}: {} ({:.0f} % learnt), {} of {} windows flagged, {}{}\n",
                 job.at("name").as_string(), job.at("state").as_string(),
                 job.at("learned").as_double() * 100, job.at("flagged").as_int(),
                 job.at("windows").as_int(),
                 high > kTellingMax ? "too few windows yet to estimate false alarms"
                                    : fmt::format("{:.2g} to {:.2g} false alarms a day expected",
                                                  alarms.at("low").as_double(), high),
                 job.at("incidents").size() > 0 ? ", an incident is open" : "");
      if (const auto problem = job.at("fit_problem").as_string(); !problem.empty())
        fmt::print("problem  {}: fitting a model failed {} times and will be retried: {}\n",
                   job.at("name").as_string(), job.at("failed_fits").as_int(), printable(problem));
    }
    if (const auto count = status.at("jobs_over_limit").as_int(); count > 0)
      fmt::print("problem  {} windows were not judged: too many jobs at once\n", count);
    const Json problems = status.at("problems");
    for (std::size_t i = 0; i < problems.size(); ++i)
      fmt::print("problem  {}\n", printable(problems.at(i).as_string()));
    return kExitOk;
  }

  void print(const incident::Notice& notice) const {
    const trace::IncidentRecord& incident = notice.incident;
    const std::string_view state = notice.event == trace::IncidentEvent::kNoted ? "noted"
                                   : incident.end_ns == 0                       ? "open"
                                                                                : "over";
    say(stdout, json_ ? incident.to_json().dump()
                      : fmt::format("{} {} {} {}: {}", incident.id, state, incident.job,
                                    word_of(incident.kind), incident.summary));
  }

  using Headers = std::vector<std::pair<std::string, std::string>>;
  /// "Authorization=Bearer x,Other=y" of the environment; `is_encoded`: with %XX in values, as
  /// OpenTelemetry has it, where a value that is none as a whole stands for itself.
  static Result<Headers> headers_of(const char* variable, bool is_encoded) {
    Headers out;
    const char* const text = std::getenv(variable);
    std::string_view rest = text == nullptr ? "" : text;
    while (!rest.empty()) {
      const auto comma = rest.find(',');
      const std::string_view one = rest.substr(0, comma);
      const auto equal = one.find('=');
      const std::string_view name = trimmed(one.substr(0, equal));
      if (name.empty() || equal == one.npos)
        return Error{Code::kUnsupported, fmt::format("read {}: not NAME=VALUE,...", variable)};
      const std::string value(trimmed(one.substr(equal + 1)));
      out.emplace_back(name, is_encoded ? percent_decoded(value).value_or(value) : value);
      rest = comma == rest.npos ? std::string_view() : rest.substr(comma + 1);
    }
    return out;
  }

  Result<void> read_options() {
    TRY(options_.window, read_time("--window", window_, std::chrono::milliseconds{100}));
    TRY(options_.learn_time, read_time("--learn", learn_, options_.window * 30));
    if (!duration_.empty()) {
      TRY(options_.duration, read_time("--for", duration_, options_.window));
    }
    std::string budget = budget_;
    const bool is_percent = !budget.empty() && budget.back() == '%';
    if (is_percent) budget.pop_back();
    const auto share = parse_double(budget);
    if (!share || *share <= 0 || *share > (is_percent ? 100 : 1))
      return Error{Code::kUnsupported, fmt::format("read --budget {}: not a share", budget_),
                   "e.g. 1% or 0.01"};
    options_.budget = is_percent ? *share / 100 : *share;
    TRY(options_.outputs.history_age,
        read_time("--history-age", history_age_, std::chrono::hours{1}));
    const auto size = parse_bytes(history_size_);
    if (!size || *size < store::History::kBytesMin)
      return Error{
          Code::kUnsupported,
          fmt::format("read --history-size {}: not a size of at least 16M", history_size_)};
    options_.outputs.history_bytes = *size;
    TRY(const auto known, known_packs());
    TRY(options_.packs, capture::select_packs(known, probes_));
    if (!record_.empty()) {
      TRY_VOID(read_recording(known));
    }
    // Without a GPU the software device's figures serve, where a program uses it. If the
    // kernel has a driver, calls are the driver's, whether or not its library is found here.
    const auto folder = softgpu_folder();
    if (folder && ::access("/proc/driver/nvidia/version", F_OK) != 0)
      options_.device_libraries.push_back(*folder + "/libnvidia-ml.so.1");
    TRY(options_.outputs.otlp_headers, headers_of("OTEL_EXPORTER_OTLP_HEADERS", true));
    TRY(options_.outputs.webhook_headers, headers_of("KANSOKU_WEBHOOK_HEADERS", false));
    if (collector_.is_asked_for()) {
      TRY(options_.outputs.collector, collector_.options());
    }
    if (options_.host.empty()) options_.host = sys::host_name();
    options_.version = version_text();
    TRY_VOID(find_processes());
    if (!pids_.empty() || !job_.empty()) options_.wants = wanted();
    return {};
  }

  Result<void> read_recording(const std::vector<capture::Pack>& known) {
    agent::IncidentRecording& recording = options_.recording;
    const auto duration = parse_duration(record_);
    if (!duration || *duration < std::chrono::seconds{1} || *duration > std::chrono::minutes{10})
      return Error{Code::kUnsupported,
                   fmt::format("read --record-on-incident {}: not a time from 1s to 10m", record_),
                   "e.g. 20s"};
    recording.duration = *duration;
    TRY(recording.packs, capture::select_packs(known, record_probes_));
    const auto size = parse_bytes(record_size_);
    if (!size || *size < recording.file_bytes_max)
      return Error{
          Code::kUnsupported,
          fmt::format(
              "read --record-size {}: not a size of at least {}M, the size of one recording",
              record_size_, recording.file_bytes_max >> 20U)};
    recording.bytes_max = *size;
    return {};
  }

  /// Processes that are asked for have to be there; a job may come later. A process that tells no
  /// job is one by its name and pid: "python3/1234".
  Result<void> find_processes() {
    const sys::Procfs procfs;
    for (const std::int32_t pid : pids_)
      if (!procfs.stat(pid))
        return Error{Code::kNotFound, fmt::format("watch process {}: no such process", pid)};
    const auto slash = job_.rfind('/');
    if (slash == job_.npos) return {};
    const auto pid = parse_int<std::int32_t>(std::string_view(job_).substr(slash + 1));
    if (pid && *pid > 0 && procfs.stat(*pid)) pids_.push_back(*pid);
    return {};
  }

  /// True for a process of one of several jobs that tell the same name, as `kansoku jobs` numbers
  /// them.
  [[nodiscard]] bool is_of_job(const sys::Procfs& procfs, std::int32_t pid) const {
    const auto jobs = capture::find_jobs(procfs);
    return std::any_of(jobs.begin(), jobs.end(), [&](const capture::Job& job) {
      return job.name == job_ &&
             std::any_of(job.processes.begin(), job.processes.end(),
                         [&](const auto& process) { return process.pid == pid; });
    });
  }

  [[nodiscard]] std::function<bool(const capture::JobProcess&)> wanted() const {
    return [this](const capture::JobProcess& process) {
      if (!job_.empty() && process.facts.job == job_) return true;
      const sys::Procfs procfs;
      if (job_.find('#') != std::string::npos && is_of_job(procfs, process.pid)) return true;
      std::int32_t pid = process.pid;
      for (int depth = 0; depth < 64 && pid > 1; ++depth) {
        if (std::find(pids_.begin(), pids_.end(), pid) != pids_.end()) return true;
        const auto stat = procfs.stat(pid);
        if (!stat) return false;
        pid = stat->parent_pid;
      }
      return false;
    };
  }

  agent::AgentOptions options_;
  NatsArguments collector_;
  std::string duration_, window_{"1s"}, learn_{"5m"}, budget_{"1%"}, probes_{"watch"}, job_,
      history_age_{"720h"}, history_size_{"512M"}, record_, record_probes_{"default"},
      record_size_{"1G"};
  std::vector<std::int32_t> pids_;
  std::string control_;
  bool json_{false}, quiet_{false}, status_{false}, keeps_sys_admin_{false};
};

}  // namespace

std::unique_ptr<Command> make_watch() {
  return std::make_unique<WatchCommand>();
}

}  // namespace kansoku::cli
