// SPDX-License-Identifier: Apache-2.0
#include "export/internal/svg.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>

#include "export/internal/chart.h"
#include "export/internal/page.h"

namespace kansoku::exporter::svg {
namespace {

constexpr double kDay = 86400;
constexpr double kColumnWidth = 6.9;  // of a letter, in units: an estimate from above

double width_of(std::string_view label) {
  return static_cast<double>(columns_of(label)) * kColumnWidth;
}

// Outlines around 0,0, one a series: shapes tell them apart without colours.
constexpr std::array<std::string_view, kSeriesMax> kShapes{
    "M-4.5 0a4.5 4.5 0 1 0 9 0a4.5 4.5 0 1 0-9 0z",
    "M-4-4h8v8h-8z",
    "M0-5.5L5.5 0L0 5.5L-5.5 0z",
    "M0-5L5 4H-5z",
    "M0 5L5-4H-5z",
    "M-5-2h3v-3h4v3h3v4h-3v3h-4v-3h-3z"};

std::string duration_label(double seconds, double step_s) {
  if (step_s >= kDay) return short_number(seconds / kDay) + " d";
  if (step_s >= 3600) return short_number(seconds / 3600) + " h";
  if (step_s >= 60) return short_number(seconds / 60) + " min";
  return short_number(seconds) + " s";
}

}  // namespace

double Scale1::at(double value) const {
  const auto place = [&](double v) { return logarithmic ? std::log10(v) : v; };
  const double width = place(to) - place(from);
  if (!(width > 0)) return (at_from + at_to) / 2;
  const double share = std::clamp((place(value) - place(from)) / width, 0.0, 1.0);
  return at_from + share * (at_to - at_from);
}

std::string number(double place) {
  std::string out = fmt::format("{:.2f}", place);
  while (out.back() == '0')
    out.pop_back();
  if (out.back() == '.') out.pop_back();
  return out == "-0" ? "0" : out;
}

std::string text(double x, double y, std::string_view anchor, std::string_view untrusted,
                 std::string_view css_class) {
  return fmt::format("<text x=\"{}\" y=\"{}\" text-anchor=\"{}\" class=\"{}\">{}</text>", number(x),
                     number(y), anchor, css_class, escape(untrusted));
}

std::string line(double x1, double y1, double x2, double y2, std::string_view css_class) {
  return fmt::format("<line x1=\"{}\" y1=\"{}\" x2=\"{}\" y2=\"{}\" class=\"{}\"/>", number(x1),
                     number(y1), number(x2), number(y2), css_class);
}

std::string mark(double x, double y, std::size_t series, std::string_view untrusted_tip) {
  const std::size_t shape = series % kSeriesMax;
  return fmt::format(
      "<path class=\"mark s{}\" transform=\"translate({} {})\" d=\"{}\" data-tip=\"{}\"/>", shape,
      number(x), number(y), kShapes[shape], escape(untrusted_tip));
}

std::string legend(const std::vector<Key>& keys, bool lines) {
  std::string out = "<div class=\"legend\">";
  for (const Key& key : keys) {
    const std::size_t shape = key.series % kSeriesMax;
    const std::string picture =
        lines ? fmt::format("<path class=\"line s{}\" d=\"M-9 0H9\"/>", shape)
              : fmt::format("<path class=\"mark s{}\" d=\"{}\"/>", shape, kShapes[shape]);
    out += fmt::format(
        "<span><svg class=\"key\" viewBox=\"-10 -7 20 14\" aria-hidden=\"true\">{}</svg>{}</span>",
        picture, escape(shortened(key.name, 60)));
  }
  return out + "</div>";
}

std::string y_axis(const Box& box, const Scale1& scale, const std::vector<Tick>& ticks) {
  std::string out;
  for (const Tick& tick : ticks) {
    const double y = scale.at(tick.value);
    const bool is_axis = y >= box.bottom - 0.5;
    out += line(box.left, y, box.right, y, is_axis ? "axis" : "grid");
    out += text(box.left - 6, y + 4, "end", tick.label);
  }
  return out;
}

std::string x_axis(const Box& box, const Scale1& scale, const std::vector<Tick>& ticks,
                   std::string_view title, bool lines_up) {
  std::string out = line(box.left, box.bottom, box.right, box.bottom, "axis");
  double free_from = -1e9;
  for (const Tick& tick : ticks) {
    const double x = scale.at(tick.value);
    out += line(x, lines_up ? box.top : box.bottom, x, box.bottom + (lines_up ? 0 : 4), "grid");
    const double half = width_of(tick.label) / 2;
    const double middle = std::max(half, std::min(x, kWidth - half - 1));
    if (middle - half < free_from) continue;
    out += text(middle, box.bottom + 17, "middle", tick.label);
    free_from = middle + half + 4;
  }
  if (!title.empty()) out += text((box.left + box.right) / 2, box.bottom + 34, "middle", title);
  return out;
}

std::vector<Tick> value_ticks(double& low, double& high, Unit unit, int count,
                              std::string& suffix) {
  const Scale scale = scale_of(unit, std::max(std::fabs(low), std::fabs(high)));
  const Ticks ticks = nice_ticks(low * scale.factor, high * scale.factor, count);
  low = ticks.low / scale.factor;
  high = ticks.high / scale.factor;
  std::vector<Tick> out;
  for (const double value : ticks.values()) {
    std::string label = with_decimals(value, ticks.decimals);
    if (unit == Unit::kShare) label += " %";
    out.push_back({value / scale.factor, std::move(label)});
  }
  suffix = unit == Unit::kShare || scale.suffix.empty() ? "" : scale.suffix.substr(1);
  return out;
}

std::vector<Tick> log_ticks(double& low, double& high, Unit unit) {
  // Times by the units that people count them in, everything else by decades or finer.
  std::vector<double> places;
  if (unit == Unit::kSeconds)
    places = {1e-3, 1e-2, 0.1, 1, 10, 60, 600, 3600, 36'000, kDay, 10 * kDay, 100 * kDay};
  const double decades = std::log10(high / low);
  const int first = static_cast<int>(std::floor(std::log10(low)));
  const int last = static_cast<int>(std::ceil(std::log10(high)));
  const int stride = std::max(1, (last - first + 6) / 7);
  if (places.empty() || low < places.front() || high > places.back()) {
    places.clear();
    for (int e = first; e <= last; e += stride)
      for (const double part : {1.0, 2.0, 5.0})
        if (part == 1.0 || decades < 1.5) places.push_back(part * std::pow(10, e));
  }
  const auto above = std::upper_bound(places.begin(), places.end(), low * (1 + 1e-9));
  const auto begin = above == places.begin() ? above : above - 1;
  auto end = std::lower_bound(begin, places.end(), high * (1 - 1e-9));
  if (end != places.end()) ++end;
  std::vector<Tick> out;
  for (auto place = begin; place != end; ++place)
    out.push_back(
        {*place, unit == Unit::kSeconds ? duration_label(*place, *place) : short_number(*place)});
  if (out.empty()) return out;
  low = std::min(low, out.front().value);
  high = std::max(high, out.back().value);
  return out;
}

std::vector<Tick> time_ticks(double span_s) {
  constexpr std::array<double, 24> kSteps{
      1,      2,    5,        10,       15,        30,        60,        120,
      300,    600,  900,      1800,     3600,      7200,      10'800,    21'600,
      43'200, kDay, 2 * kDay, 7 * kDay, 14 * kDay, 28 * kDay, 91 * kDay, 364 * kDay};
  constexpr double kTicksMax = 8;
  double step = kSteps.front();
  for (const double candidate : kSteps)
    if (span_s / step > kTicksMax) step = candidate;
  while (span_s / step > kTicksMax)
    step *= 2;
  std::vector<Tick> out;
  for (int i = 0; i <= static_cast<int>(kTicksMax) && i * step <= span_s * (1 + 1e-9); ++i)
    out.push_back({i * step, i == 0 ? "0" : duration_label(i * step, step)});
  return out;
}

std::string moment(double seconds, double span_s) {
  if (span_s >= 2 * kDay) return fmt::format("day {:.2f}", seconds / kDay);
  if (span_s >= 7200) return fmt::format("hour {:.2f}", seconds / 3600);
  if (span_s >= 120) return fmt::format("minute {:.2f}", seconds / 60);
  return fmt::format("second {:.2f}", seconds);
}

std::string figure(std::string_view untrusted_title, std::string_view unit, double height,
                   const std::string& drawing, const std::string& legend_html) {
  const std::string title = escape(shortened(std::string(untrusted_title), 120));
  const std::string in_unit = unit.empty() ? "" : fmt::format(" <span>{}</span>", escape(unit));
  return fmt::format(
      "<figure class=\"plot\"><figcaption>{0}{1}</figcaption><svg viewBox=\"0 0 {2} {3}\" "
      "role=\"img\" aria-label=\"{0}\">{4}</svg>{5}</figure>",
      title, in_unit, number(kWidth), number(height), drawing, legend_html);
}

std::string empty_figure(std::string_view untrusted_title, std::string_view why) {
  return fmt::format(
      "<figure class=\"plot\"><figcaption>{}</figcaption><p class=\"empty\">{}</p></figure>",
      escape(untrusted_title), escape(why));
}

}  // namespace kansoku::exporter::svg
