// SPDX-License-Identifier: Apache-2.0
#include "export/diff_html.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <string_view>
#include <utility>
#include <vector>

#include "export/internal/page.h"
#include "export/report_files.h"

namespace kansoku::exporter {
namespace {

constexpr std::size_t kRowsMax = 200;     // of the table of everything
constexpr std::size_t kLinesMax = 64;     // lines of a list
constexpr std::size_t kFindingsMax = 60;  // rows that changed

std::string text_at(const Json& object, std::string_view key) {
  return object.at(key).as_string();
}
double number_at(const Json& object, std::string_view key) {
  return object.at(key).as_double();
}
bool is_set(const Json& object, std::string_view key) {
  return object.at(key).as_bool();
}

std::string time_text(double ms) {
  const double size = std::abs(ms);
  if (size >= 1000) return fmt::format("{:.2f} s", ms / 1000);
  if (size >= 100) return fmt::format("{:.0f} ms", ms);
  if (size >= 0.1) return fmt::format("{:.2f} ms", ms);
  if (size == 0) return "0";
  return fmt::format("{:.2f} us", ms * 1000);
}

std::string signed_time(double ms) {
  return (ms > 0 ? "+" : "") + time_text(ms);
}

std::string percent(double ratio) {
  return fmt::format("{:+.1f} %", 100 * (ratio - 1));
}

std::string lines_html(const Json& lines, std::string_view css_class) {
  if (lines.size() == 0) return {};
  std::string out = fmt::format("<ul class=\"{}\">", css_class);
  for (std::size_t i = 0; i < std::min(lines.size(), kLinesMax); ++i)
    out += "<li>" + escape(lines.at(i).as_string()) + "</li>";
  return out + "</ul>";
}

std::string side_text(const Json& side) {
  const std::int64_t ranks = side.at("ranks").as_int();
  return fmt::format("{} steps{}", side.at("steps").as_int(),
                     ranks > 1 ? fmt::format(" of {} ranks", ranks) : "");
}

std::string summary_html(const Json& diff) {
  const std::string verdict = text_at(diff, "verdict");
  const std::string css_class = verdict == "changed"           ? "verdict"
                                : verdict == "not_enough_data" ? "verdict unknown"
                                                               : "verdict clean";
  std::string out = fmt::format("<section class=\"{}\"><h1>{}</h1>", css_class,
                                escape(capitalised(text_at(diff, "headline"))));
  if (verdict == "not_enough_data")
    return out + lines_html(diff.at("missing"), "evidence") + "</section>";
  const Json step = diff.at("step_ms");
  out += "<div class=\"figures\">";
  out += figure(time_text(number_at(step, "before")) + " → " + time_text(number_at(step, "after")),
                "a step, before → after");
  if (step.at("ratio").is_number()) {
    out += figure(percent(number_at(step, "ratio")),
                  fmt::format("{} .. {} (95 %){}", percent(number_at(step, "low")),
                              percent(number_at(step, "high")),
                              is_set(step, "significant") ? "" : ", not significant"));
  }
  if (diff.at("queue_ms").is_object()) {
    const Json queue = diff.at("queue_ms");
    out +=
        figure(time_text(number_at(queue, "before")) + " → " + time_text(number_at(queue, "after")),
               "of it, waiting for a processor (left out of all rows)");
  }
  out += figure(side_text(diff.at("before")), "before");
  out += figure(side_text(diff.at("after")), "after");
  return out + "</div>" + lines_html(diff.at("summary"), "evidence") + "</section>";
}

/// The widest interval shown, as a logarithm: all rows share the axis.
double axis_reach(const std::vector<Json>& rows) {
  double reach = std::log(1.05);
  for (const Json& row : rows) {
    const Json call = row.at("call_ms");
    for (const std::string_view key : {"low", "high"}) {
      const double value = number_at(call, key);
      if (value > 0) reach = std::max(reach, std::abs(std::log(value)));
    }
  }
  return std::min(reach, std::log(8.0));
}

/// A whisker around the change of a call, on a logarithmic axis with no change in the middle.
std::string whisker(const Json& call, double reach) {
  const double ratio = number_at(call, "ratio");
  if (!(ratio > 0)) return "<span class=\"empty\">no call to compare</span>";
  const auto x = [&](double value) {
    const double log = value > 0 ? std::log(value) : -reach;
    return 80 + 76 * std::clamp(log / reach, -1.0, 1.0);
  };
  const bool is_sure = is_set(call, "significant");
  return fmt::format(
      "<svg class=\"whisker\" viewBox=\"0 0 160 16\" role=\"img\" aria-label=\"{3}\" "
      "data-tip=\"{3}, 95 %: {4} .. {5}\"><line class=\"axis\" x1=\"80\" x2=\"80\" y1=\"0\" "
      "y2=\"16\"/><line class=\"reach {6}\" x1=\"{0:.1f}\" x2=\"{2:.1f}\" y1=\"8\" "
      "y2=\"8\"/><circle "
      "class=\"dot {6}\" cx=\"{1:.1f}\" cy=\"8\" r=\"4\"/></svg>",
      x(number_at(call, "low")), x(ratio), x(number_at(call, "high")), percent(ratio),
      percent(number_at(call, "low")), percent(number_at(call, "high")),
      !is_sure    ? "unsure"
      : ratio > 1 ? "more"
                  : "less");
}

std::string name_html(const Json& row) {
  std::string tip = text_at(row, "after_name");
  if (tip.empty()) tip = text_at(row, "before_name");
  std::string out = "<b data-tip=\"" + escape(shortened(tip, 400)) + "\">" +
                    escape(text_at(row, "name")) + "</b>";
  if (row.at("rank").is_number())
    out += fmt::format(" <small>on rank {} alone</small>", row.at("rank").as_int());
  if (!text_at(row, "caller").empty())
    out += "<small>called by " + escape(text_at(row, "caller")) + "</small>";
  return out;
}

std::string change_html(const Json& row, double reach) {
  const double more = number_at(row, "lane_after_ms") - number_at(row, "lane_before_ms");
  std::string lines;
  const Json evidence = row.at("evidence");
  for (std::size_t i = 1; i < std::min(evidence.size(), kLinesMax); ++i)
    lines += "<small>" + escape(evidence.at(i).as_string()) + "</small>";
  return "<tr><td>" + name_html(row) + lines + "</td><td class=\"detail\">" +
         escape(text_at(row, "kind")) + "</td><td>" + escape(text_at(row, "what")) +
         "</td><td class=\"num step\">" + time_text(number_at(row, "before_ms")) + " → " +
         time_text(number_at(row, "after_ms")) + "</td><td class=\"num " +
         (more > 0 ? "more" : "less") + "\">" + signed_time(more) + "</td><td class=\"detail\">" +
         whisker(row.at("call_ms"), reach) + "</td></tr>";
}

std::string changes_html(const Json& diff) {
  std::vector<Json> rows;
  std::size_t left_out = 0;
  const Json all = diff.at("rows");
  for (std::size_t i = 0; i < all.size(); ++i) {
    const Json row = all.at(i);
    if (!is_set(row, "significant") || is_set(row, "by_batch")) continue;
    if (rows.size() < kFindingsMax) {
      rows.push_back(row);
    } else {
      ++left_out;
    }
  }
  if (rows.empty()) return {};
  const double reach = axis_reach(rows);
  std::string out =
      "<section><h2>What changed</h2><p class=\"hint\">By its part of a step. The last column "
      "shows "
      "each call at equal shapes with its 95 % interval; the line in the middle is no change.</p>"
      "<div class=\"scroll\"><table><thead><tr><th>name</th><th "
      "class=\"detail\">kind</th><th>what</th>"
      "<th class=\"num\">a step</th><th class=\"num\">more</th><th class=\"detail\">each "
      "call</th></tr></thead><tbody>";
  for (const Json& row : rows)
    out += change_html(row, reach);
  out += "</tbody></table></div>";
  if (left_out > 0) out += fmt::format("<p class=\"hint\">{} more rows in --json</p>", left_out);
  return out + "</section>";
}

struct Part {
  std::string_view name, css_class;
  double ms{0};
};

/// Parts to the left of the middle take less time than before, those to the right more.
std::string lane_bar(const std::vector<Part>& parts, double reach_ms) {
  std::string out =
      "<svg class=\"lane\" viewBox=\"0 0 600 22\" preserveAspectRatio=\"none\" "
      "role=\"img\" aria-label=\"parts of the change\">";
  double left = 300, right = 300;
  for (const Part& part : parts) {
    const double width = 296 * std::abs(part.ms) / reach_ms;
    const double x = part.ms < 0 ? left - width : right;
    (part.ms < 0 ? left : right) += part.ms < 0 ? -width : width;
    out += fmt::format(
        "<rect class=\"{}\" x=\"{:.2f}\" y=\"3\" width=\"{:.2f}\" height=\"16\" "
        "data-tip=\"{}: {}\"/>",
        part.css_class, x, width, part.name, signed_time(part.ms));
  }
  return out + "<line class=\"axis\" x1=\"300\" x2=\"300\" y1=\"0\" y2=\"22\"/></svg>";
}

std::string lanes_html(const Json& diff) {
  const Json lanes = diff.at("lanes");
  if (lanes.size() == 0 || text_at(diff, "verdict") != "changed") return {};
  double reach_ms = 1e-9;
  std::vector<std::pair<std::string, std::vector<Part>>> bars;
  for (std::size_t i = 0; i < lanes.size(); ++i) {
    const Json lane = lanes.at(i);
    std::vector<Part> parts{{"explained above", "explained", number_at(lane, "explained_ms")},
                            {"rows without a sure change", "others", number_at(lane, "others_ms")},
                            {"outside of all rows", "uncovered", number_at(lane, "uncovered_ms")}};
    double more = 0, less = 0;
    for (const Part& part : parts)
      (part.ms > 0 ? more : less) += std::abs(part.ms);
    reach_ms = std::max({reach_ms, more, less});
    bars.emplace_back(text_at(lane, "lane"), std::move(parts));
  }
  std::string out =
      "<section><h2>How far it is explained</h2><p class=\"hint\">Each line is the change of a "
      "step "
      "by itself: the same milliseconds seen on the device, on the main thread, in its samples. "
      "Left "
      "of the middle is less time, right of it more.</p>";
  for (const auto& [name, parts] : bars) {
    double sum = 0;
    for (const Part& part : parts)
      sum += part.ms;
    out +=
        fmt::format("<div class=\"lanerow\"><span>{}</span>{}<span class=\"num\">{}</span></div>",
                    escape(name), lane_bar(parts, reach_ms), signed_time(sum));
  }
  return out +
         "<div class=\"legend\"><span><i class=\"explained\"></i>explained above</span><span><i "
         "class=\"others\"></i>in rows without a sure change</span><span><i "
         "class=\"uncovered\"></i>outside of all rows (idle device, code without calls)</span>"
         "</div></section>";
}

std::string all_html(const Json& diff) {
  const Json rows = diff.at("rows");
  if (rows.size() == 0) return {};
  std::string out =
      "<section><h2>All rows</h2><details><summary>" + std::to_string(rows.size()) +
      " kernels, operators, calls and functions</summary><div class=\"scroll\"><table><thead><tr>"
      "<th>name</th><th>kind</th><th class=\"num\">a step</th><th class=\"num\">calls a step</th>"
      "<th class=\"num\">each call</th><th class=\"num\">p</th></tr></thead><tbody>";
  for (std::size_t i = 0; i < std::min(rows.size(), kRowsMax); ++i) {
    const Json row = rows.at(i), call = row.at("call_ms"), calls = row.at("calls");
    out += "<tr><td>" + escape(text_at(row, "name")) + "</td><td>" + escape(text_at(row, "kind")) +
           "</td><td class=\"num\">" + time_text(number_at(row, "before_ms")) + " → " +
           time_text(number_at(row, "after_ms")) + "</td><td class=\"num\">" +
           fmt::format("{:.4g} → {:.4g}", number_at(calls, "before"), number_at(calls, "after")) +
           "</td><td class=\"num\">" +
           (call.at("ratio").is_number() ? percent(number_at(call, "ratio")) : std::string("-")) +
           "</td><td class=\"num\">" +
           (call.at("p").is_number() ? fmt::format("{:.2g}", number_at(call, "p"))
                                     : std::string("not tested")) +
           "</td></tr>";
  }
  out += "</tbody></table></div>";
  if (rows.size() > kRowsMax)
    out += fmt::format("<p class=\"hint\">{} more rows in --json</p>", rows.size() - kRowsMax);
  return out + "</details></section>";
}

std::string recordings_html(const Json& diff) {
  std::string out = "<section><h2>The recordings</h2><dl>";
  for (const std::string_view side : {"before", "after"}) {
    const Json files = diff.at(side).at("files");
    out += fmt::format("<dt>{}</dt><dd>", side);
    for (std::size_t i = 0; i < std::min(files.size(), kLinesMax); ++i)
      out += (i > 0 ? "<br>" : "") + escape(files.at(i).as_string());
    out += "</dd>";
  }
  out += "<dt>steps found by</dt><dd>" + escape(text_at(diff.at("after"), "found_by")) + "</dd>";
  out += fmt::format(
      "<dt>tests</dt><dd>{} comparisons; at most {:.0f} % of equal runs show any "
      "change (Holm); {} rows too short or too rare to be tested</dd></dl>",
      diff.at("comparisons").as_int(), 100 * number_at(diff, "family_error"),
      diff.at("untested").as_int());
  return out + lines_html(diff.at("notes"), "evidence") + "</section>";
}

}  // namespace

Result<std::string> diff_html(const Json& comparison) {
  const std::string schema = comparison.at("schema").as_string();
  if (schema != "kansoku.diff/1") {
    return Error{Code::kUnsupported,
                 "write report: schema \"" + shortened(schema, 100) + "\" is not kansoku.diff/1",
                 "give the JSON of kansoku diff"};
  }
  const std::string title = capitalised(text_at(comparison, "headline"));
  std::string body;
  for (const std::string& part :
       {summary_html(comparison), changes_html(comparison), lanes_html(comparison),
        all_html(comparison), recordings_html(comparison)})
    body += (body.empty() ? "" : "\n") + part;
  return fill(kPage, {{"title", escape(shortened(title, 200) + " - Kansoku")},
                      {"css", std::string(files::kCss)},
                      {"more_css", std::string(files::kDiffCss)},
                      {"what", "comparison of recordings"},
                      {"body", std::move(body)},
                      {"js", std::string(files::kSimulationJs)}});
}

}  // namespace kansoku::exporter
