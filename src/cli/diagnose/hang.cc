// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "capture/hang/hang_look.h"
#include "capture/job.h"
#include "cli/commands.h"
#include "cli/cuda/device_looks.h"
#include "cli/diagnose/analysis.h"
#include "cli/diagnose/thread_text.h"
#include "cli/option_values.h"
#include "cli/record/session.h"
#include "cli/record/targets.h"
#include "cli/wiring.h"
#include "common/json.h"
#include "sys/clock.h"
#include "sys/native_stack.h"
#include "sys/tcp_links.h"

namespace kansoku::cli {
namespace {

using capture::hang::ThreadText;

constexpr Nanos kStackLookMin = std::chrono::seconds{4};
constexpr std::uint32_t kLookHz = 50;
constexpr std::uint64_t kLookSeed = 1;  // nothing of stacks is drawn
constexpr std::uint64_t kLookBytesMax = std::uint64_t{1} << 30;

/// A process whose threads are told one by one.
struct ToldProcess {
  std::int32_t pid{0};
  std::string name;  // "rank 2 (process 4121)"
  std::vector<ThreadText> threads;
};

/// A file that is there for as long as the command runs, unless the user named it.
class LookFile {
 public:
  [[nodiscard]] static Result<LookFile> create(const std::string& wanted) {
    if (!wanted.empty()) return LookFile(wanted, "");
    std::error_code ignored;
    std::string folder = std::filesystem::temp_directory_path(ignored) / "kansoku-hang-XXXXXX";
    if (ignored || ::mkdtemp(folder.data()) == nullptr)
      return errno_error(ignored ? ignored.value() : errno, "create folder", folder);
    return LookFile(folder + "/look.pftrace", folder);
  }
  LookFile(LookFile&& other) noexcept
      : path_(std::move(other.path_)), folder_(std::exchange(other.folder_, {})) {}
  LookFile& operator=(LookFile&&) = delete;
  ~LookFile() {
    std::error_code ignored;
    if (!folder_.empty()) std::filesystem::remove_all(folder_, ignored);
  }
  [[nodiscard]] const std::string& path() const { return path_; }

 private:
  LookFile(std::string path, std::string folder)
      : path_(std::move(path)), folder_(std::move(folder)) {}
  std::string path_, folder_;
};

bool stands_still(const diagnose::Diagnosis& job) {
  return std::any_of(job.findings.begin(), job.findings.end(),
                     [](const diagnose::Finding& finding) { return finding.is_standstill(); });
}

/// Seconds since data last went between processes of different ranks; nothing: no connection
/// between them is known.
std::optional<double> silence_of(const sys::Procfs& procfs, const diagnose::Diagnosis& job) {
  std::vector<std::int32_t> pids;
  std::vector<std::uint64_t> networks;
  for (const std::vector<std::int32_t>& of_rank : job.rank_pids) {
    if (of_rank.empty()) continue;
    pids.push_back(of_rank.front());
    networks.push_back(procfs.owner(pids.back()).network);
  }
  sys::TcpSampler sampler;
  const sys::RealClock clock;
  std::optional<double> out;
  for (const sys::TcpLink& link : sys::tcp_links(sampler, pids, networks, clock.now())) {
    if (link.a == link.b) continue;
    const double seconds = 1e-3 * link.quiet_ms;
    out = std::min(out.value_or(seconds), seconds);
  }
  return out;
}

void print_silence(std::optional<double> silence) {
  if (silence)
    say(stdout,
        fmt::format("no data went over TCP between the ranks of this host for {:.1f} s", *silence));
}

/// Those with ranks.
std::vector<const diagnose::Diagnosis*> jobs_of(const std::optional<Analysis>& analysis) {
  std::vector<const diagnose::Diagnosis*> out;
  if (!analysis || analysis->diagnosis.rank_numbers.empty()) return out;
  out.push_back(&analysis->diagnosis);
  for (const diagnose::Diagnosis& other : analysis->diagnosis.other_jobs)
    out.push_back(&other);
  return out;
}

/// Without its other jobs.
void print_hang_job(diagnose::Diagnosis job, std::optional<double> silence) {
  job.other_jobs.clear();
  if (stands_still(job)) {
    job.notes.clear();  // on steps, which nobody asked for
    say(stdout, fmt::format("job {}", job.job));
    fmt::print("{}", verdict_text(job));
    print_silence(silence);
    return;
  }
  say(stdout, fmt::format("job {}: {}", job.job,
                          job.moves ? "nothing stands still: the stacks of all ranks change"
                                    : "whether something is stuck cannot be told"));
  for (const std::string& note : job.notes)
    say(stdout, "  - " + note);
  if (!job.moves) print_silence(silence);
}

class Hang final : public Command {
 public:
  void declare(CLI::App& app) override {
    app.add_option("-p,--pid", pids_, "process to look at, with everything below it (repeatable)");
    app.add_option("--job", job_, "a running job by name (see `kansoku jobs`)");
    app.add_option("--look", look_, "how long to look at stacks, at least 4s")
        ->capture_default_str();
    app.add_option("-o,--output", output_, "keep what was seen as a recording, for `diagnose`");
    app.add_flag("--json", json_, "print JSON (schema kansoku.hang/2)");
    app.footer(
        "Says within ten seconds who of a job waits for whom, and where: attach it when the job\n"
        "stands still. Without -p and --job it looks at every job of this host. Nothing is "
        "stopped\n"
        "and no debugger attached. A rank that sleeps or is stopped while the others wait for it "
        "is\n"
        "named; one that is at work is told, and may come yet.\n"
        "Of CUDA programs that were started with `kansoku run --cuda` it also says which kernel "
        "is\n"
        "stuck, on which stream, for how long, and who waits for it.\n"
        "Exit status: 10 something is stuck; 11 it cannot be told; 0 nothing is.");
  }

