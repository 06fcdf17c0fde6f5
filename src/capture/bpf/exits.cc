// SPDX-License-Identifier: Apache-2.0
#include "capture/bpf/exits.h"

#include <algorithm>
#include <optional>
#include <span>

#include "capture/bpf/internal/instructions.h"
#include "capture/bpf/internal/unwind_table.h"
#include "wire/ring.h"

namespace kansoku::capture::bpf {
namespace {

constexpr std::size_t kFunctionBytesMax = 65536;
constexpr std::size_t kExitsMax = 64;
constexpr int kJumpsFollowed = 2;          // one after the other
constexpr std::size_t kBranchesMax = 8;    // that may stand for one return
constexpr std::size_t kBackwardsMax = 32;  // instructions before a return that are looked at
constexpr std::int64_t kStackBytesMax = 8 * 8191;  // what fits into a cookie

enum class Flow : std::uint8_t { kNext, kCall, kBranch, kJump, kIndirectJump, kTableJump, kReturn };

/// What an instruction does to the stack pointer.
struct StackEffect {
  enum class Kind : std::uint8_t { kAdd, kFromFrame, kUnknown } kind{Kind::kAdd};
  std::int64_t bytes{0};  // added to it, or to rbp
};

struct Step {
  std::size_t offset{0};
  std::int64_t target{0};  // of kBranch and kJump, from the function's begin
  Flow flow{Flow::kNext};
  SiteClass site_class{SiteClass::kOther};
  std::uint8_t condition{0};
  StackEffect stack;
  bool writes_frame{false};  // rbp
};

// The jump of a switch. Compilers mark them where the processor checks indirect branches, scale an
// index, or have added an entry of the table to its address just before.
bool is_table_jump(const Instruction& jump, const Instruction& before) {
  if ((jump.info.attributes & ZYDIS_ATTRIB_HAS_NOTRACK) != 0) return true;
  const auto& to = jump.operands[0];
  if (to.type == ZYDIS_OPERAND_TYPE_MEMORY) return to.mem.index != ZYDIS_REGISTER_NONE;
  return to.type == ZYDIS_OPERAND_TYPE_REGISTER && before.info.mnemonic == ZYDIS_MNEMONIC_ADD &&
         before.operands[0].type == ZYDIS_OPERAND_TYPE_REGISTER &&
         before.operands[0].reg.value == to.reg.value;
}

Flow flow_of(const Instruction& instruction, const Instruction& before, bool has_target) {
  if (instruction.info.mnemonic == ZYDIS_MNEMONIC_RET) return Flow::kReturn;
  switch (instruction.info.meta.category) {
    case ZYDIS_CATEGORY_CALL:
    case ZYDIS_CATEGORY_SYSCALL:
    case ZYDIS_CATEGORY_INTERRUPT:
      return Flow::kCall;
    case ZYDIS_CATEGORY_COND_BR:
      return Flow::kBranch;
    case ZYDIS_CATEGORY_UNCOND_BR:
      if (has_target) return Flow::kJump;
      return is_table_jump(instruction, before) ? Flow::kTableJump : Flow::kIndirectJump;
    default:
      return Flow::kNext;
  }
}

bool is_register(const ZydisDecodedOperand& operand, ZydisRegister wanted) {
  return operand.type == ZYDIS_OPERAND_TYPE_REGISTER && operand.reg.value == wanted;
}

StackEffect stack_effect(const Instruction& instruction) {
  using Kind = StackEffect::Kind;
  if (!writes_register(instruction, [](ZydisRegister r) { return r == ZYDIS_REGISTER_RSP; }))
    return {};
  const auto& to = instruction.operands[0];
  const auto& from = instruction.operands[1];
  const bool is_whole = instruction.info.operand_width == 64;
  switch (instruction.info.mnemonic) {
    case ZYDIS_MNEMONIC_POP:
      if (is_whole && to.type == ZYDIS_OPERAND_TYPE_REGISTER && to.reg.value != ZYDIS_REGISTER_RSP)
        return {Kind::kAdd, 8};
      break;
    case ZYDIS_MNEMONIC_ADD:
      if (is_register(to, ZYDIS_REGISTER_RSP) && from.type == ZYDIS_OPERAND_TYPE_IMMEDIATE)
        return {Kind::kAdd, from.imm.value.s};
      break;
    case ZYDIS_MNEMONIC_SUB:
      if (is_register(to, ZYDIS_REGISTER_RSP) && from.type == ZYDIS_OPERAND_TYPE_IMMEDIATE)
        return {Kind::kAdd, -from.imm.value.s};
      break;
    case ZYDIS_MNEMONIC_LEA:
      if (is_register(to, ZYDIS_REGISTER_RSP) && from.mem.index == ZYDIS_REGISTER_NONE) {
        if (from.mem.base == ZYDIS_REGISTER_RBP) return {Kind::kFromFrame, from.mem.disp.value};
        if (from.mem.base == ZYDIS_REGISTER_RSP) return {Kind::kAdd, from.mem.disp.value};
      }
      break;
    case ZYDIS_MNEMONIC_MOV:
      if (is_register(to, ZYDIS_REGISTER_RSP) && is_register(from, ZYDIS_REGISTER_RBP))
        return {Kind::kFromFrame, 0};
      break;
    case ZYDIS_MNEMONIC_LEAVE:  // rsp = rbp, then rbp is taken off the stack
      return {Kind::kFromFrame, 8};
    default:
      break;
  }
  return {Kind::kUnknown, 0};
}

// All instructions of a function in order; nothing if its bytes are something else.
std::optional<std::vector<Step>> steps_of(std::span<const std::byte> code) {
  std::vector<Step> steps;
  InstructionReader reader(code);
  Instruction before;
  Instruction instruction;
  for (std::size_t offset = 0; reader.next(instruction); offset = reader.offset()) {
    const auto target = branch_target(instruction, reader.offset());
    steps.push_back({.offset = offset,
                     .target = target.value_or(-1),
                     .flow = flow_of(instruction, before, target.has_value()),
                     .site_class = classify(instruction),
                     .condition = static_cast<std::uint8_t>(instruction.info.opcode & 0xf),
                     .stack = stack_effect(instruction),
                     .writes_frame = writes_register(
                         instruction, [](ZydisRegister r) { return r == ZYDIS_REGISTER_RBP; })});
    before = instruction;
  }
  if (reader.offset() != code.size()) return std::nullopt;
  return steps;
}

/// The instructions of a function and which leads to which.
class Code {
 public:
  /// Nothing if a branch leads into the middle of an instruction.
  static std::optional<Code> make(std::vector<Step> steps, std::size_t bytes) {
    Code out(std::move(steps), bytes);
    if (!out.link()) return std::nullopt;
    out.reach();
    return out;
  }
  [[nodiscard]] std::size_t size() const { return steps_.size(); }
  [[nodiscard]] const Step& operator[](std::size_t i) const { return steps_[i]; }
  /// Whether branches and falling through lead from the begin to it; true for all if there is a
  /// jump whose targets are not known.
  [[nodiscard]] bool is_reached(std::size_t i) const { return is_reached_[i]; }
  [[nodiscard]] const std::vector<std::size_t>& branches_to(std::size_t i) const {
    return branches_to_[i];
  }
  [[nodiscard]] bool leaves(const Step& step) const {
    return step.flow == Flow::kJump &&
           (step.target < 0 || static_cast<std::size_t>(step.target) >= bytes_);
  }
  [[nodiscard]] bool has_table() const { return has_table_; }

