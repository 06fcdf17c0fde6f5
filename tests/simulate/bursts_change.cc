// SPDX-License-Identifier: Apache-2.0
#include "bursts_change.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>
#include <tuple>

#include "common/rng.h"
#include "simulate/workload/gang_replay.h"

namespace kansoku::simulate {
namespace {

constexpr double kSwapGapS = 300;  // sessions of the swaps
constexpr std::size_t kLike = 20;  // sessions of about one size that stand for each other

Workload with_bursts(const Workload& base, const std::vector<Burst>& bursts) {
  Workload out = base;
  out.jobs.clear();
  for (const Burst& burst : bursts) {
    for (Job job : burst.jobs) {
      job.submit += Nanos{burst.at_ns};
      out.jobs.push_back(job);
    }
  }
  sort_by_time(out.jobs);
  return out;
}

/// Jobs of one width: 1 GPU, up to 4, more.
int width_of(const Job& job) {
  return job.gpus <= 1 ? 0 : job.gpus <= 4 ? 1 : 2;
}

/// The judged weeks' durations in the fitting weeks' order: the i-th smallest of one width becomes
/// the i-th smallest of the other.
Workload with_durations(const Workload& fitting, const Workload& judged) {
  std::map<int, std::vector<Nanos>> values;
  for (const Job& job : judged.jobs)
    values[width_of(job)].push_back(job.duration);
  for (auto& [width, of_width] : values)
    std::sort(of_width.begin(), of_width.end());
  Workload out = fitting;
  std::map<int, std::vector<std::size_t>> order;
  for (std::size_t i = 0; i < out.jobs.size(); ++i)
    order[width_of(out.jobs[i])].push_back(i);
  for (auto& [width, of_width] : order) {
    const auto& to = values[width];
    if (to.empty()) continue;
    std::stable_sort(of_width.begin(), of_width.end(), [&](std::size_t a, std::size_t b) {
      return fitting.jobs[a].duration < fitting.jobs[b].duration;
    });
    for (std::size_t k = 0; k < of_width.size(); ++k)
      out.jobs[of_width[k]].duration = to[k * to.size() / of_width.size()];
  }
  return out;
}

/// Durations times one factor, so that the weeks offer so many busy GPUs.
Workload with_load(const Workload& joined, int weeks, double offered) {
  const double factor = offered / offered_gpus(joined.jobs, weeks * kWeekLength);
  Workload out = joined;
  for (Job& job : out.jobs)
    job.duration =
        Nanos{static_cast<std::int64_t>(static_cast<double>(job.duration.count()) * factor)};
  return out;
}

/// The judged weeks' sessions (when they start, how many jobs, at which gaps), each with the
/// (duration, GPUs) of a fitting session of about its size.
Workload with_arrivals(const Workload& fitting, const Workload& judged) {
  std::vector<Burst> from = bursts_of(fitting, kSwapGapS);
  std::stable_sort(from.begin(), from.end(),
                   [](const Burst& a, const Burst& b) { return a.jobs.size() < b.jobs.size(); });
  std::vector<Burst> to = bursts_of(judged, kSwapGapS);
  RandomStream random(1, "swap arrivals");
  for (Burst& burst : to) {
    const auto at = static_cast<std::size_t>(
        std::lower_bound(from.begin(), from.end(), burst.jobs.size(),
                         [](const Burst& a, std::size_t size) { return a.jobs.size() < size; }) -
        from.begin());
    std::size_t last = at;
    while (last < from.size() && from[last].jobs.size() == burst.jobs.size())
      ++last;
    const std::size_t low = last - at >= kLike ? at : at - std::min(at, kLike / 2);
    const std::size_t high = std::min(from.size(), std::max(last, low + kLike));
    const Burst& like = from[low + random.below(high - low)];
    for (std::size_t i = 0; i < burst.jobs.size(); ++i) {
      const Job& shape = like.jobs[i % like.jobs.size()];
      burst.jobs[i].duration = shape.duration;
      burst.jobs[i].gpus = shape.gpus;
    }
  }
  return with_bursts(judged, to);
}

/// The judged weeks' numbers of GPUs, the wider ones to the jobs that were wider and longer;
/// durations stay.
Workload with_gpus(const Workload& fitting, const Workload& judged) {
  std::vector<int> widths;
  for (const Job& job : judged.jobs)
    widths.push_back(job.gpus);
  std::sort(widths.begin(), widths.end());
  std::vector<std::size_t> order(fitting.jobs.size());
  std::iota(order.begin(), order.end(), 0);
  Workload out = fitting;
  std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) {
    const Job& x = fitting.jobs[a];
    const Job& y = fitting.jobs[b];
    return std::tie(x.gpus, x.duration) < std::tie(y.gpus, y.duration);
  });
  for (std::size_t k = 0; k < order.size(); ++k)
    out.jobs[order[k]].gpus = widths[k * widths.size() / order.size()];
  return out;
}

