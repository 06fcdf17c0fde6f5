// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "export/internal/chart.h"
#include "export/internal/page.h"
#include "export/internal/svg.h"

namespace kansoku::exporter {
namespace {

constexpr std::size_t kGutterColumns = 16;  // longer labels stand above their row
constexpr std::size_t kLabelColumnsMax = 58;
constexpr double kMarkHeight = 12, kLabelHeight = 17;

struct Layout {
  std::size_t row_count{0}, mark_count{0}, line_count{1};
  bool labels_above{false};
  double row_height{0};
  svg::Box box;
  svg::Scale1 x;
  std::vector<svg::Tick> ticks;
  std::string suffix;
  double typical{0};  // the greatest value: all of a chart are written in one unit
};

bool is_drawn(const RowChart& chart, const Figure& mark) {
  return mark.known && (!chart.logarithmic || mark.mean > svg::kLogLeast);
}

struct Range {
  double low{kInfinity}, high{-kInfinity};
  void add(double value) {
    low = std::min(low, value);
    high = std::max(high, value);
  }
};

Range row_range(const RowChart& chart, const Layout& layout) {
  Range range;
  for (std::size_t r = 0; r < layout.row_count; ++r)
    for (const Figure& mark : chart.rows[r].marks) {
      if (!is_drawn(chart, mark)) continue;
      range.add(mark.mean);
      if (chart.one_line) continue;
      if (!chart.logarithmic || mark.low > svg::kLogLeast)
        range.add(chart.from_zero && mark.mean >= 0 ? std::max(mark.low, 0.0) : mark.low);
      range.add(mark.high);
    }
  if (chart.band) {
    range.add(chart.band->first);
    range.add(chart.band->second);
  }
  if (chart.reference && (!chart.logarithmic || *chart.reference > svg::kLogLeast))
    range.add(*chart.reference);
  return range;
}

bool set_axis(const RowChart& chart, Layout& layout) {
  Range range = row_range(chart, layout);
  if (range.low > range.high) return false;
  layout.typical = std::max(std::fabs(range.low), std::fabs(range.high));
  if (chart.logarithmic) {
    layout.ticks = svg::log_ticks(range.low, range.high, chart.unit);
  } else {
    const bool zero_is_near = range.low > 0 && range.low < 0.6 * range.high;
    if (chart.from_zero || chart.bars || zero_is_near) range.add(0);
    layout.ticks = svg::value_ticks(range.low, range.high, chart.unit, 5, layout.suffix);
  }
  layout.x = {range.low, range.high, layout.box.left, layout.box.right, chart.logarithmic};
  return true;
}

Layout layout_of(const RowChart& chart) {
  Layout out;
  out.row_count = std::min(chart.rows.size(), kRowsMax);
  out.mark_count = std::min(chart.series.size(), kSeriesMax);
  out.line_count = chart.one_line ? 1 : std::max<std::size_t>(out.mark_count, 1);
  std::size_t longest = 0;
  for (std::size_t r = 0; r < out.row_count; ++r)
    longest = std::max(longest, columns_of(chart.rows[r].label));
  out.labels_above = longest > kGutterColumns;
  out.row_height = kMarkHeight * static_cast<double>(out.line_count) + 10 +
                   (out.labels_above ? kLabelHeight : 0);
  out.box.left = out.labels_above ? 10 : 16 + 6.9 * static_cast<double>(longest);
  out.box.top = chart.reference ? 18 : 6;
  // One mark a row leaves room for its value in figures.
  out.box.right = svg::kWidth - (out.mark_count == 1 ? 78 : 14);
  out.box.bottom = out.box.top + out.row_height * static_cast<double>(out.row_count);
  return out;
}

std::string tip_of(const RowChart& chart, std::size_t row, std::size_t series) {
  const Figure& mark = chart.rows[row].marks[series];
  std::string out = shortened(chart.rows[row].label, 80) + "\n";
  if (chart.series.size() > 1) out += chart.series[series] + ": ";
  out += shown(mark);
  if (mark.has_interval()) out += " (95 %: " + interval_of(mark) + ")";
  return out;
}

std::string mark_svg(const RowChart& chart, const Layout& layout, std::size_t row,
                     std::size_t series, double y) {
  const Figure& mark = chart.rows[row].marks[series];
  const double x = layout.x.at(mark.mean);
  std::string out;
  if (chart.bars) {
    const double zero = layout.x.at(0);
    return fmt::format(
        "<rect class=\"bar s{}\" x=\"{}\" y=\"{}\" width=\"{}\" height=\"{}\" data-tip=\"{}\"/>",
        series, svg::number(std::min(zero, x)), svg::number(y - kMarkHeight / 2),
        svg::number(std::max(std::fabs(x - zero), 0.5)), svg::number(kMarkHeight),
        escape(tip_of(chart, row, series)));
  }
  if (mark.has_interval() && !chart.one_line) {
    const bool low_drawn =
        (!chart.logarithmic || mark.low > svg::kLogLeast) && mark.low >= layout.x.from;
    const double from = low_drawn ? layout.x.at(mark.low) : layout.box.left;
    const double to = layout.x.at(mark.high);
    const std::string css = fmt::format("whisker s{}", series);
    out += svg::line(from, y, to, y, css);
    if (low_drawn) out += svg::line(from, y - 3.5, from, y + 3.5, css);
    out += svg::line(to, y - 3.5, to, y + 3.5, css);
  }
  return out + svg::mark(x, y, series, tip_of(chart, row, series));
}

std::string value_label(const RowChart& chart, const Layout& layout, const Figure& mark) {
  if (!mark.known) return "\u2013";
  const Scale scale = scale_of(chart.unit, layout.typical);
  return shown(mark.mean * scale.factor) + (layout.suffix.empty() ? std::string(scale.suffix) : "");
}

std::string row_svg(const RowChart& chart, const Layout& layout, std::size_t row) {
  const double top = layout.box.top + layout.row_height * static_cast<double>(row);
  const double first = top + (layout.labels_above ? kLabelHeight : 0) + 5 + kMarkHeight / 2;
  const double middle = first + kMarkHeight * (static_cast<double>(layout.line_count) - 1) / 2;
  const std::string label = shortened(chart.rows[row].label, kLabelColumnsMax);
  std::string out = layout.labels_above
                        ? svg::text(layout.box.left, top + 15, "start", label, "label")
                        : svg::text(layout.box.left - 10, middle + 4, "end", label, "label");
  const auto& marks = chart.rows[row].marks;
  if (layout.line_count == 1)
    out += svg::line(layout.box.left, first, layout.box.right, first, "track");
  for (std::size_t i = 0; i < std::min(layout.mark_count, marks.size()); ++i) {
    if (!is_drawn(chart, marks[i])) continue;
    out += mark_svg(chart, layout, row, i,
                    layout.line_count == 1 ? first : first + kMarkHeight * static_cast<double>(i));
  }
  if (layout.mark_count == 1 && !marks.empty())
    out +=
        svg::text(svg::kWidth - 2, first + 4, "end", value_label(chart, layout, marks[0]), "label");
  return out;
}

std::string reference_svg(const RowChart& chart, const Layout& layout) {
  std::string out;
  if (chart.band) {
    const double from = layout.x.at(chart.band->first), to = layout.x.at(chart.band->second);
    out += fmt::format("<rect class=\"band\" x=\"{}\" y=\"{}\" width=\"{}\" height=\"{}\"/>",
                       svg::number(from), svg::number(layout.box.top), svg::number(to - from),
                       svg::number(layout.box.bottom - layout.box.top));
  }
  if (!chart.reference || (chart.logarithmic && *chart.reference <= svg::kLogLeast)) return out;
  const double x = layout.x.at(*chart.reference);
  out += svg::line(x, layout.box.top, x, layout.box.bottom, "reference");
  if (chart.reference_name.empty()) return out;
  const double half = 3.3 * static_cast<double>(columns_of(chart.reference_name));
  const double place = std::clamp(x, half, svg::kWidth - half);
  return out + svg::text(place, layout.box.top - 6, "middle", chart.reference_name, "tiny");
}

}  // namespace

std::string draw(const RowChart& chart) {
  Layout layout = layout_of(chart);
  if (layout.row_count == 0 || !set_axis(chart, layout))
    return svg::empty_figure(chart.title, "Nothing to draw: no figures.");
  std::string drawing = svg::x_axis(layout.box, layout.x, layout.ticks, chart.axis_title, true) +
                        reference_svg(chart, layout);
  for (std::size_t r = 0; r < layout.row_count; ++r)
    drawing += row_svg(chart, layout, r);
  std::string below;
  if (layout.mark_count > 1) {
    std::vector<svg::Key> keys;
    for (std::size_t i = 0; i < layout.mark_count; ++i)
      keys.push_back({chart.series[i], i});
    below = svg::legend(keys, false);
  }
  if (chart.rows.size() > layout.row_count)
    below += fmt::format("<p class=\"hint\">{} more rows are not drawn.</p>",
                         chart.rows.size() - layout.row_count);
  return svg::figure(chart.title, layout.suffix,
                     layout.box.bottom + (chart.axis_title.empty() ? 26 : 42), drawing, below);
}

}  // namespace kansoku::exporter
