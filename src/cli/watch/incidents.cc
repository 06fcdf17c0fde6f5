// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <string>
#include <vector>

#include "agent/incident_recorder.h"
#include "cli/commands.h"
#include "cli/diagnose/analysis.h"
#include "cli/watch/watch_client.h"
#include "common/parse.h"
#include "detect/feature.h"
#include "fleet/request.h"
#include "incident/book.h"
#include "sys/clock.h"
#include "trace/incident.h"

namespace kansoku::cli {
namespace {

constexpr double kFar = 5, kVeryFar = 50;  // nats above the threshold, in words

/// `kansoku incidents list|show|ack|false|true`: through the agent if one runs, else from its
/// files.
class Incidents final : public Command {
 public:
  void declare(CLI::App& app) override {
    filter_.count_max = 100;
    app.require_subcommand(0, 1);  // none: list
    app.fallthrough();
    app.add_option("--state", state_, "state folder of the agent")->capture_default_str();
    list_ = app.add_subcommand("list", "list incidents, latest last");
    list_->add_option("--since", since_, "incidents that are open or ended within this time")
        ->capture_default_str();
    list_->add_option("--job", filter_.job, "incidents of this job");
    list_->add_option("--kind", kind_, "incidents of this kind")
        ->check(CLI::IsMember(
            std::vector<std::string>(trace::kIncidentKinds.begin(), trace::kIncidentKinds.end())));
    list_->add_flag("--open", filter_.only_open, "open incidents only");
    list_->add_option("--count", filter_.count_max, "maximum number of incidents")
        ->capture_default_str();
    list_->add_flag("--json", json_, "print one JSON line per incident (kansoku.watch_incident/1)");
    show_ = app.add_subcommand("show", "show one incident with its evidence");
    show_->add_option("id", id_, "id of the incident, or its first digits")->required();
    show_->add_flag("--json", json_, "print JSON");
    for (const auto& [name, what] : kLabels) {
      CLI::App* label = app.add_subcommand(name, what);
      label->add_option("id", id_, "id of the incident, or its first digits")->required();
      labels_.push_back(label);
    }
    app.footer(
        "The next refresh of a job's model learns the windows of a false incident as normal and\n"
        "leaves out those of a true or acknowledged incident. This applies only while the job\n"
        "runs and is watched; afterwards Kansoku keeps the label and learns nothing from it.\n"
        "Examples:\n"
        "  kansoku incidents list --since 1d\n"
        "  kansoku incidents show 3f2a\n"
        "  kansoku incidents false 3f2a");
  }

  int run() override {
    if (!kind_.empty()) filter_.kind = trace::incident_kind(kind_);
    const bool is_other =
        show_->parsed() || std::any_of(labels_.begin(), labels_.end(),
                                       [](const CLI::App* label) { return label->parsed(); });
    if (!is_other) return run_list();
    const auto incident = find();
    if (!incident) return report(incident.error());
    if (show_->parsed()) {
      const std::string recording = agent::recording_path(state_, incident->id);
      const bool is_recorded = ::access(recording.c_str(), R_OK) == 0;
      if (json_) {
        fmt::print("{}\n", json_of(*incident, is_recorded ? recording : "").dump(2));
      } else {
        show(*incident);
        if (is_recorded) show_recording(recording);
      }
      return kExitOk;
    }
    for (const CLI::App* label : labels_) {
      if (!label->parsed()) continue;
      const auto is_learnt = set_label(incident->id, label->get_name());
      if (!is_learnt) return report(is_learnt.error());
      fmt::print(
          "{} labelled {}{}\n", incident->id, label->get_name(),
          *is_learnt ? "" : "; its job is over or not watched: the model learns nothing from it");
    }
    return kExitOk;
  }

 private:
  static constexpr std::array<std::pair<const char*, const char*>, 3> kLabels{
      {{"ack", "label an incident as acknowledged: somebody looks into it"},
       {"false", "label an incident as a false alarm: learn it as normal"},
       {"true", "label an incident as true"}}};

  /// A log that nobody serves is read as it lies there.
  Result<std::vector<trace::IncidentRecord>> read(const store::IncidentFilter& filter) const {
    fleet::IncidentsRequest request;
    request.since_ns = filter.since_ns;
    request.job = filter.job;
    request.kind = filter.kind;
    request.only_open = filter.only_open;
    request.count = filter.count_max;
    auto answer = fleet::ask(fleet::local_socket(state_), request);
    if (answer) return std::move(answer->incidents);
    if (answer.error().code != Code::kNotFound && answer.error().code != Code::kUnavailable)
      return answer.error();
    TRY(const auto log, incident::open_kept(state_));
    TRY(auto page, log.incidents(filter));
    return std::move(page.incidents);
  }

