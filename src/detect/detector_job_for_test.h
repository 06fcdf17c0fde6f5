// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <functional>
#include <limits>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "common/rng.h"
#include "detect/detector.h"

namespace kansoku::detect {

inline constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
inline constexpr std::int64_t kStart = 1'700'000'000'000'000'000, kSecond = 1'000'000'000;

inline double normal(RandomStream& random) {
  const double radius = std::sqrt(-2 * std::log(random.uniform()));
  return radius * std::cos(6.283185307179586 * random.uniform());
}
/// Tails of a Student distribution with about four degrees of freedom.
inline double heavy(RandomStream& random) {
  double sum = 0;
  for (int i = 0; i < 4; ++i) {
    const double one = normal(random);
    sum += one * one;
  }
  return normal(random) / std::sqrt(sum / 4);
}

inline std::size_t at(std::string_view name) {
  return static_cast<std::size_t>(feature_index(name));
}

/// A change of windows: features that only a job with steps has are missing.
inline void without_steps(int /*second*/, Window& window) {
  for (const char* name : {"step_mean", "step_rate", "backward_mean"})
    window.values[at(name)] = kNan;
}

/// A training job of some ranks: its windows, second by second.
class Job {
 public:
  explicit Job(int ranks, std::uint64_t seed = 1, Nanos learn_time = std::chrono::minutes{5})
      : detector(*Detector::create(known_features(),
                                   {.job = "j", .learn_time = learn_time, .seed = seed})),
        ranks_(ranks),
        random_(seed, "test.job") {}

  using Change = std::function<void(int second, Window& window)>;
  /// `seconds` more; `change` may alter each window.
  void go(int seconds, const Change& change = {}) {
    for (int i = 0; i < seconds; ++i, ++second) {
      const double pace = 0.2 * std::exp(0.01 * heavy(random_));
      std::vector<Window> windows;
      for (int r = 0; r < ranks_; ++r) {
        windows.push_back(window_of(r, pace));
        if (change) change(i, windows.back());
      }
      now_ns = kStart + second * kSecond;
      take(detector.on_windows(now_ns, windows));
    }
  }
  void finish() { take(detector.finish(now_ns)); }
  [[nodiscard]] std::set<std::uint64_t> ids() const {
    std::set<std::uint64_t> out;
    for (const Told& one : all)
      out.insert(one.id);
    return out;
  }

  /// Report of an episode, and its number.
  struct Told : trace::IncidentFacts {
    std::uint64_t id{0};
    bool is_growth{false};
  };
  /// The one that is open, other than steady growth, as it was told last.
  [[nodiscard]] std::optional<Told> open() const {
    const auto last =
        std::find_if(all.rbegin(), all.rend(), [](const Told& told) { return !told.is_growth; });
    return last == all.rend() || last->end_ns != 0 ? std::nullopt : std::optional(*last);
  }
  [[nodiscard]] std::vector<Told> growing() const {
    std::vector<Told> out;
    for (const Told& told : all) {
      if (!told.is_growth) continue;
      std::erase_if(out, [&](const Told& one) { return one.id == told.id; });
      if (told.end_ns == 0) out.push_back(told);
    }
    return out;
  }

  Detector detector;
  std::vector<Told> all;
  std::int64_t second{0}, now_ns{0};

 private:
  void take(std::vector<Observation> seen) {
    for (Observation& one : seen)
      all.push_back({std::move(one.facts), one.episode, one.is_growth});
  }
  Window window_of(int rank, double pace) {
    Window out{rank, 100 + rank, std::vector<double>(known_features().size(), kNan)};
    auto& values = out.values;
    values[at("step_mean")] = pace;
    values[at("step_rate")] = 1 / pace;
    values[at("backward_mean")] = 0.5 * pace * std::exp(0.02 * heavy(random_));
    values[at("collective_p99")] = 0.004 * std::exp(0.1 * heavy(random_));
    values[at("collective_mean")] = 0.002 * std::exp(0.05 * heavy(random_));
    values[at("cpu_cores")] = 1.1 * std::exp(0.02 * heavy(random_));
    values[at("cpu_wait")] = 0.02 * std::fabs(heavy(random_));
    values[at("tcp_retransmits")] = random_.uniform() < 0.05 ? 1 : 0;
    values[at("resident_bytes")] = 2e9 + 1e6 * normal(random_);
    return out;
  }

  int ranks_;
  RandomStream random_;
};

/// Shares of time as ranks have them that wait for each other.
class WaitingJob : public Job {
 public:
  WaitingJob() : Job(4) { go_on(600); }
  void go_on(int seconds, const Change& change = {}) {
    go(seconds, [&](int since, Window& window) {
      window.values[at("collective_share")] = 0.5 + 0.02 * heavy(noise_);
      window.values[at("input_share")] = 0.02 + 0.002 * heavy(noise_);
      if (window.rank == 0) window.values[at("cpu_cores")] *= 1.5;  // it does more than its peers
      window.values[at("tcp_rtt")] =
          (window.rank == 0 ? 4e-3 : 1e-3) * std::exp(0.1 * heavy(noise_));
      if (change) change(since, window);
    });
  }
  static void slow(Window& window) {
    window.values[at("step_mean")] = 1.2;
    window.values[at("step_rate")] = 0.8;
    window.values[at("collective_share")] = 0.95;
  }

 private:
  RandomStream noise_{3, "test.waiting"};
};

}  // namespace kansoku::detect
