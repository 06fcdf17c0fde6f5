// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

namespace kansoku::cli {

using Lines = std::vector<std::string>;

/// Prints lines to standard output: all of them, or on a terminal that `is_live` in place of the
/// old ones, cut to its size.
void show_screen(const Lines& lines, bool is_live);

}  // namespace kansoku::cli
