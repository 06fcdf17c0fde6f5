// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "capture/bpf/engine.h"
#include "capture/bpf/exits.h"
#include "capture/bpf/sites.h"
#include "capture/pack.h"
#include "sys/elf.h"

namespace kansoku::capture {

/// An exit of a function, which gets a probe of its own.
struct ResolvedExit {
  std::uint64_t file_offset{0};
  bpf::Exit exit;
};

/// One function of one file that a pack asks for, with the address chosen for its probe.
struct ResolvedProbe {
  std::string title;                                 // event name
  const FunctionProbes* source{nullptr};             // borrowed from the pack
  const std::vector<CaptureDef>* captures{nullptr};  // its own, or those of one of its variants
  std::string symbol;                                // mangled
  bpf::Site site;
  std::uint64_t file_offset{0};
  std::vector<ResolvedExit> exits;  // none: only its begin is wanted, or it never throws
  bool by_exits{false};             // its begin tells nothing: a call is seen where it ends, alone
  bool is_slow{false};              // one of all these is single-stepped

  /// Adds the probes that replace the kernel's return probes, so that begin and end of the calls
  /// are seen. `cookie`: of all; `stepped` is added to it if the kernel single-steps. Without
  /// exits: the begin alone.
  void add_specs(std::uint64_t cookie, std::uint64_t stepped,
                 std::vector<bpf::UprobeSpec>& out) const;
};

/// A USDT pair (or single probe) of one file.
struct ResolvedUsdt {
  const UsdtProbes* source{nullptr};                   // borrowed from the pack
  std::uint64_t begin_offset{0}, end_offset{0};        // file offsets; end 0 = instant
  std::uint64_t begin_semaphore{0}, end_semaphore{0};  // file offsets or 0
};

/// Probes that a pack found in one file, and those that it did not.
struct Resolution {
  std::vector<ResolvedProbe> probes;  // one an address: aliases are merged under the first name
  std::vector<ResolvedUsdt> usdt;
  std::vector<std::string> missing;  // "gloo::nope: no such function in libgloo.so.0"
  std::vector<std::string> refused;  // there, and not to be probed: "strlen: ifunc in libc.so.6..."
};

/// Finds the probes of `pack` in `file`, whose base name is `library`. Pure apart from reading the
/// file.
[[nodiscard]] Resolution resolve_pack(const Pack& pack, sys::ElfFile& file,
                                      std::string_view library);

/// "c10d::Reducer::finalize_backward" for "c10d::Reducer::finalize_backward()": a demangled name
/// without parameter list, return type and "const".
[[nodiscard]] std::string_view bare_name(std::string_view demangled);
/// "int, char const*" for "f(int, char const*) const"; "" if there is none.
[[nodiscard]] std::string_view parameter_list(std::string_view demangled);

}  // namespace kansoku::capture
