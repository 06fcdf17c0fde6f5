// SPDX-License-Identifier: Apache-2.0
#include "sys/native_stack.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <optional>

#include "common/parse.h"
#include "sys/elf.h"
#include "sys/fd.h"
#include "sys/process_memory.h"
#include "sys/unwind.h"

namespace kansoku::sys {
namespace {

constexpr std::size_t kFilesMax = 512;
constexpr std::size_t kGuessWordsMax = 4096;  // of 8 bytes: how far a return address is sought
constexpr std::size_t kWordBytes = 8;
constexpr std::size_t kCallBytesMax = 7;
constexpr std::size_t kCandidatesMax = 32;
/// Registers that a function may change without saving them, but for the two that it must know.
constexpr std::array<std::size_t, 9> kLostInCalls{0, 1, 2, 4, 5, 8, 9, 10, 11};
/// Mapping of the kernel's return probes (uretprobe): they replace return addresses by one that
/// leads there; the address itself is the kernel's alone.
constexpr std::string_view kReturnProbe = "[uprobes]";
/// A function whose rules are not known saves at most so many registers below its return address,
/// the frame pointer among them.
constexpr std::size_t kSavedMax = 6;
constexpr unsigned kTries = 3;  // a thread may run for a moment while it waits

using Registers = std::array<std::optional<std::uint64_t>, kUnwindRegisters>;

std::optional<std::uint64_t> word_at(std::int32_t pid, std::uint64_t address) {
  std::uint64_t out = 0;
  if (read_process_memory(pid, address, std::as_writable_bytes(std::span(&out, 1))) != sizeof out)
    return std::nullopt;
  return out;
}

struct Place {
  std::uint64_t stack{0}, instruction{0};
  friend bool operator==(const Place&, const Place&) = default;
};

Error runs(std::int32_t tid) {
  return {Code::kUnavailable, fmt::format("read the stack of thread {}: it runs", tid)};
}

/// The last two words of /proc/PID/task/TID/syscall.
Result<Place> place_of(const Procfs& procfs, std::int32_t pid, std::int32_t tid) {
  const std::string path = fmt::format("{}/{}/task/{}/syscall", procfs.root(), pid, tid);
  for (unsigned i = 0; i < kTries; ++i) {
    TRY(const std::string text, read_file(path, 4096));
    const std::string_view line = std::string_view(text).substr(0, text.find('\n'));
    const std::size_t last = line.rfind(" 0x");
    const std::size_t before =
        last == std::string_view::npos || last == 0 ? last : line.rfind(" 0x", last - 1);
    if (before == std::string_view::npos) continue;  // "running"
    const auto number = [](std::string_view word) {
      return parse_int<std::uint64_t>(word.substr(3), 16);
    };
    const auto stack = number(line.substr(before, last - before));
    const auto instruction = number(line.substr(last));
    if (stack && instruction) return Place{*stack, *instruction};
  }
  return runs(tid);
}

/// True if a call instruction ends at the end of `code`, that is at the return address.
bool is_behind_call(std::span<const std::byte, kCallBytesMax> code) {
  const auto at = [&](std::size_t back) {
    return static_cast<std::uint8_t>(code[kCallBytesMax - back]);
  };
  if (at(5) == 0xe8) return true;  // call rel32
  // call r/m64: FF /2, with what follows the byte that names the operand.
  const auto is_operand = [&](std::size_t back, std::size_t length) {
    if (at(back) != 0xff || (at(back - 1) & 0x38U) != 0x10) return false;
    const std::uint8_t mode = at(back - 1) >> 6, register_number = at(back - 1) & 7U;
    std::size_t bytes = 2;
    if (mode != 3 && register_number == 4) ++bytes;
    if (mode == 1) bytes += 1;
    if (mode == 2 || (mode == 0 && register_number == 5)) bytes += 4;
    return bytes == length;
  };
  for (std::size_t length = 2; length <= kCallBytesMax; ++length)
    if (is_operand(length, length)) return true;
  return false;
}

}  // namespace

struct NativeStacks::File {
  std::unique_ptr<ElfFile> elf;  // null: cannot be read
  std::uint64_t bias{0}, table{0};
  std::int32_t pid{0};
  std::vector<Symbol> functions;  // by address

  [[nodiscard]] std::optional<UnwindRow> row(std::uint64_t address) const {
    if (elf == nullptr || table == 0) return std::nullopt;
    const auto read = [&](std::uint64_t from, std::span<std::byte> into) {
      return read_process_memory(pid, from + bias, into);
    };
    return unwind_row(table, read, address - bias);
  }
  [[nodiscard]] const Symbol* function(std::uint64_t address) const {
    const std::uint64_t in_file = address - bias;
    const auto after =
        std::upper_bound(functions.begin(), functions.end(), in_file,
                         [](auto value, const auto& one) { return value < one.address; });
    if (after == functions.begin()) return nullptr;
    const Symbol& found = *std::prev(after);
    // A symbol of size 0 (hand-written assembly) reaches to the next one.
    return in_file - found.address < found.bytes || found.bytes == 0 ? &found : nullptr;
  }
};

NativeStacks::NativeStacks(const Procfs& procfs) : procfs_(procfs) {}
NativeStacks::~NativeStacks() = default;

/// One thread's way from its innermost frame outwards.
struct NativeStacks::Walk {
  NativeStacks& owner;
  std::int32_t pid{0};
  std::vector<Mapping> maps;
  Registers registers{};
  bool is_innermost{true}, is_at_end{false}, is_guessed{false};
  std::map<std::uint64_t, std::size_t> behind_hidden{};  // frames, by where the stack stands
  std::vector<NativeFrame> frames{};

