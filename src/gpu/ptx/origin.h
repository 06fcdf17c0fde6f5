// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string_view>

#include "common/result.h"

namespace kansoku::gpu::ptx {

/// Succeeds if the software GPU may execute a PTX text: kUnsupported, naming its first kernel, for
/// a text that NVIDIA's compilers wrote and signed. Their licence forbids to translate such a text
/// for other platforms. To be asked before anything else is done with the text. Pure; any thread.
[[nodiscard]] Result<void> check_origin(std::string_view untrusted);

}  // namespace kansoku::gpu::ptx
