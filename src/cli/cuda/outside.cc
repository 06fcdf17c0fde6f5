// SPDX-License-Identifier: Apache-2.0
// kansoku cuda stat: a program's work on its GPU, from the driver's calls alone.
#include "cli/cuda/outside.h"

#include <fmt/format.h>
#include <poll.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdlib>

#include "capture/pack.h"
#include "cli/commands.h"
#include "cli/cuda/subcommand.h"
#include "cli/output_file.h"
#include "cli/record/targets.h"
#include "cli/wiring.h"
#include "common/bytes.h"
#include "common/parse.h"
#include "sys/clock.h"
#include "sys/fd.h"
#include "sys/process.h"

namespace kansoku::cli {
namespace {

class Nowhere final : public ByteSink {
 public:
  Result<void> append(ByteSpan) override { return {}; }
};

/// Files in which a command may find the driver: attached before it starts, no call of it is
/// missed.
std::vector<std::string> driver_files() {
  std::vector<std::string> folders;
  if (const auto soft = softgpu_folder()) folders.push_back(*soft);
  const char* const path = std::getenv("LD_LIBRARY_PATH");
  std::string rest = path == nullptr ? "" : path;
  while (!rest.empty()) {
    const auto colon = rest.find(':');
    folders.push_back(rest.substr(0, colon));
    rest = colon == std::string::npos ? "" : rest.substr(colon + 1);
  }
  for (const char* const folder : {"/usr/lib/x86_64-linux-gnu", "/usr/lib64", "/usr/local/lib",
                                   "/usr/lib/wsl/lib", "/run/nvidia/driver/usr/lib64"})
    folders.emplace_back(folder);
  std::vector<std::string> out;
  for (const std::string& folder : folders) {
    std::string file = folder + "/libcuda.so.1";
    if (!folder.empty() && ::access(file.c_str(), R_OK) == 0) out.push_back(std::move(file));
  }
  return out;
}

class CudaStatCommand final : public Command {
 public:
  void declare(CLI::App& app) override {
    app.add_option("-p,--pid", pids_, "observe this process and its descendants (repeatable)");
    app.add_option("--for", for_, "stop after this time, e.g. 5s (default: until the end)");
    app.add_option("--rows", rows_, "rows of each table; 0: all")->capture_default_str();
    app.add_option("--budget", budget_,
                   "share of a processor that probes at launches may take; above it they are on "
                   "in slices of each second; 0: no limit")
        ->capture_default_str()
        ->check(CLI::Range(0.0, 1.0));
    app.add_option("--ring-bytes", ring_, "size of the event ring, a power of two")
        ->capture_default_str();
    app.add_option("--library", libraries_,
                   "the driver's library, to be probed before a process loads it (repeatable)");
    app.add_option("-o,--output", output_, "write the result there (default: standard output)");
    app.add_flag("--json", json_, "print JSON (schema kansoku.cuda.stat/1)");
    app.add_flag("-q,--quiet", quiet_, "hide the progress line");
    app.add_option("command", command_, "command to start and observe, after --");
    app.footer(
        "Uprobes on libcuda.so see every call; nothing is loaded into the program. Needs root and\n"
        "eBPF. Launches are counted as they begin; their cost and errors come from those that "
        "begin\n"
        "in 20 ms of each second. Kernels have names if the program is observed from its start; "
        "in\n"
        "a running one they are learnt from the runtime's launches, and the rest is "
        "function@0x...\n"
        "Device-busy time is bounded: from the first launch to the return of the wait that covers\n"
        "it, and from below by waits for nothing but kernels, copies and sets.\n"
        "Examples:\n"
        "  kansoku cuda stat -p 4121 --for 5s\n"
        "  kansoku cuda stat --json -- ./my_program\n"
        "Exit status: the command's own; without a command 0, or a status of docs/exit-codes.md.");
  }

  int run() override {
    const auto done = observe();
    if (!done) return report(done.error());
    return *done;
  }

 private:
  [[nodiscard]] Result<capture::RecorderOptions> recorder_options() {
    if (pids_.empty() == command_.empty())
      return Error{Code::kUnsupported, "cuda stat: name one target: -p PID or -- COMMAND"};
    const auto ring = parse_bytes(ring_);
    if (!ring || *ring < 4096 || *ring > (1U << 30) || (*ring & (*ring - 1)) != 0)
      return Error{Code::kUnsupported,
                   fmt::format("read --ring-bytes {}: not a power of two from 4K to 1G", ring_)};
    capture::RecorderOptions out;
    TRY(const auto known, known_packs());
    TRY(out.packs, capture::select_packs(known, pids_.empty() ? "cuda" : "cuda,cuda-names"));
    out.ring_bytes = static_cast<std::uint32_t>(*ring);
    out.cuda_budget = budget_;
    out.libraries = libraries_;
    if (!command_.empty() && libraries_.empty()) out.libraries = driver_files();
    out.log = [this](const std::string& line) {
      if (!quiet_) say(stderr, "kansoku: " + line);
    };
    return out;
  }

