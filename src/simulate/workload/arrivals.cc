// SPDX-License-Identifier: Apache-2.0
#include "simulate/workload/arrivals.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <queue>
#include <span>
#include <tuple>
#include <utility>

#include "simulate/workload/internal/week.h"

namespace kansoku::simulate {
namespace {

using internal::kDayNs;
using internal::kHourNs;
using internal::kStreamMaxNs;

constexpr std::int64_t kRecordedDaysMax = std::int64_t{100} * 366;

constexpr std::array<std::pair<ArrivalKind, std::string_view>, 7> kKinds{{
    {ArrivalKind::kConstant, "constant"},
    {ArrivalKind::kRenewal, "renewal"},
    {ArrivalKind::kHourOfWeekPoisson, "hour_of_week_poisson"},
    {ArrivalKind::kHourOfWeekRenewal, "hour_of_week_renewal"},
    {ArrivalKind::kSessions, "sessions"},
    {ArrivalKind::kDayBlocks, "day_blocks"},
    {ArrivalKind::kReplay, "replay"},
}};

/// True if gaps drawn from it ever move time on; a stream that stands still would never end.
bool moves_time(const stats::Distribution& gap) {
  return gap.quantile(1 - 1e-9) > 0;
}

/// Independent gaps, from one distribution or from that of the hour of week in which the gap
/// starts.
class GapProcess final : public ArrivalProcess {
 public:
  GapProcess(const ArrivalModel& model, std::int64_t start_in_week_s, const RandomStream& random)
      : gaps_(model.kind == ArrivalKind::kHourOfWeekRenewal ? std::span(model.hour_gaps)
                                                            : std::span(&model.gap, 1)),
        cap_s_(model.kind == ArrivalKind::kHourOfWeekRenewal ? model.gap_cap_s
                                                             : kStreamMaxNs * 1e-9),
        intensity_(model.intensity),
        start_in_week_s_(start_in_week_s),
        random_(random),
        ended_(gaps_.empty() || !std::all_of(gaps_.begin(), gaps_.end(), moves_time)) {}

  [[nodiscard]] std::optional<Arrival> next() override {
    if (ended_) return std::nullopt;
    const auto hour = static_cast<std::size_t>(
        internal::hour_of_week(internal::since_monday_ns(start_in_week_s_, at_)));
    const stats::Distribution& gap = gaps_.size() == 1 ? gaps_[0] : gaps_[hour % gaps_.size()];
    at_ += internal::nanos_of(std::min(gap.draw(random_.uniform()), cap_s_) / intensity_);
    ended_ = at_.count() >= kStreamMaxNs;
    if (ended_) return std::nullopt;
    return Arrival{at_, nullptr};
  }

 private:
  std::span<const stats::Distribution> gaps_;
  double cap_s_;
  double intensity_;
  std::int64_t start_in_week_s_;
  RandomStream random_;
  bool ended_;
  Nanos at_{0};
};

/// A Poisson process whose rate is constant within each hour of week. Exponential gaps, begun
/// anew at every full hour (they have no memory): a Poisson number in each hour, uniform in it, in
/// order and without storing an hour.
class HourlyPoisson {
 public:
  HourlyPoisson(const ArrivalModel& model, std::int64_t start_in_week_s)
      : rates_(model.rates), intensity_(model.intensity) {
    const std::int64_t start_ns = start_in_week_s * 1'000'000'000;
    hour_ = static_cast<std::size_t>(internal::hour_of_week(start_ns));
    hour_begin_ns_ = internal::floor_div(start_ns, kHourNs) * kHourNs - start_ns;
    in_hour_ = -static_cast<double>(hour_begin_ns_) / static_cast<double>(kHourNs);
    ended_ = rates_.size() != kHoursOfWeek ||
             std::none_of(rates_.begin(), rates_.end(), [](double rate) { return rate > 0; });
  }

  /// Nanoseconds since the start; nothing once the stream has ended.
  [[nodiscard]] std::optional<std::int64_t> next(RandomStream& random) {
    while (!ended_) {
      const double rate = rates_[hour_] * intensity_;
      if (rate > 0) in_hour_ -= std::log(random.uniform()) / rate;
      if (rate > 0 && in_hour_ < 1) {
        const auto ns = static_cast<std::int64_t>(in_hour_ * static_cast<double>(kHourNs));
        return std::max<std::int64_t>(hour_begin_ns_ + ns, 0);
      }
      in_hour_ = 0;
      hour_begin_ns_ += kHourNs;
      hour_ = (hour_ + 1) % kHoursOfWeek;
      ended_ = hour_begin_ns_ >= kStreamMaxNs;
    }
    return std::nullopt;
  }

