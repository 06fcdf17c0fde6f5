// SPDX-License-Identifier: Apache-2.0
// Step-time overhead of probe packs on the example 4-rank job: probes on and off in alternating
// windows of the same running job, order alternated from pair to pair, recording and file writing
// included. PACKS is a list for `record`; "watch" is the cost of `profile --watch` while it waits,
// "window:PACKS" the cost of its windows.
//   overhead_bench [PAIRS[40]] [WINDOW_MS[1000]] [PACKS...]
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include "bench_util.h"
#include "capture/pack.h"
#include "capture/recorder.h"
#include "common/parse.h"
#include "sys/clock.h"
#include "sys/fd.h"
#include "sys/process.h"

namespace kansoku::bench {
namespace {

constexpr Nanos kWarmUp = std::chrono::seconds{6};         // import, rendezvous, first steps
constexpr Nanos kSettle = std::chrono::milliseconds{100};  // after a switch, before steps count
constexpr std::size_t kStepsMin = 4;  // of a window; fewer and the pair is left out

struct Window {
  bool is_on{false};
  std::int64_t begin_ns{0}, end_ns{0};
};

struct Setup {
  std::size_t pair_count{40};
  Nanos window{std::chrono::milliseconds{1000}};
  std::string packs;
  [[nodiscard]] bool watches() const { return packs == "watch" || is_window(); }
  [[nodiscard]] bool is_window() const { return packs.starts_with("window:"); }
};

/// Takes the windows of a watching recorder.
class CountingSink final : public ByteSink {
 public:
  Result<void> append(ByteSpan bytes) override {
    bytes_ += bytes.size();
    return {};
  }
  [[nodiscard]] std::uint64_t bytes() const { return bytes_; }

 private:
  std::uint64_t bytes_{0};
};

// Alternates the probes while the recorder runs; on-off, off-on, on-off, ...
class Alternator {
 public:
  Alternator(const Clock& clock, const Setup& setup)
      : clock_(clock), setup_(setup), next_(clock.now() + kWarmUp) {}

  bool is_done() const { return windows_.size() >= 2 * setup_.pair_count; }
  void pump(capture::Recorder& recorder) {
    const BootTime now = clock_.now();
    if (now < next_) return;
    if (is_open_) {
      windows_.push_back(
          {is_on_, begin_.time_since_epoch().count(), now.time_since_epoch().count()});
      is_open_ = false;
      if (is_done()) return;
    }
    const std::size_t index = windows_.size();
    is_on_ = (index % 4 == 0) || (index % 4 == 3);
    if (setup_.is_window() && !is_on_ && window_is_open_) static_cast<void>(recorder.end_window());
    recorder.set_probes_enabled(is_on_);
    if (setup_.is_window() && is_on_ && !window_is_open_)
      static_cast<void>(recorder.begin_window(sink_));
    window_is_open_ = setup_.is_window() && is_on_;
    begin_ = clock_.now() + kSettle;
    next_ = begin_ + setup_.window;
    is_open_ = true;
  }
  [[nodiscard]] const std::vector<Window>& windows() const { return windows_; }

 private:
  const Clock& clock_;
  const Setup& setup_;
  BootTime next_, begin_;
  bool is_on_{false}, is_open_{false}, window_is_open_{false};
  CountingSink sink_;
  std::vector<Window> windows_;
};

std::vector<std::int64_t> read_step_ends(const std::string& path) {
  std::vector<std::int64_t> ends;
  std::ifstream in(path);
  for (std::string line; std::getline(in, line);) {
    if (const auto ns = parse_int<std::int64_t>(line)) ends.push_back(*ns);
  }
  return ends;
}

// Mean step time inside a window: steps that lie in it wholly.
double mean_step_ms(const std::vector<std::int64_t>& ends, const Window& window) {
  const auto first = std::lower_bound(ends.begin(), ends.end(), window.begin_ns);
  const auto last = std::upper_bound(ends.begin(), ends.end(), window.end_ns);
  const auto count = last - first;
  if (count < static_cast<std::ptrdiff_t>(kStepsMin) + 1) return 0;
  return static_cast<double>(*(last - 1) - *first) / 1e6 / static_cast<double>(count - 1);
}

class Cleanup {
 public:
  explicit Cleanup(std::string folder) : folder_(std::move(folder)) {}
  Cleanup(const Cleanup&) = delete;
  Cleanup& operator=(const Cleanup&) = delete;
  ~Cleanup() {
    std::error_code ignored;
    std::filesystem::remove_all(folder_, ignored);
  }

