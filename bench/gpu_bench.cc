// SPDX-License-Identifier: Apache-2.0
// The software device: parsing PTX, and the kernels of examples/gpu beside the same ones on PoCL,
// on one core and on two. A round measures every side once; the next one in the opposite order.
//   bench_gpu [ROUNDS[9]] [KERNEL]
#include <fmt/format.h>
#include <sched.h>
#include <time.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "bench_util.h"
#include "common/check.h"
#include "common/isa.h"
#include "common/parse.h"
#include "gpu/exec/executor.h"
#include "gpu/ptx/parser.h"
#include "gpu_cases.h"
#include "pocl_bench.h"
#include "sys/clock.h"
#include "sys/fd.h"

namespace kansoku::bench {
namespace {

using namespace kansoku::gpu;

constexpr int kParseRuns = 7;
constexpr std::size_t kRoundsMin = 7;
constexpr double kSampleSeconds = 0.02;  // a sample is as many launches as take this long
constexpr std::uint64_t kDeviceBytes = std::uint64_t{1} << 29;
constexpr std::uint32_t kCoresMax = 2;
constexpr std::size_t kSourceBytesMax = std::size_t{1} << 20;

Result<std::string> read_source(const std::string& path) {
  return sys::read_file(KANSOKU_SOURCE_DIR "/" + path, kSourceBytesMax);
}

double seconds_between(BootTime begin, BootTime end) {
  return static_cast<double>((end - begin).count()) * 1e-9;
}

/// Processor time of all threads of this process.
double processor_seconds() {
  timespec now{};
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + static_cast<double>(now.tv_nsec) * 1e-9;
}

/// Those that this process may use.
std::uint32_t core_count() {
  cpu_set_t cores;
  CPU_ZERO(&cores);
  if (sched_getaffinity(0, sizeof cores, &cores) != 0) return 1;
  return static_cast<std::uint32_t>(CPU_COUNT(&cores));
}

template <class Work>
Result<double> seconds_of(const Clock& clock, const Work& work) {
  const BootTime begin = clock.now();
  TRY_VOID(work());
  return seconds_between(begin, clock.now());
}

/// One implementation on so many cores, and its measurements: an entry a round.
class Side {
 public:
  virtual ~Side() = default;
  [[nodiscard]] virtual Result<void> launch() = 0;
  /// Zeros in the output, one launch, the output as the host sees it.
  [[nodiscard]] virtual Result<std::span<const std::byte>> compute() = 0;

  /// Chooses how many launches make a sample.
  Result<void> calibrate(const Clock& clock) {
    TRY(const double once, seconds_of(clock, [this] { return launch(); }));
    launches_ = static_cast<std::size_t>(std::clamp(std::ceil(kSampleSeconds / once), 1.0, 1000.0));
    return {};
  }
  Result<void> sample(const Clock& clock) {
    const double used_before = processor_seconds();
    TRY(const double seconds, seconds_of(clock, [this]() -> Result<void> {
          for (std::size_t i = 0; i < launches_; ++i)
            TRY_VOID(launch());
          return {};
        }));
    seconds_.push_back(seconds / static_cast<double>(launches_));
    cpus_.push_back((processor_seconds() - used_before) / seconds);
    return {};
  }
  [[nodiscard]] const std::vector<double>& seconds() const { return seconds_; }
  [[nodiscard]] double median_seconds() const { return stats::median(seconds_); }
  /// Processor time by time: below the cores wanted, somebody else was at work.
  [[nodiscard]] double median_cpus() const { return stats::median(cpus_); }