  int run() override {
    auto looked = look();
    return looked ? *looked : report(looked.error());
  }

 private:
  Result<int> look() {
    TRY(const Nanos duration, read_time("--look", look_, kStackLookMin));
    const sys::Procfs procfs;
    TRY_VOID(find_members(procfs));
    std::vector<std::int32_t> with_devices;
    bool is_any_uncovered = false;
    for (const std::int32_t pid : members_) {
      const capture::cuda::Coverage coverage = capture::cuda::coverage_of(procfs, pid);
      // One that was asked for may be the one that the others wait for; others come and go.
      const bool is_gone = !procfs.stat(pid);
      if (is_gone && std::count(pids_.begin(), pids_.end(), pid) == 0) continue;
      if (coverage.has_cuda || coverage.has_library || is_gone) with_devices.push_back(pid);
      is_any_uncovered = is_any_uncovered || (!coverage.has_library && !is_gone);
    }
    const auto looks = look_at_devices(procfs, with_devices);
    // The library knows what its program's devices and threads wait for, in a second.
    std::optional<Analysis> analysis;
    if (is_any_uncovered) {
      TRY(analysis, look_at_hosts(procfs, duration));
    }
    tell_threads(procfs, with_devices, jobs_of(analysis));
    json_ ? print_json(looks, analysis) : print_text(looks, analysis);
    return status_of(looks, analysis);
  }

  Result<void> find_members(const sys::Procfs& procfs) {
    if (pids_.empty()) {
      TRY(members_, pids_of_job(procfs, job_));
      return {};
    }
    if (!job_.empty()) return Error{Code::kUnsupported, "hang: give -p or --job, not both"};
    for (const std::int32_t pid : pids_) {
      // One of several that is gone may be the one that the others wait for.
      if (const auto stat = procfs.stat(pid); !stat && pids_.size() == 1) return stat.error();
    }
    members_ = capture::ProcessForest(procfs).trees(pids_);
    return {};
  }

  /// A recording of stacks alone, diagnosed; nothing if no process is there any more.
  Result<std::optional<Analysis>> look_at_hosts(const sys::Procfs& procfs, Nanos duration) {
    SessionOptions options;
    // With everything below them: those below others need not be named. We are no part of it, where
    // our shell has a rank in its environment.
    std::set<std::int32_t> ours;  // we and those above us
    for (std::int32_t pid = ::getpid(); pid > 1 && ours.insert(pid).second;) {
      const auto stat = procfs.stat(pid);
      pid = stat ? stat->parent_pid : 0;
    }
    const std::set<std::int32_t> all(members_.begin(), members_.end());
    for (const std::int32_t pid : members_) {
      const auto stat = procfs.stat(pid);
      if (stat && !ours.contains(pid) &&
          (!all.contains(stat->parent_pid) || ours.contains(stat->parent_pid)))
        options.pids.push_back(pid);
    }
    if (options.pids.empty()) return std::optional<Analysis>();
    fmt::print(stderr, "kansoku: looking at the stacks of {} processes for {:.0f} s\n",
               members_.size(), std::chrono::duration<double>(duration).count());
    TRY(const LookFile file, LookFile::create(output_));
    options.probes = "python";
    options.use_bpf = false;
    options.python_hz = kLookHz;
    options.duration = duration;
    options.output = file.path();
    options.overwrite = output_.empty();
    options.bytes_max = kLookBytesMax;
    options.quiet = true;
    TRY(const SessionResult recorded, run_session(options));
    if (recorded.recording_error) return *recorded.recording_error;
    TRY(Analysis analysis, analyse({file.path()}, kLookSeed));
    return std::optional(std::move(analysis));
  }

