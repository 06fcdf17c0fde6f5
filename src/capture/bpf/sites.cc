// SPDX-License-Identifier: Apache-2.0
#include "capture/bpf/sites.h"

#include <algorithm>
#include <array>
#include <span>
#include <vector>

#include "capture/bpf/internal/function_code.h"
#include "capture/bpf/internal/instructions.h"

namespace kansoku::capture::bpf {
namespace {

constexpr std::size_t kNop5Bytes = 5;
constexpr std::size_t kScanBytes = 96;  // how far into the function a cheap address is looked for

bool is_argument_register(ZydisRegister whole, std::uint8_t wanted) {
  static constexpr std::array kArguments{ZYDIS_REGISTER_RDI, ZYDIS_REGISTER_RSI, ZYDIS_REGISTER_RDX,
                                         ZYDIS_REGISTER_RCX, ZYDIS_REGISTER_R8,  ZYDIS_REGISTER_R9};
  const auto found = std::find(kArguments.begin(), kArguments.end(), whole);
  return found != kArguments.end() && (wanted >> (found - kArguments.begin()) & 1) != 0;
}

bool moves_stack_pointer(const Instruction& instruction) {
  return writes_register(instruction,
                         [](ZydisRegister whole) { return whole == ZYDIS_REGISTER_RSP; });
}

bool leaves_straight_line(const Instruction& instruction) {
  switch (instruction.info.meta.category) {
    case ZYDIS_CATEGORY_RET:
    case ZYDIS_CATEGORY_UNCOND_BR:
    case ZYDIS_CATEGORY_COND_BR:  // behind it, some calls go another way
    case ZYDIS_CATEGORY_CALL:     // behind it, the arguments are gone
    case ZYDIS_CATEGORY_INTERRUPT:
      return true;
    default:
      return false;
  }
}

struct Found {
  std::size_t offset{0};
  SiteClass site_class{SiteClass::kOther};
  std::string_view reason;
  bool is_probeable{true};
};

// The first instruction that is no 5-byte nop, whatever it costs.
Found at_entry(std::span<const std::byte> code, std::string_view reason) {
  InstructionReader reader(code);
  Instruction first;
  Found found{0, SiteClass::kOther, reason};
  for (std::size_t offset = 0; reader.next(first); offset = reader.offset()) {
    const SiteClass site_class = classify(first);
    const bool is_nop5 = site_class == SiteClass::kNop5;
    found = {offset, site_class, reason, is_probeable(first) && !is_nop5};
    if (!is_nop5) break;
  }
  return found;
}

// The first cheap instruction on the straight line; the entry if there is none.
Found scan(std::span<const std::byte> code, SiteNeeds needs) {
  InstructionReader reader(code.first(std::min(code.size(), kScanBytes)));
  Instruction instruction;
  Found entry = at_entry(code, "entry: not decodable");
  for (std::size_t offset = 0; reader.next(instruction); offset = reader.offset()) {
    const SiteClass site_class = classify(instruction);
    entry.reason = "entry: no cheap instruction before the limit";
    if (is_cheap(site_class)) {
      return {offset, site_class, offset == 0 ? "entry is cheap" : "first cheap instruction"};
    }
    if (leaves_straight_line(instruction)) {
      entry.reason = "entry: control flow leaves the straight line first";
      return entry;
    }
    const auto is_needed = [&](ZydisRegister whole) {
      return is_argument_register(whole, needs.registers);
    };
    if (needs.arguments && writes_register(instruction, is_needed)) {
      entry.reason = "entry: an argument register is overwritten first";
      return entry;
    }
    if ((needs.return_probe || needs.stack) && moves_stack_pointer(instruction)) {
      entry.reason = "entry: the stack pointer moves first";
      return entry;
    }
  }
  return entry;
}

}  // namespace

std::string_view site_class_name(SiteClass site_class) {
  static constexpr std::array<std::string_view, 8> kNames{"push", "nop",  "nop5",    "jmp",
                                                          "jcc",  "call", "endbr64", "other"};
  return kNames.at(static_cast<std::size_t>(site_class));
}

bool is_cheap(SiteClass site_class) {
  return site_class != SiteClass::kEndbr && site_class != SiteClass::kNop5 &&
         site_class != SiteClass::kOther;
}

bool is_nop5_at(sys::ElfFile& file, std::uint64_t address) {
  const std::vector<std::byte> code = file.bytes_at(address, kNop5Bytes);
  InstructionReader reader(code);
  Instruction instruction;
  return reader.next(instruction) && classify(instruction) == SiteClass::kNop5;
}

Site pick_site(sys::ElfFile& file, const sys::Symbol& function, SiteNeeds needs) {
  const std::size_t wanted =
      function.bytes == 0 ? kScanBytes : std::min<std::size_t>(function.bytes, kScanBytes);
  const std::vector<std::byte> code = file.bytes_at(function.address, wanted);
  const FunctionCode whole(file, {function.address, function.bytes});
  const FunctionCode::Once once =
      whole.problem().empty() ? whole.once() : FunctionCode::Once{0, whole.problem()};
  Found found = scan(code, needs);
  if (needs.at_entry) {
    found = at_entry(code, "entry: the first cheap instruction is an exit");
  } else if (found.offset != 0 && found.offset >= once.bytes) {
    found = at_entry(code, "entry: the cheap instruction lies in a loop");
  }
  return {.address = function.address + found.offset,
          .offset_bytes = static_cast<std::uint32_t>(found.offset),
          .site_class = found.site_class,
          .reason = once.bytes != 0 ? found.reason : once.problem,
          .is_probeable = found.is_probeable,
          .is_once = found.offset < once.bytes};
}

}  // namespace kansoku::capture::bpf
