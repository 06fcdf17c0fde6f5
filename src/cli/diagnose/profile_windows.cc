// SPDX-License-Identifier: Apache-2.0
#include "cli/diagnose/profile_windows.h"

#include <fmt/format.h>

#include <unistd.h>

#include <algorithm>
#include <array>
#include <csignal>
#include <cstdio>
#include <filesystem>
#include <map>
#include <memory>
#include <set>
#include <string_view>
#include <utility>

#include "capture/hang/flight_source.h"
#include "capture/recorder.h"
#include "cli/diagnose/analysis.h"
#include "cli/diagnose/profile_incidents.h"
#include "cli/record/kineto_server.h"
#include "cli/record/targets.h"
#include "cli/wiring.h"
#include "common/json.h"
#include "sys/clock.h"
#include "sys/fd.h"
#include "sys/process.h"

namespace kansoku::cli {
namespace {

/// A profiler asks every 5 s whether it is wanted and warms up for 5 s: the earliest common start.
constexpr Nanos kKinetoLead = std::chrono::seconds{12};
constexpr std::uint64_t kWindowBytesMax = std::uint64_t{4} << 30;

/// Token of a call or scope for the detector. The numbers are the order within an iteration. If a
/// process has scopes (data loader, optimizer), collectives do not count: jobs communicate now and
/// then between iterations too.
struct TokenRow {
  std::string_view begins_with;
  std::uint32_t token;
  bool is_scope;
  bool yields_to_scopes;
  std::optional<StepWindow::Sureness> counts_steps{};  // it comes once a step
};
constexpr std::array<TokenRow, 7> kTokens{{
    {"enumerate(DataLoader)", 0, true, false, StepWindow::Sureness::kLow},
    {"c10d::Reducer::prepare_for_forward", 1, false, true},
    {"torch::autograd::Engine::execute", 2, false, false, StepWindow::Sureness::kMiddle},
    {"c10d::ProcessGroup", 3, false, true},
    {"nccl", 3, false, true},
    {"Optimizer.zero_grad#", 4, true, false},
    {"Optimizer.step#", 5, true, false, StepWindow::Sureness::kHigh},
}};

const TokenRow* token_of(std::string_view name) {
  for (const TokenRow& row : kTokens) {
    if (name.starts_with(row.begins_with)) return &row;
  }
  return nullptr;
}

/// Why a window was opened.
struct Cause {
  std::string kind;  // "manual", "steps", "schedule", "slow", "blocked"
  double ratio{0};
  std::int32_t rank{-1};
  BootTime at{};
  std::string incident{};  // its id, of "slow" and "blocked"
};

class WindowWatch {
 public:
  explicit WindowWatch(const WatchOptions& options)
      : options_(options), incidents_(options.incidents) {
    if (options.steps) steps_.emplace(*options.steps);
  }

  Result<WatchResult> run();

 private:
  [[nodiscard]] Result<void> start();
  [[nodiscard]] Result<void> start_command();
  [[nodiscard]] std::set<std::int32_t> members() const;
  void note_steps();
  [[nodiscard]] std::string no_steps_text() const;
  [[nodiscard]] Json steps_json() const;
  void on_call(const capture::CallMark& mark);
  void count_step(const capture::CallMark& mark, const TokenRow* token);
  [[nodiscard]] bool step();  // true: stop
  void forget_gone(const std::map<std::int32_t, capture::Place>& ranks);
  [[nodiscard]] Cause cause_of(const detect::Incident& incident, const capture::Place& place,
                               BootTime now);
  void want_window(Cause cause);
  [[nodiscard]] Result<void> open_window(Cause cause);
  [[nodiscard]] Result<void> close_window();
  void print_verdict(const Analysis& analysis, const std::string& trace, const std::string& report);
  void progress(const std::string& line) const {
    if (!options_.quiet) fmt::print(stderr, "kansoku: {}\n", line);
  }