/// As many sessions a week as in the judged weeks, drawn from the fitting ones.
Workload with_session_count(const Workload& fitting, int fitting_weeks, const Workload& judged,
                            int judged_weeks) {
  const std::vector<Burst> from = bursts_of(fitting, kSwapGapS);
  const auto wanted = static_cast<double>(bursts_of(judged, kSwapGapS).size()) / judged_weeks;
  const double copies = wanted * fitting_weeks / static_cast<double>(from.size());
  RandomStream random(1, "swap sessions");
  std::vector<Burst> to;
  for (const Burst& burst : from)
    for (double left = copies; left > 0; left -= 1)
      if (random.uniform() < left) to.push_back(burst);
  return with_bursts(fitting, to);
}

/// A Poisson number, small mean.
int poisson(double mean, RandomStream& random) {
  int count = 0;
  for (double at = -std::log(random.uniform()); at < mean; at -= std::log(random.uniform()))
    ++count;
  return count;
}

bool same_kind(std::int64_t a, std::int64_t b) {
  return (a % 7 < 5) == (b % 7 < 5);
}

}  // namespace

Stream weekly_stream(const Candidate& candidate, const Workload& past, int known, int trailing,
                     std::string& error) {
  std::vector<Stream> of_week;
  const int all = static_cast<int>(past.jobs.back().submit / kWeekLength) + 1;
  for (int week = known; week < all; ++week) {
    const int first = trailing > 0 ? std::max(0, week - trailing) : 0;
    Workload window = past;
    window.jobs.clear();
    for (Job job : past.jobs) {
      if (job.submit < first * kWeekLength || job.submit >= week * kWeekLength) continue;
      job.submit -= first * kWeekLength;
      window.jobs.push_back(job);
    }
    auto stream = candidate.fit(window, week - first);
    if (!stream) {
      error = stream.error().what;
      return {};
    }
    of_week.push_back(std::move(stream).value());
  }
  return [of_week](std::uint64_t seed, int weeks) {
    std::vector<Job> out;
    for (int week = 0; week < weeks; ++week) {
      const auto index = static_cast<std::size_t>(week) % of_week.size();
      for (Job job : of_week[index](seed * 1000 + index, 1)) {
        job.submit += week * kWeekLength;
        out.push_back(job);
      }
    }
    return out;
  };
}

std::vector<Swap> swaps(const Workload& fitting, int fitting_weeks, const Workload& judged,
                        int judged_weeks) {
  const double offered = offered_gpus(judged.jobs, judged_weeks * kWeekLength);
  std::vector<Swap> out;
  out.push_back({"nothing", fitting, fitting_weeks});
  // Each other swap moves the load as well: that part is taken out of all of them alike.
  const auto add = [&](std::string name, const Workload& joined, int weeks) {
    out.push_back({std::move(name), with_load(joined, weeks, offered), weeks});
  };
  add("offered load (durations times a factor)", fitting, fitting_weeks);
  add("load and durations, by width", with_durations(fitting, judged), fitting_weeks);
  add("load and GPUs asked for", with_gpus(fitting, judged), fitting_weeks);
  add("load and sessions a week", with_session_count(fitting, fitting_weeks, judged, judged_weeks),
      fitting_weeks);
  add("load and when sessions come and of how many jobs", with_arrivals(fitting, judged),
      judged_weeks);
  out.push_back({"everything (fitted to the judged weeks)", judged, judged_weeks});
  return out;
}

Stream adaptive_stream(const Workload& past, int known, AdaptiveOptions options) {
  return [bursts = bursts_of(past, options.gap_s), known, options](std::uint64_t seed, int weeks) {
    RandomStream random(seed, "adaptive");
    std::vector<Job> out;
    for (std::int64_t day = 7 * known; day < 7 * (known + weeks); ++day) {
      double days = 0;  // weight of the days of this kind before this one
      for (std::int64_t other = 0; other < day; ++other)
        if (same_kind(other, day))
          days += std::exp2(-static_cast<double>(day - other) / options.half_life_days);
      for (const Burst& burst : bursts) {
        const std::int64_t other = burst.at_ns / kDayNs;
        if (other >= day) break;
        if (!same_kind(other, day)) continue;
        const double weight =
            std::exp2(-static_cast<double>(day - other) / options.half_life_days) / days;
        for (int copies = poisson(weight, random); copies > 0; --copies) {
          const std::int64_t at_ns =
              (day - 7 * known) * kDayNs + burst.at_ns % kDayNs / kHourNs * kHourNs +
              static_cast<std::int64_t>(random.uniform() * static_cast<double>(kHourNs));
          for (Job job : burst.jobs) {
            job.submit += Nanos{at_ns};
            // A job that runs past midnight was not known on the day before.
            if (job.submit < weeks * kWeekLength) out.push_back(job);
          }
        }
      }
    }
    sort_by_time(out);
    return out;
  };
}

}  // namespace kansoku::simulate
