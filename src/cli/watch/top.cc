// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <limits>
#include <string>
#include <vector>

#include "cli/commands.h"
#include "cli/screen.h"
#include "cli/watch/watch_client.h"
#include "cli/wiring.h"
#include "common/parse.h"
#include "detect/feature.h"
#include "fleet/request.h"
#include "sys/clock.h"

namespace kansoku::cli {
namespace {

struct ColumnSpec {
  const char* title;
  const char* feature;
};
// Those that a job has are shown; the rest is in the metrics.
constexpr std::array<ColumnSpec, 10> kTopColumns{{{"STEP", "step_mean"},
                                                  {"FORWARD", "forward_mean"},
                                                  {"BACKWARD", "backward_mean"},
                                                  {"INPUT", "input_share"},
                                                  {"COLL", "collective_share"},
                                                  {"DECODE", "decode_mean"},
                                                  {"CPU", "cpu_cores"},
                                                  {"WAIT", "cpu_wait"},
                                                  {"GPU", "gpu_process_utilization"},
                                                  {"MEMORY", "resident_bytes"}}};

std::string cell(const Json& features, const char* feature) {
  if (!features.contains(feature)) return "-";
  const int index = detect::feature_index(feature);
  return detect::format_value(features.at(feature).as_double(),
                              detect::known_features()[static_cast<std::size_t>(index)].unit);
}

/// The score of a rank of a job, or "-".
std::string score_text(const Json& job, std::int64_t rank, std::int64_t pid) {
  const Json ranks = job.at("ranks");
  for (std::size_t i = 0; i < ranks.size(); ++i) {
    const Json one = ranks.at(i);
    if (one.at("rank").as_int(-1) != rank || one.at("pid").as_int() != pid) continue;
    if (!one.at("score").is_number()) return "-";
    return fmt::format("{:.0f}{}", one.at("score").as_double(),
                       one.at("flagged").as_bool() ? "!" : "");
  }
  return "-";
}

/// Rows of one job, and which columns any of them has.
struct JobRows {
  std::vector<Json> rows;
  std::vector<ColumnSpec> columns;
};
JobRows rows_of(const Json& all, const std::string& job) {
  JobRows out;
  for (std::size_t r = 0; r < all.size(); ++r)
    if (all.at(r).at("job").as_string() == job) out.rows.push_back(all.at(r));
  for (const ColumnSpec& column : kTopColumns) {
    const bool is_there = std::any_of(out.rows.begin(), out.rows.end(), [&](const Json& row) {
      return row.at("features").contains(column.feature);
    });
    if (is_there || out.rows.empty()) out.columns.push_back(column);
  }
  return out;
}

void add_job_rows(const Json& job, const Json& all_rows, Lines& out) {
  const bool learns = job.at("state").as_string() == "learning";
  const std::string name = job.at("name").as_string();
  out.emplace_back();
  out.push_back(fmt::format(
      "{}  {}  {}", name, job.at("command").as_string(),
      learns ? fmt::format("learning, {:.0f} %", job.at("learned").as_double() * 100)
             : fmt::format("watching, threshold {:.0f}", job.at("threshold").as_double())));
  const Json incidents = job.at("incidents");
  for (std::size_t n = 0; n < incidents.size(); ++n) {
    const Json incident = incidents.at(n);
    out.push_back(fmt::format(
        "  ! {} since {} UTC: {}", incident.at("kind").as_string(),
        wall_text(parse_int<std::int64_t>(incident.at("begin_ns").as_string()).value_or(0)),
        incident.at("summary").as_string()));
  }
  const JobRows shown = rows_of(all_rows, name);
  std::string line = fmt::format("{:>6} {:>8} {:>7}", "RANK", "PID", "SCORE");
  for (const ColumnSpec& column : shown.columns)
    line += fmt::format(" {:>9}", column.title);
  out.push_back(std::move(line));
  for (const Json& row : shown.rows) {
    const auto rank = row.at("rank").as_int(-1);
    const auto pid = row.at("pid").as_int();
    line = fmt::format("{:>6} {:>8} {:>7}", rank < 0 ? "-" : std::to_string(rank), pid,
                       score_text(job, rank, pid));
    for (const ColumnSpec& column : shown.columns)
      line += fmt::format(" {:>9}", cell(row.at("features"), column.feature));
    out.push_back(std::move(line));
  }
}

/// Jobs with an open incident come first: there may be no room for all.
Lines screen(const Json& status) {
  Lines out{fmt::format(
      "kansoku top  {}  up {:.0f} s{}  {} processes  {} probes ({})  agent {:.2f} % of a core, {}",
      status.at("host").as_string(), status.at("up_s").as_double(),
      status.at("paused").as_bool() ? "  PAUSED: no scores" : "", status.at("processes").as_int(),
      status.at("probes").as_int(), status.at("bpf").as_string(),
      status.at("cpu_share").as_double() * 100,
      detect::format_value(status.at("resident_bytes").as_double(), "bytes"))};
  const Json jobs = status.at("jobs");
  const Json rows = status.at("rows");
  for (const bool has_incident : {true, false}) {
    for (std::size_t j = 0; j < jobs.size(); ++j) {
      const Json job = jobs.at(j);
      if ((job.at("incidents").size() > 0) == has_incident) add_job_rows(job, rows, out);
    }
  }
  if (jobs.size() == 0) {
    out.emplace_back();
    out.emplace_back("no AI process runs here");
  }
  return out;
}

class Top final : public Command {
 public:
  void declare(CLI::App& app) override {
    app.add_option("--state", state_, "state folder of the agent")->capture_default_str();
    app.add_flag("--once", once_, "print one screen and exit");
    app.footer(
        "Shows the live state of `kansoku watch`: processes, ranks, step time and its\n"
        "phases, GPU, anomaly scores (! = above the threshold) and open incidents. Ctrl-C ends "
        "it.");
  }

  int run() override {
    install_signal_counter();
    const bool is_terminal = ::isatty(STDOUT_FILENO) != 0;
    const sys::RealClock clock;
    for (;;) {
      const auto answer = fleet::ask(fleet::local_socket(state_), fleet::StatusRequest{});
      if (!answer) return report(answer.error());
      show_screen(screen(answer->status), is_terminal && !once_);
      if (once_ || !is_terminal) return kExitOk;
      sys::sleep_until(clock.now() + std::chrono::seconds{1});
      if (signal_count() > 0) return kExitOk;
    }
  }

 private:
  std::string state_{kStateFolder};
  bool once_{false};
};

}  // namespace

std::unique_ptr<Command> make_top() {
  return std::make_unique<Top>();
}

}  // namespace kansoku::cli
