// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <limits>
#include <utility>

#include "export/internal/chart.h"
#include "export/internal/page.h"
#include "export/internal/pages.h"
#include "export/internal/tables.h"

namespace kansoku::exporter {
namespace {

constexpr std::size_t kFamiliesMax = 40, kStatisticsMax = 100, kPairsMax = 200;
constexpr double kKeptWithin = 0.25;  // of the recorded value: docs/formats/model.md

std::string family_words(std::string name) {
  std::replace(name.begin(), name.end(), '_', ' ');
  return name;
}

Figure figure_in(const Json& row, std::string_view key, Unit unit = Unit::kPlain) {
  return figure_from(Json::object().set("mean", row.at(key)), std::string(key), unit);
}

struct Statistic {
  std::string name;
  Unit unit{Unit::kPlain};
  Figure source, synthetic;
  bool has_verdict{false}, kept{false};
};

struct FamilyWords {
  std::string_view name, words;
};
constexpr std::array<FamilyWords, 14> kFamilyWords{
    {{"jobs", "jobs"},
     {"per_hour_mean", "jobs an hour, mean"},
     {"per_hour_max", "jobs an hour, most"},
     {"index_of_dispersion", "index of dispersion (Poisson: 1)"},
     {"gap_mean_s", "gap between jobs, mean"},
     {"gap_cv", "gaps, standard deviation / mean"},
     {"zero_gap_share", "jobs at the same moment"},
     {"log_gap_autocorrelation_1", "a gap and the next one, correlation"},
     {"log_gap_autocorrelation_10", "a gap and the tenth after it"},
     {"hour_of_week_variance_share", "explained by the hour of the week"},
     {"session_jobs_mean", "jobs of a session, mean"},
     {"duration_intraclass", "durations alike within a session"},
     {"same_gpus_share", "same GPUs as the job before"},
     {"offered_gpus", "GPUs asked for, mean"}}};

std::string statistic_words(const std::string& name) {
  for (const FamilyWords& row : kFamilyWords)
    if (row.name == name) return std::string(row.words);
  return family_words(name);
}

std::vector<Statistic> statistics_of(const Json& arrivals, std::size_t& cut) {
  std::vector<Statistic> out;
  const Json list = arrivals.at("statistics");
  for (const std::string& name : list.keys()) {
    if (out.size() == kStatisticsMax) {
      ++cut;
      continue;
    }
    const Json row = list.at(name);
    Statistic each;
    each.unit = name.ends_with("_s")       ? Unit::kSeconds
                : name.ends_with("_share") ? Unit::kShare
                                           : Unit::kPlain;
    each.name = statistic_words(name);
    each.source = figure_in(row, "source", each.unit);
    each.synthetic = figure_in(row, "synthetic", each.unit);
    each.has_verdict = row.at("kept").is_bool();
    each.kept = row.at("kept").as_bool();
    out.push_back(std::move(each));
  }
  return out;
}

std::pair<std::size_t, std::size_t> kept_of(const std::vector<Statistic>& list) {
  std::pair<std::size_t, std::size_t> out;
  for (const Statistic& each : list) {
    out.first += each.has_verdict && each.kept ? 1 : 0;
    out.second += each.has_verdict ? 1 : 0;
  }
  return out;
}

struct Fit {
  Json duration, chosen, families, arrivals;
  std::vector<Statistic> statistics;
  std::size_t statistics_cut{0};
  std::size_t kept{0}, judged{0};
  Json best;  // the row of the chosen family
};

Fit read_fit(const Json& untrusted) {
  Fit out;
  out.duration = untrusted.at("duration");
  out.chosen = out.duration.at("chosen");
  out.families = out.duration.at("families");
  out.arrivals = untrusted.at("arrivals");
  out.statistics = statistics_of(out.arrivals, out.statistics_cut);
  std::tie(out.kept, out.judged) = kept_of(out.statistics);
  const std::string family = out.chosen.at("family").as_string();
  for (std::size_t i = 0;
       out.families.is_array() && i < std::min(out.families.size(), kFamiliesMax); ++i) {
    const Json row = out.families.at(i);
    if (out.best.is_null() && row.at("family").as_string() == family) out.best = row;
  }
  return out;
}

std::string head_section(const Json& untrusted, const Fit& fit, std::string& heading) {
  const std::string family = family_words(fit.chosen.at("family").as_string());
  std::vector<std::string> parts;
  if (!family.empty()) parts.push_back("durations are best described by a " + family);
  if (fit.judged > 0)
    parts.push_back(
        fmt::format("the model keeps {} of {} figures of the arrivals", fit.kept, fit.judged));
  for (const std::string& part : parts)
    heading += (heading.empty() ? "" : "; ") + part;
  heading = heading.empty() ? "A fit without a chosen model" : capitalised(heading);
  std::vector<Card> list;
  if (const auto jobs = number_in(untrusted.at("jobs"))) list.push_back({shown(*jobs), "jobs", ""});
  const auto pair = [&](std::string_view key, const std::string& name) {
    const Figure model = figure_in(fit.chosen.at(key), "model", Unit::kSeconds);
    const Figure data = figure_in(fit.chosen.at(key), "data", Unit::kSeconds);
    if (model.known && data.known) list.push_back({shown(model), name, "recorded " + shown(data)});
  };
  pair("mean", "mean duration of the model");
  pair("p99", "1 in 100 takes longer");
  if (const Figure ks = figure_in(fit.best, "ks_held_out"); ks.known)
    list.push_back({shown(ks), "KS distance, unseen jobs", "0: the same, 1: nothing in common"});
  if (fit.judged > 0)
    list.push_back({fmt::format("{} of {}", fit.kept, fit.judged), "figures of the arrivals kept",
                    "within 25 % of the recorded"});
  const std::string source = untrusted.at("source").as_string();
  return verdict(heading, {source.empty() ? "" : "Fitted to " + shortened(source, 200) + "."},
                 cards(list), fit.judged > 0 && fit.kept == fit.judged);
}

std::vector<std::string> fit_remarks(const Fit& fit) {
  std::vector<std::string> out;
  const Figure between = figure_in(fit.duration, "ks_between_parts");
  if (between.known && between.mean > 0.1)
    out.push_back(
        fmt::format("The first and the last part of the trace differ from each other by KS {}: a "
                    "model that describes one closely misses the other by about as much.",
                    shown(between)));
  const Figure censored = figure_in(fit.duration, "censored_share", Unit::kShare);
  if (censored.known && censored.mean > 0)
    out.push_back(shown(censored) +
                  " of the durations were cut off by the end of the trace: they are lower bounds.");
  if (fit.best.at("mean_infinite").as_bool())
    out.emplace_back("The chosen family has no finite mean; its cap decides the load.");
  std::string lost;
  for (const Statistic& each : fit.statistics)
    if (each.has_verdict && !each.kept) lost += (lost.empty() ? "" : "; ") + each.name;
  if (!lost.empty()) out.push_back("The model loses: " + lost + ".");
  return out;
}

std::string qq_plot(const Fit& fit) {
  PairChart chart;
  chart.title = "Durations, quantile by quantile";
  chart.x_title = "recorded";
  chart.y_title = "model";
  chart.unit = Unit::kSeconds;
  const Json list = fit.chosen.at("qq");
  if (!list.is_array() || list.size() == 0)
    return section("Pictures", "", empty_note("The file has no quantiles of the chosen model."));
  const std::size_t count = std::min(list.size(), kPairsMax);
  for (std::size_t i = 0; i < count; ++i) {
    const auto data = number_in(list.at(i).at("data")), model = number_in(list.at(i).at("model"));
    if (!data || !model) continue;
    chart.points.push_back({*data, *model, fmt::format("quantile {} of {}", i + 1, list.size())});
  }
  return draw(chart);
}

std::string families_plot(const Fit& fit) {
  RowChart chart;
  chart.title = "Distance of each family from the recorded durations";
  chart.axis_title = "KS: 0 the same, 1 nothing in common";
  chart.series = {"all jobs", "unseen, at random", "unseen, later"};
  chart.from_zero = chart.one_line = true;
  for (std::size_t i = 0;
       fit.families.is_array() && i < std::min(fit.families.size(), kFamiliesMax); ++i) {
    const Json row = fit.families.at(i);
    chart.rows.push_back({shortened(family_words(row.at("family").as_string()), 24),
                          {figure_in(row, "ks"), figure_in(row, "ks_held_out"),
                           figure_in(row, "ks_held_out_temporal")}});
  }
  return draw(chart);
}

std::string families_table(const Fit& fit) {
  const std::string chosen = fit.chosen.at("family").as_string();
  std::string rows;
  const std::size_t size = fit.families.is_array() ? fit.families.size() : 0;
  if (size == 0) return empty_note("The file has no families.");
  for (std::size_t i = 0; i < std::min(size, kFamiliesMax); ++i) {
    const Json row = fit.families.at(i);
    const std::string name = row.at("family").as_string();
    const bool is_chosen = name == chosen && !name.empty();
    std::string tags = is_chosen ? " <span class=\"tag good\">chosen</span>" : "";
    if (row.at("mean_infinite").as_bool()) tags += " <span class=\"tag bad\">infinite mean</span>";
    rows += fmt::format("<tr{}><td class=\"name\">{}{}</td>", is_chosen ? " class=\"chosen\"" : "",
                        escape(shortened(family_words(name), 60)), tags);
    Figure aic = figure_in(row, "aic");
    rows += number_cell(aic.known ? with_decimals(aic.mean, 0) : "\u2013");
    for (const char* key : {"ks", "ks_held_out", "ks_held_out_temporal"})
      rows += figure_cell(figure_in(row, key));
    rows += "</tr>";
  }
  return table(
             table_head(
                 {"family", "AIC", "KS, all jobs", "KS, unseen at random", "KS, unseen later"}, 1),
             rows) +
         left_out(size - std::min(size, kFamiliesMax), "families");
}

std::string durations(const Fit& fit) {
  if (!fit.duration.is_object())
    return section("Durations", "", empty_note("The file has no fit of durations."));
  return section(
      "Durations",
      "Quantile by quantile, a model that describes the recording lies on the dashed line. AIC: "
      "lower is "
      "better, and only differences count. Unseen: judged on jobs that were not fitted, "
      "drawn at random, or the last ones of the trace.",
      "<div class=\"plots\">" + qq_plot(fit) + families_plot(fit) + "</div>" + families_table(fit));
}

std::string ratio_plot(const Fit& fit) {
  RowChart chart;
  chart.title = "Model / recorded";
  chart.axis_title = "1: as recorded; shaded: kept";
  chart.series = {"model / recorded"};
  chart.logarithmic = true;
  chart.band = {1 - kKeptWithin, 1 + kKeptWithin};
  chart.reference = 1;
  for (const Statistic& each : fit.statistics) {
    Figure ratio;
    if (each.source.known && each.synthetic.known && each.source.mean > 0 &&
        each.synthetic.mean / each.source.mean < 1e9) {
      ratio.known = true;
      ratio.mean = ratio.low = ratio.high = each.synthetic.mean / each.source.mean;
    }
    chart.rows.push_back({each.name, {ratio}});
  }
  return draw(chart);
}

std::string hours_plot(const Json& hours) {
  RowChart chart;
  chart.title = "Closest family, by hour of the week";
  chart.axis_title = "hours";
  chart.series = {"hours"};
  chart.bars = true;
  const Json counts = hours.at("families");
  for (const std::string& name : counts.keys()) {
    if (chart.rows.size() == kFamiliesMax) break;
    chart.rows.push_back({shortened(family_words(name), 24), {figure_in(counts, name)}});
  }
  std::string out = draw(chart);
  const Figure fitted = figure_in(hours, "hours"), ks = figure_in(hours, "ks_median");
  if (fitted.known)
    out += empty_note(fmt::format("{} of 168 hours had enough gaps for a fit of their own{}.",
                                  shown(fitted), ks.known ? "; median KS " + shown(ks) : ""));
  return out;
}

std::string hours_section(const Json& untrusted) {
  const Json hours = untrusted.at("hours_of_week");
  constexpr std::string_view kTitle = "Hours of the week";
  if (!hours.is_object())
    return section(kTitle, "",
                   empty_note("The trace does not say at which hour of the week it begins."));
  return section(kTitle, "Gaps between arrivals were fitted for each of the 168 hours of a week.",
                 hours_plot(hours));
}

/// Mean arrivals in each hour of the week, recorded and drawn; empty if the file has none.
std::string week_plot(const Json& arrivals) {
  const Json profile = arrivals.at("per_hour_of_week");
  TimeChart chart;
  chart.title = "Arrivals an hour over the week, from Monday 0:00";
  chart.step_s = 3600;
  for (const auto& [key, name] :
       {std::pair("source", "recorded"), std::pair("synthetic", "model")}) {
    const Json values = profile.at(key);
    TimeChart::Line line{name, {}};
    for (std::size_t i = 0; i < std::min<std::size_t>(values.size(), 168); ++i)
      line.values.push_back(values.at(i).as_double(std::numeric_limits<double>::quiet_NaN()));
    if (!line.values.empty()) chart.lines.push_back(std::move(line));
  }
  return chart.lines.empty() ? "" : draw(chart);
}

std::string arrivals(const Fit& fit) {
  if (fit.statistics.empty())
    return section("Arrivals", "", empty_note("The file has no statistics of the arrivals."));
  std::string rows;
  for (const Statistic& each : fit.statistics) {
    std::string tag;
    if (each.has_verdict)
      tag = each.kept ? "<span class=\"tag good\">kept</span>"
                      : "<span class=\"tag bad\">lost</span>";
    rows += "<tr>" + text_cell(each.name) + figure_cell(each.source) + figure_cell(each.synthetic) +
            "<td class=\"num\">" + tag + "</td></tr>";
  }
  const std::string kind = family_words(fit.arrivals.at("kind").as_string());
  return section("Arrivals" + (kind.empty() ? "" : " as " + shortened(kind, 60)),
                 "One stream drawn from the model, as long as the recording. Kept: within 25 % of "
                 "the recorded value.",
                 "<div class=\"plots\">" + ratio_plot(fit) + week_plot(fit.arrivals) + "<div>" +
                     table(table_head({"figure", "recorded", "model", ""}, 1), rows) +
                     left_out(fit.statistics_cut, "figures") + "</div></div>");
}

std::string fit_facts(const Json& untrusted, const Fit& fit) {
  Facts out;
  out.add("trace", untrusted.at("source").as_string());
  const auto number = [&](std::string_view name, const Json& value, Unit unit = Unit::kPlain) {
    if (const auto read_fit = number_in(value)) out.add(name, shown(*read_fit, unit));
  };
  number("jobs", untrusted.at("jobs"));
  number("durations", fit.duration.at("values"));
  number("kept back for judging", fit.duration.at("held_out"), Unit::kShare);
  number("longest duration of the model", fit.chosen.at("cap"), Unit::kSeconds);
  number("span of the recording", fit.arrivals.at("span_s"), Unit::kSeconds);
  number("seed", untrusted.at("seed"));
  return section("The fit", "", out.html());
}

}  // namespace

Page fit_page(const Json& untrusted) {
  const Fit fit = read_fit(untrusted);
  Page out;
  std::string heading;
  const std::string head = head_section(untrusted, fit, heading);
  out.title = heading;
  out.body = head + warnings(fit_remarks(fit)) + durations(fit) + arrivals(fit) +
             hours_section(untrusted) + fit_facts(untrusted, fit);
  return out;
}

}  // namespace kansoku::exporter
