// SPDX-License-Identifier: Apache-2.0
#include "export/html.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <string_view>
#include <utility>
#include <vector>

#include "common/text.h"
#include "export/internal/page.h"
#include "export/report_files.h"

namespace kansoku::exporter {
namespace {

constexpr std::size_t kRanksMax = 1024;
constexpr std::size_t kColumnsMax = 400;
constexpr std::size_t kListMax = 64;  // findings, evidence lines, frames shown

// JSON inside a script element: no '<' can close the element or open a comment, no line separator
// can end a line.
std::string script_safe(std::string_view json) {
  std::string out;
  for (std::size_t i = 0; i < json.size(); ++i) {
    const std::string_view rest = json.substr(i);
    if (json[i] == '<') {
      out += "\\u003c";
    } else if (rest.starts_with("\xe2\x80\xa8") || rest.starts_with("\xe2\x80\xa9")) {
      out += rest[2] == '\xa8' ? "\\u2028" : "\\u2029";
      i += 2;
    } else {
      out += json[i];
    }
  }
  return out;
}

std::string text_of(const Json& object, std::string_view key) {
  return object.at(key).as_string();
}
double number_of(const Json& object, std::string_view key) {
  return object.at(key).as_double();
}

std::string milliseconds(double value) {
  return fmt::format("{:.{}f} ms", value, value >= 100 ? 0 : 1);
}

// "rank 2", "ranks 0, 1 and 3".
std::string rank_list(const Json& ranks) {
  const std::size_t count = std::min(ranks.size(), kListMax);
  std::string out = ranks.size() == 1 ? "rank " : "ranks ";
  for (std::size_t i = 0; i < count; ++i) {
    if (i > 0) out += i + 1 == count ? " and " : ", ";
    out += std::to_string(ranks.at(i).as_int());
  }
  if (ranks.size() > count) out += fmt::format(" and {} more", ranks.size() - count);
  return out;
}

std::string place_of(const Json& finding) {
  std::string function = text_of(finding, "function");
  if (function.empty()) return {};
  const std::string file(base_name(text_of(finding, "file")));
  const std::int64_t line = finding.at("line").as_int();
  if (file.empty()) return function;
  return line > 0 ? fmt::format("{} ({}:{})", function, file, line)
                  : fmt::format("{} ({})", function, file);
}

/// Told by a device's work; its first line of evidence is its sentence.
bool is_of_device(const Json& finding) {
  return !text_of(finding, "detail").empty();
}

bool has_windows(const Json& diagnosis) {
  return text_of(diagnosis.at("steps"), "found_by") == "time";
}

/// The kernel's work that a finding of this kind is of; empty for other kinds.
std::string_view lost_to(std::string_view kind) {
  static constexpr std::array<std::pair<std::string_view, std::string_view>, 4> kWork{{
      {"page_faults", "page faults"},
      {"system_calls", "system calls"},
      {"reclaim", "the search for free memory"},
      {"interrupts", "interrupts"},
  }};
  const auto found =
      std::find_if(kWork.begin(), kWork.end(), [&](const auto& row) { return row.first == kind; });
  return found == kWork.end() ? std::string_view() : found->second;
}

/// A part of the time rather than of each step.
bool is_of_time(const Json& finding, const Json& diagnosis) {
  return has_windows(diagnosis) || !finding.at("cost_ms_per_step").is_number();
}

std::string headline(const Json& finding, const Json& diagnosis) {
  const bool is_single = diagnosis.at("single").as_bool();
  const std::string kind = text_of(finding, "kind");
  const std::string who = is_single ? "the process" : rank_list(finding.at("ranks"));
  const std::string cost = milliseconds(number_of(finding, "cost_ms_per_step"));
  const std::string lost =
      is_of_time(finding, diagnosis)
          ? fmt::format("{:.0f} % of the time", 100 * number_of(finding, "share"))
          : cost + " a step";
  const std::string place = place_of(finding);
  const std::string in = place.empty() ? "" : ": " + place;
  if (is_of_device(finding) && finding.at("evidence").size() > 0)
    return capitalised(finding.at("evidence").at(0).as_string()) + in;
  if (kind == "hang" || kind == "stopped") {
    const bool is_one = finding.at("ranks").size() == 1;
    if (finding.at("ranks").size() == 0) return "The job stands still" + in;
    return capitalised(who) + (is_one ? " stands still" : " stand still") + in;
  }
  if (kind == "regression")
    return "Every step takes " + cost + " longer than in a healthy run" + in;
  if (kind == "slow_link")
    return capitalised(who) + ": slow connections, up to " + cost + " a step";
  if (kind == "cpu_throttled")
    return capitalised(who) + " is held back by its processor quota, " + lost;
  if (const std::string_view to = lost_to(kind); !to.empty()) {
    const bool is_one = is_single || finding.at("ranks").size() == 1;
    return fmt::format("{} {} {} to {}{}", capitalised(who), is_one ? "loses" : "lose", lost, to,
                       in);
  }
  if (kind == "stage_imbalance")
    return "Pipeline stages have unequal work, " + cost + " a step: " + who;
  if (kind == "interpreter_lock")
    return capitalised(who) + " waits for the interpreter lock, " + lost +
           (place.empty() ? "" : ", held in " + place);
  if (kind == "blocked") return capitalised(who) + " is kept waiting, " + lost + in;
  if (kind == "slowed") return capitalised(who) + " has become slower, by " + lost + in;
  if (kind == "uneven_time")
    return capitalised(who) + " computes for longer than the others, " + lost + in;
  if (kind == "uneven_work")
    return capitalised(who) + " is given more work than the others, " + cost + " a step" +
           (place.empty() ? "" : "; its data come from " + place);
  if (kind == "moving_imbalance")
    return "The load moves from rank to rank, " + cost + " a step; no rank is to blame";
  if (kind == "data_imbalance") return "Micro-batches have unequal work, " + cost + " a step";
  if (kind == "common_input")
    return (is_single ? "The process waits for its" : "All ranks wait for their") +
           (" input, " + lost) + in;
  if (kind == "cpu_contention") {
    const bool is_one = is_single || finding.at("ranks").size() == 1;
    return capitalised(who) + (is_one ? " waits" : " wait") + " for a processor, " + lost;
  }
  if (is_of_time(finding, diagnosis)) return capitalised(who) + " is slower, by " + lost + in;
  return capitalised(who) + " slows every step by " + cost + in;
}

std::string list_html(const Json& lines, std::string_view css_class) {
  if (lines.size() == 0) return {};
  std::string out = fmt::format("<ul class=\"{}\">", css_class);
  for (std::size_t i = 0; i < std::min(lines.size(), kListMax); ++i) {
    out += "<li>" + escape(lines.at(i).as_string()) + "</li>";
  }
  return out + "</ul>";
}

std::string stack_html(const Json& stack) {
  if (stack.size() == 0) return {};
  const std::size_t first = stack.size() > kListMax ? stack.size() - kListMax : 0;
  std::string out = "<div class=\"stack\" aria-label=\"call stack, outermost first\">";
  for (std::size_t i = first; i < stack.size(); ++i) {
    const bool is_leaf = i + 1 == stack.size();
    out += fmt::format("<div{}>{}{}</div>", is_leaf ? " class=\"leaf\"" : "",
                       std::string((i - first) * 2, ' '), escape(stack.at(i).as_string()));
  }
  return out + "</div>";
}

/// The confidence, or that a finding is an observation, which has none.
std::string basis_html(const Json& finding, std::string_view name) {
  return finding.at("confidence").is_number()
             ? figure(fmt::format("{:.0f} %", number_of(finding, "confidence") * 100), name)
             : figure("observed", "basis");
}

std::string figures_html(const Json& finding, bool is_of_windows) {
  const std::string kind = text_of(finding, "kind");
  if (kind == "hang" || kind == "stopped") {
    const std::string verdict = text_of(finding, "verdict");
    const std::string shown = verdict.empty() ? kind : verdict;
    return "<div class=\"figures\">" + figure(shown, "verdict") +
           (finding.at("cost_ms_per_step").is_number()
                ? figure(fmt::format("{:.1f} s", number_of(finding, "cost_ms_per_step") / 1000),
                         "standing still for")
                : figure("unknown", "standing still since")) +
           basis_html(finding, "confidence") + "</div>";
  }
  const std::string explained =
      finding.at("explained").is_number()
          ? figure(fmt::format("{:.0f} %", number_of(finding, "explained") * 100),
                   "of the slow-down explained (what-if)")
          : std::string();
  const std::string cost =
      is_of_windows
          ? std::string()
          : figure(milliseconds(number_of(finding, "cost_ms_per_step")), "cost of every step");
  return "<div class=\"figures\">" + cost +
         figure(fmt::format("{:.0f} %", number_of(finding, "share") * 100),
                is_of_windows ? "of the time" : "of the step") +
         basis_html(finding, is_of_windows ? "confidence (bootstrap over windows)"
                                           : "confidence (bootstrap over steps)") +
         explained + figure(kind, "kind") + "</div>";
}

/// A device's work has a sum, and no test was made.
std::string device_figures_html(const Json& finding, bool has_steps) {
  const double share = number_of(finding, "share");
  std::string out = "<div class=\"figures\">";
  if (has_steps && share > 0)
    out += figure(milliseconds(number_of(finding, "cost_ms_per_step")), "cost of every step");
  if (share > 0)
    out += figure(fmt::format("{:.0f} %", share * 100), has_steps ? "of the step" : "of the time");
  return out + figure(text_of(finding, "kind"), "kind") +
         figure(text_of(finding, "detail"), "cause") + "</div>";
}

std::string finding_html(const Json& finding, bool is_first, const Json& diagnosis) {
  const Json victims = diagnosis.at("victims");
  std::string out = fmt::format("<section class=\"verdict\"><{0}>{1}</{0}>", is_first ? "h1" : "h2",
                                escape(headline(finding, diagnosis)));
  if (is_first && victims.size() > 0) {
    const std::string kind = text_of(finding, "kind");
    const bool is_stuck = kind == "hang" || kind == "stopped";
    out +=
        fmt::format("<p class=\"lead\">{} {} held up: {}</p>",
                    escape(capitalised(rank_list(victims))), victims.size() == 1 ? "is" : "are",
                    is_stuck ? "they wait in operations that nobody will complete."
                             : "in every collective they wait for the slowest. They look slow and "
                               "are healthy.");
  }
  const bool has_steps = diagnosis.at("steps").at("count").as_int() > 0;
  return out +
         (is_of_device(finding) ? device_figures_html(finding, has_steps)
                                : figures_html(finding, is_of_time(finding, diagnosis))) +
         list_html(finding.at("evidence"), "evidence") + stack_html(finding.at("stack")) +
         "</section>";
}

constexpr std::string_view kNotEnough = "not_enough_data";

std::string verdict_html(const Json& diagnosis) {
  const Json findings = diagnosis.at("findings");
  const Json steps = diagnosis.at("steps");
  if (text_of(diagnosis, "verdict") == kNotEnough)
    return "<section class=\"verdict unknown\"><h1>Not enough data</h1><p class=\"lead\">This "
           "recording allows no verdict.</p>" +
           list_html(diagnosis.at("missing"), "evidence") + "</section>";
  if (findings.size() == 0) {
    const std::int64_t count = steps.at("count").as_int();
    const std::string seen =
        count > 0
            ? fmt::format(
                  "{} steps were compared, median {}. No rank and no function holds the job back.",
                  count, milliseconds(number_of(steps, "median_ms")))
            : "No repeating steps were found, so nothing could be compared.";
    return "<section class=\"verdict clean\"><h1>Nothing found</h1><p class=\"lead\">" +
           escape(seen) + "</p></section>";
  }
  std::string out;
  for (std::size_t i = 0; i < std::min(findings.size(), kListMax); ++i) {
    out += finding_html(findings.at(i), i == 0, diagnosis);
  }
  return out;
}

// The jobs of a recording with several: each in a line, and the findings of those that the page is
// not about.
std::string jobs_html(const Json& diagnosis) {
  const Json others = diagnosis.at("other_jobs");
  if (others.size() == 0) return {};
  std::string out = fmt::format(
      "<section><h2>{} jobs in this recording</h2><p class=\"hint\">This page is about {}.</p><dl>",
      others.size() + 1, escape(text_of(diagnosis, "job")));
  for (std::size_t i = 0; i < std::min(others.size(), kListMax); ++i) {
    const Json other = others.at(i);
    const Json findings = other.at("findings");
    std::string lines =
        findings.size() == 0
            ? text_of(other, "verdict") == kNotEnough ? "not enough data" : "nothing found"
            : "";
    for (std::size_t k = 0; k < std::min(findings.size(), kListMax); ++k)
      lines += (k > 0 ? "; " : "") + headline(findings.at(k), other);
    out += fmt::format("<dt>{}</dt><dd>{}</dd>", escape(text_of(other, "job")), escape(lines));
  }
  return out + "</dl></section>";
}

std::string losses_html(const Json& diagnosis) {
  const Json losses = diagnosis.at("losses");
  std::string lines;
  for (const std::string& name : losses.keys()) {
    const Json loss = losses.at(name);
    const std::string severity = text_of(loss, "severity");
    if (severity != "data_loss" && severity != "error") continue;
    lines += fmt::format("<li><b>{}</b>: {}. {}</li>", escape(name), loss.at("count").as_int(),
                         escape(text_of(loss, "advice")));
  }
  if (lines.empty()) return {};
  return "<section class=\"warning\" role=\"alert\"><b>The recording lost data; read the verdict "
         "with care.</b><ul>" +
         lines + "</ul></section>";
}

std::string facts_html(const Json& diagnosis, const Json& view) {
  const Json facts = view.at("facts");
  const Json steps = diagnosis.at("steps");
  std::string out = "<dl>";
  const auto row = [&out](std::string_view name, const std::string& value) {
    if (!value.empty()) out += fmt::format("<dt>{}</dt><dd>{}</dd>", name, escape(value));
  };
  row("job", text_of(facts, "job"));
  row("host", text_of(facts, "host"));
  row("recorded", text_of(facts, "recorded_at"));
  if (facts.contains("duration_s"))
    row("duration", fmt::format("{:.1f} s", number_of(facts, "duration_s")));
  if (facts.contains("events")) row("events", std::to_string(facts.at("events").as_int()));
  if (steps.at("count").as_int() > 0)
    row("steps", fmt::format("{} compared, median {}, 95 % below {}", steps.at("count").as_int(),
                             milliseconds(number_of(steps, "median_ms")),
                             milliseconds(number_of(steps, "p95_ms"))));
  if (has_windows(diagnosis)) {
    row("steps", "none; ranks are compared in windows of time");
  } else {
    row("steps found by", text_of(steps, "found_by"));
  }
  if (diagnosis.at("slowdown").is_number())
    row("slow-down", fmt::format("{:.3f} times the step of a job in which nobody is slower",
                                 number_of(diagnosis, "slowdown")));
  if (diagnosis.at("findings").at(0).at("explained").is_number())
    row("not explained", fmt::format("{:.0f} % of the time lost to slow ranks",
                                     number_of(diagnosis, "not_explained_share") * 100));
  const Json losses = diagnosis.at("losses");
  for (const std::string& name : losses.keys())
    row(escape(name), std::to_string(losses.at(name).at("count").as_int()));
  const Json notes = diagnosis.at("notes");
  for (std::size_t i = 0; i < std::min(notes.size(), kListMax); ++i)
    row("note", notes.at(i).as_string());
  row("Kansoku", text_of(facts, "version"));
  return out + "</dl>";
}

// The rows of a heat map within the bounds of the page; columns above the limit are merged by their
// greatest value.
Json bounded_rows(const Json& rows) {
  Json out = Json::array();
  for (std::size_t r = 0; r < std::min(rows.size(), kRanksMax); ++r) {
    const Json row = rows.at(r);
    const std::size_t stride =
        std::max<std::size_t>((row.size() + kColumnsMax - 1) / kColumnsMax, 1);
    Json shrunk = Json::array();
    for (std::size_t c = 0; c < row.size(); c += stride) {
      double greatest = row.at(c).as_double();
      for (std::size_t k = c; k < std::min(c + stride, row.size()); ++k)
        greatest = std::max(greatest, row.at(k).as_double());
      shrunk.push(greatest);
    }
    out.push(std::move(shrunk));
  }
  return out;
}

Json bounded_view(const Json& view) {
  Json out = view;
  for (const std::string key : {"heat", "wait_heat"}) {
    if (view.at(key).is_array()) out.set(key, bounded_rows(view.at(key)));
  }
  return out;
}

constexpr std::string_view kReportPage = R"(<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; img-src data:">
<title>{title}</title>
<style>
{css}</style>
</head>
<body>
<main>
<header class="top"><span>Kansoku · diagnosis of {job}</span><button id="theme" type="button">Dark</button></header>
{verdict}{jobs}{losses}
<section id="hang-section" hidden>
<h2>Who stands where</h2>
<p class="hint">Ranks that stand still in the same place, those that the others wait for first.</p>
<div id="hang" class="board"></div>
</section>
<section>
<div class="head"><h2>Every rank, every step</h2><span><button id="show-heat" type="button" aria-pressed="true">own work</button> <button id="show-wait_heat" type="button" aria-pressed="false">waiting</button></span></div>
<p class="hint">A row is a rank, a column a step. Own work leaves out the time spent waiting for other ranks and for a processor: a slow rank is a bright row.</p>
<div class="chart" id="heat"></div>
<div class="legend"><span id="heat-low"></span><span class="scale" id="heat-scale"></span><span id="heat-high"></span></div>
</section>
<section id="workers-section" hidden>
<h2>Slow-down by worker</h2>
<p class="hint">How many times as long the step is with only this worker's operations as they were and all others ideal: the lesser of its pipeline stage's and its data-parallel rank's. One dark cell is a slow worker, a dark row a stage with too much work.</p>
<div class="chart" id="workers"></div>
</section>
<section>
<h2>Where a step goes</h2>
<p class="hint">Mean of all compared steps. The rank that waits least for the others is the one they wait for.</p>
<div class="chart" id="phases"></div><div class="legend" id="phases-legend"></div>
</section>
<section>
<h2>The worst step</h2>
<p class="hint"><span id="worst-note"></span> <span id="worst-critical"></span></p>
<div class="chart" id="worst"></div><div class="legend" id="worst-legend"></div>
</section>
<section>
<h2>{functions_title}</h2>
<p class="hint">Milliseconds a step in each function itself, from stack samples, without the time spent waiting for other ranks.</p>
<div id="functions"></div>
</section>
<section>
<h2>The recording</h2>
<p class="hint">The trace opens unconverted in ui.perfetto.dev (Open trace file).</p>
{facts}
</section>
<noscript><section>The pictures need JavaScript; the verdict above does not.</section></noscript>
</main>
<script type="application/json" id="data">{data}</script>
<script>
{js}</script>
</body>
</html>
)";

Result<void> check_schema(const Json& json, std::string_view wanted) {
  const std::string schema = json.at("schema").as_string();
  if (schema == wanted) return {};
  return Error{Code::kUnsupported,
               fmt::format("write report: schema \"{}\" where {} was expected", schema, wanted)};
}

}  // namespace

