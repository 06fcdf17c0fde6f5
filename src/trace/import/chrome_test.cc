// SPDX-License-Identifier: Apache-2.0
#include "trace/import/chrome.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "trace/import/files_for_test.h"

namespace kansoku::trace::import {
namespace {

using ::testing::AnyOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

Result<ImportedFile> import(std::string_view text, Trace& into, const ChromeOptions& options = {},
                            std::string_view name = "trace.json") {
  auto file = import_chrome(as_bytes(text), name, options, into);
  EXPECT_EQ(file ? import_problem_of(into) : "", "") << text;
  return file;
}

/// The trace as text, or the error.
std::string imported(std::string_view text, const ChromeOptions& options = {}) {
  Trace trace;
  const auto file = import(text, trace, options);
  return file ? text_of(trace) : file.error().what;
}

std::uint64_t loss(const Trace& trace, const StatDef& stat) {
  const auto known = trace.losses.find(std::string(stat.name));
  return known == trace.losses.end() ? 0 : known->second.count;
}

// Kinds of tracks: 0 process, 1 thread, 2 counter.
TEST(Chrome, CompleteEventsBecomeSlices) {
  EXPECT_EQ(imported(R"([{"ph":"X","name":"mm","cat":"cpu_op","pid":10,"tid":11,"ts":1.5,"dur":2.25,
                         "args":{"n":3,"share":0.5,"dims":[1, [2]],"on":true,"text":"a\n",
                                 "inner":{"k":[]},"nothing":null,"big":18446744073709551615}},
                        {"ph":"X","name":"mm","pid":10,"tid":11,"ts":5}])"),
            "window 1500 5000\n"
            "process 10 '' role '' rank -1 of -1\n"
            "track 0 in -1 pid 10 tid 0 ''\n"
            "track 1 in 0 pid 10 tid 11 ''\n"
            "slice 1500 +2250 on 1 'cpu_op' 'mm' n=3 share=0.5f dims='[1, [2]]' on=1 text='a\n' "
            "inner='{\"k\":[]}' big=1.8446744073709552e+19f\n"
            "slice 5000 +0 on 1 '' 'mm'\n");
}

// Begin and end match per thread as brackets do; what never ends stays open.
TEST(Chrome, BeginAndEndMatchPerThread) {
  EXPECT_EQ(imported(R"([{"ph":"B","name":"outer","pid":1,"tid":1,"ts":10},
                        {"ph":"B","name":"other","pid":1,"tid":2,"ts":11},
                        {"ph":"B","name":"inner","pid":1,"tid":1,"ts":12},
                        {"ph":"E","pid":1,"tid":1,"ts":13},
                        {"ph":"E","pid":1,"tid":1,"ts":20},
                        {"ph":"E","pid":1,"tid":1,"ts":30},
                        {"ph":"E","pid":1,"tid":3,"ts":30}])"),
            "window 10000 20000\n"
            "process 1 '' role '' rank -1 of -1\n"
            "track 0 in -1 pid 1 tid 0 ''\n"
            "track 1 in 0 pid 1 tid 1 ''\n"
            "track 1 in 0 pid 1 tid 2 ''\n"
            "track 1 in 0 pid 1 tid 3 ''\n"
            "slice 10000 +10000 on 1 '' 'outer'\n"
            "slice 11000 +-1 on 2 '' 'other'\n"
            "slice 12000 +1000 on 1 '' 'inner'\n"
            "loss import_bad_events 2\n");
}

