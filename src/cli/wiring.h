// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <cstdio>
#include <string>
#include <string_view>
#include <vector>

#include "capture/pack.h"
#include "common/result.h"

namespace kansoku::cli {

/// "0.1.0 (abc1234)".
[[nodiscard]] std::string version_text();

/// A folder of installed or source data: "probes" or "examples". Looked for at $KANSOKU_SHARE,
/// beside the program's prefix, and in the source tree the program was built in. kNotFound names
/// the places.
[[nodiscard]] Result<std::string> data_folder(const std::string& name);

/// The next step if the software device's libraries are missing or do not load.
inline constexpr std::string_view kSoftgpuHint =
    "build it (`make softgpu`) or set KANSOKU_SOFTGPU_LIBS to its folder";
/// The folder of the software device's libraries, with libcuda.so.1 in it; kNotFound if they were
/// not built.
[[nodiscard]] Result<std::string> softgpu_folder();

/// The folder of the library that stands for libcuda.so.1 in watched processes; kNotFound.
[[nodiscard]] Result<std::string> cuda_library_folder();

inline constexpr const char* kNvtxVariable = "NVTX_INJECTION64_PATH";
/// The library in `cuda_folder` as a program's tool for NVTX. Empty, and one line on standard error
/// says so, if the environment already names another one: a program has one alone.
[[nodiscard]] std::string nvtx_injection(const std::string& cuda_folder);

/// The environment of a program that gets Kansoku's CUDA library, as "NAME=VALUE"; kNotFound.
[[nodiscard]] Result<std::vector<std::string>> cuda_environment();

/// Value of a search path of the environment with `folder` before all others.
[[nodiscard]] std::string prepended(const char* variable, const std::string& folder);

/// The probe packs: the shipped ones, then those of /etc/kansoku/probes and
/// ~/.config/kansoku/probes. kNotFound names the folders if there is none.
[[nodiscard]] Result<std::vector<capture::Pack>> known_packs();

/// Writes a line and flushes it. That it cannot be written (a closed pipe, a full disk) is nobody's
/// error: the command goes on.
void say(std::FILE* to, const std::string& line);

/// Counts SIGINT, SIGTERM and SIGHUP (if that is not ignored) from now on instead of dying of them.
void install_signal_counter();
[[nodiscard]] int signal_count();
[[nodiscard]] int last_signal();

}  // namespace kansoku::cli
