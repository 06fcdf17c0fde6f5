// SPDX-License-Identifier: Apache-2.0
// Any bytes as the memory of a Python process: the first names the release, the rest is mapped at
// a fixed address and starts with _PyRuntime. Sampled twice, so that speculation is tried too.
#include <cstddef>
#include <cstdint>
#include <string>

#include "capture/python/internal/image_for_test.h"
#include "capture/python/internal/stack_reader.h"
#include "common/check.h"

namespace {

using namespace kansoku::capture::python;

void check(const StackReader& reader, const Process::Options& options) {
  CHECK(reader.threads().size() <= options.threads_max);
  for (const StackReader::Thread& thread : reader.threads()) {
    std::size_t frames = 0;
    for (const StackReader::FrameRef& frame : thread.frames) {
      if (thread.torn || frame.is_shim) continue;
      CHECK(frame.code != nullptr);
      CHECK(frame.code->function.size() <= 4 * 512 && frame.code->file.size() <= 4 * 4096);
      ++frames;
    }
    CHECK(frames <= options.depth_max);
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size == 0 || size > 65536) return 0;
  const std::int32_t minor = 8 + data[0] % 7;
  ImageMemory memory(std::string(reinterpret_cast<const char*>(data) + 1, size - 1));
  Layout layout;
  if (static_layout(minor) != nullptr) {
    layout = *static_layout(minor);
  } else {
    // The image's own block if it has one; else the known one, to get further.
    const auto own = parse_debug_offsets(kansoku::as_bytes(memory.image()), minor);
    layout = own ? *own : layout_for_test(minor);
  }
  const Process::Options options{.depth_max = 16, .threads_max = 8, .code_cache_max = 8};
  StackReader reader(memory, layout, ImageMemory::kBase, options);
  for (int i = 0; i < 2; ++i) {
    if (!reader.sample()) return 0;
    check(reader, options);
  }
  return 0;
}