TEST(Chrome, InstantsCountersAndMetadata) {
  EXPECT_EQ(imported(R"([{"ph":"M","name":"process_name","pid":1,"args":{"name":"python"}},
                        {"ph":"M","name":"process_labels","pid":0,"args":{"labels":"GPU 0"}},
                        {"ph":"M","name":"thread_name","pid":1,"tid":7,"args":{"name":"main"}},
                        {"ph":"M","name":"process_sort_index","pid":1,"args":{"sort_index":5}},
                        {"ph":"i","name":"mark","cat":"c","pid":1,"tid":7,"ts":4,"args":{"a":1}},
                        {"ph":"I","name":"mark","pid":1,"tid":7,"ts":5},
                        {"ph":"C","name":"mem","pid":1,"ts":6,"args":{"bytes":10}},
                        {"ph":"C","name":"mem","pid":1,"ts":7,"args":{"bytes":2.5,"note":"x"}},
                        {"ph":"C","name":"two","pid":1,"ts":8,"args":{"a":1,"b":2}}])"),
            "window 4000 8000\n"
            "process 1 'python' role '' rank -1 of -1\n"
            "process 0 '' role 'device' rank -1 of -1\n"
            "track 0 in -1 pid 1 tid 0 ''\n"
            "track 0 in -1 pid 0 tid 0 ''\n"
            "track 1 in 0 pid 1 tid 7 'main'\n"
            "track 2 in 0 pid 1 tid 0 'mem'\n"
            "track 2 in 0 pid 1 tid 0 'two a'\n"
            "track 2 in 0 pid 1 tid 0 'two b'\n"
            "instant 4000 on 2 'c' 'mark' a=1\n"
            "instant 5000 on 2 '' 'mark'\n"
            "counter 6000 on 3 10\n"
            "counter 7000 on 3 2.5\n"
            "counter 8000 on 4 1\n"
            "counter 8000 on 5 2\n");
}

// Devices have texts for numbers; processes without a number of their own get free ones.
TEST(Chrome, NumbersOfProcessesAndThreadsMayBeTexts) {
  Trace trace;
  ASSERT_TRUE(import(R"([{"ph":"X","name":"a","pid":"Spans","tid":"stream 7","ts":1,"dur":1},
                         {"ph":"X","name":"b","pid":"12","tid":"13","ts":1,"dur":1},
                         {"ph":"X","name":"c","pid":12,"tid":13,"ts":2,"dur":1},
                         {"ph":"X","name":"d","pid":-1,"tid":-3,"ts":2,"dur":1},
                         {"ph":"X","name":"e","pid":12,"tid":140213003712256,"ts":2,"dur":1}])",
                     trace)
                  .has_value());
  ASSERT_EQ(trace.processes.size(), 3U);
  EXPECT_EQ(trace.str(trace.processes[0].name), "Spans");
  EXPECT_EQ(trace.processes[1].pid, 12);
  const auto track = [&](std::size_t slice) -> const Track& {
    return trace.tracks[trace.slices.track[slice].raw];
  };
  EXPECT_EQ(trace.str(track(0).name), "stream 7");
  EXPECT_GE(track(0).tid, 1 << 30);
  EXPECT_EQ(trace.slices.track[1], trace.slices.track[2]);  // 12 and "12" are the same
  EXPECT_EQ(track(1).tid, 13);
  EXPECT_GE(track(3).pid, 1 << 30);
  EXPECT_GE(track(3).tid, 1 << 30);
  EXPECT_EQ(track(4).pid, 12);
  EXPECT_EQ(trace.str(track(4).name), "140213003712256");
}

// Two containers, each with a process 7, one rank a file: both are ranks, neither is lost.
TEST(Chrome, EqualProcessNumbersOfTwoFilesStayApart) {
  constexpr std::string_view kFile =
      R"({"distributedInfo":{"rank":RANK},"traceEvents":[
          {"ph":"X","name":"a","pid":7,"tid":7,"ts":1,"dur":1},
          {"ph":"X","name":"a","pid":"Spans","tid":0,"ts":1,"dur":1}]})";
  Trace trace;
  for (const char rank : {'0', '1'}) {
    std::string text(kFile);
    text.replace(text.find("RANK"), 4, 1, rank);
    ASSERT_TRUE(import(text, trace).has_value());
  }
  ASSERT_EQ(trace.processes.size(), 4U);
  EXPECT_EQ(trace.processes[0].pid, 7);
  EXPECT_NE(trace.processes[2].pid, 7);
  for (const std::size_t i : {0U, 2U}) {
    EXPECT_EQ(trace.processes[i].rank, static_cast<std::int32_t>(i / 2));
    EXPECT_EQ(trace.str(trace.processes[i].role), "rank");
  }
  for (const std::size_t i : {1U, 3U})
    EXPECT_EQ(trace.str(trace.processes[i].role), "") << "no process of its own";
  EXPECT_NE(trace.slices.track[0], trace.slices.track[2]);
  EXPECT_EQ(trace.tracks[trace.slices.track[2].raw].pid, trace.processes[2].pid);
}

