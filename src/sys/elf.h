// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "common/bytes.h"
#include "common/result.h"

namespace kansoku::sys {

/// A defined symbol of .dynsym or .symtab, "@@VERSION" stripped.
struct Symbol {
  std::string name;          // mangled, as in the file
  std::uint64_t address{0};  // virtual address in the file, before relocation
  std::uint64_t bytes{0};
  bool is_function{false};
  bool is_ifunc{false};  // its address is a resolver's, not the function's
};

/// A USDT probe from .note.stapsdt.
struct UsdtProbe {
  std::string provider, name;
  std::uint64_t address{0};    // of the probe's nop, corrected for prelink
  std::uint64_t semaphore{0};  // virtual address of the 2-byte counter, or 0
  std::string arguments;       // e.g. "8@%rbp 8@%r12 -4@%eax"
};

/// One x86-64 ELF file, read through elfutils. The file is hostile: bad headers are errors, counts
/// are capped. Keeps the file open. Not shared between threads.
class ElfFile {
 public:
  struct Limits {
    std::size_t symbols{std::size_t{4} << 20};
    std::size_t name_bytes{std::size_t{1} << 30};  // of all symbols together
  };
  [[nodiscard]] static Result<std::unique_ptr<ElfFile>> open(const std::string& path,
                                                             const Limits& limits);
  [[nodiscard]] static Result<std::unique_ptr<ElfFile>> open(const std::string& path);
  ~ElfFile();
  ElfFile(const ElfFile&) = delete;
  ElfFile& operator=(const ElfFile&) = delete;

  [[nodiscard]] const std::string& path() const;
  /// Hex build id, or "" if the file has none.
  [[nodiscard]] const std::string& build_id() const;
  /// Functions and objects of .dynsym, then of .symtab those not seen yet; in order of address,
  /// then name.
  [[nodiscard]] const std::vector<Symbol>& symbols();
  /// True if symbols() left some out for the limits.
  [[nodiscard]] bool is_cut() const;
  /// First symbol of that (mangled) name, or null. Valid as long as this file.
  [[nodiscard]] const Symbol* find_symbol(std::string_view name);
  /// Address of a symbol that the file exports, by its table for the dynamic linker (GNU hash):
  /// without reading all others. Nothing if there is none, or no such table.
  [[nodiscard]] std::optional<std::uint64_t> exported_address(std::string_view name) const;
  [[nodiscard]] std::vector<UsdtProbe> usdt_probes();
  /// File offset of a virtual address (p_offset + address - p_vaddr of its PT_LOAD), or nothing.
  [[nodiscard]] std::optional<std::uint64_t> file_offset(std::uint64_t address) const;
  /// One PT_LOAD; bytes beyond `file_bytes` (.bss) are not counted.
  struct Segment {
    std::uint64_t address{0}, file_offset{0}, file_bytes{0};
    bool executable{false};
  };
  /// In file order. Valid as long as this file.
  [[nodiscard]] const std::vector<Segment>& load_segments() const;
  /// True if the file is position independent (ET_DYN): addresses are relative to the load bias.
  [[nodiscard]] bool is_position_independent() const;
  /// Address and size of a section, e.g. ".PyRuntime".
  struct Section {
    std::uint64_t address{0}, bytes{0};
  };
  [[nodiscard]] std::optional<Section> section(std::string_view name) const;
  /// Up to `count` bytes of the file image at a virtual address; fewer at the end of its segment.
  [[nodiscard]] std::vector<std::byte> bytes_at(std::uint64_t address, std::size_t count) const;

 private:
  struct Impl;
  explicit ElfFile(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

/// "c10d::ProcessGroupGloo::nextTag()" for "_ZN4c10d16ProcessGroupGloo7nextTagEv"; `mangled` itself
/// if it is not C++, or refers back to itself so often that its text might be longer than
/// `bytes_max`.
[[nodiscard]] std::string demangle(const std::string& mangled,
                                   std::size_t bytes_max = std::size_t{256} << 20);

/// "c10d::ProcessGroupGloo::nextTag" for the same, without demangling: of functions whose name is
/// one of plain identifiers in plain scopes. Nothing for others (templates, operators,
/// abbreviations of the C++ ABI).
[[nodiscard]] std::optional<std::string> plain_function_name(std::string_view mangled);

/// Load bias of a file in a process: to be added to the file's virtual addresses. `mappings`: those
/// of this one file. 0 for a file that is not position independent; nothing if no mapping fits a
/// segment.
struct Mapping;
[[nodiscard]] std::optional<std::uint64_t> load_bias(const ElfFile& file,
                                                     const std::vector<Mapping>& mappings);

}  // namespace kansoku::sys