Result<std::string> html_report(const Json& diagnosis, const Json& view) {
  TRY_VOID(check_schema(diagnosis, "kansoku.diagnosis/3"));
  TRY_VOID(check_schema(view, "kansoku.view/2"));
  const Json findings = diagnosis.at("findings");
  const std::string title = findings.size() > 0 ? headline(findings.at(0), diagnosis)
                            : text_of(diagnosis, "verdict") == kNotEnough ? "Not enough data"
                                                                          : "Nothing found";
  const std::string job = text_of(view.at("facts"), "job");
  const std::string functions =
      view.at("function_rank").is_number()
          ? fmt::format("Functions: rank {} against the others", view.at("function_rank").as_int())
          : "Functions: mean of all ranks";
  const Json data = Json::object().set("view", bounded_view(view));
  return fill(kReportPage, {{"title", escape(title + " - Kansoku")},
                            {"css", std::string(files::kCss)},
                            {"job", escape(job.empty() ? "a job" : job)},
                            {"verdict", verdict_html(diagnosis)},
                            {"jobs", jobs_html(diagnosis)},
                            {"losses", losses_html(diagnosis)},
                            {"functions_title", functions},
                            {"facts", facts_html(diagnosis, view)},
                            {"data", script_safe(data.dump())},
                            {"js", std::string(files::kJs)}});
}

}  // namespace kansoku::exporter
