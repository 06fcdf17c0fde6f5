// SPDX-License-Identifier: Apache-2.0
#include "gpu/exec/fault.h"

#include <fmt/format.h>

namespace kansoku::gpu::exec {
namespace {

std::string place(const std::array<std::uint32_t, 3>& index) {
  return fmt::format("({}, {}, {})", index[0], index[1], index[2]);
}

bool is_of_memory(FaultKind kind) {
  return kind == FaultKind::kOutOfBounds || kind == FaultKind::kMisaligned ||
         kind == FaultKind::kUninitialisedShared || kind == FaultKind::kSharedRace;
}

}  // namespace

std::string_view fault_name(FaultKind kind) {
  switch (kind) {
    case FaultKind::kNone:
      return "none";
    case FaultKind::kOutOfBounds:
      return "out-of-bounds";
    case FaultKind::kMisaligned:
      return "misaligned";
    case FaultKind::kTrap:
      return "trap";
    case FaultKind::kAssertion:
      return "failed assertion";
    case FaultKind::kDeadlock:
      return "deadlock";
    case FaultKind::kTimeout:
      return "time-out";
    case FaultKind::kBarrierDivergence:
      return "barrier divergence";
    case FaultKind::kBadWarpMask:
      return "lanes missing from a warp operation";
    case FaultKind::kStackOverflow:
      return "stack overflow";
    case FaultKind::kNoSuchBarrier:
      return "a barrier beyond the 16 of a block";
    case FaultKind::kBadCall:
      return "call of no function of this kind";
    case FaultKind::kUninitialisedShared:
      return "uninitialised shared memory";
    case FaultKind::kSharedRace:
      return "race in shared memory";
  }
  return "";
}

std::string Fault::text() const {
  std::string text(fault_name(kind));
  if (is_of_memory(kind)) {
    text += fmt::format("{} {} of {} bytes at 0x{:x}",
                        kind >= FaultKind::kUninitialisedShared ? ":" : "",
                        is_store ? "store" : "load", bytes, address);
  }
  text += fmt::format(": kernel {}, ptx line {}, block {}, thread {}", kernel, line, place(block),
                      place(thread));
  if (kind == FaultKind::kSharedRace) {
    text += fmt::format(", after the {} at line {} by thread {} with no barrier between",
                        is_other_store ? "store" : "load", other_line, place(other_thread));
  }
  if (kind == FaultKind::kBarrierDivergence && other_line != 0)
    text += fmt::format(", which ended at line {} while others waited for it", other_line);
  if (launch != 0) text += fmt::format(", launch {}", launch);
  return text;
}

}  // namespace kansoku::gpu::exec
