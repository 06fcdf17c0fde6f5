// SPDX-License-Identifier: Apache-2.0
#include "capture/python/offsets.h"

#include <fmt/format.h>

namespace kansoku::capture::python {
namespace {

// Printed by tools/print_python_offsets.c for each release; a test repeats that for the releases
// whose headers are installed.
constexpr std::array kLayouts{
    Layout{.minor = 8,
           .line_table = LineTableKind::kLnotab,
           .instruction = InstructionKind::kByteIndex,
           .shim_owner = -1,
           .runtime_interpreters_head = 32,
           .runtime_main_thread = 72,
           .runtime_tstate_current = 1368,
           .interpreter_next = 0,
           .interpreter_threads_head = 8,
           .interpreter_gil = -1,
           .gil_holder = -1,
           .gil_locked = -1,
           .thread_next = 8,
           .thread_interpreter = 16,
           .thread_id = 176,
           .thread_frame = 24,
           .cframe_frame = -1,
           .thread_native_id = -1,
           .frame_previous = 24,
           .frame_owner = -1,
           .frame_code = 32,
           .frame_instruction = 104,
           .frame_stack_top = -1,
           .frame_is_entry = -1,
           .code_first_line = 40,
           .code_file = 104,
           .code_name = 112,
           .code_qualified_name = -1,
           .code_bytes = -1,
           .code_line_table = 120,
           .object_type = 8,
           .type_name = 24,
           .object_size = 16,
           .bytes_data = 32,
           .string_length = 16,
           .string_state = 32,
           .string_ascii_data = 48,
           .string_compact_data = 72},
    Layout{.minor = 9,
           .line_table = LineTableKind::kLnotab,
           .instruction = InstructionKind::kByteIndex,
           .shim_owner = -1,
           .runtime_interpreters_head = 32,
           .runtime_main_thread = 72,
           .runtime_tstate_current = 568,
           .interpreter_next = 0,
           .interpreter_threads_head = 8,
           .interpreter_gil = -1,
           .gil_holder = -1,
           .gil_locked = -1,
           .thread_next = 8,
           .thread_interpreter = 16,
           .thread_id = 176,
           .thread_frame = 24,
           .cframe_frame = -1,
           .thread_native_id = -1,
           .frame_previous = 24,
           .frame_owner = -1,
           .frame_code = 32,
           .frame_instruction = 104,
           .frame_stack_top = -1,
           .frame_is_entry = -1,
           .code_first_line = 40,
           .code_file = 104,
           .code_name = 112,
           .code_qualified_name = -1,
           .code_bytes = -1,
           .code_line_table = 120,
           .object_type = 8,
           .type_name = 24,
           .object_size = 16,
           .bytes_data = 32,
           .string_length = 16,
           .string_state = 32,
           .string_ascii_data = 48,
           .string_compact_data = 72},
    Layout{.minor = 10,
           .line_table = LineTableKind::kRanges,
           .instruction = InstructionKind::kUnitIndex,
           .shim_owner = -1,
           .runtime_interpreters_head = 32,
           .runtime_main_thread = 72,
           .runtime_tstate_current = 568,
           .interpreter_next = 0,
           .interpreter_threads_head = 8,
           .interpreter_gil = -1,
           .gil_holder = -1,
           .gil_locked = -1,
           .thread_next = 8,
           .thread_interpreter = 16,
           .thread_id = 176,
           .thread_frame = 24,
           .cframe_frame = -1,
           .thread_native_id = -1,
           .frame_previous = 24,
           .frame_owner = -1,
           .frame_code = 32,
           .frame_instruction = 96,
           .frame_stack_top = -1,
           .frame_is_entry = -1,
           .code_first_line = 40,
           .code_file = 104,
           .code_name = 112,
           .code_qualified_name = -1,
           .code_bytes = -1,
           .code_line_table = 120,
           .object_type = 8,
           .type_name = 24,
           .object_size = 16,
           .bytes_data = 32,
           .string_length = 16,
           .string_state = 32,
           .string_ascii_data = 48,
           .string_compact_data = 72},
    Layout{.minor = 11,
           .line_table = LineTableKind::kLocations,
           .instruction = InstructionKind::kPointer,
           .shim_owner = -1,
           .runtime_interpreters_head = 40,
           .runtime_main_thread = 80,
           .runtime_tstate_current = 576,
           .interpreter_next = 0,
           .interpreter_threads_head = 16,
           .interpreter_gil = -1,
           .gil_holder = -1,
           .gil_locked = -1,
           .thread_next = 8,
           .thread_interpreter = 16,
           .thread_id = 152,
           .thread_frame = 56,
           .cframe_frame = 8,
           .thread_native_id = 160,
           .frame_previous = 48,
           .frame_owner = 69,
           .frame_code = 32,
           .frame_instruction = 56,
           .frame_stack_top = 64,
           .frame_is_entry = 68,
           .code_first_line = 72,
           .code_file = 112,
           .code_name = 120,
           .code_qualified_name = 128,
           .code_bytes = 184,
           .code_line_table = 136,
           .object_type = 8,
           .type_name = 24,
           .object_size = 16,
           .bytes_data = 32,
           .string_length = 16,
           .string_state = 32,
           .string_ascii_data = 48,
           .string_compact_data = 72},
    Layout{.minor = 12,
           .line_table = LineTableKind::kLocations,
           .instruction = InstructionKind::kPointer,
           .shim_owner = 3,
           .runtime_interpreters_head = 40,
           .runtime_main_thread = 64,
           .runtime_tstate_current = -1,
           .interpreter_next = 0,
           .interpreter_threads_head = 72,
           .interpreter_gil = 384,
           .gil_holder = 8,
           .gil_locked = 16,
           .thread_next = 8,
           .thread_interpreter = 16,
           .thread_id = 136,
           .thread_frame = 56,
           .cframe_frame = 0,
           .thread_native_id = 144,
           .frame_previous = 8,
           .frame_owner = 70,
           .frame_code = 0,
           .frame_instruction = 56,
           .frame_stack_top = 64,
           .frame_is_entry = -1,
           .code_first_line = 68,
           .code_file = 112,
           .code_name = 120,
           .code_qualified_name = 128,
           .code_bytes = 192,
           .code_line_table = 136,
           .object_type = 8,
           .type_name = 24,
           .object_size = 16,
           .bytes_data = 32,
           .string_length = 16,
           .string_state = 32,
           .string_ascii_data = 40,
           .string_compact_data = 56},
};

/// _Py_DebugOffsets is a list of groups of 64-bit words. Groups grew between releases; `words` is
/// the length of each in the order below, 0 for a group that the release does not have.
struct DebugGroups {
  std::int32_t minor;
  std::uint32_t interpreter, frame, code, set;
};
constexpr std::array kDebugGroups{
    DebugGroups{.minor = 13, .interpreter = 13, .frame = 6, .code = 10, .set = 0},
    DebugGroups{.minor = 14, .interpreter = 16, .frame = 8, .code = 11, .set = 4},
};

constexpr std::uint64_t kStructBytesMax = 4 << 20;  // PyInterpreterState of 3.13 has 283,000

/// Takes the groups of words apart; the first word of nearly every group is the structure's size.
class OffsetReader {
 public:
  explicit OffsetReader(ByteSpan untrusted) : reader_(untrusted) {}

