// SPDX-License-Identifier: Apache-2.0
#include "export/internal/llm_charts.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include "export/internal/figure.h"
#include "export/internal/page.h"
#include "export/internal/svg.h"
#include "export/internal/tables.h"

namespace kansoku::exporter {
namespace {

constexpr std::size_t kBatchesShown = 2000;
constexpr std::size_t kWindowsShown = 500;
constexpr std::size_t kLayersShown = 512;
constexpr std::size_t kExpertsShown = 1024;
constexpr std::size_t kCellsShown = 20'000;  // of the map of experts
constexpr std::size_t kBins = 40;
constexpr std::size_t kTimesLeast = 10;  // of a histogram
constexpr double kBatchLogFrom =
    20;  // greatest to least value: from then on the axis is logarithmic

struct BatchPoint {
  double at_s, s;
  std::int64_t tokens;
  bool is_prefill;
};

std::vector<BatchPoint> batch_points(const Json& timeline) {
  std::vector<BatchPoint> out;
  for (std::size_t i = 0; i < std::min(timeline.size(), kBatchesShown); ++i) {
    const Json row = timeline.at(i);
    const auto at = number_in(row.at(std::size_t{0})), ms = number_in(row.at(std::size_t{1}));
    if (!at || !ms || *at < 0 || *ms < 1e-6) continue;
    out.push_back({*at, *ms * 1e-3, row.at(std::size_t{2}).as_int(),
                   row.at(std::size_t{3}).as_string() == "prefill"});
  }
  return out;
}

/// An axis of times, logarithmic where they differ much.
struct BatchTimeAxis {
  double low{0}, high{0};
  bool is_log{false};
  std::vector<svg::Tick> ticks;
  std::string suffix;
};

// "100 ms": of a power of ten, or a few times it.
std::string time_label(double s) {
  if (s < 0.95e-3) return short_number(s * 1e6) + " \u00b5s";
  return s < 0.95 ? short_number(s * 1e3) + " ms" : short_number(s) + " s";
}

BatchTimeAxis batch_time_axis(double low, double high, int count, bool from_zero) {
  BatchTimeAxis out{low, high, low > 0 && high / low >= kBatchLogFrom, {}, {}};
  if (!out.is_log) {
    if (from_zero) out.low = 0;
    out.ticks = svg::value_ticks(out.low, out.high, Unit::kSeconds, count, out.suffix);
    return out;
  }
  out.ticks = svg::log_ticks(out.low, out.high, Unit::kPlain);
  for (svg::Tick& tick : out.ticks)
    tick.label = time_label(tick.value);
  // No more than needed beyond the values.
  constexpr double kBeyond = 1.6;
  out.low = std::max(out.low, low / kBeyond);
  out.high = std::min(out.high, high * kBeyond);
  std::erase_if(out.ticks, [&](const svg::Tick& tick) {
    return tick.value < out.low * 0.999 || tick.value > out.high * 1.001;
  });
  return out;
}

std::string chart_rect(double x, double y, double width, double height, std::string_view css_class,
                       const std::string& tip) {
  return fmt::format("<rect class=\"{}\" x=\"{}\" y=\"{}\" width=\"{}\" height=\"{}\"{}/>",
                     css_class, svg::number(x), svg::number(y), svg::number(std::max(width, 0.0)),
                     svg::number(std::max(height, 0.0)),
                     tip.empty() ? "" : " data-tip=\"" + escape(tip) + "\"");
}

// The time between windows, where nothing was observed. If micro-batches were seen, something was.
std::string unseen_gaps(const Json& windows, const std::vector<BatchPoint>& points,
                        const svg::Scale1& x, const svg::Box& box) {
  std::string out;
  double end_s = 0;
  const double last_s = points.back().at_s + points.back().s;
  const std::size_t count = std::min(windows.size(), kWindowsShown);
  for (std::size_t i = 0; i <= count; ++i) {
    if (i == count && count == 0) break;
    const auto begin =
        i < count ? number_in(windows.at(i).at(std::size_t{0})) : std::optional(last_s);
    if (!begin) continue;
    const double from = x.at(end_s), to = x.at(*begin);
    const bool is_seen = std::any_of(points.begin(), points.end(), [&](const BatchPoint& point) {
      return point.at_s > end_s && point.at_s < *begin;
    });
    if (*begin > end_s && to - from > 0.5 && !is_seen)
      out += chart_rect(from, box.top, to - from, box.bottom - box.top, "aside", "not observed");
    if (i < count)
      end_s = std::max(end_s, number_in(windows.at(i).at(std::size_t{1})).value_or(end_s));
  }
  return out;
}

/// Times sorted into equal parts of a linear or logarithmic axis.
class Bins {
 public:
  explicit Bins(const std::vector<double>& times) : counts_(kBins, 0) {
    const auto [least, most] = std::minmax_element(times.begin(), times.end());
    is_log_ = *most / *least >= kBatchLogFrom;
    from_ = place(*least);
    width_ = std::max(place(*most) - from_, 1e-12);
    for (const double s : times)
      ++counts_[std::min(kBins - 1, static_cast<std::size_t>((place(s) - from_) / width_ * kBins))];
  }
  [[nodiscard]] double edge(std::size_t bin) const {
    const double at = from_ + width_ * static_cast<double>(bin) / kBins;
    return is_log_ ? std::exp(at) : at;
  }
  [[nodiscard]] std::size_t count(std::size_t bin) const { return counts_[bin]; }
  [[nodiscard]] std::size_t most() const {
    return *std::max_element(counts_.begin(), counts_.end());
  }

