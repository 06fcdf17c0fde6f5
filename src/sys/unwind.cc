// SPDX-License-Identifier: Apache-2.0
#include "sys/unwind.h"

#include <algorithm>
#include <cstring>
#include <string_view>
#include <vector>

namespace kansoku::sys {
namespace {

constexpr std::size_t kEntryBytesMax = 1U << 16;  // of a CIE or an FDE; usual are below 200
constexpr std::uint32_t kTableEntriesMax = 1U << 24;
constexpr std::size_t kStatesMax = 16;
constexpr std::uint8_t kPcRelative = 0x10, kDataRelative = 0x30, kSigned4 = 0x0b, kUnsigned4 = 0x03;

/// The bytes of one entry; what lies beyond its end is zero, and `is_bad` then.
class Cursor {
 public:
  Cursor(std::span<const std::byte> bytes, std::uint64_t address)
      : bytes_(bytes), address_(address) {}

  [[nodiscard]] bool is_bad() const { return is_bad_; }
  [[nodiscard]] bool is_at_end() const { return at_ >= bytes_.size(); }
  [[nodiscard]] std::uint64_t address() const { return address_ + at_; }

  template <class T>
  T fixed() {
    T out{};
    if (bytes_.size() - at_ < sizeof out) {
      fail();
      return out;
    }
    std::memcpy(&out, bytes_.data() + at_, sizeof out);
    at_ += sizeof out;
    return out;
  }
  std::uint64_t uleb() {
    std::uint64_t out = 0;
    for (unsigned shift = 0; shift < 64; shift += 7) {
      const auto byte = fixed<std::uint8_t>();
      out |= std::uint64_t{byte & 0x7fU} << shift;
      if ((byte & 0x80U) == 0) return out;
    }
    fail();
    return 0;
  }
  std::int64_t sleb() {
    std::uint64_t out = 0;
    for (unsigned shift = 0; shift < 64; shift += 7) {
      const auto byte = fixed<std::uint8_t>();
      out |= std::uint64_t{byte & 0x7fU} << shift;
      if ((byte & 0x80U) != 0) continue;
      if (shift + 7 < 64 && (byte & 0x40U) != 0) out |= ~std::uint64_t{0} << (shift + 7);
      return static_cast<std::int64_t>(out);
    }
    fail();
    return 0;
  }
  void skip(std::uint64_t count) {
    if (count > bytes_.size() - at_)
      fail();
    else
      at_ += static_cast<std::size_t>(count);
  }
  /// A pointer of an encoding without indirection; its size alone, for lengths.
  std::uint64_t pointer(std::uint8_t encoding, bool is_length) {
    const std::uint64_t base = (encoding & 0x70U) == kPcRelative && !is_length ? address() : 0;
    switch (encoding & 0x0fU) {
      case 0x00:
      case 0x04:
      case 0x0c:
        return base + fixed<std::uint64_t>();
      case kUnsigned4:
        return base + fixed<std::uint32_t>();
      case kSigned4:
        return base + static_cast<std::uint64_t>(std::int64_t{fixed<std::int32_t>()});
      case 0x02:
        return base + fixed<std::uint16_t>();
      case 0x0a:
        return base + static_cast<std::uint64_t>(std::int64_t{fixed<std::int16_t>()});
      default:
        fail();
        return 0;
    }
  }
  std::string_view text() {
    const std::size_t begin = at_;
    while (fixed<char>() != '\0' && !is_bad_) {
    }
    return is_bad_ ? std::string_view()
                   : std::string_view(reinterpret_cast<const char*>(bytes_.data()) + begin,
                                      at_ - begin - 1);
  }

