// SPDX-License-Identifier: Apache-2.0
// Cost of a launch by the library inside a CUDA process: cuda_bench LIBKANSOKU_CUDA DRIVER NAME
// [ROUNDS [SECONDS]], 0 seconds: bursts alone. A driver that does nothing leaves the library's own
// code; a real or software one adds the cost of its events. Off and on alternate within a round;
// medians over the rounds.
#include <dlfcn.h>
#include <fmt/format.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <vector>

#include "capture/cuda/channel.h"
#include "common/parse.h"
#include "cuda/abi.h"
#include "sys/clock.h"
#include "sys/procfs.h"

namespace {

using namespace kansoku;        // NOLINT(google-build-using-namespace)
using namespace kansoku::cuda;  // NOLINT(google-build-using-namespace)
using capture::cuda::Channel;
using capture::cuda::Mode;

constexpr char kEmptyKernel[] = R"(.version 8.0
.target sm_80
.address_size 64
.visible .entry nothing()
{
	ret;
}
)";
constexpr int kBurst = 1'000'000;
constexpr std::array kRates{20'000, 100'000, 200'000};

[[noreturn]] void fail(const std::string& why) {
  fmt::print(stderr, "{}\n", why);
  std::exit(1);
}

std::int64_t now_ns() {
  return sys::RealClock().now().time_since_epoch().count();
}

template <class F>
F* entry(void* library, const char* name) {
  auto* const symbol = reinterpret_cast<F*>(dlsym(library, name));
  if (symbol == nullptr) fail(fmt::format("no {}", name));
  return symbol;
}

using LaunchKernel = CUresult(CUfunction, unsigned, unsigned, unsigned, unsigned, unsigned,
                              unsigned, unsigned, CUstream, void**, void**);

using LaunchConfigured = CUresult(const CUlaunchConfig*, CUfunction, void**, void**);

double median(std::vector<double> values) {
  std::nth_element(values.begin(), values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2),
                   values.end());
  return values[values.size() / 2];
}

struct Program {
  LaunchKernel* direct{nullptr};          // the driver's
  LaunchKernel* through{nullptr};         // the library's
  LaunchConfigured* configured{nullptr};  // likewise
  CUresult (*synchronize)(){nullptr};
  CUfunction function{nullptr};
  std::unique_ptr<Channel> channel;
};

/// ns a call, of a burst; a driver that queues is waited for outside of the time.
double burst(const Program& program, LaunchKernel* launch, int count) {
  const std::int64_t begin = now_ns();
  for (int i = 0; i < count; ++i)
    launch(program.function, 1, 1, 1, 1, 1, 1, 0, nullptr, nullptr, nullptr);
  const std::int64_t took = now_ns() - begin;
  if (program.synchronize != nullptr) program.synchronize();
  return static_cast<double>(took) / count;
}

constexpr std::uint32_t kHardlyEver = 1U << 30;  // one in so many is timed

void set_mode(Channel& channel, Mode mode, std::uint32_t every_n = 0) {
  const sys::RealClock clock;
  channel.request(mode, every_n, clock.now() + std::chrono::seconds{30});
  while (channel.mode() != mode)
    usleep(1000);  // allowed: the library's thread has to see it
  channel.drain([](const wire_cuda_record&, std::uint32_t) {}, 1U << 20);
}

double thread_seconds(const Channel& channel) {
  return static_cast<double>(channel.state().poller_cpu_ns) * 1e-9;
}

struct Paced {
  double mean_ns{0}, p99_ns{0}, poller_share{0}, rate{0};
  std::uint64_t records{0}, timed{0}, untimed{0};
};