 private:
  std::span<const double> rates_;
  double intensity_;
  std::size_t hour_{0};
  std::int64_t hour_begin_ns_{0};
  double in_hour_{0};  // hours
  bool ended_{false};
};

class PoissonProcess final : public ArrivalProcess {
 public:
  PoissonProcess(const ArrivalModel& model, std::int64_t start_in_week_s,
                 const RandomStream& random)
      : starts_(model, start_in_week_s), random_(random) {}

  [[nodiscard]] std::optional<Arrival> next() override {
    const auto at = starts_.next(random_);
    if (!at) return std::nullopt;
    return Arrival{Nanos{*at}, nullptr};
  }

 private:
  HourlyPoisson starts_;
  RandomStream random_;
};

class SessionProcess final : public ArrivalProcess {
 public:
  SessionProcess(const ArrivalModel& model, std::int64_t start_in_week_s,
                 const RandomStream& random)
      : model_(model),
        starts_(model, start_in_week_s),
        start_in_week_s_(start_in_week_s),
        random_(random) {
    for (std::uint32_t i = 0; i < model.sessions.size(); ++i)
      by_hour_[static_cast<std::size_t>(model.sessions[i].hour) % kHoursOfWeek].push_back(i);
    if (!model.sessions.empty()) next_start_ = starts_.next(random_);
  }

  [[nodiscard]] std::optional<Arrival> next() override {
    while (next_start_ && (open_.empty() || *next_start_ <= open_.top().at_ns))
      begin_session();
    if (open_.empty()) return std::nullopt;
    Open session = open_.top();
    open_.pop();
    const Job* job = &model_.jobs[session.job];
    const Arrival arrival{Nanos{session.at_ns}, job};
    if (++session.job < session.job_end) {
      session.at_ns = session.start_ns + model_.jobs[session.job].submit.count();
      open_.push(session);
    }
    return arrival;
  }

 private:
  struct Open {
    std::int64_t at_ns{0};
    std::uint64_t sequence{0};
    std::int64_t start_ns{0};
    std::uint32_t job{0}, job_end{0};
    bool operator<(const Open& other) const {  // the queue's top is its largest
      return std::tie(at_ns, sequence) > std::tie(other.at_ns, other.sequence);
    }
  };

  void begin_session() {
    const auto hour = static_cast<std::size_t>(
        internal::hour_of_week(internal::since_monday_ns(start_in_week_s_, Nanos{*next_start_})));
    const auto& here = by_hour_[hour];
    // An hour with a rate but without a recorded session (the recording does not cover it) takes
    // any.
    const std::size_t pick =
        here.empty() ? random_.below(model_.sessions.size()) : here[random_.below(here.size())];
    const ArrivalModel::Session& session = model_.sessions[pick];
    if (session.count > 0) {
      const std::int64_t at_ns = *next_start_ + model_.jobs[session.first].submit.count();
      open_.push({at_ns, sequence_++, *next_start_, session.first, session.first + session.count});
    }
    next_start_ = starts_.next(random_);
  }