  [[nodiscard]] std::uint64_t word() {
    const auto value = reader_.read<std::uint64_t>("debug offset");
    if (!value) complete_ = false;
    return value.value_or(0);
  }
  /// Starts a group of `words` words; finish() skips the unread ones.
  void begin(std::uint32_t words) {
    left_ = words - 1;
    bytes_ = word();
    plausible_ = plausible_ && bytes_ > 0 && bytes_ <= kStructBytesMax;
  }
  /// The word `skip` words further on, an offset at which `bytes` bytes fit into the structure.
  [[nodiscard]] std::int32_t offset(std::uint32_t skip, std::uint64_t bytes) {
    for (; skip > 0; --skip, --left_)
      static_cast<void>(word());
    --left_;
    const std::uint64_t value = word();
    plausible_ = plausible_ && bytes_ >= bytes && value <= bytes_ - bytes;
    return static_cast<std::int32_t>(value & 0x7fffffff);
  }
  void finish() {
    for (; left_ > 0; --left_)
      static_cast<void>(word());
  }
  void skip_group(std::uint32_t words) {
    for (; words > 0; --words)
      static_cast<void>(word());
  }
  [[nodiscard]] bool ok() const { return complete_ && plausible_; }

 private:
  ByteReader reader_;
  std::uint64_t bytes_{0};
  std::uint32_t left_{0};
  bool complete_{true};
  bool plausible_{true};
};

/// Runtime, interpreter and thread state.
void read_states(OffsetReader& in, const DebugGroups& groups, Layout& layout) {
  in.begin(3);
  layout.runtime_interpreters_head = in.offset(1, 8);
  in.finish();
  in.begin(groups.interpreter);
  layout.interpreter_next = in.offset(1, 8);
  layout.interpreter_threads_head = in.offset(0, 8);
  // gc, imports, sysdict, builtins; from 3.14 threads_main before them
  layout.interpreter_gil = in.offset(groups.minor >= 14 ? 5 : 4, 8);
  const std::int32_t gil = in.offset(0, 24);
  layout.gil_locked = in.offset(1, 4) - gil;
  layout.gil_holder = in.offset(0, 8) - gil;
  in.finish();
  in.begin(9);
  layout.thread_next = in.offset(1, 8);
  layout.thread_interpreter = in.offset(0, 8);
  layout.thread_frame = in.offset(0, 8);
  layout.thread_id = in.offset(0, 8);
  layout.thread_native_id = in.offset(0, 8);
  in.finish();
}

void read_frame_and_code(OffsetReader& in, const DebugGroups& groups, Layout& layout) {
  in.begin(groups.frame);
  layout.frame_previous = in.offset(0, 8);
  layout.frame_code = in.offset(0, 8);
  layout.frame_instruction = in.offset(0, 8);
  layout.frame_owner = in.offset(1, 1);
  // 3.13 does not tell; there it is the field behind the instruction.
  layout.frame_stack_top = groups.minor >= 14 ? in.offset(0, 8) : layout.frame_instruction + 8;
  in.finish();
  in.begin(groups.code);
  layout.code_file = in.offset(0, 8);
  layout.code_name = in.offset(0, 8);
  layout.code_qualified_name = in.offset(0, 8);
  layout.code_line_table = in.offset(0, 8);
  layout.code_first_line = in.offset(0, 4);
  layout.code_bytes = in.offset(3, 0);
  in.finish();
}

void read_objects(OffsetReader& in, const DebugGroups& groups, Layout& layout) {
  in.begin(2);
  layout.object_type = in.offset(0, 8);
  in.begin(4);
  layout.type_name = in.offset(0, 8);
  in.finish();
  in.skip_group(3 + 3);  // tuple, list
  in.skip_group(groups.set);
  in.skip_group(3 + 2 + 3);  // dict, float, long
  in.begin(3);
  layout.object_size = in.offset(0, 8);
  layout.bytes_data = in.offset(0, 1);
  in.begin(4);
  layout.string_state = in.offset(0, 4);
  layout.string_length = in.offset(0, 8);
  layout.string_ascii_data = in.offset(0, 0);
  layout.string_compact_data = layout.string_ascii_data + 16;  // utf8_length and utf8 follow
  in.finish();
}

/// Structures are read as a whole, so each must be of a sane size.
bool is_readable(const Layout& layout) {
  constexpr std::int32_t kReadBytesMax = 512;
  for (const LayoutField& field : kLayoutFields) {
    const bool is_read_alone =
        field.name.starts_with("runtime_") || field.name.starts_with("interpreter_");
    if (!is_read_alone && layout.*field.member > kReadBytesMax) return false;
  }
  return layout.gil_locked >= 0 && layout.gil_holder >= 0;
}

Error unsupported(std::string_view why) {
  return Error{Code::kUnsupported, fmt::format("read layout of Python: {}", why)};
}

}  // namespace

const Layout* static_layout(std::int32_t minor) {
  for (const Layout& layout : kLayouts) {
    if (layout.minor == minor) return &layout;
  }
  return nullptr;
}

Result<Layout> parse_debug_offsets(ByteSpan untrusted, std::int32_t minor) {
  constexpr std::string_view kCookie = "xdebugpy";
  if (!as_text(untrusted).starts_with(kCookie)) return unsupported("no cookie in _PyRuntime");
  OffsetReader in(untrusted.subspan(kCookie.size()));
  const std::uint64_t version = in.word();
  if ((version >> 16) != ((3U << 8) | static_cast<std::uint32_t>(minor))) {
    return unsupported(
        fmt::format("debug offsets are of version {:#x}, not of 3.{}", version, minor));
  }
  if (in.word() != 0) return unsupported("a free-threaded build");
  const DebugGroups* groups = nullptr;
  for (const DebugGroups& candidate : kDebugGroups) {
    if (candidate.minor == minor) groups = &candidate;
  }
  if (groups == nullptr) return unsupported(fmt::format("3.{} is unknown", minor));
  Layout layout;
  layout.minor = minor;
  layout.shim_owner = 3;
  read_states(in, *groups, layout);
  read_frame_and_code(in, *groups, layout);
  read_objects(in, *groups, layout);
  if (!in.ok() || !is_readable(layout)) return unsupported("debug offsets contradict themselves");
  return layout;
}

}  // namespace kansoku::capture::python
