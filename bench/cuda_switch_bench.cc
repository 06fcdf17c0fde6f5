// SPDX-License-Identifier: Apache-2.0
// Cost of the CUDA library for a whole program, in one process of it: asleep, sampling and timing
// every operation in windows of random order, as processor time of the program and of this reader a
// step, beside hits times price.
//   bench_cuda_switch KANSOKU NAME KIND BLOCKS WINDOW_MS COUNTED_NS COMMAND...
// KIND  modes: asleep (twice, so that two equal ones are compared, too), sampled, every
//       every, counted: a launch repeats what the library adds to it k times (cuda_repeat); the
//       slope over k is the price of a timed, or of a counted operation
// COUNTED_NS: price of a call that is only counted, by bench_cuda. The command writes its steps
// into a step_log; if it ends, it is started anew.
#include <fmt/format.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <csignal>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <numeric>
#include <optional>
#include <string>
#include <vector>

#include "capture/cuda/channel.h"
#include "common/parse.h"
#include "common/rng.h"
#include "stats/bootstrap.h"
#include "stats/summary.h"
#include "step_log.h"
#include "sys/clock.h"
#include "sys/process.h"
#include "sys/procfs.h"

namespace kansoku::bench {
namespace {

using capture::cuda::Channel;
using capture::cuda::Mode;

constexpr std::uint64_t kStepsFirst = 20;  // before the first window: files are read, pages there
constexpr std::uint64_t kStepsMin = 4;     // of a window; with fewer its block is left out
constexpr auto kReadEvery = std::chrono::milliseconds{50};  // as `record` reads
constexpr auto kLease = std::chrono::seconds{3};
constexpr auto kPatience = std::chrono::minutes{1};
constexpr int kStartsMax = 500;
constexpr std::uint32_t kHardlyEver = 1U << 30;  // one in so many is timed

[[noreturn]] void fail(const std::string& why) {
  fmt::print(stderr, "{}\n", why);
  std::exit(1);
}

struct Condition {
  const char* name;
  Mode mode;
  std::uint32_t every_n, repeats;
};

const std::vector<Condition>& conditions(const std::string& kind) {
  static const std::vector<Condition> kModes{{"asleep", Mode::kDormant, 0, 0},
                                             {"asleep_again", Mode::kDormant, 0, 0},
                                             {"sampled", Mode::kSampled, 0, 0},
                                             {"every", Mode::kEvery, 0, 0}};
  static const std::vector<Condition> kEvery{{"k", Mode::kEvery, 0, 0},
                                             {"k", Mode::kEvery, 0, 10},
                                             {"k", Mode::kEvery, 0, 20},
                                             {"k", Mode::kEvery, 0, 40}};
  static const std::vector<Condition> kCounted{{"k", Mode::kSampled, kHardlyEver, 0},
                                               {"k", Mode::kSampled, kHardlyEver, 10},
                                               {"k", Mode::kSampled, kHardlyEver, 20},
                                               {"k", Mode::kSampled, kHardlyEver, 40},
                                               {"k", Mode::kSampled, kHardlyEver, 400}};
  if (kind == "modes") return kModes;
  if (kind == "every") return kEvery;
  if (kind == "counted") return kCounted;
  fail("KIND is modes, every or counted");
}

/// Counters that grow while a window lasts.
struct Reading {
  std::uint64_t step{0};
  std::int64_t at_ns{0};
  double reader_ns{0}, calls{0}, launches{0}, timed{0}, untimed{0};
  double own_ns{0}, event_ns{0}, sampled{0}, poller_ns{0};
};

/// A window: growth of the counters in it, and the times of its steps behind the first.
struct Window {
  Reading grew;
  double steps{0}, cpu_ns{0}, reader_ns{0}, wall_ns{0};
  [[nodiscard]] double all_ns() const { return cpu_ns + reader_ns; }
};

double own_cpu_ns() {
  return static_cast<double>(step_log_ns(CLOCK_PROCESS_CPUTIME_ID));
}

/// The program under test, started once.
class Target {
 public:
  Target(const std::string& kansoku, bool repeats, const std::vector<std::string>& command,
         const std::string& folder)
      : steps_(step_log_map((folder + "/steps").c_str())), repeats_(map_repeats(folder)) {
    if (steps_ == nullptr) fail("no file for steps in " + folder);
    steps_->count = 0;
    std::vector<std::string> argv{kansoku, "run", "--softgpu", "--cuda", "--"};
    argv.insert(argv.end(), command.begin(), command.end());
    sys::Child::Options options;
    options.extra_environment = {STEP_LOG_VARIABLE "=" + folder + "/steps",
                                 "KANSOKU_REPEAT_FILE=" + folder + "/repeats"};
    if (repeats)
      options.extra_environment.push_back(
          "KANSOKU_CUDA_LIBS=" + kansoku.substr(0, kansoku.rfind('/') + 1) + "cuda_repeat");
    options.output_path = folder + "/log";
    auto child = sys::Child::start(argv, options);
    if (!child) fail(child.error().what);
    child_ = std::move(*child);
    child_->release();
    wait_until([&] { return step_log_count() >= kStepsFirst; }, folder);
    auto channel = Channel::open(sys::Procfs(), child_->pid());
    if (!channel) fail(channel.error().what);
    channel_ = std::move(*channel);
  }
  Target(const Target&) = delete;
  Target& operator=(const Target&) = delete;
  ~Target() {
    channel_.reset();
    child_->send(SIGKILL);
    static_cast<void>(child_->wait());
    munmap(steps_, sizeof *steps_);
    munmap(repeats_, sizeof *repeats_);
  }