 private:
  void fail() {
    is_bad_ = true;
    at_ = bytes_.size();
  }
  std::span<const std::byte> bytes_;
  std::uint64_t address_{0};
  std::size_t at_{0};
  bool is_bad_{false};
};

/// An entry of .eh_frame without its length; empty if there is none of a size that we know.
struct Entry {
  std::uint64_t address{0};
  std::vector<std::byte> bytes;
};
Entry read_entry(const ReadImage& read, std::uint64_t address) {
  std::uint32_t length = 0;
  Entry out{address + sizeof length, {}};
  if (read(address, std::as_writable_bytes(std::span(&length, 1))) != sizeof length ||
      length < sizeof(std::uint32_t) || length > kEntryBytesMax)
    return out;
  out.bytes.resize(length);
  if (read(out.address, out.bytes) != length) out.bytes.clear();
  return out;
}

struct Common {
  std::uint64_t code_align{1};
  std::int64_t data_align{1};
  std::uint64_t return_register{kRegisterReturn};
  std::uint8_t encoding{0};
  bool has_augmentation{false};
};

/// Leaves the cursor before the instructions.
std::optional<Common> read_common(Cursor& at) {
  Common out;
  if (at.fixed<std::uint32_t>() != 0) return std::nullopt;
  const auto version = at.fixed<std::uint8_t>();
  const std::string_view augmentation = at.text();
  out.code_align = at.uleb();
  out.data_align = at.sleb();
  out.return_register = version == 1 ? at.fixed<std::uint8_t>() : at.uleb();
  if (augmentation.empty()) return at.is_bad() ? std::nullopt : std::optional(out);
  if (augmentation[0] != 'z') return std::nullopt;
  out.has_augmentation = true;
  const std::uint64_t bytes = at.uleb(), begin = at.address();
  for (const char letter : augmentation.substr(1)) {
    if (letter == 'R')
      out.encoding = at.fixed<std::uint8_t>();
    else if (letter == 'P')
      static_cast<void>(at.pointer(at.fixed<std::uint8_t>() & 0x0fU, /*is_length=*/true));
    else if (letter == 'L')
      at.skip(1);
    else if (letter != 'S' && letter != 'B')
      break;
  }
  const std::uint64_t read = at.address() - begin;
  if (read > bytes) return std::nullopt;
  at.skip(bytes - read);
  return at.is_bad() ? std::nullopt : std::optional(out);
}

/// Runs the instructions of a row up to an address.
class Rows {
 public:
  Rows(const Common& common, std::uint64_t begin) : common_(common), location_(begin) {}

  /// False: something in them is not known.
  bool run(Cursor& at, std::uint64_t address) {
    while (!at.is_at_end()) {
      const auto operation = at.fixed<std::uint8_t>();
      const std::uint8_t low = operation & 0x3fU;
      switch (operation >> 6) {
        case 1:
          if (!advance(low, address)) return !at.is_bad();
          break;
        case 2:
          save(low, static_cast<std::int64_t>(at.uleb()));
          break;
        case 3:
          restore(low);
          break;
        default:
          if (is_advance(at, low)) {
            if (!advance(delta_, address)) return !at.is_bad();
          } else if (!other(at, low)) {
            return false;
          }
      }
    }
    return !at.is_bad();
  }
  void begin_function() { initial_ = row_; }
  [[nodiscard]] const UnwindRow& row() const { return row_; }

 private:
  /// False: the row in force covers the address.
  bool advance(std::uint64_t delta, std::uint64_t address) {
    location_ += delta * common_.code_align;
    return location_ <= address;
  }
  bool is_advance(Cursor& at, std::uint8_t operation) {
    if (operation < 0x02 || operation > 0x04) return false;
    delta_ = operation == 0x02   ? at.fixed<std::uint8_t>()
             : operation == 0x03 ? at.fixed<std::uint16_t>()
                                 : at.fixed<std::uint32_t>();
    return true;
  }
  void save(std::uint64_t number, std::int64_t factored) {
    set(number, {UnwindRow::Rule::kSaved, scaled(factored)});
  }
  void set(std::uint64_t number, UnwindRow::Register to) {
    if (number < kUnwindRegisters) row_.registers[number] = to;
  }
  void restore(std::uint64_t number) {
    if (number < kUnwindRegisters) row_.registers[number] = initial_.registers[number];
  }
  [[nodiscard]] std::int64_t scaled(std::int64_t factored) const {
    return static_cast<std::int64_t>(static_cast<std::uint64_t>(factored) *
                                     static_cast<std::uint64_t>(common_.data_align));
  }
  bool define(std::uint64_t number, std::int64_t offset) {
    row_.cfa_register = static_cast<std::size_t>(std::min<std::uint64_t>(number, kUnwindRegisters));
    row_.cfa_offset = offset;
    return number < kUnwindRegisters;
  }
  bool other(Cursor& at, std::uint8_t operation) {
    const auto number = [&] { return at.uleb(); };
    std::uint64_t which = 0;
    switch (operation) {
      case 0x00:  // nop
        return true;
      case 0x05:  // offset_extended
        which = number();
        save(which, static_cast<std::int64_t>(at.uleb()));
        return true;
      case 0x06:  // restore_extended
        restore(number());
        return true;
      case 0x07:  // undefined
        set(number(), {UnwindRow::Rule::kUndefined, 0});
        return true;
      case 0x08:  // same_value
        set(number(), {UnwindRow::Rule::kSame, 0});
        return true;
      case 0x0a:  // remember_state
        if (states_.size() >= kStatesMax) return false;
        states_.push_back(row_);
        return true;
      case 0x0b:  // restore_state
        if (states_.empty()) return false;
        row_ = states_.back();
        states_.pop_back();
        return true;
      case 0x0c:  // def_cfa
        which = number();
        return define(which, static_cast<std::int64_t>(at.uleb()));
      case 0x0d:  // def_cfa_register
        return define(number(), row_.cfa_offset);
      case 0x0e:  // def_cfa_offset
        row_.cfa_offset = static_cast<std::int64_t>(at.uleb());
        return true;
      case 0x10:  // expression: this register alone is lost
      case 0x16:  // val_expression
        set(number(), {UnwindRow::Rule::kUndefined, 0});
        at.skip(at.uleb());
        return true;
      case 0x11:  // offset_extended_sf
        which = number();
        save(which, at.sleb());
        return true;
      case 0x12:  // def_cfa_sf
        which = number();
        return define(which, scaled(at.sleb()));
      case 0x13:  // def_cfa_offset_sf
        row_.cfa_offset = scaled(at.sleb());
        return true;
      case 0x2e:  // GNU_args_size
        static_cast<void>(at.uleb());
        return true;
      default:  // def_cfa_expression and the like
        return false;
    }
  }

