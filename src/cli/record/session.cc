// SPDX-License-Identifier: Apache-2.0
#include "cli/record/session.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstdio>
#include <iterator>

#include "capture/hang/flight_source.h"
#include "capture/llm/source.h"
#include "capture/pack.h"
#include "capture/resolve.h"
#include "cli/record/targets.h"
#include "cli/wiring.h"
#include "common/text.h"
#include "sys/clock.h"
#include "sys/elf.h"
#include "sys/fd.h"
#include "sys/process.h"

namespace kansoku::cli {
namespace {

std::string human_bytes(std::uint64_t bytes) {
  if (bytes < 10'000) return fmt::format("{} B", bytes);
  if (bytes < 10'000'000) return fmt::format("{:.1f} kB", static_cast<double>(bytes) / 1e3);
  return fmt::format("{:.1f} MB", static_cast<double>(bytes) / 1e6);
}

// The live line of a recording, on standard error; a plain line now and then where there is no
// terminal.
class StatusLine {
 public:
  explicit StatusLine(bool quiet) : quiet_(quiet), is_terminal_(::isatty(STDERR_FILENO) != 0) {}

  void show(const capture::RecordStatus& status) {
    if (quiet_) return;
    const bool is_first = last_shown_ == Nanos{};
    if (!is_terminal_ && !is_first && status.elapsed < last_shown_ + std::chrono::seconds{5})
      return;
    const double seconds = static_cast<double>((status.elapsed - last_.elapsed).count()) / 1e9;
    const double rate =
        seconds > 0 ? static_cast<double>(status.events - last_.events) / seconds : 0;
    const std::string line = fmt::format(
        "recording {:.0f} s  {:.0f} events/s  {}  lost {}  ranks [{}]  {} processes  {} probes "
        "({})",
        static_cast<double>(status.elapsed.count()) / 1e9, rate, human_bytes(status.bytes),
        status.lost, fmt::join(status.ranks, " "), status.process_count, status.probe_count,
        status.bpf);
    fmt::print(stderr, "{}{}{}", is_terminal_ ? "\r\x1b[K" : "", line, is_terminal_ ? "" : "\n");
    std::fflush(stderr);
    last_ = status;
    last_shown_ = status.elapsed;
  }
  void finish() const {
    if (!quiet_ && is_terminal_ && last_shown_ != Nanos{}) fmt::print(stderr, "\n");
  }

 private:
  bool quiet_;
  bool is_terminal_;
  capture::RecordStatus last_;
  Nanos last_shown_{};
};

/// Probes of models in inference are a source of their own.
Result<void> add_model_source(const SessionOptions& options, const sys::Procfs& procfs,
                              const Clock& clock, capture::RecorderOptions& out) {
  capture::llm::SourceOptions model;
  model.probes = capture::llm::take_model_probes(out.packs);
  if (model.probes.empty()) return {};
  const SessionOptions::Model wanted =
      options.model.value_or(SessionOptions::Model{capture::llm::highest_level(model.probes)});
  model.level = wanted.level;
  model.budget = wanted.budget;
  model.log = out.log;
  model.ring_bytes = options.ring_bytes;
  model.is_perf = out.attach_mode == capture::bpf::AttachMode::kPerf;
  TRY(auto maker, capture::llm::model_source_maker(clock, procfs, model));
  out.sources.push_back(std::move(maker));
  return {};
}

Result<capture::RecorderOptions> recorder_options(const SessionOptions& options,
                                                  const sys::Procfs& procfs, const Clock& clock) {
  capture::RecorderOptions out;
  TRY(const auto known, known_packs());
  TRY(out.packs, capture::select_packs(known, options.probes));
  if (!options.attach.empty()) {
    out.attach_mode = capture::bpf::attach_mode_from_name(options.attach);
    if (!out.attach_mode) {
      return Error{Code::kUnsupported, fmt::format("attach mode {}: unknown", options.attach),
                   "modes are session, multi and perf"};
    }
  }
  out.libraries = options.libraries;
  out.ring_bytes = options.ring_bytes;
  out.python_hz = options.python_hz;
  out.metadata = {{"kansoku.version", version_text()}, {"kansoku.host", sys::host_name()}};
  out.use_bpf = options.use_bpf;
  const bool quiet = options.quiet;
  out.log = [quiet](const std::string& line) {
    if (!quiet) fmt::print(stderr, "kansoku: {}\n", line);
  };
  if (options.explain) out.detail = out.log;
  TRY_VOID(add_model_source(options, procfs, clock, out));
  out.sources.push_back(capture::hang::flight_source_maker(procfs));
  if (options.cuda) {
    out.sources.emplace_back([&procfs, &clock, how = *options.cuda](trace::Writer& writer) {
      return std::make_unique<capture::CudaSource>(writer, clock, procfs, how);
    });
  }
  return out;
}

/// Environment of a command whose GPU work is recorded: the library before the driver.
Result<std::vector<std::string>> command_environment(const SessionOptions& options) {
  std::vector<std::string> out = options.environment;
  if (!options.cuda) return out;
  TRY(const std::vector<std::string> library, cuda_environment());
  out.insert(out.end(), library.begin(), library.end());
  const capture::CudaSourceOptions& how = *options.cuda;
  const std::string sampled = how.every_n == 0 ? "sampled" : std::to_string(how.every_n);
  out.push_back(fmt::format("KANSOKU_CUDA_RECORDER={}", getpid()));
  out.push_back("KANSOKU_CUDA=" + (how.mode == capture::cuda::Mode::kEvery ? "every" : sampled));
  return out;
}

/// In a line: functions that the packs name and no library had, or that cannot be observed. A
/// function that one of several libraries has is found.
void print_problems(const capture::Recorder& recorder) {
  const auto& attachments = recorder.attachments();
  const auto problems = recorder.problems();
  const auto count = std::count_if(problems.begin(), problems.end(), [&](const std::string& line) {
    const std::string title = line.substr(0, line.find(": no such function in "));
    return title == line ||
           std::none_of(attachments.begin(), attachments.end(),
                        [&](const capture::Attachment& at) { return at.title.starts_with(title); });
  });
  if (count > 0) {
    fmt::print(stderr, "kansoku: {} probe{} of the packs {} not in place; see --explain\n", count,
               count == 1 ? "" : "s", count == 1 ? "is" : "are");
  }
}

void explain(const capture::Recorder& recorder) {
  for (const capture::Attachment& at : recorder.attachments()) {
    fmt::print("{:<12} {:<48} +{:<3} {:<8} {:<5} {}{}{}  [{}]\n", at.pack, at.title,
               at.site.offset_bytes, capture::bpf::site_class_name(at.site.site_class),
               capture::bpf::is_cheap(at.site.site_class) ? "cheap" : "slow", at.site.reason,
               at.end.empty() ? "" : "; ", at.end, at.library);
  }
  for (const std::string& problem : recorder.problems())
    fmt::print("missing      {}\n", problem);
}

// Passes a stop on to the command: a terminal's Ctrl-C reaches it by itself, a kill of the recorder
// does not.
class StopRelay {
 public:
  /// True if there was one.
  bool pump(const sys::Child& child) {
    if (signal_count() <= passed_) return false;
    passed_ = signal_count();
    const bool terminal_did_it = last_signal() == SIGINT && ::isatty(STDIN_FILENO) != 0;
    if (!terminal_did_it) child.send_to_all(last_signal());
    return true;
  }

 private:
  int passed_{0};
};

/// Its status, once it has ended; nothing: it runs on.
std::optional<int> end_of_command(const SessionOptions& options, sys::Child& child,
                                  StopRelay& relay) {
  if (const auto status = child.poll()) return status;
  const std::string& name = options.command.front();
  if (options.after == AfterRecording::kLeave) {
    fmt::print(stderr, "kansoku: the recording has ended; {} keeps running as process {}\n", name,
               child.pid());
    return std::nullopt;
  }
  if (options.after == AfterRecording::kKill) child.send_to_all(SIGTERM);
  if (options.after == AfterRecording::kWait && !options.quiet) {
    fmt::print(stderr,
               "kansoku: the recording has ended; waiting for {} (process {}; use --then kill or "
               "leave to avoid this)\n",
               name, child.pid());
  }
  constexpr int kPeriodMs = 50;
  while (!child.poll()) {
    relay.pump(child);
    ::poll(nullptr, 0, kPeriodMs);  // a signal ends it early
  }
  return child.poll();
}

/// Takes an output away again that was made for a recording which never began.
class NewFile {
 public:
  NewFile(const std::string& path, bool was_there) : path_(path), was_there_(was_there) {}
  NewFile(const NewFile&) = delete;
  NewFile& operator=(const NewFile&) = delete;
  ~NewFile() {
    if (!is_kept_ && !was_there_) ::unlink(path_.c_str());
  }
  void keep() { is_kept_ = true; }

 private:
  const std::string path_;
  const bool was_there_;
  bool is_kept_{false};
};

/// A pack of the user's own of which nothing was attached to running programs tells why before it
/// records nothing.
Result<void> check_attached(const capture::Recorder& recorder, const SessionOptions& options) {
  const bool is_own_pack = options.probes.find(',') == std::string::npos &&
                           options.probes.find('/') != std::string::npos;
  const auto problems = recorder.problems();
  if (!is_own_pack || !recorder.attachments().empty() || problems.empty()) return {};
  return Error{Code::kNotFound, fmt::format("record with {}: {}", options.probes, problems.front()),
               "`kansoku probes list -p PID --probes PACK` lists the functions that a pack finds"};
}

/// A command starts only if it can be observed as asked: with the rights for eBPF, and where a pack
/// of the user's own is about the very program, with all functions that it names.
Result<void> check_command(const capture::Recorder& recorder,
                           const std::vector<capture::Pack>& packs, const SessionOptions& options) {
  const auto& no_bpf = recorder.bpf_error();
  if (no_bpf && no_bpf->code == Code::kPermission) {
    return Error{
        Code::kPermission,
        fmt::format("{}; {} was not started", no_bpf->what, options.command.front()),
        no_bpf->hint + (no_bpf->hint.empty() ? "" : "; ") + "--no-bpf records Python stacks only"};
  }
  const auto program = sys::find_program(options.command.front());
  if (!program) return {};  // it says so itself
  const auto file = sys::ElfFile::open(*program);
  if (!file) return {};  // a script
  const std::string name(base_name(*program));
  for (const capture::Pack& pack : packs) {
    if (options.probes.find(pack.path) == std::string::npos) continue;
    capture::Pack exact;  // a pattern may mean other files, too
    std::copy_if(pack.functions.begin(), pack.functions.end(), std::back_inserter(exact.functions),
                 [&](const auto& probes) { return probes.library == name; });
    const capture::Resolution found = capture::resolve_pack(exact, **file, name);
    if (!found.missing.empty()) {
      return Error{Code::kNotFound,
                   fmt::format("record with {}: {}; {} was not started", pack.path,
                               found.missing.front(), options.command.front()),
                   fmt::format("`nm -C {}` lists its functions", *program)};
    }
  }
  return {};
}

}  // namespace

Result<SessionResult> run_session(const SessionOptions& options) {
  install_signal_counter();
  const sys::Procfs procfs;
  const sys::RealClock clock;
  TRY(auto recorder_options_value, recorder_options(options, procfs, clock));
  const std::vector<capture::Pack> packs = recorder_options_value.packs;
  const bool was_there = ::access(options.output.c_str(), F_OK) == 0;
  TRY(const auto sink,
      sys::FileSink::create(options.output, {options.overwrite, options.bytes_max}));
  NewFile output(options.output, was_there);
  TRY(const auto recorder,
      capture::Recorder::create(*sink, clock, procfs, std::move(recorder_options_value)));
  TRY_VOID(observe_targets(*recorder, options.pids, options.job, procfs));
  if (options.command.empty()) TRY_VOID(check_attached(*recorder, options));
  std::optional<sys::Child> child;
  if (!options.command.empty()) {
    TRY_VOID(check_command(*recorder, packs, options));
    TRY(const auto environment, command_environment(options));
    TRY(auto started, sys::Child::start(options.command, {environment, options.command_output}));
    child = std::move(started);
    TRY_VOID(recorder->observe(child->pid(), false));
    child->release();
  }
  output.keep();
  if (!options.quiet)
    fmt::print(stderr, "kansoku: recording into {}; Ctrl-C ends it\n", options.output);
  if (options.on_ready) options.on_ready(*recorder);
  StatusLine line(options.quiet);
  StopRelay relay;
  SessionResult result;
  const auto should_stop = [&] {
    if (!child) return signal_count() > 0;
    if (relay.pump(*child)) recorder->note_stop(last_signal());
    return child->poll().has_value() || signal_count() > 1;  // the second Ctrl-C stops at once
  };
  const auto on_status = [&](const capture::RecordStatus& status) {
    result.last = status;
    line.show(status);
    return true;
  };
  if (auto recorded = recorder->run(options.duration, should_stop, on_status); !recorded) {
    result.recording_error = std::move(recorded).error();
  }
  line.finish();
  if (options.explain) {
    explain(*recorder);
  } else if (!options.quiet) {
    print_problems(*recorder);
  }
  result.problems = recorder->problems();
  if (child) result.command_status = end_of_command(options, *child, relay);
  if (const auto synced = sink->finish(); !synced && !result.recording_error)
    result.recording_error = synced.error();
  return result;
}

}  // namespace kansoku::cli
