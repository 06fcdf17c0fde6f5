// SPDX-License-Identifier: Apache-2.0
#include "export/openmetrics.h"

#include <fmt/format.h>

#include <array>
#include <charconv>
#include <cmath>
#include <iterator>

#include "common/text.h"

namespace kansoku::exporter {
namespace {

constexpr std::string_view kOpenMetricsType = "application/openmetrics-text";

std::string number(double value) {
  if (std::isnan(value)) return "NaN";
  if (std::isinf(value)) return value > 0 ? "+Inf" : "-Inf";
  return fmt::format("{}", value);
}

/// A bucket's bound in the one spelling that OpenMetrics wants: 1.0, not 1.
std::string bound(double value) {
  std::string out = number(value);
  if (out.find_first_of(".eIN") == std::string::npos) out += ".0";
  return out;
}

void append_escaped(std::string& out, std::string_view text, bool escape_quotes) {
  for (const char c : text) {
    if (c == '\n') {
      out += "\\n";
    } else if (c == '\\' || (c == '"' && escape_quotes)) {
      out += '\\';
      out += c;
    } else {
      out += c;
    }
  }
}

class OpenMetricsWriter {
 public:
  explicit OpenMetricsWriter(TextFormat format) : is_open_(format == TextFormat::kOpenMetrics) {}

  void family(const Family& family) {
    const std::string total = family.name + "_total";
    const bool is_counter = family.type == MetricType::kCounter;
    head(family, is_counter && !is_open_ ? total : family.name);
    for (const Sample& sample : family.samples) {
      if (family.type == MetricType::kHistogram)
        histogram(family.name, sample);
      else
        line(is_counter ? total : family.name, sample, "", number(sample.value));
    }
  }
  [[nodiscard]] std::string finish() && {
    if (is_open_) out_ += "# EOF\n";
    return std::move(out_);
  }

 private:
  void head(const Family& family, std::string_view name) {
    static constexpr std::array<std::string_view, 3> kTypes{"gauge", "counter", "histogram"};
    out_ += fmt::format("# HELP {} ", name);
    append_escaped(out_, family.help, is_open_);
    out_ += fmt::format("\n# TYPE {} {}\n", name, kTypes.at(static_cast<std::size_t>(family.type)));
    if (is_open_ && !family.unit.empty()) out_ += fmt::format("# UNIT {} {}\n", name, family.unit);
  }
  void line(std::string_view name, const Sample& sample, std::string_view le,
            std::string_view value) {
    out_ += name;
    std::string_view before = "{";
    const auto label = [&](std::string_view its_name, std::string_view text) {
      out_ += before;
      out_ += its_name;
      out_ += "=\"";
      append_escaped(out_, text, true);
      out_ += '"';
      before = ",";
    };
    for (const auto& [its_name, text] : sample.labels)
      label(its_name, text);
    if (!le.empty()) label("le", le);
    out_ += before == "," ? "} " : " ";
    out_ += value;
    if (sample.wall_ns) time(*sample.wall_ns);
    out_ += '\n';
  }
  void time(std::int64_t wall_ns) {
    const std::int64_t ms = wall_ns / 1'000'000;
    out_ += is_open_ ? fmt::format(" {}.{:03}", ms / 1000, ms % 1000) : fmt::format(" {}", ms);
  }
  void histogram(const std::string& name, const Sample& sample) {
    std::uint64_t count = 0;
    for (std::size_t i = 0; i < sample.histogram.counts.size(); ++i) {
      count += sample.histogram.counts[i];
      const bool is_last = i == sample.histogram.bounds.size();
      line(name + "_bucket", sample, is_last ? "+Inf" : bound(sample.histogram.bounds[i]),
           std::to_string(count));
    }
    line(name + "_sum", sample, "", number(sample.histogram.sum));
    line(name + "_count", sample, "", std::to_string(count));
  }

  bool is_open_;
  std::string out_;
};

/// Takes the text before `separator`, and the separator with it.
std::string_view take(std::string_view& text, char separator) {
  const std::size_t end = text.find(separator);
  const std::string_view out = text.substr(0, end);
  text.remove_prefix(end == std::string_view::npos ? text.size() : end + 1);
  return trimmed(out);
}

/// The weight of a media range's parameters, 0 to 1; nonsense weighs nothing.
double weight(std::string_view parameters) {
  while (!parameters.empty()) {
    const std::string_view one = take(parameters, ';');
    if (one.size() < 2 || (one[0] != 'q' && one[0] != 'Q') || one[1] != '=') continue;
    double out = 0;
    const char* const end = one.data() + one.size();
    const auto [stop, error] = std::from_chars(one.data() + 2, end, out);
    return error == std::errc{} && stop == end && out >= 0 && out <= 1 ? out : 0;
  }
  return 1;
}

}  // namespace

TextFormat negotiate(std::string_view untrusted_accept) {
  double open = 0, plain = 0;
  while (!untrusted_accept.empty()) {
    std::string_view range = take(untrusted_accept, ',');
    const std::string_view type = take(range, ';');
    if (type == kOpenMetricsType) open = std::max(open, weight(range));
    if (type == "text/plain") plain = std::max(plain, weight(range));
  }
  return open > 0 && open >= plain ? TextFormat::kOpenMetrics : TextFormat::kPrometheus;
}

std::string_view content_type(TextFormat format) {
  return format == TextFormat::kOpenMetrics
             ? "application/openmetrics-text; version=1.0.0; charset=utf-8"
             : "text/plain; version=0.0.4; charset=utf-8";
}

std::string to_text(const MetricSet& set, TextFormat format) {
  OpenMetricsWriter writer(format);
  for (const Family& family : set.families())
    writer.family(family);
  return std::move(writer).finish();
}

}  // namespace kansoku::exporter
