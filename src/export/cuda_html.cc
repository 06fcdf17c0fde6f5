// SPDX-License-Identifier: Apache-2.0
#include "export/cuda_html.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <map>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include "export/internal/cuda_timeline.h"
#include "export/internal/figure.h"
#include "export/internal/page.h"
#include "export/internal/tables.h"
#include "export/report_files.h"

namespace kansoku::exporter {
namespace {

constexpr std::size_t kRowsShown = 60;  // of a table
constexpr std::size_t kLinesShown = 64;
constexpr std::size_t kDevicesShown = 64;

std::string word_of(const Json& object, std::string_view key) {
  return object.at(key).as_string();
}

std::string duration(const Json& us) {
  const auto value = number_in(us);
  return value ? shown_short_time(*value * 1e-6) : "\u2013";
}
std::string share(const Json& json) {
  const auto value = number_in(json);
  if (value && *value > 0 && *value < 0.0005) return "< 0.1 %";
  return value ? shown(*value, Unit::kShare) : "\u2013";
}
std::string bytes(const Json& json) {
  const auto value = number_in(json);
  return value ? shown(*value, Unit::kBytes) : "\u2013";
}
std::string plain(const Json& json) {
  const auto value = number_in(json);
  return value ? shown(*value) : "\u2013";
}

std::string device_name(const Json& of) {
  const std::string device =
      of.at("device").is_number() ? fmt::format("GPU {}", of.at("device").as_int()) : "GPU";
  return of.at("rank").is_number() ? fmt::format("rank {}, {}", of.at("rank").as_int(), device)
                                   : fmt::format("process {}, {}", of.at("pid").as_int(), device);
}
std::string process_name(const Json& of) {
  return of.at("rank").is_number() ? fmt::format("rank {}", of.at("rank").as_int())
                                   : fmt::format("process {}", of.at("pid").as_int());
}

std::string lines(const Json& list) {
  if (list.size() == 0) return {};
  std::string out = "<ul class=\"evidence\">";
  for (std::size_t i = 0; i < std::min(list.size(), kLinesShown); ++i)
    out += "<li>" + escape(list.at(i).as_string()) + "</li>";
  return out + "</ul>";
}

std::string work_finding_html(const Json& finding, bool is_first) {
  std::vector<Card> figures;
  if (finding.at("share").is_number())
    figures.push_back({share(finding.at("share")), "of the time", ""});
  figures.push_back({word_of(finding, "kind"), "kind", ""});
  figures.push_back({word_of(finding, "detail"), "cause", ""});
  return fmt::format("<section class=\"verdict\"><{0}>{1}</{0}>", is_first ? "h1" : "h2",
                     escape(capitalised(word_of(finding, "verdict")))) +
         cards(figures) + lines(finding.at("evidence")) + "</section>";
}

std::string findings_html(const Json& report) {
  const Json findings = report.at("findings");
  std::string out;
  for (std::size_t i = 0; i < std::min(findings.size(), kLinesShown); ++i)
    out += work_finding_html(findings.at(i), i == 0);
  if (!out.empty()) return out;
  const bool has_work = report.at("op_count").as_int() > 0;
  return verdict(has_work ? "No finding" : "No device work",
                 {has_work ? "Nothing takes 5 % of the time of a device."
                           : "The recording has no operation of a device."},
                 "", has_work);
}

std::string device_row(const Json& device, const CauseColours& colours) {
  const auto judged = number_in(device.at("judged_us"));
  const Json idle = device.at("idle");
  if (!judged || *judged <= 0 || !idle.is_array()) return {};
  double idle_us = 0;
  std::string parts;
  std::vector<std::pair<double, std::string>> causes;
  for (std::size_t i = 0; i < idle.size(); ++i) {
    const Json row = idle.at(i);
    const double us = std::max(0.0, number_in(row.at("us")).value_or(0));
    causes.emplace_back(us, word_of(row, "cause"));
    idle_us += us;
  }
  const double busy_us = std::max(0.0, *judged - idle_us);
  double x = 0;
  const auto part = [&](double us, std::string_view css_class, std::string_view tip) {
    const double width = std::clamp(1000 * us / *judged, 0.0, 1000 - x);
    parts += fmt::format(
        "<rect class=\"{}\" x=\"{:.2f}\" y=\"0\" width=\"{:.2f}\" height=\"20\" "
        "data-tip=\"{}: {}, {}\"/>",
        css_class, x, width, escape(tip), shown_short_time(us * 1e-6),
        shown(us / *judged, Unit::kShare));
    x += width;
  };
  part(busy_us, "busy", "busy");
  for (const auto& [us, cause] : causes)
    part(us, colours.css_class(cause), "idle, " + colours.text(cause));
  return fmt::format(
      "<div class=\"lanerow\"><span>{}</span><svg class=\"lane\" viewBox=\"0 0 1000 20\" "
      "preserveAspectRatio=\"none\" role=\"img\" aria-label=\"busy {}\">{}</svg><span "
      "class=\"num\">{} busy</span></div>",
      escape(device_name(device)), shown(busy_us / *judged, Unit::kShare), parts,
      shown(busy_us / *judged, Unit::kShare));
}

std::string devices_html(const Json& devices, const CauseColours& colours) {
  std::string bars, rows;
  std::size_t left = 0;
  for (std::size_t i = 0; i < devices.size(); ++i) {
    if (i >= kDevicesShown) {
      ++left;
      continue;
    }
    const Json device = devices.at(i);
    bars += device_row(device, colours);
    const Json idle = device.at("idle");
    for (std::size_t k = 0; k < std::min(idle.size(), kRowsShown); ++k) {
      const Json row = idle.at(k);
      rows += "<tr>" + text_cell(device_name(device)) +
              text_cell(colours.text(word_of(row, "cause"))) +
              text_cell(shortened(word_of(row, "function"), 80)) +
              number_cell(duration(row.at("us"))) + number_cell(share(row.at("share"))) +
              number_cell(duration(row.at("longest_us"))) + "</tr>";
    }
  }
  if (bars.empty()) return {};
  const std::string idle_table =
      rows.empty() ? std::string()
                   : "<details><summary>Idle time by cause</summary>" +
                         table(table_head({"device", "meanwhile the launching thread", "mostly in",
                                           "time", "share", "longest"},
                                          3),
                               rows) +
                         "</details>";
  return section("Where the devices' time goes",
                 "Of the steps, or of the time at work where there are no steps. Idle time is "
                 "charged to what the thread did that launched the next operation.",
                 bars + colours.legend() + idle_table + left_out(left, "devices"));
}

std::string shape_text(const Json& kernel) {
  const std::string grid = word_of(kernel, "grid"), block = word_of(kernel, "block");
  if (grid.empty() && block.empty()) return "\u2013";
  const std::int64_t more = kernel.at("shape_count").as_int() - 1;
  return grid + " \u00d7 " + block + (more > 0 ? fmt::format(", {} more", more) : "");
}

std::string kernel_row(const Json& kernel) {
  const Json us = kernel.at("us");
  const double part = std::clamp(number_in(kernel.at("share")).value_or(0), 0.0, 1.0);
  const std::string full = word_of(kernel, "full_name");
  const std::string name =
      fmt::format("<td class=\"name\"{}>{}{}</td>",
                  full.empty() ? "" : " data-tip=\"" + escape(shortened(full, 400)) + "\"",
                  escape(shortened(word_of(kernel, "name"), 120)),
                  word_of(kernel, "class") == "collective" ? " <small>collective</small>" : "");
  return "<tr>" + name +
         fmt::format(
             "<td class=\"detail\"><span class=\"bar\" style=\"width:{:.1f}px\"></span></td>",
             90 * part) +
         number_cell(share(kernel.at("share"))) + number_cell(duration(kernel.at("total_us"))) +
         number_cell(plain(kernel.at("count"))) + number_cell(duration(us.at("p50"))) +
         number_cell(duration(us.at("p99"))) + number_cell(shape_text(kernel)) +
         number_cell(plain(kernel.at("registers"))) +
         number_cell(bytes(kernel.at("shared_bytes"))) +
         number_cell(share(kernel.at("occupancy"))) + "</tr>";
}

std::string kernels_html(const Json& report) {
  const Json kernels = report.at("kernels");
  if (kernels.size() == 0) return {};
  std::string rows;
  for (std::size_t i = 0; i < std::min(kernels.size(), kRowsShown); ++i)
    rows += kernel_row(kernels.at(i));
  const Json other = report.at("other_kernels");
  if (other.at("count").as_int() > 0) {
    rows += "<tr>" + text_cell("all others") + "<td class=\"detail\"></td>" +
            number_cell(share(other.at("share"))) + number_cell(duration(other.at("total_us"))) +
            number_cell(plain(other.at("count"))) +
            "<td></td><td></td><td></td><td></td><td></td><td></td></tr>";
  }
  return section("Kernels", "By their time on the device; shares are of all kernels.",
                 table(table_head({"name", "", "share", "total", "launches", "p50", "p99",
                                   "grid \u00d7 block", "registers", "shared memory", "occupancy"},
                                  2),
                       rows));
}

struct TableColumn {
  std::string_view key, title;
  std::string (*text)(const Json&);
  bool is_text{false};
};

std::string word(const Json& json) {
  return json.is_string() ? shortened(json.as_string(), 120) : "\u2013";
}
std::string yes_no(const Json& json) {
  return json.is_bool() ? (json.as_bool() ? "pageable" : "pinned") : "\u2013";
}
std::string rate(const Json& json) {
  const auto value = number_in(json);
  return value ? shown(*value) + " GB/s" : "\u2013";
}
std::string median(const Json& spread) {
  return duration(spread.at("p50"));
}

/// One of the report's smaller tables.
std::string rows_html(const Json& list, std::string_view title, std::string_view hint,
                      const std::vector<TableColumn>& columns) {
  if (list.size() == 0) return {};
  std::vector<std::string> heads;
  std::size_t text_count = 0;
  for (const TableColumn& column : columns) {
    heads.emplace_back(column.title);
    text_count += column.is_text ? 1 : 0;
  }
  std::string rows;
  const std::size_t count = std::min(list.size(), kRowsShown);
  for (std::size_t i = 0; i < count; ++i) {
    rows += "<tr>";
    for (const TableColumn& column : columns) {
      const std::string text = column.text(list.at(i).at(column.key));
      rows += column.is_text ? text_cell(text) : number_cell(text);
    }
    rows += "</tr>";
  }
  return section(
      title, hint,
      table(table_head(heads, text_count), rows) + left_out(list.size() - count, "rows"));
}

std::string transfers_html(const Json& report) {
  return rows_html(report.at("copies"), "Copies and fills", "",
                   {{"kind", "kind", word, true},
                    {"pageable", "host memory", yes_no, true},
                    {"count", "count", plain},
                    {"bytes", "bytes", bytes},
                    {"total_us", "time", duration},
                    {"gb_per_s", "rate", rate}}) +
         rows_html(report.at("collectives"), "Collectives",
                   "The rate holds the wait for peers: the bus moves at least so much.",
                   {{"name", "name", word, true},
                    {"count", "count", plain},
                    {"bytes", "bytes", bytes},
                    {"group_size", "ranks", plain},
                    {"us", "p50", median},
                    {"bus_gb_per_s", "bus", rate}});
}

std::string work_html(const Json& report) {
  return rows_html(report.at("operators"), "Operators",
                   "Of the framework, by the device time of what they launched.",
                   {{"name", "name", word, true},
                    {"top_kernel", "longest kernel", word, true},
                    {"call_count", "calls", plain},
                    {"op_count", "operations", plain},
                    {"device_us", "device time", duration}}) +
         rows_html(report.at("gemms"), "Matrix products", "",
                   {{"batch", "batch", plain},
                    {"m", "m", plain},
                    {"n", "n", plain},
                    {"k", "k", plain},
                    {"count", "count", plain},
                    {"total_us", "time", duration},
                    {"tflops", "TFLOP/s", plain},
                    {"peak_share", "of the peak", share}}) +
         rows_html(report.at("ranges"), "NVTX ranges",
                   "Device time is that of the operations launched within a range.",
                   {{"name", "name", word, true},
                    {"domain", "domain", word, true},
                    {"count", "count", plain},
                    {"host_us", "host", duration},
                    {"device_us", "device", duration},
                    {"share", "of the device", share}});
}

std::string holders_html(const Json& holders, std::string_view title) {
  if (holders.size() == 0) return {};
  std::string rows;
  for (std::size_t i = 0; i < std::min(holders.size(), kRowsShown); ++i) {
    const Json holder = holders.at(i);
    const std::string stack = word_of(holder, "stack");
    rows += "<tr>" + text_cell(stack.empty() ? "no stack recorded" : shortened(stack, 400)) +
            number_cell(bytes(holder.at("bytes"))) + number_cell(plain(holder.at("count"))) +
            "</tr>";
  }
  return fmt::format("<h3>{}</h3>", escape(title)) +
         table(table_head({"allocated in", "bytes", "allocations"}, 1), rows);
}

std::string failures_html(const Json& failures) {
  std::string out;
  for (std::size_t i = 0; i < std::min(failures.size(), kLinesShown); ++i) {
    const Json failure = failures.at(i);
    const Json line = Json::array().push(
        fmt::format("asked for {} with {} live, and got none{}",
                    bytes(failure.at("requested_bytes")), bytes(failure.at("live_bytes")),
                    failure.at("is_survived").as_bool() ? "; the process went on" : ""));
    out += lines(line) + holders_html(failure.at("holders"), "Live at that moment");
  }
  return out;
}

std::string memory_html(const Json& report, const Json& view) {
  const Json memory = report.at("memory"), curves = view.at("memory");
  std::string out;
  for (std::size_t i = 0; i < std::min(memory.size(), kDevicesShown); ++i) {
    const Json process = memory.at(i);
    std::string body;
    for (std::size_t k = 0; k < curves.size(); ++k) {
      if (curves.at(k).at("pid").as_int() == process.at("pid").as_int())
        body += memory_curve(curves.at(k).at("points"));
    }
    std::vector<Card> figures{{bytes(process.at("high_water_bytes")), "at most", ""},
                              {bytes(process.at("last_bytes")), "at the end", ""}};
    const Json leak = process.at("leak");
    if (leak.is_object()) {
      const bool is_step = word_of(leak, "per") == "step";
      figures.push_back(
          {bytes(leak.at("bytes_per_step")),
           is_step ? "more with each step" : "more with each launch of " + word_of(leak, "per"),
           ""});
    }
    out += section("Device memory of " + process_name(process), "",
                   cards(figures) + body +
                       holders_html(leak.is_object() ? leak.at("growers") : Json(),
                                    "Grew most, by allocation stack") +
                       holders_html(process.at("holders"),
                                    "Live at the high-water mark, by allocation stack") +
                       failures_html(process.at("failures")));
  }
  return out;
}

std::string unknown_html(const Json& report) {
  const Json figures = report.at("figures");
  Json list = Json::array();
  for (std::size_t i = 0; i < figures.size(); ++i) {
    const Json figure = figures.at(i);
    if (word_of(figure, "state") == "known") continue;
    list.push(fmt::format("{}: {}, {}", word_of(figure, "name"), word_of(figure, "state"),
                          word_of(figure, "why")));
  }
  Json losses = Json::array();
  const Json lost = report.at("losses");
  for (const std::string& name : lost.keys()) {
    const Json loss = lost.at(name);
    losses.push(fmt::format("{}: {} {}", name, loss.at("count").as_int(), word_of(loss, "advice")));
  }
  Facts facts;
  facts.add("operations timed", word_of(report, "mode"));
  facts.add("device operations", plain(report.at("op_count")));
  facts.add("calls of CUDA", plain(report.at("call_count")));
  facts.add("steps found by", word_of(report, "steps_by"));
  const auto part = [](std::string_view title, const Json& of) {
    return of.size() == 0 ? std::string() : fmt::format("<h3>{}</h3>", title) + lines(of);
  };
  return section("The recording", "",
                 facts.html() + part("Not known from it", list) + part("Lost", losses) +
                     part("Notes", report.at("notes")));
}

}  // namespace

Result<std::string> cuda_html(const Json& report, const Json& view) {
  const std::array<std::pair<std::string, std::string_view>, 2> schemas{
      {{report.at("schema").as_string(), "kansoku.cuda_report/1"},
       {view.at("schema").as_string(), "kansoku.cuda_view/1"}}};
  for (const auto& [is, wanted] : schemas) {
    if (is == wanted) continue;
    return Error{Code::kUnsupported,
                 fmt::format("write report: schema \"{}\" is not {}", shortened(is, 100), wanted),
                 "give the JSON of kansoku cuda report"};
  }
  const CauseColours colours(report.at("devices"), view.at("causes"));
  const Json findings = report.at("findings");
  const std::string title =
      findings.size() > 0 ? capitalised(word_of(findings.at(0), "verdict")) : "Device work";
  std::string body;
  for (const std::string& part :
       {findings_html(report), devices_html(report.at("devices"), colours),
        timelines_html(view.at("timelines"), colours), kernels_html(report), work_html(report),
        transfers_html(report), memory_html(report, view), unknown_html(report)})
    body += part + "\n";
  return fill(kPage,
              {{"title", escape(shortened(title, 200) + " - Kansoku")},
               {"css", std::string(files::kCss)},
               {"more_css", std::string(files::kSimulationCss) + std::string(files::kCudaCss)},
               {"what", "device work"},
               {"body", std::move(body)},
               {"js", std::string(files::kSimulationJs)}});
}

}  // namespace kansoku::exporter
