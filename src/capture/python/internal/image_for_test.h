// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <functional>
#include <initializer_list>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "capture/python/offsets.h"
#include "capture/python/sampler.h"

namespace kansoku::capture::python {

/// A piece of memory that stands for a process; everything outside of it is unmapped.
class ImageMemory final : public RemoteMemory {
 public:
  static constexpr std::uint64_t kBase = 0x100000;

  explicit ImageMemory(std::string image = {}) : image_(std::move(image)) {}

  [[nodiscard]] bool read(const std::vector<Range>& ranges) override {
    // Memory is mapped by pages: behind the image the last one is zero.
    const std::uint64_t mapped = (image_.size() + 4095) / 4096 * 4096;
    for (const Range& range : ranges) {
      if (range.address < kBase || range.address - kBase > mapped) return false;
      const std::uint64_t at = range.address - kBase;
      if (range.bytes > mapped - at) return false;
      std::memset(range.into, 0, range.bytes);
      if (at < image_.size()) {
        const auto bytes = std::min<std::uint64_t>(range.bytes, image_.size() - at);
        std::memcpy(range.into, image_.data() + at, bytes);
      }
      if (after_range_for_test) after_range_for_test(range.address);
    }
    return true;
  }

  [[nodiscard]] std::uint64_t allocate(std::size_t bytes) {
    image_.resize((image_.size() + 15) / 16 * 16);
    const std::uint64_t address = kBase + image_.size();
    image_.resize(image_.size() + bytes);
    return address;
  }
  template <class T>
  void put(std::uint64_t address, std::int32_t offset, const T& value) {
    if (offset < 0) return;  // the release has no such field
    std::memcpy(image_.data() + (address - kBase) + offset, &value, sizeof value);
  }
  void put_text(std::uint64_t address, std::string_view text) {
    std::memcpy(image_.data() + (address - kBase), text.data(), text.size());
  }
  [[nodiscard]] const std::string& image() const { return image_; }
  void unmap() { image_.clear(); }

  std::function<void(std::uint64_t)> after_range_for_test;

 private:
  std::string image_;
};

/// The block of offsets that 3.13 and 3.14 keep at the start of _PyRuntime, as words. 3.13: values
/// of 3.13.0. 3.14: from the structures of its headers.
inline std::string debug_offsets_for_test(std::int32_t minor) {
  std::string block = "xdebugpy";
  const auto add = [&](std::initializer_list<std::uint64_t> words) {
    for (const std::uint64_t word : words) {
      block.append(reinterpret_cast<const char*>(&word), sizeof word);
    }
  };
  const bool is_14 = minor >= 14;
  add({(3ULL << 24) | (static_cast<std::uint64_t>(minor) << 16) | 0x00f0, 0});
  add({283320, 600, 632});
  if (is_14) {
    add({282000, 0, 7264, 7344, 7352, 7600, 7800, 7900, 7908, 16, 100, 0, 116, 108, 200, 0});
  } else {
    add({281000, 0, 7264, 7344, 7600, 7800, 7900, 7908, 16, 100, 0, 116, 108});
  }
  add({is_14 ? 400U : 280U, 0, 8, 16, 72, 152, 160, 200, 32});
  if (is_14) {
    add({88, 8, 0, 56, 80, 74, 64, 0});
    add({208, 112, 120, 128, 136, 68, 52, 96, 104, 200, 0});
  } else {
    add({80, 8, 0, 56, 72, 70});
    add({208, 112, 120, 128, 136, 68, 52, 96, 104, 200});
  }
  add({16, 8});
  add({416, 24, 88, 168});
  add({32, 24, 16});
  add({40, 24, 16});
  if (is_14) add({200, 24, 40, 32});
  add({48, 32, 40});
  add({24, 16});
  add({32, 16, 24});
  add({40, 16, 32});
  add({64, 32, 16, 40});
  add({240, 100});
  return block;
}

/// Builds the objects of an interpreter in an ImageMemory, for any layout.
class ImageBuilder {
 public:
  explicit ImageBuilder(ImageMemory& memory, const Layout& layout)
      : memory_(memory), layout_(layout) {
    runtime_ = memory_.allocate(1536);
    code_type_ = type("code");
    string_type_ = type("str");
  }

  [[nodiscard]] std::uint64_t runtime() const { return runtime_; }
  [[nodiscard]] std::uint64_t code_type() const { return code_type_; }