 private:
  std::string folder_;
};

Result<int> measure(const Setup& setup, const std::string& examples, const std::string& probes) {
  const std::string folder = fmt::format("/tmp/kansoku-bench-{}", ::getpid());
  ::mkdir(folder.c_str(), 0700);
  // Whatever way this ends, nothing of the run stays in /tmp.
  const Cleanup remove_folder(folder);
  const sys::RealClock clock;
  const sys::Procfs procfs;
  TRY(const auto sink, sys::FileSink::create(folder + "/run.pftrace", {.overwrite = true}));
  TRY(const auto known, capture::load_packs({probes}));
  capture::RecorderOptions options;
  const std::string full = setup.is_window() ? setup.packs.substr(7) : setup.packs;
  TRY(options.packs,
      capture::select_packs(known, setup.watches() && !setup.is_window() ? "default" : full));
  if (setup.watches()) {
    TRY(options.watch_packs, capture::select_packs(known, "torch,gloo,nccl"));
  }
  TRY(const auto recorder, capture::Recorder::create(*sink, clock, procfs, std::move(options)));
  TRY(auto job,
      sys::Child::start({"/bin/bash", examples + "/ddp/launch.sh"},
                        {{"STEPS=100000000", "STEP_LOG=" + folder}, folder + "/job.log"}));
  TRY_VOID(recorder->observe(job.pid(), false));
  job.release();
  Alternator alternator(clock, setup);
  capture::RecordStatus last;
  const auto stop = [&] {
    alternator.pump(*recorder);
    return alternator.is_done() || job.poll().has_value();
  };
  const auto recorded = recorder->run({}, stop, [&](const capture::RecordStatus& status) {
    last = status;
    return true;
  });
  job.send(SIGTERM);
  static_cast<void>(job.wait());
  if (!recorded) return recorded.error();
  const auto ends = read_step_ends(folder + "/rank0.txt");
  std::vector<double> ratios;
  std::vector<double> off_ms;
  const auto& windows = alternator.windows();
  for (std::size_t i = 0; i + 1 < windows.size(); i += 2) {
    const double a = mean_step_ms(ends, windows[i]);
    const double b = mean_step_ms(ends, windows[i + 1]);
    if (a == 0 || b == 0) continue;
    ratios.push_back(windows[i].is_on ? a / b : b / a);
    off_ms.push_back(windows[i].is_on ? b : a);
  }
  if (ratios.empty())
    return Error{Code::kUnavailable, "measure overhead: no pair of windows has enough steps"};
  const MedianInterval result = median_with_interval(ratios);
  fmt::print(
      "bench overhead packs={} pairs={} window_ms={} step_off_ms={:.1f} ratio_vs_off={:.4f} "
      "ci95_low={:.4f} ci95_high={:.4f} events={} bytes_per_event={:.1f} lost={} attach={}\n",
      setup.packs, ratios.size(), setup.window.count() / 1'000'000, stats::median(off_ms),
      result.median, result.low, result.high, last.events,
      last.events == 0 ? 0 : static_cast<double>(last.bytes) / static_cast<double>(last.events),
      last.lost, last.bpf);
  return 0;
}

}  // namespace
}  // namespace kansoku::bench

int main(int argc, char** argv) {
  namespace bench = kansoku::bench;
  using kansoku::parse_int;
  bench::Setup setup;
  if (argc > 1) setup.pair_count = parse_int<std::size_t>(argv[1]).value_or(setup.pair_count);
  if (argc > 2) setup.window = std::chrono::milliseconds{parse_int<int>(argv[2]).value_or(1000)};
  std::vector<std::string> all{"default", "default,torch-ops", "default,torch-ops-all", "watch",
                               "window:default,torch-ops"};
  if (argc > 3) all.assign(argv + 3, argv + argc);
  for (const std::string& packs : all) {
    setup.packs = packs;
    const auto measured =
        bench::measure(setup, KANSOKU_SOURCE_DIR "/examples", KANSOKU_SOURCE_DIR "/share/probes");
    if (!measured) {
      fmt::print("bench overhead packs={} failed: {}\n", packs, measured.error().what);
      return 1;
    }
  }
  return 0;
}
