// SPDX-License-Identifier: Apache-2.0
#include "capture/python/internal/code_cache.h"

#include <algorithm>
#include <cstring>

#include "capture/python/internal/py_string.h"
#include "capture/python/internal/snapshot.h"

namespace kansoku::capture::python {
namespace {

constexpr std::uint64_t kFunctionLengthMax = 512;  // characters
constexpr std::uint64_t kFileLengthMax = 4096;     // characters
constexpr std::uint64_t kLineTableBytesMax = 65536;
constexpr std::uint64_t kCodeBytesMax = std::uint64_t{1} << 28;
constexpr std::size_t kHeldBytesMax = std::size_t{64} << 20;
constexpr std::size_t kStringGuessBytes = 192;
constexpr std::size_t kTableGuessBytes = 512;

std::size_t head_bytes_of(const Layout& layout) {
  return static_cast<std::size_t>(
             std::max({layout.code_first_line, layout.code_file, layout.code_name,
                       layout.code_qualified_name, layout.code_line_table, layout.object_size})) +
         8;
}

}  // namespace

CodeCache::CodeCache(Snapshot& snapshot, Snapshot& loader, const Layout& layout,
                     std::uint32_t count_max)
    : snapshot_(snapshot),
      loader_(loader),
      layout_(layout),
      head_bytes_(head_bytes_of(layout)),
      count_max_(count_max) {}

void CodeCache::start_sample() {
  ++sample_;
  retired_.clear();
  if (codes_.size() < count_max_ && held_bytes_ < kHeldBytesMax) return;
  codes_.clear();
  held_bytes_ = 0;
}

void CodeCache::want(std::uint64_t address) {
  snapshot_.want(address, head_bytes_);
}

CodeIdentity CodeCache::identity_of(const std::byte* head) const {
  const bool has_qualified_name = layout_.code_qualified_name >= 0;
  CodeIdentity identity;
  identity.file = load_at<std::uint64_t>(head, layout_.code_file);
  identity.name = load_at<std::uint64_t>(
      head, has_qualified_name ? layout_.code_qualified_name : layout_.code_name);
  identity.line_table = load_at<std::uint64_t>(head, layout_.code_line_table);
  identity.first_line = load_at<std::uint32_t>(head, layout_.code_first_line);
  if (layout_.instruction == InstructionKind::kPointer) {
    identity.code_bytes = load_at<std::uint64_t>(head, layout_.object_size) * 2;
  }
  return identity;
}

CodeCache::Outcome CodeCache::resolve(std::uint64_t address, const CodeObject*& code) {
  if (!is_plausible(address)) return Outcome::kNotCode;
  const auto known = codes_.find(address);
  if (known != codes_.end() && known->second->checked_in_sample == sample_) {
    code = known->second.get();
    return Outcome::kFound;
  }
  const std::byte* head = snapshot_.find(address, head_bytes_);
  if (head == nullptr) return Outcome::kMissing;
  const CodeIdentity identity = identity_of(head);
  if (!is_code_type(load_at<std::uint64_t>(head, layout_.object_type))) return Outcome::kNotCode;
  if (known != codes_.end() && known->second->identity == identity) {
    known->second->checked_in_sample = sample_;
    code = known->second.get();
    return Outcome::kFound;
  }
  std::unique_ptr<CodeObject> fresh = load(identity);
  if (fresh == nullptr) return Outcome::kNotCode;
  held_bytes_ +=
      fresh->function.size() + fresh->file.size() + fresh->lines.size() * sizeof(LineRun);
  std::unique_ptr<CodeObject>& slot = codes_[address];
  if (slot != nullptr) retired_.push_back(std::move(slot));
  slot = std::move(fresh);
  code = slot.get();
  return Outcome::kFound;
}

/// The type of the first object that calls itself "code" is the type of all code objects.
bool CodeCache::is_code_type(std::uint64_t type) {
  if (code_type_ != 0) return type == code_type_;
  if (!is_plausible(type)) return false;
  const std::uint64_t name_at = type + static_cast<std::uint64_t>(layout_.type_name);
  loader_.clear();
  loader_.want(name_at, 8);
  if (!loader_.fetch()) return false;
  const auto name = loader_.get<std::uint64_t>(name_at);
  constexpr char kName[] = "code";
  if (!name) return false;
  loader_.want(*name, sizeof kName);
  if (!loader_.fetch()) return false;
  const std::byte* text = loader_.find(*name, sizeof kName);
  if (text == nullptr || std::memcmp(text, kName, sizeof kName) != 0) return false;
  code_type_ = type;
  return true;
}

/// Wants `least` bytes, and of `guess` as many as surely lie on the same pages.
void CodeCache::want_start(std::uint64_t address, std::size_t least, std::size_t guess) {
  const std::uint64_t page_end = (address + least + kPageBytes - 1) / kPageBytes * kPageBytes;
  loader_.want(address,
               std::max<std::size_t>(least, std::min<std::uint64_t>(guess, page_end - address)));
}

std::unique_ptr<CodeObject> CodeCache::load(const CodeIdentity& identity) {
  if (!is_plausible(identity.file) || !is_plausible(identity.name)) return nullptr;
  if (identity.code_bytes > kCodeBytesMax) return nullptr;
  loader_.clear();
  want_start(identity.file, string_header_bytes(layout_), kStringGuessBytes);
  want_start(identity.name, string_header_bytes(layout_), kStringGuessBytes);
  if (is_plausible(identity.line_table)) {
    want_start(identity.line_table, static_cast<std::size_t>(layout_.bytes_data), kTableGuessBytes);
  }
  if (!loader_.fetch()) return nullptr;
  auto code = std::make_unique<CodeObject>();
  auto function = load_string(identity.name, kFunctionLengthMax);
  auto file = load_string(identity.file, kFileLengthMax);
  if (!function || !file) return nullptr;
  code->function = std::move(*function);
  code->file = std::move(*file);
  code->lines = load_lines(identity);
  code->identity = identity;
  code->serial = next_serial_++;
  code->checked_in_sample = sample_;
  return code;
}

/// Nothing if unreadable; "<?>" for a string of a form that we do not decode.
std::optional<std::string> CodeCache::load_string(std::uint64_t address, std::uint64_t length_max) {
  const std::size_t header_bytes = string_header_bytes(layout_);
  const std::byte* header = loader_.find(address, header_bytes);
  if (header == nullptr) return std::nullopt;
  const auto shape = string_shape(layout_, ByteSpan(header, header_bytes));
  if (!shape) return "<?>";
  const std::uint64_t data = address + static_cast<std::uint64_t>(shape->data_offset);
  const std::size_t bytes = std::min(shape->length, length_max) * shape->unit_bytes;
  if (bytes == 0) return "";
  if (loader_.find(data, bytes) == nullptr) {
    loader_.want(data, bytes);
    loader_.fetch();
  }
  const std::byte* characters = loader_.find(data, bytes);
  if (characters == nullptr) return std::nullopt;
  return to_utf8(ByteSpan(characters, bytes), shape->unit_bytes);
}

/// Without a readable table every instruction gets the line of the function.
std::vector<LineRun> CodeCache::load_lines(const CodeIdentity& identity) {
  std::vector<LineRun> unknown{{.begin = 0, .line = identity.first_line}};
  const auto size = loader_.get<std::uint64_t>(identity.line_table +
                                               static_cast<std::uint64_t>(layout_.object_size));
  if (!size || *size > kLineTableBytesMax) return unknown;
  const std::uint64_t data = identity.line_table + static_cast<std::uint64_t>(layout_.bytes_data);
  const auto bytes = static_cast<std::size_t>(*size);
  if (bytes > 0 && loader_.find(data, bytes) == nullptr) {
    loader_.want(data, bytes);
    loader_.fetch();
  }
  const std::byte* table = bytes > 0 ? loader_.find(data, bytes) : nullptr;
  if (table == nullptr) return unknown;
  return decode_line_table(layout_.line_table, ByteSpan(table, bytes), identity.first_line);
}

bool CodeCache::offset_of(std::uint64_t address, const CodeObject& code, std::uint64_t instruction,
                          std::int64_t& offset) const {
  constexpr std::int64_t kUnitBytes = 2;
  const auto index = static_cast<std::int64_t>(static_cast<std::int32_t>(instruction));
  switch (layout_.instruction) {
    case InstructionKind::kByteIndex:
      offset = index;
      break;
    case InstructionKind::kUnitIndex:
      offset = index * kUnitBytes;
      break;
    case InstructionKind::kPointer: {
      const std::uint64_t start = address + static_cast<std::uint64_t>(layout_.code_bytes);
      // A frame that was just made points one unit before the code.
      offset = static_cast<std::int64_t>(instruction - start);
      return offset >= -kUnitBytes && offset <= static_cast<std::int64_t>(code.identity.code_bytes);
    }
  }
  return offset >= -kUnitBytes && offset <= static_cast<std::int64_t>(kCodeBytesMax);
}

std::uint32_t CodeCache::line_of(const CodeObject& code, std::int64_t offset) {
  if (offset < 0) return code.identity.first_line;
  return line_at(code.lines, static_cast<std::uint32_t>(offset));
}

}  // namespace kansoku::capture::python
