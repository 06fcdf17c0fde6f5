// SPDX-License-Identifier: Apache-2.0
// Many hosts send summaries of their rows instead of the rows: how far is a mixture fitted to the
// merged summaries from one fitted to all rows, in mean log density of rows that neither has seen?
//   summary_agreement [HOSTS[100]] [MINUTES[2]] [CLUSTERS[2000]] [THREADS[1]] [BIC_UP_TO[0]]
//   [SENT[96]]
// CLUSTERS are kept by the collector, SENT are in a summary.
// A host has 8 ranks with a row a second each and sends a summary a minute, of at most 2 KB a
// second covered. Hosts see different modes and are shifted a little against each other; three
// features have tails of Student's t with 3 degrees of freedom. EM ends in different optima from
// different starts, so the fits on summaries are compared twice: from their own starts, and from
// the rows' mixture. Exit status 1 if one at that budget is more than 0.05 nat a row behind.
#include <fmt/format.h>
#include <time.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <numbers>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "common/parse.h"
#include "common/rng.h"
#include "stats/cluster_features.h"
#include "stats/mixture.h"

namespace kansoku::stats {
namespace {

constexpr std::size_t kFeatures = 16;
constexpr std::size_t kModes = 10;
constexpr std::size_t kRanks = 8;
constexpr std::size_t kSummarySeconds = 60;
constexpr std::size_t kHeldOut = 100;  // rows a host
constexpr double kAllowed = 0.05;      // nat a row
constexpr int kComponents = 8;
// Starts are cheap on a summary.
constexpr int kRowStarts = 3, kSummaryStarts = 20;

struct Size {
  std::size_t hosts{100};
  std::size_t minutes{2};
  std::size_t clusters{2000};
  std::size_t sent{96};  // clusters a summary
  int threads{1};
  int bic_up_to{0};
  [[nodiscard]] std::size_t rows_a_host() const { return kRanks * kSummarySeconds * minutes; }
};

double normal(RandomStream& random) {
  const double radius = std::sqrt(-2 * std::log(random.uniform()));
  return radius * std::cos(2 * std::numbers::pi * random.uniform());
}

bool heavy(std::size_t feature) {
  return feature == 2 || feature == 7 || feature == 11;
}

/// A standard normal number, or Student's t with 3 degrees of freedom and variance 1.
double noise(RandomStream& random, std::size_t feature) {
  const double value = normal(random);
  if (!heavy(feature)) return value;
  double squares = 0;
  for (int i = 0; i < 3; ++i) {
    const double other = normal(random);
    squares += other * other;
  }
  return value / std::sqrt(squares);
}

struct Modes {
  std::vector<double> centres;  // modes x features
  std::vector<double> shapes;   // modes x features x features
};

/// Overlapping ones: the last is near the first, the one before lies inside the second, narrow.
Modes make_modes() {
  RandomStream random(1, "modes");
  Modes modes;
  for (std::size_t m = 0; m < kModes; ++m) {
    const double width = m + 2 == kModes ? 0.3 : 0.5 + 0.5 * random.uniform();
    for (std::size_t i = 0; i < kFeatures; ++i) {
      double centre = normal(random);
      if (m + 1 == kModes) centre = modes.centres[i] + 0.4 * centre;
      if (m + 2 == kModes) centre = modes.centres[kFeatures + i];
      modes.centres.push_back(centre);
      for (std::size_t j = 0; j < kFeatures; ++j)
        modes.shapes.push_back(width * ((i == j ? 1 : 0) + 0.2 * normal(random)));
    }
  }
  return modes;
}

/// Rows of one host: it stays in a mode for some 20 rows, then changes to another of its own.
class Host {
 public:
  Host(const Modes& modes, std::size_t index)
      : modes_(modes), random_(2, fmt::format("host {}", index)) {
    const std::size_t count = 1 + random_.below(6);
    for (std::size_t i = 0; i < count; ++i)
      own_.push_back(random_.below(kModes));
    for (double& shift : shift_)
      shift = 0.1 * normal(random_);
  }

  void next(std::span<double> row) {
    if (random_.uniform() < 0.05) mode_ = own_[random_.below(own_.size())];
    std::array<double, kFeatures> z{};
    for (std::size_t j = 0; j < kFeatures; ++j)
      z[j] = noise(random_, j);
    for (std::size_t i = 0; i < kFeatures; ++i) {
      double value = modes_.centres[mode_ * kFeatures + i] + shift_[i];
      const double* const shape = modes_.shapes.data() + (mode_ * kFeatures + i) * kFeatures;
      for (std::size_t j = 0; j < kFeatures; ++j)
        value += shape[j] * z[j];
      row[i] = value;
    }
  }

