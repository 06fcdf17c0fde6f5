// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>
#include <sys/stat.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <array>
#include <cerrno>

#include "cli/commands.h"
#include "cli/diagnose/analysis.h"
#include "cli/record/session.h"
#include "cli/wiring.h"

namespace kansoku::cli {
namespace {

struct Fault {
  std::string_view name;      // FAULT of examples/ddp/train.py
  std::string_view function;  // function that the top finding must name
  std::string_view description;
};
constexpr std::array<Fault, 6> kFaults{{
    {"input", "SlowSequences.__getitem__", "a rank waits for its samples"},
    {"input_cpu", "burn", "a rank computes needlessly while loading"},
    {"forward", "burn", "a rank computes needlessly in its forward pass"},
    {"optimizer", "burn", "a rank computes needlessly in its optimizer step"},
    {"worker", "SlowSequences.__getitem__", "a rank's data-loader worker waits for its samples"},
    {"checkpoint", "save_checkpoint", "a rank writes a slow checkpoint every tenth step"},
}};

const Fault* find_fault(std::string_view name) {
  for (const Fault& fault : kFaults) {
    if (fault.name == name) return &fault;
  }
  return nullptr;
}

std::string fault_list() {
  std::string out;
  for (const Fault& fault : kFaults)
    out += fmt::format("\n  {:<11} {}", fault.name, fault.description);
  return out;
}

class Demo final : public Command {
 public:
  void declare(CLI::App& app) override {
    app.add_option("--fault", fault_, "fault to plant in one rank")->capture_default_str();
    app.add_flag("--clean", clean_, "plant nothing; the diagnosis must find nothing");
    app.add_option("--rank", rank_, "rank that gets the fault")
        ->check(CLI::Range(0, 3))
        ->capture_default_str();
    app.add_option("--share", share_, "size of the fault, as a share of the job's step time")
        ->check(CLI::Range(0.01, 10.0))
        ->capture_default_str();
    app.add_option("--seconds", seconds_, "duration of the training")
        ->check(CLI::Range(5, 3600))
        ->capture_default_str();
    app.add_option("-o,--output", folder_, "folder for trace and report")->capture_default_str();
    app.add_flag("--json", json_, "print the diagnosis as JSON");
    app.footer("Faults:" + fault_list() +
               "\n\nExit status: 0 if the diagnosis names the planted fault (with --clean: finds "
               "nothing), else 1.");
  }

  int run() override {
    const Fault* fault = find_fault(fault_);
    if (fault == nullptr) {
      return report({Code::kNotFound, fmt::format("demo fault {}: unknown", fault_),
                     "faults:" + fault_list()});
    }
    const auto analysis = record_and_analyse();
    if (!analysis) return report(analysis.error());
    fmt::print("{}\n", json_ ? analysis->json.dump(2) : analysis->text);
    const std::string report_path = folder_ + "/report.html";
    if (const auto written = write_report(*analysis, report_path); !written)
      return report(written.error());
    if (!json_) {
      fmt::print(
          "\ntrace:  {}/run.pftrace   (open it in https://ui.perfetto.dev)\nreport: {}   (open it "
          "in a browser)\n",
          folder_, report_path);
    }
    return judge(*analysis, *fault);
  }

 private:
  Result<Analysis> record_and_analyse() {
    if (::mkdir(folder_.c_str(), 0700) != 0 && errno != EEXIST)
      return errno_error(errno, "create folder", folder_);
    TRY(const std::string examples, data_folder("examples"));
    SessionOptions options;
    options.command = {"/bin/bash", examples + "/ddp/launch.sh"};
    options.command_output = folder_ + "/job.log";
    options.environment = {"RANKS=4", fmt::format("SECONDS={}", seconds_),
                           fmt::format("FAULT={}", clean_ ? "none" : fault_),
                           fmt::format("FAULT_RANK={}", rank_),
                           fmt::format("FAULT_SHARE={}", clean_ ? 0.0 : share_)};
    options.output = folder_ + "/run.pftrace";
    options.overwrite = true;
    options.quiet = json_;
    if (!json_) {
      fmt::print(stderr, "kansoku: training on 4 ranks for {} s (PyTorch, gloo), {}\n", seconds_,
                 clean_ ? std::string("no fault")
                        : fmt::format("fault {} on rank {}, {:.0f} % of a step", fault_, rank_,
                                      share_ * 100));
    }
    TRY(const SessionResult session, run_session(options));
    if (session.recording_error) return *session.recording_error;
    if (session.command_status.value_or(1) != 0) {
      return Error{
          Code::kUnavailable,
          fmt::format("run example job: exit status {}; its output is in {}/job.log",
                      session.command_status.value_or(1), folder_),
          "needs Debian's python3-torch and libopenblas0-serial (`make demo` installs them)"};
    }
    return analyse({options.output}, 1);
  }

  // The answer is known here, because the fault was planted here; the diagnosis saw only the trace.
  [[nodiscard]] int judge(const Analysis& analysis, const Fault& fault) const {
    const auto& findings = analysis.diagnosis.findings;
    const auto is_planted = [&](const diagnose::Finding& finding) {
      return finding.ranks == std::vector<std::int32_t>{rank_} &&
             finding.function.find(fault.function) != std::string::npos;
    };
    // Other load of this host is none of the demo's doing, and a finding of its own.
    const auto is_load = [](const diagnose::Finding& finding) {
      return finding.kind == "cpu_contention";
    };
    const auto told = std::find_if(findings.begin(), findings.end(), [&](const auto& finding) {
      return clean_ ? !is_load(finding) : is_planted(finding);
    });
    const auto shown = told == findings.end() ? findings.begin() : told;
    const bool is_right = clean_ == (told == findings.end());
    const std::string said =
        shown == findings.end()
            ? "nothing found"
            : fmt::format("rank {}, {}", shown->ranks.empty() ? -1 : shown->ranks.front(),
                          shown->function.empty() ? shown->kind : shown->function);
    const std::string planted =
        clean_ ? "nothing" : fmt::format("rank {}, {}", rank_, fault.function);
    if (!json_)
      fmt::print("\nplanted: {}\nnamed:   {}\n{}\n", planted, said, is_right ? "right" : "WRONG");
    return is_right ? kExitOk : kExitFailed;
  }

  std::string fault_{"input"}, folder_{"kansoku-demo"};
  bool clean_{false}, json_{false};
  std::int32_t rank_{2};
  double share_{0.5};
  int seconds_{15};
};

}  // namespace

std::unique_ptr<Command> make_demo() {
  return std::make_unique<Demo>();
}

}  // namespace kansoku::cli
