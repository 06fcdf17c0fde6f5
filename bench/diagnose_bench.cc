// SPDX-License-Identifier: Apache-2.0
// Comparison of ranks at scale, summary of a window, import of JSON traces.
//   bench_diagnose [RANKS[10000,100000]] [FUNCTIONS[200]]
// Patterns are generated (synthetic ranks): every function takes its level from a recorded healthy
// job, every rank its deviation from that job's deviations between ranks. Culprits are planted at
// the smallest distance that the thresholds promise to find: kPatternDistanceMin plus the median
// distance of a healthy rank from the median one.
#include <fmt/format.h>
#include <sys/resource.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <fstream>
#include <iterator>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "bench_util.h"
#include "common/json.h"
#include "common/parse.h"
#include "common/rng.h"
#include "diagnose/localise_patterns.h"
#include "diagnose/pattern.h"
#include "diagnose/thresholds.h"
#include "stats/peers.h"
#include "sys/clock.h"
#include "trace/import/chrome.h"

namespace kansoku::bench {
namespace {

using diagnose::PatternMatrix;

double seconds_since(const Clock& clock, BootTime began) {
  return static_cast<double>((clock.now() - began).count()) * 1e-9;
}

/// Shape of a healthy job: levels of functions, and the deviations of ranks from them.
struct Healthy {
  struct Function {
    diagnose::Activity activity{diagnose::Activity::kPython};
    std::array<double, 3> level{};                 // beta, mu, sigma: mean over ranks and windows
    std::vector<std::array<float, 3>> deviations;  // of one rank in one window, relative
  };
  std::vector<Function> functions;
};

std::array<double, 3> row_values(const Json& row) {
  return {row.at("beta").as_double(), row.at("mu").as_double(), row.at("sigma").as_double()};
}

diagnose::Activity activity_named(const std::string& name) {
  for (std::size_t a = 0; a < diagnose::kActivityCount; ++a) {
    if (diagnose::activity_name(static_cast<diagnose::Activity>(a)) == name)
      return static_cast<diagnose::Activity>(a);
  }
  return diagnose::Activity::kPython;
}

Result<Healthy> read_healthy(const std::string& path) {
  std::ifstream file(path);
  const std::string text((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
  TRY(const Json json, Json::parse(text));
  const Json windows = json.at("windows");
  std::map<std::string, Healthy::Function> functions;
  std::map<std::string, std::size_t> sightings;
  std::size_t rank_windows = 0;
  for (std::size_t w = 0; w < windows.size(); ++w) {
    const Json ranks = windows.at(w);
    std::map<std::string, std::vector<std::array<double, 3>>> values;
    for (std::size_t r = 0; r < ranks.size(); ++r, ++rank_windows) {
      const Json rows = ranks.at(r).at("rows");
      for (std::size_t i = 0; i < rows.size(); ++i) {
        const Json row = rows.at(i);
        const std::string name = row.at("function").as_string();
        values[name].push_back(row_values(row));
        functions[name].activity = activity_named(row.at("activity").as_string());
        ++sightings[name];
      }
    }
    for (const auto& [name, of_ranks] : values) {
      std::array<double, 3> mean{};
      for (const auto& value : of_ranks) {
        for (std::size_t d = 0; d < 3; ++d)
          mean[d] += value[d] / static_cast<double>(of_ranks.size());
      }
      for (const auto& value : of_ranks) {
        auto& deviation = functions[name].deviations.emplace_back();
        for (std::size_t d = 0; d < 3; ++d)
          deviation[d] = mean[d] > 0 ? static_cast<float>(value[d] / mean[d] - 1) : 0.0F;
      }
      for (std::size_t d = 0; d < 3; ++d)
        functions[name].level[d] += mean[d] / static_cast<double>(windows.size());
    }
  }
  Healthy out;
  for (auto& [name, function] : functions) {
    if (sightings[name] == rank_windows) out.functions.push_back(std::move(function));
  }
  if (out.functions.empty())
    return Error{Code::kCorrupt, "read healthy patterns: no function on all ranks"};
  return out;
}

PatternMatrix generate(const Healthy& healthy, std::size_t ranks, std::size_t functions) {
  PatternMatrix matrix(ranks, functions);
  Rng rng(7);
  const std::array<std::vector<float>*, 3> dims{&matrix.beta, &matrix.mu, &matrix.sigma};
  for (std::size_t f = 0; f < functions; ++f) {
    const Healthy::Function& function = healthy.functions[f % healthy.functions.size()];
    matrix.activities[f] = function.activity;
    for (std::size_t r = 0; r < ranks; ++r) {
      const auto& deviation = function.deviations[rng.below(function.deviations.size())];
      for (std::size_t d = 0; d < 3; ++d)
        (*dims[d])[f * ranks + r] = static_cast<float>(function.level[d]) * (1 + deviation[d]);
    }
  }
  return matrix;
}

struct Planted {
  std::set<std::pair<std::uint32_t, std::uint32_t>> cells;  // rank, function
  std::size_t not_promised{0};  // functions whose healthy ranks differ too much for any promise
};

/// Scaled distance of healthy ranks from the median rank, in the median.
double typical_distance(const PatternMatrix& matrix, std::size_t f, double beta_max) {
  const std::size_t n = matrix.rank_count;
  const auto column = [&](const std::vector<float>& values) {
    return std::span<const float>(values).subspan(f * n, n);
  };
  const std::array<std::span<const float>, 3> dims{column(matrix.beta), column(matrix.mu),
                                                   column(matrix.sigma)};
  std::vector<double> distances(n, 0);
  for (std::size_t d = 0; d < 3; ++d) {
    std::vector<double> values(dims[d].begin(), dims[d].end());
    const double most = d == 0 ? beta_max : *std::max_element(values.begin(), values.end());
    if (!(most > 0)) continue;
    const double middle = stats::median(values);
    for (std::size_t r = 0; r < n; ++r)
      distances[r] += std::abs(values[r] - middle) / most;
  }
  return stats::median(distances);
}

/// In every function one rank gets the promised distance.
Planted plant(PatternMatrix& matrix) {
  Planted out;
  const std::size_t n = matrix.rank_count;
  Rng rng(11);
  for (std::size_t f = 0; f < matrix.function_count; ++f) {
    if (matrix.activities[f] == diagnose::Activity::kCollective) continue;
    std::vector<double> betas(matrix.beta.begin() + static_cast<std::ptrdiff_t>(f * n),
                              matrix.beta.begin() + static_cast<std::ptrdiff_t>((f + 1) * n));
    const double middle = stats::median(betas);
    const double most = *std::max_element(betas.begin(), betas.end());
    const double away = diagnose::kPatternDistanceMin + typical_distance(matrix, f, most);
    const double beta = std::max({middle / (1 - away), middle + away * most,
                                  middle + diagnose::kPatternExcessMin, diagnose::kPatternBetaMin});
    if (away >= 1 || beta > 1) {
      ++out.not_promised;
      continue;
    }
    const auto rank = static_cast<std::uint32_t>(rng.below(n));
    matrix.beta[f * n + rank] = static_cast<float>(beta * 1.0001);
    out.cells.insert({rank, static_cast<std::uint32_t>(f)});
  }
  return out;
}

double peak_mb() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  return static_cast<double>(usage.ru_maxrss) / 1024;
}

void bench_localise(const Clock& clock, const Healthy& healthy, std::size_t ranks,
                    std::size_t functions) {
  PatternMatrix matrix = generate(healthy, ranks, functions);
  const diagnose::LocaliseOptions options;
  const Planted planted = plant(matrix);
  const BootTime began = clock.now();
  const auto outliers = diagnose::localise(matrix, options);
  const double seconds = seconds_since(clock, began);
  std::size_t right = 0, named = 0;
  for (const auto& outlier : outliers) {
    if (!outlier.is_culprit) continue;
    ++named;
    right += planted.cells.contains({outlier.rank, outlier.function}) ? 1 : 0;
  }
  fmt::print(
      "bench localise ranks={} functions={} seconds={:.3f} peak_mb={:.0f} planted={} "
      "precision={:.4f} "
      "recall={:.4f} functions_not_promised={} (synthetic ranks)\n",
      ranks, functions, seconds, peak_mb(), planted.cells.size(),
      named == 0 ? 1.0 : static_cast<double>(right) / static_cast<double>(named),
      static_cast<double>(right) /
          static_cast<double>(std::max<std::size_t>(planted.cells.size(), 1)),
      planted.not_promised);
}

/// Steps of nested operators, overlapping kernels and collectives, as a profiler records them.
std::vector<diagnose::Execution> make_window(std::size_t count) {
  std::vector<diagnose::Execution> out;
  out.reserve(count);
  Rng rng(3);
  std::int64_t now = 0;
  while (out.size() + 4 <= count) {
    const auto length = static_cast<std::int64_t>(5'000 + rng.below(30'000));
    const auto function = static_cast<std::uint32_t>(rng.below(200));
    out.push_back({now, now + length, function, diagnose::Activity::kCpuOp, 0.9F});
    out.push_back(
        {now + length / 8, now + length / 2, function + 200, diagnose::Activity::kCpuOp, 0.8F});
    out.push_back({now + length / 4, now + length * 5 / 4, function + 400,
                   diagnose::Activity::kGpuCompute, 0.5F});
    out.push_back({now + length / 3, now + length * 2, 600 + function % 8,
                   diagnose::Activity::kCollective, 0.4F});
    now += length;
  }
  return out;
}

void bench_summary(const Clock& clock) {
  const auto window = make_window(1'000'000);
  std::vector<double> seconds;
  double total = 0;
  for (int round = 0; round < 7; ++round) {
    const BootTime began = clock.now();
    const auto pattern =
        diagnose::build_pattern(window, 0, window.back().end_ns, diagnose::kGpuPriorities);
    seconds.push_back(seconds_since(clock, began));
    total = pattern.idle;
    for (const auto& row : pattern.rows)
      total += row.beta;
  }
  const auto median = median_with_interval(seconds);
  fmt::print(
      "bench window_summary events={} seconds={:.4f} low={:.4f} high={:.4f} shares_sum={:.6f}\n",
      window.size(), median.median, median.low, median.high, total);
}

std::string make_json(std::size_t events) {
  std::string out =
      R"({"schemaVersion":1,"distributedInfo":{"rank":3,"world_size":8},"traceEvents":[)";
  for (std::size_t i = 0; i < events; ++i) {
    fmt::format_to(
        std::back_inserter(out),
        R"({}{{"ph":"X","cat":"{}","name":"aten::op_{}","pid":{},"tid":{},"ts":{}.{:03},"dur":{}.5,"args":{{"External id":{},"Ev Idx":{},"Input Dims":[[32,128],[128,64]],"correlation":{}}}}})",
        i == 0 ? "" : ",\n", i % 3 == 0 ? "kernel" : "cpu_op", i % 400, i % 3 == 0 ? 0 : 4242,
        i % 3 == 0 ? 7 : 4242, 1'700'000'000'000 + i * 13, i % 1000, 5 + i % 40, i, i, i);
  }
  return out + "]}";
}

void bench_import(const Clock& clock) {
  const std::string json = make_json(300'000), short_json = make_json(20'000);
  std::vector<double> ratios, rates;
  for (int round = 0; round < 5; ++round) {
    BootTime began = clock.now();
    trace::Trace trace;
    const auto imported = trace::import::import_chrome(as_bytes(json), "bench", {}, trace);
    const double own = seconds_since(clock, began);
    if (!imported) fmt::print(stderr, "{}\n", imported.error().what);
    began = clock.now();
    const auto whole = Json::parse(short_json);  // slow: a part of the text, rates compared
    const double peer = seconds_since(clock, began) / static_cast<double>(short_json.size());
    rates.push_back(static_cast<double>(json.size()) / 1e6 / own);
    ratios.push_back(whole ? own / static_cast<double>(json.size()) / peer : 0);
  }
  const auto rate = median_with_interval(rates);
  fmt::print(
      "bench import_json mb={:.0f} mb_per_s={:.0f} low={:.0f} high={:.0f} "
      "ratio_to_nlohmann_parse={:.3f}\n",
      static_cast<double>(json.size()) / 1e6, rate.median, rate.low, rate.high,
      stats::median(ratios));
}

/// Steps of many ranks of which one works a tenth longer, and one three times as long now and then.
void bench_peers(const Clock& clock) {
  constexpr std::size_t kRanks = 1024, kSteps = 300, kSlow = 700, kSeldom = 41;
  Rng rng(5);
  stats::MemberSeries work(kRanks);
  for (std::size_t r = 0; r < kRanks; ++r) {
    for (std::size_t s = 0; s < kSteps; ++s)
      work[r].push_back(40 * (0.95 + 0.1 * rng.uniform()) + (r == kSlow ? 4 : 0) +
                        (r == kSeldom && s % 30 == 3 ? 80 : 0));
  }
  const std::vector<bool> none(kRanks);
  std::vector<double> seconds;
  std::size_t right = 0;
  for (int round = 0; round < 7; ++round) {
    const BootTime began = clock.now();
    const auto excess = stats::excess_over_peers(work);
    const auto slow = stats::find_outliers(excess, none, {.least = 2.8, .clip_share = 0.05});
    const auto seldom = stats::find_seldom_long(excess, 20, none);
    seconds.push_back(seconds_since(clock, began));
    right += slow.size() == 1 && slow[0].member == kSlow && seldom.size() == 1 &&
                     seldom[0].member == kSeldom
                 ? 1
                 : 0;
  }
  const auto median = median_with_interval(seconds);
  fmt::print("bench peers ranks={} steps={} seconds={:.4f} low={:.4f} high={:.4f} right={}/7\n",
             kRanks, kSteps, median.median, median.low, median.high, right);
}

int run(int argc, char** argv) {
  const auto healthy = read_healthy(KANSOKU_SOURCE_DIR "/tests/data/patterns/healthy.json");
  if (!healthy) {
    fmt::print(stderr, "bench_diagnose: {}\n", healthy.error().what);
    return 1;
  }
  const sys::RealClock clock;
  const std::size_t functions =
      argc > 2 ? parse_int<std::size_t>(argv[2]).value_or(200) : std::size_t{200};
  bench_summary(clock);
  bench_import(clock);
  bench_peers(clock);
  if (argc > 1) {
    bench_localise(clock, *healthy, parse_int<std::size_t>(argv[1]).value_or(10'000), functions);
    return 0;
  }
  for (const std::size_t ranks :
       {std::size_t{10'000}, std::size_t{20'000}, std::size_t{50'000}, std::size_t{100'000}})
    bench_localise(clock, *healthy, ranks, functions);
  return 0;
}

}  // namespace
}  // namespace kansoku::bench

int main(int argc, char** argv) {
  return kansoku::bench::run(argc, argv);
}
