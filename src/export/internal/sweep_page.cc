// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "export/internal/chart.h"
#include "export/internal/metrics.h"
#include "export/internal/page.h"
#include "export/internal/pages.h"
#include "export/internal/sweep.h"
#include "export/internal/tables.h"

namespace kansoku::exporter {
namespace {

constexpr std::size_t kTableMetricsMax = 5, kMissingNamedMax = 20;

Unit difference_unit(Unit unit) {
  return unit == Unit::kShare ? Unit::kPoints : unit;
}

// The difference of a variant to the first one, with the unit of the metric itself.
Figure difference_of(const Sweep& sweep, const Sweep::Variant& variant, const std::string& metric) {
  Figure out = sweep.difference(variant.index, metric);
  out.unit = difference_unit(variant.figure(metric).unit);
  return out;
}

bool is_clear(const Figure& difference) {
  return difference.has_interval() && (difference.low > 0 || difference.high < 0);
}

std::string name_of(const Sweep& sweep, const Sweep::Variant& variant) {
  return fmt::format("{}: {}", variant.index, sweep.label(variant.values));
}

const Sweep::Variant* best_of(const Sweep& sweep, const MainMetric& metric) {
  const Sweep::Variant* out = nullptr;
  for (const Sweep::Variant& variant : sweep.variants) {
    const Figure& figure = variant.figure(metric.name);
    if (!figure.known) continue;
    const double sign = metric.better == Better::kHigher ? -1 : 1;
    if (out == nullptr || sign * figure.mean < sign * out->figure(metric.name).mean) out = &variant;
  }
  return out;
}

struct Headline {
  std::string heading;
  std::vector<std::string> leads;
  std::vector<Card> cards;
  bool good{false};
};

std::string against_first(const Sweep& sweep, const Sweep::Variant& best,
                          const MainMetric& metric) {
  const Sweep::Variant& first = sweep.variants.front();
  if (&best == &first) return "That is variant 0: no other one is better in this.";
  const Figure difference = difference_of(sweep, best, metric.name);
  std::string out = fmt::format("Variant {} ({}) has {}", first.index, sweep.label(first.values),
                                shown(first.figure(metric.name)));
  if (!difference.known) return out + "; the file does not compare them pair by pair.";
  out += fmt::format("; the difference is {}", shown_difference(difference.mean, difference.unit));
  if (difference.has_interval())
    out += fmt::format(" (paired, 95 % interval {}): {}", interval_of(difference),
                       is_clear(difference) ? "clear." : "not clear, it may be chance.");
  return out;
}

Headline headline_of(const Sweep& sweep, const std::vector<MainMetric>& metrics) {
  Headline out;
  const auto judged = std::find_if(metrics.begin(), metrics.end(), [](const MainMetric& metric) {
    return metric.better != Better::kNeither;
  });
  if (judged == metrics.end()) {
    out.heading = fmt::format("{} variants, and no main figure differs", sweep.variants.size());
    return out;
  }
  const Sweep::Variant* const best = best_of(sweep, *judged);
  if (best == nullptr) return out;
  const std::string words = in_words(judged->name);
  out.heading =
      fmt::format("{} {}: {}, with {}", judged->better == Better::kLower ? "Lowest" : "Highest",
                  words, shown(best->figure(judged->name)), sweep.label(best->values));
  out.leads.push_back(against_first(sweep, *best, *judged));
  for (const MainMetric& metric : metrics) {
    if (metric.better == Better::kNeither || out.cards.size() == 4) continue;
    const Sweep::Variant* const variant = best_of(sweep, metric);
    if (variant == nullptr) continue;
    Card card = card_of(variant->figure(metric.name), in_words(metric.name));
    card.note = (metric.better == Better::kLower ? "lowest" : "highest") +
                fmt::format(", variant {}", variant->index);
    out.cards.push_back(std::move(card));
  }
  return out;
}

std::vector<std::string> sweep_remarks(const Sweep& sweep) {
  std::vector<std::string> out;
  const std::vector<std::size_t> missing = sweep.missing();
  if (!missing.empty()) {
    std::string names;
    for (std::size_t i = 0; i < std::min(missing.size(), kMissingNamedMax); ++i)
      names += fmt::format("{}{} ({})", i > 0 ? "; " : "", missing[i],
                           sweep.label(sweep.values_of(missing[i])));
    if (missing.size() > kMissingNamedMax)
      names += fmt::format("; and {} more", missing.size() - kMissingNamedMax);
    out.push_back(
        fmt::format("{} of {} variants are missing: {}.", missing.size(), sweep.total, names));
  }
  if (sweep.variants_left_out > 0)
    out.push_back(fmt::format("{} variants beyond the first {} were not read.",
                              sweep.variants_left_out, Sweep::kVariantsMax));
  const auto lone = std::count_if(sweep.variants.begin(), sweep.variants.end(),
                                  [](const auto& variant) { return variant.replications == 1; });
  if (lone > 0)
    out.push_back(
        fmt::format("{} variants have one replication: it shows no random variation, so there are "
                    "no intervals. Run more with --replications 10.",
                    lone));
  const auto stopped = std::count_if(sweep.variants.begin(), sweep.variants.end(),
                                     [](const auto& variant) { return variant.stopped; });
  if (stopped > 0) out.push_back(fmt::format("{} variants were stopped early.", stopped));
  return out;
}

std::string row_plot(const Sweep& sweep, const MainMetric& metric) {
  RowChart chart;
  chart.title = capitalised(in_words(metric.name));
  chart.series = {chart.title};
  for (const Sweep::Variant& variant : sweep.variants) {
    const Figure& figure = variant.figure(metric.name);
    if (figure.known) chart.unit = figure.unit;
    chart.rows.push_back({name_of(sweep, variant), {figure}});
  }
  const Figure& first = sweep.variants.front().figure(metric.name);
  if (first.known) {
    chart.reference = first.mean;
    chart.reference_name = fmt::format("variant {}", sweep.variants.front().index);
  }
  return draw(chart);
}

std::string value_plot(const Sweep& sweep, const MainMetric& metric, const NumericAxes& axes) {
  ValueChart chart;
  chart.title = capitalised(in_words(metric.name));
  chart.x_title = sweep.axes[axes.x].name;
  const std::vector<std::string> lines =
      axes.lines ? sweep.axes[*axes.lines].values : std::vector<std::string>{""};
  for (const std::string& line : lines) {
    ValueChart::Series series;
    if (axes.lines) series.name = shortened(sweep.axes[*axes.lines].name, 40) + " = " + line;
    for (const Sweep::Variant& variant : sweep.variants) {
      if (axes.lines && variant.values[*axes.lines] != line) continue;
      const auto x = number_from(variant.values[axes.x]);
      const Figure& figure = variant.figure(metric.name);
      if (!x || !figure.known) continue;
      chart.unit = figure.unit;
      series.points.emplace_back(*x, figure);
    }
    std::stable_sort(series.points.begin(), series.points.end(),
                     [](const auto& a, const auto& b) { return a.first < b.first; });
    chart.series.push_back(std::move(series));
  }
  return draw(chart);
}

std::string plots(const Sweep& sweep, const std::vector<MainMetric>& metrics, std::size_t others) {
  std::string out;
  const auto axes = numeric_axes(sweep);
  for (const MainMetric& metric : metrics)
    out += axes ? value_plot(sweep, metric, *axes) : row_plot(sweep, metric);
  if (out.empty())
    return section("Pictures", "", empty_note("No main figure differs between variants."));
  return section(
      "The figures that differ most",
      "Dots are means over the replications of a variant, whiskers their 95 % intervals.",
      "<div class=\"plots\">" + out + "</div>" + left_out(others, "figures that differ"));
}

std::vector<std::string> heads(const Sweep& sweep, const std::vector<MainMetric>& metrics) {
  std::vector<std::string> out{"#"};
  for (const Sweep::Axis& axis : sweep.axes)
    out.push_back(axis.name);
  for (std::size_t i = 0; i < std::min(metrics.size(), kTableMetricsMax); ++i)
    out.push_back(in_words(metrics[i].name));
  return out;
}

std::string keys_of(const Sweep::Variant& variant) {
  std::string out = fmt::format("<td>{}</td>", variant.index);
  for (const std::string& value : variant.values)
    out += "<td class=\"key\">" + escape(shortened(value, 40)) + "</td>";
  return out;
}

std::string variants_table(const Sweep& sweep, const std::vector<MainMetric>& metrics) {
  if (sweep.variants.empty())
    return section("Variants", "", empty_note("The file has no variants."));
  std::string rows;
  const std::size_t count = std::min(sweep.variants.size(), kTableRowsMax);
  for (std::size_t i = 0; i < count; ++i) {
    rows += "<tr>" + keys_of(sweep.variants[i]);
    for (std::size_t k = 0; k < std::min(metrics.size(), kTableMetricsMax); ++k)
      rows += figure_cell(sweep.variants[i].figure(metrics[k].name));
    rows += "</tr>";
  }
  return section("Variants", "Means, and below them their 95 % intervals.",
                 table(table_head(heads(sweep, metrics), 1 + sweep.axes.size()), rows) +
                     left_out(sweep.variants.size() - count, "variants"));
}

std::string difference_cell(const Sweep& sweep, const Sweep::Variant& variant,
                            const std::string& metric) {
  const Figure difference = difference_of(sweep, variant, metric);
  if (!difference.known) return number_cell("\u2013");
  const Figure& first = sweep.variants.front().figure(metric);
  std::string value = escape(shown_difference(difference.mean, difference.unit));
  if (first.known && first.mean > 0 && difference.unit != Unit::kPoints && difference.mean != 0)
    value += fmt::format(" ({}{} %)", difference.mean > 0 ? "+" : "",
                         shown(100 * difference.mean / first.mean));
  std::string note;
  if (difference.has_interval()) note = "<small>" + escape(interval_of(difference)) + "</small>";
  std::string tag;
  if (difference.mean == 0 && !difference.has_interval())
    tag = "<span class=\"tag none\">the same</span>";
  else if (is_clear(difference))
    tag = "<span class=\"tag good\">clear</span>";
  else
    tag = "<span class=\"tag none\">not clear</span>";
  return "<td class=\"num\">" + value + note + tag + "</td>";
}

std::string differences(const Sweep& sweep, const std::vector<MainMetric>& metrics) {
  constexpr std::string_view kTitle = "Differences to variant 0";
  if (!sweep.compared)
    return section(
        kTitle, "",
        empty_note(sweep.total > 1 && !sweep.missing().empty()
                       ? "Not compared: variants are missing. Join the parts with kansoku "
                         "simulate merge."
                       : "The file has no comparisons."));
  if (metrics.empty()) return section(kTitle, "", empty_note("No main figure differs."));
  std::string rows;
  std::size_t count = 0;
  for (std::size_t i = 1; i < sweep.variants.size(); ++i) {
    if (!sweep.differences.contains(sweep.variants[i].index)) continue;
    if (++count > kTableRowsMax) continue;
    rows += "<tr>" + keys_of(sweep.variants[i]);
    for (std::size_t k = 0; k < std::min(metrics.size(), kTableMetricsMax); ++k)
      rows += difference_cell(sweep, sweep.variants[i], metrics[k].name);
    rows += "</tr>";
  }
  return section(
      kTitle,
      "Replication by replication: the same chance in both, so that only the change remains. "
      "Clear: "
      "the 95 % interval leaves out 0. Of many differences that are none, 1 in 20 looks clear.",
      table(table_head(heads(sweep, metrics), 1 + sweep.axes.size()), rows) +
          left_out(count - std::min(count, kTableRowsMax), "variants"));
}

std::string sweep_facts(const Json& untrusted, const Sweep& sweep) {
  Facts out;
  out.add("experiment", untrusted.at("name").as_string());
  for (const Sweep::Axis& axis : sweep.axes) {
    std::string values;
    for (const std::string& value : axis.values)
      values += (values.empty() ? "" : ", ") + value;
    out.add(axis.key, values);
  }
  out.add("variants", sweep.total > 0 ? fmt::format("{} of {}", sweep.variants.size(), sweep.total)
                                      : std::to_string(sweep.variants.size()));
  if (!sweep.variants.empty() && sweep.variants.front().replications > 0)
    out.add("replications of each", std::to_string(sweep.variants.front().replications));
  return section("The sweep", "", out.html());
}

}  // namespace

Page sweep_page(const Json& untrusted) {
  const Sweep sweep = read_sweep(untrusted);
  std::size_t others = 0;
  const std::vector<MainMetric> metrics = main_metrics(sweep, others);
  Headline headline = headline_of(sweep, metrics);
  if (sweep.variants.empty()) headline.heading = "A sweep without variants";
  const std::string name = untrusted.at("name").as_string();
  Page out;
  out.title = (name.empty() ? "" : name + ": ") + headline.heading;
  out.body = verdict(headline.heading, headline.leads,
                     headline.cards.empty() ? "" : cards(headline.cards), headline.good) +
             warnings(sweep_remarks(sweep));
  if (!sweep.variants.empty()) out.body += plots(sweep, metrics, others);
  out.body +=
      variants_table(sweep, metrics) + differences(sweep, metrics) + sweep_facts(untrusted, sweep);
  return out;
}

}  // namespace kansoku::exporter
