// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "export/internal/figure.h"

// Charts as inline SVG. All text is escaped here; numbers must be finite and within +-1e18 except
// where NaN means a gap. Each chart is one <figure class="plot"> of the same drawing width: the
// page sets them side by side or, on a phone, below each other, so that their text stays readable.
namespace kansoku::exporter {

constexpr std::size_t kSeriesMax = 6;  // colours of a chart
constexpr std::size_t kRowsMax = 40;   // rows of a row chart

/// Even places on an axis from `low` to `high`, about `count` of them.
struct Ticks {
  double low{0}, high{1}, step{1};
  int decimals{0};  // that the labels need
  [[nodiscard]] std::vector<double> values() const;
};
/// The range grows to whole steps. Any finite pair; an empty range becomes one around its value.
[[nodiscard]] Ticks nice_ticks(double low, double high, int count);

/// Chart of values over the simulated time.
struct TimeChart {
  std::string title;
  Unit unit{Unit::kPlain};
  double step_s{1};
  double warmup_s{0};  // shaded: not counted
  bool from_zero{true};
  double top_least{0};  // the axis reaches at least so far
  struct Line {
    std::string name;
    std::vector<double> values;  // NaN: a gap
  };
  std::vector<Line> lines;  // kSeriesMax are drawn
};
[[nodiscard]] std::string draw(const TimeChart& chart);

/// Values with whiskers over a numeric axis, a line for each series.
struct ValueChart {
  std::string title, x_title;
  Unit unit{Unit::kPlain};
  struct Series {
    std::string name;
    std::vector<std::pair<double, Figure>> points;  // by rising x
  };
  std::vector<Series> series;  // kSeriesMax are drawn
};
[[nodiscard]] std::string draw(const ValueChart& chart);

/// A row for each thing, marks on a common axis: dots with whiskers, or bars.
struct RowChart {
  std::string title, axis_title;
  Unit unit{Unit::kPlain};
  std::vector<std::string> series;  // names of the marks; one: no legend
  struct Row {
    std::string label;
    std::vector<Figure> marks;  // as many as `series`
  };
  std::vector<Row> rows;            // kRowsMax are drawn
  bool bars{false};                 // instead of dots, from 0
  bool one_line{false};             // all marks of a row on one line, without whiskers
  bool from_zero{false};            // the axis begins at 0, whiskers below it are cut
  bool logarithmic{false};          // marks above 0 only; others are left out
  std::optional<double> reference;  // a dashed line
  std::string reference_name;
  std::optional<std::pair<double, double>> band;  // shaded
};
[[nodiscard]] std::string draw(const RowChart& chart);

/// Points on two logarithmic axes of the same unit, with the diagonal.
struct PairChart {
  std::string title, x_title, y_title;
  Unit unit{Unit::kPlain};
  struct Point {
    double x, y;       // above 0
    std::string name;  // for the read-out
  };
  std::vector<Point> points;
};
[[nodiscard]] std::string draw(const PairChart& chart);

}  // namespace kansoku::exporter
