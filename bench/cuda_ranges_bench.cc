// SPDX-License-Identifier: Apache-2.0
// Cost of a pair of push and pop of NVTX with the CUDA library as its tool:
// cuda_ranges_bench LIBKANSOKU_CUDA DRIVER [ROUNDS]. Medians over the rounds, the states in turns
// within a round; what was recorded is read outside of the time.
#include <dlfcn.h>
#include <fmt/format.h>
#include <nvtx3/nvToolsExt.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <vector>

#include "capture/cuda/channel.h"
#include "common/parse.h"
#include "sys/clock.h"
#include "sys/procfs.h"

namespace {

using namespace kansoku;  // NOLINT(google-build-using-namespace)
using capture::cuda::Channel;
using capture::cuda::Mode;

constexpr int kPairs = 100'000;  // their records have room in the ring

[[noreturn]] void fail(const std::string& why) {
  fmt::print(stderr, "{}\n", why);
  std::exit(1);
}

double median(std::vector<double> values) {
  std::nth_element(values.begin(), values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2),
                   values.end());
  return values[values.size() / 2];
}

std::int64_t now_ns() {
  return sys::RealClock().now().time_since_epoch().count();
}

double plain_pairs() {
  const std::int64_t begin = now_ns();
  for (int i = 0; i < kPairs; ++i) {
    nvtxRangePushA("a name of some length");
    nvtxRangePop();
  }
  return static_cast<double>(now_ns() - begin) / kPairs;
}

double registered_pairs(nvtxDomainHandle_t domain, const nvtxEventAttributes_t& event) {
  const std::int64_t begin = now_ns();
  for (int i = 0; i < kPairs; ++i) {
    nvtxDomainRangePushEx(domain, &event);
    nvtxDomainRangePop(domain);
  }
  return static_cast<double>(now_ns() - begin) / kPairs;
}

struct State {
  const char* name;
  Mode mode;
  bool are_wanted;
};
constexpr std::array kStates{
    State{"asleep", Mode::kDormant, false}, State{"sampled_unwanted", Mode::kSampled, false},
    State{"sampled", Mode::kSampled, true}, State{"every", Mode::kEvery, true}};

std::uint64_t take(Channel& channel) {
  std::uint64_t ranges = 0;
  channel.drain([&](const wire_cuda_record& record,
                    std::uint32_t) { ranges += record.entry == WIRE_CUDA_RANGE; },
                WIRE_CUDA_RING_SLOTS);
  return ranges;
}

/// Until the library does what is asked for: a range is recorded, or none is.
void set(Channel& channel, const State& state) {
  const sys::RealClock clock;
  channel.want_ranges(state.are_wanted);
  channel.request(Mode::kDormant, 0, clock.now() + std::chrono::seconds{30});
  while (channel.mode() != Mode::kDormant)
    usleep(1000);  // allowed: the library's thread has to see it
  channel.request(state.mode, 0, clock.now() + std::chrono::seconds{30});
  while (channel.mode() != state.mode)
    usleep(1000);  // allowed: the library's thread has to see it
  nvtxRangePushA("a name of some length");
  nvtxRangePop();
  if ((take(channel) > 0) != state.are_wanted) fail("ranges are not recorded as asked for");
}

void bench(Channel& channel, int rounds) {
  const nvtxDomainHandle_t domain = nvtxDomainCreateA("bench");
  nvtxEventAttributes_t event{};
  event.version = NVTX_VERSION;
  event.size = NVTX_EVENT_ATTRIB_STRUCT_SIZE;
  event.messageType = NVTX_MESSAGE_TYPE_REGISTERED;
  event.message.registered = nvtxDomainRegisterStringA(domain, "registered");
  std::array<std::vector<double>, kStates.size()> plain, registered;
  std::uint64_t lost = 0;
  for (int round = 0; round < rounds; ++round) {
    for (std::size_t i = 0; i < kStates.size(); ++i) {
      set(channel, kStates[i]);
      plain[i].push_back(plain_pairs());
      const std::uint64_t expected = kStates[i].are_wanted ? kPairs : 0;
      lost += expected - take(channel);
      registered[i].push_back(registered_pairs(domain, event));
      lost += expected - take(channel);
    }
  }
  for (std::size_t i = 0; i < kStates.size(); ++i)
    fmt::print(
        "bench cuda/ranges state={} pairs={} rounds={} pair_ns={:.1f} registered_ns={:.1f}\n",
        kStates[i].name, kPairs, rounds, median(plain[i]), median(registered[i]));
  fmt::print("bench cuda/ranges lost={}\n", lost);
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 3) fail("cuda_ranges_bench LIBKANSOKU_CUDA DRIVER [ROUNDS]");
  const int rounds = argc > 3 ? parse_int<int>(argv[3]).value_or(9) : 9;
  setenv("KANSOKU_CUDA_DRIVER", argv[2], 1);
  setenv("NVTX_INJECTION64_PATH", argv[1], 1);
  void* const library = dlopen(argv[1], RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) fail(dlerror());
  const auto init = reinterpret_cast<int (*)(unsigned)>(dlsym(library, "cuInit"));
  if (init == nullptr || init(0) != 0) fail("cuInit");
  std::vector<double> without;
  softgpu_nvtx_state = 2;  // as a program without a tool
  for (int round = 0; round < rounds; ++round)
    without.push_back(plain_pairs());
  fmt::print("bench cuda/ranges state=no_tool pairs={} rounds={} pair_ns={:.1f}\n", kPairs, rounds,
             median(without));
  softgpu_nvtx_state = 0;
  auto channel = Channel::open(sys::Procfs(), getpid());
  if (!channel) fail(channel.error().what);
  bench(**channel, rounds);
  return 0;
}
