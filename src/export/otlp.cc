// SPDX-License-Identifier: Apache-2.0
#include "export/otlp.h"

#include <algorithm>
#include <array>
#include <map>
#include <protozero/pbf_writer.hpp>
#include <utility>
#include <vector>

#include "export/internal/utf8.h"

namespace kansoku::exporter {
namespace {

using protozero::pbf_writer;

// Field numbers, by message. Only the fields written here.
namespace request {
constexpr protozero::pbf_tag_type kResourceMetrics = 1;
}
namespace resource_metrics {
constexpr protozero::pbf_tag_type kResource = 1, kScopeMetrics = 2;
}
namespace resource {
constexpr protozero::pbf_tag_type kAttributes = 1;
}
namespace scope_metrics {
constexpr protozero::pbf_tag_type kScope = 1, kMetrics = 2;
}
namespace scope {
constexpr protozero::pbf_tag_type kName = 1, kVersion = 2;
}
namespace key_value {
constexpr protozero::pbf_tag_type kKey = 1, kValue = 2, kStringValue = 1;
}
namespace metric {
constexpr protozero::pbf_tag_type kName = 1, kDescription = 2, kUnit = 3, kGauge = 5, kSum = 7,
                                  kHistogram = 9;
constexpr protozero::pbf_tag_type kDataPoints = 1, kTemporality = 2, kIsMonotonic = 3;
constexpr std::int32_t kCumulative = 2;
}  // namespace metric
namespace number_point {
constexpr protozero::pbf_tag_type kStart = 2, kTime = 3, kAsDouble = 4, kAttributes = 7;
}
namespace histogram_point {
constexpr protozero::pbf_tag_type kStart = 2, kTime = 3, kCount = 4, kSum = 5, kBucketCounts = 6,
                                  kExplicitBounds = 7, kAttributes = 9;
}

/// OpenTelemetry's units are UCUM's.
std::string_view ucum(std::string_view unit) {
  constexpr std::array<std::pair<std::string_view, std::string_view>, 8> kUnits{{
      {"seconds", "s"},
      {"bytes", "By"},
      {"per_second", "1/s"},
      {"bytes_per_second", "By/s"},
      {"ratio", "1"},
      {"celsius", "Cel"},
      {"watts", "W"},
      {"hertz", "Hz"},
  }};
  for (const auto& [word, symbol] : kUnits) {
    if (word == unit) return symbol;
  }
  return unit;
}

void attribute(pbf_writer& parent, protozero::pbf_tag_type tag, std::string_view key,
               std::string_view value) {
  pbf_writer pair(parent, tag);
  pair.add_string(key_value::kKey, key.data(), key.size());
  pbf_writer any(pair, key_value::kValue);
  any.add_string(key_value::kStringValue, value.data(), value.size());
}

class OtlpWriter {
 public:
  OtlpWriter(const OtlpSource& source, std::int64_t now_wall_ns)
      : source_(source), now_wall_ns_(now_wall_ns) {}

  void write(pbf_writer& scope, const Family& family) const {
    pbf_writer out(scope, scope_metrics::kMetrics);
    out.add_string(metric::kName, family.name);
    out.add_string(metric::kDescription, family.help);
    const std::string_view unit = ucum(family.unit);
    out.add_string(metric::kUnit, unit.data(), unit.size());
    const bool is_gauge = family.type == MetricType::kGauge;
    const bool is_histogram = family.type == MetricType::kHistogram;
    pbf_writer data(out, is_gauge       ? metric::kGauge
                         : is_histogram ? metric::kHistogram
                                        : metric::kSum);
    for (const Sample& sample : family.samples) {
      pbf_writer point(data, metric::kDataPoints);
      if (is_histogram)
        histogram(point, sample);
      else
        number(point, sample, !is_gauge);
    }
    if (!is_gauge) data.add_enum(metric::kTemporality, metric::kCumulative);
    if (family.type == MetricType::kCounter) data.add_bool(metric::kIsMonotonic, true);
  }

