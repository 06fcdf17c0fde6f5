// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <cstdio>
#include <string>

#include "cli/commands.h"
#include "cli/cuda/live.h"
#include "cli/cuda/subcommand.h"
#include "cli/wiring.h"
#include "common/parse.h"
#include "sys/clock.h"

namespace kansoku::cli {
namespace {

constexpr Nanos kLease = std::chrono::seconds{3};

class CudaTop final : public Command {
 public:
  void declare(CLI::App& app) override {
    app.add_option("-p,--pid", pid_, "process that was started with `kansoku run --cuda`")
        ->required();
    app.add_flag("--every", every_, "time every operation, not one in N");
    app.add_option("--interval", interval_, "time between two screens")->capture_default_str();
    app.add_option("--rows", rows_, "kernels on the screen; the rest is one line")
        ->capture_default_str();
    app.add_flag("--once", once_, "print one screen, of one interval, and exit");
    app.add_flag("--json", json_, "print JSON, one line a screen (schema kansoku.cuda.top/1)");
    app.footer(
        "Shows a program's kernels with their times on the device, its other calls, what the host\n"
        "waits for and what is stuck. The library in the program is switched on meanwhile, at a\n"
        "cost that is shown, and off again afterwards. Shares are of the device's time; streams\n"
        "that run side by side sum to more than 100 %.\n"
        "Examples:\n"
        "  kansoku run --cuda -- python3 train.py &\n"
        "  kansoku cuda top -p $!\n"
        "  kansoku cuda top -p 4121 --every --once --json");
  }

  int run() override {
    const auto interval = parse_duration(interval_);
    if (!interval || *interval <= Nanos{})
      return report(Error{Code::kUnsupported,
                          fmt::format("read --interval {}: not a time", interval_),
                          "e.g. 1s, 500ms"});
    install_signal_counter();
    const sys::Procfs procfs;
    auto opened = capture::cuda::Channel::open(procfs, pid_);
    if (!opened) return report(explained(opened.error(), procfs));
    capture::cuda::Channel& channel = **opened;
    const bool is_live = ::isatty(STDOUT_FILENO) != 0 && !once_ && !json_;
    renew(channel);
    CudaSnapshot before = snapshot_of(channel);
    while (signal_count() == 0) {
      if (!wait(channel, *interval)) break;
      CudaSnapshot after = snapshot_of(channel);
      show(before, after, is_live);
      if (once_) break;
      before = std::move(after);
    }
    return kExitOk;
  }

 private:
  [[nodiscard]] Error explained(const Error& error, const sys::Procfs& procfs) const {
    const capture::cuda::Coverage coverage = capture::cuda::coverage_of(procfs, pid_);
    if (error.code != Code::kNotFound) return error;
    if (!procfs.stat(pid_))
      return {Code::kNotFound, fmt::format("process {}: there is none", pid_)};
    if (coverage.has_library)
      return {Code::kUnavailable,
              fmt::format("process {}: it has Kansoku's CUDA library and has not called cuInit yet",
                          pid_),
              "try again once it works on the GPU"};
    if (!coverage.has_cuda)
      return {error.code, fmt::format("process {}: it uses no CUDA driver", pid_), error.hint};
    return {error.code,
            fmt::format("process {}: uses {} without Kansoku's CUDA library, which cannot come in "
                        "later: static runtimes keep the driver's pointers",
                        pid_, coverage.driver_path),
            "start it with `kansoku run --cuda -- COMMAND`; `kansoku cuda stat -p PID` counts "
            "from outside"};
  }

  void renew(capture::cuda::Channel& channel) const {
    const sys::RealClock clock;
    channel.request(every_ ? capture::cuda::Mode::kEvery : capture::cuda::Mode::kSampled, 0,
                    clock.now() + kLease);
  }

  /// Until the next screen; false: the process has ended, or somebody wants an end.
  [[nodiscard]] bool wait(capture::cuda::Channel& channel, Nanos interval) const {
    constexpr Nanos kStep = std::chrono::milliseconds{200};
    const sys::RealClock clock;
    const BootTime until = clock.now() + interval;
    for (BootTime now = clock.now(); now < until; now = clock.now()) {
      if (signal_count() > 0 || ::access(fmt::format("/proc/{}", pid_).c_str(), F_OK) != 0)
        return false;
      renew(channel);
      channel.drain([](const wire_cuda_record&, std::uint32_t) {}, WIRE_CUDA_RING_SLOTS);
      sys::sleep_until(std::min(until, now + kStep));
    }
    return signal_count() == 0;
  }

  void show(const CudaSnapshot& before, const CudaSnapshot& after, bool is_live) const {
    const CudaFrame frame = frame_between(before, after);
    if (json_) {
      Json line = frame_json(frame, after);
      say(stdout, Json::object()
                      .set("schema", "kansoku.cuda.top/1")
                      .set("pid", pid_)
                      .set("frame", std::move(line))
                      .dump());
      return;
    }
    Lines lines{fmt::format("kansoku cuda top  process {}", pid_)};
    for (std::string& line : frame_text(frame, after, rows_))
      lines.push_back(std::move(line));
    show_screen(lines, is_live);
  }

  std::int32_t pid_{0};
  std::size_t rows_{15};
  bool every_{false}, once_{false}, json_{false};
  std::string interval_{"1s"};
};

}  // namespace

std::unique_ptr<Command> make_cuda_top() {
  return std::make_unique<CudaTop>();
}

}  // namespace kansoku::cli
