// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <span>
#include <string>

#include "capture/bpf/engine.h"
#include "sys/fd.h"

namespace kansoku::capture::bpf {

/// BPF_LINK_CREATE for many uprobes of one file, which the packaged libbpf has no call for.
/// `attach_type` 48 = multi, 57 = session. `pid`: in this process and its threads only; 0: in all.
/// Closing the descriptor detaches them.
[[nodiscard]] Result<sys::Fd> create_multi_link(int program, std::uint32_t attach_type,
                                                const std::string& path,
                                                std::span<const UprobeSpec> specs, bool at_return,
                                                std::uint32_t pid = 0);

inline constexpr std::uint32_t kAttachUprobeMulti = 48;
inline constexpr std::uint32_t kAttachUprobeSession = 57;

}  // namespace kansoku::capture::bpf
