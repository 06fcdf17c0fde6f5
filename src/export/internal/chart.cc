// SPDX-License-Identifier: Apache-2.0
#include "export/internal/chart.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "export/internal/page.h"
#include "export/internal/svg.h"

namespace kansoku::exporter {
namespace {

constexpr std::size_t kLinePointsMax = 460;  // of a line: one a unit of the drawing's width
constexpr std::size_t kReadOutsMax = 92;     // strips over a chart that tell their values

// Means of runs of values, so that a long series keeps its shape in a bounded page.
std::vector<double> thinned(const std::vector<double>& values, std::size_t count_max) {
  const std::size_t run = (values.size() + count_max - 1) / count_max;
  if (run <= 1) return values;
  std::vector<double> out;
  for (std::size_t i = 0; i < values.size(); i += run) {
    const std::size_t end = std::min(i + run, values.size());
    double sum = 0;
    for (std::size_t k = i; k < end; ++k)
      sum += values[k];
    out.push_back(sum / static_cast<double>(end - i));
  }
  return out;
}

double span_of(const TimeChart& chart) {
  std::size_t longest = 0;
  for (const auto& line : chart.lines)
    longest = std::max(longest, line.values.size());
  return static_cast<double>(longest) * chart.step_s;
}

std::pair<double, double> time_range(const TimeChart& chart) {
  double low = kInfinity, high = -kInfinity;
  for (const auto& line : chart.lines)
    for (const double value : line.values) {
      if (!std::isfinite(value)) continue;
      low = std::min(low, value);
      high = std::max(high, value);
    }
  if (low > high) return {0, 1};
  if (chart.from_zero) low = std::min(low, 0.0);
  return {low, std::max(high, chart.top_least)};
}

// Each value is the mean of its step: drawn in the step's middle.
std::string path_of(const TimeChart::Line& line, double step_s, const svg::Scale1& x,
                    const svg::Scale1& y) {
  const std::vector<double> values = thinned(line.values, kLinePointsMax);
  const double step = values.empty() ? 0
                                     : step_s * static_cast<double>(line.values.size()) /
                                           static_cast<double>(values.size());
  std::string out;
  bool is_down = false;
  for (std::size_t i = 0; i < values.size(); ++i) {
    if (!std::isfinite(values[i])) {
      is_down = false;
      continue;
    }
    out += is_down ? 'L' : 'M';
    out +=
        fmt::format("{:.1f} {:.1f}", x.at((static_cast<double>(i) + 0.5) * step), y.at(values[i]));
    is_down = true;
  }
  return out;
}

// Strips over the whole height; each tells the means of its part of the time.
std::string read_outs(const TimeChart& chart, std::size_t line_count, double span_s,
                      const svg::Box& box) {
  std::size_t count = kReadOutsMax;
  for (std::size_t i = 0; i < line_count; ++i)
    count = std::min(count, std::max<std::size_t>(chart.lines[i].values.size(), 1));
  std::string out;
  const double width = (box.right - box.left) / static_cast<double>(count);
  std::vector<std::vector<double>> parts;
  for (std::size_t i = 0; i < line_count; ++i)
    parts.push_back(thinned(chart.lines[i].values, count));
  for (std::size_t k = 0; k < count; ++k) {
    std::string tip;
    for (std::size_t i = 0; i < line_count; ++i) {
      const std::size_t at = k * parts[i].size() / count;
      if (at >= parts[i].size() || !std::isfinite(parts[i][at])) continue;
      tip += "\n" + shortened(chart.lines[i].name, 40) + ": " + shown(parts[i][at], chart.unit);
    }
    const double from = span_s * static_cast<double>(k) / static_cast<double>(count);
    out += fmt::format(
        "<rect class=\"hit\" x=\"{}\" y=\"{}\" width=\"{}\" height=\"{}\" data-tip=\"{}\"/>",
        svg::number(box.left + static_cast<double>(k) * width), svg::number(box.top),
        svg::number(width), svg::number(box.bottom - box.top),
        escape(svg::moment(from, span_s) + tip));
  }
  return out;
}

std::string warmup_html(const TimeChart& chart, const svg::Box& box, const svg::Scale1& x) {
  if (!(chart.warmup_s > 0)) return {};
  const double end = x.at(chart.warmup_s);
  std::string out = fmt::format(
      "<rect class=\"aside\" x=\"{}\" y=\"{}\" width=\"{}\" height=\"{}\"/>", svg::number(box.left),
      svg::number(box.top), svg::number(end - box.left), svg::number(box.bottom - box.top));
  return out + svg::text(box.left + 3, box.top - 3, "start", "warm-up, not counted", "tiny");
}

}  // namespace

std::vector<double> Ticks::values() const {
  constexpr int kMost = 64;  // no more at any step: a bound, never reached
  std::vector<double> out;
  const auto count = static_cast<int>(std::min(std::round((high - low) / step), double{kMost}));
  for (int i = 0; i <= count; ++i) {
    const double value = low + i * step;
    out.push_back(std::fabs(value) < step * 1e-6 ? 0 : value);
  }
  return out;
}

Ticks nice_ticks(double low, double high, int count) {
  if (low > high) std::swap(low, high);
  // A range that rounding would swallow has no steps.
  const double size = std::max(std::fabs(low), std::fabs(high));
  if (high - low < std::max(size, 1e-12) * 1e-9) {
    const double around = size < 1e-9 ? 1 : size * 0.1;
    low = low >= 0 ? std::max(0.0, low - around) : low - around;
    high += around;
  }
  const double rough = (high - low) / std::max(count, 1);
  const double power = std::pow(10, std::floor(std::log10(rough)));
  Ticks out;
  out.step = 10 * power;
  for (const double part : {5.0, 2.0, 1.0})
    if (part * power >= rough * (1 - 1e-9)) out.step = part * power;
  out.low = std::floor(low / out.step + 1e-9) * out.step;
  out.high = std::ceil(high / out.step - 1e-9) * out.step;
  out.decimals = std::clamp(-static_cast<int>(std::floor(std::log10(out.step) + 1e-9)), 0, 12);
  return out;
}

std::string draw(const TimeChart& chart) {
  const std::size_t count = std::min(chart.lines.size(), kSeriesMax);
  const double span_s = span_of(chart);
  if (count == 0 || !(span_s > 0)) return svg::empty_figure(chart.title, "Nothing was recorded.");
  const svg::Box box;
  auto [low, high] = time_range(chart);
  std::string suffix;
  const auto y_ticks = svg::value_ticks(low, high, chart.unit, 5, suffix);
  const svg::Scale1 x{0, span_s, box.left, box.right}, y{low, high, box.bottom, box.top};
  std::string drawing = warmup_html(chart, box, x) + svg::y_axis(box, y, y_ticks) +
                        svg::x_axis(box, x, svg::time_ticks(span_s), "simulated time", false);
  std::vector<svg::Key> keys;
  for (std::size_t i = count; i-- > 0;)  // the first lies on top
    drawing += fmt::format("<path class=\"line s{}\" d=\"{}\"/>", i,
                           path_of(chart.lines[i], chart.step_s, x, y));
  for (std::size_t i = 0; i < count; ++i)
    keys.push_back({chart.lines[i].name, i});
  drawing += read_outs(chart, count, span_s, box);
  return svg::figure(chart.title, suffix, box.bottom + 42, drawing, svg::legend(keys, true));
}

}  // namespace kansoku::exporter
