// SPDX-License-Identifier: Apache-2.0
// Fits of a Gaussian mixture beside scikit-learn's on OpenBLAS on the same machine, in alternating
// pairs: the same rows, start, ridge and iterations, on one thread each and on two. Times are of
// the wall clock and of the fit alone. Then: log densities of the same rows on one core.
//   bench_stats [PAIRS[3]] [ITERATIONS[3]] [ROWS[1000000]]
#include <fmt/format.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#include <array>
#include <cmath>
#include <cstdio>
#include <memory>
#include <string>

#include "bench_util.h"
#include "common/isa.h"
#include "common/parse.h"
#include "common/result.h"
#include "peer.h"
#include "stats/mixture.h"

namespace kansoku::bench {
namespace {

constexpr std::size_t kFeatures = 16;
constexpr std::size_t kComponents = 8;
constexpr double kRidge = 1e-6;
constexpr double kAgreement = 1e-6;  // of the log-likelihoods, relative

struct Size {
  int pairs{3};
  int iterations{3};
  std::size_t rows{1'000'000};
};

struct Input {
  std::string path;
  std::vector<double> rows;
  stats::Mixture start;
};

double wall_seconds() {
  timespec now{};
  ::clock_gettime(CLOCK_MONOTONIC, &now);
  return static_cast<double>(now.tv_sec) + static_cast<double>(now.tv_nsec) * 1e-9;
}

// The library with threads lies beside the machine's own (tools/install_deps.sh), if at all.
Result<PeerFigures> peer(const std::string& arguments, int threads) {
  return run_peer(fmt::format("OPENBLAS_NUM_THREADS={} LD_LIBRARY_PATH=" KANSOKU_SOURCE_DIR
                              "/build/openblas/usr/lib/x86_64-linux-gnu/openblas-pthread "
                              "/usr/bin/python3 " KANSOKU_SOURCE_DIR "/bench/stats_peer.py {}",
                              threads, arguments),
                  "tools/install_deps.sh bench");
}

Result<Input> read_input(std::string path, const Size& size) {
  Input input{std::move(path), std::vector<double>(size.rows * kFeatures), {}};
  input.start.dimensions = static_cast<int>(kFeatures);
  input.start.weights.resize(kComponents);
  input.start.means.resize(kComponents * kFeatures);
  input.start.covariances.resize(kComponents * kFeatures * kFeatures);
  const std::unique_ptr<std::FILE, int (*)(std::FILE*)> file(std::fopen(input.path.c_str(), "rbe"),
                                                             std::fclose);
  if (file == nullptr) return Error{Code::kNotFound, "open " + input.path + ": failed"};
  for (std::vector<double>* const values :
       {&input.rows, &input.start.weights, &input.start.means, &input.start.covariances}) {
    if (std::fread(values->data(), sizeof(double), values->size(), file.get()) != values->size())
      return Error{Code::kCorrupt, "read " + input.path + ": too short"};
  }
  return input;
}

Result<void> mixture_fit(const Input& input, const Size& size, int threads) {
  stats::MixtureOptions options;
  options.iterations_max = size.iterations;
  options.ridge = kRidge;
  options.threads = threads;
  std::vector<double> ours, theirs;
  PeerFigures sklearn;
  double log_likelihood = 0;
  for (int pair = 0; pair < size.pairs; ++pair) {
    TRY(sklearn, peer(fmt::format("fit {} {} {} {} {} {}", input.path, size.rows, kFeatures,
                                  kComponents, size.iterations, kRidge),
                      threads));
    theirs.push_back(sklearn.at("seconds"));
    const double began = wall_seconds();
    TRY(const stats::MixtureFit fit, stats::refine_mixture(input.rows, input.start, options));
    ours.push_back(wall_seconds() - began);
    log_likelihood = fit.log_likelihood;
  }
  const double other = sklearn.at("log_likelihood");
  const double difference = std::abs(log_likelihood - other) / std::abs(other);
  const MedianInterval ratio = ratio_with_interval(theirs, ours);
  fmt::print(
      "bench stats/mixture_fit threads={} s={:.3f} sklearn_s={:.3f} ratio_vs_sklearn={:.1f} "
      "low={:.1f} high={:.1f} log_likelihood_difference={:.1e} rows={} features={} components={} "
      "iterations={} pairs={} isa={} blas={} blas_threads={:.0f}\n",
      threads, stats::median(ours), stats::median(theirs), ratio.median, ratio.low, ratio.high,
      difference, size.rows, kFeatures, kComponents, size.iterations, size.pairs,
      isa_name(best_isa()), sklearn.texts["blas"], sklearn.at("blas_threads"));
  std::fflush(stdout);
  if (!(difference <= kAgreement))
    return Error{Code::kInternal, "bench stats: log-likelihoods differ from scikit-learn's"};
  if (sklearn.at("blas_threads") != threads) {
    return Error{Code::kUnavailable, "bench stats: OpenBLAS has other threads than it should",
                 "tools/install_deps.sh bench"};
  }
  return {};
}

Result<void> mixture_score(const Input& input, const Size& size) {
  TRY(const stats::MixtureDensity density, stats::MixtureDensity::make(input.start));
  std::vector<double> out(size.rows);
  std::vector<double> rates;
  density.log_density(input.rows, out);  // warm
  for (int i = 0; i < 2 * size.pairs + 1; ++i) {
    const double began = wall_seconds();
    density.log_density(input.rows, out);
    rates.push_back(static_cast<double>(size.rows) / (wall_seconds() - began));
  }
  const MedianInterval rate = median_with_interval(rates);
  fmt::print(
      "bench stats/mixture_score rows_per_s={:.0f} low={:.0f} high={:.0f} rows={} features={} "
      "components={} threads=1 runs={} isa={}\n",
      rate.median, rate.low, rate.high, size.rows, kFeatures, kComponents, rates.size(),
      isa_name(best_isa()));
  return {};
}

Result<void> run_with(const std::string& path, const Size& size) {
  TRY_VOID(peer(fmt::format("make {} {} {} {} 1", path, size.rows, kFeatures, kComponents), 1));
  TRY(const Input input, read_input(path, size));
  TRY_VOID(mixture_score(input, size));
  TRY_VOID(mixture_fit(input, size, 1));
  return mixture_fit(input, size, 2);
}

Result<void> run(const Size& size) {
  std::array<char, 32> path{"/tmp/bench_stats_XXXXXX"};
  const int fd = ::mkstemp(path.data());
  if (fd < 0) return Error{Code::kUnavailable, "make a temporary file: failed"};
  ::close(fd);
  auto done = run_with(path.data(), size);
  ::unlink(path.data());
  return done;
}

}  // namespace
}  // namespace kansoku::bench

int main(int argc, char** argv) {
  using kansoku::parse_int;
  kansoku::bench::Size size;
  if (argc > 1) size.pairs = std::max(1, parse_int<int>(argv[1]).value_or(size.pairs));
  if (argc > 2) size.iterations = std::max(1, parse_int<int>(argv[2]).value_or(size.iterations));
  if (argc > 3) size.rows = std::max(1000UL, parse_int<std::size_t>(argv[3]).value_or(size.rows));
  const auto done = kansoku::bench::run(size);
  if (!done) fmt::print("bench stats failed: {}\n", done.error().what);
  return done ? 0 : 1;
}
