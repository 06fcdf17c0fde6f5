// SPDX-License-Identifier: Apache-2.0
#include "cli/analysis.h"

#include <fmt/format.h>

#include <cstdio>

#include "export/html.h"
#include "sys/clock.h"
#include "sys/fd.h"
#include "trace/reader.h"

namespace kansoku::cli {
namespace {

constexpr std::size_t kSlowBytes = 50'000'000;  // about two seconds of reading and diagnosing

// One line for each counter that a reader of the verdict must know.
std::string loss_text(const trace::Trace& trace) {
  std::string out;
  for (const auto& [name, loss] : trace.losses) {
    if (loss.count == 0 || loss.severity < Severity::kDataLoss) continue;
    out += fmt::format("lost: {} {}: {}\n", name, loss.count, loss.advice);
  }
  return out;
}

}  // namespace

Result<Analysis> analyse(const std::string& path, std::uint64_t seed) {
  TRY(const auto file, sys::MappedFile::open(path));
  const bool is_slow = file.bytes().size() > kSlowBytes;
  if (is_slow)
    fmt::print(stderr, "kansoku: reading {} ({} MB)\n", path, file.bytes().size() / 1'000'000);
  auto trace = trace::read_trace(file.bytes());
  if (!trace) {
    Error error = std::move(trace).error();
    error.what = fmt::format("{}: {}", path, error.what);
    return error;
  }
  if (is_slow) {
    fmt::print(stderr, "kansoku: diagnosing {} slices, {} samples\n", trace->slices.size(),
               trace->samples.size());
  }
  TRY(auto diagnosis, diagnose::diagnose(*trace, {.seed = seed}));
  Analysis out;
  out.json = diagnose::to_json(diagnosis);
  out.view = diagnose::view_json(*trace, diagnosis);
  out.text = diagnose::verdict_text(diagnosis) + loss_text(*trace);
  out.has_findings = !diagnosis.findings.empty();
  out.diagnosis = std::move(diagnosis);
  return out;
}

Result<void> write_report(const Analysis& analysis, const std::string& path) {
  TRY(const std::string html, exporter::html_report(analysis.json, analysis.view));
  return sys::write_file(path, html);
}

}  // namespace kansoku::cli