  /// Empty: the program ended.
  std::optional<Window> window(const Condition& condition, std::chrono::milliseconds length) {
    __atomic_store_n(repeats_, condition.repeats, __ATOMIC_RELEASE);
    renew(condition);
    const sys::RealClock clock;
    const BootTime patience = clock.now() + kPatience;
    while (channel_->mode() != condition.mode && !child_->poll() && clock.now() < patience)
      usleep(500);  // allowed: the library's thread has to see it
    const Reading begin = read();
    const BootTime end = clock.now() + length;
    while (clock.now() < end && !child_->poll()) {
      usleep(static_cast<unsigned>(std::min<std::int64_t>(  // allowed: the pace of a reader
          std::chrono::microseconds{kReadEvery}.count(), (end - clock.now()).count() / 1000 + 1)));
      renew(condition);
      drain();
    }
    const Reading now = read();
    if (child_->poll()) return std::nullopt;
    return between(begin, now);
  }

 private:
  static std::uint32_t* map_repeats(const std::string& folder) {
    const int fd = open((folder + "/repeats").c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    if (fd < 0 || ftruncate(fd, sizeof(std::uint32_t)) != 0) fail("no file in " + folder);
    void* const at =
        mmap(nullptr, sizeof(std::uint32_t), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    close(fd);
    if (at == MAP_FAILED) fail("map a file in " + folder);
    return static_cast<std::uint32_t*>(at);
  }
  [[nodiscard]] std::uint64_t step_log_count() const {
    return __atomic_load_n(&steps_->count, __ATOMIC_ACQUIRE);
  }
  template <class F>
  void wait_until(const F& is_so, const std::string& folder) {
    const sys::RealClock clock;
    const BootTime end = clock.now() + kPatience;
    while (!is_so()) {
      if (child_->poll() || clock.now() > end) fail("the program does not run: " + folder + "/log");
      usleep(1000);  // allowed: between two looks
    }
  }
  void renew(const Condition& condition) {
    const sys::RealClock clock;
    channel_->request(condition.mode, condition.every_n, clock.now() + kLease);
  }
  void drain() {
    channel_->drain([](const wire_cuda_record&, std::uint32_t) {}, std::size_t{1} << 20);
  }
  [[nodiscard]] Reading read() {
    Reading out;
    for (const auto& entry : channel_->entries()) {
      out.calls += static_cast<double>(entry.calls);
      if (entry.what == WIRE_CUDA_LAUNCH) out.launches += static_cast<double>(entry.calls);
    }
    const auto state = channel_->state();
    const auto number = [](std::uint64_t value) { return static_cast<double>(value); };
    out.timed = number(state.timed);
    out.untimed = number(state.losses.no_event + state.losses.queue_full + state.losses.ring_full);
    out.own_ns = number(state.own_ns);
    out.event_ns = number(state.event_ns);
    out.sampled = number(state.sampled);
    out.poller_ns = number(state.poller_cpu_ns);
    out.reader_ns = own_cpu_ns();
    out.at_ns = static_cast<std::int64_t>(step_log_ns(CLOCK_BOOTTIME));
    out.step = step_log_count();
    return out;
  }
  /// The step that was on its way at the begin is dropped.
  [[nodiscard]] Window between(const Reading& begin, const Reading& end) const {
    Window out;
    out.grew = {end.step - begin.step,           end.at_ns - begin.at_ns,
                end.reader_ns - begin.reader_ns, end.calls - begin.calls,
                end.launches - begin.launches,   end.timed - begin.timed,
                end.untimed - begin.untimed,     end.own_ns - begin.own_ns,
                end.event_ns - begin.event_ns,   end.sampled - begin.sampled,
                end.poller_ns - begin.poller_ns};
    if (out.grew.step < kStepsMin + 1) return out;
    const auto& first = steps_->steps[begin.step % STEP_LOG_SLOTS];
    const auto& last = steps_->steps[(end.step - 1) % STEP_LOG_SLOTS];
    out.steps = static_cast<double>(end.step - 1 - begin.step);
    out.cpu_ns = static_cast<double>(last.cpu_ns - first.cpu_ns) / out.steps;
    out.wall_ns = static_cast<double>(last.boot_ns - first.boot_ns) / out.steps;
    out.reader_ns = out.grew.reader_ns / static_cast<double>(out.grew.at_ns) * out.wall_ns;
    return out;
  }

  step_log* steps_;
  std::uint32_t* repeats_;
  std::optional<sys::Child> child_;
  std::unique_ptr<Channel> channel_;
};

using Block = std::vector<Window>;  // by condition

struct Interval {
  double median{0}, low{0}, high{0};
};

/// Neighbours stay together: a disturbance of one block disturbs the next.
Interval interval_of(const std::vector<double>& values) {
  stats::BlockBootstrap draws(values.size(), stats::default_block_length(values.size()), 1);
  std::vector<double> medians, resample;
  for (int i = 0; i < 2000; ++i) {
    resample.clear();
    for (const stats::Block& block : draws.draw())
      resample.insert(resample.end(), values.begin() + static_cast<std::ptrdiff_t>(block.begin),
                      values.begin() + static_cast<std::ptrdiff_t>(block.begin + block.count));
    medians.push_back(stats::median(resample));
  }
  return {stats::median(values), stats::quantile(medians, 0.025), stats::quantile(medians, 0.975)};
}

template <class F>
std::vector<double> of_blocks(const std::vector<Block>& blocks, const F& value) {
  std::vector<double> out;
  for (const Block& block : blocks)
    out.push_back(value(block));
  return out;
}

/// All windows of a condition together.
struct Sums {
  Reading grew;
  double steps{0};  // whole windows, first steps included: as the counters saw them
};

Sums sum(const std::vector<Block>& blocks, std::size_t condition) {
  Sums out;
  for (const Block& block : blocks) {
    const Reading& one = block[condition].grew;
    out.steps += static_cast<double>(one.step);
    out.grew.calls += one.calls;
    out.grew.launches += one.launches;
    out.grew.timed += one.timed;
    out.grew.untimed += one.untimed;
    out.grew.own_ns += one.own_ns;
    out.grew.event_ns += one.event_ns;
    out.grew.sampled += one.sampled;
    out.grew.poller_ns += one.poller_ns;
  }
  return out;
}

double ratio(double above, double below) {
  return below > 0 ? above / below : 0;
}

void print_mode(const std::string& name, const Condition& condition, std::size_t at,
                const std::vector<Block>& blocks, double counted_ns) {
  const Interval cpu = interval_of(of_blocks(
      blocks, [&](const Block& block) { return block[at].all_ns() / block[0].all_ns() - 1; }));
  const auto walls = of_blocks(
      blocks, [&](const Block& block) { return block[at].wall_ns / block[0].wall_ns - 1; });
  const double asleep_ns =
      stats::median(of_blocks(blocks, [](const Block& block) { return block[0].all_ns(); }));
  const double reader_ns =
      stats::median(of_blocks(blocks, [&](const Block& block) { return block[at].reader_ns; }));
  const Sums all = sum(blocks, at);
  const double calls = ratio(all.grew.calls, all.steps), timed = ratio(all.grew.timed, all.steps);
  const double own_ns = ratio(all.grew.own_ns, all.grew.sampled);
  const double event_ns = ratio(all.grew.event_ns, all.grew.sampled);
  const double poller_ns = ratio(all.grew.poller_ns, all.steps);
  const double product = calls * counted_ns + timed * (own_ns + event_ns) + poller_ns;
  fmt::print(
      "bench cuda/switch name={} mode={} blocks={} step_cpu_us={:.1f} calls_a_step={:.1f} "
      "timed_a_step={:.2f} untimed={:.0f} counted_ns={:.1f} own_ns={:.0f} events_ns={:.0f} "
      "thread_us_a_step={:.2f} hits_times_price={:.2f}% reader={:.2f}% cpu_adds={:.2f}% "
      "low={:.2f}% high={:.2f}% wall_adds_trimmed={:.2f}%\n",
      name, condition.name, blocks.size(), asleep_ns / 1e3, calls, timed, all.grew.untimed,
      counted_ns, own_ns, event_ns, poller_ns / 1e3, 100 * product / asleep_ns,
      100 * reader_ns / asleep_ns, 100 * cpu.median, 100 * cpu.low, 100 * cpu.high,
      100 * stats::trimmed_mean(walls, 0.2));
}

/// Least squares over k, of the processor time of the program alone.
double slope_of(const Block& block, const std::vector<Condition>& all) {
  double mean_k = 0, mean_y = 0, above = 0, below = 0;
  for (std::size_t i = 0; i < all.size(); ++i) {
    mean_k += all[i].repeats / static_cast<double>(all.size());
    mean_y += block[i].cpu_ns / static_cast<double>(all.size());
  }
  for (std::size_t i = 0; i < all.size(); ++i) {
    above += (all[i].repeats - mean_k) * (block[i].cpu_ns - mean_y);
    below += (all[i].repeats - mean_k) * (all[i].repeats - mean_k);
  }
  return above / below;
}

void print_slope(const std::string& name, const std::string& kind,
                 const std::vector<Condition>& all, const std::vector<Block>& blocks,
                 double counted_ns) {
  const Sums plain = sum(blocks, 0);
  const double launches = ratio(plain.grew.launches, plain.steps);
  double own = 0, event = 0, sampled = 0, poller = 0, timed = 0, untimed = 0;
  for (std::size_t i = 0; i < all.size(); ++i) {
    const Reading grew = sum(blocks, i).grew;
    const double first_ns =
        stats::median(of_blocks(blocks, [](const Block& block) { return block[0].cpu_ns; }));
    fmt::print(
        "bench cuda/repeat name={} kind={} k={} blocks={} step_cpu_us={:.1f} effect={:.1f}% "
        "timed={:.0f} untimed={:.0f}\n",
        name, kind, all[i].repeats, blocks.size(),
        stats::median(of_blocks(blocks, [&](const Block& block) { return block[i].cpu_ns; })) / 1e3,
        100 *
            (stats::median(of_blocks(blocks, [&](const Block& block) { return block[i].cpu_ns; })) /
                 first_ns -
             1),
        grew.timed, grew.untimed);
    own += grew.own_ns;
    event += grew.event_ns;
    sampled += grew.sampled;
    poller += grew.poller_ns;
    timed += grew.timed;
    untimed += grew.untimed;
  }
  const Interval slope = interval_of(
      of_blocks(blocks, [&](const Block& block) { return slope_of(block, all) / launches; }));
  const double price = kind == "every"
                           ? counted_ns + ratio(own + event, sampled) + ratio(poller, timed)
                           : counted_ns;
  fmt::print(
      "bench cuda/slope name={} kind={} blocks={} launches_a_step={:.1f} slope_ns={:.1f} "
      "low={:.1f} high={:.1f} price_ns={:.1f} counted_ns={:.1f} own_ns={:.0f} events_ns={:.0f} "
      "thread_ns={:.0f} untimed={:.0f} slope_over_price={:.3f}\n",
      name, kind, blocks.size(), launches, slope.median, slope.low, slope.high, price, counted_ns,
      ratio(own, sampled), ratio(event, sampled), ratio(poller, timed), untimed,
      slope.median / price);
}

/// Blocks of one start of the program, until it ends or there are enough.
void collect(Target& target, const std::vector<Condition>& all, std::chrono::milliseconds length,
             std::size_t wanted, Rng& rng, std::vector<Block>& blocks) {
  while (blocks.size() < wanted) {
    std::vector<std::size_t> order(all.size());
    std::iota(order.begin(), order.end(), std::size_t{0});
    for (std::size_t i = order.size(); i > 1; --i)
      std::swap(order[i - 1], order[rng.below(i)]);
    Block block(all.size());
    bool is_whole = true;
    for (const std::size_t at : order) {
      const auto window = target.window(all[at], length);
      if (!window) return;
      is_whole = is_whole && window->steps >= static_cast<double>(kStepsMin);
      block[at] = *window;
    }
    if (is_whole) blocks.push_back(std::move(block));
  }
}

}  // namespace
}  // namespace kansoku::bench

int main(int argc, char** argv) {
  namespace bench = kansoku::bench;
  using kansoku::parse_int;
  if (argc < 8)
    bench::fail("bench_cuda_switch KANSOKU NAME KIND BLOCKS WINDOW_MS COUNTED_NS COMMAND...");
  const std::string kansoku = argv[1], name = argv[2], kind = argv[3];
  const auto wanted = parse_int<std::size_t>(argv[4]).value_or(0);
  const std::chrono::milliseconds length{parse_int<int>(argv[5]).value_or(0)};
  const auto counted_ns = kansoku::parse_double(argv[6]);
  if (wanted < 2 || length.count() < 1 || !counted_ns)
    bench::fail("BLOCKS from 2, WINDOW_MS from 1");
  const auto& all = bench::conditions(kind);
  const std::vector<std::string> command(argv + 7, argv + argc);
  std::array<char, 40> folder{"/tmp/kansoku-switch-XXXXXX"};
  if (mkdtemp(folder.data()) == nullptr) bench::fail("no folder in /tmp");
  std::vector<bench::Block> blocks;
  kansoku::Rng rng(1);
  int starts = 0;
  for (; blocks.size() < wanted && starts < bench::kStartsMax; ++starts) {
    bench::Target target(kansoku, kind != "modes", command, folder.data());
    bench::collect(target, all, length, wanted, rng, blocks);
  }
  for (const char* const file : {"/steps", "/repeats", "/log"})
    unlink((folder.data() + std::string(file)).c_str());
  rmdir(folder.data());
  if (blocks.size() < 2) bench::fail("no two blocks of windows have steps enough");
  fmt::print("bench cuda/switch name={} kind={} starts={} window_ms={}\n", name, kind, starts,
             length.count());
  if (kind != "modes") {
    bench::print_slope(name, kind, all, blocks, *counted_ns);
    return 0;
  }
  for (std::size_t at = 1; at < all.size(); ++at)
    bench::print_mode(name, all[at], at, blocks, *counted_ns);
  return 0;
}
