// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "diagnose/diagnose.h"
#include "diagnose/internal/rounded.h"
#include "diagnose/internal/words.h"

namespace kansoku::diagnose {
namespace {

// Six decimals: ratios of step times are compared with published ones.
Json optional_json(const std::optional<double>& value) {
  return value ? Json(std::round(*value * 1e6) / 1e6) : Json();
}

Json phases_json(const RankSummary& rank) {
  Json out = Json::object();
  out.set("rank", rank.rank);
  for (std::size_t p = 0; p < kPhaseCount; ++p)
    out.set(phase_name(static_cast<Phase>(p)), rounded(rank.phase_ms[p]));
  out.set("step", rounded(rank.step_ms));
  out.set("work", rounded(rank.work_ms));
  return out;
}

Json steps_json(const Diagnosis& diagnosis) {
  Json phases = Json::array();
  for (const RankSummary& rank : diagnosis.ranks)
    phases.push(phases_json(rank));
  return Json::object()
      .set("count", static_cast<std::uint64_t>(diagnosis.steps.count))
      .set("median_ms", rounded(diagnosis.steps.median_ms))
      .set("p95_ms", rounded(diagnosis.steps.p95_ms))
      .set("mean_ms", rounded(diagnosis.steps.mean_ms))
      .set("found_by", diagnosis.steps.found_by)
      .set("word", Json::array_of(diagnosis.steps.word))
      .set("phases", phases);
}

/// The milliseconds of a finding; nothing for a part of the time where no step is known, or if the
/// files do not say since when a job stands still.
std::optional<double> known_cost(const Finding& finding, const Diagnosis& diagnosis) {
  const bool is_known = finding.is_standstill()
                            ? finding.cost_ms_per_step > 0
                            : diagnosis.steps.count > 0 || diagnosis.has_windows();
  return is_known ? std::optional(finding.cost_ms_per_step) : std::nullopt;
}

Json finding_json(const Finding& finding, const Diagnosis& diagnosis) {
  const bool is_test = finding.basis == Basis::kTest;
  const auto cost_ms = known_cost(finding, diagnosis);
  return Json::object()
      .set("kind", finding.kind)
      .set("detail", finding.detail)
      .set("ranks", Json::array_of(finding.ranks))
      .set("phase", finding.phase)
      .set("function", finding.function)
      .set("file", finding.file)
      .set("line", finding.line)
      .set("stack", Json::array_of(finding.stack))
      .set("cost_ms_per_step", cost_ms ? Json(rounded(*cost_ms)) : Json())
      .set("share", rounded(finding.share))
      .set("basis", std::string(verdict::basis_name(finding.basis)))
      .set("confidence", is_test ? Json(rounded(finding.confidence)) : Json())
      .set("rank_confidence", is_test ? Json(rounded(finding.rank_confidence)) : Json())
      .set("explained", optional_json(finding.explained))
      .set("verdict", finding.verdict)
      .set("evidence", Json::array_of(finding.evidence));
}

Json patterns_json(const std::vector<NamedPattern>& patterns) {
  Json out = Json::array();
  for (const NamedPattern& named : patterns) {
    Json rows = Json::array();
    for (const PatternRow& row : named.pattern.rows) {
      rows.push(Json::object()
                    .set("function", named.names[row.function])
                    .set("activity", activity_name(row.activity))
                    .set("count", row.count)
                    .set("beta", rounded(row.beta))
                    .set("mu", rounded(row.mu))
                    .set("sigma", rounded(row.sigma)));
    }
    out.push(Json::object()
                 .set("rank", named.pattern.rank)
                 .set("window_ms", rounded(static_cast<double>(named.pattern.window_ns) / 1e6))
                 .set("idle", rounded(named.pattern.idle))
                 .set("rows", rows));
  }
  return out;
}

Json messages_json(const MessageSummary& messages) {
  return Json::object()
      .set("matched", messages.matched)
      .set("sends_alone", messages.sends_alone)
      .set("receives_alone", messages.receives_alone);
}

Json pipeline_json(const PipelineSummary& pipeline) {
  Json stages = Json::array();
  for (const PipelineSummary::Stage& stage : pipeline.stages)
    stages.push(Json::object()
                    .set("ranks", Json::array_of(stage.ranks))
                    .set("work_ms", rounded(stage.work_ms)));
  return Json::object()
      .set("stages", std::move(stages))
      .set("micro_batches", pipeline.micro_batches > 0 ? Json(pipeline.micro_batches) : Json())
      .set("passes_ms", rounded(pipeline.passes_ms))
      .set("equal_ms", rounded(pipeline.equal_ms))
      .set("bubble_share", rounded(pipeline.bubble_share))
      .set("uneven_share", rounded(pipeline.uneven_share));
}

Json losses_json(const std::vector<trace::Loss>& losses) {
  Json out = Json::object();
  for (const trace::Loss& loss : losses) {
    out.set(loss.name, Json::object()
                           .set("count", loss.count)
                           .set("severity", severity_name(loss.severity))
                           .set("advice", loss.advice));
  }
  return out;
}

std::string shown_place(const Finding& finding, std::string_view folder) {
  std::string_view file = finding.file;
  if (!folder.empty() && file.starts_with(folder) && file.substr(folder.size()).starts_with("/"))
    file.remove_prefix(folder.size() + 1);
  if (finding.function.empty()) {
    return finding.phase.empty() ? words::kNoFunctionKnown
                                 : fmt::format(words::kOnlyPhaseOfFinding, finding.phase);
  }
  if (finding.file.empty()) return finding.function;
  return finding.line == 0 ? fmt::format("{} ({})", finding.function, file)
                           : fmt::format("{} ({}:{})", finding.function, file, finding.line);
}

/// The first line on a device's work.
std::string device_text(const Finding& finding, const Diagnosis& diagnosis,
                        const std::string& who) {
  if (finding.share <= 0) return fmt::format(words::kOfDevice, who, finding.kind, finding.detail);
  if (diagnosis.steps.count == 0)
    return fmt::format(words::kOfDeviceTime, who, finding.kind, finding.detail,
                       finding.share * 100);
  return fmt::format(words::kOfDeviceStep, who, finding.kind, finding.detail,
                     finding.cost_ms_per_step, finding.share * 100);
}

/// True if a finding names every rank of the job and no other, such as one that left no file.
bool names_all_ranks(const Finding& finding, const Diagnosis& diagnosis) {
  std::vector<std::int32_t> known = diagnosis.rank_numbers, named = finding.ranks;
  if (!diagnosis.ranks.empty()) known.clear();
  for (const RankSummary& rank : diagnosis.ranks)
    known.push_back(rank.rank);
  std::sort(known.begin(), known.end());
  std::sort(named.begin(), named.end());
  return named == known;
}

std::string finding_text(const Finding& finding, const Diagnosis& diagnosis,
                         std::string_view folder) {
  const std::string who = finding.kind == "moving_imbalance" ? words::kNoSingleRank
                          : diagnosis.is_single              ? words::kTheProcess
                          : finding.ranks.empty() || names_all_ranks(finding, diagnosis)
                              ? words::kAllRanks
                              : fmt::format("rank {}", fmt::join(finding.ranks, ", "));
  const std::string basis = finding.basis == Basis::kObservation
                                ? std::string(verdict::kObserved)
                                : fmt::format(words::kConfidence, finding.confidence);
  std::string text;
  const auto cost_ms = known_cost(finding, diagnosis);
  if (finding.is_standstill()) {
    const std::string what = finding.verdict.empty() ? "" : " (" + finding.verdict + ")";
    text = cost_ms
               ? fmt::format(words::kStandsStill, who, finding.kind, what, *cost_ms / 1000, basis)
               : fmt::format(words::kStandsStillUnknown, who, finding.kind, what, basis);
  } else if (finding.is_of_device()) {
    text = device_text(finding, diagnosis, who);
  } else if (diagnosis.has_windows() || !cost_ms) {
    text = fmt::format(words::kCostOfTime, who, finding.kind, finding.share * 100, basis);
  } else {
    text = fmt::format(words::kCostPerStep, who, finding.kind, finding.cost_ms_per_step,
                       finding.share * 100, basis);
  }
  if (!finding.function.empty() || !finding.phase.empty() || finding.is_standstill())
    text += fmt::format(words::kInFunction, shown_place(finding, folder));
  if (finding.explained) text += fmt::format(words::kExplains, *finding.explained * 100);
  for (const std::string& line : finding.evidence)
    text += fmt::format("  - {}\n", line);
  return text;
}

}  // namespace

Json to_json(const Diagnosis& diagnosis) {
  Json other_jobs = Json::array();
  for (const Diagnosis& other : diagnosis.other_jobs)
    other_jobs.push(to_json(other));
  Json findings = Json::array();
  for (const Finding& finding : diagnosis.findings)
    findings.push(finding_json(finding, diagnosis));
  Json out = Json::object();
  out.set("schema", "kansoku.diagnosis/3")
      .set("job", diagnosis.job)
      .set("single", diagnosis.is_single)
      .set("verdict", verdict_name(diagnosis.verdict()))
      .set("steps", steps_json(diagnosis))
      .set("findings", findings)
      .set("victims", Json::array_of(diagnosis.victims))
      .set("loss_ms_per_step", rounded(diagnosis.loss_ms_per_step))
      .set("not_explained_share", rounded(diagnosis.not_explained_share))
      .set("slowdown", optional_json(diagnosis.slowdown))
      .set("slowdown_low", rounded(diagnosis.slowdown_low))
      .set("losses", losses_json(diagnosis.losses))
      .set("notes", Json::array_of(diagnosis.notes))
      .set("missing", Json::array_of(diagnosis.missing));
  if (!diagnosis.other_jobs.empty()) out.set("other_jobs", other_jobs);
  if (diagnosis.messages) out.set("messages", messages_json(*diagnosis.messages));
  if (diagnosis.pipeline) out.set("pipeline", pipeline_json(*diagnosis.pipeline));
  if (diagnosis.what_if) out.set("what_if", to_json(*diagnosis.what_if));
  if (!diagnosis.patterns.empty()) out.set("patterns", patterns_json(diagnosis.patterns));
  return out;
}

std::string headline(const Diagnosis& diagnosis) {
  if (diagnosis.findings.empty()) return {};
  const std::string text = finding_text(diagnosis.findings.front(), diagnosis, {});
  return text.substr(0, text.find('\n'));
}

namespace {

std::string job_text(const Diagnosis& diagnosis, std::string_view folder) {
  std::string text;
  if (diagnosis.steps.count > 0) {
    text += fmt::format(words::kStepsLine, diagnosis.steps.count,
                        diagnosis.is_single ? words::kOneProcess
                                            : fmt::format("{} rank{}", diagnosis.ranks.size(),
                                                          diagnosis.ranks.size() == 1 ? "" : "s"),
                        diagnosis.steps.median_ms, diagnosis.steps.p95_ms);
  }
  if (diagnosis.slowdown) {
    text += fmt::format(words::kSlowDownLine, *diagnosis.slowdown);
  }
  if (diagnosis.verdict() == Verdict::kNothingFound)
    text += fmt::format("{}\n", words::kNothingFound);
  if (diagnosis.verdict() == Verdict::kNotEnoughData) {
    text += fmt::format("{}\n", words::kNotEnoughData);
    for (const std::string& missing : diagnosis.missing)
      text += fmt::format(words::kMissingLine, missing);
  }
  for (const Finding& finding : diagnosis.findings)
    text += finding_text(finding, diagnosis, folder);
  if (!diagnosis.victims.empty())
    text += fmt::format(words::kHeldUpLine, fmt::join(diagnosis.victims, ", "));
  for (const std::string& note : diagnosis.notes)
    text += fmt::format(words::kNoteLine, note);
  return text;
}

// "nothing found", "not enough data", or the first finding.
std::string job_headline(const Diagnosis& diagnosis) {
  if (diagnosis.verdict() == Verdict::kNothingFound) return words::kNothingFound;
  if (diagnosis.verdict() == Verdict::kNotEnoughData) return words::kNotEnoughData;
  const std::size_t more = diagnosis.findings.size() - 1;
  return headline(diagnosis) +
         (more == 0 ? "" : fmt::format(words::kMoreFindings, more, more == 1 ? "" : "s"));
}

}  // namespace

std::string verdict_text(const Diagnosis& diagnosis, std::string_view folder) {
  if (diagnosis.other_jobs.empty()) return job_text(diagnosis, folder);
  std::vector<const Diagnosis*> jobs{&diagnosis};
  for (const Diagnosis& other : diagnosis.other_jobs)
    jobs.push_back(&other);
  std::string text = fmt::format(words::kJobsLine, jobs.size());
  for (const Diagnosis* job : jobs)
    text += fmt::format("  {}: {}\n", job->job, job_headline(*job));
  for (const Diagnosis* job : jobs)
    text += fmt::format("\njob {}\n{}", job->job, job_text(*job, folder));
  return text;
}

}  // namespace kansoku::diagnose
