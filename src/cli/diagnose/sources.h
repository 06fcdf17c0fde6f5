// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "common/result.h"
#include "trace/import/flight_recorder.h"
#include "trace/model.h"

namespace kansoku::cli {

/// Contents of the files of one job, together.
struct Sources {
  enum class Kind : std::uint8_t { kRecording, kProfiles, kDumps };
  Kind kind{Kind::kRecording};
  trace::Trace trace;                            // kRecording, kProfiles
  std::vector<trace::import::FlightDump> dumps;  // kDumps
  std::vector<std::string> notes;                // on how they were put together
  std::vector<std::string> skipped;              // files of a folder that are none of these
};

struct SourceOptions {
  // Which window of a worker that left several files, from 1, the oldest; nothing: the newest.
  std::optional<std::size_t> window{};
};

/// Reads files, or the files of folders, of one kind; see analyse().
[[nodiscard]] Result<Sources> read_sources(const std::vector<std::string>& paths,
                                           const SourceOptions& options = {});

}  // namespace kansoku::cli
