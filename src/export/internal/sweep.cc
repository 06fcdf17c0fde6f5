// SPDX-License-Identifier: Apache-2.0
#include "export/internal/sweep.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <set>

#include "export/internal/metrics.h"
#include "export/internal/page.h"

namespace kansoku::exporter {
namespace {

constexpr std::size_t kValuesMax = 1000, kTotalMax = 100'000;
constexpr std::size_t kMainMax = 8, kSameKindMax = 2;

struct MetricKind {
  std::string_view figure;
  Better better;
};
constexpr std::array<MetricKind, 12> kMetricKinds{
    {{"sojourn_mean_s", Better::kLower},
     {"cost", Better::kLower},
     {"performance_mean", Better::kHigher},
     {"wait_mean_s", Better::kLower},
     {"utilisation", Better::kNeither},
     {"queue_mean", Better::kLower},
     {"sojourn_p99_s", Better::kLower},
     {"loss_mean", Better::kLower},
     {"loss_hours_avoided_per_unit_hour", Better::kHigher},
     {"retrainings", Better::kNeither},
     {"finished", Better::kHigher},
     {"unit_hours", Better::kNeither}}};

// TOML puts texts into quotes; people do not.
std::string unquoted(std::string text) {
  if (text.size() >= 2 && text.front() == '"' && text.back() == '"')
    return text.substr(1, text.size() - 2);
  return text;
}

std::string end_of(const std::string& key, std::size_t parts) {
  std::size_t at = key.size();
  for (std::size_t i = 0; i < parts; ++i) {
    at = at == 0 ? std::string::npos : key.rfind('.', at - 1);
    if (at == std::string::npos) return key;
  }
  return key.substr(at + 1);
}

void name_axes(std::vector<Sweep::Axis>& axes) {
  constexpr std::size_t kPartsMax = 8;
  for (std::size_t parts = 1; parts <= kPartsMax; ++parts) {
    std::set<std::string> names;
    for (Sweep::Axis& axis : axes) {
      axis.name = parts < kPartsMax ? end_of(axis.key, parts) : axis.key;
      names.insert(axis.name);
    }
    if (names.size() == axes.size()) return;
  }
}

Sweep::Variant variant_from(const Json& json, const std::vector<Sweep::Axis>& axes,
                            std::vector<std::string>* names) {
  Sweep::Variant out;
  out.index = static_cast<std::size_t>(std::max<std::int64_t>(json.at("index").as_int(), 0));
  const Json set = json.at("set"), summary = json.at("summary");
  for (const Sweep::Axis& axis : axes)
    out.values.push_back(unquoted(set.at(axis.key).as_string("?")));
  out.replications = summary.at("replications").as_int();
  out.stopped = summary.at("stopped").as_bool();
  for (Figure& figure : figures_of(summary.at("metrics"))) {
    if (names != nullptr) names->push_back(figure.name);
    std::string name = figure.name;
    out.figures.emplace(std::move(name), std::move(figure));
  }
  return out;
}

void read_axes(const Json& list, Sweep& out) {
  std::size_t total = 1;
  for (std::size_t i = 0; list.is_array() && i < std::min(list.size(), Sweep::kAxesMax); ++i) {
    const Json json = list.at(i), values = json.at("values");
    Sweep::Axis axis{json.at("key").as_string(), {}, {}};
    for (std::size_t k = 0; values.is_array() && k < std::min(values.size(), kValuesMax); ++k)
      axis.values.push_back(unquoted(values.at(k).as_string()));
    total *= std::max<std::size_t>(axis.values.size(), 1);
    total = std::min(total, kTotalMax);
    out.axes.push_back(std::move(axis));
  }
  name_axes(out.axes);
  out.total = out.axes.empty() ? 0 : total;
}

void read_differences(const Json& list, Sweep& out) {
  if (!list.is_array()) return;
  for (std::size_t i = 0; i < std::min(list.size(), Sweep::kComparisonsMax); ++i) {
    const Json row = list.at(i), difference = row.at("difference");
    const std::int64_t variant = row.at("variant").as_int(-1);
    const std::string metric = row.at("metric").as_string();
    if (variant < 0 || metric.empty()) continue;
    const auto index = static_cast<std::size_t>(variant);
    out.compared = true;
    out.replications[index] = difference.at("n").as_int();
    out.differences[index].emplace(metric, figure_from(difference, metric, Unit::kPlain));
  }
}

double spread_of(const Sweep& sweep, const std::string& metric) {
  double low = kInfinity, high = -kInfinity, size = 0;
  for (const Sweep::Variant& variant : sweep.variants) {
    const Figure& figure = variant.figure(metric);
    if (!figure.known) continue;
    low = std::min(low, figure.mean);
    high = std::max(high, figure.mean);
    size = std::max(size, std::fabs(figure.mean));
  }
  return high - low > 1e-9 * size ? high - low : 0;
}

}  // namespace

const Figure& Sweep::Variant::figure(std::string_view metric) const {
  static const Figure kUnknown;
  const auto found = figures.find(metric);
  return found == figures.end() ? kUnknown : found->second;
}

const Figure& Sweep::difference(std::size_t variant, std::string_view metric) const {
  static const Figure kUnknown;
  const auto row = differences.find(variant);
  if (row == differences.end()) return kUnknown;
  const auto found = row->second.find(metric);
  return found == row->second.end() ? kUnknown : found->second;
}

std::string Sweep::label(const std::vector<std::string>& values) const {
  std::string out;
  for (std::size_t i = 0; i < std::min(values.size(), axes.size()); ++i)
    out += (i > 0 ? ", " : "") + shortened(axes[i].name, 40) + " = " + shortened(values[i], 40);
  return out.empty() ? "the only one" : out;
}

std::vector<std::string> Sweep::values_of(std::size_t index) const {
  std::vector<std::string> out(axes.size());
  for (std::size_t i = axes.size(); i-- > 0;) {
    const std::size_t count = std::max<std::size_t>(axes[i].values.size(), 1);
    if (!axes[i].values.empty()) out[i] = axes[i].values[index % count];
    index /= count;
  }
  return out;
}

std::vector<std::size_t> Sweep::missing() const {
  std::vector<std::size_t> out;
  if (variants_left_out > 0) return out;
  std::set<std::size_t> there;
  for (const Variant& variant : variants)
    there.insert(variant.index);
  for (std::size_t i = 0; i < total; ++i)
    if (!there.contains(i)) out.push_back(i);
  return out;
}

Sweep read_sweep(const Json& untrusted) {
  Sweep out;
  read_axes(untrusted.at("axes"), out);
  const Json list = untrusted.at("variants");
  const std::size_t size = list.is_array() ? list.size() : 0;
  for (std::size_t i = 0; i < std::min(size, Sweep::kVariantsMax); ++i)
    out.variants.push_back(
        variant_from(list.at(i), out.axes, i == 0 ? &out.metric_names : nullptr));
  out.variants_left_out = size - out.variants.size();
  std::stable_sort(out.variants.begin(), out.variants.end(),
                   [](const auto& a, const auto& b) { return a.index < b.index; });
  read_differences(untrusted.at("comparisons"), out);
  return out;
}

std::vector<MainMetric> main_metrics(const Sweep& sweep, std::size_t& others) {
  struct Candidate {
    std::string name;
    double spread;
  };
  std::vector<Candidate> differing;
  for (const std::string& name : sweep.metric_names)
    if (const double spread = spread_of(sweep, name); spread > 0)
      differing.push_back({name, spread});
  std::stable_sort(differing.begin(), differing.end(),
                   [](const auto& a, const auto& b) { return a.spread > b.spread; });
  // One of each kind first: the tables have room for a few.
  std::vector<MainMetric> out;
  for (std::size_t turn = 0; turn < kSameKindMax; ++turn)
    for (const MetricKind& kind : kMetricKinds) {
      std::size_t seen = 0;
      for (const Candidate& each : differing) {
        if (each.name.substr(each.name.rfind('.') + 1) != kind.figure || seen++ != turn) continue;
        if (out.size() < kMainMax) out.push_back({each.name, kind.better});
      }
    }
  others = differing.size() - out.size();
  return out;
}

std::optional<double> number_from(std::string_view untrusted) {
  double value = 0;
  const char* const end = untrusted.data() + untrusted.size();
  const auto [stop, error] = std::from_chars(untrusted.data(), end, value);
  if (error != std::errc{} || stop != end || !(std::fabs(value) <= 1e18)) return std::nullopt;
  return value;
}

std::optional<NumericAxes> numeric_axes(const Sweep& sweep) {
  constexpr std::size_t kLeast = 3;
  if (sweep.axes.empty() || sweep.axes.size() > 2) return std::nullopt;
  std::optional<std::size_t> x;
  for (std::size_t i = 0; i < sweep.axes.size(); ++i) {
    const auto& values = sweep.axes[i].values;
    const bool numeric =
        values.size() >= kLeast && std::all_of(values.begin(), values.end(), [](const auto& text) {
          return number_from(text).has_value();
        });
    if (numeric && (!x || values.size() > sweep.axes[*x].values.size())) x = i;
  }
  if (!x) return std::nullopt;
  NumericAxes out{*x, std::nullopt};
  if (sweep.axes.size() == 2) out.lines = 1 - *x;
  return out;
}

}  // namespace kansoku::exporter
