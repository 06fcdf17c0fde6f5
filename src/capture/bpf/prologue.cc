// SPDX-License-Identifier: Apache-2.0
#include "capture/bpf/prologue.h"

#include <Zydis/Zydis.h>

#include <algorithm>
#include <array>
#include <span>
#include <vector>

namespace kansoku::capture::bpf {
namespace {

constexpr std::size_t kScanBytes = 96;  // how far into the function a cheap address is looked for
constexpr std::size_t kFunctionBytesMax =
    65536;  // how much of it is searched for branches back to that address

struct Instruction {
  ZydisDecodedInstruction info;
  std::array<ZydisDecodedOperand, ZYDIS_MAX_OPERAND_COUNT> operands;
  std::span<const std::byte> bytes;

  [[nodiscard]] std::span<const ZydisDecodedOperand> all_operands() const {
    return std::span(operands).first(info.operand_count);
  }
};

class Decoder {
 public:
  explicit Decoder(std::span<const std::byte> code) : code_(code) {
    ZydisDecoderInit(&decoder_, ZYDIS_MACHINE_MODE_LONG_64, ZYDIS_STACK_WIDTH_64);
  }

  // False at the end of the bytes and at bytes that are no instruction.
  bool next(Instruction& out) {
    const auto rest = code_.subspan(offset_);
    if (rest.empty() || !ZYAN_SUCCESS(ZydisDecoderDecodeFull(&decoder_, rest.data(), rest.size(),
                                                             &out.info, out.operands.data()))) {
      return false;
    }
    out.bytes = rest.first(out.info.length);
    offset_ += out.info.length;
    return true;
  }
  [[nodiscard]] std::size_t offset() const { return offset_; }

