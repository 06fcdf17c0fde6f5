// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string_view>

#include "sys/elf.h"

namespace kansoku::capture::bpf {

/// The kernel's treatment of the instruction under a probe. The cheap ones are emulated; the slow
/// ones are single-stepped out of line, which costs about ten times more. kNop5 is no place for a
/// probe: Linux 6.18 makes a call of it, into a page that forked children have not; they die there.
enum class SiteClass : std::uint8_t { kPush, kNop, kNop5, kJump, kBranch, kCall, kEndbr, kOther };

/// "push", "nop", "nop5", "jmp", "jcc", "call", "endbr64", "other".
[[nodiscard]] std::string_view site_class_name(SiteClass site_class);
/// True if the kernel emulates that class, and nothing else becomes of it.
[[nodiscard]] bool is_cheap(SiteClass site_class);

/// Place of a probe in a function, and the reason for it.
struct Site {
  std::uint64_t address{0};       // virtual address in the file
  std::uint32_t offset_bytes{0};  // from the function's entry
  SiteClass site_class{SiteClass::kOther};
  std::string_view reason;  // a literal: why the search ended here
  bool is_probeable{true};  // false: the kernel refuses a probe there, and others beside it
  bool is_once{true};       // false: no address is known that a call passes once
};

struct SiteNeeds {
  bool arguments{false};         // the argument registers must still hold the call's arguments
  bool return_probe{false};      // the return address must still lie at [rsp]
  bool at_entry{false};          // the function's first instruction, whatever it costs
  std::uint8_t registers{0x3f};  // `arguments`: only these, bit i: that of argument i
  bool stack{false};             // the stack pointer must be that of the entry
};

/// The cheapest safe probe address of `function`: the first emulated instruction on the straight
/// line from the entry, before anything to which the function itself leads back, before the
/// arguments (if needed) are overwritten, before rsp moves (if a return probe is wanted), and never
/// a 5-byte nop. Falls back to the entry, or to what follows its 5-byte nops; `is_once` is false if
/// that lies in a loop, or may. Deterministic; any thread that owns `file`. Source: measurements of
/// emulated instructions, and of forked children on Linux 6.18.44.
[[nodiscard]] Site pick_site(sys::ElfFile& file, const sys::Symbol& function, SiteNeeds needs);

/// True if a 5-byte nop stands there; `address`: virtual, in the file.
[[nodiscard]] bool is_nop5_at(sys::ElfFile& file, std::uint64_t address);

}  // namespace kansoku::capture::bpf
