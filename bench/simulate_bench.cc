// SPDX-License-Identifier: Apache-2.0
// The discrete-event engine beside SimPy 3 on the same machine, in alternating pairs, both on one
// core: an M/M/50 queue, and a small operations platform whose pipelines leave a record a task.
// Rates are per second of processor time of the simulation, here and there, so that other work on
// the machine disturbs them less. Then: equal results where capacities are tight, and the memory a
// pipeline leaves behind.
//   bench_simulate [PAIRS[5]] [PERCENT_OF_THE_LENGTHS[100]]
#include <fmt/format.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

#include <array>
#include <cmath>
#include <cstdio>
#include <string>

#include "bench_util.h"
#include "common/parse.h"
#include "common/result.h"
#include "peer.h"
#include "simulate_models.h"
#include "simulate_platform.h"

namespace kansoku::bench {
namespace {

struct Size {
  int pairs{5};
  double share{1};
  [[nodiscard]] std::uint32_t scaled(double count) const {
    return std::max(1U, static_cast<std::uint32_t>(count * share));
  }
};

double processor_seconds() {
  timespec now{};
  ::clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + static_cast<double>(now.tv_nsec) * 1e-9;
}

using Figures = PeerFigures;

Result<Figures> peer(const std::string& arguments) {
  return run_peer("/usr/bin/python3 " KANSOKU_SOURCE_DIR "/bench/simulate_peer.py " + arguments,
                  "apt-get install python3-simpy3");
}

Result<void> mm50(const Size& size) {
  const std::uint32_t ours = size.scaled(5e6), theirs = size.scaled(200e3);
  std::vector<double> our_rates, their_rates;
  double wait = 0, their_wait = 0, events = 0;
  static_cast<void>(run_queue_of_50(ours / 10 + 1, 0));  // warm
  for (int pair = 0; pair < size.pairs; ++pair) {
    const auto seed = static_cast<std::uint64_t>(pair) + 1;
    TRY(const Figures simpy, peer(fmt::format("mm50 {} {}", theirs, seed)));
    const double began = processor_seconds();
    const QueueRun run = run_queue_of_50(ours, seed);
    our_rates.push_back(ours / (processor_seconds() - began));
    their_rates.push_back(simpy.at("customers_per_s"));
    wait += run.mean_wait_s / size.pairs;
    their_wait += simpy.at("wq") / size.pairs;
    events = static_cast<double>(run.events) / ours;
  }
  const MedianInterval ratio = ratio_with_interval(our_rates, their_rates);
  fmt::print(
      "bench simulate/mm50 customers_per_s={:.0f} simpy_customers_per_s={:.0f} "
      "ratio_vs_simpy={:.1f} low={:.1f} high={:.1f} events_per_customer={:.2f} wq={:.4f} "
      "simpy_wq={:.4f} exact_wq=0.0728 customers={} simpy_customers={} pairs={}\n",
      stats::median(our_rates), stats::median(their_rates), ratio.median, ratio.low, ratio.high,
      events, wait, their_wait, ours, theirs, size.pairs);
  return {};
}

Result<void> pipelines(const Size& size) {
  const std::uint32_t ours = size.scaled(1e6), tuned = size.scaled(50e3), naive = size.scaled(5e3);
  std::vector<double> our_rates, tuned_rates, naive_rates, bare_rates;
  for (int pair = 0; pair < size.pairs; ++pair) {
    const auto seed = static_cast<std::uint64_t>(pair) + 1;
    TRY(const Figures fast, peer(fmt::format("pipelines tuned {} 40 60 {}", tuned, seed)));
    PipelineOptions options;
    options.pipelines = ours;
    options.seed = seed;
    double began = processor_seconds();
    const std::size_t records = run_pipelines(options).records.size();
    our_rates.push_back(ours / (processor_seconds() - began));
    if (records < std::size_t{4} * ours)
      return Error{Code::kInternal, "bench simulate: tasks left no record"};
    options.records = false;
    began = processor_seconds();
    static_cast<void>(run_pipelines(options));
    bare_rates.push_back(ours / (processor_seconds() - began));
    TRY(const Figures slow, peer(fmt::format("pipelines naive {} 40 60 {}", naive, seed)));
    tuned_rates.push_back(fast.at("pipelines_per_s"));
    naive_rates.push_back(slow.at("pipelines_per_s"));
  }
  const MedianInterval ratio = ratio_with_interval(our_rates, tuned_rates);
  const MedianInterval to_naive = ratio_with_interval(our_rates, naive_rates);
  fmt::print(
      "bench simulate/pipelines pipelines_per_s={:.0f} without_records_per_s={:.0f} "
      "simpy_pipelines_per_s={:.0f} ratio_vs_simpy={:.1f} low={:.1f} high={:.1f} "
      "simpy_naive_pipelines_per_s={:.0f} ratio_vs_simpy_naive={:.0f} pipelines={} "
      "simpy_pipelines={} pairs={}\n",
      stats::median(our_rates), stats::median(bare_rates), stats::median(tuned_rates), ratio.median,
      ratio.low, ratio.high, stats::median(naive_rates), to_naive.median, ours, tuned, size.pairs);
  return {};
}

// The largest size that this process has had.
std::size_t peak_bytes() {
  rusage usage{};
  ::getrusage(RUSAGE_SELF, &usage);
  return static_cast<std::size_t>(usage.ru_maxrss) * 1024;
}

// First of all, so that the peak is its own.
std::string memory(const Size& size) {
  std::string lines;
  for (const double count : {1e5, 1e6}) {
    PipelineOptions options;
    options.pipelines = size.scaled(count);
    options.records = false;
    const std::size_t before = peak_bytes();
    const PipelineRun run = run_pipelines(options);
    const std::size_t grown = peak_bytes() - before;
    lines += fmt::format(
        "bench simulate/pipelines_memory bytes_per_pipeline_without_records={:.3f} pipelines={} "
        "frame_pool_bytes={} resident_growth_bytes={}\n",
        static_cast<double>(run.frame_bytes) / options.pipelines, options.pipelines,
        run.frame_bytes, grown);
  }
  return lines;
}

// SimPy's means over 10 seeds of 100,000 pipelines and their 95 % half-widths, recorded once:
// waits of preprocess, train, evaluate, deploy, and the sojourn.
struct Reference {
  std::int64_t compute, training;
  std::array<double, 5> mean, half_width;
};
constexpr std::array<Reference, 2> kReferences{
    {{2, 30, {4.09, 33.3, 3.96, 5.01, 1083}, {.06, 6.4, .10, .12, 16}},
     {1, 26, {123, 341, 130, 145, 1914}, {6, 48, 7, 8, 90}}}};

// Welch's interval of the difference has to contain zero, widened to 99.9 % as it is asked ten
// times.
bool equal_results(const Size& size) {
  constexpr std::array<const char*, 5> kNames{"wait_preprocess", "wait_train", "wait_evaluate",
                                              "wait_deploy", "sojourn"};
  constexpr std::array<std::size_t, 4> kTask{0, 1, 2, 5};
  constexpr int kSeeds = 10;
  constexpr double kStudent95 = 2.262, kStudent999 = 3.922;  // 9 and 18 degrees of freedom
  bool all = true;
  for (const Reference& reference : kReferences) {
    std::array<double, 5> sum{}, squares{};
    for (std::uint64_t seed = 1; seed <= kSeeds; ++seed) {
      PipelineOptions options{size.scaled(1e5), reference.compute, reference.training, seed, false};
      const PipelineRun run = run_pipelines(options);
      for (std::size_t i = 0; i < 5; ++i) {
        const double value = i < 4 ? run.wait_s[kTask[i]] : run.sojourn_s;
        sum[i] += value;
        squares[i] += value * value;
      }
    }
    std::string line;
    for (std::size_t i = 0; i < 5; ++i) {
      const double mean = sum[i] / kSeeds;
      const double error = std::sqrt((squares[i] / kSeeds - mean * mean) / (kSeeds - 1));
      const double theirs = reference.half_width[i] / kStudent95;
      const bool same =
          std::abs(mean - reference.mean[i]) <= kStudent999 * std::hypot(error, theirs);
      all = all && same;
      line += fmt::format(" {}={:.4g}+-{:.2g} simpy={:.4g}+-{:.2g}{}", kNames[i], mean,
                          kStudent95 * error, reference.mean[i], reference.half_width[i],
                          same ? "" : " DIFFERENT");
    }
    fmt::print("bench simulate/pipelines_results compute={} training={}{}\n", reference.compute,
               reference.training, line);
  }
  return all;
}

Result<void> run(const Size& size) {
  const std::string memory_lines = memory(size);
  TRY_VOID(mm50(size));
  TRY_VOID(pipelines(size));
  TRY_VOID(platform_year(size.pairs, size.share, processor_seconds));
  fmt::print("{}", memory_lines);
  const bool equal = equal_results(size);
  // Only full lengths can be compared: shorter runs start empty and see fewer long trainings.
  if (!equal && size.share >= 1)
    return Error{Code::kInternal, "bench simulate: results differ from SimPy's"};
  return {};
}

}  // namespace
}  // namespace kansoku::bench

int main(int argc, char** argv) {
  kansoku::bench::Size size;
  if (argc > 1) size.pairs = std::max(1, kansoku::parse_int<int>(argv[1]).value_or(size.pairs));
  if (argc > 2) size.share = kansoku::parse_int<int>(argv[2]).value_or(100) / 100.0;
  const auto done = kansoku::bench::run(size);
  if (!done) fmt::print("bench simulate failed: {}\n", done.error().what);
  return done ? 0 : 1;
}