TEST(Chrome, TheBaseTimeShiftsThisFileOnly) {
  const std::string events = R"("traceEvents":[{"ph":"X","name":"a","pid":1,"tid":1,"ts":2,"dur":1},
      {"ph":"i","name":"b","pid":1,"tid":1,"ts":3},{"ph":"C","name":"c","pid":1,"ts":4,"args":{"v":1}}])";
  const std::string base = R"("baseTimeNanoseconds":1700000000000000000)";
  const std::string first = imported("{" + base + "," + events + "}");
  EXPECT_EQ(first, imported("{" + events + "," + base + "}"));
  EXPECT_THAT(first, HasSubstr("window 1700000000000002000 1700000000000004000"));
  EXPECT_THAT(first, HasSubstr("slice 1700000000000002000 +1000"));
  EXPECT_THAT(first, HasSubstr("instant 1700000000000003000"));
  EXPECT_THAT(first, HasSubstr("counter 1700000000000004000"));
  Trace both;
  ASSERT_TRUE(import("{" + events + "}", both).has_value());
  ASSERT_TRUE(import("{" + events + "," + base + "}", both).has_value());
  EXPECT_THAT(both.slices.start_ns, ElementsAre(2000, 1700000000000002000));
  EXPECT_EQ(both.begin_ns, 2000);
  EXPECT_EQ(both.end_ns, 1700000000000004000);
  // Unusable ones leave the times as they are.
  for (const char* odd : {"-1", "null", "\"x\"", "9223372036854775807", "1e30", "[]"})
    EXPECT_EQ(imported(fmt::format("{{{},\"baseTimeNanoseconds\":{}}}", events, odd)),
              imported("{" + events + "}"))
        << odd;
}

TEST(Chrome, DistributedInfoTellsRankAndGroups) {
  Trace trace;
  const auto file = import(
      R"({"distributedInfo":{"backend":"nccl","rank":5,"world_size":8,"pg_config":[
           {"pg_name":"0","pg_desc":"default_pg","ranks":"[0, 1, 2]"},
           {"pg_name":"1","ranks":[3, 4]},
           {"pg_name":"2","ranks":["6","7"]},
           {"pg_name":"3","ranks":[-1, 4294967296, "x", null, 7]},
           {"pg_name":"4","ranks":"no list"},
           {"ranks":{"a":1}}, 17]},
         "traceEvents":[{"ph":"X","name":"a","pid":1,"tid":1,"ts":1,"dur":1}]})",
      trace, {}, "rank-3.json");
  ASSERT_TRUE(file.has_value());
  EXPECT_EQ(file->rank, 5);  // the content goes before the name
  EXPECT_EQ(file->world_size, 8);
  EXPECT_EQ(file->backend, "nccl");
  EXPECT_EQ(file->event_count, 1U);
  EXPECT_EQ(trace.processes[0].rank, 5);
  EXPECT_EQ(trace.processes[0].world_size, 8);
  ASSERT_EQ(trace.groups.size(), 7U);
  EXPECT_EQ(trace.str(trace.groups[0].description), "default_pg");
  EXPECT_THAT(trace.groups[0].ranks, ElementsAre(0, 1, 2));
  EXPECT_THAT(trace.groups[1].ranks, ElementsAre(3, 4));
  EXPECT_THAT(trace.groups[2].ranks, ElementsAre(6, 7));
  EXPECT_THAT(trace.groups[3].ranks, ElementsAre(7));
  for (const std::size_t i : {4U, 5U, 6U})
    EXPECT_THAT(trace.groups[i].ranks, IsEmpty());
}

TEST(Chrome, OddDistributedInfoSaysNothing) {
  for (const char* info : {"1", "[]", "\"x\"", "null", R"({"rank":-4,"world_size":-1})",
                           R"({"rank":2147483648,"world_size":99999999999})",
                           R"({"rank":"3","world_size":"8","backend":7,"pg_config":{"a":{}}})"}) {
    Trace trace;
    const auto file =
        import(fmt::format(R"({{"distributedInfo":{},"traceEvents":[]}})", info), trace);
    ASSERT_TRUE(file.has_value()) << info;
    EXPECT_EQ(file->rank, kNoRank) << info;
    EXPECT_EQ(file->world_size, kNoRank) << info;
  }
}