 private:
  Code(std::vector<Step> steps, std::size_t bytes)
      : steps_(std::move(steps)),
        bytes_(bytes),
        branches_to_(steps_.size()),
        target_of_(steps_.size(), steps_.size()) {}

  bool link() {
    for (std::size_t i = 0; i < steps_.size(); ++i) {
      const Step& step = steps_[i];
      has_table_ = has_table_ || step.flow == Flow::kTableJump;
      if (step.flow != Flow::kBranch && step.flow != Flow::kJump) continue;
      if (step.target < 0 || static_cast<std::size_t>(step.target) >= bytes_) continue;
      const auto target = static_cast<std::size_t>(step.target);
      const auto found =
          std::lower_bound(steps_.begin(), steps_.end(), target,
                           [](const Step& one, std::size_t offset) { return one.offset < offset; });
      if (found == steps_.end() || found->offset != target) return false;
      target_of_[i] = static_cast<std::size_t>(found - steps_.begin());
      branches_to_[target_of_[i]].push_back(i);
    }
    return true;
  }

  void reach() {
    is_reached_.assign(steps_.size(), has_table_);
    std::vector<std::size_t> todo{0};
    while (!has_table_ && !todo.empty()) {
      const std::size_t i = todo.back();
      todo.pop_back();
      if (i >= steps_.size() || is_reached_[i]) continue;
      is_reached_[i] = true;
      const Flow flow = steps_[i].flow;
      if (flow == Flow::kNext || flow == Flow::kCall || flow == Flow::kBranch)
        todo.push_back(i + 1);
      todo.push_back(target_of_[i]);
    }
  }