  Result<trace::IncidentRecord> find() const {
    store::IncidentFilter all;
    all.count_max = 10'000;
    TRY(const auto incidents, read(all));
    const trace::IncidentRecord* found = nullptr;
    for (const auto& incident : incidents) {
      if (incident.id.compare(0, id_.size(), id_) != 0) continue;
      if (found != nullptr)
        return Error{Code::kUnsupported,
                     fmt::format("incident {}: several ids begin with it", id_)};
      found = &incident;
    }
    if (found != nullptr) return *found;
    return Error{Code::kNotFound, fmt::format("incident {}: unknown", id_),
                 "`kansoku incidents list` shows the ids"};
  }

  /// True if the job learns from it.
  Result<bool> set_label(const std::string& id, const std::string& word) const {
    const auto label = trace::incident_label(word).value_or(trace::IncidentLabel::kNone);
    const auto answer = fleet::ask(fleet::local_socket(state_), fleet::LabelRequest{id, label});
    if (answer) return answer->is_learnt;
    if (answer.error().code != Code::kNotFound && answer.error().code != Code::kUnavailable)
      return answer.error();
    TRY_VOID(incident::label_kept(state_, id, label));
    return false;
  }

  int run_list() {
    const auto since = parse_duration(since_);
    if (!since) {
      return report({Code::kUnsupported, fmt::format("read --since {}: not a time", since_),
                     "e.g. 12h, 30m"});
    }
    filter_.since_ns = sys::wall_time_ns() - since->count();
    const auto incidents = read(filter_);
    if (!incidents) return report(incidents.error());
    for (const auto& incident : *incidents) {
      if (json_) {
        fmt::print("{}\n", incident.to_json().dump());
        continue;
      }
      const std::string length =
          incident.end_ns == 0
              ? "open"
              : fmt::format("{:.0f} s",
                            static_cast<double>(incident.end_ns - incident.begin_ns) * 1e-9);
      fmt::print("{}  {} UTC  {:>7}  {}  {}{}\n    {}\n", incident.id.substr(0, 8),
                 wall_text(incident.begin_ns), length, incident.job, word_of(incident.kind),
                 remarks_of(incident), incident.summary);
    }
    if (incidents->empty() && !json_) fmt::print("no incidents in the last {}\n", since_);
    return kExitOk;
  }

  /// " [no effect] [false]"
  static std::string remarks_of(const trace::IncidentRecord& incident) {
    std::string out = incident.has_effect ? "" : " [no effect]";
    if (incident.label != trace::IncidentLabel::kNone)
      out += fmt::format(" [{}]", word_of(incident.label));
    return out;
  }

  static void show(const trace::IncidentRecord& incident) {
    fmt::print("{} on {}: {}\n", incident.id, incident.host, word_of(incident.kind));
    if (!incident.has_effect)
      fmt::print("effect   no measured effect on the job: nobody was paged\n");
    fmt::print("job      {}\n", incident.job);
    fmt::print("begin    {} UTC\n", wall_text(incident.begin_ns));
    fmt::print("end      {}\n",
               incident.end_ns == 0 ? "open" : wall_text(incident.end_ns) + " UTC");
    if (!incident.ranks.empty()) fmt::print("ranks    {}\n", fmt::join(incident.ranks, ", "));
    fmt::print("tests    {}\n", fmt::join(incident.tests, ", "));
    fmt::print("beyond   normal in {} windows, {}\n", incident.window_count,
               incident.score > kVeryFar ? "very far"
               : incident.score > kFar   ? "far"
                                         : "a little");
    if (incident.label != trace::IncidentLabel::kNone)
      fmt::print("label    {}\n", word_of(incident.label));
    fmt::print("\n{}\n\n", incident.summary);
    for (const trace::Evidence& evidence : incident.evidence) {
      fmt::print("  {:<24} {:>12} -> {:<12} {:>3.0f} % of the score ({})\n", evidence.feature,
                 detect::format_value(evidence.normal, evidence.unit),
                 detect::format_value(evidence.seen, evidence.unit), evidence.share * 100,
                 evidence.layer);
    }
    if (!incident.suggestion.empty()) fmt::print("\nnext: {}\n", incident.suggestion);
  }

  static constexpr std::uint64_t kSeed = 1;  // of the diagnosis

  static Json json_of(const trace::IncidentRecord& incident, const std::string& recording) {
    Json out = incident.to_json();
    if (recording.empty()) return out;
    out.set("recording", recording);
    const auto analysis = analyse({recording}, kSeed);
    if (analysis) out.set("diagnosis", analysis->json);
    return out;
  }

  static void show_recording(const std::string& path) {
    fmt::print("\nrecording {}\n", path);
    const auto analysis = analyse({path}, kSeed);
    fmt::print("{}\n", analysis ? analysis->text : analysis.error().what);
  }

  std::string state_{kStateFolder}, since_{"24h"}, id_, kind_;
  store::IncidentFilter filter_;
  CLI::App* list_{nullptr};
  CLI::App* show_{nullptr};
  std::vector<CLI::App*> labels_;
  bool json_{false};
};

}  // namespace

std::unique_ptr<Command> make_incidents() {
  return std::make_unique<Incidents>();
}

}  // namespace kansoku::cli
