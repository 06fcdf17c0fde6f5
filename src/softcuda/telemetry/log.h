// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string_view>

namespace kansoku::softcuda {

/// One line to stderr or to $KANSOKU_SOFTGPU_LOG; "off" there: nowhere. Any thread.
void log_line(std::string_view text);

}  // namespace kansoku::softcuda
