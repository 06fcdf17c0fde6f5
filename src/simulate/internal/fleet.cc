// SPDX-License-Identifier: Apache-2.0
#include "simulate/internal/fleet.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "simulate/internal/seconds.h"

namespace kansoku::simulate {
namespace {

constexpr double kNever = std::numeric_limits<double>::infinity();
constexpr double kLeastGapS = 1;  // between two retrainings of a model
constexpr int kOracleStepsMax = 400;
constexpr int kSpans = 200;  // of the horizon, for the series

}  // namespace

Fleet::Fleet(des::Environment& env, const Experiment& experiment, std::uint64_t seed,
             Retrainer& retrainer)
    : env_(env),
      experiment_(experiment),
      retrainer_(retrainer),
      warmup_s_(seconds(experiment.warmup)),
      horizon_s_(seconds(experiment.horizon)) {
  for (std::uint32_t family = 0; family < experiment.models.size(); ++family) {
    const ModelsSpec& spec = experiment.models[family];
    performance_.emplace_back(kSpans, 0.0);
    for (std::uint32_t i = 0; i < spec.count; ++i) {
      RandomStream random(seed, fmt::format("drift of {} {}", spec.name, i));
      const double start = random.uniform(), age = random.uniform();
      models_.push_back(std::make_unique<DeployedModel>(Drift(spec.drift, horizon_s_, random)));
      DeployedModel& model = *models_.back();
      model.family = family;
      model.index = i;
      model.metrics.performance = spec.performance.draw(start);
      model.trained_s = -spec.age.draw(age);
      model.first_trained_s = model.trained_s;
    }
  }
}

void Fleet::start() {
  for (const auto& model : models_) {
    if (experiment_.models[model->family].trigger == TriggerKind::kOracle)
      model->plan = plan_oracle(*model);
    env_.start(live(env_, *model));
  }
}

double Fleet::cost_of_retraining(const ModelsSpec& spec) const {
  return spec.retrain_cost > 0 ? spec.retrain_cost : retrainer_.expected_run(spec.pipeline).second;
}

/// When the trigger asks for a retraining, as seen at `now_s`; infinity for never.
double Fleet::due(const DeployedModel& model, double now_s) const {
  const ModelsSpec& spec = experiment_.models[model.family];
  switch (spec.trigger) {
    case TriggerKind::kPeriodic:
      return (std::floor(now_s / spec.period_s) + 1) * spec.period_s;
    case TriggerKind::kStaleness:
      return std::max(now_s, model.trained_s + spec.period_s);
    case TriggerKind::kThreshold:
      return model.drift.crossing(model.trained_s, now_s, spec.loss);
    case TriggerKind::kCumulative:
    case TriggerKind::kCostAware: {
      const double area = spec.trigger == TriggerKind::kCumulative
                              ? spec.loss_hours * 3600
                              : cost_of_retraining(spec) / spec.value_per_loss_hour * 3600;
      const double have = model.drift.integral(model.trained_s, model.trained_s, now_s);
      return model.drift.area_crossing(model.trained_s, now_s, area - have);
    }
    case TriggerKind::kOracle: {
      const auto next = std::lower_bound(model.plan.begin(), model.plan.end(), now_s);
      return next == model.plan.end() ? kNever : *next;
    }
    case TriggerKind::kNever:
      break;
  }
  return kNever;
}

/// Times at which the oracle may retrain: an even grid, and just after each jump. The first is the
/// start.
std::vector<double> Fleet::oracle_times(const DeployedModel& model) const {
  std::vector<double> times;
  times.reserve(kOracleStepsMax);
  for (int i = 0; i < kOracleStepsMax; ++i)
    times.push_back(i * horizon_s_ / kOracleStepsMax);
  constexpr double kAfter = 1e-6;  // whole nanoseconds must not fall before the jump
  for (const double jump : model.drift.jump_times())
    if (times.size() < std::size_t{2} * kOracleStepsMax && jump + kAfter < horizon_s_)
      times.push_back(jump + kAfter);
  std::sort(times.begin(), times.end());
  return times;
}

/// The retraining times of least cost (value of the loss plus retrainings), by dynamic programming
/// over oracle_times, knowing the drift to come; a retraining takes its expected time without
/// waiting.
std::vector<double> Fleet::plan_oracle(const DeployedModel& model) const {
  const ModelsSpec& spec = experiment_.models[model.family];
  const double run_s = retrainer_.expected_run(spec.pipeline).first;
  const double per_loss_second = spec.value_per_loss_hour / 3600;
  const double cost = cost_of_retraining(spec);
  const double apart_s = std::max({run_s, spec.cooldown_s, kLeastGapS});
  const std::vector<double> times = oracle_times(model);
  // best[i]: least cost from the start of the retraining at times[i] on; i = 0 is the model as it
  // was deployed. The model trained at i serves from i + run to the next one's start + run.
  std::vector<double> best(times.size(), 0);
  std::vector<std::size_t> next(times.size(), 0);  // 0: none
  for (std::size_t i = times.size(); i-- > 0;) {
    const double trained = i == 0 ? model.trained_s : times[i];
    double area = 0, reached = i == 0 ? 0 : std::min(horizon_s_, times[i] + run_s);
    double least = kNever;
    for (std::size_t j = i + 1; j < times.size(); ++j) {
      if (i > 0 && times[j] < times[i] + apart_s) continue;
      const double until = std::min(horizon_s_, times[j] + run_s);
      area += model.drift.integral(trained, reached, until);
      reached = until;
      const double total = per_loss_second * area + cost + best[j];
      if (total >= least) continue;
      least = total;
      next[i] = j;
    }
    area += model.drift.integral(trained, reached, horizon_s_);
    if (per_loss_second * area <= least) {
      least = per_loss_second * area;
      next[i] = 0;
    }
    best[i] = least;
  }
  std::vector<double> plan;
  for (std::size_t at = next[0]; at != 0; at = next[at])
    plan.push_back(times[at]);
  return plan;
}

void Fleet::account(DeployedModel& model, double now_s) {
  const double end = std::min(now_s, horizon_s_);
  if (end <= model.accounted_s) return;
  // The series: means over spans, piece by piece.
  const double span = horizon_s_ / kSpans;
  double at = model.accounted_s;
  while (at < end) {
    const auto bin = std::min<std::size_t>(static_cast<std::size_t>(at / span), kSpans - 1);
    double to = std::min(end, static_cast<double>(bin + 1) * span);
    if (to <= at) to = end;
    const double lost = model.drift.integral(model.trained_s, at, to);
    const double gained = model.metrics.performance * (to - at) - lost;
    performance_[model.family][bin] += gained / span;
    const double counted = to - std::max(at, warmup_s_);
    if (counted > 0) {
      const double part = counted / (to - at);
      model.performance_seconds += gained * part;
      model.loss_seconds += lost * part;
    }
    at = to;
  }
  model.accounted_s = end;
}

void Fleet::adopt(DeployedModel& model, const Made& made, double data_s, double now_s) {
  account(model, now_s);
  const ModelsSpec& spec = experiment_.models[model.family];
  const bool gated = spec.promotion_margin >= 0 && made.evaluated;
  if (!made.deployed ||
      (gated && made.measured < model.performance(now_s) + spec.promotion_margin)) {
    ++model.refused;
    return;
  }
  ++model.promoted;
  model.previous.emplace(model.metrics, model.trained_s);
  model.metrics = made.metrics;
  model.trained_s = data_s;
}

des::Process Fleet::live(des::Environment& env, DeployedModel& model) {
  const ModelsSpec& spec = experiment_.models[model.family];
  double ready_s = 0;  // the cool-down's end
  for (;;) {
    double when = due(model, std::max(seconds(env.now()), ready_s));
    when = std::max(when, ready_s);
    if (spec.monitor_interval_s > 0)
      when = std::ceil(when / spec.monitor_interval_s) * spec.monitor_interval_s;
    if (when >= horizon_s_) co_return;
    const Nanos at = nanos(when);
    if (at > env.now()) co_await env.timeout(at - env.now());
    const double data_s = seconds(env.now());
    Made made;
    des::Event ended(env);
    ++model.runs_started;
    retrainer_.start_retraining(model, spec.pipeline, made, ended);
    co_await ended.happened();
    const double now_s = seconds(env.now());
    if (data_s >= warmup_s_) {
      ++model.retrainings;
      model.unit_hours += made.unit_hours;
    }
    adopt(model, made, data_s, now_s);
    // Time has to pass, also where a retraining takes none.
    ready_s = std::max(now_s, data_s + std::max(spec.cooldown_s, kLeastGapS));
    if (!spec.rollback || !model.previous) continue;
    co_await env.timeout(nanos(spec.rollback_after_s));
    const double later = seconds(env.now());
    const auto& [metrics, trained] = *model.previous;
    if (metrics.performance - model.drift.loss(trained, later) > model.performance(later)) {
      account(model, later);
      model.metrics = metrics;
      model.trained_s = trained;
      ++model.rolled_back;
    }
    model.previous.reset();
  }
}

void Fleet::report(Nanos now, int points, std::vector<Metric>& metrics,
                   std::vector<Series>& series) {
  const double end = std::min(seconds(now), horizon_s_);
  const double counted = std::max(end - warmup_s_, 1e-9);
  for (std::uint32_t family = 0; family < experiment_.models.size(); ++family) {
    const ModelsSpec& spec = experiment_.models[family];
    double performance = 0, loss = 0, unit_hours = 0, retrainings = 0, promoted = 0, refused = 0,
           back = 0, staleness = 0, untouched = 0, size = 0, inference = 0, robustness = 0;
    for (const auto& model : models_) {
      if (model->family != family) continue;
      account(*model, end);
      performance += model->performance_seconds;
      loss += model->loss_seconds;
      unit_hours += model->unit_hours;
      retrainings += model->retrainings;
      promoted += model->promoted;
      refused += model->refused;
      back += model->rolled_back;
      staleness += end - model->trained_s;
      size += model->metrics.size_bytes;
      inference += model->metrics.inference_s;
      robustness += model->metrics.robustness;
      untouched += model->drift.integral(model->first_trained_s, warmup_s_, end);
    }
    const double count = spec.count;
    const double loss_hours = loss / 3600, avoided = (untouched - loss) / 3600;
    const auto add = [&](const char* what, double value) {
      metrics.push_back({fmt::format("models.{}.{}", spec.name, what), value});
    };
    add("performance_mean", performance / counted / count);
    add("loss_mean", loss / counted / count);
    add("retrainings", retrainings);
    add("promoted", promoted);
    add("refused", refused);
    add("rolled_back", back);
    add("retraining_unit_hours", unit_hours);
    add("staleness_mean_s", staleness / count);
    // Means of the models deployed at the end.
    add("size_bytes_mean", size / count);
    add("inference_mean_s", inference / count);
    add("robustness_mean", robustness / count);
    add("loss_hours_avoided", avoided);
    add("loss_hours_avoided_per_unit_hour", unit_hours > 0 ? avoided / unit_hours : 0);
    if (spec.value_per_loss_hour > 0)
      add("cost", spec.value_per_loss_hour * loss_hours + retrainings * cost_of_retraining(spec));
    if (points <= 0) continue;
    Series performance_series{fmt::format("models.{}.performance", spec.name), {}};
    for (int i = 0; i < points; ++i)
      performance_series.values.push_back(
          performance_[family]
                      [static_cast<std::size_t>(i) * kSpans / static_cast<std::size_t>(points)] /
          count);
    series.push_back(std::move(performance_series));
  }
}

}  // namespace kansoku::simulate
