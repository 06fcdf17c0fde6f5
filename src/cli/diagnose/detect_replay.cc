// SPDX-License-Identifier: Apache-2.0
#include "cli/diagnose/detect_replay.h"

#include <fmt/format.h>

#include <cmath>
#include <cstdio>
#include <limits>
#include <map>
#include <optional>
#include <set>
#include <vector>

#include "cli/diagnose/detect_input.h"
#include "cli/simulate/simulate_files.h"
#include "cli/watch/watch_client.h"
#include "common/json.h"
#include "detect/detector.h"
#include "detect/feature.h"
#include "incident/book.h"
#include "sys/fd.h"

namespace kansoku::cli {
namespace {

constexpr double kSecondsMax = 9e9;  // that fit as nanoseconds

/// Column of each known feature in the table; -1: none.
std::vector<int> columns_of(const detect::Table& table) {
  std::vector<int> out;
  for (const detect::Feature& feature : detect::known_features()) {
    int found = -1;
    for (std::size_t c = 0; c < table.columns.size(); ++c) {
      if (table.columns[c].name == feature.name) found = static_cast<int>(c);
    }
    out.push_back(found);
  }
  return out;
}

detect::Window window_of(const detect::Table& table, std::size_t row,
                         const std::vector<int>& columns) {
  detect::Window window;
  window.rank = table.ranks[row];
  for (const int column : columns) {
    window.values.push_back(column < 0 ? std::numeric_limits<double>::quiet_NaN()
                                       : table.row(row)[static_cast<std::size_t>(column)]);
  }
  return window;
}

void print(const trace::IncidentRecord& incident, std::int64_t told_ns, bool json) {
  if (json) {
    fmt::print("{}\n", incident.to_json().set("told_ns", std::to_string(told_ns)).dump());
    return;
  }
  fmt::print("{} UTC  {}  {}  {}: {}\n", wall_text(incident.begin_ns), incident.id.substr(0, 8),
             incident.end_ns == 0
                 ? "open"
                 : fmt::format("{:.0f} s",
                               static_cast<double>(incident.end_ns - incident.begin_ns) * 1e-9),
             word_of(incident.kind), incident.summary);
}

void print_end(const detect::Detector::Status& status, std::size_t moments, bool json) {
  if (json) {
    fmt::print("{}\n", Json::object()
                           .set("schema", "kansoku.watch_replay/1")
                           .set("moments", static_cast<std::uint64_t>(moments))
                           .set("windows", status.windows)
                           .set("flagged", status.flagged)
                           .set("threshold", status.threshold)
                           .set("false_alarms_per_day", Json::object()
                                                            .set("expected", status.alarms_per_day)
                                                            .set("low", status.alarms_low)
                                                            .set("high", status.alarms_high))
                           .dump());
    return;
  }
  fmt::print(stderr,
             "kansoku: {} moments, {} windows judged, {} flagged; threshold {:.0f}; implied false "
             "alarms a day {:.2g} [{:.2g}, {:.2g}]\n",
             moments, status.windows, status.flagged, status.threshold, status.alarms_per_day,
             status.alarms_low, status.alarms_high);
}

Result<detect::Detector> make_detector(const WindowReplayOptions& options) {
  detect::DetectorOptions detecting;
  detecting.job = options.table.job.empty() ? "recorded" : options.table.job;
  detecting.window = options.window;
  detecting.learn_time = options.learn_time;
  detecting.alarms_per_day = options.alarms_per_day;
  detecting.seed = options.seed;
  std::optional<detect::JobModel> model;
  if (!options.model.empty()) {
    TRY(const std::string text, read_text(options.model));
    TRY(auto read, detect::JobModel::from_text(text));
    model.emplace(std::move(read));
  }
  return detect::Detector::create(detect::known_features(), std::move(detecting), std::move(model));
}

}  // namespace

Result<std::size_t> replay_windows(const WindowReplayOptions& options) {
  TRY(const std::string text, read_table_text(options.path));
  TRY(const detect::Table table, detect::read_table(text, options.path, options.table));
  TRY(auto detector, make_detector(options));
  const auto columns = columns_of(table);
  std::map<double, std::vector<std::size_t>> by_time;
  for (std::size_t row = 0; row < table.rows(); ++row) {
    if (std::fabs(table.times[row]) > kSecondsMax) {
      return Error{
          Code::kUnsupported,
          fmt::format("replay {}: {} is not a time in seconds", options.path, table.times[row]),
          "convert milliseconds or nanoseconds to seconds"};
    }
    by_time[table.times[row]].push_back(row);
  }
  std::set<std::string> ids;  // incidents that had an effect
  std::int64_t wall_ns = 0;
  const std::string job = options.table.job.empty() ? "recorded" : options.table.job;
  TRY(auto book, incident::Book::open({}, BootTime{}, 0));
  const auto print_all = [&](std::vector<detect::Observation> seen) {
    for (detect::Observation& one : seen) {
      const auto source = one.is_growth ? incident::Source::kGrowth : incident::Source::kDetector;
      const auto told = book.observe({job, source, one.episode, std::move(one.facts)});
      if (told.incident.has_effect) ids.insert(told.incident.id);
      print(told.incident, wall_ns, options.json);
    }
  };
  std::vector<detect::Window> windows;
  for (const auto& [time, rows] : by_time) {
    windows.clear();
    for (const std::size_t row : rows)
      windows.push_back(window_of(table, row, columns));
    wall_ns = static_cast<std::int64_t>(std::llround(time * 1e6)) * 1000;
    print_all(detector.on_windows(wall_ns, windows));
  }
  print_all(detector.finish(wall_ns));
  print_end(detector.status(), by_time.size(), options.json);
  if (!options.save.empty()) {
    if (detector.model() == nullptr) {
      return Error{Code::kLimit, "replay: too few windows to learn a model",
                   "shorten --learn, or record longer"};
    }
    TRY_VOID(sys::write_file(options.save, detector.model()->to_text()));
  }
  return ids.size();
}

}  // namespace kansoku::cli
