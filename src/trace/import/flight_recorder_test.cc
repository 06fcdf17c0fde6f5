// SPDX-License-Identifier: Apache-2.0
#include "trace/import/flight_recorder.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>
#include <string>
#include <string_view>
#include <tuple>
#include <utility>
#include <vector>

#include "trace/import/files_for_test.h"

namespace kansoku::trace::import {
namespace {

using pickled::dict;
using pickled::list;
using pickled::none;
using pickled::number;
using pickled::text;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using Members = std::vector<std::pair<std::string, std::string>>;

// Output of Python's pickle.dumps(dump, 2) for the dump that WhatPythonWrites expects.
constexpr std::string_view kDump =
    "80027d710028580700000076657273696f6e71015803000000322e397102580c0000006e63636c5f76657273"
    "696f6e71035806000000322e32372e337104580900000070675f636f6e66696771057d710628580100000030"
    "71077d71082858040000006e616d6571096807580400000064657363710a580a00000064656661756c745f70"
    "67710b580500000072616e6b73710c580c0000005b302c20312c20322c20335d710d75580100000037710e7d"
    "710f286809680e680a580600000054454e534f527110680c58060000005b312c20335d711175755809000000"
    "70675f73746174757371127d711368077d71142858180000006c6173745f656e7175657565645f636f6c6c65"
    "637469766571154b0c58170000006c6173745f737461727465645f636f6c6c65637469766571164affffffff"
    "58190000006c6173745f636f6d706c657465645f636f6c6c65637469766571174b0b75735807000000656e74"
    "7269657371185d7119287d711a2858090000007265636f72645f6964711b4b00580500000070675f6964711c"
    "4b00580d00000070726f636573735f67726f7570711d6807680b86711e5811000000636f6c6c656374697665"
    "5f7365715f6964711f4b0c580a0000007032705f7365715f696471204b0058050000006f705f696471214b0e"
    "580e00000070726f66696c696e675f6e616d657122580f0000006e63636c3a616c6c5f726564756365712358"
    "0f00000074696d655f637265617465645f6e7371248a08150dc851743c5918580b000000696e7075745f7369"
    "7a657371255d7126285d7127284d00084d0014655d71284b076165580c000000696e7075745f647479706573"
    "71295d712a580800000042466c6f61743136712b61580c0000006f75747075745f73697a6573712c5d712d5d"
    "712e284d00084d00146561580d0000006f75747075745f647479706573712f5d7130682b6158050000007374"
    "617465713158090000007363686564756c65647132581a00000074696d655f646973636f76657265645f7374"
    "61727465645f6e7371334e581c00000074696d655f646973636f76657265645f636f6d706c657465645f6e73"
    "71344e580700000072657469726564713589580a00000074696d656f75745f6d7371364a20bf020058060000"
    "0069735f70327071378958060000006672616d657371385d7139287d713a286809580400000073746570713b"
    "580800000066696c656e616d65713c5808000000747261696e2e7079713d58040000006c696e65713e4b2875"
    "7d713f28680958080000003c6d6f64756c653e7140683c683d683e4b637565757d714128681c4b01681d680e"
    "6810867142681f4b0068204b0568214b0f6822580e0000006e63636c3a73656e6420302d3e31714368315809"
    "000000636f6d706c65746564714468358868364a20bf020068378868248a08160dc851743c591868385d7145"
    "7565752e";

Result<FlightDump> read(std::string_view bytes, const FlightLimits& limits = {},
                        std::string_view name = "_dump_3") {
  return read_flight_recorder(as_bytes(bytes), name, limits);
}
Result<FlightDump> read_members(const Members& members, const FlightLimits& limits = {}) {
  return read(pickled::file(dict(members)), limits);
}

TEST(FlightRecorder, ReadsWhatPythonWrites) {
  const auto dump = read(from_hex(kDump));
  ASSERT_TRUE(dump.has_value()) << dump.error().what;
  EXPECT_EQ(dump->rank, 3);
  EXPECT_EQ(dump->version, "2.9");
  EXPECT_EQ(dump->backend_version, "2.27.3");
  ASSERT_EQ(dump->groups.size(), 2U);
  EXPECT_EQ(dump->groups[0].name, "0");
  EXPECT_EQ(dump->groups[0].description, "default_pg");
  EXPECT_THAT(dump->groups[0].ranks, ElementsAre(0, 1, 2, 3));
  EXPECT_THAT(dump->groups[1].ranks, ElementsAre(1, 3));
  ASSERT_EQ(dump->status.size(), 1U);
  EXPECT_EQ(dump->status[0].local_id, 0);
  EXPECT_EQ(dump->status[0].enqueued, 12);
  EXPECT_EQ(dump->status[0].started, -1);
  EXPECT_EQ(dump->status[0].completed, 11);
  ASSERT_EQ(dump->entries.size(), 2U);
  const DumpEntry& entry = dump->entries[0];
  EXPECT_EQ(entry.group_name, "0");
  EXPECT_EQ(entry.group_description, "default_pg");
  EXPECT_EQ(entry.name, "nccl:all_reduce");
  EXPECT_EQ(entry.state, "scheduled");
  EXPECT_EQ(entry.collective_seq, 12);
  EXPECT_EQ(entry.op_id, 14);
  EXPECT_FALSE(entry.is_p2p);
  EXPECT_FALSE(entry.is_retired);
  EXPECT_EQ(entry.created_ns, 1754500000123456789);
  EXPECT_EQ(entry.started_ns, 0);  // None
  EXPECT_EQ(entry.timeout_ms, 180000);
  EXPECT_EQ(entry.input_sizes, "[[2048, 5120], [7]]");
  EXPECT_EQ(entry.input_dtypes, "[BFloat16]");
  ASSERT_EQ(entry.frames.size(), 2U);
  EXPECT_EQ(entry.frames[0].function, "step");
  EXPECT_EQ(entry.frames[0].file, "train.py");
  EXPECT_EQ(entry.frames[0].line, 40U);
  EXPECT_EQ(entry.frames[1].function, "<module>");
  EXPECT_TRUE(dump->entries[1].is_p2p);
  EXPECT_TRUE(dump->entries[1].is_retired);
  EXPECT_EQ(dump->entries[1].p2p_seq, 5);
  EXPECT_EQ(dump->entries[1].name, "nccl:send 0->1");
  EXPECT_THAT(dump->entries[1].frames, IsEmpty());
}

TEST(FlightRecorder, ReadsWhatItWrites) {
  auto dump = read(from_hex(kDump));
  ASSERT_TRUE(dump.has_value());
  dump->groups[1].name = "with \"quotes\"";
  dump->entries[0].created_ns = 9'000'000'000'000'000'001;
  const auto again = read(flight_recorder_json(*dump));
  ASSERT_TRUE(again.has_value()) << again.error().what;
  EXPECT_EQ(again->backend_version, dump->backend_version);
  ASSERT_EQ(again->groups.size(), dump->groups.size());
  for (std::size_t i = 0; i < dump->groups.size(); ++i) {
    EXPECT_EQ(again->groups[i].name, dump->groups[i].name);
    EXPECT_EQ(again->groups[i].description, dump->groups[i].description);
    EXPECT_EQ(again->groups[i].ranks, dump->groups[i].ranks);
  }
  ASSERT_EQ(again->entries.size(), dump->entries.size());
  const auto all_of = [](const DumpEntry& entry) {
    return std::tuple(entry.local_id, entry.group_name, entry.group_description, entry.name,
                      entry.state, entry.collective_seq, entry.p2p_seq, entry.op_id, entry.is_p2p,
                      entry.is_retired, entry.created_ns, entry.started_ns, entry.completed_ns,
                      entry.timeout_ms, entry.input_sizes, entry.input_dtypes, entry.output_sizes,
                      entry.output_dtypes);
  };
  for (std::size_t i = 0; i < dump->entries.size(); ++i)
    EXPECT_EQ(all_of(again->entries[i]), all_of(dump->entries[i])) << i;
}

TEST(FlightRecorder, TheRankIsInTheName) {
  const std::string file = pickled::file(dict({{"version", text("2")}, {"entries", list({})}}));
  const std::pair<std::string_view, std::int32_t> names[] = {{"_dump_12", 12},
                                                             {"nccl_trace_rank_3", 3},
                                                             {"/a/b_9/_dump_0", 0},
                                                             {"_dump_12.pickle", 12},
                                                             {"dump", -1},
                                                             {"", -1},
                                                             {"/run7/dump", -1},
                                                             {"_dump_99999999999999999999", -1},
                                                             {"_dump_2147483647", 2147483647}};
  for (const auto& [name, rank] : names) {
    const auto dump = read(file, {}, name);
    ASSERT_TRUE(dump.has_value());
    EXPECT_EQ(dump->rank, rank) << name;
  }
}

TEST(FlightRecorder, NeedsAVersionAndEntriesOrGroups) {
  const std::vector<std::string> roots = {
      none(),
      number(1),
      list({}),
      dict({}),
      dict({{"version", text("2")}}),
      dict({{"entries", list({})}}),
      dict({{"versions", text("2")}, {"entries", list({})}}),
      list({dict({{"version", text("2")}, {"entries", list({})}})})};
  for (const std::string& root : roots) {
    const auto dump = read(pickled::file(root));
    ASSERT_FALSE(dump.has_value()) << root;
    EXPECT_EQ(dump.error().code, Code::kCorrupt);
    EXPECT_THAT(dump.error().what, HasSubstr("no dictionary with version"));
  }
  EXPECT_TRUE(read_members({{"version", text("2")}, {"entries", list({})}}).has_value());
  EXPECT_TRUE(read_members({{"version", text("2")}, {"pg_config", dict({})}}).has_value());
}

/// An operation with what every version writes of one; members in `more` replace those.
std::string operation(const Members& more = {}) {
  Members members{{"pg_id", number(0)},
                  {"process_group", list({text("0"), text("default_pg")})},
                  {"collective_seq_id", number(1)},
                  {"profiling_name", text("nccl:all_reduce")},
                  {"state", text("scheduled")}};
  members.insert(members.end(), more.begin(), more.end());
  return dict(members);
}

TEST(FlightRecorder, MembersOfWrongTypesCountAsMissing) {
  const std::vector<std::string> odd = {none(), number(std::numeric_limits<std::int64_t>::min()),
                                        text("x"), list({none(), number(-1)}),
                                        dict({{"a", none()}})};
  for (const char* key : {"pg_id", "process_group", "profiling_name", "state", "collective_seq_id",
                          "op_id", "is_p2p", "time_created_ns", "input_sizes", "frames"}) {
    for (const std::string& value : odd) {
      const auto dump =
          read_members({{"version", number(2)},
                        {"entries", list({none(), operation(), operation({{key, value}})})},
                        {"pg_config", value},
                        {"pg_status", value},
                        {"nccl_version", value}});
      ASSERT_TRUE(dump.has_value()) << key;
      EXPECT_EQ(dump->entries.size() + dump->bad_entries, 3U) << key;
      EXPECT_GE(dump->entries.size(), 1U) << key;
      EXPECT_EQ(dump->version, "2");
    }
  }
}

TEST(FlightRecorder, AnEntryWithoutAMandatoryMemberIsLeftOutAndCounted) {
  for (const char* key : {"process_group", "collective_seq_id", "profiling_name", "state"}) {
    std::string less = operation();
    less.replace(less.find(key), 1, "?");
    const auto dump =
        read_members({{"version", text("2")}, {"entries", list({operation(), less})}});
    ASSERT_TRUE(dump.has_value()) << key;
    EXPECT_EQ(dump->entries.size(), 1U) << key;
    EXPECT_EQ(dump->bad_entries, 1U) << key;
    const auto none_left = read_members({{"version", text("2")}, {"entries", list({less})}});
    ASSERT_FALSE(none_left.has_value()) << key;
    EXPECT_THAT(none_left.error().what, HasSubstr(std::string("the first lacks ") + key));
  }
}

TEST(FlightRecorder, AVersionThatIsNotKnownIsRefused) {
  for (const char* version : {"0.9", "3", "3.1", "12.0", "", "x"}) {
    const auto dump = read_members({{"version", text(version)}, {"entries", list({})}});
    ASSERT_FALSE(dump.has_value()) << version;
    EXPECT_EQ(dump.error().code, Code::kUnsupported) << version;
  }
  EXPECT_TRUE(read_members({{"version", text("2.10")}, {"entries", list({})}}).has_value());
}

// Version 1: one number for collectives and transfers, groups by id as lists of ranks.
TEST(FlightRecorder, ReadsVersionOne) {
  const auto entry = [](std::int64_t seq, const char* name) {
    return dict({{"pg_id", number(7)},
                 {"seq_id", number(seq)},
                 {"profiling_name", text(name)},
                 {"state", text("started")}});
  };
  const auto dump =
      read_members({{"version", text("1.4")},
                    {"pg_config", dict({{"7", list({number(0), number(2)})}})},
                    {"entries", list({entry(3, "nccl:all_reduce"), entry(4, "nccl:send 0->1")})}});
  ASSERT_TRUE(dump.has_value()) << dump.error().what;
  EXPECT_TRUE(dump->counts_together);
  ASSERT_EQ(dump->groups.size(), 1U);
  EXPECT_EQ(dump->groups[0].name, "7");
  EXPECT_THAT(dump->groups[0].ranks, ElementsAre(0, 2));
  ASSERT_EQ(dump->entries.size(), 2U);
  EXPECT_EQ(dump->entries[0].group_name, "7");
  EXPECT_EQ(dump->entries[0].collective_seq, 3);
  EXPECT_FALSE(dump->entries[0].is_p2p);
  EXPECT_TRUE(dump->entries[1].is_p2p);
  EXPECT_EQ(dump->entries[1].p2p_seq, 4);
}

// Operations inside of a coalesced group have no events: the group's entry knows.
TEST(FlightRecorder, OperationsOfACoalescedGroupHaveItsState) {
  const auto entry = [](std::int64_t seq, const char* name, const char* state) {
    return operation({{"collective_seq_id", number(seq)},
                      {"profiling_name", text(name)},
                      {"state", text(state)},
                      {"retired", number(std::string_view(state) == "completed" ? 1 : 0)}});
  };
  const auto dump = read_members(
      {{"version", text("2.4")},
       {"entries",
        list({entry(1, "nccl:all_gather", "scheduled"), entry(1, "nccl:all_gather", "scheduled"),
              entry(1, "nccl:coalesced", "completed"), entry(2, "nccl:broadcast", "scheduled"),
              entry(3, "nccl:all_gather", "scheduled"), entry(3, "nccl:coalesced", "scheduled"),
              entry(4, "nccl:all_gather", "scheduled")})}});
  ASSERT_TRUE(dump.has_value());
  std::string states;
  for (const DumpEntry& one : dump->entries)
    states += one.state.front();
  EXPECT_EQ(states, "cccssss");
  EXPECT_TRUE(dump->entries[0].is_retired);
}

TEST(FlightRecorder, TransfersOfACoalescedGroupOfVersionOneHaveItsState) {
  const auto entry = [](const char* name, const char* state) {
    return dict({{"pg_id", number(0)},
                 {"seq_id", number(4)},
                 {"profiling_name", text(name)},
                 {"state", text(state)},
                 {"retired", number(std::string_view(state) == "completed" ? 1 : 0)}});
  };
  const auto dump = read_members(
      {{"version", text("1.4")},
       {"entries", list({entry("nccl:send 0->1", "scheduled"), entry("nccl:recv 0<-1", "scheduled"),
                         entry("nccl:coalesced", "completed")})}});
  ASSERT_TRUE(dump.has_value());
  for (const DumpEntry& one : dump->entries)
    EXPECT_EQ(one.state, "completed") << one.name;
}

TEST(FlightRecorder, JsonIsReadAsThePickle) {
  const auto dump = read(
      R"({"version": "2.4", "pg_config": {"0": {"name": "0", "desc": "d\u0065fault_pg", "ranks": "[0, 1]"}},)"
      R"("entries": [{"pg_id": 0, "process_group": ["0", "default_pg"], "collective_seq_id": 5,)"
      R"("profiling_name": "nccl:all_reduce", "state": "started", "is_p2p": false, "input_sizes": [[8, 2]],)"
      R"("time_created_ns": 1730000000000000000, "time_discovered_completed_ns": null,)"
      R"("frames": [{"name": "step", "filename": "a.py", "line": 3}]}]})");
  ASSERT_TRUE(dump.has_value()) << dump.error().what;
  EXPECT_EQ(dump->groups[0].description, "default_pg");
  EXPECT_THAT(dump->groups[0].ranks, ElementsAre(0, 1));
  ASSERT_EQ(dump->entries.size(), 1U);
  EXPECT_EQ(dump->entries[0].collective_seq, 5);
  EXPECT_EQ(dump->entries[0].created_ns, 1730000000000000000);
  EXPECT_EQ(dump->entries[0].input_sizes, "[[8, 2]]");
  ASSERT_EQ(dump->entries[0].frames.size(), 1U);
  EXPECT_EQ(dump->entries[0].frames[0].line, 3U);
  for (const char* bad : {"{", "{\"version\": }", "{\"version\": \"2\"} x", "{}"})
    EXPECT_EQ(read(bad).error().code, Code::kCorrupt) << bad;
}

// As the list of numbers, or as the text of one.
TEST(FlightRecorder, ReadsTheRanksOfAGroup) {
  const auto ranks_of = [](const std::string& value) {
    const auto dump = read_members(
        {{"version", text("2")}, {"pg_config", dict({{"g", dict({{"ranks", value}})}})}});
    CHECK(dump.has_value() && dump->groups.size() == 1 && dump->groups[0].name == "g");
    return dump->groups[0].ranks;
  };
  EXPECT_THAT(ranks_of(text("[0, 2,17]")), ElementsAre(0, 2, 17));
  EXPECT_THAT(ranks_of(text("")), IsEmpty());
  EXPECT_THAT(ranks_of(text("[99999999999999999999, 4]")), ElementsAre(4));
  EXPECT_THAT(ranks_of(list({number(5), none(), number(0)})), ElementsAre(5, 0));
  EXPECT_THAT(ranks_of(list({number(-1), number(std::int64_t{1} << 32), number(1)})),
              ElementsAre(1));  // never another rank's number by overflow
  EXPECT_THAT(ranks_of(none()), IsEmpty());
}

std::string entries(std::size_t count) {
  return list(std::vector<std::string>(count, operation()));
}

TEST(FlightRecorder, HasLimits) {
  const FlightLimits limits{.entries_max = 4, .groups_max = 4, .text_bytes_max = 5};
  for (const std::size_t count : {3U, 4U, 5U}) {
    const auto many = read_members({{"version", text("2")}, {"entries", entries(count)}}, limits);
    EXPECT_EQ(many.has_value(), count <= 4) << count;
    Members groups;
    for (std::size_t i = 0; i < count; ++i)
      groups.emplace_back(std::to_string(i), dict({}));
    const auto grouped =
        read_members({{"version", text("2")}, {"pg_config", dict(groups)}}, limits);
    EXPECT_EQ(grouped.has_value(), count <= 4) << count;
    EXPECT_TRUE(many || many.error().code == Code::kLimit);
    EXPECT_TRUE(grouped || grouped.error().code == Code::kLimit);
  }
  for (const std::string name : {"abcd", "abcde", "abcdef"}) {
    const auto dump = read_members(
        {{"version", text("2")}, {"entries", list({operation({{"state", text(name)}})})}}, limits);
    ASSERT_TRUE(dump.has_value());
    EXPECT_EQ(dump->entries[0].state, name.substr(0, 5));
  }
}

// A pickle names a value again with two bytes: here 20,000 entries share one with a frame that has
// a text of 60 KB, which would be 1.2 GB.
TEST(FlightRecorder, SharedValuesDoNotMultiplyIntoMemory) {
  const std::string frame = dict({{"name", text(std::string(60'000, 'x'))}});
  std::string shared = operation({{"frames", list({frame})}}) + "q\x01" + "(";
  for (int i = 0; i < 20'000; ++i)
    shared += "h\x01";
  // The entry is remembered, put into the list, and recalled into it again and again.
  const std::string root = "}(" + text("version") + text("2") + text("entries") + "]" +
                           shared.substr(0, shared.find("q\x01")) + "q\x01" + "a" +
                           shared.substr(shared.find("q\x01") + 2) + "eu";
  const std::string file = pickled::file(root);
  ASSERT_LT(file.size(), 110'000U);
  const auto bomb = read(file, {.held_bytes_max = 10'000'000});
  ASSERT_FALSE(bomb.has_value());
  EXPECT_EQ(bomb.error().code, Code::kLimit);
  EXPECT_THAT(bomb.error().what, HasSubstr("more bytes to keep"));
  EXPECT_TRUE(read(pickled::file(dict({{"version", text("2")}, {"entries", entries(1000)}})),
                   {.held_bytes_max = 10'000'000})
                  .has_value());
}

// Sizes are lists of lists; one that contains itself ends all the same.
TEST(FlightRecorder, SizesThatContainThemselvesEnd) {
  const auto loop =
      read(pickled::file("}(" + text("version") + text("2") + text("entries") + "]" + operation() +
                         "(" + text("input_sizes") + "]q\x05(h\x05h\x05h\x05" + "eu" + "a" + "u"));
  ASSERT_TRUE(loop.has_value()) << loop.error().what;
  ASSERT_EQ(loop->entries.size(), 1U);
  EXPECT_THAT(loop->entries[0].input_sizes, HasSubstr("[[[[[...,"));
}

TEST(FlightRecorder, TruncationAndProgramsAreRefused) {
  const std::string file = from_hex(kDump);
  for (std::size_t size = 0; size < file.size(); ++size) {
    const auto dump = read(std::string_view(file).substr(0, size));
    ASSERT_FALSE(dump.has_value()) << size;
    EXPECT_EQ(dump.error().code, Code::kCorrupt);
  }
  const auto program = read(
      "\x80\x02"
      "cos\nsystem\nq\x01.");
  ASSERT_FALSE(program.has_value());
  EXPECT_EQ(program.error().code, Code::kUnsupported);
}

// A bit anywhere: an answer or an error, never a crash (the sanitizers watch).
TEST(FlightRecorder, FlippedBitsAreSurvived) {
  const std::string file = from_hex(kDump);
  for (std::size_t bit = 0; bit < 8 * file.size(); ++bit) {
    std::string bent = file;
    bent[bit / 8] = static_cast<char>(bent[bit / 8] ^ (1 << (bit % 8)));
    const auto dump = read(bent);
    EXPECT_TRUE(!dump || dump->entries.size() <= 2);
  }
}

TEST(FlightRecorder, PythonsNumbersThatJsonLacksAreUnknown) {
  const std::string text =
      R"({"version": "2.4", "pg_config": {}, "entries": [{"profiling_name": "nccl:all_reduce", )"
      R"("state": "NaN\" Infinity", "process_group": ["0", "d"], "collective_seq_id": 3, )"
      R"("duration_ms": NaN, "timeout_ms": -Infinity, "time_created_ns": Infinity}]})";
  for (const std::string& mark : {std::string(), std::string("\xef\xbb\xbf")}) {
    const auto dump = read_flight_recorder(as_bytes(mark + text), "dump_3", {});
    ASSERT_TRUE(dump.has_value()) << dump.error().what;
    ASSERT_EQ(dump->entries.size(), 1U);
    EXPECT_EQ(dump->entries[0].state, "NaN\" Infinity");
    EXPECT_EQ(dump->entries[0].timeout_ms, 0);
    EXPECT_EQ(dump->entries[0].local_id, -1) << "pg_id is not needed where the group has a name";
  }
}

}  // namespace
}  // namespace kansoku::trace::import
