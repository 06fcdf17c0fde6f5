// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "capture/bpf/internal/control_flow.h"
#include "capture/bpf/internal/unwind_table.h"
#include "sys/elf.h"

namespace kansoku::capture::bpf {

/// The code of one function: its main part, and the parts that lie elsewhere in the file, such as
/// code that the compiler takes for rarely executed ("f.cold"). Parts are told from other functions
/// by the names of symbols, by the tables of the unwinder, by the stack, and by branches that lead
/// back. `file` is borrowed. Deterministic; any thread that owns the file.
class FunctionCode {
 public:
  struct Part {
    CodeRange range;
    ControlFlow flow;
  };
  /// How far into the function a call is sure to come only once.
  struct Once {
    std::uint64_t bytes{0};    // 0: something leads to its first instruction, or it is not known
    std::string_view problem;  // a literal, if `bytes` is 0: why
  };

  /// `range`: that of the main part; 0 bytes: as the tables of the unwinder say.
  FunctionCode(sys::ElfFile& file, CodeRange range);

  /// Empty, or a literal that says why the main part cannot be looked at; then nothing below may be
  /// asked.
  [[nodiscard]] std::string_view problem() const { return problem_; }
  [[nodiscard]] const CodeRange& range() const { return range_; }
  [[nodiscard]] const ControlFlow& flow() const { return *flow_; }         // of the main part
  [[nodiscard]] const std::vector<Part>& parts() const { return parts_; }  // the other ones
  /// Instructions of the main part to which the others lead.
  [[nodiscard]] const std::set<std::size_t>& entered() const { return entered_; }
  /// False if some code to which it leads may be a part of it, or not.
  [[nodiscard]] bool is_whole() const { return is_whole_; }
  /// True if an address lies in one of its parts.
  [[nodiscard]] bool is_own(std::uint64_t address) const;
  /// In the section of code, where the stubs that lead into other files do not lie.
  [[nodiscard]] bool is_code(std::uint64_t address) const;

  /// Looks for ways back to the begin within one call: branches of all parts, and the tables of
  /// switches, of which more is read than they have rather than less. Functions that jump to it
  /// begin a call, as do calls of it. Not seen: a jump through a label's address that lies in
  /// memory, in a function that has nothing on its stack.
  [[nodiscard]] Once once() const;

 private:
  void find_parts(const ControlFlow& flow, const CodeRange& range);
  void follow_branch(std::uint64_t to, const Step& from, bool from_main);
  /// To the begin of the main part, or else into the middle of it.
  [[nodiscard]] bool leads_back(const ControlFlow& flow, const CodeRange& range,
                                bool to_begin) const;
  [[nodiscard]] std::optional<ControlFlow> flow_of(const CodeRange& range) const;
  [[nodiscard]] const sys::Symbol* symbol_at(std::uint64_t address) const;
  /// "f.cold" after "f", how it begins behind that being `how`; and "f" itself, with "".
  [[nodiscard]] bool is_named_after(const sys::Symbol& symbol, std::string_view how) const;
  /// The least offset to which a table leads, at most `least`; nothing: it is not known.
  [[nodiscard]] std::optional<std::uint64_t> least_of_tables(const CodeRange& range,
                                                             std::uint64_t least) const;

  sys::ElfFile& file_;
  CodeRange range_;
  std::string name_;
  std::optional<sys::ElfFile::Section> text_;
  std::string_view problem_;
  std::optional<ControlFlow> flow_;
  std::vector<Part> parts_;
  std::set<std::size_t> entered_;
  std::set<std::uint64_t> seen_;  // begins of code that was looked at
  bool is_whole_{true};
  bool may_begin_again_{false};  // code that may be a part leads to the first instruction
};

}  // namespace kansoku::capture::bpf