/// Launches at a rate; a call that is late is made at once.
Paced paced(const Program& program, LaunchKernel* launch, double rate, double wanted_s) {
  Paced out;
  Channel& channel = *program.channel;
  const auto take = [&](const wire_cuda_record&, std::uint32_t what) { out.records += what != 0; };
  std::vector<double> costs;
  const auto before = channel.state();
  const std::int64_t begin = now_ns();
  const double poller = thread_seconds(channel);
  const auto count = static_cast<std::int64_t>(rate * wanted_s);
  costs.reserve(static_cast<std::size_t>(count));
  for (std::int64_t i = 0; i < count; ++i) {
    const auto due = begin + static_cast<std::int64_t>(static_cast<double>(i) * 1e9 / rate);
    std::int64_t at = now_ns();
    while (at < due)
      at = now_ns();
    launch(program.function, 1, 1, 1, 1, 1, 1, 0, nullptr, nullptr, nullptr);
    costs.push_back(static_cast<double>(now_ns() - at));
    if (i % 4096 == 0) channel.drain(take, 1U << 20);
  }
  const double seconds = static_cast<double>(now_ns() - begin) * 1e-9;
  out.poller_share = (thread_seconds(channel) - poller) / seconds;
  if (program.synchronize != nullptr) program.synchronize();
  usleep(50'000);  // allowed: the library's thread reads the last events
  channel.drain(take, 1U << 20);
  const auto after = channel.state();
  for (const double cost : costs)
    out.mean_ns += cost / static_cast<double>(costs.size());
  std::nth_element(costs.begin(),
                   costs.begin() + static_cast<std::ptrdiff_t>(costs.size() * 99 / 100),
                   costs.end());
  out.p99_ns = costs[costs.size() * 99 / 100];
  out.rate = static_cast<double>(count) / seconds;
  out.timed = after.timed - before.timed;
  out.untimed = after.losses.no_event - before.losses.no_event + after.losses.queue_full -
                before.losses.queue_full;
  return out;
}

void bench_bursts(Program& program, const std::string& name, int rounds, int count) {
  std::array<std::vector<double>, 3> costs;  // direct, dormant, sampled
  set_mode(*program.channel, Mode::kSampled);
  burst(program, program.through, count);  // the rate of sampling settles
  for (int round = 0; round < rounds; ++round) {
    set_mode(*program.channel, Mode::kDormant);
    costs[0].push_back(burst(program, program.direct, count));
    costs[1].push_back(burst(program, program.through, count));
    set_mode(*program.channel, Mode::kSampled);
    costs[2].push_back(burst(program, program.through, count));
  }
  std::array<std::vector<double>, 2> added;
  for (int round = 0; round < rounds; ++round) {
    const auto at = static_cast<std::size_t>(round);
    added[0].push_back(costs[1][at] - costs[0][at]);
    added[1].push_back(costs[2][at] - costs[0][at]);
  }
  fmt::print(
      "bench cuda/burst driver={} calls={} rounds={} direct_ns={:.2f} dormant_adds_ns={:.2f} "
      "sampled_adds_ns={:.1f} every_n={}\n",
      name, count, rounds, median(costs[0]), median(added[0]), median(added[1]),
      program.channel->state().every_n);
}

void bench_paced(Program& program, const std::string& name, double wanted_s) {
  for (const int rate : kRates) {
    set_mode(*program.channel, Mode::kDormant);
    const Paced off = paced(program, program.through, rate, wanted_s);
    for (const Mode mode : {Mode::kSampled, Mode::kEvery}) {
      set_mode(*program.channel, mode);
      const auto before = program.channel->state();
      const Paced on = paced(program, program.through, rate, wanted_s);
      const auto after = program.channel->state();
      const double sampled =
          std::max<double>(1, static_cast<double>(after.sampled - before.sampled));
      fmt::print(
          "bench cuda/paced driver={} mode={} rate={:.0f} every_n={} off_ns={:.0f} adds_ns={:.0f} "
          "p99_ns={:.0f} own_ns={:.0f} events_ns={:.0f} poller_share={:.4f} timed={} records={} "
          "untimed={}\n",
          name, mode == Mode::kEvery ? "every" : "sampled", on.rate, after.every_n, off.mean_ns,
          on.mean_ns - off.mean_ns, on.p99_ns,
          static_cast<double>(after.own_ns - before.own_ns) / sampled,
          static_cast<double>(after.event_ns - before.event_ns) / sampled, on.poller_share,
          on.timed, on.records, on.untimed);
    }
  }
}

/// The price of a call that is counted and not timed. Last: the gap to the next one that is timed
/// outlasts the mode.
void bench_counted(Program& program, const std::string& name, int rounds, int count) {
  std::vector<double> added;
  for (int round = 0; round < rounds; ++round) {
    set_mode(*program.channel, Mode::kDormant);
    const double off = burst(program, program.through, count);
    set_mode(*program.channel, Mode::kSampled, kHardlyEver);
    added.push_back(burst(program, program.through, count) - off);
  }
  fmt::print("bench cuda/counted driver={} calls={} rounds={} counted_ns={:.1f}\n", name, count,
             rounds, median(added));
}

/// ns a call of launches of which three of four overlap the one before on purpose.
double chained_burst(const Program& program, int count) {
  CUlaunchAttribute attribute{};
  attribute.id = CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION;
  attribute.value.programmaticStreamSerializationAllowed = 1;
  CUlaunchConfig config{};
  config.gridDimX = config.gridDimY = config.gridDimZ = 1;
  config.blockDimX = config.blockDimY = config.blockDimZ = 1;
  config.attrs = &attribute;
  const std::int64_t begin = now_ns();
  for (int i = 0; i < count; ++i) {
    config.numAttrs = i % 4 == 0 ? 0 : 1;
    program.configured(&config, program.function, nullptr, nullptr);
  }
  const std::int64_t took = now_ns() - begin;
  if (program.synchronize != nullptr) program.synchronize();
  return static_cast<double>(took) / count;
}

/// A launch in a chain of four. Last: from then on the stream is one with chains.
void bench_chains(Program& program, const std::string& name, int rounds, int count) {
  std::array<std::vector<double>, 2> added;  // sampled, every
  for (int round = 0; round < rounds; ++round) {
    set_mode(*program.channel, Mode::kDormant);
    const double off = chained_burst(program, count);
    for (const Mode mode : {Mode::kSampled, Mode::kEvery}) {
      set_mode(*program.channel, mode);
      added.at(mode == Mode::kEvery ? 1 : 0).push_back(chained_burst(program, count) - off);
    }
  }
  fmt::print(
      "bench cuda/chains driver={} calls={} rounds={} sampled_adds_ns={:.1f} "
      "every_adds_ns={:.1f}\n",
      name, count, rounds, median(added[0]), median(added[1]));
}

CUfunction load_function(void* library, bool is_null) {
  CUfunction function = nullptr;
  CUmodule module = nullptr;
  if (!is_null) {
    CUcontext context = nullptr;
    entry<CUresult(CUcontext*, CUdevice)>(library, "cuDevicePrimaryCtxRetain")(&context, 0);
    entry<CUresult(CUcontext)>(library, "cuCtxSetCurrent")(context);
    const CUresult loaded =
        entry<CUresult(CUmodule*, const void*)>(library, "cuModuleLoadData")(&module, kEmptyKernel);
    if (loaded != CUDA_SUCCESS) fail(fmt::format("load the kernel: {}", static_cast<int>(loaded)));
  }
  const CUresult found = entry<CUresult(CUfunction*, CUmodule, const char*)>(
      library, "cuModuleGetFunction")(&function, module, "nothing");
  if (found != CUDA_SUCCESS) fail(fmt::format("find the kernel: {}", static_cast<int>(found)));
  return function;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 4) fail("cuda_bench LIBKANSOKU_CUDA DRIVER NAME [ROUNDS [SECONDS]]");
  const std::string name = argv[3];
  const int rounds = argc > 4 ? parse_int<int>(argv[4]).value_or(9) : 9;
  setenv("KANSOKU_CUDA_DRIVER", argv[2], 1);
  void* const driver = dlopen(argv[2], RTLD_NOW | RTLD_LOCAL);
  void* const library = dlopen(argv[1], RTLD_NOW | RTLD_LOCAL);
  if (driver == nullptr || library == nullptr) fail(dlerror());
  const bool is_null = name == "null";
  if (entry<CUresult(unsigned)>(library, "cuInit")(0) != CUDA_SUCCESS) fail("cuInit");
  Program program;
  program.function = load_function(library, is_null);
  program.direct = entry<LaunchKernel>(driver, "cuLaunchKernel");
  program.through = entry<LaunchKernel>(library, "cuLaunchKernel");
  if (!is_null) program.synchronize = entry<CUresult()>(driver, "cuCtxSynchronize");
  auto channel = Channel::open(sys::Procfs(), getpid());
  if (!channel) fail(channel.error().what);
  program.channel = std::move(*channel);
  bench_bursts(program, name, rounds, is_null ? kBurst : 20'000);
  const int seconds = argc > 5 ? parse_int<int>(argv[5]).value_or(2) : 2;
  if (seconds > 0) bench_paced(program, name, seconds);
  bench_counted(program, name, rounds, is_null ? kBurst : 20'000);
  program.configured = entry<LaunchConfigured>(library, "cuLaunchKernelEx");
  bench_chains(program, name, rounds, 4000);
  return 0;
}
