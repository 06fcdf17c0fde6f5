// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "trace/model.h"

namespace kansoku::trace::import {

/// Facts that a file states about itself.
struct ImportedFile {
  std::int32_t rank{kNoRank};  // kNoRank: the file does not say
  std::int32_t world_size{kNoRank};
  std::string backend;  // of collectives, "nccl" or "gloo"; may be empty
  std::uint64_t event_count{0};
  std::uint64_t text_bytes{0};  // of text formats: after inflating
};

/// The rank that a file name states, or kNoRank: the last "rank" followed by digits, with one of
/// "-_." or nothing in between. Any thread.
[[nodiscard]] std::int32_t rank_of_file_name(std::string_view file_name);

}  // namespace kansoku::trace::import