TEST(Chrome, TheRankMayBeInTheName) {
  const std::pair<std::string_view, std::int32_t> names[] = {
      {"rank-34.Jul_15_10_52_41.1074.pt.trace.json", 34},
      {"rank12", 12},
      {"rank_3.json", 3},
      {"rank.5", 5},
      {"rank-0.json", 0},
      {"/jobs/rank7/trace.json", kNoRank},
      {"/jobs/rank7/rank9.json", 9},
      {"rank1_of_rank2.json", 2},
      {"rank1_ranking.json", 1},
      {"rankless.json", kNoRank},
      {"rank--1.json", kNoRank},
      {"rank99999999999.json", kNoRank},
      {"rank", kNoRank},
      {"", kNoRank}};
  for (const auto& [name, rank] : names)
    EXPECT_EQ(rank_of_file_name(name), rank) << name;
}

TEST(Chrome, AFileNameTellsAWindow) {
  const auto window = window_of_file_name("logs/host_12.1623143089861.pt.trace.json.gz");
  ASSERT_TRUE(window.has_value());
  EXPECT_EQ(window->worker, "host_12");
  EXPECT_EQ(window->time_ms, 1623143089861);
  EXPECT_EQ(window_of_file_name("a.b.1623143089861.pt.trace.json")->worker, "a.b");
  for (const char* name : {"worker0.pt.trace.json", "rank-34.pt.trace.json", "1623143089861.json",
                           ".1623143089861.pt.trace.json", "w.12.pt.trace.json",
                           "w.99999999999999999999999.pt.trace.json", ""})
    EXPECT_FALSE(window_of_file_name(name).has_value()) << name;
}

TEST(Chrome, NumbersOfCallsAreNoPartOfAName) {
  EXPECT_EQ(plain_name("aten::linear, seq = 100, op_id = 1000"), "aten::linear");
  EXPECT_EQ(plain_name("<built-in method mm of type object at 0x7f12ab>"),
            "<built-in method mm of type object");
  EXPECT_EQ(plain_name("stop at 0x"), "stop at 0x");
  EXPECT_EQ(plain_name("aten::linear, op_id = 1, sizes = [[1, 2]]"), "aten::linear");
  for (const char* name : {"aten::linear", "a, seq = b", "a, seq = ", "", "f(seq = 1)"})
    EXPECT_EQ(plain_name(name), name);
}

TEST(Chrome, NeedsAListOfEvents) {
  for (const char* text :
       {"{}", R"({"a":{"traceEvents":[]}})", R"({"traceEvents":{}})", R"({"traceEvents":null})"}) {
    Trace trace;
    const auto file = import(text, trace);
    ASSERT_FALSE(file.has_value()) << text;
    EXPECT_EQ(file.error().code, Code::kNotFound) << text;
  }
  EXPECT_EQ(imported("[]"), "window 0 0\n");
  EXPECT_EQ(imported(R"({"traceEvents":[]})"), "window 0 0\n");
}

// Every member of an event, with every wrong type: the event is left out and counted, or the
// member is as if it were missing; the events around it stay.
TEST(Chrome, MembersOfWrongTypesAreSurvived) {
  constexpr std::array<std::string_view, 12> kOdd{"null",
                                                  "true",
                                                  "{}",
                                                  "[]",
                                                  "[1]",
                                                  "\"\"",
                                                  "\"abc\"",
                                                  "-1",
                                                  "1e400",
                                                  "-0.0",
                                                  "123456789012345678901234567890",
                                                  R"({"a":{"b":[{"c":null}]}})"};
  for (const char* member : {"ph", "name", "cat", "pid", "tid", "ts", "dur", "args"}) {
    for (const std::string_view odd : kOdd) {
      std::string event =
          R"("ph":"X","name":"n","cat":"c","pid":1,"tid":1,"ts":5,"dur":1,"args":{})";
      const std::size_t at = event.find(fmt::format("\"{}\":", member));
      const std::size_t end = std::min(event.find(",\"", at), event.size());
      event.replace(at, end - at, fmt::format("\"{}\":{}", member, odd));
      const std::string good = R"({"ph":"X","name":"good","pid":2,"tid":2,"ts":7,"dur":1})";
      Trace trace;
      const auto file = import(fmt::format("[{},{{{}}},{}]", good, event, good), trace);
      ASSERT_TRUE(file.has_value()) << event << ": " << file.error().what;
      EXPECT_EQ(file->event_count, 3U);
      const std::uint64_t lost = loss(trace, import_bad_events) + loss(trace, import_other_events);
      EXPECT_EQ(trace.slices.size() + lost, 3U) << event;
      EXPECT_EQ(trace.str(trace.slices.name.front()), "good");
      EXPECT_EQ(trace.str(trace.slices.name.back()), "good");
    }
  }
}

