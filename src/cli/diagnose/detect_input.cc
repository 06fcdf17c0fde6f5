// SPDX-License-Identifier: Apache-2.0
#include "cli/diagnose/detect_input.h"

#include <fmt/format.h>
#include <sys/stat.h>

#include <iterator>
#include <string_view>

#include "cli/diagnose/sources.h"
#include "cli/output_file.h"
#include "cli/simulate/simulate_files.h"
#include "cli/simulate/simulate_recording.h"
#include "diagnose/step_times.h"
#include "store/parquet.h"
#include "sys/fd.h"

namespace kansoku::cli {
namespace {

constexpr std::string_view kParquetMagic = "PAR1";

Result<std::string> table_of_recording(const std::string& path) {
  TRY(const Sources sources, read_sources({path}));
  if (sources.kind == Sources::Kind::kDumps) {
    return Error{Code::kUnsupported,
                 fmt::format("{}: Flight Recorder dumps contain no step times", path),
                 "use `kansoku diagnose` for them"};
  }
  TRY(const auto steps, diagnose::step_times(sources.trace, {}));
  if (steps.ranks.empty()) {
    return Error{
        Code::kUnsupported,
        fmt::format("{}: no steps of a training job in this recording{}{}", path,
                    steps.notes.empty() ? "" : ": ", steps.notes.empty() ? "" : steps.notes.back()),
        "`kansoku diagnose` shows its contents"};
  }
  std::string out = "step,rank,step_ms";
  for (std::size_t phase = 0; phase < diagnose::kPhaseCount; ++phase)
    out += fmt::format(",{}_ms", diagnose::phase_name(static_cast<diagnose::Phase>(phase)));
  out += '\n';
  for (const diagnose::RankStepTimes& rank : steps.ranks) {
    for (std::size_t step = 0; step < rank.step_ms.size(); ++step) {
      fmt::format_to(std::back_inserter(out), "{},{},{:.6f}", step, rank.rank, rank.step_ms[step]);
      for (const auto& phase : rank.phase_ms)
        fmt::format_to(std::back_inserter(out), ",{:.6f}", phase[step]);
      out += '\n';
    }
  }
  return out;
}

}  // namespace

Result<std::string> read_table_text(const std::string& path) {
  if (path == "-") return read_text("/dev/stdin");
  struct stat info {};
  const bool is_there = ::stat(path.c_str(), &info) == 0;
  if (is_there && S_ISDIR(info.st_mode)) return table_of_recording(path);
  if (!is_there || !S_ISREG(info.st_mode)) return read_text(path);  // a pipe is opened only once
  TRY(const std::string head, sys::read_begin(path, kFileHeadBytes));
  if (head.starts_with(kParquetMagic)) return store::parquet_to_csv(path);
  if (is_recording(head)) return table_of_recording(path);
  return read_text(path);
}

}  // namespace kansoku::cli
