// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>

#include "capture/bpf/engine.h"
#include "common/result.h"
#include "sys/procfs.h"

namespace kansoku::capture {

/// Tries an attach mode on a function of this program; the error names the refusal. Needs the
/// rights of a recording.
[[nodiscard]] Result<void> try_attach_mode(bpf::AttachMode mode);

/// The version of the Python that runs in `pid`, "3.11.2"; errors as python::Process::attach.
[[nodiscard]] Result<std::string> python_version(std::int32_t pid, const sys::Procfs& procfs);

}  // namespace kansoku::capture