TEST(Chrome, WhatHasNoUsableTimeIsCounted) {
  for (const char* event :
       {R"({"ph":"X","name":"a","pid":1,"tid":1})", R"({"ph":"X","ts":"abc","pid":1,"tid":1})",
        R"({"ph":"X","ts":1e300})", R"({"ph":"X","ts":1,"dur":-1})", R"({"ts":1})", "{}"}) {
    Trace trace;
    ASSERT_TRUE(import(fmt::format("[{}]", event), trace).has_value()) << event;
    EXPECT_EQ(trace.slices.size(), 0U) << event;
    EXPECT_EQ(loss(trace, import_bad_events), 1U) << event;
    EXPECT_TRUE(trace.is_lossy());
  }
  Trace flows;
  ASSERT_TRUE(import(R"([{"ph":"s","ts":1},{"ph":"b","ts":1},{"ph":"XX","ts":1}])", flows));
  EXPECT_EQ(loss(flows, import_other_events), 3U);
  EXPECT_FALSE(flows.is_lossy());
}

TEST(Chrome, AnEventThatIsNoJsonIsLeftOutAndCounted) {
  for (const char* bad :
       {R"({"ph":"X" "ts":1})", "[1]", "7", R"({"ts":1.2.3})", R"({"name":"a\c"})"}) {
    constexpr std::string_view kGood = R"({"ph":"X","name":"a","pid":1,"tid":1,"ts":1,"dur":2})";
    Trace trace;
    ASSERT_TRUE(import(fmt::format("[{},{},{}]", kGood, bad, kGood), trace).has_value()) << bad;
    EXPECT_EQ(trace.slices.size(), 2U) << bad;
    EXPECT_EQ(loss(trace, import_bad_events), 1U) << bad;
    Trace none;
    const auto alone = import(fmt::format("[{}]", bad), none);
    ASSERT_FALSE(alone.has_value()) << bad;
    EXPECT_EQ(alone.error().code, Code::kCorrupt);
    EXPECT_THAT(alone.error().what, HasSubstr("the first begins at offset 1")) << bad;
  }
}

TEST(Chrome, AnEventThatIsNotUtf8IsReadWithoutItsOddBytes) {
  for (const auto& [name, read] : {std::pair("s\xff", "s?"), std::pair("\xc0\xafs", "??s")}) {
    Trace trace;
    const auto text = fmt::format(
        R"([{{"ph":"X","name":"{}","pid":1,"tid":1,"ts":1,"dur":2,"args":{{"a":"ok"}}}}])", name);
    ASSERT_TRUE(import(text, trace).has_value());
    ASSERT_EQ(trace.slices.size(), 1U);
    EXPECT_EQ(trace.str(trace.slices.name[0]), read);
    EXPECT_EQ(trace.slices.duration_ns[0], 2000);
    EXPECT_EQ(loss(trace, import_bad_events), 1U);
    EXPECT_EQ(trace.processes.front().unreadable_share, 0);
  }
}

TEST(Chrome, AHeaderThatIsNoJsonIsLeftOutAndCounted) {
  Trace trace;
  const auto file = import(R"({"distributedInfo":{"rank":1,,},"traceEvents":[]})", trace);
  ASSERT_TRUE(file.has_value());
  EXPECT_EQ(file->rank, trace::kNoRank);
  EXPECT_EQ(loss(trace, import_bad_members), 1U);
}