 private:
  std::size_t launches_{1};
  std::vector<double> seconds_, cpus_;
};

/// A case made ready for all sides; its owner outlives them.
struct Prepared {
  const KernelCase& kernel;
  const exec::Memory& memory;
  const exec::Program& program;
  std::span<std::byte> pocl_output;  // PoCL's own; the software device writes to the case's
};

/// The software device.
class SoftSide final : public Side {
 public:
  SoftSide(const Prepared& prepared, std::uint32_t cores)
      : program_(prepared.program), memory_(prepared.memory) {
    const KernelLaunch& launch = prepared.kernel.launch;
    output_ = launch.arguments[prepared.kernel.output].buffer;
    const exec::KernelInfo& kernel = program_.kernels().front();
    CHECK(kernel.param_offsets.size() == launch.arguments.size());
    params_.resize(kernel.params_total_bytes);
    for (std::size_t i = 0; i < launch.arguments.size(); ++i) {
      const KernelArgument& argument = launch.arguments[i];
      const auto address = reinterpret_cast<std::uintptr_t>(argument.buffer.data());
      const auto bytes = argument.buffer.empty() ? std::as_bytes(std::span(argument.value))
                                                 : std::as_bytes(std::span(&address, 1));
      CHECK(kernel.param_bytes[i] == bytes.size());
      std::copy(bytes.begin(), bytes.end(),
                params_.begin() + static_cast<std::ptrdiff_t>(kernel.param_offsets[i]));
    }
    options_.grid = launch.grid;
    options_.block = launch.block;
    options_.workers = cores;
  }
  Result<void> launch() override {
    options_.params = params_;
    TRY(const auto fault, exec::launch(program_, 0, memory_, options_));
    if (fault) return Error{kansoku::Code::kInternal, fault->text()};
    return {};
  }
  Result<std::span<const std::byte>> compute() override {
    std::fill(output_.begin(), output_.end(), std::byte{0});
    TRY_VOID(launch());
    return std::span<const std::byte>(output_);
  }

 private:
  const exec::Program& program_;
  const exec::Memory& memory_;
  std::span<std::byte> output_;
  std::vector<std::byte> params_;
  exec::LaunchOptions options_;
};

/// PoCL.
class PoclSide final : public Side {
 public:
  PoclSide(Pocl::Kernel kernel, const KernelLaunch& launch, std::size_t output)
      : kernel_(std::move(kernel)), argument_(output), output_(launch.arguments[output].buffer) {}
  Result<void> launch() override { return kernel_.run(); }
  Result<std::span<const std::byte>> compute() override {
    TRY_VOID(kernel_.clear(argument_));
    TRY_VOID(kernel_.run());
    TRY_VOID(kernel_.fetch(argument_));
    return std::span<const std::byte>(output_);
  }

 private:
  Pocl::Kernel kernel_;
  std::size_t argument_;
  std::span<std::byte> output_;
};

/// Both on so many cores.
struct Contest {
  std::uint32_t cores{1};
  std::unique_ptr<Side> soft, pocl;  // pocl: null where there is none
  double difference{0};              // between their results
};

/// Times of compiling; part of no other time.
struct CompileTimes {
  double soft_load{0};                  // seconds: parse and decode
  double pocl_build{0}, pocl_first{0};  // clBuildProgram; the first launch, which compiles too
};

void print_not_run(const std::string& what, Error error) {
  std::replace(error.what.begin(), error.what.end(), '\n', ' ');  // a compiler's words
  fmt::print("bench gpu_pocl {} run=no reason=\"{}\" hint=\"{}\"\n", what, error.what, error.hint);
}

class Bench {
 public:
  /// `wanted`: the kernel to measure; empty: all.
  Bench(const Clock& clock, std::size_t rounds, std::string wanted)
      : clock_(clock), rounds_(rounds), wanted_(std::move(wanted)) {}

  Result<void> run() {
    TRY_VOID(parse());
    open_peers();
    for (const CaseMaker& maker : case_makers()) {
      if (wanted_.empty() || wanted_ == maker.name) TRY_VOID(run_case(maker));
    }
    print_targets();
    return {};
  }

 private:
  Result<void> parse();
  void open_peers();
  Result<void> run_case(const CaseMaker& maker);
  Result<Contest> prepare(const Prepared& prepared, std::uint32_t cores);
  Result<std::unique_ptr<Side>> prepare_pocl(const Prepared& prepared, std::uint32_t cores);
  Result<void> measure(std::vector<Contest>& contests);
  void print(const KernelCase& kernel, const Contest& contest) const;
  void keep_targets(const KernelCase& kernel, const std::vector<Contest>& contests);
  void print_targets() const;

