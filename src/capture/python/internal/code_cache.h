// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "capture/python/internal/line_table.h"
#include "capture/python/internal/snapshot.h"
#include "capture/python/offsets.h"

namespace kansoku::capture::python {

/// Identity of a code object beside its address: if a new code object reuses the memory, one of
/// these differs.
struct CodeIdentity {
  std::uint64_t file{0}, name{0}, line_table{0};  // addresses of Python objects
  std::uint32_t first_line{0};
  std::uint64_t code_bytes{0};
  friend bool operator==(const CodeIdentity&, const CodeIdentity&) = default;
};

/// One code object, read. Immutable once in the cache.
struct CodeObject {
  std::string function, file;
  std::vector<LineRun> lines;
  std::uint32_t serial{0};  // never given twice
  CodeIdentity identity;
  std::uint64_t checked_in_sample{0};
};

/// Reads code objects of one process and keeps them. A CodeObject lives until the next
/// start_sample(), also when its memory was reused meanwhile.
class CodeCache {
 public:
  CodeCache(Snapshot& snapshot, Snapshot& loader, const Layout& layout, std::uint32_t count_max);

  void start_sample();
  /// Queues the head of a code object in the snapshot, to be looked at by resolve().
  void want(std::uint64_t address);
  enum class Outcome { kFound, kMissing, kNotCode };
  /// The code object at `address`. kMissing: its head was not fetched yet. kNotCode: no code object
  /// is there, or it cannot be read.
  Outcome resolve(std::uint64_t address, const CodeObject*& code);
  /// True if `instruction` (the frame's field) lies in `code`; `offset` is its byte offset,
  /// negative before the first instruction.
  [[nodiscard]] bool offset_of(std::uint64_t address, const CodeObject& code,
                               std::uint64_t instruction, std::int64_t& offset) const;
  [[nodiscard]] static std::uint32_t line_of(const CodeObject& code, std::int64_t offset);

 private:
  [[nodiscard]] bool is_code_type(std::uint64_t type);
  [[nodiscard]] CodeIdentity identity_of(const std::byte* head) const;
  [[nodiscard]] std::unique_ptr<CodeObject> load(const CodeIdentity& identity);
  [[nodiscard]] std::optional<std::string> load_string(std::uint64_t address,
                                                       std::uint64_t length_max);
  [[nodiscard]] std::vector<LineRun> load_lines(const CodeIdentity& identity);
  void want_start(std::uint64_t address, std::size_t least, std::size_t guess);

  Snapshot& snapshot_;  // of the running sample
  Snapshot& loader_;    // of one code object
  const Layout& layout_;
  const std::size_t head_bytes_;
  const std::uint32_t count_max_;
  std::unordered_map<std::uint64_t, std::unique_ptr<CodeObject>> codes_;
  std::vector<std::unique_ptr<CodeObject>> retired_;
  std::uint64_t code_type_{0};
  std::uint64_t sample_{0};
  std::size_t held_bytes_{0};
  std::uint32_t next_serial_{1};
};

}  // namespace kansoku::capture::python
