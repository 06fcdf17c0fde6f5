// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <utility>

#include "cli/cuda/outside.h"
#include "common/text.h"

namespace kansoku::cli {
namespace {

namespace outside = capture::outside;
using outside::Kind;

double seconds(Nanos time) {
  return 1e-9 * static_cast<double>(time.count());
}

std::string human(std::uint64_t bytes) {
  const auto value = static_cast<double>(bytes);
  if (bytes < 10'000) return fmt::format("{} B", bytes);
  if (bytes < 10'000'000) return fmt::format("{:.1f} kB", value / 1e3);
  if (bytes < 10'000'000'000) return fmt::format("{:.1f} MB", value / 1e6);
  return fmt::format("{:.1f} GB", value / 1e9);
}

/// Kernels of one name, however many handles it had.
struct KernelRow {
  std::string shown;
  bool is_named{false};
  outside::KernelCount count;
};

std::map<std::string, KernelRow> kernels_by_name(const outside::Tally& tally) {
  std::map<std::string, KernelRow> out;
  for (const auto& [id, count] : tally.kernels()) {
    const outside::Kernel& kernel = tally.names().kernel(id);
    KernelRow& row = out[kernel.full];
    row.shown = kernel.shown;
    row.is_named = kernel.is_named();
    row.count.launches += count.launches;
    row.count.by_graphs += count.by_graphs;
    row.count.captured += count.captured;
  }
  return out;
}

std::uint64_t ran(const outside::KernelCount& count) {
  return count.launches + count.by_graphs;
}

/// Median and 99th percentile of the host's cost of a launch; nothing below 20 of them.
std::optional<std::pair<Nanos, Nanos>> launch_cost(const outside::Tally& tally) {
  constexpr std::size_t kFewest = 20;
  std::vector<Nanos> costs = tally.launch_costs();
  if (costs.size() < kFewest) return std::nullopt;
  std::sort(costs.begin(), costs.end());
  return std::pair{costs[costs.size() / 2], costs[costs.size() * 99 / 100]};
}

std::string head_of(const CudaStat& stat, const CudaStatRun& run) {
  const auto named = stat.tally->named();
  const double elapsed = seconds(run.elapsed);
  const double cost = static_cast<double>(run.view.hits) * run.view.hit_seconds;
  std::string out =
      fmt::format("process {} {}: {:.1f} s\n", stat.pid, printable(stat.name), elapsed);
  out += fmt::format(
      "kernels launched   {:>10}  {:.0f}/s, without a name {:.1f} %\n", named.launches,
      elapsed > 0 ? static_cast<double>(named.launches) / elapsed : 0,
      named.launches == 0
          ? 0
          : 100.0 * static_cast<double>(named.unnamed) / static_cast<double>(named.launches));
  if (stat.tally->unknown_graph_launches() != 0)
    out += fmt::format(
        "                   {:>10}  launches of graphs that were made earlier: their kernels are "
        "not known\n",
        stat.tally->unknown_graph_launches());
  if (const auto launch = launch_cost(*stat.tally)) {
    out += fmt::format(
        "host, a launch     {:>7.1f} us  median; p99 {:.1f} us; of {} launches, in {} ms of each "
        "second\n",
        1e6 * seconds(launch->first), 1e6 * seconds(launch->second),
        stat.tally->launch_costs().size(), run.view.ends_of_second.count() / 1'000'000);
  } else {
    out += "host, a launch        unknown  fewer than 20 launches fell into the slices with ends\n";
  }
  out += fmt::format("host waits         {:>8.3f} s  {} waits\n", seconds(stat.tally->waits().time),
                     stat.tally->waits().count);
  const outside::BusyBounds busy = stat.tally->busy(stat.end);
  out += busy.is_known
             ? fmt::format("device busy        {:.3f} to {:.3f} s of {:.3f} s\n",
                           seconds(busy.lower), seconds(busy.upper), seconds(busy.observed))
             : std::string("device busy           unknown  work may have been missed\n");
  out += fmt::format(
      "probes at launches {:>10}  hits of about {:.1f} us, {:.2f} % of a processor; seen {:.1f} % "
      "of the time\n",
      run.view.hits, 1e6 * run.view.hit_seconds, elapsed > 0 ? 100 * cost / elapsed : 0,
      100 * run.view.share_seen);
  if (run.view.lost != 0)
    out += fmt::format("lost               {:>10}  records: counts are too small; --ring-bytes\n",
                       run.view.lost);
  return out;
}

std::string memory_of(const outside::Tally& tally) {
  const outside::MemoryCount& memory = tally.memory();
  std::string out;
  for (const auto& [direction, bytes] : tally.copied())
    out += fmt::format("copied {:<11} {:>10}\n", direction, human(bytes));
  out += fmt::format("device memory      {:>10}  allocated, {} freed, {} live, {} at most\n",
                     human(memory.allocated), human(memory.freed), human(memory.live),
                     human(memory.high_water));
  if (memory.unknown_frees + memory.unknown_bytes != 0)
    out += fmt::format(
        "                   {:>10}  frees of memory from before, {} allocations without figures\n",
        memory.unknown_frees, memory.unknown_bytes);
  return out;
}

/// Whose ends are seen in slices of each second alone.
bool is_sampled(Kind kind) {
  return kind == Kind::kLaunch || kind == Kind::kGraphLaunch || kind == Kind::kHostFunction ||
         kind == Kind::kEventRecord || kind == Kind::kStreamWait;
}

std::string entries_of(const outside::Tally& tally, std::size_t rows) {
  std::vector<std::pair<std::string, outside::EntryCount>> all(tally.entries().begin(),
                                                               tally.entries().end());
  std::stable_sort(all.begin(), all.end(),
                   [](const auto& a, const auto& b) { return a.second.begun > b.second.begun; });
  std::string out = fmt::format("\n{:>10} {:>8} {:>10} {:>11}  {}\n", "calls", "errors", "time",
                                "bytes", "function");
  const std::size_t shown = rows == 0 ? all.size() : std::min(rows, all.size());
  for (std::size_t i = 0; i < shown; ++i) {
    const auto& [name, count] = all[i];
    // Some may be open still; of launches few ends are seen.
    const bool has_ends = count.ended != 0 && count.begun - count.ended <= count.begun / 100 + 4 &&
                          !is_sampled(count.kind);
    const std::string time = has_ends ? fmt::format("{:.3f} s", seconds(count.time)) : "-";
    out +=
        fmt::format("{:>10} {:>8} {:>10} {:>11}  {}{}\n", count.begun,
                    has_ends || count.failed != 0 ? std::to_string(count.failed) : "-", time,
                    count.bytes == 0 ? "-" : human(count.bytes), name,
                    count.captured == 0 ? "" : fmt::format("  ({} into graphs)", count.captured));
  }
  if (shown < all.size())
    out += fmt::format("{:>10}  more functions: --rows 0\n", all.size() - shown);
  return out;
}

std::string kernel_rows_of(const outside::Tally& tally, std::size_t rows) {
  const auto by_name = kernels_by_name(tally);
  std::vector<KernelRow> all;
  std::uint64_t total = 0;
  for (const auto& [full, row] : by_name) {
    if (ran(row.count) == 0) continue;
    all.push_back(row);
    total += ran(row.count);
  }
  std::stable_sort(all.begin(), all.end(),
                   [](const auto& a, const auto& b) { return ran(a.count) > ran(b.count); });
  if (all.empty()) return {};
  std::string out =
      fmt::format("\n{:>10} {:>7} {:>10}  {}\n", "launches", "share", "by graphs", "kernel");
  const std::size_t shown = rows == 0 ? all.size() : std::min(rows, all.size());
  for (std::size_t i = 0; i < shown; ++i)
    out += fmt::format("{:>10} {:>6.1f}% {:>10}  {}\n", ran(all[i].count),
                       100.0 * static_cast<double>(ran(all[i].count)) / static_cast<double>(total),
                       all[i].count.by_graphs, printable(all[i].shown));
  if (shown < all.size())
    out += fmt::format("{:>10}  more kernels: --rows 0\n", all.size() - shown);
  return out;
}

Json entries_json(const outside::Tally& tally) {
  Json out = Json::array();
  for (const auto& [name, count] : tally.entries()) {
    Json one = Json::object()
                   .set("function", name)
                   .set("kind", outside::kind_name(count.kind))
                   .set("begun", count.begun)
                   .set("ended", count.ended)
                   .set("failed", count.failed)
                   .set("not_ready", count.not_ready)
                   .set("captured", count.captured)
                   .set("time_s", seconds(count.time));
    if (count.kind == Kind::kCopy || count.kind == Kind::kSet)
      one.set("operations", count.operations)
          .set("bytes", count.bytes)
          .set("calls_without_bytes", count.without_bytes);
    out.push(std::move(one));
  }
  return out;
}

Json kernels_json(const outside::Tally& tally) {
  Json out = Json::array();
  for (const auto& [full, row] : kernels_by_name(tally))
    out.push(Json::object()
                 .set("name", row.shown)
                 .set("full_name", full)
                 .set("is_named", row.is_named)
                 .set("launches", row.count.launches)
                 .set("by_graphs", row.count.by_graphs)
                 .set("captured", row.count.captured));
  return out;
}

Json busy_json(const outside::BusyBounds& busy) {
  Json out =
      Json::object().set("observed_s", seconds(busy.observed)).set("is_known", busy.is_known);
  if (busy.is_known) out.set("lower_s", seconds(busy.lower)).set("upper_s", seconds(busy.upper));
  return out;
}

}  // namespace

std::string cuda_stat_text(const CudaStat& stat, const CudaStatRun& run) {
  std::string out = head_of(stat, run) + memory_of(*stat.tally);
  for (const auto& [error, count] : stat.tally->errors())
    out += fmt::format("error              {:>10}  {} returned {}\n", count, error.first,
                       error.second);
  return out + entries_of(*stat.tally, run.rows) + kernel_rows_of(*stat.tally, run.rows);
}

Json cuda_stat_json(const CudaStat& stat, const CudaStatRun& run) {
  const outside::Tally& tally = *stat.tally;
  const auto named = tally.named();
  Json errors = Json::array(), copied = Json::object();
  for (const auto& [error, count] : tally.errors())
    errors.push(
        Json::object().set("function", error.first).set("code", error.second).set("count", count));
  for (const auto& [direction, bytes] : tally.copied())
    copied.set(direction, bytes);
  const outside::MemoryCount& memory = tally.memory();
  Json out = Json::object()
                 .set("pid", stat.pid)
                 .set("name", stat.name)
                 .set("launches", named.launches)
                 .set("launches_unnamed", named.unnamed)
                 .set("graph_launches_unknown", tally.unknown_graph_launches())
                 .set("pairings_refused", tally.pairings_refused())
                 .set("name_conflicts", tally.names().counters().conflicts)
                 .set("names_dropped", tally.names().counters().forgotten)
                 .set("waits", tally.waits().count)
                 .set("wait_s", seconds(tally.waits().time))
                 .set("device_busy", busy_json(tally.busy(stat.end)))
                 .set("copied_bytes", std::move(copied))
                 .set("memory", Json::object()
                                    .set("allocated_bytes", memory.allocated)
                                    .set("freed_bytes", memory.freed)
                                    .set("live_bytes", memory.live)
                                    .set("high_water_bytes", memory.high_water)
                                    .set("unknown_frees", memory.unknown_frees)
                                    .set("unknown_allocations", memory.unknown_bytes))
                 .set("errors", std::move(errors))
                 .set("functions", entries_json(tally))
                 .set("kernels", kernels_json(tally));
  if (const auto cost = launch_cost(tally))
    out.set("launch_cost",
            Json::object()
                .set("count", static_cast<std::uint64_t>(tally.launch_costs().size()))
                .set("p50_s", seconds(cost->first))
                .set("p99_s", seconds(cost->second))
                .set("slice_s_of_second", seconds(run.view.ends_of_second)));
  return out;
}

}  // namespace kansoku::cli