  const Clock& clock_;
  const std::size_t rounds_;
  const std::string wanted_;
  const std::uint32_t cores_{std::clamp(core_count(), 1U, kCoresMax)};
  const std::string isa_{isa_name(best_isa())};
  std::map<std::uint32_t, Pocl> peers_;  // by cores
  CompileTimes compile_;
  std::string targets_;
};

Result<void> Bench::parse() {
  TRY(const std::string one, read_source("tests/data/ptx/sgemm.ptx"));
  // Kernels of one module: the same with other names.
  std::string text = one;
  for (int i = 0; text.size() < 47'000; ++i) {
    std::string copy = one.substr(one.find(".visible"));
    for (std::size_t at = 0; (at = copy.find("sgemm", at)) != std::string::npos; at += 8)
      copy.replace(at, 5, fmt::format("k{:07}", i));
    text += copy;
  }
  std::vector<double> times;
  for (int run = 0; run < kParseRuns; ++run) {
    const BootTime begin = clock_.now();
    CHECK(ptx::parse_module(text).has_value());
    times.push_back(1000 * seconds_between(begin, clock_.now()));
  }
  fmt::print("bench gpu_parse bytes={} ms={:.2f}\n", text.size(), stats::median(times));
  return {};
}

void Bench::open_peers() {
  fmt::print("bench gpu_isa isa={} cores={}\n", isa_, cores_);
  if (cores_ < kCoresMax) fmt::print("bench gpu_two_cores run=no reason=\"one core\"\n");
  for (std::uint32_t cores = 1; cores <= cores_; ++cores) {
    Result<Pocl> peer = Pocl::open(cores);
    if (!peer) {
      print_not_run(fmt::format("cores={}", cores), peer.error());
      continue;
    }
    // The greatest of its settings: how it makes one function of a work-group's work-items.
    const char* const method = std::getenv("POCL_WORK_GROUP_METHOD");
    fmt::print("bench gpu_pocl cores={} run=yes work_group_method={} name=\"{}\"\n", cores,
               method == nullptr ? "default" : method, peer->name());
    peers_.emplace(cores, std::move(*peer));
  }
}

Result<std::unique_ptr<Side>> Bench::prepare_pocl(const Prepared& prepared, std::uint32_t cores) {
  const KernelCase& kernel = prepared.kernel;
  const auto peer = peers_.find(cores);
  if (peer == peers_.end()) return std::unique_ptr<Side>();
  TRY(const std::string source, read_source(fmt::format("bench/pocl/{}.cl", kernel.name)));
  const KernelLaunch launch = kernel.with_output(prepared.pocl_output);
  const BootTime begin = clock_.now();
  TRY(Pocl::Kernel built, peer->second.build(source, launch));
  const double build = seconds_between(begin, clock_.now());
  auto side = std::make_unique<PoclSide>(std::move(built), launch, kernel.output);
  TRY(const double first, seconds_of(clock_, [&] { return side->launch(); }));
  if (cores == 1) {
    compile_.pocl_build = build;
    compile_.pocl_first = first;
  }
  return std::unique_ptr<Side>(std::move(side));
}

Result<Contest> Bench::prepare(const Prepared& prepared, std::uint32_t cores) {
  const KernelCase& kernel = prepared.kernel;
  Contest made;
  made.cores = cores;
  made.soft = std::make_unique<SoftSide>(prepared, cores);
  TRY(const auto ours, made.soft->compute());
  auto peer = prepare_pocl(prepared, cores);
  if (!peer) print_not_run(fmt::format("cores={} kernel={}", cores, kernel.name), peer.error());
  made.pocl = std::move(peer).value_or(nullptr);
  if (made.pocl != nullptr) {
    TRY(const auto theirs, made.pocl->compute());
    made.difference = difference(kernel, ours, theirs);
    if (made.difference > kernel.tolerance)
      return Error{kansoku::Code::kInternal,
                   fmt::format("{}: the results differ by {:.3g}, more than {:.3g}", kernel.name,
                               made.difference, kernel.tolerance)};
    TRY_VOID(made.pocl->calibrate(clock_));
  }
  TRY_VOID(made.soft->calibrate(clock_));
  return made;
}

Result<void> Bench::measure(std::vector<Contest>& contests) {
  std::vector<Side*> order;
  for (Contest& contest : contests) {
    order.push_back(contest.soft.get());
    if (contest.pocl) order.push_back(contest.pocl.get());
  }
  for (std::size_t round = 0; round < rounds_; ++round) {
    for (Side* const side : order)
      TRY_VOID(side->sample(clock_));
    std::reverse(order.begin(), order.end());
  }
  return {};
}

Result<void> Bench::run_case(const CaseMaker& maker) {
  TRY(exec::Memory memory, exec::Memory::create(kDeviceBytes));
  TRY(const KernelCase kernel, maker.make(memory));
  TRY(const auto pocl_output,
      make_buffer(memory, kernel.launch.arguments[kernel.output].buffer.size()));
  TRY(const std::string text, read_source(fmt::format("tests/data/ptx/{}.ptx", kernel.name)));
  const BootTime begin = clock_.now();
  TRY(ptx::Module module, ptx::parse_module(text));
  TRY(const exec::Program program, exec::Program::load(std::move(module), memory));
  compile_ = {seconds_between(begin, clock_.now()), 0, 0};
  std::vector<Contest> contests;
  for (std::uint32_t cores = 1; cores <= cores_; ++cores) {
    TRY(Contest contest, prepare({kernel, memory, program, pocl_output}, cores));
    contests.push_back(std::move(contest));
  }
  TRY_VOID(measure(contests));
  for (const Contest& contest : contests)
    print(kernel, contest);
  fmt::print("bench gpu_compile kernel={} soft_load_ms={:.2f}", kernel.name,
             1e3 * compile_.soft_load);
  if (contests.front().pocl) {
    fmt::print(" pocl_build_ms={:.0f} pocl_first_launch_ms={:.0f}", 1e3 * compile_.pocl_build,
               1e3 * compile_.pocl_first);
  }
  fmt::print("\n");
  keep_targets(kernel, contests);
  return {};
}

void Bench::print(const KernelCase& kernel, const Contest& contest) const {
  fmt::print("bench gpu_kernel kernel={} {} cores={} rounds={} isa={}", kernel.name, kernel.size,
             contest.cores, rounds_, isa_);
  const auto print_side = [&](const char* name, const Side& side) {
    fmt::print(" {0}_ms={1:.2f} {0}_{2}_per_s={3:.3f} {0}_cpus={4:.2f}", name,
               1e3 * side.median_seconds(), kernel.unit, kernel.work / side.median_seconds(),
               side.median_cpus());
  };
  print_side("soft", *contest.soft);
  if (contest.pocl) {
    print_side("pocl", *contest.pocl);
    const MedianInterval ratio =
        ratio_with_interval(contest.soft->seconds(), contest.pocl->seconds());
    fmt::print(" soft_by_pocl={:.2f} low={:.2f} high={:.2f} difference={:.2g}", ratio.median,
               ratio.low, ratio.high, contest.difference);
  }
  fmt::print("\n");
}

void Bench::keep_targets(const KernelCase& kernel, const std::vector<Contest>& contests) {
  const double rate = kernel.work / contests.front().soft->median_seconds();
  if (kernel.name == "vector_add")
    targets_ += fmt::format(" vector_add_one_core_gb_per_s={:.2f}", rate);
  if (kernel.name != "sgemm") return;
  targets_ += fmt::format(" sgemm_512_one_core_gflop_per_s={:.2f}", rate);
  if (contests.size() < kCoresMax) return;
  const MedianInterval ratio =
      ratio_with_interval(contests[0].soft->seconds(), contests[1].soft->seconds());
  targets_ += fmt::format(" sgemm_512_two_to_one={:.2f} low={:.2f} high={:.2f}", ratio.median,
                          ratio.low, ratio.high);
}

void Bench::print_targets() const {
  fmt::print("bench gpu_targets isa={}{}\n", isa_, targets_);
}

}  // namespace
}  // namespace kansoku::bench

int main(int argc, char** argv) {
  using namespace kansoku;
  const auto rounds = argc > 1 ? parse_int<std::size_t>(argv[1]) : std::size_t{9};
  if (argc > 3 || !rounds || *rounds < bench::kRoundsMin) {
    fmt::print(stderr, "usage: bench_gpu [ROUNDS, at least {}] [KERNEL]\n", bench::kRoundsMin);
    return 2;
  }
  const sys::RealClock clock;
  const Result<void> done = bench::Bench(clock, *rounds, argc > 2 ? argv[2] : "").run();
  if (done) return 0;
  fmt::print(stderr, "bench_gpu: {}\n", done.error().what);
  return 1;
}