  const ArrivalModel& model_;
  HourlyPoisson starts_;
  std::int64_t start_in_week_s_;
  RandomStream random_;
  std::array<std::vector<std::uint32_t>, kHoursOfWeek> by_hour_;
  std::optional<std::int64_t> next_start_;
  std::uint64_t sequence_{0};
  std::priority_queue<Open> open_;
};

/// Whole recorded days of the same weekday. With an intensity of 2.3 each day is the union of two
/// drawn days and of a third of which 30 % of the jobs are taken.
class DayProcess final : public ArrivalProcess {
 public:
  DayProcess(const ArrivalModel& model, std::int64_t start_in_week_s, const RandomStream& random)
      : model_(model), start_ns_(start_in_week_s * 1'000'000'000), random_(random) {
    day_ = internal::floor_div(start_ns_, kDayNs);
    const std::int64_t model_day = model.epoch_in_week_s / 86'400;
    const auto days = static_cast<std::int64_t>(
        std::clamp(model.span_s / 86'400 + 0.5, 0.0, static_cast<double>(kRecordedDaysMax)));
    std::size_t job = 0;
    for (std::int64_t d = 0; d < days; ++d) {
      const std::size_t first = job;
      while (job < model.jobs.size() && model.jobs[job].submit.count() < (d + 1) * kDayNs)
        ++job;
      days_[static_cast<std::size_t>((model_day + d) % 7)].push_back({first, job, d * kDayNs});
      all_.push_back({first, job, d * kDayNs});
    }
    ended_ = model.jobs.empty() || all_.empty();
  }

  [[nodiscard]] std::optional<Arrival> next() override {
    while (!ended_ && position_ == today_.size())
      draw_day();
    if (ended_) return std::nullopt;
    return today_[position_++];
  }

 private:
  struct Day {
    std::size_t first{0}, last{0};
    std::int64_t begin_ns{0};
  };

  void draw_day() {
    today_.clear();
    position_ = 0;
    double left = model_.intensity;
    for (; left >= 1; left -= 1)
      add_day(1);
    if (left > 0) add_day(left);
    std::stable_sort(today_.begin(), today_.end(),
                     [](const Arrival& a, const Arrival& b) { return a.at < b.at; });
    ++day_;
    ended_ = day_ * kDayNs - start_ns_ >= kStreamMaxNs;
  }

  void add_day(double share) {
    const auto& same = days_[static_cast<std::size_t>(((day_ % 7) + 7) % 7)];
    const auto& from = same.empty() ? all_ : same;
    const Day day = from[random_.below(from.size())];
    for (std::size_t i = day.first; i < day.last; ++i) {
      if (share < 1 && random_.uniform() >= share) continue;
      const Nanos at = Nanos{day_ * kDayNs - start_ns_ - day.begin_ns} + model_.jobs[i].submit;
      if (at.count() >= 0) today_.push_back({at, &model_.jobs[i]});
    }
  }

  const ArrivalModel& model_;
  std::int64_t start_ns_;
  RandomStream random_;
  std::int64_t day_{0};  // since the Monday before time 0
  std::array<std::vector<Day>, 7> days_;
  std::vector<Day> all_;
  std::vector<Arrival> today_;
  std::size_t position_{0};
  bool ended_{false};
};

class ReplayProcess final : public ArrivalProcess {
 public:
  explicit ReplayProcess(const ArrivalModel& model) : model_(model) {}

  [[nodiscard]] std::optional<Arrival> next() override {
    if (position_ == model_.jobs.size()) return std::nullopt;
    const Job& job = model_.jobs[position_++];
    // Dividing by 1 must not round: replay gives the recorded nanoseconds.
    const Nanos at = model_.intensity == 1
                         ? job.submit
                         : internal::nanos_of(internal::seconds(job.submit) / model_.intensity);
    return Arrival{at, &job};
  }

 private:
  const ArrivalModel& model_;
  std::size_t position_{0};
};

}  // namespace

std::string_view kind_name(ArrivalKind kind) {
  for (const auto& [value, name] : kKinds)
    if (value == kind) return name;
  CHECK(false);
  return "";
}

std::optional<ArrivalKind> kind_from_name(std::string_view name) {
  for (const auto& [value, known] : kKinds)
    if (known == name) return value;
  return std::nullopt;
}

std::unique_ptr<ArrivalProcess> start_arrivals(const ArrivalModel& model,
                                               std::int64_t start_in_week_s,
                                               const RandomStream& random) {
  switch (model.kind) {
    case ArrivalKind::kHourOfWeekPoisson:
      return std::make_unique<PoissonProcess>(model, start_in_week_s, random);
    case ArrivalKind::kSessions:
      return std::make_unique<SessionProcess>(model, start_in_week_s, random);
    case ArrivalKind::kDayBlocks:
      return std::make_unique<DayProcess>(model, start_in_week_s, random);
    case ArrivalKind::kReplay:
      return std::make_unique<ReplayProcess>(model);
    case ArrivalKind::kConstant:
    case ArrivalKind::kRenewal:
    case ArrivalKind::kHourOfWeekRenewal:
      break;
  }
  return std::make_unique<GapProcess>(model, start_in_week_s, random);
}

}  // namespace kansoku::simulate
