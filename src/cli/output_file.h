// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "common/result.h"

namespace kansoku::cli {

/// Bytes of a file that are looked at to tell its kind.
inline constexpr std::size_t kFileHeadBytes = 4096;

/// Kind of a file's contents, by its first bytes.
enum class FileKind : std::uint8_t { kPage, kRecording, kJson, kTable, kText };

struct OutputRules {
  FileKind kind{FileKind::kText};
  std::string_view schema{};          // of kJson: "kansoku.baseline"; empty: any
  bool force{false};                  // replaces a file of another kind, too
  std::vector<std::string> inputs{};  // files that the command reads; never replaced
};

/// Succeeds if a result can be written there, asked before the work is done: kNotFound or
/// kPermission of its folder; kUnsupported if the path is there and is no regular file (replacing
/// /dev/null would harm others), is an input, or is of another kind. An empty path is fine.
[[nodiscard]] Result<void> check_output(const std::string& path, const OutputRules& rules);

}  // namespace kansoku::cli
