// SPDX-License-Identifier: Apache-2.0
#include "export/metrics.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "common/check.h"
#include "export/internal/utf8.h"

namespace kansoku::exporter {
namespace {

constexpr std::array<std::pair<std::string_view, std::string_view>, 8> kMetricUnits{{
    {"s", "seconds"},
    {"bytes", "bytes"},
    {"1/s", "per_second"},
    {"bytes/s", "bytes_per_second"},
    {"ratio", "ratio"},
    {"celsius", "celsius"},
    {"watts", "watts"},
    {"hertz", "hertz"},
}};

constexpr MetricDef kDropped{"kansoku_export_dropped_series", "", MetricType::kCounter,
                             "Time series left out because there were more than the limit."};

bool is_letter(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_';
}

bool ends_in_unit(std::string_view name, std::string_view unit) {
  return unit.empty() || (name.size() > unit.size() && name.ends_with(unit) &&
                          name[name.size() - unit.size() - 1] == '_');
}

Labels clean(Labels labels) {
  CHECK(labels.size() <= MetricSet::kLabelsMax);
  for (auto& [name, value] : labels) {
    CHECK(is_metric_name(name));
    value = internal::clean_utf8(value, MetricSet::kLabelBytesMax);
  }
  std::sort(labels.begin(), labels.end());
  const auto twice =
      std::adjacent_find(labels.begin(), labels.end(),
                         [](const auto& a, const auto& b) { return a.first == b.first; });
  CHECK(twice == labels.end());
  return labels;
}

}  // namespace

std::string_view unit_word(std::string_view unit) {
  const auto* const found = std::find_if(kMetricUnits.begin(), kMetricUnits.end(),
                                         [&](const auto& one) { return one.first == unit; });
  return found == kMetricUnits.end() ? std::string_view{} : found->second;
}

std::string feature_metric(std::string_view feature, std::string_view unit) {
  std::string out = "kansoku_" + std::string(feature);
  const std::string_view word = unit_word(unit);
  // Scrapers take "_count" for a part of a histogram: "thread_count" is "threads".
  if (word.empty() && out.ends_with("_count")) return out.substr(0, out.size() - 6) + "s";
  // "collective_bytes" in bytes a second is not "..._bytes_bytes_per_second".
  if (word.empty()) return out;
  if (word.starts_with("bytes") && out.ends_with("_bytes")) out.resize(out.size() - 6);
  return out + "_" + std::string(word);
}

bool is_metric_name(std::string_view name) {
  return !name.empty() && name.size() <= 128 && is_letter(name.front()) &&
         std::all_of(name.begin(), name.end(),
                     [](char c) { return is_letter(c) || (c >= '0' && c <= '9'); });
}

MetricSet::Entry& MetricSet::entry(const MetricDef& def) {
  if (const auto known = entries_.find(def.name); known != entries_.end()) {
    CHECK(known->second.family.type == def.type);
    return known->second;
  }
  CHECK(is_metric_name(def.name) && ends_in_unit(def.name, def.unit));
  CHECK(!def.name.ends_with("_total"));  // the text formats add it
  Entry out;
  out.family = {.name = std::string(def.name),
                .unit = std::string(def.unit),
                .help = internal::clean_utf8(def.help, 1024),
                .type = def.type,
                .samples = {}};
  return entries_.emplace(def.name, std::move(out)).first->second;
}

void MetricSet::put(Entry& entry, std::size_t series, Labels labels, Sample sample) {
  sample.labels = clean(std::move(labels));
  if (const auto known = entry.samples.find(sample.labels); known != entry.samples.end()) {
    // A histogram with other buckets than a moment ago must not slip past the limit.
    series_count_ -= std::max<std::size_t>(1, known->second.histogram.counts.size());
    entry.samples.erase(known);
  }
  if (series > series_max_ || series_count_ > series_max_ - series) {
    dropped_count_ += series;
    return;
  }
  series_count_ += series;
  Labels key = sample.labels;
  entry.samples.emplace(std::move(key), std::move(sample));
}

void MetricSet::add(const MetricDef& def, Labels labels, double value,
                    std::optional<std::int64_t> wall_ns) {
  CHECK(def.type != MetricType::kHistogram);
  if (std::isnan(value)) return;
  put(entry(def), 1, std::move(labels),
      {.labels = {}, .value = value, .histogram = {}, .wall_ns = wall_ns});
}

void MetricSet::add(const MetricDef& def, Labels labels, Histogram histogram,
                    std::optional<std::int64_t> wall_ns) {
  CHECK(def.type == MetricType::kHistogram);
  CHECK(histogram.counts.size() == histogram.bounds.size() + 1);
  CHECK(std::is_sorted(histogram.bounds.begin(), histogram.bounds.end()));
  const std::size_t series = histogram.counts.size();
  put(entry(def), series, std::move(labels),
      {.labels = {}, .value = 0, .histogram = std::move(histogram), .wall_ns = wall_ns});
}

std::vector<Family> MetricSet::families() const {
  std::vector<Family> out;
  for (const auto& [name, entry] : entries_) {
    if (entry.samples.empty()) continue;
    out.push_back(entry.family);
    for (const auto& [labels, sample] : entry.samples)
      out.back().samples.push_back(sample);
  }
  return out;
}

void MetricBoard::publish(MetricSet set) {
  const std::uint64_t dropped = dropped_total_ += set.dropped_count();
  // The metric that tells of a full set must not be the next one out.
  set.make_room();
  set.add(kDropped, {}, static_cast<double>(dropped));
  auto next = std::make_shared<const MetricSet>(std::move(set));
  const std::lock_guard lock(mu_);
  latest_.swap(next);
}

std::shared_ptr<const MetricSet> MetricBoard::latest() const {
  const std::lock_guard lock(mu_);
  return latest_;
}

}  // namespace kansoku::exporter
