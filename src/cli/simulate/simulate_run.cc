// SPDX-License-Identifier: Apache-2.0
#include "cli/simulate/simulate_run.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <condition_variable>
#include <map>
#include <mutex>
#include <set>
#include <string_view>
#include <thread>

#include "cli/wiring.h"
#include "simulate/trace_out.h"
#include "sys/clock.h"
#include "sys/fd.h"

namespace kansoku::cli {
namespace {

constexpr Nanos kQuietFor = std::chrono::seconds{2}, kPeriod = std::chrono::milliseconds{500};

/// Shows progress and passes Ctrl-C on while replications run.
class ReplicationProgress {
 public:
  ReplicationProgress(simulate::RunControl& control, int replications, std::string label,
                      bool quiet)
      : control_(control),
        replications_(replications),
        label_(std::move(label)),
        quiet_(quiet),
        begin_(clock_.now()),
        thread_([this] { watch(); }) {}
  ReplicationProgress(const ReplicationProgress&) = delete;
  ReplicationProgress& operator=(const ReplicationProgress&) = delete;
  ~ReplicationProgress() {
    {
      const std::scoped_lock lock(mutex_);
      done_ = true;
    }
    wake_.notify_one();
    thread_.join();
    if (shown_) fmt::print(stderr, "\n");
  }

 private:
  void watch() {
    std::unique_lock lock(mutex_);
    while (!wake_.wait_for(lock, kPeriod, [this] { return done_; })) {
      if (signal_count() > 0) control_.stop = true;
      if (!quiet_ && clock_.now() - begin_ >= kQuietFor) show();
    }
  }
  void show() {
    const double passed_s = static_cast<double>((clock_.now() - begin_).count()) / 1e9;
    const double share =
        std::min(1.0, static_cast<double>(control_.permille.load()) / (1000.0 * replications_));
    const double left_s = share > 0 ? passed_s * (1 - share) / share : 0;
    const auto bar = static_cast<std::size_t>(share * 24);
    const bool terminal = ::isatty(STDERR_FILENO) != 0;
    fmt::print(stderr, "{}{} [{}{}] {:3.0f} %  {:.1f} M events/s  {:.0f} s left{}",
               terminal ? "\r" : "", label_, std::string(bar, '#'), std::string(24 - bar, '.'),
               100 * share, static_cast<double>(control_.events.load()) / passed_s / 1e6, left_s,
               terminal ? "  " : "\n");
    shown_ = terminal;
  }