  [[nodiscard]] const Mapping* mapping(std::uint64_t address) const {
    const auto after =
        std::upper_bound(maps.begin(), maps.end(), address,
                         [](std::uint64_t value, const Mapping& one) { return value < one.begin; });
    return after == maps.begin() || address >= std::prev(after)->end ? nullptr : &*std::prev(after);
  }
  [[nodiscard]] bool is_code(std::uint64_t address) const {
    const Mapping* const found = mapping(address);
    return found != nullptr && found->executable;
  }
  File* file(std::uint64_t address) {
    const Mapping* const found = mapping(address);
    if (found == nullptr || found->inode == 0 || found->path.empty() || found->path[0] != '/')
      return nullptr;
    return owner.file_of(pid, *found);
  }
  /// The instruction that is looked up: a return address may lie behind its function's end.
  [[nodiscard]] std::uint64_t looked_up() const {
    return *registers[kRegisterReturn] - (is_innermost ? 0 : 1);
  }

  void add_frame() {
    const std::uint64_t address = *registers[kRegisterReturn];
    frames.push_back({address, "", "", is_guessed});
    const std::uint64_t inside = looked_up();
    if (const Mapping* const found = mapping(inside)) frames.back().file = found->path;
    // A return probe's address is not behind a call.
    const Mapping* const at = mapping(address);
    if (at != nullptr && at->path == kReturnProbe) {
      frames.back() = {address, "[return probe]", at->path, true};
      return;
    }
    if (const File* const from = file(inside))
      if (const Symbol* const symbol = from->function(inside))
        frames.back().function = symbol->name;
  }

  /// To the caller by call frame information. False: it does not say, or makes no sense.
  bool step() {
    const File* const from = file(looked_up());
    if (from == nullptr) return false;
    const auto row = from->row(looked_up());
    if (!row) return false;
    // Outermost: its return address is undefined, and not the one of the frame within it.
    is_at_end = row->registers[kRegisterReturn].rule != UnwindRow::Rule::kSaved;
    if (is_at_end || !registers[row->cfa_register]) return false;
    return enter(*row, *registers[row->cfa_register] + static_cast<std::uint64_t>(row->cfa_offset));
  }

  /// To the caller of a function whose canonical frame address is known.
  bool enter(const UnwindRow& row, std::uint64_t frame) {
    if (frame <= *registers[kRegisterRsp] || frame % kWordBytes != 0) return false;
    Registers next = registers;
    for (std::size_t i = 0; i < kUnwindRegisters; ++i) {
      const UnwindRow::Register& rule = row.registers[i];
      if (rule.rule == UnwindRow::Rule::kUndefined) next[i].reset();
      if (rule.rule == UnwindRow::Rule::kSaved)
        next[i] = word_at(pid, frame + static_cast<std::uint64_t>(rule.offset));
    }
    for (const std::size_t lost : kLostInCalls)
      next[lost].reset();
    next[kRegisterRsp] = frame;
    if (!next[kRegisterReturn] || !is_code(*next[kRegisterReturn])) return false;
    registers = next;
    is_innermost = false;
    return true;
  }

  /// A return probe, or code that was made at run time: nothing says how to go on, and a walk that
  /// comes so far is no stray one.
  [[nodiscard]] bool is_hidden() const {
    const Mapping* const found = mapping(*registers[kRegisterReturn]);
    return found != nullptr && (found->path.empty() || found->path == kReturnProbe);
  }

  /// How many frames call frame information leads outwards from here; kFramesMax more: to the
  /// outermost. `may_guess`: behind a hidden one, as many as one more search finds.
  std::size_t steps_ahead(bool may_guess) {
    const Registers before = registers;
    const bool was_innermost = is_innermost;
    std::size_t out = 0;
    while (out < kFramesMax && step())
      ++out;
    if (is_at_end) {
      out += kFramesMax;
    } else if (may_guess && out > 0 && is_hidden()) {
      const auto [known, is_new] = behind_hidden.try_emplace(*registers[kRegisterRsp]);
      if (is_new) known->second = guess(false);
      out += known->second;
    }
    registers = before;
    is_innermost = was_innermost;
    is_at_end = false;
    return out;
  }

  [[nodiscard]] bool is_return_address(std::uint64_t address) const {
    std::array<std::byte, kCallBytesMax> code{};
    return is_code(address) &&
           read_process_memory(pid, address - kCallBytesMax, code) == kCallBytesMax &&
           is_behind_call(code);
  }

