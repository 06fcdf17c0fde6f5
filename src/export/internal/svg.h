// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "export/internal/figure.h"

// Parts that the charts share: places, axes, marks, the frame around an SVG.
namespace kansoku::exporter::svg {

// The drawing's width in its own units. Half of a wide page and all of a phone are near to it, so
// that 12 units of text stay readable on both.
constexpr double kWidth = 460;
/// Values not above it have no place on a logarithmic axis.
constexpr double kLogLeast = 1e-12;

struct Box {
  double left{52}, top{14}, right{kWidth - 14}, bottom{190};
};

/// Values to places; logarithmic values must be above 0.
struct Scale1 {
  double from{0}, to{1};  // values
  double at_from{0}, at_to{1};
  bool logarithmic{false};
  [[nodiscard]] double at(double value) const;
};

struct Tick {
  double value;
  std::string label;
};

[[nodiscard]] std::string number(double place);  // at most two decimals
[[nodiscard]] std::string text(double x, double y, std::string_view anchor,
                               std::string_view untrusted, std::string_view css_class = "soft");
[[nodiscard]] std::string line(double x1, double y1, double x2, double y2,
                               std::string_view css_class);
/// Mark number `series` (each its own shape and colour) with a read-out.
[[nodiscard]] std::string mark(double x, double y, std::size_t series,
                               std::string_view untrusted_tip);
/// A small picture of the mark or line for legends.
struct Key {
  std::string name;
  std::size_t series;
};
[[nodiscard]] std::string legend(const std::vector<Key>& keys, bool lines);

/// Lines across the box with labels left of it; the lowest is the axis.
[[nodiscard]] std::string y_axis(const Box& box, const Scale1& scale,
                                 const std::vector<Tick>& ticks);
/// Labels below the box, and the axis' title. Labels that would touch the one before are left out.
[[nodiscard]] std::string x_axis(const Box& box, const Scale1& scale,
                                 const std::vector<Tick>& ticks, std::string_view title,
                                 bool lines_up);

/// Ticks of a linear axis of values in `unit`; `low` and `high` grow to whole steps. `suffix`
/// becomes the unit in which the labels are, if they do not carry it.
[[nodiscard]] std::vector<Tick> value_ticks(double& low, double& high, Unit unit, int count,
                                            std::string& suffix);
/// Ticks of a logarithmic axis, 0 < low <= high, which grow to the ticks around them.
[[nodiscard]] std::vector<Tick> log_ticks(double& low, double& high, Unit unit);
/// Ticks of simulated time, 0 to `span_s`: "6 h", "2 d".
[[nodiscard]] std::vector<Tick> time_ticks(double span_s);
/// A moment of simulated time of `span_s` in all: "day 3.25".
[[nodiscard]] std::string moment(double seconds, double span_s);

/// The whole <figure>: title, unit, drawing, legend (both as HTML, may be empty).
[[nodiscard]] std::string figure(std::string_view untrusted_title, std::string_view unit,
                                 double height, const std::string& drawing,
                                 const std::string& legend_html);
[[nodiscard]] std::string empty_figure(std::string_view untrusted_title, std::string_view why);

}  // namespace kansoku::exporter::svg
