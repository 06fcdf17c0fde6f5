// SPDX-License-Identifier: Apache-2.0
#include "simulate/workload/model.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "simulate/workload/internal/json_reader.h"
#include "simulate/workload/internal/week.h"

namespace kansoku::simulate {
namespace {

using internal::corrupt;
using internal::ObjectReader;

constexpr std::string_view kModelSchema = "kansoku.workload_model/2";
constexpr std::string_view kModelSchemaBefore = "kansoku.workload_model/1";  // always a duration

Result<std::vector<std::pair<int, double>>> gpus_from_json(const Json& untrusted) {
  if (!untrusted.is_array() || untrusted.size() == 0 || untrusted.size() > 100'000)
    return corrupt("gpus", "not an array of 1 to 100000 shares");
  std::vector<std::pair<int, double>> gpus;
  double sum = 0;
  for (std::size_t i = 0; i < untrusted.size(); ++i) {
    TRY(const auto reader,
        ObjectReader::make(untrusted.at(i), fmt::format("gpus[{}]", i), {"gpus", "share"}));
    TRY(const auto count, reader.integer("gpus", 0, 1'000'000));
    TRY(const double share, reader.number("share", 0, 1));
    gpus.emplace_back(static_cast<int>(count), share);
    sum += share;
  }
  if (std::abs(sum - 1) > 1e-9) return corrupt("gpus", fmt::format("shares sum to {}, not 1", sum));
  return gpus;
}

/// Draws of a model for a job of which the arrivals know only the time.
class ShapeDraws {
 public:
  ShapeDraws(const WorkloadModel& model, std::uint64_t seed)
      : model_(model), durations_(seed, "durations"), gpus_(seed, "gpus") {
    double sum = 0;
    for (const auto& [count, share] : model.gpus)
      cumulative_.push_back(sum += share);
  }

  [[nodiscard]] Nanos duration() {
    if (!model_.duration) return Nanos{-1};
    return internal::nanos_of(model_.duration->draw(durations_.uniform()));
  }

  [[nodiscard]] int gpus() {
    if (cumulative_.empty()) return 0;
    const auto at = std::upper_bound(cumulative_.begin(), cumulative_.end(), gpus_.uniform()) -
                    cumulative_.begin();
    return model_.gpus[std::min(static_cast<std::size_t>(at), cumulative_.size() - 1)].first;
  }

 private:
  const WorkloadModel& model_;
  RandomStream durations_, gpus_;
  std::vector<double> cumulative_;
};

}  // namespace

Json WorkloadModel::to_json() const {
  Json shares = Json::array();
  for (const auto& [count, share] : gpus)
    shares.push(Json::object().set("gpus", count).set("share", share));
  return Json::object()
      .set("schema", kModelSchema)
      .set("source", source)
      .set("duration", duration ? duration->to_json() : Json())
      .set("gpus", std::move(shares))
      .set("arrivals", arrivals.to_json());
}

Result<WorkloadModel> WorkloadModel::from_json(const Json& untrusted) {
  TRY(const auto reader,
      ObjectReader::make(untrusted, "", {"schema", "source", "duration", "gpus", "arrivals"}));
  TRY(const auto schema, reader.text("schema"));
  if (schema != kModelSchema && schema != kModelSchemaBefore)
    return Error{Code::kUnsupported,
                 fmt::format("schema: \"{}\" is not \"{}\"", schema, kModelSchema)};
  WorkloadModel model;
  TRY(model.source, reader.text("source"));
  TRY(const auto duration, reader.member("duration"));
  if (!duration.is_null() || schema == kModelSchemaBefore) {
    auto read = stats::Distribution::from_json(duration);
    if (!read) return corrupt("duration", read.error().what);
    if (std::isinf(read->mean())) return corrupt("duration", "its mean is infinite: give a cap");
    model.duration = std::move(read).value();
  }
  TRY(const auto gpus, reader.member("gpus"));
  TRY(model.gpus, gpus_from_json(gpus));
  TRY(const auto arrivals, reader.member("arrivals"));
  TRY(model.arrivals, ArrivalModel::from_json(arrivals));
  return model;
}

Workload synthesize(const WorkloadModel& model, Nanos span, std::uint64_t seed) {
  Workload workload;
  workload.source = fmt::format("synthesized with seed {} from {}", seed, model.source);
  workload.epoch_in_week_s = model.arrivals.epoch_in_week_s;
  if (!model.arrivals.groups.empty()) workload.groups = model.arrivals.groups;
  if (!model.arrivals.gpu_types.empty()) workload.gpu_types = model.arrivals.gpu_types;
  const auto process = start_arrivals(model.arrivals, model.arrivals.epoch_in_week_s,
                                      RandomStream(seed, "arrivals"));
  ShapeDraws shapes(model, seed);
  for (auto next = process->next(); next && next->at < span; next = process->next()) {
    if (workload.jobs.size() == kSynthesizedJobsMax) {
      workload.bad_row_notes.push_back(fmt::format("stopped at {} jobs, {:.0f} s of {:.0f}",
                                                   kSynthesizedJobsMax, internal::seconds(next->at),
                                                   internal::seconds(span)));
      break;
    }
    Job job = next->job == nullptr ? Job{} : *next->job;
    job.submit = next->at;
    job.scheduled = Nanos{-1};  // when the source started it says nothing here
    if (next->job == nullptr) {
      job.gpus = shapes.gpus();
      job.gpu_milli = job.gpus > 0 ? 1000 : 0;
    }
    if (job.duration < Nanos{0}) job.duration = shapes.duration();
    workload.jobs.push_back(job);
  }
  return workload;
}

}  // namespace kansoku::simulate
