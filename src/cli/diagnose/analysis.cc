// SPDX-License-Identifier: Apache-2.0
#include "cli/diagnose/analysis.h"

#include <fmt/format.h>

#include <cstdio>
#include <filesystem>
#include <system_error>

#include "cli/diagnose/device_work.h"
#include "cli/diagnose/sources.h"
#include "diagnose/baseline.h"
#include "diagnose/hang_dumps.h"
#include "diagnose/profile.h"
#include "diagnose/timeline.h"
#include "export/html.h"
#include "sys/fd.h"

namespace kansoku::cli {
namespace {

constexpr std::size_t kBaselineBytesMax = std::size_t{16} << 20;
constexpr std::size_t kSlowEvents = 2'000'000;  // about two seconds of diagnosing

// One line for each counter that a reader of the verdict must know.
std::string loss_text(const trace::Trace& trace) {
  std::string out;
  for (const auto& [name, loss] : trace.losses) {
    if (loss.count == 0 || loss.severity < Severity::kDataLoss) continue;
    out += fmt::format("lost: {} {}: {}\n", name, loss.count, loss.advice);
  }
  return out;
}

Result<diagnose::Diagnosis> diagnose_sources(const Sources& sources, std::uint64_t seed) {
  const diagnose::Options options{.seed = seed};
  if (sources.kind == Sources::Kind::kDumps) return diagnose::diagnose_dumps(sources.dumps);
  if (sources.kind == Sources::Kind::kRecording) return diagnose::diagnose(sources.trace, options);
  TRY(auto timeline, diagnose::diagnose_timeline(sources.trace, options));
  if (timeline) return std::move(*timeline);
  return diagnose::diagnose_profile(sources.trace, options);
}

}  // namespace

Result<Analysis> analyse(const std::vector<std::string>& paths, std::uint64_t seed,
                         const std::string& baseline, const SourceOptions& options) {
  TRY(const Sources sources, read_sources(paths, options));
  const trace::Trace& trace = sources.trace;
  if (trace.slices.size() + trace.samples.size() > kSlowEvents) {
    fmt::print(stderr, "kansoku: diagnosing {} slices, {} samples\n", trace.slices.size(),
               trace.samples.size());
  }
  TRY(auto diagnosis, diagnose_sources(sources, seed));
  if (sources.kind != Sources::Kind::kDumps) TRY_VOID(add_device_work(sources, diagnosis));
  if (!baseline.empty()) {
    TRY(const std::string text, sys::read_file(baseline, kBaselineBytesMax));
    TRY(const Json json, Json::parse(text));
    TRY(auto regression, diagnose::compare_with_baseline(diagnosis, json));
    if (regression) diagnose::add_regression(diagnosis, std::move(*regression));
  }
  diagnosis.notes.insert(diagnosis.notes.end(), sources.notes.begin(), sources.notes.end());
  for (const std::string& path : sources.skipped)
    diagnosis.notes.push_back(fmt::format("{} is not a trace: skipped", path));
  Analysis out;
  out.json = diagnose::to_json(diagnosis);
  out.view = diagnose::view_json(trace, diagnosis);
  std::error_code failed;
  const std::string folder = std::filesystem::current_path(failed).string();
  out.text = diagnose::verdict_text(diagnosis, folder == "/" ? "" : folder) + loss_text(trace);
  out.diagnosis = std::move(diagnosis);
  return out;
}

Result<void> write_baseline(const Analysis& analysis, const std::string& path) {
  TRY(const Json json, diagnose::make_baseline(analysis.diagnosis));
  return sys::write_file(path, json.dump(2) + "\n");
}

Result<void> write_report(const Analysis& analysis, const std::string& path) {
  TRY(const std::string html, exporter::html_report(analysis.json, analysis.view));
  return sys::write_file(path, html);
}

}  // namespace kansoku::cli
