// SPDX-License-Identifier: Apache-2.0
#include "cli/watch/collect_text.h"

#include <fmt/chrono.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <iterator>
#include <string_view>

#include "common/text.h"
#include "detect/feature.h"

namespace kansoku::cli {
namespace {

constexpr std::size_t kFeaturesShown = 4;  // of a job, unless they were asked for
constexpr std::size_t kLinesMax = 20;      // of each kind, before "and N more"

std::string time_text(std::int64_t wall_ns) {
  return fmt::format("{:%H:%M:%S}", fmt::gmtime(static_cast<std::time_t>(wall_ns / 1'000'000'000)));
}

/// A value in its feature's unit, if detection knows it.
std::string value_text(double value, const std::string& feature) {
  const int index = detect::feature_index(feature);
  if (index < 0) return fmt::format("{:.4g}", value);
  return detect::format_value(value,
                              detect::known_features()[static_cast<std::size_t>(index)].unit);
}

/// The ranks that differ most from the job's median, on whichever side that is.
std::string extreme_text(const fleet::FleetFeature& feature) {
  if (feature.highest.empty() || feature.highest.size() + feature.lowest.size() < 3) return "";
  const fleet::FleetRank &high = feature.highest[0], &low = feature.lowest[0];
  const bool is_high = high.p50 * low.p50 >= feature.p50 * feature.p50;
  const fleet::FleetRank& rank = is_high ? high : low;
  return fmt::format("{} (rank {}, {})", value_text(rank.p50, feature.name), rank.rank, rank.host);
}

void add_model(std::string& text, const fleet::FleetModel& model) {
  fmt::format_to(std::back_inserter(text), "  {} mode{} of {} windows by {} features; ",
                 model.modes, model.modes == 1 ? "" : "s", model.rows, model.features.size());
  if (model.odd_count == 0) {
    fmt::format_to(std::back_inserter(text), "{} hosts are alike\n", model.hosts);
    return;
  }
  fmt::format_to(std::back_inserter(text), "{} of {} hosts {} odd\n", model.odd_count, model.hosts,
                 model.odd_count == 1 ? "is" : "are");
  for (const fleet::FleetOddHost& odd : model.odd) {
    fmt::format_to(std::back_inserter(text),
                   "  odd host {}: mean {} {} where {} is usual ({:.0f} spreads)\n", odd.host,
                   odd.feature, value_text(odd.seen, odd.feature),
                   value_text(odd.usual, odd.feature), odd.spreads);
  }
}

void add_job_text(std::string& text, const fleet::FleetJob& job,
                  const std::vector<std::string>& wanted) {
  fmt::format_to(std::back_inserter(text), "\njob {} ({}): {} of {} ranks on {} hosts\n", job.name,
                 job.key, job.rank_count, job.world_size, job.host_count);
  fmt::format_to(std::back_inserter(text), "  {:<24} {:>12} {:>12} {:>12} {:>12}  {}\n", "FEATURE",
                 "P10", "P50", "P90", "P99", "FARTHEST RANK");
  std::size_t shown = 0;
  for (const fleet::FleetFeature& feature : job.features) {
    const bool is_wanted =
        wanted.empty() ? shown < kFeaturesShown
                       : std::find(wanted.begin(), wanted.end(), feature.name) != wanted.end();
    if (!is_wanted) continue;
    ++shown;
    fmt::format_to(std::back_inserter(text), "  {:<24} {:>12} {:>12} {:>12} {:>12}  {}\n",
                   feature.name, value_text(feature.p10, feature.name),
                   value_text(feature.p50, feature.name), value_text(feature.p90, feature.name),
                   value_text(feature.p99, feature.name), extreme_text(feature));
  }
  if (job.model) add_model(text, *job.model);
}

void add_hosts(std::string& text, const fleet::FleetReport& report) {
  std::size_t lines = 0, more = 0;
  for (const fleet::FleetHost& host : report.hosts) {
    const bool is_odd = host.is_lost || host.missing > 0 || host.dropped > 0;
    if (!is_odd) continue;
    if (++lines > kLinesMax) {
      ++more;
      continue;
    }
    std::vector<std::string> words;
    if (host.is_lost)
      words.push_back(
          fmt::format("lost, silent for {:.0f} s", static_cast<double>(host.silent_ns) * 1e-9));
    if (host.missing > 0) words.push_back(fmt::format("{} messages missing", host.missing));
    if (host.dropped > 0)
      words.push_back(fmt::format("{} parts left out, above its budget", host.dropped));
    fmt::format_to(std::back_inserter(text), "host {}: {}\n", host.host, fmt::join(words, "; "));
  }
  if (more > 0) fmt::format_to(std::back_inserter(text), "and {} more hosts\n", more);
}

void add_groups(std::string& text, const fleet::FleetReport& report) {
  const std::size_t first = report.groups.size() - std::min(report.groups.size(), kLinesMax);
  if (first > 0) fmt::format_to(std::back_inserter(text), "{} earlier incidents\n", first);
  for (std::size_t i = first; i < report.groups.size(); ++i) {
    const fleet::FleetGroup& group = report.groups[i];
    fmt::format_to(std::back_inserter(text),
                   "incident {} to {}, job {}: {} on {} of its hosts{}{}\n",
                   time_text(group.begin_ns), group.end_ns == 0 ? "now" : time_text(group.end_ns),
                   group.job, fmt::join(group.kinds, ", "), group.hosts.size(),
                   group.summary.empty() ? "" : ": ", group.summary);
  }
}

/// Texts come from other hosts.
std::string printable_table(std::string_view text) {
  std::string out;
  for (std::size_t begin = 0; begin < text.size();) {
    const std::size_t end = std::min(text.find('\n', begin), text.size());
    out += printable(text.substr(begin, end - begin)) + "\n";
    begin = end + 1;
  }
  return out;
}

}  // namespace

std::string collect_text(const fleet::FleetReport& report,
                         const std::vector<std::string>& features) {
  std::uint64_t lost = 0, missing = 0;
  for (const fleet::FleetHost& host : report.hosts) {
    lost += host.is_lost ? 1 : 0;
    missing += host.missing;
  }
  std::string text =
      fmt::format("{} UTC: {} hosts ({} lost), {} jobs, {} incidents, {} messages ({} missing)\n",
                  time_text(report.time_ns), report.hosts.size(), lost, report.jobs.size(),
                  report.groups.size(), report.messages, missing);
  add_hosts(text, report);
  add_groups(text, report);
  const fleet::FleetLoss& loss = report.loss;
  const std::uint64_t unused = loss.refused + loss.out_of_window + loss.stale + loss.above_limits +
                               loss.bad_parts + loss.unlike;
  if (unused > 0)
    fmt::format_to(std::back_inserter(text),
                   "rejected: {} unreadable, {} with a wrong time, {} stale, {} above limits, {} "
                   "bad parts, {} unlike their job\n",
                   loss.refused, loss.out_of_window, loss.stale, loss.above_limits, loss.bad_parts,
                   loss.unlike);
  std::size_t count = 0;
  for (const fleet::FleetJob& job : report.jobs)
    if (count++ < kLinesMax) add_job_text(text, job, features);
  if (count > kLinesMax)
    fmt::format_to(std::back_inserter(text), "\nand {} more jobs\n", count - kLinesMax);
  return printable_table(text);
}

}  // namespace kansoku::cli
