// SPDX-License-Identifier: Apache-2.0
// The software device: parsing PTX, vector add and matrix product, on one worker and on two.
#include <fmt/format.h>

#include <array>
#include <cstdint>
#include <cstring>
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

#include "bench_util.h"
#include "common/check.h"
#include "gpu/exec/executor.h"
#include "gpu/ptx/parser.h"
#include "sys/clock.h"

namespace {

using namespace kansoku;
using namespace kansoku::gpu;

constexpr int kRuns = 7;

std::string read_file(const std::string& path) {
  std::ifstream file(path);
  std::stringstream text;
  text << file.rdbuf();
  return text.str();
}

double seconds_between(BootTime begin, BootTime end) {
  return static_cast<double>((end - begin).count()) * 1e-9;
}

template <class T>
T must(Result<T> result) {
  if (!result) fmt::print(stderr, "{}\n", result.error().what);
  CHECK(result.has_value());
  return std::move(*result);
}

class Device {
 public:
  explicit Device(const Clock& clock)
      : memory(must(exec::Memory::create(std::uint64_t{1} << 30))), clock_(clock) {}

  exec::Program load(const std::string& name) {
    const std::string text = read_file(KANSOKU_SOURCE_DIR "/tests/data/ptx/" + name + ".ptx");
    return must(exec::Program::load(must(ptx::parse_module(text)), memory));
  }
  std::uint64_t floats(std::size_t count, float value) {
    const std::uint64_t address = must(memory.allocate(count * sizeof(float)));
    auto* const data = reinterpret_cast<float*>(static_cast<std::uintptr_t>(address));
    for (std::size_t i = 0; i < count; ++i)
      data[i] = value + static_cast<float>(i % 17);
    return address;
  }
  /// Median seconds of one launch; pointers and then one int.
  double seconds(const exec::Program& program, const std::array<std::uint64_t, 3>& pointers,
                 std::int32_t n, exec::LaunchOptions options) {
    std::array<std::byte, 28> params{};
    std::memcpy(params.data(), pointers.data(), 24);
    std::memcpy(params.data() + 24, &n, sizeof n);
    options.params = params;
    std::vector<double> times;
    for (int run = 0; run < kRuns; ++run) {
      const BootTime begin = clock_.now();
      const auto fault = must(exec::launch(program, 0, memory, options));
      times.push_back(seconds_between(begin, clock_.now()));
      CHECK(!fault);
    }
    return stats::median(times);
  }

  exec::Memory memory;

 private:
  const Clock& clock_;
};

void bench_parse(const Clock& clock) {
  const std::string one = read_file(KANSOKU_SOURCE_DIR "/tests/data/ptx/sgemm.ptx");
  // Kernels of one module: the same with other names.
  std::string text = one;
  for (int i = 0; text.size() < 47'000; ++i) {
    std::string copy = one.substr(one.find(".visible"));
    for (std::size_t at = 0; (at = copy.find("sgemm", at)) != std::string::npos; at += 8)
      copy.replace(at, 5, fmt::format("k{:07}", i));
    text += copy;
  }
  std::vector<double> times;
  for (int run = 0; run < kRuns; ++run) {
    const BootTime begin = clock.now();
    CHECK(ptx::parse_module(text).has_value());
    times.push_back(1000 * seconds_between(begin, clock.now()));
  }
  fmt::print("bench gpu_parse bytes={} ms={:.2f}\n", text.size(), stats::median(times));
}

void bench_vector_add(Device& device) {
  const exec::Program program = device.load("vector_add");
  constexpr std::int32_t kCount = 1 << 22;
  const std::array<std::uint64_t, 3> data{device.floats(kCount, 1), device.floats(kCount, 2),
                                          device.floats(kCount, 0)};
  exec::LaunchOptions options;
  options.block = {256, 1, 1};
  options.grid = {kCount / 256, 1, 1};
  std::array<double, 2> seconds{};
  for (const std::uint32_t workers : {1U, 2U}) {
    options.workers = workers;
    seconds[workers - 1] = device.seconds(program, data, kCount, options);
  }
  fmt::print("bench gpu_vector_add elements={} gb_per_s_one={:.2f} gb_per_s_two={:.2f} isa={}\n",
             kCount, 12.0 * kCount / seconds[0] * 1e-9, 12.0 * kCount / seconds[1] * 1e-9,
             exec::isa_name(exec::best_isa()));
}

void bench_sgemm(Device& device) {
  const exec::Program program = device.load("sgemm");
  constexpr std::int32_t kN = 512;
  constexpr std::size_t kCount = std::size_t{kN} * kN;
  const std::array<std::uint64_t, 3> data{device.floats(kCount, 1), device.floats(kCount, 2),
                                          device.floats(kCount, 0)};
  exec::LaunchOptions options;
  options.block = {16, 16, 1};
  options.grid = {kN / 16, kN / 16, 1};
  std::array<double, 2> seconds{};
  for (const std::uint32_t workers : {1U, 2U}) {
    options.workers = workers;
    seconds[workers - 1] = device.seconds(program, data, kN, options);
  }
  const double operations = 2.0 * kN * kN * kN;
  fmt::print("bench gpu_sgemm n={} gflops_one={:.2f} gflops_two={:.2f} ratio={:.2f} isa={}\n", kN,
             operations / seconds[0] * 1e-9, operations / seconds[1] * 1e-9,
             seconds[0] / seconds[1], exec::isa_name(exec::best_isa()));
}

}  // namespace

int main() {
  const sys::RealClock clock;
  bench_parse(clock);
  Device device(clock);
  bench_vector_add(device);
  bench_sgemm(device);
}