  simulate::RunControl& control_;
  int replications_;
  std::string label_;
  bool quiet_;
  sys::RealClock clock_;
  BootTime begin_;
  bool shown_{false};
  std::mutex mutex_;
  std::condition_variable wake_;
  bool done_{false};
  std::thread thread_;
};

/// Four significant digits; large whole numbers in full.
std::string shown(double value) {
  if (value == std::floor(value) && std::fabs(value) < 1e9) return fmt::format("{:.0f}", value);
  return fmt::format("{:.4g}", value);
}

/// Figures that a person asks first; all others are in the JSON.
bool is_headline(const std::string& name) {
  constexpr std::array<std::string_view, 14> kEnds{
      ".utilisation",    ".queue_mean",
      ".wait_mean_s",    ".wait_p90_s",
      ".sojourn_mean_s", ".finished",
      ".offered_load",   ".performance_mean",
      ".loss_mean",      ".retrainings",
      ".preemptions",    ".node_failures",
      ".cost",           ".loss_hours_avoided_per_unit_hour"};
  constexpr std::array<std::string_view, 3> kIfAny{".failed", ".dropped", ".refused"};
  return std::any_of(kEnds.begin(), kEnds.end(),
                     [&](std::string_view end) { return name.ends_with(end); }) ||
         std::any_of(kIfAny.begin(), kIfAny.end(),
                     [&](std::string_view end) { return name.ends_with(end); });
}

/// Metrics that are not the same in all variants.
std::set<std::string> differing_metrics(const Json& variants) {
  std::map<std::string, double> first;
  std::set<std::string> out;
  for (std::size_t i = 0; i < variants.size(); ++i) {
    const Json metrics = variants.at(i).at("summary").at("metrics");
    for (std::size_t k = 0; k < metrics.size(); ++k) {
      const std::string name = metrics.at(k).at("name").as_string();
      const double mean = metrics.at(k).at("mean").as_double();
      const auto [found, added] = first.emplace(name, mean);
      if (found->second != mean || variants.size() == 1) out.insert(name);
    }
  }
  return out;
}

std::string interval(const Json& row) {
  const double half = row.at("high").as_double() - row.at("mean").as_double();
  return half > 0 ? fmt::format(" +- {:.2g}", half) : "";
}

}  // namespace

Result<simulate::Replications> simulate_with_progress(const simulate::Experiment& experiment,
                                                      const SimulationOptions& options,
                                                      const std::string& label) {
  install_signal_counter();
  const int count = options.replications > 0 ? options.replications : experiment.replications;
  const int jobs = options.jobs > 0
                       ? options.jobs
                       : static_cast<int>(std::max(1U, std::thread::hardware_concurrency()));
  simulate::RunControl control;
  simulate::RunOptions run_options;
  run_options.records = options.records;
  run_options.records_of_first = options.trace;
  const ReplicationProgress progress(control, count, label, options.quiet);
  return simulate::run_replications(experiment, count, jobs, run_options, control);
}

Result<void> write_simulation_trace(const std::string& path, const simulate::Experiment& experiment,
                                    const simulate::Replications& replications) {
  const simulate::Replication& first = replications.finished.front();
  if (first.records == nullptr)
    return Error{Code::kTimeout,
                 "write " + path + ": stopped before the end of the first replication"};
  TRY(const auto sink, sys::FileSink::create(path, {true, UINT64_MAX}));
  TRY(const auto counts, simulate::write_trace(experiment, first, *sink));
  TRY_VOID(sink->finish());
  if (const std::uint64_t left = counts.over_limit + counts.no_lane + counts.no_queue_lane;
      left > 0)
    fmt::print(stderr,
               "kansoku: {}: {} executions and {} waits; left out: {} after the first, {} "
               "executions and {} waits without a free lane\n",
               path, counts.executions, counts.waits, counts.over_limit, counts.no_lane,
               counts.no_queue_lane);
  return {};
}

void print_summary(const Json& summary, bool by_chance) {
  const auto replications = summary.at("replications").as_int();
  fmt::print("{}: {} replication{} of {:.4g} days, {:.3g} M events{}\n",
             summary.at("name").as_string(), replications, replications == 1 ? "" : "s",
             summary.at("horizon_s").as_double() / 86400, summary.at("events").as_double() / 1e6,
             summary.at("stopped").as_bool() ? ", stopped early" : "");
  const Json metrics = summary.at("metrics");
  for (std::size_t i = 0; i < metrics.size(); ++i) {
    const Json row = metrics.at(i);
    const std::string name = row.at("name").as_string();
    const double mean = row.at("mean").as_double();
    const bool only_if_any =
        name.ends_with(".failed") || name.ends_with(".dropped") || name.ends_with(".refused");
    // Nobody asks for the wait of something that nobody waited for.
    const bool no_wait = mean == 0 && name.find(".wait_") != std::string::npos;
    if (!is_headline(name) || no_wait || (only_if_any && mean == 0)) continue;
    const std::string unit = row.at("unit").as_string();
    fmt::print("  {:<52} {:>12}{}{}\n", name, shown(mean), interval(row),
               unit.empty() || unit == "share" ? "" : " " + unit);
  }
  if (replications == 1 && by_chance)
    fmt::print("one replication shows no random variation: -r 20 gives intervals\n");
  if (summary.at("drains").as_bool())
    for (std::size_t i = 0; i < metrics.size(); ++i)
      if (metrics.at(i).at("name").as_string().ends_with(".unfinished") &&
          metrics.at(i).at("mean").as_double() > 0)
        fmt::print("warning: {} = {}: not finished after {} times the horizon\n",
                   metrics.at(i).at("name").as_string(),
                   shown(metrics.at(i).at("mean").as_double()), simulate::kDrainHorizonsMax + 1);
  if (const auto dropped = summary.at("records_dropped").as_int(); dropped > 0)
    fmt::print("warning: {} records beyond records_max were not kept\n", dropped);
}

void print_comparisons(const Json& sweep) {
  const Json rows = sweep.at("comparisons"), variants = sweep.at("variants");
  const std::set<std::string> differing = differing_metrics(variants);
  for (std::size_t i = 0; i < variants.size(); ++i) {
    const Json variant = variants.at(i);
    std::string set;
    for (const std::string& key : variant.at("set").keys())
      set += fmt::format("{}{} = {}", set.empty() ? "" : ", ", key,
                         variant.at("set").at(key).as_string());
    fmt::print("variant {}: {}\n", variant.at("index").as_int(), set);
    const Json metrics = variant.at("summary").at("metrics");
    for (std::size_t k = 0; k < metrics.size(); ++k) {
      const Json row = metrics.at(k);
      const std::string name = row.at("name").as_string();
      if (!is_headline(name) || !differing.contains(name)) continue;
      std::string difference;
      for (std::size_t c = 0; c < rows.size(); ++c) {
        const Json row_c = rows.at(c);
        if (row_c.at("variant").as_int() != variant.at("index").as_int() ||
            row_c.at("metric").as_string() != name)
          continue;
        const Json of = row_c.at("difference");
        const double low = of.at("low").as_double(), high = of.at("high").as_double();
        difference = fmt::format("   {:+.4g} [{:.4g}, {:.4g}]{}", of.at("mean").as_double(), low,
                                 high, low > 0 || high < 0 ? "" : "  no clear difference");
      }
      fmt::print("  {:<52} {:>12}{}{}\n", name, shown(row.at("mean").as_double()), interval(row),
                 difference);
    }
  }
  if (rows.size() > 0) fmt::print("differences to variant 0, pair by pair, with 95 % intervals\n");
}

}  // namespace kansoku::cli
