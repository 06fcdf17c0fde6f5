// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <functional>
#include <limits>
#include <protozero/pbf_writer.hpp>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "trace/internal/deflate.h"
#include "trace/reader.h"
#include "trace/traces_for_test.h"

// Traces made by hand, field by field, and shorthands to read them.
namespace kansoku::trace {

using protozero::pbf_writer;

inline constexpr auto kInt64Max = std::numeric_limits<std::int64_t>::max();
inline constexpr auto kUint64Max = std::numeric_limits<std::uint64_t>::max();

/// Field numbers as published, not taken from the reader.
inline constexpr std::uint32_t kPacket = 1;
namespace packet {
inline constexpr std::uint32_t kFtrace = 1, kClockSnapshot = 6, kTimestamp = 8, kSequence = 10,
                               kEvent = 11, kInterned = 12, kFlags = 13, kCleared = 41,
                               kCompressed = 50, kClock = 58, kDefaults = 59, kDescriptor = 60,
                               kSample = 66;
}
namespace event {
inline constexpr std::uint32_t kCategoryIid = 3, kAnnotation = 4, kType = 9, kNameIid = 10,
                               kTrack = 11, kCategory = 22, kName = 23, kCounter = 30,
                               kDoubleCounter = 44, kFlow = 47;
inline constexpr std::uint64_t kBegin = 1, kEnd = 2, kInstant = 3, kCount = 4;
}  // namespace event
namespace interned {
inline constexpr std::uint32_t kCategory = 1, kEventName = 2, kAnnotationName = 3, kFunction = 5,
                               kFrame = 6, kStack = 7, kPath = 18;
}

inline std::string message(const std::function<void(pbf_writer&)>& fill) {
  std::string bytes;
  pbf_writer writer(bytes);
  fill(writer);
  return bytes;
}

/// A trace file of another producer.
class File {
 public:
  File& packet(const std::function<void(pbf_writer&)>& fill) { return add(message(fill)); }
  File& add(const std::string& body) {
    pbf_writer(bytes).add_message(kPacket, body);
    return *this;
  }
  /// An event with the time on the clock of the sequence.
  File& event(std::uint32_t sequence, std::uint64_t time,
              const std::function<void(pbf_writer&)>& fill) {
    return packet([&](pbf_writer& p) {
      p.add_uint64(packet::kTimestamp, time);
      p.add_uint32(packet::kSequence, sequence);
      p.add_message(packet::kEvent, message(fill));
    });
  }
  File& instant(std::uint64_t time, const std::string& name, std::uint64_t track = 5) {
    return event(1, time, [&](pbf_writer& e) {
      e.add_enum(event::kType, event::kInstant);
      e.add_uint64(event::kTrack, track);
      e.add_string(event::kName, name);
    });
  }
  std::string bytes;
};

inline std::string entry(std::uint64_t iid, const std::string& text) {
  return message([&](pbf_writer& e) {
    e.add_uint64(1, iid);
    e.add_bytes(2, text);
  });
}

inline std::string deflated(std::string_view raw) {
  std::vector<std::byte> out;
  Deflater::create(6).value()->compress(as_bytes(raw), out);
  return std::string(as_text(out));
}

inline std::string compressed(std::string_view packets) {
  return File()
      .packet([&](pbf_writer& p) { p.add_bytes(packet::kCompressed, deflated(packets)); })
      .bytes;
}

inline Result<Trace> read(std::string_view bytes, const ReadOptions& options = {}) {
  auto trace = read_trace(as_bytes(bytes), options);
  EXPECT_EQ(trace ? problem_of(*trace) : "", "");
  return trace;
}

inline Trace read_ok(std::string_view bytes, const ReadOptions& options = {}) {
  auto trace = read(bytes, options);
  EXPECT_TRUE(trace) << trace.error().what;
  return std::move(trace).value();
}

inline Error read_fails(std::string_view bytes, const ReadOptions& options = {}) {
  auto trace = read(bytes, options);
  EXPECT_FALSE(trace);
  return trace ? Error{} : trace.error();
}

inline std::uint64_t count_of(const Trace& trace, const StatDef& stat) {
  const auto found = trace.losses.find(std::string(stat.name));
  return found == trace.losses.end() ? 0 : found->second.count;
}

}  // namespace kansoku::trace