TEST(Chrome, TextBehindTheTraceIsCounted) {
  Trace trace;
  ASSERT_TRUE(import("[] x y", trace).has_value());
  EXPECT_EQ(loss(trace, import_more_text), 1U);
}

TEST(Chrome, CompressedTextThatIsCutIsReadUpToThere) {
  std::string text = "[";
  for (int i = 0; i < 20000; ++i)
    text += fmt::format(R"({{"ph":"X","name":"{}","pid":1,"tid":1,"ts":{},"dur":2}},)",
                        i * 7919 % 1000, i);
  const std::string whole = gzip(text);
  Trace trace;
  ASSERT_TRUE(import(whole.substr(0, whole.size() / 2), trace).has_value());
  EXPECT_GT(trace.slices.size(), 5000U);
  EXPECT_EQ(loss(trace, import_unclosed_trace), 1U);
}

constexpr std::string_view kSmall =
    R"({"schemaVersion":1,"distributedInfo":{"rank":1},"traceEvents":[)"
    R"({"ph":"X","name":"a","pid":1,"tid":1,"ts":1,"dur":2,"args":{"x":[1,2]}},)"
    R"({"ph":"C","name":"m","pid":1,"ts":3,"args":{"v":1}}],"baseTimeNanoseconds":5})";

TEST(Chrome, TruncationIsToldAtEveryByte) {
  const std::size_t list = kSmall.find('[');
  for (std::size_t size = 0; size < kSmall.size(); ++size) {
    Trace trace;
    const auto file = import(kSmall.substr(0, size), trace);
    if (!file) {
      EXPECT_EQ(file.error().code, Code::kCorrupt) << size;
      EXPECT_THAT(file.error().what, HasSubstr("offset")) << size;
    } else {
      EXPECT_GT(size, list) << size;
      EXPECT_EQ(loss(trace, import_unclosed_trace), 1U) << size;
    }
  }
}

TEST(Chrome, GzipChangesNothing) {
  const std::string plain = imported(kSmall);
  EXPECT_THAT(plain, HasSubstr("slice 1005 +2000"));
  EXPECT_EQ(imported(gzip(kSmall)), plain);
  EXPECT_EQ(imported(gzip(kSmall.substr(0, 50)) + gzip(kSmall.substr(50))), plain);
  Trace trace;
  EXPECT_EQ(import(gzip(kSmall), trace)->text_bytes, kSmall.size());
  const std::string file = gzip(kSmall);
  for (std::size_t size = 2; size < file.size(); ++size)
    EXPECT_THAT(imported(std::string_view(file).substr(0, size)),
                AnyOf(HasSubstr("inflate at offset"), HasSubstr("import_unclosed_trace 1")));
  for (std::size_t bit = 16; bit < 8 * file.size(); ++bit) {
    std::string bent = file;
    bent[bit / 8] = static_cast<char>(bent[bit / 8] ^ (1 << (bit % 8)));
    const std::string got = imported(bent);  // the sum at the end catches what still inflates
    EXPECT_TRUE(got == plain || got.find("offset") != std::string::npos ||
                got.find("import_unclosed_trace") != std::string::npos)
        << bit << ": " << got;
  }
}

TEST(Chrome, HasLimits) {
  constexpr std::string_view kThree = R"([{"ph":"X","name":"aaaa","pid":1,"tid":1,"ts":1},
      {"ph":"i","name":"bbbb","pid":1,"tid":2,"ts":1},{"ph":"X","name":"cccc","pid":1,"tid":3,"ts":1}])";
  const auto fails = [&](const ChromeOptions& options, std::string_view name) {
    Trace trace;
    const auto file = import(kThree, trace, options);
    if (file) return false;
    EXPECT_EQ(file.error().code, Code::kLimit);
    EXPECT_THAT(file.error().what, HasSubstr(std::string(name)));
    EXPECT_THAT(file.error().what, HasSubstr("offset"));
    return true;
  };
  EXPECT_TRUE(fails({.events_max = 2}, "more events"));
  EXPECT_FALSE(fails({.events_max = 3}, ""));
  EXPECT_FALSE(fails({.events_max = 4}, ""));
  EXPECT_TRUE(fails({.strings_bytes_max = 7}, "bytes of text"));  // two names before the third
  EXPECT_FALSE(fails({.strings_bytes_max = 8}, ""));
  EXPECT_TRUE(fails({.tracks_max = 2}, "more tracks"));  // a process, two threads
  EXPECT_FALSE(fails({.tracks_max = 3}, ""));
  const std::size_t longest =
      std::string_view(R"({"ph":"X","name":"cccc","pid":1,"tid":3,"ts":1})").size();
  EXPECT_TRUE(fails({.event_bytes_max = longest - 1}, "bytes"));
  EXPECT_FALSE(fails({.event_bytes_max = longest}, ""));
}

