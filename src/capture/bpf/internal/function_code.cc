// SPDX-License-Identifier: Apache-2.0
#include "capture/bpf/internal/function_code.h"

#include <algorithm>
#include <cstring>
#include <iterator>
#include <span>
#include <utility>

#include "capture/bpf/internal/switch_tables.h"

namespace kansoku::capture::bpf {
namespace {

constexpr std::size_t kFunctionBytesMax = std::size_t{256} << 10;
constexpr std::size_t kPartsMax = 64;           // that are looked at
constexpr std::size_t kTableEntriesMax = 4096;  // of one switch

/// Walks a table that begins at `table` and counts from `base`: calls `each` with the addresses in
/// `text` that it leads to, until one is none. False if there is no end.
template <class Entry, class Each>
bool for_entries(const sys::ElfFile& file, std::uint64_t table, std::uint64_t base,
                 const sys::ElfFile::Section& text, const Each& each) {
  constexpr std::size_t kAtOnce = 32;
  for (std::size_t i = 0; i < kTableEntriesMax; i += kAtOnce) {
    const std::vector<std::byte> bytes =
        file.bytes_at(table + i * sizeof(Entry), kAtOnce * sizeof(Entry));
    for (std::size_t at = 0; at + sizeof(Entry) <= bytes.size(); at += sizeof(Entry)) {
      Entry entry{};
      std::memcpy(&entry, bytes.data() + at, sizeof entry);
      const std::uint64_t to = base + static_cast<std::uint64_t>(std::int64_t{entry});
      if (to - text.address >= text.bytes) return true;
      each(to);
    }
    if (bytes.size() < kAtOnce * sizeof(Entry)) return true;
  }
  return false;
}

}  // namespace

FunctionCode::FunctionCode(sys::ElfFile& file, CodeRange range)
    : file_(file), range_(range), text_(file.section(".text")) {
  if (const auto around = code_around(file, range.begin)) {
    range_.has_handlers = around->has_handlers;
    if (range.bytes == 0 && around->begin == range.begin) range_.bytes = around->bytes;
  }
  if (range_.bytes == 0) problem_ = "its size is unknown";
  if (range_.bytes > kFunctionBytesMax) problem_ = "it is too long to analyse";
  if (!problem_.empty()) return;
  flow_ = flow_of(range_);
  if (!flow_) {
    problem_ = "its bytes may not be instructions";
    return;
  }
  if (const sys::Symbol* const symbol = symbol_at(range_.begin)) name_ = symbol->name;
  seen_.insert(range_.begin);
  find_parts(*flow_, range_);
  for (std::size_t i = 0; i < parts_.size(); ++i) {
    const Part part = parts_[i];  // more may come
    find_parts(part.flow, part.range);
  }
}

std::optional<ControlFlow> FunctionCode::flow_of(const CodeRange& range) const {
  const std::vector<std::byte> code = file_.bytes_at(range.begin, range.bytes);
  return code.size() == range.bytes ? ControlFlow::make(code, range.begin == range_.begin)
                                    : std::nullopt;
}

bool FunctionCode::is_own(std::uint64_t address) const {
  return address - range_.begin < range_.bytes ||
         std::any_of(parts_.begin(), parts_.end(), [&](const Part& part) {
           return address - part.range.begin < part.range.bytes;
         });
}

bool FunctionCode::is_code(std::uint64_t address) const {
  return text_ && address - text_->address < text_->bytes;
}

void FunctionCode::find_parts(const ControlFlow& flow, const CodeRange& range) {
  const bool is_main = range.begin == range_.begin;
  for (std::size_t i = 0; i < flow.size(); ++i) {
    if (!flow.leaves(i)) continue;
    const std::uint64_t to = range.begin + static_cast<std::uint64_t>(flow[i].target);
    if (to - range_.begin < range_.bytes) {
      const std::size_t entered = flow_->index_at(static_cast<std::int64_t>(to - range_.begin));
      if (entered == flow_->size()) is_whole_ = false;
      entered_.insert(entered);
    } else if (!is_own(to) && is_code(to)) {
      follow_branch(to, flow[i], is_main);
    }
  }
}

bool FunctionCode::leads_back(const ControlFlow& flow, const CodeRange& range,
                              bool to_begin) const {
  for (std::size_t i = 0; i < flow.size(); ++i) {
    if (!flow.leaves(i)) continue;
    const std::uint64_t to = range.begin + static_cast<std::uint64_t>(flow[i].target);
    if (to_begin ? to == range_.begin : to != range_.begin && to - range_.begin < range_.bytes)
      return true;
  }
  return false;
}

void FunctionCode::follow_branch(std::uint64_t to, const Step& from, bool from_main) {
  const sys::Symbol* const symbol = symbol_at(to);
  const bool is_cold = symbol != nullptr && is_named_after(*symbol, ".cold");
  const bool is_other = symbol != nullptr && symbol->address == to && !is_named_after(*symbol, "");
  auto range = code_around(file_, to);
  if (!range && is_cold) range = CodeRange{symbol->address, symbol->bytes};
  const bool is_around = range && range_.begin - range->begin < range->bytes;
  if (!range || range->bytes > kFunctionBytesMax || is_around || seen_.size() > kPartsMax) {
    is_whole_ = is_whole_ && is_other;
    return;
  }
  if (!seen_.insert(range->begin).second) return;
  auto flow = flow_of(*range);
  if (!flow) {
    is_whole_ = is_whole_ && is_other;
    return;
  }
  // Into the middle of a function, or with something on the stack, leads no jump to another one.
  const bool is_part = is_cold || leads_back(*flow, *range, false) ||
                       (!is_other && (to != range->begin || !from.is_bare.value_or(true)));
  if (is_part) {
    parts_.push_back({*range, std::move(*flow)});
  } else if (from_main && !is_other && leads_back(*flow, *range, true)) {
    may_begin_again_ = true;  // or another function ("f.part.0"), which calls this one last
    is_whole_ = false;
  }
}

const sys::Symbol* FunctionCode::symbol_at(std::uint64_t address) const {
  const auto& symbols = file_.symbols();
  auto next = std::upper_bound(
      symbols.begin(), symbols.end(), address,
      [](std::uint64_t at, const sys::Symbol& symbol) { return at < symbol.address; });
  for (; next != symbols.begin(); --next) {
    const sys::Symbol& symbol = *std::prev(next);
    if (!symbol.is_function) continue;
    const bool is_around = address == symbol.address || address - symbol.address < symbol.bytes;
    return is_around ? &symbol : nullptr;
  }
  return nullptr;
}

bool FunctionCode::is_named_after(const sys::Symbol& symbol, std::string_view how) const {
  if (name_.empty() || !symbol.name.starts_with(name_)) return false;
  const std::string_view rest = std::string_view(symbol.name).substr(name_.size());
  return rest.starts_with(how) && (rest.empty() || rest.front() == '.');
}

FunctionCode::Once FunctionCode::once() const {
  if (may_begin_again_) return {0, "code without a name leads to its first instruction"};
  if (!is_whole_) return {0, "not all of its code is found"};
  std::uint64_t least = range_.bytes;
  for (std::size_t i = 0; i < flow_->size() && least == range_.bytes; ++i) {
    if (!flow_->branches_to(i).empty() || entered_.contains(i)) least = (*flow_)[i].offset;
  }
  const auto scan_flow = [&](const ControlFlow& flow, const CodeRange& range) {
    if (!flow.has_table()) return true;
    const auto found = flow.jumps_by_pointer() ? std::nullopt : least_of_tables(range, least);
    least = found.value_or(0);
    return found.has_value();
  };
  bool is_known = scan_flow(*flow_, range_);
  for (const Part& part : parts_)
    is_known = is_known && scan_flow(part.flow, part.range);
  if (!is_known) return {0, "the target of a jump in it is unknown"};
  return {least, least == 0 ? "its first instruction lies in a loop" : ""};
}

std::optional<std::uint64_t> FunctionCode::least_of_tables(const CodeRange& range,
                                                           std::uint64_t least) const {
  const auto tables = find_switch_tables(file_, range);
  if (!tables || !text_) return std::nullopt;
  bool has_any = false;
  const auto each = [&](std::uint64_t to) {
    if (!is_own(to)) return;
    has_any = true;
    if (to - range_.begin < range_.bytes) least = std::min(least, to - range_.begin);
  };
  for (const std::uint64_t table : tables->near) {
    if (!for_entries<std::int32_t>(file_, table, table, *text_, each)) return std::nullopt;
  }
  for (const std::uint64_t table : tables->far) {
    if (!for_entries<std::int64_t>(file_, table, 0, *text_, each)) return std::nullopt;
  }
  return has_any ? std::optional(least) : std::nullopt;
}

}  // namespace kansoku::capture::bpf
