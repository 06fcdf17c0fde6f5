// SPDX-License-Identifier: Apache-2.0
#include "bursts_models.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <memory>
#include <numeric>
#include <utility>

#include "common/rng.h"

namespace kansoku::simulate {
namespace {

using Kind = ArrivalModel::Kind;

std::int64_t place_in_hour(RandomStream& random) {
  return static_cast<std::int64_t>(random.uniform() * static_cast<double>(kHourNs));
}

/// Appends the burst's jobs before the end, begun at `at_ns`.
void place(const Burst& burst, std::int64_t at_ns, int weeks, std::vector<Job>& out) {
  for (Job job : burst.jobs) {
    job.submit += Nanos{at_ns};
    if (job.submit < weeks * kWeekLength) out.push_back(job);
  }
}

Stream stream_of(ArrivalModel arrivals, std::vector<Job> recorded) {
  return [model = std::make_shared<ArrivalModel>(std::move(arrivals)), jobs = std::move(recorded)](
             std::uint64_t seed, int weeks) {
    std::vector<Job> out;
    const auto process = start_arrivals(*model, 0, RandomStream(seed, "arrivals"));
    RandomStream shapes(seed, "shapes");
    for (auto next = process->next(); next && next->at < weeks * kWeekLength;
         next = process->next()) {
      Job job = next->job == nullptr ? jobs[shapes.below(jobs.size())] : *next->job;
      job.submit = next->at;
      out.push_back(job);
    }
    return out;
  };
}

/// Every recorded session exactly once in so many weeks as were recorded, at its hour of week (or
/// the same hour of another day of its kind), in a random week and minute: bursts overlap anew, but
/// the work that comes is what was recorded, where a Poisson number of sessions also varies the
/// load.
Stream balanced_stream(std::vector<Burst> bursts, int recorded_weeks, bool any_day) {
  return [bursts = std::move(bursts), recorded_weeks, any_day](std::uint64_t seed, int weeks) {
    RandomStream random(seed, "balanced");
    std::vector<Job> out;
    for (int round = 0; round < weeks; round += recorded_weeks) {
      for (const Burst& burst : bursts) {
        const auto week = round + static_cast<std::int64_t>(
                                      random.below(static_cast<std::uint64_t>(recorded_weeks)));
        std::int64_t day = burst.at_ns % kWeekLength.count() / kDayNs;
        if (any_day)
          day = static_cast<std::int64_t>(day < 5 ? random.below(5) : 5 + random.below(2));
        const std::int64_t hour = burst.at_ns % kDayNs / kHourNs;
        const std::int64_t at_ns = week * kWeekLength.count() + day * kDayNs + hour * kHourNs;
        place(burst, at_ns + place_in_hour(random), weeks, out);
      }
    }
    sort_by_time(out);
    return out;
  };
}

Candidate balanced_candidate(double gap_s, bool any_day) {
  return {fmt::format("balanced sessions, {:.0f} s{}", gap_s, any_day ? ", any weekday" : ""),
          [=](const Workload& joined, int weeks) -> Result<Stream> {
            return balanced_stream(bursts_of(joined, gap_s), weeks, any_day);
          }};
}

/// Sessions by hour of week, and how the number of sessions a day varies about its weekday's mean.
struct DayFactors {
  std::vector<Burst> bursts;
  std::array<std::vector<std::size_t>, 168> by_hour;
  std::array<std::vector<double>, 2> factors;  // of working days, of weekends
  int weeks{1};
};

DayFactors day_factors_of(const Workload& joined, int weeks, double gap_s) {
  DayFactors out;
  out.weeks = weeks;
  out.bursts = bursts_of(joined, gap_s);
  std::vector<double> counts(static_cast<std::size_t>(7 * weeks));
  std::array<double, 7> means{};
  for (std::size_t i = 0; i < out.bursts.size(); ++i) {
    const std::int64_t at_ns = out.bursts[i].at_ns;
    out.by_hour[static_cast<std::size_t>(at_ns % kWeekLength.count() / kHourNs)].push_back(i);
    const auto day = static_cast<std::size_t>(at_ns / kDayNs);
    counts[day] += 1;
    means[day % 7] += 1.0 / weeks;
  }
  for (std::size_t day = 0; day < counts.size(); ++day)
    out.factors[day % 7 < 5 ? 0 : 1].push_back(counts[day] / std::max(means[day % 7], 1.0));
  return out;
}

/// Poisson session starts whose rate of each day is that of its hours of week times the factor of
/// a random recorded day of its kind.
Stream day_factor_stream(DayFactors model) {
  return [model = std::move(model)](std::uint64_t seed, int weeks) {
    RandomStream random(seed, "day factor");
    std::vector<Job> out;
    for (std::int64_t day = 0; day < 7 * weeks; ++day) {
      const auto& factors = model.factors[day % 7 < 5 ? 0 : 1];
      const double factor = factors[random.below(factors.size())];
      for (std::int64_t hour = 0; hour < 24; ++hour) {
        const auto& pool = model.by_hour[static_cast<std::size_t>(day % 7 * 24 + hour)];
        const double rate = factor * static_cast<double>(pool.size()) / model.weeks;
        if (rate <= 0) continue;
        for (double at = -std::log(random.uniform()) / rate; at < 1;
             at -= std::log(random.uniform()) / rate) {
          const auto in_hour = static_cast<std::int64_t>(at * static_cast<double>(kHourNs));
          const Burst& burst = model.bursts[pool[random.below(pool.size())]];
          place(burst, day * kDayNs + hour * kHourNs + in_hour, weeks, out);
        }
      }
    }
    sort_by_time(out);
    return out;
  };
}

Candidate day_factor_candidate(double gap_s) {
  return {fmt::format("sessions, {:.0f} s, day factor", gap_s),
          [=](const Workload& joined, int weeks) -> Result<Stream> {
            return day_factor_stream(day_factors_of(joined, weeks, gap_s));
          }};
}

/// Jobs of each virtual cluster by (block of the week, week).
using Blocks = std::map<std::uint32_t, std::vector<std::vector<std::vector<Job>>>>;

Blocks blocks_of(const Workload& joined, int weeks, int days) {
  Blocks blocks;
  const auto per_week = static_cast<std::size_t>((7 + days - 1) / days);
  for (Job job : joined.jobs) {
    auto& of_group = blocks[job.group];
    if (of_group.empty())
      of_group.assign(per_week, std::vector<std::vector<Job>>(static_cast<std::size_t>(weeks)));
    const auto week = static_cast<std::size_t>(job.submit / kWeekLength);
    job.submit %= kWeekLength;
    of_group[static_cast<std::size_t>(job.submit.count() / (days * kDayNs))][week].push_back(job);
  }
  return blocks;
}

/// Whole recorded days of a virtual cluster, each cluster's drawn independently of the others',
/// each once before one comes again.
Stream block_stream(Blocks blocks, int recorded_weeks) {
  return [blocks = std::move(blocks), recorded_weeks](std::uint64_t seed, int weeks) {
    RandomStream random(seed, "blocks");
    std::vector<Job> out;
    std::vector<std::size_t> order(static_cast<std::size_t>(recorded_weeks));
    for (const auto& [group, of_group] : blocks) {
      for (const auto& recorded : of_group) {
        for (int week = 0; week < weeks; ++week) {
          const auto turn = static_cast<std::size_t>(week % recorded_weeks);
          if (turn == 0) {
            std::iota(order.begin(), order.end(), 0);
            for (std::size_t i = order.size(); i > 1; --i)
              std::swap(order[i - 1], order[random.below(i)]);
          }
          for (Job job : recorded[order[turn]]) {
            job.submit += week * kWeekLength;
            out.push_back(job);
          }
        }
      }
    }
    sort_by_time(out);
    return out;
  };
}

Candidate block_candidate(int days) {
  return {fmt::format("{}-day blocks by VC", days),
          [=](const Workload& joined, int weeks) -> Result<Stream> {
            return block_stream(blocks_of(joined, weeks, days), weeks);
          }};
}

}  // namespace

void sort_by_time(std::vector<Job>& jobs) {
  std::stable_sort(jobs.begin(), jobs.end(),
                   [](const Job& a, const Job& b) { return a.submit < b.submit; });
}

std::vector<Burst> bursts_of(const Workload& joined, double gap_s) {
  const auto numbers = sessions(joined, Nanos{static_cast<std::int64_t>(gap_s * 1e9)});
  std::vector<Burst> bursts;
  for (std::size_t i = 0; i < joined.jobs.size(); ++i) {
    Job job = joined.jobs[i];
    if (numbers[i] == bursts.size()) bursts.push_back({job.submit.count(), {}});
    Burst& burst = bursts[numbers[i]];
    job.submit -= Nanos{burst.at_ns};
    burst.jobs.push_back(job);
  }
  return bursts;
}

Candidate arrival_candidate(std::string name, Kind kind, double session_gap_s) {
  return {std::move(name), [=](const Workload& joined, int weeks) -> Result<Stream> {
            ArrivalFitOptions options;
            options.session_gap_s = session_gap_s;
            options.window_begin = Nanos{0};
            options.window_end = weeks * kWeekLength;
            TRY(auto model, fit_arrivals(kind, joined, 0, joined.jobs.size(), options));
            return stream_of(std::move(model), joined.jobs);
          }};
}

Candidate pipesim_candidate() {
  return arrival_candidate("PipeSim's hour-of-week renewal", Kind::kHourOfWeekRenewal);
}

std::vector<Candidate> all_candidates() {
  std::vector<Candidate> out;
  out.push_back(arrival_candidate("hour-of-week Poisson", Kind::kHourOfWeekPoisson));
  for (const double gap_s : {60.0, 120.0, 300.0, 600.0, 1800.0})
    out.push_back(
        arrival_candidate(fmt::format("sessions, {:.0f} s", gap_s), Kind::kSessions, gap_s));
  out.push_back(arrival_candidate("day blocks", Kind::kDayBlocks));
  for (const double gap_s : {30.0, 60.0, 120.0, 300.0, 600.0, 1800.0})
    out.push_back(balanced_candidate(gap_s, false));
  for (const double gap_s : {60.0, 300.0, 1800.0})
    out.push_back(balanced_candidate(gap_s, true));
  for (const double gap_s : {60.0, 300.0})
    out.push_back(day_factor_candidate(gap_s));
  for (const int days : {1, 2})
    out.push_back(block_candidate(days));
  return out;
}

}  // namespace kansoku::simulate