  /// To a word above that may be a return address: one that leads to the outermost frame if there
  /// is any, and of those over most frames, since a copy of an outer frame's word leaves some out.
  /// The function's saved registers lie at the offsets of its own information, counted from there.
  /// How many frames that leads outwards, the one it is moved to counted; 0: there is none.
  std::size_t guess(bool may_guess) {
    const File* const from_file = file(looked_up());
    const std::optional<UnwindRow> row =
        from_file == nullptr ? std::nullopt : from_file->row(looked_up());
    const Registers before = registers;
    const bool was_innermost = is_innermost;
    std::optional<Registers> best;
    std::size_t best_steps = 0;
    const auto consider = [&] {
      if (!registers[kRegisterReturn]) return;
      const std::size_t steps = 1 + steps_ahead(may_guess);
      if (!best || steps > best_steps) {
        best = registers;
        best_steps = steps;
      }
    };
    for (const std::uint64_t slot : candidates()) {
      registers = before;
      is_innermost = was_innermost;
      if (row && enter(*row, slot + kWordBytes)) {
        consider();
        continue;
      }
      // Nothing says where the function saved its caller's frame pointer, if it did.
      for (std::size_t saved = 0; saved <= kSavedMax; ++saved) {
        registers = before;
        registers[kRegisterRsp] = slot + kWordBytes;
        registers[kRegisterReturn] = word_at(pid, slot);
        if (saved > 0) registers[kRegisterRbp] = word_at(pid, slot - saved * kWordBytes);
        is_innermost = false;
        consider();
      }
    }
    registers = best.value_or(before);
    is_innermost = !best && was_innermost;
    return best_steps;
  }

  /// Possible return addresses above the stack's end.
  std::vector<std::uint64_t> candidates() {
    std::vector<std::uint64_t> out;
    std::vector<std::uint64_t> words(kGuessWordsMax);
    const std::uint64_t from = *registers[kRegisterRsp];
    const Mapping* const stack = mapping(from);
    if (stack == nullptr || from % kWordBytes != 0) return out;
    words.resize(std::min<std::size_t>(kGuessWordsMax, (stack->end - from) / kWordBytes));
    const std::size_t got =
        read_process_memory(pid, from, std::as_writable_bytes(std::span(words))) / kWordBytes;
    for (std::size_t i = 0; i < got && out.size() < kCandidatesMax; ++i)
      if (is_return_address(words[i])) out.push_back(from + i * kWordBytes);
    return out;
  }
};

NativeStacks::File* NativeStacks::file_of(std::int32_t pid, const Mapping& mapping) {
  const std::string key = fmt::format("{} {}", pid, mapping.path);
  if (const auto found = files_.find(key); found != files_.end()) return found->second.get();
  if (files_.size() >= kFilesMax) return nullptr;
  auto out = std::make_unique<File>();
  out->pid = pid;
  if (auto elf = ElfFile::open(procfs_.through_root(pid, mapping.path))) {
    std::vector<Mapping> own;
    if (auto maps = procfs_.maps(pid))
      for (Mapping& one : *maps)
        if (one.path == mapping.path && one.inode == mapping.inode) own.push_back(std::move(one));
    const auto bias = load_bias(**elf, own);
    const auto table = (*elf)->section(".eh_frame_hdr");
    if (bias) {
      out->bias = *bias;
      out->table = table ? table->address : 0;
      for (const Symbol& symbol : (*elf)->symbols())
        if (symbol.is_function && symbol.address != 0) out->functions.push_back(symbol);
      out->elf = std::move(*elf);
    }
  }
  return files_.emplace(key, std::move(out)).first->second.get();
}

Result<std::vector<NativeFrame>> NativeStacks::of(std::int32_t pid, std::int32_t tid) {
  TRY(const auto maps, procfs_.maps(pid));
  for (unsigned i = 0; i < kTries; ++i) {
    TRY(const Place place, place_of(procfs_, pid, tid));
    Walk walk{*this, pid, maps};
    walk.registers[kRegisterRsp] = place.stack;
    walk.registers[kRegisterReturn] = place.instruction;
    while (walk.frames.size() < kFramesMax) {
      walk.add_frame();
      if (walk.step()) continue;
      if (walk.is_at_end || walk.guess(true) == 0) break;
      walk.is_guessed = true;
    }
    // One that woke meanwhile has overwritten what was read.
    TRY(const Place after, place_of(procfs_, pid, tid));
    if (after == place) return std::move(walk.frames);
  }
  return runs(tid);
}

Result<std::vector<NativeFrame>> NativeStacks::named(std::int32_t pid,
                                                     std::span<const std::uint64_t> addresses) {
  TRY(const auto maps, procfs_.maps(pid));
  Walk walk{*this, pid, maps};
  walk.is_innermost = false;  // the innermost is behind a call, too
  for (const std::uint64_t address : addresses.first(std::min(addresses.size(), kFramesMax))) {
    walk.registers[kRegisterReturn] = address;
    walk.add_frame();
  }
  return std::move(walk.frames);
}

}  // namespace kansoku::sys
