// SPDX-License-Identifier: Apache-2.0
// Any bytes as a pickle and as a Flight Recorder dump: reading them fails, naming a place, or gives
// values that exist, in a memory that the limits bound, the same every time.
#include "trace/import/flight_recorder.h"

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "common/check.h"
#include "trace/import/internal/pickle.h"

namespace {

using namespace kansoku;
using namespace kansoku::trace::import;

constexpr FlightLimits kLimits{.entries_max = 1000,
                               .groups_max = 100,
                               .text_bytes_max = 1000,
                               .members_max = 64,
                               .held_bytes_max = 1U << 20};

void check_pickle(ByteSpan bytes) {
  const auto pickle = read_pickle(bytes, {.values_max = 10'000, .stack_max = 1000});
  if (!pickle) {
    const Error& error = pickle.error();
    CHECK(error.code == Code::kCorrupt || error.code == Code::kLimit ||
          error.code == Code::kUnsupported);
    CHECK(error.what.find(" at offset ") != std::string::npos);
    CHECK(error.code != Code::kUnsupported || error.what.find(" refused") != std::string::npos);
    return;
  }
  // Every item names a value; `at` is not checked itself.
  std::size_t values = 0;
  for (PlainData::Id id = 0; id <= pickle->root(); ++id) {
    const PlainData::Value& value = pickle->at(id);
    values += value.items.size();
    for (const PlainData::Id item : value.items)
      CHECK(item < 10'000);
    CHECK(value.kind != PlainData::Kind::kDict || value.items.size() % 2 == 0);
    CHECK(value.text.empty() ||
          (value.text.data() >= as_text(bytes).data() &&
           value.text.data() + value.text.size() <= as_text(bytes).data() + bytes.size()));
  }
  CHECK(values <= 20'000);
}

std::size_t held_bytes(const FlightDump& dump) {
  std::size_t bytes = 0;
  for (const DumpEntry& entry : dump.entries) {
    bytes += entry.name.size() + entry.state.size() + entry.group_name.size() +
             entry.input_sizes.size() + entry.output_sizes.size();
    for (const DumpFrame& frame : entry.frames)
      bytes += frame.function.size() + frame.file.size() + sizeof frame;
  }
  for (const DumpGroup& group : dump.groups)
    bytes += group.name.size() + group.description.size() + group.ranks.size() * 4;
  return bytes;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size > 32768) return 0;
  const ByteSpan bytes = std::as_bytes(std::span(data, size));
  check_pickle(bytes);
  const auto dump = read_flight_recorder(bytes, "_dump_3", kLimits);
  const auto again = read_flight_recorder(bytes, "_dump_3", kLimits);
  CHECK(dump.has_value() == again.has_value());
  if (!dump) {
    CHECK(dump.error().what == again.error().what);
    return 0;
  }
  CHECK(dump->rank == 3);
  CHECK(dump->entries.size() <= kLimits.entries_max && dump->groups.size() <= kLimits.groups_max);
  CHECK(dump->entries.size() == again->entries.size());
  CHECK(held_bytes(*dump) <= kLimits.held_bytes_max);
  for (const DumpGroup& group : dump->groups) {
    for (const std::int32_t rank : group.ranks)
      CHECK(rank >= 0);
  }
  return 0;
}