 private:
  const Modes& modes_;
  RandomStream random_;
  std::vector<std::size_t> own_;
  std::array<double, kFeatures> shift_{};
  std::size_t mode_{own_.empty() ? 0 : own_[0]};
};

struct Data {
  std::vector<double> rows;      // host by host
  std::vector<double> held_out;  // of all hosts
};

void standardise(Data& data) {
  const auto n = static_cast<double>(data.rows.size() / kFeatures);
  for (std::size_t j = 0; j < kFeatures; ++j) {
    double mean = 0, square = 0;
    for (std::size_t i = j; i < data.rows.size(); i += kFeatures)
      mean += data.rows[i] / n;
    for (std::size_t i = j; i < data.rows.size(); i += kFeatures)
      square += (data.rows[i] - mean) * (data.rows[i] - mean) / n;
    for (std::vector<double>* const rows : {&data.rows, &data.held_out}) {
      for (std::size_t i = j; i < rows->size(); i += kFeatures)
        (*rows)[i] = ((*rows)[i] - mean) / std::sqrt(square);
    }
  }
}

Data make_data(const Size& size) {
  const Modes modes = make_modes();
  Data data;
  data.rows.resize(size.hosts * size.rows_a_host() * kFeatures);
  data.held_out.resize(size.hosts * kHeldOut * kFeatures);
  for (std::size_t host = 0; host < size.hosts; ++host) {
    Host source(modes, host);
    for (std::size_t i = 0; i < size.rows_a_host(); ++i)
      source.next(
          std::span(data.rows).subspan((host * size.rows_a_host() + i) * kFeatures, kFeatures));
    for (std::size_t i = 0; i < kHeldOut; ++i)
      source.next(std::span(data.held_out).subspan((host * kHeldOut + i) * kFeatures, kFeatures));
  }
  standardise(data);
  return data;
}

double seconds() {
  timespec now{};
  ::clock_gettime(CLOCK_MONOTONIC, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

struct Collected {
  ClusterFeatures merged;
  std::size_t bytes{0};     // of all summaries
  std::size_t largest{0};   // bytes of one
  std::size_t clusters{0};  // in all summaries
  double host_seconds{0}, collector_seconds{0};
};

/// Every host summarises its rows minute by minute; the collector merges what it decodes.
Result<Collected> collect(const Data& data, const Size& size, std::size_t bytes_a_second) {
  TRY(ClusterFeatures merged, ClusterFeatures::make(kFeatures, size.clusters));
  Collected collected{std::move(merged)};
  constexpr std::size_t kRows = kRanks * kSummarySeconds;
  for (std::size_t first = 0; first < data.rows.size() / kFeatures; first += kRows) {
    const double began = seconds();
    TRY(ClusterFeatures summary, ClusterFeatures::make(kFeatures, size.sent));
    for (std::size_t i = first; i < first + kRows; ++i)
      TRY_VOID(summary.add(std::span(data.rows).subspan(i * kFeatures, kFeatures)));
    summary.reduce_to_bytes(bytes_a_second * kSummarySeconds);
    const std::string sent = summary.encode();
    const double encoded = seconds();
    if (sent.size() > bytes_a_second * kSummarySeconds)
      return Error{Code::kInternal, fmt::format("a summary of {} bytes", sent.size())};
    TRY(const ClusterFeatures received, ClusterFeatures::decode(as_bytes(sent), 4096));
    TRY_VOID(collected.merged.merge(received));
    collected.bytes += sent.size();
    collected.largest = std::max(collected.largest, sent.size());
    collected.clusters += received.size();
    collected.host_seconds += encoded - began;
    collected.collector_seconds += seconds() - encoded;
  }
  return collected;
}

Result<double> mean_density(const Mixture& mixture, const Data& data) {
  TRY(const MixtureDensity density, MixtureDensity::make(mixture));
  std::vector<double> logs(data.held_out.size() / kFeatures);
  density.log_density(data.held_out, logs);
  double sum = 0;
  for (const double value : logs)
    sum += value;
  return sum / static_cast<double>(logs.size());
}

MixtureOptions options_of(int components, int starts, const Size& size) {
  MixtureOptions options;
  options.components = components;
  options.iterations_max = 150;
  options.tolerance = 1e-5;
  options.starts = starts;
  options.threads = size.threads;
  return options;
}

struct Scored {
  double bic{0};
  double density{0};
  Mixture mixture;
};

Result<Scored> scored(MixtureFit fit, const Data& data) {
  TRY(const double density, mean_density(fit.mixture, data));
  return Scored{fit.bic, density, std::move(fit.mixture)};
}

Result<Scored> fit_rows(const Data& data, int components, const Size& size) {
  TRY(MixtureFit fit, fit_mixture(data.rows, kFeatures, options_of(components, kRowStarts, size)));
  return scored(std::move(fit), data);
}

Result<Scored> fit_summaries(const ClusterFeatures& merged, const Data& data, int components,
                             const Size& size) {
  TRY(MixtureFit fit, fit_mixture(merged, options_of(components, kSummaryStarts, size)));
  return scored(std::move(fit), data);
}

struct Chosen {
  int components{0};
  double density{0};
};

/// The even number of components up to `bic_up_to` with the least BIC.
template <class Fit>
Result<Chosen> choose(const Fit& fit, int bic_up_to) {
  Chosen best;
  double least = 0;
  for (int k = 2; k <= bic_up_to; k += 2) {
    TRY(const Scored now, fit(k));
    if (best.components > 0 && now.bic >= least) continue;
    least = now.bic;
    best = {k, now.density};
  }
  return best;
}

struct Reference {
  Scored fit;
  Chosen chosen;
};

Result<Reference> reference_of(const Data& data, const Size& size) {
  const double began = seconds();
  TRY(Scored fit, fit_rows(data, kComponents, size));
  fmt::print("summary_agreement rows={} hosts={} components={} density={:.4f} fit_s={:.1f}\n",
             data.rows.size() / kFeatures, size.hosts, kComponents, fit.density, seconds() - began);
  std::fflush(stdout);
  Reference reference{std::move(fit), {}};
  if (size.bic_up_to > 0) {
    TRY(reference.chosen, choose([&](int k) { return fit_rows(data, k, size); }, size.bic_up_to));
    fmt::print("summary_agreement rows={} chosen_components={} density={:.4f}\n",
               data.rows.size() / kFeatures, reference.chosen.components, reference.chosen.density);
  }
  std::fflush(stdout);
  return reference;
}

/// How far fits on merged summaries are behind those on all rows, nat a row.
struct Behind {
  double fit{0};
  double from_rows{0};  // EM on the summaries from the mixture of the rows: what they blur
  double chosen{0};
  int chosen_components{0};
  double fit_seconds{0};
};

Result<Behind> compare(const ClusterFeatures& merged, const Data& data, const Reference& reference,
                       const Size& size) {
  const double began = seconds();
  TRY(const Scored fit, fit_summaries(merged, data, kComponents, size));
  Behind behind;
  behind.fit_seconds = seconds() - began;
  behind.fit = reference.fit.density - fit.density;
  TRY(MixtureFit refined,
      refine_mixture(merged, reference.fit.mixture, options_of(kComponents, 1, size)));
  TRY(const Scored from_rows, scored(std::move(refined), data));
  behind.from_rows = reference.fit.density - from_rows.density;
  if (size.bic_up_to > 0) {
    TRY(const Chosen chosen,
        choose([&](int k) { return fit_summaries(merged, data, k, size); }, size.bic_up_to));
    behind.chosen = reference.chosen.density - chosen.density;
    behind.chosen_components = chosen.components;
  }
  return behind;
}

void print(std::size_t budget, const Collected& collected, const Behind& behind, double rows) {
  const double covered = rows / kRanks;
  fmt::print(
      "summary_agreement budget_bytes_per_s={} sent_bytes_per_s={:.0f} "
      "clusters_per_summary={:.0f} merged_clusters={} components={} behind_nat_per_row={:.4f} "
      "from_the_rows_fit={:.4f} chosen_components={} chosen_behind_nat_per_row={:.4f} "
      "fit_s={:.1f} host_us_per_row={:.0f} collector_us_per_row={:.0f}\n",
      budget, static_cast<double>(collected.bytes) / covered,
      static_cast<double>(collected.clusters) * kSummarySeconds / covered, collected.merged.size(),
      kComponents, behind.fit, behind.from_rows, behind.chosen_components, behind.chosen,
      behind.fit_seconds, collected.host_seconds / rows * 1e6,
      collected.collector_seconds / rows * 1e6);
  std::fflush(stdout);
}

Result<bool> run(const Size& size) {
  const Data data = make_data(size);
  TRY(const Reference reference, reference_of(data, size));
  std::optional<Collected> collected;
  Behind behind;
  bool within = true;
  for (const std::size_t budget : {2048U, 1024U, 512U, 128U, 32U}) {
    // A budget that no summary reached changes nothing.
    if (!collected || collected->largest > budget * kSummarySeconds) {
      TRY(collected, collect(data, size, budget));
      TRY(behind, compare(collected->merged, data, reference, size));
    }
    print(budget, *collected, behind, static_cast<double>(data.rows.size() / kFeatures));
    const double worst = std::max({behind.fit, behind.from_rows, behind.chosen});
    if (budget == 2048) within = worst <= kAllowed;
  }
  return within;
}

}  // namespace
}  // namespace kansoku::stats

int main(int argc, char** argv) {
  using kansoku::parse_int;
  kansoku::stats::Size size;
  if (argc > 1) size.hosts = parse_int<std::size_t>(argv[1]).value_or(size.hosts);
  if (argc > 2) size.minutes = parse_int<std::size_t>(argv[2]).value_or(size.minutes);
  if (argc > 3) size.clusters = parse_int<std::size_t>(argv[3]).value_or(size.clusters);
  if (argc > 4) size.threads = parse_int<int>(argv[4]).value_or(size.threads);
  if (argc > 5) size.bic_up_to = parse_int<int>(argv[5]).value_or(size.bic_up_to);
  if (argc > 6) size.sent = parse_int<std::size_t>(argv[6]).value_or(size.sent);
  const auto within = kansoku::stats::run(size);
  if (!within) {
    fmt::print("summary_agreement failed: {}\n", within.error().what);
    return 2;
  }
  return *within ? 0 : 1;
}