  /// Tells how far it is, once a second.
  bool progress(const capture::RecordStatus& status, Nanos limit) {
    if (quiet_ || status.elapsed < told_ + std::chrono::seconds{1}) return true;
    told_ = status.elapsed;
    const auto s = [](Nanos time) { return 1e-9 * static_cast<double>(time.count()); };
    say(stderr, limit == Nanos{}
                    ? fmt::format("kansoku: {:.0f} s, {} calls", s(status.elapsed), status.events)
                    : fmt::format("kansoku: {:.0f} of {:.0f} s, {} calls", s(status.elapsed),
                                  s(limit), status.events));
    return true;
  }

  [[nodiscard]] Result<int> observe() {
    TRY(auto options, recorder_options());
    Nanos limit{};
    if (!for_.empty()) {
      const auto duration = parse_duration(for_);
      if (!duration || *duration == Nanos{})
        return Error{Code::kUnsupported, fmt::format("read --for {}: not a time", for_),
                     "e.g. 5s, 500ms, 2m"};
      limit = *duration;
    }
    TRY_VOID(check_output(output_, {.kind = json_ ? FileKind::kJson : FileKind::kText,
                                    .schema = json_ ? "kansoku.cuda.stat" : ""}));
    install_signal_counter();
    const sys::Procfs procfs;
    const sys::RealClock clock;
    Nowhere sink;
    TRY(const auto recorder, capture::Recorder::create(sink, clock, procfs, std::move(options)));
    if (recorder->bpf_error()) return *recorder->bpf_error();
    TRY_VOID(observe_targets(*recorder, pids_, "", procfs));
    std::optional<sys::Child> child;
    if (!command_.empty()) {
      TRY(auto started, sys::Child::start(command_, {}));
      child = std::move(started);
      TRY_VOID(recorder->observe(child->pid(), false));
      child->release();
    }
    const BootTime begin = clock.now();
    BootTime end = begin;
    TRY_VOID(recorder->run(
        limit,
        [&] {
          end = clock.now();  // the next steps take the probes off
          return signal_count() > 0 || (child && child->poll().has_value());
        },
        [&](const capture::RecordStatus& status) { return progress(status, limit); }));
    TRY_VOID(show(*recorder, procfs, end, end - begin));
    if (!child) return kExitOk;
    for (int passed = 0; !child->poll();) {
      if (signal_count() > passed) {
        passed = signal_count();
        child->send(last_signal());
      }
      ::poll(nullptr, 0, 50);  // a signal ends it early
    }
    return child->poll().value_or(kExitFailed);
  }

  [[nodiscard]] Result<void> show(const capture::Recorder& recorder, const sys::Procfs& procfs,
                                  BootTime now, Nanos elapsed) {
    CudaStatRun run{recorder.cuda(), elapsed, {}, rows_};
    for (const auto& problem : recorder.problems())
      if (problem.find("single-stepped") != std::string::npos) run.not_probed.push_back(problem);
    Json processes = Json::array();
    std::string text;
    for (const auto& [pid, tally] : *run.view.tallies) {
      const auto stat = procfs.stat(pid);
      const CudaStat one{pid, stat ? stat->comm : "(ended)", tally.get(), now};
      if (json_) {
        processes.push(cuda_stat_json(one, run));
      } else {
        text += cuda_stat_text(one, run) + "\n";
      }
    }
    if (text.empty()) text = "no call of CUDA's driver was seen\n";
    for (const std::string& line : run.not_probed)
      text += fmt::format("not probed: {}\n", line);
    if (json_) text = json_of(run, std::move(processes)).dump(2) + "\n";
    if (!output_.empty()) return sys::write_file(output_, text);
    fmt::print("{}", text);
    return {};
  }

  [[nodiscard]] static Json json_of(const CudaStatRun& run, Json processes) {
    Json not_probed = Json::array();
    for (const std::string& line : run.not_probed)
      not_probed.push(line);
    const double elapsed = 1e-9 * static_cast<double>(run.elapsed.count());
    return Json::object()
        .set("schema", "kansoku.cuda.stat/1")
        .set("elapsed_s", elapsed)
        .set("probes", Json::object()
                           .set("launch_hits", run.view.hits)
                           .set("naming_hits", run.view.naming_hits)
                           .set("hit_s", run.view.hit_seconds)
                           .set("share_of_time_seen", run.view.share_seen)
                           .set("has_sampled_ends", run.view.has_ends)
                           .set("lost_records", run.view.lost))
        .set("not_probed", std::move(not_probed))
        .set("processes", std::move(processes));
  }

  std::vector<std::int32_t> pids_;
  std::vector<std::string> command_, libraries_;
  std::string for_, ring_{"16M"}, output_;
  double budget_{0.05};
  std::size_t rows_{20};
  bool json_{false}, quiet_{false};
  Nanos told_{};
};

}  // namespace

std::unique_ptr<Command> make_cuda_stat() {
  return std::make_unique<CudaStatCommand>();
}

}  // namespace kansoku::cli