  std::vector<Step> steps_;
  std::size_t bytes_;
  std::vector<std::vector<std::size_t>> branches_to_;
  std::vector<std::size_t> target_of_;
  std::vector<bool> is_reached_;
  bool has_table_{false};
};

/// Where the return address lies, seen from an instruction before the return.
struct Place {
  bool from_frame{false};
  std::int64_t bytes{0};

  /// The same place seen from before `step`; nothing if that cannot be told.
  [[nodiscard]] std::optional<Place> before(const Step& step) const {
    if (from_frame) return step.writes_frame ? std::nullopt : std::optional(*this);
    switch (step.stack.kind) {
      case StackEffect::Kind::kAdd:
        return Place{false, bytes + step.stack.bytes};
      case StackEffect::Kind::kFromFrame:
        return Place{true, bytes + step.stack.bytes};
      case StackEffect::Kind::kUnknown:
        break;
    }
    return std::nullopt;
  }
};

/// Looks for cheap instructions that lead to one return and nowhere else.
class Backwards {
 public:
  Backwards(const Code& code, std::uint64_t function, std::uint64_t entry_site)
      : code_(code), function_(function), entry_site_(entry_site) {}

  /// Nothing if some way to the return `i` has none.
  [[nodiscard]] std::optional<std::vector<Exit>> ways_to(std::size_t i) {
    out_.clear();
    std::optional<Place> place{Place{}};
    for (std::size_t left = kBackwardsMax; left > 0; --left) {
      for (const std::size_t branch : code_.branches_to(i))
        if (!add_branch(branch, *place, Exit::When::kTaken)) return std::nullopt;
      if (i == 0) return std::nullopt;
      const Step& before = code_[--i];
      if (!falls_through(before)) return out_;
      if (before.flow == Flow::kBranch) {
        if (!add_branch(i, *place, Exit::When::kNotTaken)) return std::nullopt;
        return out_;
      }
      if (before.flow == Flow::kCall) return std::nullopt;
      if (before.site_class == SiteClass::kNop) {
        if (!add(i, *place, Exit::When::kAlways)) return std::nullopt;
        return out_;
      }
      place = place->before(before);
      if (!place) return std::nullopt;
    }
    return std::nullopt;
  }

 private:
  static bool falls_through(const Step& step) {
    return step.flow == Flow::kNext || step.flow == Flow::kCall || step.flow == Flow::kBranch;
  }

  bool add_branch(std::size_t i, const Place& place, Exit::When when) {
    const Step& step = code_[i];
    if (step.flow == Flow::kJump) return add(i, place, Exit::When::kAlways);
    return step.site_class == SiteClass::kBranch && add(i, place, when);
  }

  bool add(std::size_t i, const Place& place, Exit::When when) {
    const Step& step = code_[i];
    const std::uint64_t address = function_ + step.offset;
    if (address == entry_site_ || !is_cheap(step.site_class) || out_.size() == kBranchesMax)
      return false;
    if (place.bytes < 0 || place.bytes > kStackBytesMax || place.bytes % 8 != 0) return false;
    out_.push_back({.address = address,
                    .site_class = step.site_class,
                    .when = when,
                    .condition = when == Exit::When::kAlways ? std::uint8_t{0} : step.condition,
                    .from_frame = place.from_frame,
                    .stack_bytes = static_cast<std::uint32_t>(place.bytes)});
    return true;
  }