TEST(Chrome, ArgumentsHaveLimits) {
  for (const std::uint32_t count : {3U, 4U, 5U}) {
    std::string args;
    for (std::uint32_t i = 0; i < count; ++i)
      args += fmt::format("{}\"k{}\":{}", i > 0 ? "," : "", i, i);
    Trace trace;
    ASSERT_TRUE(import(fmt::format(R"([{{"ph":"X","ts":1,"args":{{{}}}}}])", args), trace,
                       {.args_per_event_max = 4}));
    EXPECT_EQ(trace.slices.arg_count[0], std::min(count, 4U));
    EXPECT_EQ(loss(trace, import_cut_args), count > 4 ? 1U : 0U);
  }
  for (const std::size_t size : {4U, 5U, 6U}) {
    Trace trace;
    ASSERT_TRUE(import(
        fmt::format(R"([{{"ph":"X","ts":1,"args":{{"k":"{}","n":1}}}}])", std::string(size, 'x')),
        trace, {.arg_text_bytes_max = 5}));
    EXPECT_EQ(trace.slices.arg_count[0], size <= 5 ? 2U : 1U);
    EXPECT_EQ(loss(trace, import_cut_args), size <= 5 ? 0U : 1U);
  }
}

// The names of threads and processes may come after their events.
TEST(Chrome, MetadataMayComeLast) {
  const std::string event = R"({"ph":"X","name":"a","pid":1,"tid":2,"ts":1,"dur":1})";
  const std::string name = R"({"ph":"M","name":"thread_name","pid":1,"tid":2,"args":{"name":"t"}})";
  EXPECT_EQ(imported("[" + event + "," + name + "]"), imported("[" + name + "," + event + "]"));
  EXPECT_THAT(imported("[" + event + "," + name + "]"), HasSubstr("tid 2 't'"));
  EXPECT_THAT(imported("[" + event + "]"), Not(HasSubstr("'t'")));
}

/// Forty operations of a device, one behind the other, 1 ms each; `more` stands among them.
std::string stream_of_operations(std::string_view more, std::string_view category = "kernel") {
  std::string out = "[";
  for (int i = 0; i < 40; ++i) {
    out += fmt::format(
        R"({{"ph":"X","name":"k","cat":"{}","pid":0,"tid":7,"ts":{},"dur":1000,"args":{{"device":0,"stream":7}}}},)",
        category, 5'000'000 + i * 1000);
    if (i == 20) out += more;
  }
  out.back() = ']';
  return out;
}

