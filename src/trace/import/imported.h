// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
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

/// A name without what differs at each call, or on each rank: the numbers that
/// torch.autograd.profiler.emit_nvtx() writes behind it ("aten::linear" of "aten::linear, seq =
/// 100, op_id = 1000"), and the address of an object ("<built-in method get of dict object" of "...
/// object at 0x7f12ab>"). A view into `name`. Any thread.
[[nodiscard]] std::string_view plain_name(std::string_view name);

/// The rank that a file name states, or kNoRank: the last "rank" followed by digits, with one of
/// "-_." or nothing in between. Any thread.
[[nodiscard]] std::int32_t rank_of_file_name(std::string_view file_name);

/// The worker and the moment that torch.profiler.tensorboard_trace_handler() puts into a file name:
/// "worker0.1623143089861.pt.trace.json", one file a window.
struct WindowName {
  std::string_view worker;  // a view into the file name
  std::int64_t time_ms{0};  // since 1970; longer numbers (nanoseconds) as they stand
};
/// Nothing for any other name. Any thread.
[[nodiscard]] std::optional<WindowName> window_of_file_name(std::string_view file_name);

}  // namespace kansoku::trace::import
