// SPDX-License-Identifier: Apache-2.0
#include "bursts_judge.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "common/rng.h"
#include "stats/summary.h"

namespace kansoku::simulate {
namespace {

constexpr int kResamples = 1000;
/// If two waits are below a minute, neither is called better.
constexpr double kWaitFloorS = 60;
constexpr Nanos kDay = kWeekLength / 7;

Ratio ratio_of(const std::vector<double>& values, double real) {
  RandomStream random(1, "bootstrap");
  std::vector<double> medians;
  std::vector<double> drawn(values.size());
  for (int i = 0; i < kResamples; ++i) {
    for (double& value : drawn)
      value = values[random.below(values.size())];
    medians.push_back(stats::median(drawn));
  }
  const double unit = std::max(real, 1.0);  // a real wait of 0 has no ratio: seconds then
  return {stats::median(values) / unit, stats::quantile(medians, 0.025) / unit,
          stats::quantile(medians, 0.975) / unit,
          stats::quantile(values, 0.05) <= real && real <= stats::quantile(values, 0.95)};
}

double log_ratio(double a, double b) {
  return std::abs(std::log((a + kWaitFloorS) / (b + kWaitFloorS)));
}

/// Results of the seeds.
struct Outcomes {
  std::vector<double> means, p90s, loads;

  void add(const std::vector<double>& waits, const std::vector<Job>& jobs,
           const Yardstick& yardstick) {
    means.push_back(stats::mean(waits));
    p90s.push_back(stats::quantile(waits, 0.9));
    loads.push_back(offered_gpus(jobs, yardstick.weeks * kWeekLength) / yardstick.gpus);
  }

  [[nodiscard]] Judgement judged(const Yardstick& yardstick) const {
    Judgement out;
    out.mean = ratio_of(means, yardstick.real.mean_wait_s);
    out.p90 = ratio_of(p90s, yardstick.real.p90_wait_s);
    out.load = stats::median(loads);
    out.log_error = (log_ratio(stats::median(means), yardstick.real.mean_wait_s) +
                     log_ratio(stats::median(p90s), yardstick.real.p90_wait_s)) /
                    2;
    return out;
  }
};

}  // namespace

Yardstick yardstick_of(const Recording& recording, const std::vector<int>& numbers) {
  Yardstick out;
  out.joined = join_weeks(recording, numbers);
  out.weeks = static_cast<int>(numbers.size());
  out.gpus = gpus_for_load(out.joined.jobs, out.weeks * kWeekLength, kLoad);
  out.load = offered_gpus(out.joined.jobs, out.weeks * kWeekLength) / out.gpus;
  out.real = replay_gangs(out.joined.jobs, out.gpus);
  return out;
}

Judgement judge(const Stream& stream, const Yardstick& yardstick, int seeds) {
  Outcomes outcomes;
  for (int seed = 1; seed <= seeds; ++seed) {
    const std::vector<Job> jobs = stream(static_cast<std::uint64_t>(seed), yardstick.weeks);
    outcomes.add(gang_waits(jobs, yardstick.gpus), jobs, yardstick);
  }
  return outcomes.judged(yardstick);
}

Judgement judge_daily(const Stream& stream, const Yardstick& yardstick, int seeds) {
  std::vector<GangQueue> at_midnight;
  GangQueue queue(yardstick.gpus);
  std::size_t next = 0;
  for (int day = 0; day < 7 * yardstick.weeks; ++day) {
    const auto& jobs = yardstick.joined.jobs;
    for (; next < jobs.size() && jobs[next].submit < day * kDay; ++next)
      queue.submit(jobs[next]);
    at_midnight.push_back(queue);
  }
  Outcomes outcomes;
  for (int seed = 1; seed <= seeds; ++seed) {
    const std::vector<Job> jobs = stream(static_cast<std::uint64_t>(seed), yardstick.weeks);
    std::vector<GangQueue> queues = at_midnight;
    std::vector<double> waits;
    for (const Job& job : jobs)
      if (const auto wait = queues[static_cast<std::size_t>(job.submit / kDay)].submit(job))
        waits.push_back(static_cast<double>(wait->count()) * 1e-9);
    outcomes.add(waits, jobs, yardstick);
  }
  return outcomes.judged(yardstick);
}

double probe_wait_s(const std::vector<Job>& jobs, int gpus, int weeks) {
  constexpr Nanos kStep = std::chrono::minutes(10);
  GangQueue queue(gpus);
  Job probe;
  probe.gpus = 1;
  probe.duration = Nanos{1};
  double sum = 0;
  int probes = 0;
  std::size_t next = 0;
  for (; probe.submit < weeks * kWeekLength; probe.submit += kStep, ++probes) {
    for (; next < jobs.size() && jobs[next].submit <= probe.submit; ++next)
      queue.submit(jobs[next]);
    GangQueue copy = queue;
    sum += static_cast<double>(copy.submit(probe)->count()) * 1e-9;
  }
  return sum / probes;
}

std::vector<double> busy_gpus(const std::vector<Job>& jobs, int weeks) {
  const auto steps = static_cast<std::size_t>(weeks) * 7 * 24 * 6;
  std::vector<double> busy(steps + 1);
  const auto step_of = [&](Nanos at) {
    return std::min(static_cast<std::size_t>(at / std::chrono::minutes(10)) + 1, steps);
  };
  for (const Job& job : jobs) {
    const Nanos length = std::min<Nanos>(job.duration, std::chrono::hours(7 * 24));
    busy[step_of(job.submit)] += job.gpus;
    busy[step_of(job.submit + length)] -= job.gpus;
  }
  for (std::size_t i = 1; i < steps; ++i)
    busy[i] += busy[i - 1];
  busy.pop_back();
  // The first week fills up.
  busy.erase(busy.begin(), busy.begin() + static_cast<std::ptrdiff_t>(steps) / weeks);
  return busy;
}

std::vector<Score> leave_one_out(const Recording& recording,
                                 const std::vector<Candidate>& candidates,
                                 const std::vector<int>& fitting, int seeds) {
  std::vector<Score> scores;
  for (std::size_t c = 0; c < candidates.size(); ++c) {
    double error = 0;
    bool fitted = true;
    for (const int left_out : fitting) {
      std::vector<int> others;
      for (const int week : fitting)
        if (week != left_out) others.push_back(week);
      const auto stream =
          candidates[c].fit(join_weeks(recording, others), static_cast<int>(others.size()));
      fitted = fitted && stream.has_value();
      if (stream) error += judge(*stream, yardstick_of(recording, {left_out}), seeds).log_error;
    }
    if (fitted) scores.push_back({c, error / static_cast<double>(fitting.size())});
  }
  std::stable_sort(scores.begin(), scores.end(),
                   [](const Score& a, const Score& b) { return a.log_error < b.log_error; });
  return scores;
}

std::string text_of(const Ratio& ratio) {
  return fmt::format("{:.2f} [{:.2f}, {:.2f}] {}", ratio.median, ratio.low, ratio.high,
                     ratio.in_band ? "in" : "out");
}

}  // namespace kansoku::simulate
