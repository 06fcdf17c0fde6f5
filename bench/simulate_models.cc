// SPDX-License-Identifier: Apache-2.0
#include "simulate_models.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <numbers>

#include "common/rng.h"
#include "simulate/des/engine.h"
#include "simulate/des/resource.h"

namespace kansoku::bench {
namespace {

using simulate::des::Environment;
using simulate::des::Held;
using simulate::des::Process;
using simulate::des::Resource;

Nanos nanos(double seconds) {
  return Nanos{static_cast<std::int64_t>(seconds * 1e9 + 0.5)};
}
double seconds(Nanos time) {
  return static_cast<double>(time.count()) * 1e-9;
}
double exponential(RandomStream& random, double mean) {
  return -mean * std::log(random.uniform());
}

struct Queue50 {
  static constexpr std::int64_t kServers = 50;
  explicit Queue50(std::uint64_t seed) : arrivals(seed, "arrivals"), services(seed, "services") {}
  Environment env;
  Resource servers{env, kServers};
  RandomStream arrivals, services;
  Nanos waited{0};
};

Process customer(Environment& env, Queue50& queue) {
  const Nanos came = env.now();
  const Held held = co_await queue.servers.request();
  queue.waited += env.now() - came;
  co_await env.timeout(nanos(exponential(queue.services, 1)));
}

Process source(Environment& env, Queue50& queue, std::uint64_t customers) {
  for (std::uint64_t i = 0; i < customers; ++i) {
    co_await env.timeout(nanos(exponential(queue.arrivals, 1 / (0.9 * Queue50::kServers))));
    env.start(customer(env, queue));
  }
}

// ---- pipelines ----

/// Normal deviates in pairs from two uniforms (Box and Muller).
class Normal {
 public:
  Normal(std::uint64_t seed, const char* name) : random_(seed, name) {}
  double operator()() {
    if (has_second_) {
      has_second_ = false;
      return second_;
    }
    const double radius = std::sqrt(-2 * std::log(random_.uniform()));
    const double angle = 2 * std::numbers::pi * random_.uniform();
    second_ = radius * std::sin(angle);
    has_second_ = true;
    return radius * std::cos(angle);
  }

 private:
  RandomStream random_;
  double second_{0};
  bool has_second_{false};
};

struct Platform {
  explicit Platform(const PipelineOptions& o)
      : options(o),
        gaps(o.seed, "gaps"),
        choices(o.seed, "choices"),
        kinds(o.seed, "kinds"),
        assets(o.seed, "assets"),
        trainings(o.seed, "trainings"),
        shorts(o.seed, "shorts") {}

  double gap() {  // exponentiated Weibull a = 2, c = .6, scale 18 s
    const double u = gaps.uniform();
    return 18 * std::pow(-std::log1p(-std::sqrt(u)), 1 / 0.6);
  }
  double training() {
    constexpr std::array<double, 4> kUpTo{0.3, 0.7, 0.9, 1.0}, kMean{2.3, 4.5, 6.5, 8.5},
        kSigma{0.4, 0.7, 0.8, 0.9};
    const double u = kinds.uniform();
    std::size_t k = 0;
    while (k + 1 < kUpTo.size() && u >= kUpTo[k])
      ++k;
    return std::exp(kMean[k] + kSigma[k] * trainings());
  }
  double short_task() { return 20 * std::exp(0.8 * shorts()); }

  const PipelineOptions& options;
  Environment env;
  Resource compute{env, options.compute_slots}, training_cluster{env, options.training_slots};
  RandomStream gaps, choices, kinds;
  Normal assets, trainings, shorts;
  std::vector<TaskRecord> records;
  std::array<Nanos, kTasks> waited{};
  std::array<std::uint64_t, kTasks> ran{};
  double sojourn_s{0};
};

struct Task {
  std::uint32_t number;
  Resource* cluster;
  double bytes, exec_s;
};

constexpr double kMegabyte = 1e6, kBytesPerSecond = 2e8;

// The next task of a pipeline; false after the last.
bool next_task(Platform& p, double asset_bytes, Task& task) {
  switch (++task.number) {
    case 1:
      task = {1, &p.training_cluster, asset_bytes, p.training()};
      return true;
    case 2:
      task = {2, &p.compute, asset_bytes, p.short_task()};
      return true;
    case 3:
      if (p.choices.uniform() < 0.3) {
        task = {3, &p.training_cluster, kMegabyte, p.short_task()};
        return true;
      }
      [[fallthrough]];
    case 4:
      if (p.choices.uniform() < 0.2) {
        task = {4, &p.training_cluster, kMegabyte, p.short_task()};
        return true;
      }
      [[fallthrough]];
    case 5:
      task = {5, &p.compute, kMegabyte, 5};
      return true;
    default:
      return false;
  }
}

Process pipeline(Environment& env, Platform& p, std::uint32_t number) {
  const Nanos began = env.now();
  const double asset_log = 16 + 2 * p.assets();
  const double asset_bytes = std::exp(asset_log);
  Task task{0, &p.compute, asset_bytes, 2 + 0.018 * std::pow(1.33, asset_log)};
  do {
    co_await env.timeout(nanos(task.bytes / kBytesPerSecond));
    const Nanos asked = env.now();
    Nanos wait{0};
    {
      const Held held = co_await task.cluster->request();
      wait = env.now() - asked;
      co_await env.timeout(nanos(task.exec_s));
    }
    co_await env.timeout(nanos(kMegabyte / kBytesPerSecond));
    p.waited[task.number] += wait;
    ++p.ran[task.number];
    if (p.options.records)
      p.records.push_back({env.now().count(), number, task.number,
                           static_cast<float>(seconds(wait)), static_cast<float>(task.exec_s),
                           task.bytes});
  } while (next_task(p, asset_bytes, task));
  p.sojourn_s += seconds(env.now() - began);
}

Process pipeline_source(Environment& env, Platform& p, PipelineRun& run) {
  for (std::uint32_t i = 0; i < p.options.pipelines; ++i) {
    co_await env.timeout(nanos(p.gap()));
    env.start(pipeline(env, p, i));
  }
  const auto share = [&](const Resource& cluster) {
    return cluster.busy_integral().mean(env.now()) / static_cast<double>(cluster.capacity());
  };
  run.compute_share = share(p.compute);
  run.training_share = share(p.training_cluster);
}

}  // namespace

QueueRun run_queue_of_50(std::uint64_t customers, std::uint64_t seed) {
  Queue50 queue(seed);
  queue.env.start(source(queue.env, queue, customers));
  queue.env.run();
  return {seconds(queue.waited) / static_cast<double>(customers), queue.env.event_count()};
}

PipelineRun run_pipelines(const PipelineOptions& options) {
  PipelineRun run;
  Platform platform(options);
  platform.env.start(pipeline_source(platform.env, platform, run));
  platform.env.run();
  for (std::size_t i = 0; i < kTasks; ++i)
    run.wait_s[i] = seconds(platform.waited[i]) /
                    static_cast<double>(std::max<std::uint64_t>(1, platform.ran[i]));
  run.sojourn_s = platform.sojourn_s / options.pipelines;
  run.events = platform.env.event_count();
  run.frame_bytes = platform.env.frames().system_bytes();
  run.records = std::move(platform.records);
  return run;
}

}  // namespace kansoku::bench
