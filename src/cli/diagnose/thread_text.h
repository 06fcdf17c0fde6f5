// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "capture/hang/hang_look.h"
#include "common/json.h"

namespace kansoku::cli {

/// "rank 2 (process 4121)"; "process 4121" if it has no rank (-1).
[[nodiscard]] std::string process_text(std::int32_t rank, std::int32_t pid);

/// To standard output, innermost first. The program's own line is marked, and shown however deep
/// below it the thread is.
void print_frames(const std::vector<capture::hang::FrameText>& frames);
/// To standard output: threads of a process and where they are. Of one that runs Python, native
/// frames only as far as the interpreter.
void print_threads(const std::vector<capture::hang::ThreadText>& threads);

[[nodiscard]] Json frames_json(const std::vector<capture::hang::FrameText>& frames, bool is_native);
[[nodiscard]] Json threads_json(const std::vector<capture::hang::ThreadText>& threads);

}  // namespace kansoku::cli
