// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "export/internal/chart.h"
#include "export/internal/page.h"
#include "export/internal/svg.h"

namespace kansoku::exporter {
namespace {

constexpr double kLogFrom = 20;  // values of an axis that differ by this factor: a log axis
constexpr std::size_t kValuePointsMax = 200;
constexpr double kPadding = 14;  // units between the box and the outermost points

struct Area {
  svg::Box box;
  svg::Scale1 x, y;
  std::vector<svg::Tick> x_ticks, y_ticks;
  std::string suffix;
};

std::vector<double> places_of(const ValueChart& chart) {
  std::vector<double> out;
  for (const auto& series : chart.series)
    for (const auto& [x, figure] : series.points)
      out.push_back(x);
  std::sort(out.begin(), out.end());
  out.erase(std::unique(out.begin(), out.end()), out.end());
  return out;
}

void set_x(Area& area, const std::vector<double>& places) {
  double low = places.front(), high = places.back();
  const bool logarithmic = low > svg::kLogLeast && high / low > kLogFrom;
  if (places.size() <= 12) {
    for (const double place : places)
      area.x_ticks.push_back({place, short_number(place)});
  } else if (logarithmic) {
    area.x_ticks = svg::log_ticks(low, high, Unit::kPlain);
  } else {
    std::string suffix;
    area.x_ticks = svg::value_ticks(low, high, Unit::kPlain, 7, suffix);
  }
  area.x = {low, high, area.box.left + kPadding, area.box.right - kPadding, logarithmic};
}

bool set_y(const ValueChart& chart, Area& area) {
  double low = kInfinity, high = -kInfinity;
  for (const auto& series : chart.series)
    for (const auto& [x, figure] : series.points) {
      if (!figure.known) continue;
      low = std::min(low, figure.low);
      high = std::max(high, figure.high);
    }
  if (low > high) return false;
  if (low > 0 && low < 0.6 * high) low = 0;
  area.y_ticks = svg::value_ticks(low, high, chart.unit, 5, area.suffix);
  area.y = {low, high, area.box.bottom, area.box.top};
  return true;
}

std::string series_svg(const ValueChart& chart, std::size_t index, const Area& area,
                       std::size_t series_count) {
  const auto& series = chart.series[index];
  // Side by side, so that whiskers at the same place are told apart.
  const double aside =
      (static_cast<double>(index) - (static_cast<double>(series_count) - 1) / 2) * 4;
  std::string path, marks;
  for (std::size_t i = 0; i < std::min(series.points.size(), kValuePointsMax); ++i) {
    const auto& [value, figure] = series.points[i];
    if (!figure.known) continue;
    const double x = area.x.at(value) + aside, y = area.y.at(figure.mean);
    path += fmt::format("{}{} {}", path.empty() ? "M" : "L", svg::number(x), svg::number(y));
    const std::string css = fmt::format("whisker s{}", index);
    if (figure.has_interval()) {
      const double low = area.y.at(figure.low), high = area.y.at(figure.high);
      marks += svg::line(x, low, x, high, css) + svg::line(x - 3.5, low, x + 3.5, low, css) +
               svg::line(x - 3.5, high, x + 3.5, high, css);
    }
    std::string tip = chart.x_title + " = " + short_number(value) + "\n";
    if (series_count > 1) tip += series.name + "\n";
    tip += shown(figure);
    if (figure.has_interval()) tip += " (95 %: " + interval_of(figure) + ")";
    marks += svg::mark(x, y, index, tip);
  }
  return fmt::format("<path class=\"line thin s{}\" d=\"{}\"/>", index, path) + marks;
}

}  // namespace

std::string draw(const ValueChart& chart) {
  const std::size_t count = std::min(chart.series.size(), kSeriesMax);
  const std::vector<double> places = places_of(chart);
  Area area;
  if (places.empty() || !set_y(chart, area))
    return svg::empty_figure(chart.title, "Nothing to draw: no figures.");
  set_x(area, places);
  const std::string x_title = area.x.logarithmic ? chart.x_title + " (logarithmic)" : chart.x_title;
  std::string drawing = svg::y_axis(area.box, area.y, area.y_ticks) +
                        svg::x_axis(area.box, area.x, area.x_ticks, shortened(x_title, 56), false);
  std::vector<svg::Key> keys;
  for (std::size_t i = 0; i < count; ++i) {
    drawing += series_svg(chart, i, area, count);
    keys.push_back({chart.series[i].name, i});
  }
  std::string below = count > 1 ? svg::legend(keys, false) : "";
  if (chart.series.size() > count)
    below += fmt::format("<p class=\"hint\">{} more lines are not drawn.</p>",
                         chart.series.size() - count);
  return svg::figure(chart.title, area.suffix, area.box.bottom + 42, drawing, below);
}

std::string draw(const PairChart& chart) {
  double low = kInfinity, high = -kInfinity;
  std::vector<PairChart::Point> points;
  for (const auto& point : chart.points) {
    if (!(point.x > svg::kLogLeast && point.y > svg::kLogLeast) || points.size() == kValuePointsMax)
      continue;
    points.push_back(point);
    low = std::min({low, point.x, point.y});
    high = std::max({high, point.x, point.y});
  }
  if (points.empty()) return svg::empty_figure(chart.title, "Nothing to draw: no pairs above 0.");
  svg::Box box;
  box.left = 64;
  box.bottom = 300;
  const auto ticks = svg::log_ticks(low, high, chart.unit);
  const svg::Scale1 x{low, high, box.left, box.right, true};
  const svg::Scale1 y{low, high, box.bottom, box.top, true};
  std::string drawing = svg::y_axis(box, y, ticks) +
                        svg::x_axis(box, x, ticks, chart.x_title, true) +
                        svg::line(box.left, box.bottom, box.right, box.top, "reference");
  drawing += svg::text(box.left + 6, box.top + 12, "start", chart.y_title);
  for (const auto& point : points)
    drawing += svg::mark(x.at(point.x), y.at(point.y), 0,
                         point.name + "\n" + chart.x_title + ": " + shown(point.x, chart.unit) +
                             "\n" + chart.y_title + ": " + shown(point.y, chart.unit));
  return svg::figure(chart.title, "", box.bottom + 42, drawing, "");
}

}  // namespace kansoku::exporter
