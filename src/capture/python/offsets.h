// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstdint>
#include <string_view>

#include "common/bytes.h"
#include "common/result.h"

namespace kansoku::capture::python {

enum class LineTableKind : std::uint8_t {
  kLnotab,     // 3.8, 3.9: co_lnotab
  kRanges,     // 3.10: co_linetable of PEP 626
  kLocations,  // from 3.11: co_linetable of PEP 657
};
enum class InstructionKind : std::uint8_t {
  kByteIndex,  // 3.8, 3.9: f_lasti in bytes
  kUnitIndex,  // 3.10: f_lasti in units of two bytes
  kPointer,    // from 3.11: an address inside of the code
};

/// Layout of one release of CPython (x86-64, with interpreter lock) for a stack reader: byte
/// offsets from the start of the named structure; -1 = the release has no such field.
struct Layout {
  std::int32_t minor{0};  // 11 for Python 3.11
  LineTableKind line_table{LineTableKind::kLocations};
  InstructionKind instruction{InstructionKind::kPointer};
  std::int32_t shim_owner{-1};  // frames whose owner is this or above are the interpreter's own

  std::int32_t runtime_interpreters_head{-1};
  std::int32_t runtime_main_thread{-1};     // read up to 3.10 only
  std::int32_t runtime_tstate_current{-1};  // up to 3.11: the thread that holds the lock

  std::int32_t interpreter_next{-1};
  std::int32_t interpreter_threads_head{-1};
  std::int32_t interpreter_gil{-1};  // from 3.12: pointer to the lock
  std::int32_t gil_holder{-1};
  std::int32_t gil_locked{-1};

  std::int32_t thread_next{-1};
  std::int32_t thread_interpreter{-1};
  std::int32_t thread_id{-1};
  std::int32_t thread_frame{-1};  // 3.11, 3.12: pointer to a _PyCFrame; else to the frame
  std::int32_t cframe_frame{-1};
  std::int32_t thread_native_id{-1};

  std::int32_t frame_previous{-1};
  std::int32_t frame_owner{-1};
  std::int32_t frame_code{-1};
  std::int32_t frame_instruction{-1};
  std::int32_t frame_stack_top{-1};  // from 3.11: -1 (from 3.14: null) unless it waits for a callee
  std::int32_t frame_is_entry{-1};   // 3.11: 1 if called from C

  std::int32_t code_first_line{-1};
  std::int32_t code_file{-1};
  std::int32_t code_name{-1};
  std::int32_t code_qualified_name{-1};
  std::int32_t code_bytes{-1};
  std::int32_t code_line_table{-1};

  std::int32_t object_type{-1};
  std::int32_t type_name{-1};
  std::int32_t object_size{-1};
  std::int32_t bytes_data{-1};
  std::int32_t string_length{-1};
  std::int32_t string_state{-1};
  std::int32_t string_ascii_data{-1};
  std::int32_t string_compact_data{-1};
};

/// The offsets of a Layout by name, as tools/print_python_offsets.c prints them.
struct LayoutField {
  std::string_view name;
  std::int32_t Layout::*member;
};
inline constexpr std::array kLayoutFields{
    LayoutField{"runtime_interpreters_head", &Layout::runtime_interpreters_head},
    LayoutField{"runtime_main_thread", &Layout::runtime_main_thread},
    LayoutField{"runtime_tstate_current", &Layout::runtime_tstate_current},
    LayoutField{"interpreter_next", &Layout::interpreter_next},
    LayoutField{"interpreter_threads_head", &Layout::interpreter_threads_head},
    LayoutField{"interpreter_gil", &Layout::interpreter_gil},
    LayoutField{"gil_holder", &Layout::gil_holder},
    LayoutField{"gil_locked", &Layout::gil_locked},
    LayoutField{"thread_next", &Layout::thread_next},
    LayoutField{"thread_interpreter", &Layout::thread_interpreter},
    LayoutField{"thread_id", &Layout::thread_id},
    LayoutField{"thread_frame", &Layout::thread_frame},
    LayoutField{"cframe_frame", &Layout::cframe_frame},
    LayoutField{"thread_native_id", &Layout::thread_native_id},
    LayoutField{"frame_previous", &Layout::frame_previous},
    LayoutField{"frame_owner", &Layout::frame_owner},
    LayoutField{"frame_code", &Layout::frame_code},
    LayoutField{"frame_instruction", &Layout::frame_instruction},
    LayoutField{"frame_stack_top", &Layout::frame_stack_top},
    LayoutField{"frame_is_entry", &Layout::frame_is_entry},
    LayoutField{"code_first_line", &Layout::code_first_line},
    LayoutField{"code_file", &Layout::code_file},
    LayoutField{"code_name", &Layout::code_name},
    LayoutField{"code_qualified_name", &Layout::code_qualified_name},
    LayoutField{"code_bytes", &Layout::code_bytes},
    LayoutField{"code_line_table", &Layout::code_line_table},
    LayoutField{"object_type", &Layout::object_type},
    LayoutField{"type_name", &Layout::type_name},
    LayoutField{"object_size", &Layout::object_size},
    LayoutField{"bytes_data", &Layout::bytes_data},
    LayoutField{"string_length", &Layout::string_length},
    LayoutField{"string_state", &Layout::string_state},
    LayoutField{"string_ascii_data", &Layout::string_ascii_data},
    LayoutField{"string_compact_data", &Layout::string_compact_data},
};

/// The static table of Python 3.`minor`, or null: 8 to 12 only. Later releases describe themselves.
/// Source: offsetof over the headers of 3.8.18, 3.9.18, 3.10.13, 3.11.2 (and .7), 3.12.1.
[[nodiscard]] const Layout* static_layout(std::int32_t minor);

/// The layout that a 3.13 or 3.14 interpreter keeps in _Py_DebugOffsets at the start of _PyRuntime.
/// kUnsupported, naming the reason: no cookie, another version than 3.`minor`, a free-threaded
/// build, or offsets that fall outside of the sizes given beside them.
[[nodiscard]] Result<Layout> parse_debug_offsets(ByteSpan untrusted, std::int32_t minor);

/// Largest number of bytes that parse_debug_offsets reads.
inline constexpr std::size_t kDebugOffsetsBytes = 800;

}  // namespace kansoku::capture::python