 private:
  ZydisDecoder decoder_{};
  std::span<const std::byte> code_;
  std::size_t offset_{0};
};

bool is_argument_register(ZydisRegister reg) {
  static constexpr std::array kArguments{ZYDIS_REGISTER_RDI, ZYDIS_REGISTER_RSI, ZYDIS_REGISTER_RDX,
                                         ZYDIS_REGISTER_RCX, ZYDIS_REGISTER_R8,  ZYDIS_REGISTER_R9};
  const ZydisRegister whole = ZydisRegisterGetLargestEnclosing(ZYDIS_MACHINE_MODE_LONG_64, reg);
  return std::find(kArguments.begin(), kArguments.end(), whole) != kArguments.end();
}

template <class Predicate>
bool writes_register(const Instruction& instruction, Predicate is_wanted) {
  const auto operands = instruction.all_operands();
  return std::any_of(operands.begin(), operands.end(), [&](const ZydisDecodedOperand& operand) {
    return operand.type == ZYDIS_OPERAND_TYPE_REGISTER &&
           (operand.actions & ZYDIS_OPERAND_ACTION_MASK_WRITE) != 0 && is_wanted(operand.reg.value);
  });
}

bool moves_stack_pointer(const Instruction& instruction) {
  return writes_register(instruction, [](ZydisRegister reg) {
    return ZydisRegisterGetLargestEnclosing(ZYDIS_MACHINE_MODE_LONG_64, reg) == ZYDIS_REGISTER_RSP;
  });
}

bool is_push_register(const Instruction& instruction) {
  return instruction.info.mnemonic == ZYDIS_MNEMONIC_PUSH &&
         instruction.info.operand_count_visible == 1 &&
         instruction.operands[0].type == ZYDIS_OPERAND_TYPE_REGISTER &&
         instruction.info.opcode >= 0x50 && instruction.info.opcode <= 0x57;
}

bool is_nop5(const Instruction& instruction) {
  static constexpr std::array kNop5{std::byte{0x0f}, std::byte{0x1f}, std::byte{0x44},
                                    std::byte{0x00}, std::byte{0x00}};
  return std::equal(instruction.bytes.begin(), instruction.bytes.end(), kNop5.begin(), kNop5.end());
}

SiteClass classify(const Instruction& instruction) {
  switch (instruction.info.mnemonic) {
    case ZYDIS_MNEMONIC_ENDBR64:
      return SiteClass::kEndbr;
    case ZYDIS_MNEMONIC_NOP:
      return is_nop5(instruction) ? SiteClass::kNop5 : SiteClass::kNop;
    case ZYDIS_MNEMONIC_PUSH:
      return is_push_register(instruction) ? SiteClass::kPush : SiteClass::kOther;
    case ZYDIS_MNEMONIC_JMP:
      return instruction.info.opcode == 0xe9 || instruction.info.opcode == 0xeb ? SiteClass::kJump
                                                                                : SiteClass::kOther;
    case ZYDIS_MNEMONIC_CALL:
      return instruction.info.opcode == 0xe8 ? SiteClass::kCall : SiteClass::kOther;
    default:
      return instruction.info.meta.category == ZYDIS_CATEGORY_COND_BR &&
                     ((instruction.info.opcode >= 0x70 && instruction.info.opcode <= 0x7f) ||
                      (instruction.info.opcode >= 0x80 && instruction.info.opcode <= 0x8f))
                 ? SiteClass::kBranch
                 : SiteClass::kOther;
  }
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

// Offsets inside the function that some branch of it jumps to.
std::vector<std::size_t> branch_targets(std::span<const std::byte> code) {
  std::vector<std::size_t> targets;
  Decoder decoder(code);
  Instruction instruction;
  while (decoder.next(instruction)) {
    const auto category = instruction.info.meta.category;
    if (category != ZYDIS_CATEGORY_COND_BR && category != ZYDIS_CATEGORY_UNCOND_BR) continue;
    const auto& operand = instruction.operands[0];
    if (operand.type != ZYDIS_OPERAND_TYPE_IMMEDIATE || !operand.imm.is_relative) continue;
    const std::int64_t target = static_cast<std::int64_t>(decoder.offset()) + operand.imm.value.s;
    if (target >= 0 && static_cast<std::size_t>(target) < code.size()) {
      targets.push_back(static_cast<std::size_t>(target));
    }
  }
  std::sort(targets.begin(), targets.end());
  return targets;
}

struct Found {
  std::size_t offset{0};
  SiteClass site_class{SiteClass::kOther};
  std::string_view reason;
};

// The first cheap instruction on the straight line; offset 0 and the entry's class if there is
// none.
Found scan(std::span<const std::byte> code, SiteNeeds needs) {
  Decoder decoder(code.first(std::min(code.size(), kScanBytes)));
  Instruction instruction;
  Found at_entry{0, SiteClass::kOther, "entry: not decodable"};
  bool only_markers = true;  // nothing but endbr64 and nops so far: nothing can be live below rsp
  for (std::size_t offset = 0; decoder.next(instruction); offset = decoder.offset()) {
    const SiteClass site_class = classify(instruction);
    if (offset == 0) at_entry = {0, site_class, "entry: no cheap instruction before the limit"};
    if (site_class == SiteClass::kNop5 ? only_markers : is_cheap(site_class)) {
      return {offset, site_class, offset == 0 ? "entry is cheap" : "first cheap instruction"};
    }
    if (leaves_straight_line(instruction)) {
      at_entry.reason = "entry: control flow leaves the straight line first";
      return at_entry;
    }
    if (needs.arguments && writes_register(instruction, is_argument_register)) {
      at_entry.reason = "entry: an argument register is overwritten first";
      return at_entry;
    }
    if (needs.return_probe && moves_stack_pointer(instruction)) {
      at_entry.reason = "entry: the stack pointer moves first";
      return at_entry;
    }
    only_markers =
        only_markers && (site_class == SiteClass::kEndbr || site_class == SiteClass::kNop ||
                         site_class == SiteClass::kNop5);
  }
  return at_entry;
}

}  // namespace

std::string_view site_class_name(SiteClass site_class) {
  static constexpr std::array<std::string_view, 8> kNames{"push", "nop",  "nop5",    "jmp",
                                                          "jcc",  "call", "endbr64", "other"};
  return kNames.at(static_cast<std::size_t>(site_class));
}

bool is_cheap(SiteClass site_class) {
  return site_class != SiteClass::kEndbr && site_class != SiteClass::kOther;
}

Site pick_site(const sys::ElfFile& file, const sys::Symbol& function, SiteNeeds needs) {
  const std::size_t wanted =
      function.bytes == 0 ? kScanBytes : std::min<std::size_t>(function.bytes, kFunctionBytesMax);
  const std::vector<std::byte> code = file.bytes_at(function.address, wanted);
  Found found = scan(code, needs);
  if (found.offset != 0) {
    const auto targets = branch_targets(code);
    if (std::binary_search(targets.begin(), targets.end(), found.offset)) {
      Decoder decoder(code);
      Instruction first;
      const bool decoded = decoder.next(first);
      found = {0, decoded ? classify(first) : SiteClass::kOther,
               "entry: the cheap instruction is a branch target"};
    }
  }
  return {function.address + found.offset, static_cast<std::uint32_t>(found.offset),
          found.site_class, found.reason};
}

}  // namespace kansoku::capture::bpf
