// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "capture/bpf/sites.h"
#include "sys/elf.h"

namespace kansoku::capture::bpf {

/// An instruction at which a call ends, or is sure to end without another call or branch.
struct Exit {
  enum class When : std::uint8_t { kAlways, kTaken, kNotTaken };  // of a conditional jump
  std::uint64_t address{0};                                       // virtual address in the file
  SiteClass site_class{SiteClass::kOther};
  bool is_jump{false};        // out of the function: whoever it leads to returns to the caller
  std::uint64_t leads_to{0};  // by a direct one
  When when{When::kAlways};   // the call ends there
  std::uint8_t condition{0};  // of the jump, as in its opcode: 0 to 15
  // Place of the return address then: rsp or rbp plus so many bytes.
  bool from_frame{false};
  std::uint32_t stack_bytes{0};
  std::uint8_t value_register{0};  // that holds the return value, if that is wanted; 0: rax

  /// The cookie of a probe there; `cookie`: that of the begin, without the flags of a begin.
  [[nodiscard]] std::uint64_t cookie(std::uint64_t cookie) const;
};

struct Exits {
  std::vector<Exit> exits;   // ascending by address; none for this reason:
  std::string_view problem;  // a literal
};

struct ExitNeeds {
  std::uint64_t entry_site{0};  // the address of the probe at the begin: none of the exits
  std::uint8_t value_bytes{0};  // of the return value that a register has to hold: 0, 4 or 8
  bool counts{false};           // a call passes one of them, and other functions' calls none
  bool before_calls{false};     // calls may follow, as those of destructors
};

/// The exits of `function`, for probes that see the end of a call without touching its return
/// address. The kernel's return probes replace that: an exception that comes by finds no handler,
/// and the process aborts (measured on Linux 6.18). For every return, the branches are taken that
/// lead to it and nowhere else, such as those of the check of the stack's guard, if they are
/// emulated and the wanted returned value is known there; else the return itself, which costs ten
/// times as much. No call may lie between, for it may take long; those of `before_calls` may.
/// Returns of the other parts, and of handlers of exceptions, are exits too. For a function that
/// ends by jumps alone, such as one that only calls another, the exits of those others in the same
/// file are taken, unless they have to count. None if the bytes may be something else than
/// instructions: a probe in the middle of one would change its effect. Deterministic; any thread
/// that owns `file`.
[[nodiscard]] Exits find_exits(sys::ElfFile& file, const sys::Symbol& function,
                               const ExitNeeds& needs);

}  // namespace kansoku::capture::bpf