  const Code& code_;
  std::uint64_t function_, entry_site_;
  std::vector<Exit> out_;
};

// An address that stands for two returns, or for both ways of a jump, would need two probes.
bool has_address_twice(std::vector<Exit>& exits) {
  std::sort(exits.begin(), exits.end(),
            [](const Exit& a, const Exit& b) { return a.address < b.address; });
  return std::adjacent_find(exits.begin(), exits.end(), [](const Exit& a, const Exit& b) {
           return a.address == b.address;
         }) != exits.end();
}

std::vector<Exit> exits_of(const Code& code, std::uint64_t function, const ExitNeeds& needs,
                           bool wants_cheap) {
  std::vector<Exit> out;
  Backwards backwards(code, function, needs.entry_site);
  for (std::size_t i = 0; i < code.size(); ++i) {
    const Step& step = code[i];
    const Exit here{.address = function + step.offset, .site_class = step.site_class};
    if (step.flow == Flow::kReturn) {
      // A handler of exceptions, which no branch leads to, may return; its jumps go on unwinding.
      const auto ways = wants_cheap && code.is_reached(i) ? backwards.ways_to(i) : std::nullopt;
      if (ways && !ways->empty()) {
        out.insert(out.end(), ways->begin(), ways->end());
      } else {
        out.push_back(here);
      }
    } else if (code.is_reached(i) && (code.leaves(step) || step.flow == Flow::kIndirectJump)) {
      out.push_back(here);
      out.back().is_jump = true;
      if (step.flow == Flow::kJump)
        out.back().leads_to = function + static_cast<std::uint64_t>(step.target);
    }
  }
  return out;
}

Exits find_in(const sys::ElfFile& file, std::uint64_t begin, std::uint64_t bytes,
              const ExitNeeds& needs, int jumps);

// What a jump out of a function leads to, if that is a function of the program's own code: the
// stubs that lead into other files are everybody's.
Exits behind(const Exit& exit, const sys::ElfFile& file, const ExitNeeds& needs, int jumps) {
  const auto text = file.section(".text");
  if (jumps == 0 || exit.leads_to == 0 || !text) return {};
  if (exit.leads_to < text->address || exit.leads_to - text->address >= text->bytes) return {};
  const auto bytes = bytes_to_next_function(file, exit.leads_to);
  return bytes ? find_in(file, exit.leads_to, *bytes, needs, jumps - 1) : Exits{};
}

void follow_jumps(const sys::ElfFile& file, const ExitNeeds& needs, int jumps, Exits& found) {
  const bool is_wrapper = std::all_of(found.exits.begin(), found.exits.end(),
                                      [](const Exit& exit) { return exit.is_jump; });
  if (!is_wrapper) return;
  std::vector<Exit> out;
  for (const Exit& exit : found.exits) {
    const Exits there = behind(exit, file, needs, jumps);
    if (there.exits.empty()) {
      out.push_back(exit);
    } else {
      out.insert(out.end(), there.exits.begin(), there.exits.end());
    }
  }
  std::sort(out.begin(), out.end(),
            [](const Exit& a, const Exit& b) { return a.address < b.address; });
  out.erase(std::unique(out.begin(), out.end(),
                        [](const Exit& a, const Exit& b) { return a.address == b.address; }),
            out.end());
  if (out.size() <= kExitsMax) found.exits = std::move(out);
}

Exits find_in(const sys::ElfFile& file, std::uint64_t begin, std::uint64_t bytes,
              const ExitNeeds& needs, int jumps) {
  if (bytes > kFunctionBytesMax) return {{}, "it is too long to be looked through"};
  const std::vector<std::byte> read = file.bytes_at(begin, bytes);
  auto steps = steps_of(read);
  if (read.size() != bytes || !steps) return {{}, "not all of its bytes are instructions"};
  const auto code = Code::make(std::move(*steps), read.size());
  if (!code) return {{}, "a branch leads into the middle of an instruction"};
  // Where a switch jumps to is not known, so neither is what leads to a return.
  const bool wants_cheap = !needs.returned_value && !code->has_table();
  Exits out{exits_of(*code, begin, needs, wants_cheap), {}};
  if (has_address_twice(out.exits)) out.exits = exits_of(*code, begin, needs, false);
  if (out.exits.empty()) return {{}, "it never returns"};
  if (out.exits.size() > kExitsMax) return {{}, "it ends in too many places"};
  follow_jumps(file, needs, jumps, out);
  return out;
}

}  // namespace

std::uint64_t Exit::cookie(std::uint64_t cookie) const {
  std::uint64_t out = cookie | WIRE_COOKIE_EXIT;
  if (is_jump) out |= WIRE_COOKIE_JUMP;
  const auto part = [&](std::uint64_t value, int shift) { out |= value << shift; };
  part(static_cast<std::uint64_t>(when), WIRE_COOKIE_WHEN_SHIFT);
  part(condition, WIRE_COOKIE_CONDITION_SHIFT);
  part(from_frame ? 1 : 0, WIRE_COOKIE_FRAME_SHIFT);
  part(stack_bytes / 8, WIRE_COOKIE_STACK_SHIFT);
  return out;
}

Exits find_exits(const sys::ElfFile& file, const sys::Symbol& function, const ExitNeeds& needs) {
  if (function.bytes == 0) return {{}, "its size is not known"};
  Exits out = find_in(file, function.address, function.bytes, needs, kJumpsFollowed);
  if (std::any_of(out.exits.begin(), out.exits.end(),
                  [&](const Exit& exit) { return exit.address == needs.entry_site; }))
    return {{}, "it begins and ends with one instruction"};
  return out;
}

}  // namespace kansoku::capture::bpf
