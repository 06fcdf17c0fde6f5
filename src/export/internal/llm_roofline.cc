// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <string_view>
#include <vector>

#include "export/internal/figure.h"
#include "export/internal/llm_charts.h"
#include "export/internal/page.h"
#include "export/internal/svg.h"

namespace kansoku::exporter {
namespace {

constexpr std::size_t kOperatorsShown = 400;

struct OperatorPoint {
  double intensity, flops, share;
  bool is_prefill;
  std::string name, tip;
};

std::vector<OperatorPoint> operator_points(const Json& operators) {
  std::vector<OperatorPoint> out;
  for (std::size_t i = 0; i < std::min(operators.size(), kOperatorsShown); ++i) {
    const Json row = operators.at(i);
    const auto flops = number_in(row.at("flops")), bytes = number_in(row.at("bytes"));
    const auto rate = number_in(row.at("flops_per_second"));
    const std::string phase = row.at("phase").as_string();
    if (!flops || !bytes || !rate || *flops < 1 || *bytes < 1 || *rate < 1) continue;
    if (phase != "decode" && phase != "prefill") continue;
    const double share = std::clamp(number_in(row.at("share")).value_or(0), 0.0, 1.0);
    const std::string name = shortened(row.at("op").as_string(), 24);
    out.push_back({*flops / *bytes, *rate, share, phase == "prefill", name,
                   fmt::format("{}, {}: {} of its time\n{}\n{} FLOP a byte", name, phase,
                               shown(share, Unit::kShare), shown_rate(*rate, "FLOP/s"),
                               shown(*flops / *bytes))});
  }
  std::stable_sort(out.begin(), out.end(),
                   [](const auto& a, const auto& b) { return a.share > b.share; });
  return out;
}

/// Places of texts, none upon another.
class RoofLabels {
 public:
  explicit RoofLabels(const svg::Box& box) : box_(box) {}
  void take(double left, double top, double right, double bottom) {
    taken_.push_back({left, top, right, bottom});
  }
  /// Right of the mark, left of it, above or below; nothing where there is no room.
  std::string beside(double x, double y, double away, const std::string& text) {
    const double width = 6.9 * static_cast<double>(columns_of(text));
    struct Try {
      double left, base, text_x;
      std::string_view anchor;
    };
    for (const Try& one :
         {Try{x + away, y + 4, x + away, "start"}, Try{x - away - width, y + 4, x - away, "end"},
          Try{x - width / 2, y - away - 2, x, "middle"},
          Try{x - width / 2, y + away + 11, x, "middle"}}) {
      const svg::Box own{one.left, one.base - 11, one.left + width, one.base + 3};
      if (own.left < box_.left || own.right > box_.right || own.bottom > box_.bottom ||
          own.top < box_.top)
        continue;
      if (std::any_of(taken_.begin(), taken_.end(), [&](const svg::Box& other) {
            return own.left < other.right && other.left < own.right && own.top < other.bottom &&
                   other.top < own.bottom;
          }))
        continue;
      taken_.push_back(own);
      return svg::text(one.text_x, one.base, one.anchor, text, "label");
    }
    return {};
  }

 private:
  svg::Box box_;
  std::vector<svg::Box> taken_;
};

double operator_radius(const OperatorPoint& point) {
  return 3.5 + 7 * std::sqrt(point.share);
}

std::string operator_marks(const std::vector<OperatorPoint>& points, const svg::Scale1& x,
                           const svg::Scale1& y, RoofLabels& labels) {
  constexpr std::size_t kLabelsMax = 14;
  std::string marks, texts;
  for (const OperatorPoint& point : points) {
    const double at_x = x.at(point.intensity), at_y = y.at(point.flops), r = operator_radius(point);
    labels.take(at_x - r, at_y - r, at_x + r, at_y + r);
    marks += phase_dot(at_x, at_y, r, point.is_prefill, point.tip);
  }
  for (std::size_t i = 0; i < std::min(points.size(), kLabelsMax); ++i)
    texts += labels.beside(x.at(points[i].intensity), y.at(points[i].flops),
                           operator_radius(points[i]) + 3, points[i].name);
  return marks + texts;
}

}  // namespace

std::string roofline(const Json& operators, const Json& peaks) {
  const auto bytes = number_in(peaks.at("bytes_per_second"));
  const auto flops = number_in(peaks.at("flops_per_second"));
  const std::vector<OperatorPoint> points = operator_points(operators);
  if (!bytes || !flops || *bytes < 1 || *flops < 1 || points.empty()) return {};
  const double ridge = *flops / *bytes;
  double x_low = ridge / 10, x_high = ridge * 10, y_low = *flops / 100, y_high = *flops * 1.5;
  for (const OperatorPoint& point : points) {
    x_low = std::min(x_low, point.intensity / 1.5);
    x_high = std::max(x_high, point.intensity * 1.5);
    y_low = std::min(y_low, point.flops / 1.5);
    y_high = std::max(y_high, point.flops * 1.5);
  }
  const auto x_ticks = svg::log_ticks(x_low, x_high, Unit::kPlain);
  auto y_ticks = svg::log_ticks(y_low, y_high, Unit::kPlain);
  for (svg::Tick& tick : y_ticks)
    tick.label = shown_rate(tick.value, "");
  const svg::Box box{.left = 56, .bottom = 330};
  const svg::Scale1 x{x_low, x_high, box.left, box.right, true};
  const svg::Scale1 y{y_low, y_high, box.bottom, box.top, true};
  // The memory's line leaves the box at its left edge or at its bottom.
  const double from = std::max(x_low, y_low / *bytes), top = y.at(*flops);
  std::string drawing =
      svg::y_axis(box, y, y_ticks) +
      svg::x_axis(box, x, x_ticks, "FLOP a byte of memory traffic (logarithmic)", false);
  drawing += fmt::format("<path class=\"roof\" d=\"M{} {}L{} {}H{}\"/>", svg::number(x.at(from)),
                         svg::number(y.at(from * *bytes)), svg::number(x.at(ridge)),
                         svg::number(top), svg::number(box.right));
  RoofLabels labels(box);
  const double label_right = std::clamp(x.at(from) + 160, box.left + 160, box.right);
  const double step = (x.at(x_high) - x.at(x_low)) / std::log10(x_high / x_low);
  const double at = x_low * std::pow(10, (label_right - box.left) / step);
  const double label_y = std::max(y.at(std::min(at * *bytes, *flops)) - 6, box.top + 10);
  const bool is_apart = x.at(ridge) > label_right || label_right < box.right - 210;
  if (is_apart) {
    drawing +=
        svg::text(label_right, label_y, "end", "memory " + shown_rate(*bytes, "B/s"), "label");
    labels.take(label_right - 150, label_y - 12, label_right, label_y + 3);
  }
  drawing +=
      svg::text(box.right, top - 6, "end", "arithmetic " + shown_rate(*flops, "FLOP/s"), "label");
  labels.take(box.right - 180, top - 18, box.right, top - 2);
  drawing += operator_marks(points, x, y, labels);
  const bool has_prefill = std::any_of(points.begin(), points.end(),
                                       [](const OperatorPoint& one) { return one.is_prefill; });
  const bool has_decode = std::any_of(points.begin(), points.end(),
                                      [](const OperatorPoint& one) { return !one.is_prefill; });
  return svg::figure("Speed of operators (logarithmic)", "FLOP/s", box.bottom + 42, drawing,
                     phase_legend(has_decode, has_prefill,
                                  "<span>the greater, the more of the phase's time</span>"));
}

}  // namespace kansoku::exporter
