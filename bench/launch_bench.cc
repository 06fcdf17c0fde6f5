// SPDX-License-Identifier: Apache-2.0
// Processor time of an empty launch through the driver's interface of the software GPU:
// bench_launch LIBRARY [PEER] [ROUNDS]. With PEER, another build of the library, both are measured
// in alternation, each in a process of its own.
#include <fmt/format.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <ctime>
#include <string>
#include <vector>

#include "bench_util.h"
#include "common/parse.h"
#include "cuda/driver.h"
#include "cuda/driver_device.h"
#include "stats/summary.h"

namespace kansoku::bench {
namespace {

constexpr std::string_view kKernel = R"(.version 7.0
.target sm_80
.address_size 64
.visible .entry empty() { ret; }
)";
constexpr std::size_t kAllocationBytes = 4096;
struct Setting {
  std::size_t live;      // allocations
  std::uint32_t blocks;  // of 32 threads
  int launches;  // and one wait: few after a pause, or so many that the pause does not count
};
constexpr Setting kSettings[] = {{0, 1, 300},    {0, 16, 300},    {0, 1, 20000},   {400, 1, 300},
                                 {6400, 1, 300}, {6400, 16, 300}, {6400, 1, 20000}};

double processor_us() {
  timespec now{};
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) * 1e6 + static_cast<double>(now.tv_nsec) / 1e3;
}

Result<double> measure(cuda::Device& device, cuda::KernelId kernel, const Setting& setting) {
  cuda::LaunchShape shape;
  shape.grid = {setting.blocks, 1, 1};
  shape.block = {32, 1, 1};
  const double begin = processor_us();
  for (int i = 0; i < setting.launches; ++i)
    TRY_VOID(device.launch(kernel, shape, {}, cuda::StreamId{}));
  TRY_VOID(device.synchronize());
  return (processor_us() - begin) / setting.launches;
}

/// Microseconds a launch, one for each setting.
Result<std::vector<double>> measure_library(const std::string& path) {
  TRY(const auto driver, cuda::load_driver(path));
  TRY(const auto device, cuda::open_device(driver, 0));
  TRY(const auto module, device->load_module(kKernel));
  TRY(const auto kernel, device->find_kernel(module, "empty"));
  for (const std::uint32_t blocks : {16U, 1U}) {  // makes threads, then wakes the stream's
    TRY(const double first, measure(*device, kernel, {0, blocks, 300}));
    static_cast<void>(first);
  }
  std::vector<double> out;
  std::size_t live = 0;
  for (const Setting& setting : kSettings) {
    for (; live < setting.live; ++live) {
      TRY(const auto pointer, device->allocate(kAllocationBytes));
      static_cast<void>(pointer);
    }
    TRY(const double us, measure(*device, kernel, setting));
    out.push_back(us);
  }
  return out;
}

/// The same in a child: two builds of one library do not fit into one process.
std::vector<double> measure_apart(const std::string& path) {
  int ends[2];
  if (pipe(ends) != 0) return {};
  const pid_t child = fork();
  if (child == 0) {
    close(ends[0]);
    const auto made = measure_library(path);
    if (!made) fmt::print(stderr, "bench_launch: {}\n", made.error().what);
    const bool is_written = made && write(ends[1], made->data(), made->size() * sizeof(double)) ==
                                        static_cast<ssize_t>(made->size() * sizeof(double));
    _exit(is_written ? 0 : 1);
  }
  close(ends[1]);
  std::vector<double> out(std::size(kSettings));
  const auto wanted = static_cast<ssize_t>(out.size() * sizeof(double));
  const bool is_read = read(ends[0], out.data(), out.size() * sizeof(double)) == wanted;
  close(ends[0]);
  int status = 0;
  waitpid(child, &status, 0);
  return is_read && status == 0 ? out : std::vector<double>{};
}

}  // namespace
}  // namespace kansoku::bench

int main(int argc, char** argv) {
  using namespace kansoku;
  const std::string peer = argc > 2 ? argv[2] : "";
  const auto rounds = argc > 3 ? parse_int<std::size_t>(argv[3]) : std::size_t{9};
  if (argc < 2 || argc > 4 || !rounds || *rounds == 0) {
    fmt::print(stderr, "usage: bench_launch LIBRARY [PEER] [ROUNDS]\n");
    return 2;
  }
  std::vector<std::vector<double>> own(std::size(bench::kSettings)), other = own;
  for (std::size_t round = 0; round < *rounds; ++round) {
    for (const bool is_own : {true, false}) {
      if (!is_own && peer.empty()) continue;
      const auto made = bench::measure_apart(is_own ? argv[1] : peer);
      if (made.empty()) return 1;
      for (std::size_t i = 0; i < made.size(); ++i)
        (is_own ? own : other)[i].push_back(made[i]);
    }
  }
  for (std::size_t i = 0; i < own.size(); ++i) {
    fmt::print("bench gpu_launch live={} blocks={} launches={} rounds={} cpu_us={:.2f}",
               bench::kSettings[i].live, bench::kSettings[i].blocks, bench::kSettings[i].launches,
               *rounds, stats::median(own[i]));
    if (!peer.empty()) {
      const auto ratio = bench::ratio_with_interval(own[i], other[i]);
      fmt::print(" peer_cpu_us={:.2f} own_by_peer={:.3f} low={:.3f} high={:.3f}",
                 stats::median(other[i]), ratio.median, ratio.low, ratio.high);
    }
    fmt::print("\n");
  }
  return 0;
}
