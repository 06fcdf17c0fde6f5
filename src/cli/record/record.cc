// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <CLI/CLI.hpp>
#include <map>
#include <string>

#include "cli/commands.h"
#include "cli/option_values.h"
#include "cli/record/session.h"
#include "common/parse.h"

namespace kansoku::cli {
namespace {

// As a shell says it of a command that it cannot start.
constexpr int kNotFoundStatus = 127, kNotExecutableStatus = 126;
constexpr Nanos kShort = std::chrono::milliseconds{500};

class Record final : public Command {
 public:
  void declare(CLI::App& app) override {
    app.add_option("-p,--pid", options_.pids,
                   "observe this process and its descendants (repeatable)");
    app.add_option("--job", options_.job, "observe a running job by name (see `kansoku jobs`)");
    app.add_option("-o,--output", options_.output, "trace file to write (mode 0600)")->required();
    app.add_option("--probes", options_.probes,
                   "packs, e.g. default,torch-ops or default,-sched or ./my.toml (see `kansoku "
                   "probes list`)")
        ->capture_default_str();
    app.add_option("--duration", duration_,
                   "stop after this time, e.g. 30s, 2m (default: until the end)");
    app.add_option("--then", options_.after,
                   "action if the recording ends before the command: wait for it, kill it (TERM) "
                   "or leave it running")
        ->transform(CLI::CheckedTransformer(
            std::map<std::string, AfterRecording>{{"wait", AfterRecording::kWait},
                                                  {"kill", AfterRecording::kKill},
                                                  {"leave", AfterRecording::kLeave}},
            CLI::ignore_case));
    app.add_option("--max-size", max_size_, "stop when the file reaches this size, e.g. 500M");
    app.add_option("--attach", options_.attach,
                   "use only this kind of uprobe: session, multi or perf");
    app.add_option("--ring-bytes", ring_, "size of the event ring, a power of two")
        ->capture_default_str();
    app.add_option("--python-hz", options_.python_hz,
                   "rate of Python stacks (default: from the packs)")
        ->check(CLI::Range(1, 1000));
    app.add_flag("--no-bpf", no_bpf_, "record Python stacks only");
    app.add_option("--cuda", cuda_,
                   "record GPU work with device times: every operation (every), one in N (a "
                   "number), or as many as cost next to nothing (sampled); a command gets "
                   "Kansoku's CUDA library, a running process must have been started with it")
        ->expected(0, 1)
        ->default_str("every");
    app.add_flag("--force", options_.overwrite, "overwrite the output file");
    app.add_flag("--explain", options_.explain,
                 "print each probe with its address and the reason for it");
    app.add_flag("-q,--quiet", options_.quiet, "hide the status line");
    app.add_option("--library", options_.libraries,
                   "attach to this library before a process loads it (repeatable)");
    app.add_option("command", options_.command, "command to start and observe, after --");
    app.footer(
        "Examples:\n"
        "  kansoku record -o run.pftrace -- torchrun --nproc-per-node 4 train.py\n"
        "  kansoku record -p 4121 --duration 30s -o run.pftrace\n"
        "Exit status: the command's own; without a command 0, or a status of docs/exit-codes.md.");
  }

  int run() override {
    if (const auto bad = read_options(); !bad) return report(bad.error());
    const auto result = run_session(options_);
    if (!result) return report(result.error());
    if (!options_.quiet) {
      fmt::print(stderr, "kansoku: wrote {}: {} events, {} bytes, {} lost, ranks [{}]\n",
                 options_.output, result->last.events, result->last.bytes, result->last.lost,
                 fmt::join(result->last.ranks, " "));
      const bool is_started = result->command_status.value_or(0) != kNotFoundStatus &&
                              result->command_status.value_or(0) != kNotExecutableStatus;
      if (is_started && result->command_status && result->last.elapsed < kShort)
        fmt::print(
            stderr,
            "kansoku: the command ended after {:.0f} ms; the recording is probably too short\n",
            static_cast<double>(result->last.elapsed.count()) / 1e6);
      if (is_started && result->last.events > 0)
        fmt::print(stderr, "kansoku: next: kansoku diagnose {}\n", options_.output);
    }
    int status = result->last.events > 0 ? kExitOk : explain_empty_recording(result->last);
    if (result->recording_error) {
      status = report(*result->recording_error);
      fmt::print(stderr,
                 "kansoku: the recording ended early; the file is readable up to that point\n");
    }
    return result->command_status.value_or(status);
  }

 private:
  /// Says why a recording holds nothing; its status.
  static int explain_empty_recording(const capture::RecordStatus& last) {
    const bool has_bpf = !last.bpf.starts_with("none");
    fmt::print(stderr, "kansoku: nothing was recorded: {}\n",
               has_bpf ? "the job called no probed function, and no Python stack was readable"
                       : "without eBPF Kansoku records Python stacks only, and none was readable");
    fmt::print(stderr, "kansoku: next: kansoku doctor\n");
    return has_bpf ? kExitOk : kExitPermission;
  }

  Result<void> read_options() {
    const int targets = (options_.pids.empty() ? 0 : 1) + (options_.job.empty() ? 0 : 1) +
                        (options_.command.empty() ? 0 : 1);
    if (targets != 1) {
      return Error{Code::kUnsupported, "record: name one target: -p PID, --job NAME or -- COMMAND",
                   "`kansoku jobs` lists the jobs that run here"};
    }
    if (!duration_.empty()) {
      TRY(options_.duration, read_time("--duration", duration_));
    }
    if (!max_size_.empty()) {
      const auto bytes = parse_bytes(max_size_);
      if (!bytes || *bytes == 0) {
        return Error{Code::kUnsupported, fmt::format("read --max-size {}: not a size", max_size_),
                     "e.g. 500M, 2G"};
      }
      options_.bytes_max = *bytes;
    }
    TRY(options_.ring_bytes, read_ring_bytes(ring_));
    options_.use_bpf = !no_bpf_;
    return read_cuda();
  }

  Result<void> read_cuda() {
    if (!cuda_) return {};
    capture::CudaSourceOptions how;
    if (*cuda_ != "every") how.mode = capture::cuda::Mode::kSampled;
    if (*cuda_ != "every" && *cuda_ != "sampled") {
      const auto every_n = parse_int<std::uint32_t>(*cuda_);
      if (!every_n || *every_n == 0)
        return Error{Code::kUnsupported,
                     fmt::format("read --cuda {}: not every, sampled or a number", *cuda_)};
      how.every_n = *every_n;
    }
    options_.cuda = how;
    return {};
  }

  SessionOptions options_;
  std::optional<std::string> cuda_;
  std::string duration_, max_size_, ring_{"16M"};
  bool no_bpf_{false};
};

}  // namespace

std::unique_ptr<Command> make_record() {
  return std::make_unique<Record>();
}

}  // namespace kansoku::cli
