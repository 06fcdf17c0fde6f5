// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <array>
#include <cmath>
#include <cstdio>
#include <limits>
#include <string>
#include <vector>

#include "cli/commands.h"
#include "cli/watch_client.h"
#include "cli/wiring.h"
#include "common/parse.h"
#include "detect/feature.h"
#include "sys/clock.h"

namespace kansoku::cli {
namespace {

struct ColumnSpec {
  const char* title;
  const char* feature;
};
// The width of a terminal holds so many; the rest is in the metrics.
constexpr std::array<ColumnSpec, 10> kColumns{{{"STEP", "step_mean"},
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
std::string score_text(const Json& job, std::int64_t rank, std::int64_t pid, bool& is_flagged) {
  const Json ranks = job.at("ranks");
  for (std::size_t i = 0; i < ranks.size(); ++i) {
    const Json one = ranks.at(i);
    if (one.at("rank").as_int(-1) != rank || one.at("pid").as_int() != pid) continue;
    is_flagged = one.at("flagged").as_bool();
    if (!one.at("score").is_number()) return "-";
    return fmt::format("{:.0f}{}", one.at("score").as_double(), is_flagged ? "!" : "");
  }
  return "-";
}

std::string screen(const Json& status) {
  std::string out = fmt::format(
      "kansoku top  {}  up {:.0f} s  {} processes  {} probes ({})  agent {:.2f} % of a core, {}\n",
      status.at("host").as_string(), status.at("up_s").as_double(), status.at("processes").as_int(),
      status.at("probes").as_int(), status.at("bpf").as_string(),
      status.at("cpu_share").as_double() * 100,
      detect::format_value(status.at("resident_bytes").as_double(), "bytes"));
  const Json jobs = status.at("jobs");
  const Json rows = status.at("rows");
  for (std::size_t j = 0; j < jobs.size(); ++j) {
    const Json job = jobs.at(j);
    const bool learns = job.at("state").as_string() == "learning";
    out += fmt::format(
        "\n{}  {}  {}\n", job.at("name").as_string(), job.at("command").as_string(),
        learns ? fmt::format("learning, {:.0f} %", job.at("learned").as_double() * 100)
               : fmt::format("watching, threshold {:.0f}", job.at("threshold").as_double()));
    out += fmt::format("{:>6} {:>8} {:>7}", "RANK", "PID", "SCORE");
    for (const ColumnSpec& column : kColumns)
      out += fmt::format(" {:>9}", column.title);
    out += '\n';
    for (std::size_t r = 0; r < rows.size(); ++r) {
      const Json row = rows.at(r);
      if (row.at("job").as_string() != job.at("name").as_string()) continue;
      const auto rank = row.at("rank").as_int(-1);
      bool is_flagged = false;
      const std::string score = score_text(job, rank, row.at("pid").as_int(), is_flagged);
      out += fmt::format("{:>6} {:>8} {:>7}", rank < 0 ? "-" : std::to_string(rank),
                         row.at("pid").as_int(), score);
      for (const ColumnSpec& column : kColumns)
        out += fmt::format(" {:>9}", cell(row.at("features"), column.feature));
      out += '\n';
    }
    const Json incidents = job.at("incidents");
    for (std::size_t n = 0; n < incidents.size(); ++n) {
      const Json incident = incidents.at(n);
      out += fmt::format(
          "  ! {} since {} UTC: {}\n", incident.at("kind").as_string(),
          wall_text(parse_int<std::int64_t>(incident.at("begin_ns").as_string()).value_or(0)),
          incident.at("summary").as_string());
    }
  }
  if (jobs.size() == 0) out += "\nno AI process runs here\n";
  return out;
}

class Top final : public Command {
 public:
  void declare(CLI::App& app) override {
    app.add_option("--state", state_, "state folder of the agent")->capture_default_str();
    app.add_flag("--once", once_, "print one screen and end");
    app.footer(
        "Shows what `kansoku watch` sees: processes, ranks, step time and its phases, GPU,\n"
        "anomaly scores (! = above the threshold) and open incidents. Ctrl-C ends it.");
  }

  int run() override {
    install_signal_counter();
    const bool is_terminal = ::isatty(STDOUT_FILENO) != 0;
    const sys::RealClock clock;
    for (;;) {
      const auto answer = ask_agent(state_, Json::object().set("do", "status"));
      if (!answer) return report(answer.error());
      if (is_terminal && !once_) fmt::print("\x1b[H\x1b[2J");
      fmt::print("{}", screen(answer->at("status")));
      std::fflush(stdout);
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
