// SPDX-License-Identifier: Apache-2.0
#include "infer/peaks.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <numeric>
#include <thread>
#include <vector>

namespace kansoku::infer {
namespace {

constexpr std::size_t kWords = std::size_t{8} << 20;  // 64 MiB of 8 bytes: beyond shared caches
constexpr int kRounds = 5;
constexpr std::size_t kLanes = 16, kChains = 12;  // enough chains to hide an addition's latency
constexpr std::size_t kSteps = 200'000;

using Lane = float __attribute__((vector_size(kLanes * sizeof(float))));

#define KANSOKU_CLONES __attribute__((target_clones("default", "arch=x86-64-v3", "arch=x86-64-v4")))

KANSOKU_CLONES std::uint64_t read_all(const std::uint64_t* words, std::size_t count) {
  std::array<std::uint64_t, 8> sums{};
  for (std::size_t i = 0; i + sums.size() <= count; i += sums.size())
    for (std::size_t j = 0; j < sums.size(); ++j)
      sums[j] += words[i + j];
  return std::accumulate(sums.begin(), sums.end(), std::uint64_t{0});
}

#pragma GCC push_options
#pragma GCC optimize("fp-contract=fast")
KANSOKU_CLONES float multiply_add(float seed) {
  std::array<Lane, kChains> chains{};
  const Lane factor = Lane{} + 0.999F, term = Lane{} + seed;
  for (std::size_t i = 0; i < kSteps; ++i)
    for (Lane& chain : chains)
      chain = chain * factor + term;
  float out = 0;
  for (const Lane& chain : chains)
    out += chain[0];
  return out;
}
#pragma GCC pop_options

/// Seconds of the fastest round in which all threads did `work` once.
template <class Work>
double fastest(std::uint32_t threads, const Clock& clock, const Work& work) {
  double best = 1e9;
  for (int round = 0; round < kRounds; ++round) {
    const BootTime begin = clock.now();
    std::vector<std::thread> running;
    for (std::uint32_t i = 1; i < threads; ++i)
      running.emplace_back([&work, i] { work(i); });
    work(0);
    for (std::thread& one : running)
      one.join();
    best = std::min(best, static_cast<double>((clock.now() - begin).count()) * 1e-9);
  }
  return best;
}

}  // namespace

Peaks measure_peaks(std::uint32_t threads, const Clock& clock) {
  constexpr std::uint32_t kThreadsMax = 256;
  threads = std::clamp<std::uint32_t>(threads, 1, kThreadsMax);
  std::vector<std::vector<std::uint64_t>> memory(threads);
  for (auto& words : memory)
    words.assign(kWords, 1);
  std::vector<std::uint64_t> sums(threads);
  std::vector<float> products(threads);
  const double reading = fastest(threads, clock, [&](std::uint32_t i) {
    sums[i] = read_all(memory[i].data(), memory[i].size());
  });
  const double computing = fastest(threads, clock, [&](std::uint32_t i) {
    products[i] = multiply_add(static_cast<float>(sums[i] % 7) * 1e-3F);
  });
  // What was computed is used, or the compiler leaves it out.
  const bool is_odd = std::accumulate(products.begin(), products.end(), 0.0F) < 0;
  Peaks out;
  out.threads = threads;
  out.bytes_per_second = static_cast<double>(kWords * 8 * threads) / reading + (is_odd ? 1 : 0);
  out.flops = 2.0 * static_cast<double>(kSteps * kChains * kLanes) * threads / computing;
  return out;
}

}  // namespace kansoku::infer