 private:
  [[nodiscard]] std::uint64_t time(const Sample& sample) const {
    return static_cast<std::uint64_t>(sample.wall_ns.value_or(now_wall_ns_));
  }
  [[nodiscard]] std::uint64_t start() const {
    return static_cast<std::uint64_t>(source_.start_wall_ns);
  }
  void number(pbf_writer& point, const Sample& sample, bool has_start) const {
    for (const auto& [name, value] : sample.labels)
      attribute(point, number_point::kAttributes, name, value);
    if (has_start) point.add_fixed64(number_point::kStart, start());
    point.add_fixed64(number_point::kTime, time(sample));
    point.add_double(number_point::kAsDouble, sample.value);
  }
  void histogram(pbf_writer& point, const Sample& sample) const {
    const Histogram& from = sample.histogram;
    std::uint64_t count = 0;
    for (const std::uint64_t one : from.counts)
      count += one;
    point.add_fixed64(histogram_point::kStart, start());
    point.add_fixed64(histogram_point::kTime, time(sample));
    point.add_fixed64(histogram_point::kCount, count);
    point.add_double(histogram_point::kSum, from.sum);
    point.add_packed_fixed64(histogram_point::kBucketCounts, from.counts.begin(),
                             from.counts.end());
    point.add_packed_double(histogram_point::kExplicitBounds, from.bounds.begin(),
                            from.bounds.end());
    for (const auto& [name, value] : sample.labels)
      attribute(point, histogram_point::kAttributes, name, value);
  }

  const OtlpSource& source_;
  std::int64_t now_wall_ns_;
};

std::string take_label(Labels& labels, std::string_view name) {
  const auto found = std::find_if(labels.begin(), labels.end(),
                                  [&](const auto& label) { return label.first == name; });
  if (found == labels.end()) return {};
  std::string value = std::move(found->second);
  labels.erase(found);
  return value;
}

/// Families by the job that their samples are of, which then is no label of them any more; those of
/// no job, such as the agent's own, by "".
std::map<std::string, std::vector<Family>> by_job(std::vector<Family> families) {
  std::map<std::string, std::vector<Family>> out;
  out[""];
  for (Family& family : families) {
    for (Sample& sample : family.samples) {
      std::vector<Family>& own = out[take_label(sample.labels, "job")];
      if (own.empty() || own.back().name != family.name)
        own.push_back({family.name, family.unit, family.help, family.type, {}});
      own.back().samples.push_back(std::move(sample));
    }
  }
  return out;
}

void write_resource(pbf_writer& parent, const OtlpSource& source, std::string_view service) {
  pbf_writer out(parent, resource_metrics::kResource);
  const auto text = [&](std::string_view key, std::string_view value) {
    if (!value.empty())
      attribute(out, resource::kAttributes, key,
                internal::clean_utf8(value, MetricSet::kLabelBytesMax));
  };
  text("service.name", service);
  text("host.name", source.host);
  text("service.version", source.version);
  text("service.instance.id", source.instance);
}

}  // namespace

std::string to_otlp(const MetricSet& set, const OtlpSource& source, std::int64_t now_wall_ns) {
  std::string bytes;
  pbf_writer message(bytes);
  const OtlpWriter writer(source, now_wall_ns);
  // Prometheus and OpenTelemetry's collector make the label "job" of the service's name, over one
  // that a sample has: the job is the service.
  for (const auto& [job, families] : by_job(set.families())) {
    pbf_writer all(message, request::kResourceMetrics);
    write_resource(all, source, job.empty() ? std::string_view("kansoku") : job);
    pbf_writer metrics(all, resource_metrics::kScopeMetrics);
    {
      pbf_writer scope(metrics, scope_metrics::kScope);
      scope.add_string(scope::kName, "kansoku");
      scope.add_string(scope::kVersion, source.version);
    }
    for (const Family& family : families)
      writer.write(metrics, family);
  }
  return bytes;
}

}  // namespace kansoku::exporter
