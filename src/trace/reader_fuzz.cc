// SPDX-License-Identifier: Apache-2.0
// Any bytes as a trace file: reading them fails or gives whole tables, the same every time; and the
// packets give the same trace when they come compressed.
#include "trace/reader.h"

#include <cstddef>
#include <cstdint>
#include <protozero/pbf_writer.hpp>
#include <span>
#include <string>
#include <vector>

#include "common/check.h"
#include "trace/internal/deflate.h"
#include "trace/traces_for_test.h"

namespace {

using namespace kansoku;
using namespace kansoku::trace;

// Small enough that no input takes much memory or time.
ReadOptions limits() {
  ReadOptions options;
  options.events_max = 100'000;
  options.inflated_chunk_bytes_max = 1U << 20;
  options.strings_bytes_max = 1U << 20;
  options.stack_frames_max = 64;
  options.args_per_event_max = 16;
  options.sequences_max = 256;
  return options;
}

std::string as_one_chunk(ByteSpan packets) {
  static const auto deflater = Deflater::create(1).value();
  std::vector<std::byte> compressed;
  deflater->compress(packets, compressed);
  std::string packet;
  protozero::pbf_writer(packet).add_bytes(50, std::string(as_text(compressed)));
  std::string file;
  protozero::pbf_writer(file).add_message(1, packet);
  return file;
}

bool has_compressed_packets(ByteSpan bytes) {
  return as_text(bytes).find("\x92\x03") != std::string_view::npos;  // tag of field 50
}

void check_error(const Error& error) {
  CHECK(error.code == Code::kCorrupt || error.code == Code::kLimit);
  CHECK(error.what.find("read trace") == 0);
  CHECK(error.code == Code::kLimit || error.what.find("offset") != std::string::npos);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size > 65536) return 0;
  const ByteSpan bytes = std::as_bytes(std::span(data, size));
  const auto trace = read_trace(bytes, limits());
  if (!trace) {
    check_error(trace.error());
    return 0;
  }
  CHECK(problem_of(*trace).empty());
  const std::string text = dump(*trace);
  const auto again = read_trace(bytes, limits());
  CHECK(again.has_value() && dump(*again) == text);
  if (has_compressed_packets(bytes) || trace->losses.contains("trace_truncated_tail")) return 0;
  const std::string chunk = as_one_chunk(bytes);
  const auto inflated = read_trace(as_bytes(chunk), limits());
  CHECK(inflated.has_value() && dump(*inflated) == text);
  return 0;
}