TEST(Chrome, TimesThatOnlyDamageExplainsAreLeftOut) {
  const std::string_view args = R"("args":{"device":0,"stream":7}})";
  const std::array<std::string, 5> damaged{
      R"({"ph":"X","name":"x","cat":"cpu_op","pid":1,"tid":1,"ts":4600000000,"dur":5},)",
      R"({"ph":"X","name":"x","cat":"kernel","pid":0,"tid":8,"ts":5020000,"dur":1e15,)" +
          std::string(args) + ",",
      // Ten seconds over later operations of its own stream.
      R"({"ph":"X","name":"x","cat":"kernel","pid":0,"tid":7,"ts":5020500,"dur":10000000,)" +
          std::string(args) + ",",
      R"({"ph":"X","name":"x","cat":"cpu_op","pid":1,"tid":1,"ts":5020000,"dur":1e18},)",
      R"({"ph":"X","name":"x","cat":"cpu_op","pid":1,"tid":1,"ts":5e12,"dur":1},)"};
  for (const std::string& event : damaged) {
    Trace trace;
    ASSERT_TRUE(import(stream_of_operations(event), trace).has_value());
    EXPECT_EQ(trace.slices.size(), 40U) << event;
    EXPECT_EQ(loss(trace, import_bad_events), 1U) << event;
    EXPECT_LT(trace.end_ns - trace.begin_ns, 1'000'000'000) << event;
  }
  const std::array<std::string, 5> sound{
      // A straggler, and others behind it.
      R"({"ph":"X","name":"x","cat":"kernel","pid":0,"tid":7,"ts":5039999,"dur":10000000,)" +
          std::string(args) +
          R"(,{"ph":"X","name":"y","cat":"kernel","pid":0,"tid":7,"ts":15040000,"dur":10,)" +
          std::string(args) + ",",
      // A start before the operations, a last kernel that takes long, calls around others.
      R"({"ph":"X","name":"x","cat":"cpu_op","pid":1,"tid":1,"ts":1000,"dur":4000000},)",
      R"({"ph":"X","name":"x","cat":"kernel","pid":0,"tid":9,"ts":5030000,"dur":10000000,)" +
          std::string(args) + ",",
      R"({"ph":"X","name":"x","cat":"cpu_op","pid":1,"tid":1,"ts":5000000,"dur":2000000},)",
      R"({"ph":"X","name":"x","cat":"kernel","pid":0,"tid":7,"ts":5020000,"dur":8000,)" +
          std::string(args) + ","};
  for (const std::string& event : sound) {
    Trace trace;
    ASSERT_TRUE(import(stream_of_operations(event), trace).has_value());
    EXPECT_GE(trace.slices.size(), 41U) << event;
    EXPECT_EQ(loss(trace, import_bad_events), 0U) << event;
  }
}

// A start of many short calls, then one call every 5 s for half an hour.
TEST(Chrome, PausesOfAProgramAreNoDamage) {
  std::string text = "[";
  for (int i = 0; i < 2000; ++i)
    text += fmt::format(R"({{"ph":"X","name":"a","pid":1,"tid":1,"ts":{},"dur":100}},)", i * 500);
  for (int i = 0; i < 390; ++i)
    text += fmt::format(R"({{"ph":"X","name":"b","pid":1,"tid":1,"ts":{},"dur":400000}},)",
                        (i + 1) * 5'000'000);
  text.back() = ']';
  Trace trace;
  ASSERT_TRUE(import(text, trace).has_value());
  EXPECT_EQ(trace.slices.size(), 2390U);
}

TEST(Chrome, TimesAtTheEndsOfTheirRangeAreSurvived) {
  std::string text = "[";
  for (int i = 0; i < 40; ++i)
    text += fmt::format(
        R"({{"ph":"X","name":"k","cat":"kernel","pid":0,"tid":7,"ts":{}2.3e15,"dur":2.3e15,"args":{{"device":0,"stream":7}}}},)",
        i % 2 == 0 ? "-" : "");
  text.back() = ']';
  Trace trace;
  EXPECT_TRUE(import(text, trace).has_value());
}

TEST(Chrome, WhatHasADeviceAndAStreamRunsOnADevice) {
  Trace trace;
  ASSERT_TRUE(import(stream_of_operations("", "npu_task"), trace).has_value());
  EXPECT_EQ(trace.str(trace.slices.category[0]), "kernel");
  EXPECT_EQ(loss(trace, import_device_operations), 40U);
  for (const char* category : {"gpu_memcpy", "cuda_sync", "xpu_runtime"}) {
    Trace known;
    ASSERT_TRUE(import(stream_of_operations("", category), known).has_value());
    EXPECT_EQ(known.str(known.slices.category[0]), category);
    EXPECT_EQ(loss(known, import_device_operations), 0U);
  }
}

TEST(Chrome, AByteOrderMarkSaysNothing) {
  const std::string text = R"([{"ph":"X","name":"a","pid":1,"tid":1,"ts":1,"dur":1}])";
  EXPECT_EQ(imported("\xef\xbb\xbf" + text), imported(text));
}

}  // namespace
}  // namespace kansoku::trace::import
