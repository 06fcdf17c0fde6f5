// SPDX-License-Identifier: Apache-2.0
// Line tables, strings, versions and task states: bytes in, values out.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "capture/python/internal/detect.h"
#include "capture/python/internal/image_for_test.h"
#include "capture/python/internal/line_table.h"
#include "capture/python/internal/py_string.h"
#include "capture/python/internal/snapshot.h"
#include "capture/python/internal/task_state.h"

namespace kansoku::capture::python {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using trace::SampleState;

/// The lines of the instructions at bytes 0, 2, 4, ...
std::vector<std::uint32_t> lines(LineTableKind kind, std::string_view table, std::uint32_t first,
                                 std::uint32_t bytes) {
  const auto runs = decode_line_table(kind, as_bytes(table), first);
  std::vector<std::uint32_t> found;
  for (std::uint32_t at = 0; at < bytes; at += 2)
    found.push_back(line_at(runs, at));
  return found;
}

TEST(LineTable, LnotabOf38) {
  // The line moves behind the bytes of the pair; deltas are signed; the last line is open.
  EXPECT_THAT(lines(LineTableKind::kLnotab, {"\x04\x01\x02\xfe\x00\x05", 6}, 10, 12),
              ElementsAre(10, 10, 11, 14, 14, 14));
  EXPECT_THAT(lines(LineTableKind::kLnotab, "", 7, 4), ElementsAre(7, 7));
}

TEST(LineTable, RangesOf310) {
  EXPECT_THAT(lines(LineTableKind::kRanges, {"\x02\x00\x04\x02\x02\x80\x02\xff", 8}, 10, 14),
              ElementsAre(10, 12, 12, 0, 11, 0, 0));
}

TEST(LineTable, LocationsOf311) {
  const std::string_view table(
      "\x81\x25"                   // short form, 2 units: first line
      "\xd8\x00\x00"               // one-line form 11, 1 unit: +1
      "\xf8"                       // no location, 1 unit
      "\xe8\x03"                   // no columns, 1 unit: svarint -1
      "\xf0\x48\x01\x00\x00\x00",  // long form, 1 unit: svarint 8 | 1 << 6 = 72 -> +36
      14);
  EXPECT_THAT(lines(LineTableKind::kLocations, table, 100, 14),
              ElementsAre(100, 100, 101, 0, 100, 136, 0));
}

TEST(LineTable, DamagedTablesEndEarly) {
  EXPECT_THAT(lines(LineTableKind::kLocations, {"\x80\x00\x80\x00\x12", 5}, 5, 6),
              ElementsAre(5, 5, 0));
  EXPECT_THAT(lines(LineTableKind::kLocations, "\x12", 5, 2), ElementsAre(0));
  EXPECT_THAT(lines(LineTableKind::kRanges, "\x02", 5, 2), ElementsAre(0));
  // A varint without an end, and lines below zero.
  EXPECT_THAT(lines(LineTableKind::kLocations, {"\xe8\x7f\x7f\x7f\x7f\x7f\x7f\x7f\x7f", 9}, 5, 2),
              ElementsAre(0));
  EXPECT_THAT(lines(LineTableKind::kLnotab, {"\x02\x81", 2}, 5, 4), ElementsAre(5, 0));
}

TEST(PyString, TranscodesEveryKind) {
  EXPECT_EQ(to_utf8(as_bytes("a\xe4"), 1), "a\xc3\xa4");
  EXPECT_EQ(to_utf8(as_bytes(std::string_view("\x85\x5f\x00\xd8", 4)), 2), "\xe5\xbe\x85?");
  EXPECT_EQ(to_utf8(as_bytes(std::string_view("\x00\xf6\x01\x00\xff\xff\xff\xff", 8)), 4),
            "\xf0\x9f\x98\x80?");
  EXPECT_EQ(to_utf8(as_bytes("abc"), 2).size(), 3U);  // one unit; the odd byte is left
}

TEST(PyString, KnowsBothStateWordsOf314) {
  const Layout layout = layout_for_test(14);
  std::string header(40, '\0');
  header[16] = 5;
  const auto with_state = [&](std::uint32_t state) {
    std::memcpy(header.data() + layout.string_state, &state, sizeof state);
    return string_shape(layout, as_bytes(header));
  };
  ASSERT_TRUE(with_state(1 | (1 << 2) | 32 | 64));
  EXPECT_EQ(with_state(1 | (1 << 2) | 32 | 64)->data_offset, 40);
  ASSERT_TRUE(with_state(1 | (2 << 16) | (1 << 19)));
  EXPECT_EQ(with_state(1 | (2 << 16) | (1 << 19))->unit_bytes, 2U);
  EXPECT_EQ(with_state(1 | (2 << 16) | (1 << 19))->data_offset, 56);
  EXPECT_FALSE(with_state(1 << 2));         // not compact
  EXPECT_FALSE(with_state((3 << 2) | 32));  // no such kind
  EXPECT_FALSE(string_shape(layout, as_bytes("short")));
}

TEST(Version, IsReadFromHexNamesAndStrings) {
  EXPECT_EQ(version_text(*version_from_hex(0x030b02f0)), "3.11.2");
  EXPECT_EQ(version_text(*version_from_hex(0x030e00c1)), "3.14.0rc1");
  EXPECT_FALSE(version_from_hex(0x02071200));
  EXPECT_FALSE(version_from_hex(0));
  EXPECT_EQ(minor_from_name("libpython3.8.so.1.0"), 8);
  EXPECT_EQ(minor_from_name("python3.10"), 10);
  EXPECT_FALSE(minor_from_name("python3"));
  EXPECT_FALSE(minor_from_name("libpython3.so"));
  EXPECT_FALSE(minor_from_name("libpython3.99999999999.so"));
  using namespace std::literals;
  const std::string_view data =
      "x3.1.2\0"
      "3.7.1\0Python 3.8.18\0"
      "3.8.18.1\0"
      "3.8"sv;
  EXPECT_EQ(version_text(*version_from_strings(data, 8)), "3.8.18");
  EXPECT_EQ(version_text(*version_from_strings(data, std::nullopt)), "3.7.1");
  EXPECT_FALSE(version_from_strings(data, 9));
  Version bare;
  bare.minor = 9;
  EXPECT_EQ(version_text(bare), "3.9");
}

TEST(Layout, IsRefusedForReleasesWeDoNotKnow) {
  ImageMemory memory{std::string(1000, '\0')};
  Interpreter interpreter;
  interpreter.runtime = ImageMemory::kBase;
  interpreter.runtime_bytes = 1000;
  for (const std::int32_t minor : {7, 15}) {
    interpreter.version.minor = minor;
    const auto layout = layout_of(interpreter, memory);
    ASSERT_FALSE(layout);
    EXPECT_EQ(layout.error().code, Code::kUnsupported);
  }
  interpreter.version.minor = 11;
  EXPECT_TRUE(layout_of(interpreter, memory));
  interpreter.runtime_bytes = 583;  // one byte less than the table reads
  EXPECT_FALSE(layout_of(interpreter, memory));
  interpreter.version.minor = 13;  // no cookie there
  EXPECT_EQ(layout_of(interpreter, memory).error().code, Code::kUnsupported);
}

TEST(TaskState, IsTheLetterBehindTheName) {
  EXPECT_EQ(parse_task("12 (python3) R 1 12").state, SampleState::kRunning);
  EXPECT_EQ(parse_task("12 (a) D (b) S 1").state, SampleState::kSleeping);
  EXPECT_EQ(parse_task("12 (a) D 1").state, SampleState::kDisk);
  EXPECT_EQ(parse_task("12 (a) t 1").state, SampleState::kStopped);
  EXPECT_EQ(parse_task("12 (a) Z 1").state, SampleState::kUnknown);
  EXPECT_EQ(parse_task("12 (a)").state, SampleState::kUnknown);
  EXPECT_EQ(parse_task("").state, SampleState::kUnknown);
}

TEST(TaskState, FaultsAreTheEighthNumberBehindIt) {
  EXPECT_EQ(parse_task("12 (a (b)) R 1 12 12 0 -1 4194560 531 7 ").minor_faults, 531U);
  EXPECT_EQ(parse_task("12 (a) R 1 12 12 0 -1 4194560 531").minor_faults, std::nullopt)
      << "cut off";
  EXPECT_EQ(parse_task("12 (a) R 1 12 12 0 -1 4194560 x ").minor_faults, std::nullopt);
  EXPECT_EQ(parse_task("12 (a) R 1 12").minor_faults, std::nullopt);
  EXPECT_EQ(parse_task("").minor_faults, std::nullopt);
}

TEST(Snapshot, LeavesOutWhatCannotBeRead) {
  ImageMemory memory{std::string(4096, 'x')};
  Snapshot snapshot(memory, true);
  snapshot.want(ImageMemory::kBase, 8);
  snapshot.want(ImageMemory::kBase + 4092, 8);  // ends outside
  snapshot.want(ImageMemory::kBase + 16, 16);
  snapshot.want(8, 8);  // no address at all: not even tried
  EXPECT_TRUE(snapshot.fetch());
  EXPECT_NE(snapshot.find(ImageMemory::kBase, 8), nullptr);
  EXPECT_EQ(snapshot.find(ImageMemory::kBase + 4092, 8), nullptr);
  EXPECT_NE(snapshot.find(ImageMemory::kBase + 24, 8), nullptr);
  EXPECT_EQ(snapshot.find(ImageMemory::kBase + 25, 8), nullptr);
  EXPECT_EQ(snapshot.costs().read_ranges, 3U + 1 + 2 + 1 + 1);  // all, then by halves
  snapshot.want(ImageMemory::kBase + 4096, 8);
  EXPECT_FALSE(snapshot.fetch());
  EXPECT_TRUE(snapshot.fetch());  // nothing was wanted
  snapshot.clear();
  EXPECT_EQ(snapshot.find(ImageMemory::kBase, 8), nullptr);
}

}  // namespace
}  // namespace kansoku::capture::python