  const Common& common_;
  std::uint64_t location_{0}, delta_{0};
  UnwindRow row_{kUnwindRegisters, 0, {}}, initial_{};
  std::vector<UnwindRow> states_;
};

/// Address of the entry whose function begins last before `address`, by the sorted table.
std::optional<std::uint64_t> find_entry(std::uint64_t table, const ReadImage& read,
                                        std::uint64_t address) {
  struct Head {
    std::uint8_t version, pointer_encoding, count_encoding, table_encoding;
    std::int32_t frames;
    std::uint32_t count;
  } head{};
  const auto get = [&](std::uint64_t from, auto& into) {
    return read(from, std::as_writable_bytes(std::span(&into, 1))) == sizeof into;
  };
  if (!get(table, head) || head.version != 1 || head.count_encoding != kUnsigned4 ||
      head.table_encoding != (kDataRelative | kSigned4) || head.count > kTableEntriesMax)
    return std::nullopt;
  const std::uint64_t first = table + sizeof head;
  struct Row {
    std::int32_t begin, entry;
  } row{}, found{};
  std::uint32_t low = 0, high = head.count;
  bool is_found = false;
  while (low < high) {
    const std::uint32_t middle = low + (high - low) / 2;
    if (!get(first + std::uint64_t{middle} * sizeof row, row)) return std::nullopt;
    if (table + static_cast<std::uint64_t>(std::int64_t{row.begin}) <= address) {
      found = row;
      is_found = true;
      low = middle + 1;
    } else {
      high = middle;
    }
  }
  if (!is_found) return std::nullopt;
  return table + static_cast<std::uint64_t>(std::int64_t{found.entry});
}

}  // namespace

std::optional<UnwindRow> unwind_row(std::uint64_t table_address, const ReadImage& read,
                                    std::uint64_t address) {
  const auto where = find_entry(table_address, read, address);
  if (!where) return std::nullopt;
  const Entry entry = read_entry(read, *where);
  if (entry.bytes.empty()) return std::nullopt;
  Cursor at(entry.bytes, entry.address);
  const auto back = at.fixed<std::uint32_t>();
  if (back == 0) return std::nullopt;
  const Entry common_entry = read_entry(read, entry.address - back);
  if (common_entry.bytes.empty()) return std::nullopt;
  Cursor common_at(common_entry.bytes, common_entry.address);
  const auto common = read_common(common_at);
  if (!common || common->return_register != kRegisterReturn) return std::nullopt;
  const std::uint64_t begin = at.pointer(common->encoding, /*is_length=*/false);
  const std::uint64_t bytes = at.pointer(common->encoding, /*is_length=*/true);
  if (address < begin || address - begin >= bytes) return std::nullopt;
  if (common->has_augmentation) at.skip(at.uleb());
  Rows rows(*common, begin);
  if (!rows.run(common_at, UINT64_MAX)) return std::nullopt;
  rows.begin_function();
  if (!rows.run(at, address) || rows.row().cfa_register >= kUnwindRegisters) return std::nullopt;
  return rows.row();
}

}  // namespace kansoku::sys