  std::uint64_t type(std::string_view name) {
    const std::uint64_t text = memory_.allocate(name.size() + 1);
    memory_.put_text(text, name);
    const std::uint64_t object = memory_.allocate(416);
    memory_.put(object, layout_.type_name, text);
    return object;
  }
  /// `unit_bytes` 1 with `ascii` false: latin-1.
  std::uint64_t string(std::string_view units, std::uint32_t unit_bytes = 1, bool ascii = true) {
    const auto data = ascii ? layout_.string_ascii_data : layout_.string_compact_data;
    const std::uint64_t object =
        memory_.allocate(static_cast<std::size_t>(data) + units.size() + 8);
    memory_.put(object, layout_.object_type, string_type_);
    memory_.put(object, layout_.string_length, std::uint64_t{units.size() / unit_bytes});
    const std::uint32_t state = (unit_bytes << 2) | 32U | (ascii ? 64U : 0U);
    memory_.put(object, layout_.string_state, state);
    memory_.put_text(object + static_cast<std::uint64_t>(data), units);
    return object;
  }
  std::uint64_t bytes(std::string_view content) {
    const std::uint64_t object =
        memory_.allocate(static_cast<std::size_t>(layout_.bytes_data) + content.size() + 1);
    memory_.put(object, layout_.object_size, std::uint64_t{content.size()});
    memory_.put_text(object + static_cast<std::uint64_t>(layout_.bytes_data), content);
    return object;
  }
  /// A function of 16 bytes of code: 0-7 in `first_line`, 8-15 in the line after it.
  std::uint64_t code(std::string_view name, std::uint32_t first_line) {
    const std::uint64_t text = string(name);
    const std::uint64_t object = memory_.allocate(256);
    memory_.put(object, layout_.object_type, code_type_);
    memory_.put(object, layout_.code_first_line, first_line);
    memory_.put(object, layout_.code_file, string("/app/train.py"));
    memory_.put(object, layout_.code_name, layout_.code_qualified_name < 0 ? text : string("x"));
    memory_.put(object, layout_.code_qualified_name, text);
    if (layout_.instruction == InstructionKind::kPointer) {
      memory_.put(object, layout_.object_size, std::uint64_t{8});  // units of two bytes
    }
    memory_.put(object, layout_.code_line_table, bytes(line_table()));
    return object;
  }
  [[nodiscard]] std::string_view line_table() const {
    switch (layout_.line_table) {
      case LineTableKind::kLnotab:
        return {"\x08\x01", 2};
      case LineTableKind::kRanges:
        return {"\x08\x00\x08\x01", 4};
      case LineTableKind::kLocations:
        return {"\x83\x10\xdb\x00\x00", 5};  // short form; one-line form with delta 1
    }
    return {};
  }
  /// A frame of `code` at byte `offset` of its code; callers are made first.
  std::uint64_t frame(std::uint64_t code, std::uint32_t offset, std::uint64_t previous,
                      std::uint8_t owner = 0) {
    const std::uint64_t object = memory_.allocate(128);
    memory_.put(object, layout_.frame_previous, previous);
    memory_.put(object, layout_.frame_code, code);
    memory_.put(object, layout_.frame_stack_top, std::uint32_t{1});
    memory_.put(object, layout_.frame_owner, owner);
    switch (layout_.instruction) {
      case InstructionKind::kByteIndex:
        memory_.put(object, layout_.frame_instruction, offset);
        break;
      case InstructionKind::kUnitIndex:
        memory_.put(object, layout_.frame_instruction, offset / 2);
        break;
      case InstructionKind::kPointer:
        memory_.put(object, layout_.frame_instruction,
                    code + static_cast<std::uint64_t>(layout_.code_bytes) + offset);
        break;
    }
    return object;
  }
  std::uint64_t interpreter() {
    const std::uint64_t object = memory_.allocate(8192);
    memory_.put(runtime_, layout_.runtime_interpreters_head, object);
    if (layout_.interpreter_gil >= 0) {
      const std::uint64_t gil = memory_.allocate(64);
      memory_.put(object, layout_.interpreter_gil, gil);
    }
    interpreter_ = object;
    return object;
  }
  /// Adds a thread at the head of the interpreter's list, as CPython does.
  std::uint64_t thread(std::uint64_t top_frame, std::uint64_t native_id) {
    const std::uint64_t object = memory_.allocate(256);
    memory_.put(object, layout_.thread_interpreter, interpreter_);
    memory_.put(object, layout_.thread_next, newest_thread_);
    memory_.put(object, layout_.thread_id, native_id * 4096);
    memory_.put(object, layout_.thread_native_id, native_id);
    set_top(object, top_frame);
    memory_.put(interpreter_, layout_.interpreter_threads_head, object);
    newest_thread_ = object;
    return object;
  }
  void set_top(std::uint64_t thread, std::uint64_t top_frame) {
    std::uint64_t value = top_frame;
    if (layout_.cframe_frame >= 0) {
      value = memory_.allocate(32) + 8;
      memory_.put(value, layout_.cframe_frame, top_frame);
    }
    memory_.put(thread, layout_.thread_frame, value);
  }
  void give_gil(std::uint64_t thread) {
    memory_.put(runtime_, layout_.runtime_tstate_current, thread);
    if (layout_.interpreter_gil < 0) return;
    std::uint64_t gil = 0;
    const auto at =
        interpreter_ - ImageMemory::kBase + static_cast<std::uint64_t>(layout_.interpreter_gil);
    std::memcpy(&gil, memory_.image().data() + at, sizeof gil);
    memory_.put(gil, layout_.gil_holder, thread);
    memory_.put(gil, layout_.gil_locked, std::uint32_t{thread == 0 ? 0U : 1U});
  }

 private:
  ImageMemory& memory_;
  const Layout layout_;
  std::uint64_t runtime_{0}, code_type_{0}, string_type_{0};
  std::uint64_t interpreter_{0}, newest_thread_{0};
};

/// The layout of 3.`minor`, from the table or from a generated block of debug offsets.
inline Layout layout_for_test(std::int32_t minor) {
  if (const Layout* table = static_layout(minor); table != nullptr) return *table;
  return parse_debug_offsets(as_bytes(debug_offsets_for_test(minor)), minor).value();
}

}  // namespace kansoku::capture::python
