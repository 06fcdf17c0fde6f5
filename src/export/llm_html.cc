// SPDX-License-Identifier: Apache-2.0
#include "export/llm_html.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include "export/internal/figure.h"
#include "export/internal/llm_charts.h"
#include "export/internal/llm_graph.h"
#include "export/internal/page.h"
#include "export/internal/tables.h"
#include "export/report_files.h"

namespace kansoku::exporter {
namespace {

constexpr std::size_t kModelRowsShown = 60;  // of a table
constexpr std::size_t kNodesOpen = 10;       // rows of nodes; the others are folded
constexpr std::size_t kProcessesShown = 16;
constexpr std::size_t kThreadsShown = 256;
constexpr std::size_t kModelLossesShown = 32;

constexpr std::string_view kNoFigure = "\u2013";

std::string number_text(const Json& json) {
  const auto value = number_in(json);
  return value ? shown(*value) : std::string(kNoFigure);
}
std::string share_text(const Json& json) {
  const auto value = number_in(json);
  if (value && *value > 0 && *value < 0.001) return "< 0.1 %";
  return value ? shown(*value, Unit::kShare) : std::string(kNoFigure);
}
std::string text_of_ns(const Json& json) {
  const auto value = number_in(json);
  return value ? shown_short_time(*value * 1e-9) : std::string(kNoFigure);
}
std::string text_of_ms(const Json& json) {
  const auto value = number_in(json);
  return value ? shown_short_time(*value * 1e-3) : std::string(kNoFigure);
}
std::string rate_text(const Json& json, std::string_view unit) {
  const auto value = number_in(json);
  return value ? shown_rate(*value, unit) : std::string(kNoFigure);
}

std::string model_process(const Json& process) {
  return fmt::format("{} (process {})", shortened(process.at("name").as_string(), 60),
                     process.at("pid").as_int());
}

std::int64_t failed_calls(const Json& process) {
  const Json results = process.at("decode").at("results");
  std::int64_t out = 0;
  for (const std::string& result : results.keys())
    if (result != "0")
      out += std::clamp<std::int64_t>(results.at(result).as_int(), 0, 1'000'000'000);
  return out;
}

/// The operator that takes most of a phase's time.
Json greatest_operator(const Json& process, std::string_view phase) {
  const Json operators = process.at("operators");
  for (std::size_t i = 0; i < operators.size(); ++i)
    if (operators.at(i).at("phase").as_string() == phase) return operators.at(i);
  return {};
}

/// Why the recording does not hold a figure; "" if it does.
std::string reason_of(const Json& process, std::string_view figure) {
  const Json unknown = process.at("unknown");
  for (std::size_t i = 0; i < std::min(unknown.size(), kModelRowsShown); ++i)
    if (unknown.at(i).at("figure").as_string() == figure)
      return unknown.at(i).at("reason").as_string();
  return {};
}

std::string lead_of(const Json& process) {
  const Json row = greatest_operator(process, "decode");
  const std::string why = reason_of(process, "micro_batches");
  if (!why.empty() && !row.is_object())
    return fmt::format("Micro-batches are not known: {}.", shortened(why, 200));
  if (process.at("micro_batches").at("count").as_int() == 0 && !row.is_object())
    return "No micro-batch ran while it was observed.";
  if (!row.is_object())
    return "No operator was timed: record with --level operator, or with a greater --budget.";
  std::string out =
      fmt::format("{} takes {} of the time of all operators while decoding",
                  shortened(row.at("op").as_string(), 40), share_text(row.at("share")));
  const bool is_memory = row.at("bound").as_string() == "memory";
  const auto reached = number_in(row.at(is_memory ? "memory_share" : "compute_share"));
  if (reached && row.at("bound").is_string())
    out += fmt::format(", at {} of {}", shown(*reached, Unit::kShare),
                       is_memory ? "the memory bandwidth that this machine reaches"
                                 : "the arithmetic that this machine reaches");
  return out + ".";
}

// Meaning of a call's result by llama.h.
std::string_view result_words(std::string_view result) {
  if (result == "1") return " (no free cells in the KV cache)";
  if (result == "2") return " (aborted)";
  return result == "-1" ? " (the batch is invalid)" : "";
}

std::string failures_of_calls(const Json& process) {
  const Json calls = process.at("decode"), results = calls.at("results");
  std::vector<std::string> lines;
  for (const std::string& result : results.keys())
    if (result != "0" && lines.size() < kModelLossesShown)
      lines.push_back(fmt::format("{} of {} calls of llama_decode failed with {}{}",
                                  number_text(results.at(result)), number_text(calls.at("calls")),
                                  shortened(result, 20), result_words(result)));
  return warnings(lines);
}

std::string headline_html(const Json& process, const Json& report, bool is_first) {
  const Json speed = process.at("speed"), calls = process.at("decode");
  const auto tokens = number_in(speed.at("tokens_per_second"));
  const bool is_known = reason_of(process, "micro_batches").empty();
  const std::string heading = tokens     ? fmt::format("{} tokens a second", shown(*tokens))
                              : is_known ? "No token was generated"
                                         : "Tokens a second are not known";
  const std::int64_t failed = failed_calls(process);
  std::vector<Card> figures{
      {number_text(speed.at("tokens_per_second")), "tokens/s, generated", ""},
      {text_of_ms(speed.at("decode_ms_p50")), "a token, median", ""},
      {text_of_ms(speed.at("decode_ms_p99")), "a token, 99 % are below", ""},
      {number_text(speed.at("prompt_tokens_per_second")), "prompt tokens/s", ""},
      {number_text(calls.at("calls")), "calls of llama_decode",
       number_text(calls.at("tokens")) + " tokens"},
      {calls.is_object() ? shown(static_cast<double>(failed)) : std::string(kNoFigure),
       "failed calls", ""}};
  if (is_first) {
    const auto seconds = number_in(report.at("seconds"));
    figures.push_back(
        {seconds ? shown(*seconds, Unit::kSeconds) : std::string(kNoFigure), "observed", ""});
    figures.push_back(
        {share_text(report.at("cost_share")), "cost of observing", "of the observed time"});
    return verdict(heading, {model_process(process), lead_of(process)}, cards(figures),
                   failed == 0 && tokens.has_value());
  }
  return fmt::format(
      "<section class=\"process\"><h2>{}: {}</h2><p class=\"lead\">{}</p>{}</section>",
      escape(model_process(process)), escape(heading), escape(lead_of(process)), cards(figures));
}

std::string missing_data_html(const Json& report) {
  const Json losses = report.at("losses");
  std::string rows;
  std::size_t count = 0;
  for (const std::string& name : losses.keys())
    if (++count <= kModelLossesShown)
      rows += "<li>" + escape(number_text(losses.at(name)) + " " + shortened(name, 120)) + "</li>";
  if (report.at("unreadable").as_int() > 0)
    rows += "<li>" + escape(number_text(report.at("unreadable")) + " events that make no sense") +
            "</li>";
  if (rows.empty()) return {};
  return "<section class=\"losses\" role=\"note\"><b>Data was lost: counts and times below may be "
         "too small</b><ul>" +
         rows + "</ul></section>";
}

std::string causes_html(const Json& findings) {
  std::string rows;
  for (std::size_t i = 0; i < std::min(findings.size(), kModelRowsShown); ++i) {
    const Json row = findings.at(i);
    rows += fmt::format("<tr><td class=\"num\"><b>{}</b></td><td>{}<small>{}{}</small></td></tr>",
                        escape(share_text(row.at("share"))),
                        escape(capitalised(shortened(row.at("text").as_string(), 600))),
                        escape(shortened(row.at("cause").as_string(), 60)),
                        fmt::format(", process {}", row.at("pid").as_int()));
  }
  if (rows.empty()) return {};
  return "<section class=\"verdict causes\"><h2>What makes it slow</h2>" +
         table(table_head({"costs", "finding"}, 2), rows) + "</section>";
}

std::string comparison_html(const Json& comparison) {
  const Json operators = comparison.at("operators");
  std::string rows;
  for (std::size_t i = 0; i < std::min(operators.size(), kModelRowsShown); ++i) {
    const Json row = operators.at(i);
    const auto ratio = number_in(row.at("ratio"));
    rows += "<tr>" + text_cell(row.at("op").as_string()) + text_cell(row.at("phase").as_string()) +
            number_cell(share_text(row.at("share"))) + number_cell(text_of_ns(row.at("base_ns"))) +
            number_cell(text_of_ns(row.at("now_ns"))) +
            number_cell(ratio ? shown(*ratio) + " \u00d7" : std::string(kNoFigure)) + "</tr>";
  }
  const auto ratio = number_in(comparison.at("token_ratio"));
  if (rows.empty() && !ratio) return {};
  return section(
      "Against the other recording",
      ratio ? fmt::format("A token takes {} times as long as there.", shown(*ratio)) : "",
      rows.empty()
          ? ""
          : table(table_head({"operator", "phase", "share", "there, each", "here, each", "as long"},
                             2),
                  rows));
}

std::string tokens_html(const Json& process, const Json& view, const Json& windows) {
  const std::string charts = token_timeline(view.at("timeline"), windows) +
                             token_histogram(view.at("timeline"), process.at("speed"));
  if (charts.empty()) return {};
  return section("Tokens over time",
                 "Each mark is a micro-batch: the tokens that run through the model at once. "
                 "Point at one for its size.",
                 "<div class=\"plots\">" + charts + "</div>");
}

// How near it comes to the machine's peak rates, and to which of them.
std::string peak_cell(const Json& row) {
  const std::string bound = row.at("bound").as_string();
  const bool is_memory = bound == "memory";
  const auto reached = number_in(row.at(is_memory ? "memory_share" : "compute_share"));
  if (!reached || (!is_memory && bound != "compute")) return "<td class=\"peak\">\u2013</td>";
  return fmt::format(
      "<td class=\"peak\"><span class=\"gauge\"><i class=\"{}\" "
      "style=\"width:{:.0f}%\"></i></span>{} "
      "of {}</td>",
      is_memory ? "memory" : "compute", 100 * std::clamp(*reached, 0.0, 1.0),
      escape(share_text(Json(*reached))), is_memory ? "memory" : "compute");
}

std::string bar_cell(const Json& row, double most) {
  const double part = std::clamp(number_in(row.at("time_ns")).value_or(0), 0.0, most);
  return fmt::format(
      "<td class=\"detail\"><span class=\"bar{}\" style=\"width:{:.1f}px\"></span></td>",
      row.at("phase").as_string() == "prefill" ? " prefill" : "", most > 0 ? 90 * part / most : 0);
}

// Share, count, time, rates: the columns that operators and nodes have in common.
std::string work_cells(const Json& row, double most, bool has_peaks) {
  const auto ns = number_in(row.at("time_ns")), count = number_in(row.at("count"));
  const std::string each =
      ns && count && *count > 0 ? shown_short_time(*ns * 1e-9 / *count) : std::string(kNoFigure);
  return bar_cell(row, most) + number_cell(share_text(row.at("share"))) +
         number_cell(text_of_ns(row.at("time_ns"))) + number_cell(number_text(row.at("count"))) +
         number_cell(each) + number_cell(rate_text(row.at("flops_per_second"), "FLOP/s")) +
         number_cell(rate_text(row.at("bytes_per_second"), "B/s")) +
         (has_peaks ? peak_cell(row) : "");
}
std::vector<std::string> work_heads(std::vector<std::string> heads, bool has_peaks) {
  for (const char* const head : {"", "share", "total", "runs", "each", "arithmetic", "memory"})
    heads.emplace_back(head);
  if (has_peaks) heads.emplace_back("of the machine's peak");
  return heads;
}

// Longest time among the rows of a phase, or among all.
double longest_time(const Json& rows, std::string_view phase) {
  double most = 0;
  for (std::size_t i = 0; i < rows.size(); ++i)
    if (phase.empty() || rows.at(i).at("phase").as_string() == phase)
      most = std::max(most, number_in(rows.at(i).at("time_ns")).value_or(0));
  return most;
}

std::string operators_html(const Json& process, std::string_view phase, std::string_view title,
                           bool has_peaks) {
  const Json operators = process.at("operators");
  const double most = longest_time(operators, phase);
  std::string rows;
  std::size_t count = 0;
  for (std::size_t i = 0; i < operators.size(); ++i) {
    const Json row = operators.at(i);
    if (row.at("phase").as_string() != phase || ++count > kModelRowsShown) continue;
    rows +=
        "<tr>" + text_cell(row.at("op").as_string()) + work_cells(row, most, has_peaks) + "</tr>";
  }
  if (rows.empty()) return {};
  const std::string hint =
      "Kinds of operators by their time; shares are of all operators of the phase." +
      std::string(has_peaks ? " The last column tells how near an operator comes to what this "
                              "machine was measured to do, at reading memory or at arithmetic; "
                              "above 100 % the data come from a cache."
                            : "");
  return section(title, hint,
                 table(table_head(work_heads({"operator"}, has_peaks), 1), rows) +
                     left_out(count - std::min(count, kModelRowsShown), "rows"));
}

std::string roofline_html(const Json& process, const Json& peaks) {
  const std::string chart = roofline(process.at("operators"), peaks);
  if (chart.empty()) return {};
  const std::string how =
      "<div class=\"how\"><p><b>How to read it.</b> An operator's place from left to right says "
      "how "
      "much it computes for each byte that it reads or writes; its height says how fast it "
      "computes.</p><p>Nothing that reads from memory can be above the line. What is below the "
      "<b>sloping</b> part is limited by memory: smaller weights or more tokens at once make it "
      "faster. What is below the <b>flat</b> part is limited by arithmetic.</p><p>The further "
      "below "
      "the line, the more speed is left: small operators mostly wait for their threads.</p></div>";
  return section(
      "Roofline",
      "Operators against what this machine was measured to do while the report was made.",
      "<div class=\"plots\">" + chart + how + "</div>");
}

std::string nodes_html(const Json& process, bool has_peaks) {
  const Json nodes = process.at("nodes");
  const double most = longest_time(nodes, "");
  std::string rows, further;
  for (std::size_t i = 0; i < std::min(nodes.size(), kModelRowsShown); ++i) {
    const Json row = nodes.at(i);
    const std::string weights = row.at("weights").as_string();
    (i < kNodesOpen ? rows : further) +=
        fmt::format("<tr><td class=\"name\"{}>{}<small>{}, {}</small></td>",
                    weights.empty() ? "" : " data-tip=\"" + escape(shortened(weights, 300)) + "\"",
                    escape(shortened(row.at("name").as_string(), 60)),
                    escape(shortened(row.at("op").as_string(), 40)),
                    escape(shortened(row.at("phase").as_string(), 20))) +
        work_cells(row, most, has_peaks) + "</tr>";
  }
  if (rows.empty()) return {};
  const std::string head = table_head(work_heads({"node"}, has_peaks), 1);
  return section("Slowest nodes",
                 "Single operators of the graph, by their time in all; shares are of their phase. "
                 "\u201cQcur-3\u201d belongs to layer 3. Point at a name for its weights.",
                 table(head, rows) + (further.empty() ? ""
                                                      : "<details><summary>More nodes</summary>" +
                                                            table(head, further) + "</details>"));
}

struct ThreadPart {
  std::string_view css_class, text;
};
constexpr std::array kThreadParts{
    ThreadPart{"t-busy", "computes"},
    ThreadPart{"t-ready", "ready, but without a processor"},
    ThreadPart{"t-blocked", "blocked in the kernel"},
    ThreadPart{"t-wait", "waits for other threads"},
    ThreadPart{"t-outside", "before its first and behind its last operator"},
    ThreadPart{"t-unknown", "unexplained"}};

std::array<double, kThreadParts.size()> thread_times(const Json& row) {
  const auto ns = [&](std::string_view key) {
    return std::max(number_in(row.at(key)).value_or(0), 0.0);
  };
  const double busy = ns("busy_ns"), ready = std::min(ns("runnable_ns"), busy);
  const double blocked = std::min(ns("blocked_ns"), busy - ready);
  return {busy - ready - blocked, ready, blocked, ns("wait_ns"), ns("outside_ns"),
          ns("unexplained_ns")};
}

std::string thread_lane(const Json& row, double graph_ns) {
  const auto times = thread_times(row);
  std::string parts;
  double x = 0;
  for (std::size_t i = 0; i < times.size(); ++i) {
    const double width = std::clamp(1000 * times[i] / graph_ns, 0.0, 1000 - x);
    if (width > 0)
      parts += fmt::format(
          "<rect class=\"{}\" x=\"{:.2f}\" y=\"0\" width=\"{:.2f}\" height=\"20\" "
          "data-tip=\"{}: {}, {}\"/>",
          kThreadParts[i].css_class, x, width, kThreadParts[i].text,
          shown_short_time(times[i] * 1e-9), shown(times[i] / graph_ns, Unit::kShare));
    x += width;
  }
  return fmt::format(
      "<div class=\"lanerow\"><span>thread {0}</span><svg class=\"lane\" viewBox=\"0 0 1000 20\" "
      "preserveAspectRatio=\"none\" role=\"img\" aria-label=\"thread {0}\">{1}</svg><span "
      "class=\"num\">{2} busy</span></div>",
      row.at("thread").as_int(), parts, escape(shown(times[0] / graph_ns, Unit::kShare)));
}

std::string threads_html(const Json& process) {
  const Json threads = process.at("threads");
  const auto graph_ns = number_in(process.at("graph_ns"));
  if (threads.size() == 0 || !graph_ns || *graph_ns <= 0) return {};
  std::string lanes;
  std::array<bool, kThreadParts.size()> is_used{};
  for (std::size_t i = 0; i < std::min(threads.size(), kThreadsShown); ++i) {
    lanes += thread_lane(threads.at(i), *graph_ns);
    const auto times = thread_times(threads.at(i));
    for (std::size_t k = 0; k < times.size(); ++k)
      is_used[k] = is_used[k] || times[k] > 0;
  }
  std::string legend = "<div class=\"legend\">";
  for (std::size_t k = 0; k < kThreadParts.size(); ++k)
    if (is_used[k])
      legend += fmt::format("<span><i class=\"{}\"></i>{}</span>", kThreadParts[k].css_class,
                            kThreadParts[k].text);
  std::vector<Card> figures;
  if (process.at("imbalance").is_number())
    figures.push_back({share_text(process.at("imbalance")), "imbalance",
                       "of the slowest thread's time the others are done earlier"});
  const bool knows = process.at("scheduler").at("known").as_bool();
  return section(
      "Threads",
      fmt::format("Shares of the time within graphs, {} in all.{}",
                  text_of_ns(process.at("graph_ns")),
                  knows ? ""
                        : " Without the scheduler's events it is unknown when a thread had no "
                          "processor."),
      lanes + legend + "</div>" + (figures.empty() ? "" : cards(figures)) +
          left_out(threads.size() - std::min(threads.size(), kThreadsShown), "threads"));
}

std::string graph_html(const Json& graph) {
  const std::string drawing = graph_svg(graph);
  if (drawing.empty()) return {};
  const auto all = number_in(graph.at("time_ns")), path = number_in(graph.at("critical_ns"));
  std::vector<Card> figures{{text_of_ns(graph.at("time_ns")), "in operators, on average", ""},
                            {number_text(graph.at("computed")), "operators", ""},
                            {number_text(graph.at("runs")), "runs", ""}};
  if (all && path && *all > 0)
    figures.push_back({shown(std::clamp(*path / *all, 0.0, 1.0), Unit::kShare),
                       "of the time on the critical path", "the rest could run side by side"});
  const std::string legend =
      "<div class=\"legend\"><span>time: none <i class=\"scale heatscale\"></i>most of all nodes "
      "drawn</span><span><i class=\"path\"></i>critical path: the longest chain of operators that "
      "wait for each other</span></div>";
  const std::string layers = layer_bars(graph.at("layers"));
  const auto not_drawn = number_in(graph.at("not_drawn")).value_or(0);
  return section(
      fmt::format("The graph of a token ({})", shortened(graph.at("phase").as_string(), 20)),
      "The graph that ran most often, from top to bottom and then from left to right. An arrow "
      "leads from an operator to one that needs its result. Of many layers the first and the last "
      "are drawn.",
      cards(figures) + legend + drawing +
          (not_drawn > 0 ? left_out(static_cast<std::size_t>(not_drawn), "nodes") : "") +
          "<div class=\"plots\">" + layers + operator_glossary(graph) + "</div>");
}

std::string experts_html(const Json& process) {
  const std::string map = expert_map(process.at("experts"));
  if (map.empty()) return {};
  return section(
      "Experts",
      "How often each expert of a layer is used, the darker the more. \u201cAgain\u201d: "
      "experts that the token before used, too, so their weights may still be in a cache.",
      map);
}

std::string cache_html(const Json& process, const Json& view) {
  const Json cache = process.at("cache");
  const auto cells = number_in(cache.at("cells")), used = number_in(cache.at("used_max"));
  if (!cells || !used || *cells <= 0) return {};
  const std::vector<Card> figures{
      {shown(std::clamp(*used / *cells, 0.0, 1.0), Unit::kShare), "used at most",
       fmt::format("{} of {} cells", shown(*used), shown(*cells))},
      {number_text(cache.at("attended")), "cells attended", "by the largest attention seen"}};
  return section(
      "KV cache", "A cell holds the keys and values of one token.",
      cards(figures) + "<div class=\"plots\">" + cache_curve(view.at("cache"), cache) + "</div>");
}

std::string process_facts(const Json& process) {
  Facts facts;
  const Json unknown = process.at("unknown");
  for (std::size_t i = 0; i < std::min(unknown.size(), kModelRowsShown); ++i)
    facts.add("unknown: " + shortened(unknown.at(i).at("figure").as_string(), 40),
              shortened(unknown.at(i).at("reason").as_string(), 200));
  const Json batches = process.at("micro_batches"), graphs = process.at("graphs");
  facts.add("ggml", process.at("ggml").as_string());
  if (batches.is_object())
    facts.add("micro-batches",
              fmt::format("{} with {} tokens: {} of prompts, {} generated",
                          number_text(batches.at("count")), number_text(batches.at("tokens")),
                          number_text(batches.at("prompt_tokens")),
                          number_text(batches.at("generated_tokens"))));
  if (graphs.at("count").as_int() > 0)
    facts.add("graphs",
              fmt::format("{}, of which {} were seen whole; {} were built, the others ran "
                          "again",
                          number_text(graphs.at("count")), number_text(graphs.at("whole")),
                          number_text(graphs.at("built"))));
  const Json results = process.at("decode").at("results");
  std::string text;
  std::size_t count = 0;
  for (const std::string& result : results.keys())
    if (++count <= kModelLossesShown)
      text += fmt::format("{}{}: {}", text.empty() ? "" : ", ", shortened(result, 20),
                          number_text(results.at(result)));
  facts.add("results of llama_decode", text);
  if (process.at("decode").at("without_result").as_int() > 0)
    facts.add("calls without a result", number_text(process.at("decode").at("without_result")));
  return facts.html();
}

std::string recording_html(const Json& report) {
  Facts facts;
  const Json coverage = report.at("coverage"), peaks = report.at("peaks");
  for (std::size_t i = 0; i < std::min(coverage.size(), kModelRowsShown); ++i) {
    const Json row = coverage.at(i);
    const auto seconds = number_in(row.at("seconds")), cost = number_in(row.at("cost_seconds"));
    facts.add("level " + shortened(row.at("level").as_string(), 20),
              fmt::format("{}, {} events, cost {}",
                          seconds ? shown(*seconds, Unit::kSeconds) : std::string(kNoFigure),
                          number_text(row.at("hits")),
                          cost ? shown_short_time(*cost) : std::string(kNoFigure)));
  }
  if (peaks.is_object())
    facts.add("this machine", fmt::format("{} from memory, {}, measured on {} thread{}",
                                          rate_text(peaks.at("bytes_per_second"), "B/s"),
                                          rate_text(peaks.at("flops_per_second"), "FLOP/s"),
                                          number_text(peaks.at("threads")),
                                          peaks.at("threads").as_int() == 1 ? "" : "s"));
  std::string body = facts.html();
  const Json processes = report.at("processes");
  for (std::size_t i = 0; i < std::min(processes.size(), kProcessesShown); ++i)
    body +=
        "<h3>" + escape(model_process(processes.at(i))) + "</h3>" + process_facts(processes.at(i));
  return section("The recording", "", body);
}

std::string process_html(const Json& process, const Json& view, const Json& report,
                         const Json& windows) {
  const Json peaks = report.at("peaks");
  const bool has_peaks = peaks.is_object();
  std::string out;
  for (const std::string& part :
       {tokens_html(process, view, windows),
        operators_html(process, "decode", "Operators while decoding", has_peaks),
        operators_html(process, "prefill", "Operators while reading prompts", has_peaks),
        operators_html(process, "other", "Operators of other graphs", has_peaks),
        roofline_html(process, peaks), nodes_html(process, has_peaks), threads_html(process),
        graph_html(view.at("graph")), experts_html(process), cache_html(process, view)})
    out += part + "\n";
  return out;
}

/// The view of a process: by its place, if the numbers agree.
Json view_of_process(const Json& process, const Json& views, std::size_t index) {
  const Json view = views.at(index);
  return view.at("pid").as_int() == process.at("pid").as_int() ? view : Json();
}

Result<void> check_model_schema(const Json& json, std::string_view wanted, std::int64_t version) {
  const std::string is = json.at("schema").as_string();
  if (is == wanted && json.at("version").as_int() == version) return {};
  return Error{Code::kUnsupported,
               fmt::format("write report: schema \"{}\" version {} is not {} version {}",
                           shortened(is, 100), json.at("version").as_int(), wanted, version),
               "give the JSON of kansoku llm report"};
}

}  // namespace

Result<std::string> llm_html(const Json& report, const Json& view) {
  TRY_VOID(check_model_schema(report, "kansoku.llm.report", 2));
  TRY_VOID(check_model_schema(view, "kansoku.llm.view", 1));
  const Json processes = report.at("processes");
  const std::size_t count = std::min(processes.size(), kProcessesShown);
  std::string body = missing_data_html(report);
  for (std::size_t i = 0; i < count; ++i) {
    const Json process = processes.at(i);
    body += headline_html(process, report, i == 0) + failures_of_calls(process) +
            (i == 0 ? causes_html(report.at("findings")) + comparison_html(report.at("comparison"))
                    : "") +
            process_html(process, view_of_process(process, view.at("processes"), i), report,
                         view.at("windows"));
  }
  if (count == 0)
    body +=
        verdict("No model in inference was seen",
                {"No process of the recording ran llama.cpp while it was observed."}, "", false);
  body += left_out(processes.size() - count, "processes") + recording_html(report);
  const auto speed = number_in(processes.at(std::size_t{0}).at("speed").at("tokens_per_second"));
  const std::string title = speed ? fmt::format("{} tokens a second", shown(*speed)) : "Inference";
  return fill(kPage, {{"title", escape(title + " - Kansoku")},
                      {"css", std::string(files::kCss)},
                      {"more_css", std::string(files::kSimulationCss) +
                                       std::string(files::kCudaCss) + std::string(files::kLlmCss)},
                      {"what", "inference"},
                      {"body", std::move(body)},
                      {"js", std::string(files::kSimulationJs)}});
}

}  // namespace kansoku::exporter