 private:
  [[nodiscard]] double place(double s) const { return is_log_ ? std::log(s) : s; }

  std::vector<std::size_t> counts_;
  bool is_log_{false};
  double from_{0}, width_{1};
};

// A dashed line with its name, which stands on the side that is said if there is room for it.
std::string quantile(const Json& ms, const std::string& name, bool is_left, const svg::Scale1& x,
                     const svg::Box& box) {
  const auto value = number_in(ms);
  if (!value || *value <= 0) return {};
  const double at = x.at(*value * 1e-3);
  const std::string text = name + " " + shown_short_time(*value * 1e-3);
  const double room = 6.9 * static_cast<double>(columns_of(text)) + 8;
  const bool stands_left = is_left ? at - box.left > room : box.right - at < room;
  return svg::line(at, box.top, at, box.bottom, "reference") +
         svg::text(at + (stands_left ? -5 : 5), box.top + (is_left ? 10 : 26),
                   stands_left ? "end" : "start", text, "label");
}

// "ffn_moe_gate-12": 12; names without a number last.
std::int64_t number_at_end(const std::string& name) {
  std::int64_t out = 0;
  std::size_t at = name.size();
  for (std::int64_t factor = 1;
       at > 0 && name[at - 1] >= '0' && name[at - 1] <= '9' && factor <= 1'000'000'000;
       factor *= 10)
    out += factor * (name[--at] - '0');
  return at == name.size() ? INT64_MAX : out;
}

std::vector<double> expert_shares(const Json& counts) {
  std::vector<double> out;
  double sum = 0;
  for (std::size_t i = 0; i < std::min(counts.size(), kExpertsShown); ++i) {
    out.push_back(std::max(number_in(counts.at(i)).value_or(0), 0.0));
    sum += out.back();
  }
  for (double& share : out)
    share = sum > 0 ? share / sum : 0;
  return out;
}

struct ExpertLayer {
  std::int64_t number;
  std::string name, repeated;
  std::vector<double> shares;
};

std::string expert_lane(const ExpertLayer& layer, double most) {
  const double width = 1000 / static_cast<double>(layer.shares.size());
  const double gap = layer.shares.size() <= 64 ? 2 : 0;
  std::string cells;
  for (std::size_t i = 0; i < layer.shares.size(); ++i) {
    const double share = layer.shares[i];
    cells += fmt::format(
        "<rect class=\"heat\" fill-opacity=\"{:.3f}\" x=\"{:.2f}\" y=\"0\" width=\"{:.2f}\" "
        "height=\"20\" data-tip=\"expert {}: {} of uses\"/>",
        0.03 + 0.97 * share / most, static_cast<double>(i) * width, std::max(width - gap, 0.1), i,
        shown(share, Unit::kShare));
  }
  const std::string label = escape(layer.name);
  return fmt::format(
      "<div class=\"lanerow\"><span>{0}</span><svg class=\"lane\" viewBox=\"0 0 1000 20\" "
      "preserveAspectRatio=\"none\" role=\"img\" aria-label=\"{0}\">{1}</svg><span "
      "class=\"num\">{2}</span></div>",
      label, cells, escape(layer.repeated));
}

}  // namespace

std::string phase_dot(double x, double y, double radius, bool is_prefill, const std::string& tip) {
  const std::string_view small = radius < 3 ? " small" : "";  // with a thinner outline
  if (is_prefill)
    return fmt::format(
        "<path class=\"mark s1{4}\" d=\"M{0} {1}l{2} {2}l-{2} {2}l-{2} -{2}z\" "
        "data-tip=\"{3}\"/>",
        svg::number(x), svg::number(y - radius * 1.3), svg::number(radius * 1.3), escape(tip),
        small);
  return fmt::format("<circle class=\"mark s0{}\" cx=\"{}\" cy=\"{}\" r=\"{}\" data-tip=\"{}\"/>",
                     small, svg::number(x), svg::number(y), svg::number(radius), escape(tip));
}

std::string phase_legend(bool has_decode, bool has_prefill, const std::string& more) {
  std::string out = "<div class=\"legend\">";
  const auto key = [](const std::string& picture, std::string_view name) {
    return fmt::format(
        "<span><svg class=\"key\" viewBox=\"-10 -7 20 14\" aria-hidden=\"true\">{}</svg>{}</span>",
        picture, name);
  };
  if (has_decode) out += key(phase_dot(0, 0, 4, false, ""), "decode: generates tokens");
  if (has_prefill) out += key(phase_dot(0, 0, 4, true, ""), "prefill: reads a prompt");
  return out + more + "</div>";
}

std::string token_timeline(const Json& timeline, const Json& windows) {
  const std::vector<BatchPoint> points = batch_points(timeline);
  if (points.empty()) return {};
  double low = points[0].s, high = low, end_s = 0;
  for (const BatchPoint& point : points) {
    low = std::min(low, point.s);
    high = std::max(high, point.s);
    end_s = std::max(end_s, point.at_s + point.s);
  }
  const BatchTimeAxis axis = batch_time_axis(low, high, 5, true);
  const svg::Box box{.left = 60, .bottom = 220};
  double begin_s = 0;
  std::string time_suffix;
  const auto x_ticks = svg::value_ticks(begin_s, end_s, Unit::kSeconds, 6, time_suffix);
  const svg::Scale1 x{begin_s, end_s, box.left, box.right, false};
  const svg::Scale1 y{axis.low, axis.high, box.bottom, box.top, axis.is_log};
  const std::string shaded = unseen_gaps(windows, points, x, box);
  std::string drawing =
      shaded + svg::y_axis(box, y, axis.ticks) +
      svg::x_axis(box, x, x_ticks, time_suffix + " since the recording began", false);
  std::size_t prefills = 0;
  for (const BatchPoint& point : points) {
    prefills += point.is_prefill ? 1 : 0;
    drawing += phase_dot(
        x.at(point.at_s), y.at(point.s), points.size() > 500 ? 2 : 3, point.is_prefill,
        fmt::format("{}, {} token{}\n{}", point.is_prefill ? "prefill" : "decode", point.tokens,
                    point.tokens == 1 ? "" : "s", shown_short_time(point.s)));
  }
  return svg::figure(
      std::string("Time of each micro-batch") + (axis.is_log ? ", logarithmic" : ""), axis.suffix,
      box.bottom + 42, drawing,
      phase_legend(prefills<points.size(), prefills> 0,
                   shaded.empty() ? "" : "<span><i class=\"unseen\"></i>not observed</span>"));
}

std::string token_histogram(const Json& timeline, const Json& speed) {
  std::vector<double> times;
  for (const BatchPoint& point : batch_points(timeline))
    if (!point.is_prefill) times.push_back(point.s);
  if (times.size() < kTimesLeast) return {};
  const Bins bins(times);
  double low = 0, high = 1.25 * static_cast<double>(bins.most());
  std::string none;
  const auto y_ticks = svg::value_ticks(low, high, Unit::kPlain, 4, none);
  const BatchTimeAxis axis = batch_time_axis(bins.edge(0), bins.edge(kBins), 5, false);
  const svg::Box box{.bottom = 220};
  const svg::Scale1 x{axis.low, axis.high, box.left, box.right, axis.is_log};
  const svg::Scale1 y{low, high, box.bottom, box.top};
  std::string drawing =
      svg::y_axis(box, y, y_ticks) + svg::x_axis(box, x, axis.ticks,
                                                 axis.is_log ? "time of a micro-batch, logarithmic"
                                                             : axis.suffix + " a micro-batch",
                                                 false);
  for (std::size_t i = 0; i < kBins; ++i) {
    if (bins.count(i) == 0) continue;
    const double left = x.at(bins.edge(i)), right = x.at(bins.edge(i + 1));
    const double top = y.at(static_cast<double>(bins.count(i)));
    drawing +=
        chart_rect(left, top, std::max(right - left - 0.6, 1.0), box.bottom - top, "bar s0",
                   fmt::format("{} of {} took {} to {}", bins.count(i), times.size(),
                               shown_short_time(bins.edge(i)), shown_short_time(bins.edge(i + 1))));
  }
  drawing += quantile(speed.at("decode_ms_p50"), "median", true, x, box) +
             quantile(speed.at("decode_ms_p99"), "99 % below", false, x, box);
  return svg::figure("How long a token takes to generate", "micro-batches", box.bottom + 42,
                     drawing, "");
}

std::string cache_curve(const Json& points, const Json& cache) {
  std::vector<std::pair<double, double>> curve;
  for (std::size_t i = 0; i < std::min(points.size(), kBatchesShown); ++i) {
    const auto at = number_in(points.at(i).at(std::size_t{0}));
    const auto cells = number_in(points.at(i).at(std::size_t{1}));
    if (at && cells && *at >= 0 && *cells >= 0 && (curve.empty() || *at >= curve.back().first))
      curve.emplace_back(*at, *cells);
  }
  if (curve.size() < 2 || curve.back().first <= 0) return {};
  const double there_are = std::max(number_in(cache.at("cells")).value_or(0), 0.0);
  double low = 0, most = std::max(there_are, 1.0);
  for (const auto& [at, cells] : curve)
    most = std::max(most, cells);
  const svg::Box box{.left = 60, .bottom = 170};
  std::string suffix, time_suffix;
  const auto y_ticks = svg::value_ticks(low, most, Unit::kPlain, 4, suffix);
  double begin_s = 0, end_s = curve.back().first;
  const auto x_ticks = svg::value_ticks(begin_s, end_s, Unit::kSeconds, 6, time_suffix);
  const svg::Scale1 x{begin_s, end_s, box.left, box.right}, y{low, most, box.bottom, box.top};
  std::string path;
  for (const auto& [at, cells] : curve)
    path += fmt::format("{}{} {}", path.empty() ? "M" : "L", svg::number(x.at(at)),
                        svg::number(y.at(cells)));
  std::string drawing =
      svg::y_axis(box, y, y_ticks) +
      svg::x_axis(box, x, x_ticks, time_suffix + " since the recording began", false) +
      "<path class=\"line s0\" d=\"" + path + "\"/>";
  if (there_are > 0) {
    const double top = y.at(there_are);
    drawing +=
        svg::line(box.left, top, box.right, top, "reference") +
        svg::text(box.left + 6, top + 14, "start", shown(there_are) + " cells in all", "label");
  }
  return svg::figure("Cells in use over time", "cells", box.bottom + 42, drawing, "");
}

std::string layer_bars(const Json& layers) {
  std::vector<std::pair<std::int64_t, double>> rows;
  double most = 0, sum = 0;
  for (std::size_t i = 0; i < std::min(layers.size(), kLayersShown); ++i) {
    const auto ns = number_in(layers.at(i).at(std::size_t{1}));
    if (!ns || *ns < 0) continue;
    rows.emplace_back(layers.at(i).at(std::size_t{0}).as_int(), *ns * 1e-9);
    most = std::max(most, rows.back().second);
    sum += rows.back().second;
  }
  if (rows.size() < 3 || most <= 0) return {};
  const svg::Box box{.left = 60, .bottom = 150};
  double low = 0;
  std::string suffix;
  const auto y_ticks = svg::value_ticks(low, most, Unit::kSeconds, 3, suffix);
  const auto count = static_cast<double>(rows.size());
  const svg::Scale1 x{0, count, box.left, box.right}, y{low, most, box.bottom, box.top};
  std::vector<svg::Tick> x_ticks;
  std::string bars;
  for (std::size_t i = 0; i < rows.size(); ++i) {
    const auto at = static_cast<double>(i);
    const double left = x.at(at), width = x.at(at + 1) - left, top = y.at(rows[i].second);
    bars += chart_rect(
        left + width * 0.1, top, width * 0.8, box.bottom - top, "bar s0",
        fmt::format("layer {}: {}, {} of all layers", rows[i].first,
                    shown_short_time(rows[i].second), shown(rows[i].second / sum, Unit::kShare)));
    x_ticks.push_back({at + 0.5, fmt::format("{}", rows[i].first)});
  }
  return svg::figure(
      "Time by layer", suffix, box.bottom + 42,
      svg::y_axis(box, y, y_ticks) + svg::x_axis(box, x, x_ticks, "layer", false) + bars, "");
}

std::string expert_map(const Json& experts) {
  std::vector<ExpertLayer> layers;
  double most = 0;
  std::size_t columns = 0, cells = 0, read = 0;
  for (; read < std::min(experts.size(), kLayersShown) && cells < kCellsShown; ++read) {
    const Json row = experts.at(read);
    const std::string name = row.at("name").as_string();
    const auto repeated = number_in(row.at("repeated"));
    ExpertLayer layer{number_at_end(name), shortened(name, 40),
                      repeated ? shown(*repeated, Unit::kShare) + " again" : "",
                      expert_shares(row.at("counts"))};
    if (layer.shares.empty()) continue;
    if (layer.number != INT64_MAX) layer.name = fmt::format("layer {}", layer.number);
    most = std::max(most, *std::max_element(layer.shares.begin(), layer.shares.end()));
    columns = std::max(columns, layer.shares.size());
    cells += layer.shares.size();
    layers.push_back(std::move(layer));
  }
  if (layers.empty() || most <= 0) return {};
  std::stable_sort(layers.begin(), layers.end(),
                   [](const auto& a, const auto& b) { return a.number < b.number; });
  std::string out;
  for (const ExpertLayer& layer : layers)
    out += expert_lane(layer, most);
  out += fmt::format(
      "<div class=\"lanerow axisrow\"><span></span><div><span>expert 0</span>"
      "<span>expert {}</span></div><span></span></div>",
      columns - 1);
  return out +
         fmt::format(
             "<div class=\"legend\"><span>never used <i class=\"scale heatscale\"></i>"
             "{} of a layer's uses</span><span>evenly spread: {}</span></div>",
             shown(most, Unit::kShare), shown(1 / static_cast<double>(columns), Unit::kShare)) +
         left_out(experts.size() - std::min(experts.size(), read), "layers");
}

}  // namespace kansoku::exporter