  /// Threads of whoever is held responsible, and of processes that nothing else is said of.
  void tell_threads(const sys::Procfs& procfs, const std::vector<std::int32_t>& told,
                    const std::vector<const diagnose::Diagnosis*>& jobs) {
    std::set<std::int32_t> known(told.begin(), told.end());
    std::map<std::int32_t, std::string> names;
    const auto add_job = [&](const diagnose::Diagnosis& one) {
      known.insert(one.pids.begin(), one.pids.end());
      if (!stands_still(one)) return;
      for (const diagnose::Finding& finding : one.findings)
        for (std::size_t r = 0; r < one.rank_numbers.size(); ++r)
          if (std::count(finding.ranks.begin(), finding.ranks.end(), one.rank_numbers[r]) > 0)
            for (const std::int32_t pid : one.rank_pids[r])
              names[pid] = process_text(one.rank_numbers[r], pid);
    };
    for (const diagnose::Diagnosis* const job : jobs)
      add_job(*job);
    // A launcher of ranks waits for them, and says nothing of them.
    const capture::ProcessForest forest(procfs);
    for (const std::int32_t pid : members_) {
      if (known.contains(pid)) continue;
      const std::vector<std::int32_t> below = forest.tree(pid);
      if (std::none_of(below.begin(), below.end(),
                       [&](std::int32_t one) { return known.contains(one); }))
        names[pid] = process_text(-1, pid);
    }
    sys::NativeStacks stacks(procfs);
    for (const auto& [pid, name] : names)
      processes_.push_back({pid, name, capture::hang::threads_of(procfs, pid, stacks)});
  }

  void print_text(const std::vector<capture::hang::HangLook>& looks,
                  const std::optional<Analysis>& analysis) const {
    print_device_looks(looks);
    for (const diagnose::Diagnosis* const job : jobs_of(analysis))
      print_hang_job(*job, silence_of(sys::Procfs(), *job));
    for (const ToldProcess& process : processes_) {
      say(stdout, process.name + ":");
      print_threads(process.threads);
    }
  }

  void print_json(const std::vector<capture::hang::HangLook>& looks,
                  const std::optional<Analysis>& analysis) const {
    Json told = Json::array();
    for (const ToldProcess& process : processes_)
      told.push(
          Json::object().set("pid", process.pid).set("threads", threads_json(process.threads)));
    Json out = Json::object().set("schema", "kansoku.hang/2");
    add_device_looks(looks, out);
    Json silences = Json::array();
    for (const diagnose::Diagnosis* const job : jobs_of(analysis)) {
      const auto seconds = silence_of(sys::Procfs(), *job);
      silences.push(
          Json::object().set("job", job->job).set("seconds", seconds ? Json(*seconds) : Json()));
    }
    out.set("diagnosis", analysis ? analysis->json : Json())
        .set("silences", std::move(silences))
        .set("stacks", std::move(told));
    say(stdout, out.dump(2));
  }

  [[nodiscard]] int status_of(const std::vector<capture::hang::HangLook>& looks,
                              const std::optional<Analysis>& analysis) const {
    const int of_devices = status_of_looks(looks);
    if (!analysis && looks.empty() && !members_.empty()) return kExitNotEnoughData;
    if (of_devices == kExitFindings || !analysis) return of_devices;
    const auto jobs = jobs_of(analysis);
    const auto moves = [](const diagnose::Diagnosis* job) { return job->moves; };
    if (std::any_of(jobs.begin(), jobs.end(),
                    [](const diagnose::Diagnosis* job) { return stands_still(*job); }))
      return kExitFindings;
    // A process that is no rank has an answer of its device, if it uses one.
    const bool is_clear =
        jobs.empty() ? !looks.empty() : std::all_of(jobs.begin(), jobs.end(), moves);
    return is_clear ? of_devices : kExitNotEnoughData;
  }

  std::vector<std::int32_t> pids_;
  std::string job_, look_{"4s"}, output_;
  bool json_{false};
  std::vector<std::int32_t> members_;
  std::vector<ToldProcess> processes_;
};

}  // namespace

std::unique_ptr<Command> make_hang() {
  return std::make_unique<Hang>();
}

}  // namespace kansoku::cli