  const WatchOptions& options_;
  sys::Procfs procfs_;
  sys::RealClock clock_;
  detect::IncidentWatch incidents_;
  std::optional<ProfileIncidents> book_;  // nothing: watches nothing
  std::unique_ptr<capture::Recorder> recorder_;
  std::optional<sys::Child> child_;
  std::unique_ptr<sys::FileSink> sink_;
  std::set<std::int32_t> has_scopes_;  // processes
  std::optional<StepWindow> steps_;
  std::map<std::int32_t, capture::Place> places_;  // of ranks since the window opened
  std::optional<detect::Incident> incident_;
  std::unique_ptr<KinetoServer> kineto_;  // null: not asked for
  std::optional<Cause> wanted_;           // a window that begins at window_begin_
  std::optional<Cause> open_;             // the window in hand
  BootTime window_begin_{}, opened_{};
  BootTime window_end_{}, next_scheduled_{BootTime::max()};
  std::optional<Error> failure_;
  bool is_done_{false};
  std::size_t learned_{0};
  WatchResult result_;
};

/// By the mark that the user names, else by the rows of kTokens.
void WindowWatch::count_step(const capture::CallMark& mark, const TokenRow* token) {
  const std::string& own = options_.steps->mark;
  if (!own.empty()) {
    if (mark.name.starts_with(own)) steps_->on_call(mark, own, StepWindow::Sureness::kHigh);
  } else if (token != nullptr && token->counts_steps) {
    steps_->on_call(mark, token->begins_with, *token->counts_steps);
  }
}

void WindowWatch::on_call(const capture::CallMark& mark) {
  if (mark.pid != mark.tid) return;  // loops run on main threads; others come in any order
  const TokenRow* token = token_of(mark.name);
  if (steps_) count_step(mark, token);
  if (token == nullptr || !options_.watches) return;
  if (token->is_scope && has_scopes_.size() < detect::IncidentWatch::kMembersMax)
    has_scopes_.insert(mark.pid);
  if (token->yields_to_scopes && has_scopes_.contains(mark.pid)) return;
  const auto incident =
      incidents_.on_event(mark.pid, token->token, mark.time.time_since_epoch().count());
  if (incident && !incident_) incident_ = incident;
}

Result<void> WindowWatch::start() {
  capture::RecorderOptions recorder;
  TRY(const auto known, known_packs());
  TRY(recorder.packs, capture::select_packs(known, options_.probes));
  TRY(recorder.watch_packs, capture::select_packs(known, options_.watch_probes));
  recorder.metadata = {{"kansoku.version", version_text()}, {"kansoku.host", sys::host_name()}};
  const bool quiet = options_.quiet;
  recorder.log = [quiet](const std::string& line) {
    if (!quiet) fmt::print(stderr, "kansoku: {}\n", line);
  };
  recorder.on_call = [this](const capture::CallMark& mark) { on_call(mark); };
  if (options_.watches) {
    TRY(book_, ProfileIncidents::open(options_.folder, clock_.now(), recorder.log));
  }
  if (options_.serves_kineto) {
    TRY(kineto_, KinetoServer::start());
  }
  recorder.sources.push_back(capture::hang::flight_source_maker(procfs_));
  if (options_.cuda) {
    recorder.sources.emplace_back([this](trace::Writer& writer) {
      return std::make_unique<capture::CudaSource>(writer, clock_, procfs_, *options_.cuda);
    });
  }
  MemorySink unused;  // a watching recorder writes nothing before its first window
  TRY(recorder_, capture::Recorder::create(unused, clock_, procfs_, std::move(recorder)));
  TRY_VOID(observe_targets(*recorder_, options_.pids, options_.job, procfs_));
  return options_.command.empty() ? Result<void>() : start_command();
}

Result<void> WindowWatch::start_command() {
  std::vector<std::string> environment;
  if (options_.cuda) {  // the library sleeps until a window opens
    TRY(environment, cuda_environment());
  }
  TRY(auto started, sys::Child::start(options_.command, {environment, ""}));
  child_ = std::move(started);
  TRY_VOID(recorder_->observe(child_->pid(), false));
  child_->release();
  return {};
}

/// A window begins at once, except where profilers that have to be told first are to join it. A
/// standstill cannot wait, and nothing new would be in their traces.
void WindowWatch::want_window(Cause cause) {
  const bool joins = kineto_ && kineto_->process_count() > 0 && cause.kind != "blocked";
  window_begin_ = clock_.now() + (joins ? kKinetoLead : Nanos{});
  if (joins) {
    kineto_->request({.start_unix_ms = (sys::wall_time_ns() + kKinetoLead.count()) / 1'000'000,
                      .duration_ms = options_.window.count() / 1'000'000,
                      .folder = std::filesystem::absolute(options_.folder).string(),
                      .with_stacks = false});
    progress(fmt::format("{}: window begins in {:.0f} s, {} profilers are asked to join",
                         cause.kind, static_cast<double>(kKinetoLead.count()) * 1e-9,
                         kineto_->process_count()));
  }
  wanted_ = std::move(cause);
}

Result<void> WindowWatch::open_window(Cause cause) {
  const std::string path =
      fmt::format("{}/window-{}.pftrace", options_.folder, result_.window_count + 1);
  // An earlier watch's window of that number may be the recording of an incident.
  ::unlink(path.c_str());
  TRY(sink_, sys::FileSink::create(path, {true, kWindowBytesMax}));
  TRY_VOID(recorder_->begin_window(*sink_));
  opened_ = clock_.now();
  const Nanos length = cause.kind == "blocked" ? options_.hang_window
                       : cause.kind == "steps" ? kStepWindowMax
                                               : options_.window;
  window_end_ = clock_.now() + length;
  progress(cause.kind == "steps"
               ? fmt::format("recording steps {} to {} of all ranks", options_.steps->first,
                             options_.steps->first + options_.steps->count - 1)
           : cause.ratio > 0
               ? fmt::format("{} (x {:.2f}, rank {}): profiling all ranks for {:.0f} s", cause.kind,
                             cause.ratio, cause.rank, static_cast<double>(length.count()) * 1e-9)
               : fmt::format("profiling all ranks for {:.0f} s",
                             static_cast<double>(length.count()) * 1e-9));
  open_ = std::move(cause);
  return {};
}

void WindowWatch::print_verdict(const Analysis& analysis, const std::string& trace,
                                const std::string& report) {
  const double seconds = static_cast<double>((clock_.now() - open_->at).count()) * 1e-9;
  if (options_.json) {
    Json line = Json::object();
    line.set("schema", "kansoku.incident/1")
        .set("window", static_cast<std::uint64_t>(result_.window_count))
        .set("cause", open_->kind)
        .set("incident", open_->incident)
        .set("ratio", open_->ratio)
        .set("first_rank", open_->rank)
        .set("seconds_to_report", seconds)
        .set("trace", trace)
        .set("report", report)
        .set("diagnosis", analysis.json);
    if (steps_) line.set("steps", steps_json());
    fmt::print("{}\n", line.dump());
  } else {
    const std::string incident =
        open_->incident.empty() ? "" : fmt::format(" (incident {})", open_->incident.substr(0, 8));
    fmt::print("window {}, {}{}:\n{}trace:  {}\nreport: {}\n\n", result_.window_count, open_->kind,
               incident, analysis.text, trace, report);
  }
  std::fflush(stdout);
  if (kineto_ && kineto_->handed_out() > 0) {
    progress(fmt::format("{} profilers joined the window; they write {}/kineto_PID.json",
                         kineto_->handed_out(), options_.folder));
  }
}

Result<void> WindowWatch::close_window() {
  note_steps();
  TRY_VOID(recorder_->end_window());
  TRY_VOID(sink_->finish());
  sink_.reset();
  ++result_.window_count;
  const std::string trace =
      fmt::format("{}/window-{}.pftrace", options_.folder, result_.window_count);
  const std::string report =
      fmt::format("{}/window-{}.html", options_.folder, result_.window_count);
  TRY(const auto analysis, analyse({trace}, 1));
  TRY_VOID(write_report(analysis, report));
  print_verdict(analysis, trace, report);
  if (book_) {
    const std::string found = diagnose::headline(analysis.diagnosis);
    book_->end(found.empty() ? "its profile names no rank" : found, trace);
  }
  const bool has_findings = !analysis.diagnosis.findings.empty();
  if (has_findings) ++result_.finding_count;
  incidents_.settle(clock_.now().time_since_epoch().count());
  is_done_ = !options_.watches || (options_.once && has_findings);
  open_.reset();
  incident_.reset();
  return {};
}

/// The ranks, or without any the processes that were seen to do steps.
std::set<std::int32_t> WindowWatch::members() const {
  std::set<std::int32_t> out;
  for (const auto& [pid, place] : recorder_->ranks())
    out.insert(pid);
  return out.empty() && steps_ ? steps_->processes() : out;
}

/// Into the trace: when each rank's steps were. The recording begins a little before, and ends a
/// little after.
void WindowWatch::note_steps() {
  if (!steps_) return;
  for (const std::int32_t pid : steps_->processes()) {
    const StepWindow::Row row = steps_->row(pid);
    const auto text = [](const std::optional<BootTime>& at) {
      return at ? std::to_string(at->time_since_epoch().count()) : std::string("unknown");
    };
    recorder_->add_metadata(
        fmt::format("kansoku.steps.{}", pid),
        fmt::format("first={} count={} begin_ns={} end_ns={} whole={} mark={}",
                    steps_->options().first, steps_->options().count, text(row.begin),
                    text(row.end), row.is_whole(opened_) ? 1 : 0, row.mark));
    if (!row.is_whole(opened_)) {
      const bool is_late = row.begin && *row.begin < opened_;
      progress(fmt::format("process {}: its steps are not whole: {}", pid,
                           is_late ? "the window opened after the first began"
                                   : "the window closed before the last ended"));
    }
  }
}

std::string WindowWatch::no_steps_text() const {
  std::uint64_t most = 0;
  for (const std::int32_t pid : steps_->processes())
    most = std::max(most, steps_->row(pid).seen);
  if (most == 0) {
    return "no window: no process made a call that counts steps; name one with --step-mark "
           "and its pack with --watch-probes";
  }
  const std::uint64_t first = steps_->options().first;
  if (most < first)
    return fmt::format("no window: {} steps were seen, step {} was not reached", most, first);
  return fmt::format(
      "no window: the program ended before it could open; {} steps were seen, step "
      "{} among them",
      most, first);
}

Json WindowWatch::steps_json() const {
  const auto time = [](const std::optional<BootTime>& at) {
    return at ? Json(std::to_string(at->time_since_epoch().count())) : Json();
  };
  Json rows = Json::array();
  for (const std::int32_t pid : steps_->processes()) {
    const StepWindow::Row row = steps_->row(pid);
    const auto place = places_.find(pid);
    rows.push(Json::object()
                  .set("pid", pid)
                  .set("rank", place == places_.end() ? Json() : Json(place->second.rank))
                  .set("mark", row.mark)
                  .set("steps_seen", row.seen)
                  .set("whole", row.is_whole(opened_))
                  .set("begin_ns", time(row.begin))
                  .set("end_ns", time(row.end)));
  }
  return Json::object()
      .set("first", steps_->options().first)
      .set("count", steps_->options().count)
      .set("ranks", rows);
}

/// A rank that ended stands still for ever, and is no incident.
void WindowWatch::forget_gone(const std::map<std::int32_t, capture::Place>& ranks) {
  std::vector<std::int32_t> gone;
  for (const auto& [member, detector] : incidents_.detectors())
    if (!ranks.contains(member)) gone.push_back(member);
  for (const std::int32_t member : gone)
    incidents_.forget(member);
}

Cause WindowWatch::cause_of(const detect::Incident& incident, const capture::Place& place,
                            BootTime now) {
  Cause out{.kind = std::string(detect::incident_name(incident.kind)),
            .ratio = incident.ratio,
            .rank = place.rank,
            .at = now};
  const auto detector = incidents_.detectors().find(incident.member);
  const bool is_known = detector != incidents_.detectors().end();
  out.incident = book_->begin(incident, place, is_known ? detector->second.expected_ns() : 0);
  return out;
}

/// Once each turn of the recorder's loop.
bool WindowWatch::step() {
  const BootTime now = clock_.now();
  if (steps_) {
    for (const auto& [pid, place] : recorder_->ranks())
      places_.insert_or_assign(pid, place);
  }
  if (book_) book_->tick(now);
  const auto keep = [this](const Result<void>& result) {
    if (!result) failure_ = result.error();
  };
  if (open_) {
    const bool has_steps = open_->kind == "steps" && steps_->is_complete(members());
    if (now >= window_end_ || has_steps) keep(close_window());
    return is_done_ || failure_.has_value();
  }
  if (wanted_) {
    if (now >= window_begin_) keep(open_window(*std::exchange(wanted_, std::nullopt)));
    return failure_.has_value();
  }
  const auto ranks = recorder_->ranks();
  if (steps_) {
    if (steps_->is_due(members())) want_window({.kind = "steps", .at = now});
    return false;
  }
  if (ranks.empty()) return false;
  if (!options_.watches) {
    want_window({.kind = "manual", .at = now});
    return false;
  }
  if (options_.every != Nanos{} && next_scheduled_ == BootTime::max())
    next_scheduled_ = now + options_.every;
  forget_gone(ranks);
  if (incident_ && !ranks.contains(incident_->member)) incident_.reset();
  const auto blocked = incidents_.on_time(now.time_since_epoch().count());
  if (blocked && !incident_) incident_ = blocked;
  if (incident_) {
    const auto rank = ranks.find(incident_->member);
    want_window(cause_of(*incident_, rank == ranks.end() ? capture::Place{} : rank->second, now));
    incident_.reset();
  } else if (now >= next_scheduled_) {
    next_scheduled_ = now + options_.every;
    want_window({.kind = "schedule", .at = now});
  }
  return failure_.has_value();
}

Result<WatchResult> WindowWatch::run() {
  install_signal_counter();
  TRY_VOID(start());
  const auto should_stop = [&] {
    const bool child_ended = child_ && child_->poll().has_value();
    if (signal_count() > 0 || (child_ended && !open_)) return true;
    if (child_ended) window_end_ = {};  // close the window now
    return step();
  };
  const auto recorded = recorder_->run(options_.duration, should_stop, {});
  if (recorded && open_ && !failure_) {
    if (const auto closed = close_window(); !closed) failure_ = closed.error();
  }
  if (book_) book_->end("", "");  // its window never came
  if (!recorded) return recorded.error();
  if (failure_) return *failure_;
  if (child_) {
    if (is_done_ && !child_->poll()) {
      if (steps_)
        progress(
            fmt::format("waiting for {} (process {})", options_.command.front(), child_->pid()));
      else
        child_->send_to_all(SIGTERM);
    }
    result_.command_status = child_->wait();
  }
  if (result_.window_count == 0)
    progress(steps_ ? no_steps_text() : "no window: no trigger occurred");
  return result_;
}

}  // namespace

Result<WatchResult> run_watch(const WatchOptions& options) {
  return WindowWatch(options).run();
}

}  // namespace kansoku::cli
