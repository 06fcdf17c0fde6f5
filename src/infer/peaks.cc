// SPDX-License-Identifier: Apache-2.0
#include "infer/peaks.h"

#include <immintrin.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <numeric>
#include <thread>
#include <vector>

namespace kansoku::infer {
namespace {

constexpr std::size_t kReadWords = std::size_t{8} << 20;  // 64 MiB of 8 bytes: beyond shared caches
constexpr int kRounds = 5;
constexpr std::size_t kSteps = 200'000;
constexpr std::size_t kChains = 12;  // enough to hide the latency of an addition, and not to spill

#ifdef __SANITIZE_THREAD__  // the choice among clones runs before the sanitizer
#define KANSOKU_CLONES
#else
#define KANSOKU_CLONES __attribute__((target_clones("default", "arch=x86-64-v3", "arch=x86-64-v4")))
#endif

KANSOKU_CLONES std::uint64_t read_all(const std::uint64_t* words, std::size_t count) {
  std::array<std::uint64_t, 8> sums{};
  for (std::size_t i = 0; i + sums.size() <= count; i += sums.size())
    for (std::size_t j = 0; j < sums.size(); ++j)
      sums[j] += words[i + j];
  return std::accumulate(sums.begin(), sums.end(), std::uint64_t{0});
}

// All chains, with values of their own, or the compiler makes one of them. Spelled out: as an array
// they would live in memory.
#define KANSOKU_CHAINS(DO) DO(0) DO(1) DO(2) DO(3) DO(4) DO(5) DO(6) DO(7) DO(8) DO(9) DO(10) DO(11)

#define KANSOKU_MULTIPLY_ADD(name, isa, vector, set, first, fused) \
  __attribute__((target(isa))) float name(float seed) {            \
    const vector factor = set(0.999F), term = set(seed);           \
    KANSOKU_CHAINS(KANSOKU_DECLARE_##vector)                       \
    for (std::size_t i = 0; i < kSteps; ++i) {                     \
      KANSOKU_CHAINS(fused)                                        \
    }                                                              \
    vector sum = c0;                                               \
    KANSOKU_CHAINS(KANSOKU_SUM)                                    \
    return first(sum);                                             \
  }
#define KANSOKU_DECLARE___m512(i) __m512 c##i = term * _mm512_set1_ps(i + 1.F);
#define KANSOKU_DECLARE___m256(i) __m256 c##i = term * _mm256_set1_ps(i + 1.F);
#define KANSOKU_DECLARE___m128(i) __m128 c##i = term * _mm_set1_ps(i + 1.F);
#define KANSOKU_SUM(i) sum += c##i;
#define KANSOKU_FUSED_512(i) c##i = _mm512_fmadd_ps(c##i, factor, term);
#define KANSOKU_FUSED_256(i) c##i = _mm256_fmadd_ps(c##i, factor, term);
#define KANSOKU_FUSED_128(i) c##i = _mm_add_ps(_mm_mul_ps(c##i, factor), term);

KANSOKU_MULTIPLY_ADD(multiply_add_512, "avx512f", __m512, _mm512_set1_ps, _mm512_cvtss_f32,
                     KANSOKU_FUSED_512)
KANSOKU_MULTIPLY_ADD(multiply_add_256, "avx2,fma", __m256, _mm256_set1_ps, _mm256_cvtss_f32,
                     KANSOKU_FUSED_256)
KANSOKU_MULTIPLY_ADD(multiply_add_128, "sse2", __m128, _mm_set1_ps, _mm_cvtss_f32,
                     KANSOKU_FUSED_128)

/// The widest that this processor has.
struct MultiplyAdd {
  float (*run)(float seed);
  std::size_t lanes;
};
MultiplyAdd widest() {
  if (__builtin_cpu_supports("avx512f")) return {multiply_add_512, 16};
  if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) return {multiply_add_256, 8};
  return {multiply_add_128, 4};
}

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
    words.assign(kReadWords, 1);
  std::vector<std::uint64_t> sums(threads);
  std::vector<float> products(threads);
  const MultiplyAdd compute = widest();
  const double reading = fastest(threads, clock, [&](std::uint32_t i) {
    sums[i] = read_all(memory[i].data(), memory[i].size());
  });
  const double computing = fastest(threads, clock, [&](std::uint32_t i) {
    products[i] = compute.run(static_cast<float>(sums[i] % 7) * 1e-3F);
  });
  // The results are used, or the compiler leaves their computation out.
  const bool is_odd = std::accumulate(products.begin(), products.end(), 0.0F) < 0;
  Peaks out;
  out.threads = threads;
  out.bytes_per_second = static_cast<double>(kReadWords * 8 * threads) / reading + (is_odd ? 1 : 0);
  out.flops = 2.0 * static_cast<double>(kSteps * kChains * compute.lanes) * threads / computing;
  return out;
}

}  // namespace kansoku::infer
