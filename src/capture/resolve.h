// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "capture/bpf/prologue.h"
#include "capture/pack.h"
#include "sys/elf.h"

namespace kansoku::capture {

/// One function of one file that a pack asks for, with the address chosen for its probe.
struct ResolvedProbe {
  std::string title;                      // event name
  const FunctionProbes* source{nullptr};  // borrowed from the pack
  std::string symbol;                     // mangled
  bpf::Site site;
  std::uint64_t file_offset{0};
};

/// A USDT pair (or single probe) of one file.
struct ResolvedUsdt {
  const UsdtProbes* source{nullptr};                   // borrowed from the pack
  std::uint64_t begin_offset{0}, end_offset{0};        // file offsets; end 0 = instant
  std::uint64_t begin_semaphore{0}, end_semaphore{0};  // file offsets or 0
};

/// What a pack found in one file, and what it did not.
struct Resolution {
  std::vector<ResolvedProbe> probes;  // one an address: aliases are merged under the first name
  std::vector<ResolvedUsdt> usdt;
  std::vector<std::string>
      missing;  // "gloo::nope: no such symbol in libgloo.so.0", "x: ifunc, cannot be probed"
};

/// Finds the probes of `pack` in `file`, whose base name is `library`. Pure apart from reading the
/// file.
[[nodiscard]] Resolution resolve_pack(const Pack& pack, sys::ElfFile& file,
                                      std::string_view library);

/// "c10d::Reducer::finalize_backward" for "c10d::Reducer::finalize_backward()": a demangled name
/// without parameter list, return type and "const".
[[nodiscard]] std::string_view bare_name(std::string_view demangled);

}  // namespace kansoku::capture
