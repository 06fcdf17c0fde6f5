// SPDX-License-Identifier: Apache-2.0
#include "export/internal/cuda_timeline.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <optional>
#include <utility>

#include "export/internal/figure.h"
#include "export/internal/page.h"
#include "export/internal/svg.h"
#include "export/internal/tables.h"

namespace kansoku::exporter {
namespace {

constexpr std::size_t kColours = 6;
constexpr std::size_t kTimelinesShown = 8;
constexpr std::size_t kLanesShown = 16;
constexpr std::size_t kSpansShown = 2000;
constexpr std::size_t kPointsShown = 1000;
constexpr double kLaneWidth = 1000;  // units of a lane's drawing

struct ClassStyle {
  std::string_view name, css_class, text;
};
constexpr std::array kClasses{
    ClassStyle{"kernel", "k-kernel", "kernel"},
    ClassStyle{"collective", "k-collective", "collective"},
    ClassStyle{"copy", "k-copy", "copy"},
    ClassStyle{"set", "k-set", "fill"},
    ClassStyle{"graph", "k-graph", "graph"},
    ClassStyle{"host_function", "k-host", "host function"},
    ClassStyle{"wait", "k-wait", "wait"},
};

const ClassStyle& style_of(std::string_view name) {
  const auto found = std::find_if(kClasses.begin(), kClasses.end(),
                                  [&](const ClassStyle& style) { return style.name == name; });
  return found == kClasses.end() ? kClasses.front() : *found;
}

std::string seconds(double us) {
  return shown_short_time(us * 1e-6);
}

/// A rectangle of a lane; nothing where the times are impossible.
std::string rect(const Json& span, double lane_us, std::string_view css_class,
                 const std::string& what) {
  const auto begin = number_in(span.at("begin_us")), us = number_in(span.at("us"));
  if (!begin || !us || *begin < 0 || *us < 0 || *begin > lane_us) return {};
  const double x = kLaneWidth * *begin / lane_us;
  const double width = std::clamp(kLaneWidth * *us / lane_us, 0.6, kLaneWidth - x + 0.6);
  return fmt::format(
      "<rect class=\"{}\" x=\"{:.2f}\" y=\"1\" width=\"{:.2f}\" height=\"18\" data-tip=\"{}, {} "
      "from {}\"/>",
      css_class, x, width, escape(what), seconds(*us), seconds(*begin));
}

std::string lane(std::string_view label, const std::string& drawing, std::string_view more) {
  return fmt::format(
      "<div class=\"lanerow\"><span>{0}</span><svg class=\"lane\" viewBox=\"0 0 1000 20\" "
      "preserveAspectRatio=\"none\" role=\"img\" aria-label=\"{0}\">{1}</svg><span "
      "class=\"num\">{2}</span></div>",
      escape(label), drawing, escape(more));
}

std::string stream_lane(const Json& of, double lane_us) {
  const Json spans = of.at("spans");
  std::string drawing;
  double busy_us = 0;
  for (std::size_t i = 0; i < std::min(spans.size(), kSpansShown); ++i) {
    const Json span = spans.at(i);
    const ClassStyle& style = style_of(span.at("class").as_string());
    const std::int64_t count = span.at("count").as_int();
    const std::string name = shortened(span.at("name").as_string(), 100);
    const std::string what = count > 1 ? fmt::format("{} operations, among them {}", count, name)
                                       : fmt::format("{} {}", style.text, name);
    drawing += rect(span, lane_us, style.css_class, what);
    busy_us += std::clamp(number_in(span.at("us")).value_or(0), 0.0, lane_us);
  }
  return lane(fmt::format("stream {}", of.at("stream").as_int()), drawing, seconds(busy_us));
}

std::string idle_lane(const Json& idle, double lane_us, const CauseColours& colours) {
  if (!idle.is_array()) return {};
  std::string drawing;
  double idle_us = 0;
  for (std::size_t i = 0; i < std::min(idle.size(), kSpansShown); ++i) {
    const Json span = idle.at(i);
    const std::string cause = span.at("cause").as_string();
    const std::string function = shortened(span.at("function").as_string(), 100);
    const std::string what = "idle: the thread " + colours.text(cause) +
                             (function.empty() ? "" : ", mostly in " + function);
    drawing += rect(span, lane_us, colours.css_class(cause), what);
    idle_us += std::clamp(number_in(span.at("us")).value_or(0), 0.0, lane_us);
  }
  return lane("idle, by cause", drawing, seconds(idle_us));
}

std::string axis(double lane_us) {
  std::string out = "<div class=\"lanerow axisrow\"><span></span><div>";
  constexpr int kParts = 4;
  for (int i = 0; i <= kParts; ++i)
    out += "<span>" + escape(i == 0 ? "0" : seconds(lane_us * i / kParts)) + "</span>";
  return out + "</div><span></span></div>";
}

std::string timeline_html(const Json& timeline, const CauseColours& colours) {
  const auto us = number_in(timeline.at("us"));
  const Json lanes = timeline.at("lanes");
  if (!us || *us <= 0) return {};
  const std::string who = timeline.at("rank").is_number()
                              ? fmt::format("Rank {}", timeline.at("rank").as_int())
                              : fmt::format("Process {}", timeline.at("pid").as_int());
  const std::string device = timeline.at("device").is_number()
                                 ? fmt::format(", GPU {}", timeline.at("device").as_int())
                                 : std::string();
  const std::string which =
      timeline.at("step").is_number()
          ? fmt::format("step {} of {}, the longest", timeline.at("step").as_int() + 1,
                        timeline.at("step_count").as_int())
          : std::string("the stretch with most idle time");
  std::string out = fmt::format("<h3>{}{}: {}, {}</h3>", who, device, which, escape(seconds(*us)));
  const std::size_t count = std::min(lanes.size(), kLanesShown);
  for (std::size_t i = 0; i < count; ++i)
    out += stream_lane(lanes.at(i), *us);
  out += idle_lane(timeline.at("idle"), *us, colours) + axis(*us);
  const std::int64_t more = timeline.at("lane_count").as_int() - static_cast<std::int64_t>(count);
  return out + (more > 0 ? fmt::format("<p class=\"hint\">{} more streams, less busy</p>", more)
                         : std::string());
}

std::string class_legend(const std::string& drawing) {
  std::string out = "<div class=\"legend\">";
  for (const ClassStyle& style : kClasses) {
    if (drawing.find(fmt::format("class=\"{}\"", style.css_class)) == std::string::npos) continue;
    out += fmt::format("<span><i class=\"{}\"></i>{}</span>", style.css_class, style.text);
  }
  return out + "</div>";
}

}  // namespace

std::string CauseColours::text(const std::string& cause) const {
  const Json words = words_.at(cause);
  return shortened(words.is_string() ? words.as_string() : cause, 60);
}

CauseColours::CauseColours(const Json& devices, const Json& words) : words_(words) {
  std::map<std::string, double> sums;
  for (std::size_t i = 0; i < devices.size(); ++i) {
    const Json idle = devices.at(i).at("idle");
    for (std::size_t k = 0; k < idle.size(); ++k)
      sums[idle.at(k).at("cause").as_string()] += number_in(idle.at(k).at("us")).value_or(0);
  }
  std::vector<std::pair<double, std::string>> order;
  order.reserve(sums.size());
  for (const auto& [cause, us] : sums)
    order.emplace_back(-us, cause);
  std::sort(order.begin(), order.end());
  has_rest_ = order.size() > kColours;
  for (std::size_t i = 0; i < std::min(order.size(), kColours); ++i)
    causes_.push_back(order[i].second);
}

std::string_view CauseColours::css_class(const std::string& cause) const {
  static constexpr std::array<std::string_view, kColours> kNames{"i0", "i1", "i2",
                                                                 "i3", "i4", "i5"};
  const auto found = std::find(causes_.begin(), causes_.end(), cause);
  if (found == causes_.end()) return "irest";
  return kNames[static_cast<std::size_t>(found - causes_.begin())];
}

std::string CauseColours::legend() const {
  std::string out =
      "<div class=\"legend\"><span><i class=\"busy\"></i>busy</span><span>idle while the "
      "launching thread</span>";
  for (const std::string& cause : causes_)
    out +=
        fmt::format("<span><i class=\"{}\"></i>{}</span>", css_class(cause), escape(text(cause)));
  if (has_rest_) out += "<span><i class=\"irest\"></i>does something else</span>";
  return out + "</div>";
}

std::string timelines_html(const Json& timelines, const CauseColours& colours) {
  std::string out;
  for (std::size_t i = 0; i < std::min(timelines.size(), kTimelinesShown); ++i)
    out += timeline_html(timelines.at(i), colours);
  if (out.empty()) return {};
  return section("The worst step on the device",
                 "Operations that are too short to be drawn apart are joined.",
                 class_legend(out) + out);
}

std::string memory_curve(const Json& points) {
  std::vector<std::pair<double, double>> curve;
  for (std::size_t i = 0; i < std::min(points.size(), kPointsShown); ++i) {
    const auto at = number_in(points.at(i).at(std::size_t{0}));
    const auto bytes = number_in(points.at(i).at(std::size_t{1}));
    if (at && bytes && *at >= 0 && *bytes >= 0 && (curve.empty() || *at >= curve.back().first))
      curve.emplace_back(*at, *bytes);
  }
  if (curve.size() < 2 || curve.back().first <= 0) return {};
  double low = 0, most = 1;
  for (const auto& [at, bytes] : curve)
    most = std::max(most, bytes);
  const svg::Box box{.left = 64, .top = 10, .right = svg::kWidth - 10, .bottom = 120};
  std::string suffix, time_suffix;
  const auto y_ticks = svg::value_ticks(low, most, Unit::kBytes, 3, suffix);
  double begin_s = 0, end_s = curve.back().first / 1000;
  const auto x_ticks = svg::value_ticks(begin_s, end_s, Unit::kSeconds, 5, time_suffix);
  const svg::Scale1 x{begin_s, end_s, box.left, box.right, false};
  const svg::Scale1 y{low, most, box.bottom, box.top, false};
  std::string path;
  double last_y = 0;
  for (const auto& [at, bytes] : curve) {
    const double place_y = y.at(bytes);
    path += path.empty()
                ? fmt::format("M{} {}", svg::number(x.at(at / 1000)), svg::number(place_y))
                : fmt::format("H{}V{}", svg::number(x.at(at / 1000)), svg::number(place_y));
    last_y = place_y;
  }
  path += fmt::format("H{}V{}", svg::number(x.at(curve.back().first / 1000)), svg::number(last_y));
  return "<div class=\"plots\">" +
         svg::figure(
             "Live device memory", suffix.empty() ? "bytes" : suffix, box.bottom + 40,
             svg::y_axis(box, y, y_ticks) +
                 svg::x_axis(box, x, x_ticks, time_suffix + " since the first call", false) +
                 "<path class=\"line s0\" d=\"" + path + "\"/>",
             "") +
         "</div>";
}

}  // namespace kansoku::exporter
