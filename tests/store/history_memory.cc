// SPDX-License-Identifier: Apache-2.0
// Cost of history: `history_memory [HOURS] [FOLDER]` keeps windows of four ranks and 56 features,
// 30 of them seen, one a second, and prints memory, bytes and times. Fails above the limits that
// docs/formats/history.md promises; 77 without DuckDB.
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <string>
#include <vector>

#include "common/parse.h"
#include "common/rng.h"
#include "store/history.h"
#include "sys/clock.h"
#include "sys/fd.h"

namespace {

using namespace kansoku;

constexpr int kFeatures = 56, kSeen = 30, kRanks = 4;
constexpr double kPeakMbMax = 65, kRestMbMax = 20;

/// A line of /proc/self/status in MB.
double status_mb(const std::string& name) {
  const std::string text = sys::read_file("/proc/self/status", 1U << 16U).value_or("");
  const std::size_t at = text.find("\n" + name + ":");
  if (at == std::string::npos) return 0;
  const std::size_t from = text.find_first_of("0123456789", at);
  const auto kib =
      parse_int<std::int64_t>(std::string_view(text).substr(from, text.find(' ', from) - from));
  return static_cast<double>(kib.value_or(0)) / 1024;
}

/// Noisy times, counts, shares that are mostly zero and sizes in pages, as jobs have them.
double value(RandomStream& random, int feature) {
  const double noise = random.uniform();
  switch (feature % 5) {
    case 0:
      return noise > 0.95 ? noise : 0;
    case 1:
      return std::floor(noise * 50);
    case 2:
      return 0.05 + 0.004 * noise;
    case 3:
      return std::floor((1e9 + 1e5 * noise) / 4096) * 4096;
    default:
      return std::floor(noise * 300) / 1000;
  }
}

struct Costs {
  double before_mb{0}, rest_mb{0}, peak_mb{0}, write_s_max{0};
  std::uint64_t bytes{0}, windows{0};
};

Result<Costs> keep(store::History& history, int seconds, const sys::RealClock& clock) {
  RandomStream random(1, "history_memory");
  Costs out;
  for (int second = 0; second < seconds; ++second) {
    std::array<std::array<double, kFeatures>, kRanks> values{};
    std::vector<store::HistoryRow> rows;
    for (int rank = 0; rank < kRanks; ++rank) {
      auto& its = values.at(static_cast<std::size_t>(rank));
      its.fill(std::nan(""));
      for (int i = 0; i < kSeen; ++i)
        its.at(static_cast<std::size_t>(i)) = value(random, i);
      rows.push_back({rank, 1000 + rank, its});
    }
    const BootTime begin = clock.now();
    TRY_VOID(history.add_windows((1'700'000'000LL + second) * 1'000'000'000, "train.py", rows));
    const Nanos took = clock.now() - begin;
    out.write_s_max = std::max(out.write_s_max, std::chrono::duration<double>(took).count());
  }
  TRY_VOID(history.flush());
  out.rest_mb = status_mb("VmRSS");
  out.peak_mb = status_mb("VmHWM");
  out.bytes = history.size_bytes();
  out.windows = history.counts().written_windows;
  return out;
}

int report(const Costs& costs, double query_s, std::size_t found) {
  const double values = static_cast<double>(costs.windows) * kSeen;
  fmt::print("windows {}, values {:.0f}, bytes {}, bytes/value {:.2f}\n", costs.windows, values,
             costs.bytes, static_cast<double>(costs.bytes) / values);
  fmt::print("resident before {:.1f} MB, between writes +{:.1f} MB, peak +{:.1f} MB\n",
             costs.before_mb, costs.rest_mb - costs.before_mb, costs.peak_mb - costs.before_mb);
  fmt::print("longest write {:.2f} s; an hour of one feature: {} values in {:.3f} s\n",
             costs.write_s_max, found, query_s);
  const bool is_good = costs.peak_mb - costs.before_mb <= kPeakMbMax &&
                       costs.rest_mb - costs.before_mb <= kRestMbMax && found == 4 * 3600;
  if (!is_good) fmt::print("failed: above {} MB peak or {} MB at rest\n", kPeakMbMax, kRestMbMax);
  return is_good ? 0 : 1;
}

}  // namespace

int main(int argc, char** argv) {
  const double before_mb = status_mb("VmRSS");  // without the library
  const int hours = argc > 1 ? parse_int<int>(argv[1]).value_or(2) : 2;
  std::string name = "/tmp/kansoku-memory-XXXXXX";
  const std::string folder = argc > 2 ? argv[2] : ::mkdtemp(name.data());
  store::HistoryOptions options;
  for (int i = 0; i < kFeatures; ++i)
    options.features.push_back(fmt::format("feature_{}", i));
  auto places = store::library_places();
  places.push_back(std::string(KANSOKU_SOURCE_DIR) +
                   "/build/npm/node_modules/@duckdb/node-bindings-linux-x64/libduckdb.so");
  auto history = store::History::open(folder, options, places);
  if (!history) {
    fmt::print("{}\n", history.error().what);
    return history.error().code == Code::kUnavailable ? 77 : 1;
  }
  const sys::RealClock clock;
  auto costs = keep(*history, hours * 3600, clock);
  if (costs) costs->before_mb = before_mb;
  const BootTime begin = clock.now();
  const auto found =
      history->windows("train.py", 0, (1'700'000'000LL + 3600) * 1'000'000'000, "feature_2");
  const Nanos took = clock.now() - begin;
  if (argc <= 2) std::filesystem::remove_all(folder);
  if (!costs || !found) {
    fmt::print("{}\n", costs ? found.error().what : costs.error().what);
    return 1;
  }
  return report(*costs, std::chrono::duration<double>(took).count(), found->size());
}
