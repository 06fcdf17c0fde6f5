// SPDX-License-Identifier: Apache-2.0
#include "infer/unknown.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "infer/figures.h"
#include "infer/report.h"
#include "infer/run_for_test.h"

namespace kansoku::infer {
namespace {

using ::testing::AllOf;
using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Key;
using ::testing::Not;
using ::testing::Pair;

constexpr std::string_view kAll =
    "decode micro_batch schedule split graph operator fused_operator barrier";

std::map<std::string, std::string> unknown_of(RecordingForTest& recording) {
  const Run run = recording.run();
  EXPECT_EQ(run.processes.size(), 1U);
  return run.processes.empty() ? std::map<std::string, std::string>{}
                               : unknown_figures(run, run.processes[0]);
}

/// A call of one micro-batch, with a graph and an operator on two threads.
void generate(RecordingForTest& recording) {
  recording.decode({10, 90}, 1);
  recording.micro_batch({20, 80}, 1, 1, "0:4");
  recording.node(1, 0, {"ADD", "sum", "F32 4x1x1x1 16"});
  recording.graph({30, 70}, 1);
  recording.op({40, 50}, {1, 0, "ADD"});
  recording.op({40, 50}, {1, 0, "ADD", 1});
}

TEST(Unknown, IsNothingWhereAllWasSeen) {
  RecordingForTest recording;
  recording.window({0, 100}, "thread");
  recording.reach(kAll, "thread");
  generate(recording);
  recording.wait({50, 60});
  EXPECT_THAT(unknown_of(recording), IsEmpty());
}

TEST(Unknown, OldRecordingsDoNotSayWhatWasProbed) {
  RecordingForTest recording;
  recording.engine("0.25.1");
  generate(recording);
  recording.wait({50, 60});
  EXPECT_THAT(unknown_of(recording), IsEmpty());
}

TEST(Unknown, WhatWasNotProbedIsNoZero) {
  RecordingForTest recording;
  recording.window({0, 100}, "thread");
  recording.reach("schedule", "thread");
  generate(recording);
  const auto unknown = unknown_of(recording);
  EXPECT_THAT(unknown, AllOf(Contains(Pair("decode", HasSubstr("no function llama_decode"))),
                             Contains(Pair("micro_batches", HasSubstr("process_ubatch"))),
                             Contains(Pair("graphs", HasSubstr("ggml_graph_compute"))),
                             Contains(Pair("operators", HasSubstr("ggml_cpu_extra"))),
                             Contains(Pair("threads", HasSubstr("ggml_barrier")))));
  const Json json = to_json(make_report(recording.run()), {}, {}).at("processes").at(0);
  for (const char* figure : {"decode", "micro_batches", "graphs", "operators", "threads"})
    EXPECT_TRUE(json.at(figure).is_null()) << figure;
  EXPECT_TRUE(json.at("speed").at("tokens_per_second").is_null());
  EXPECT_EQ(json.at("unknown").size(), 5U);
}

TEST(Unknown, OneFunctionForAnotherWillDo) {
  for (const char* role : {"decode", "context_decode", "eval"}) {
    RecordingForTest recording;
    recording.reach(std::string(role) + " micro_batch", "token");
    generate(recording);
    EXPECT_THAT(unknown_of(recording), Not(Contains(Key("decode")))) << role;
  }
}

TEST(Unknown, AFunctionThatNeverFiredIsNoZero) {
  RecordingForTest inlined;
  inlined.window({0, 100}, "thread");
  inlined.reach(kAll, "thread");
  inlined.micro_batch({20, 80}, 1, 1, "0:4");
  EXPECT_THAT(unknown_of(inlined), Contains(Pair("decode", HasSubstr("1 micro-batches ran"))));

  RecordingForTest other;
  other.window({0, 100}, "thread");
  other.reach(kAll, "thread");
  other.decode({10, 90}, 1);
  EXPECT_THAT(unknown_of(other), AllOf(Contains(Pair("micro_batches", HasSubstr("never seen"))),
                                       Contains(Pair("graphs", HasSubstr("no graph was seen")))));

  RecordingForTest quiet;
  quiet.window({0, 100}, "thread");
  quiet.reach(kAll, "thread");
  quiet.decode({10, 90}, 1, 1);
  EXPECT_THAT(unknown_of(quiet), IsEmpty()) << "a call that failed runs nothing";

  RecordingForTest still;
  still.window({0, 100}, "thread");
  still.reach(kAll, "thread");
  generate(still);
  EXPECT_THAT(unknown_of(still), Contains(Pair("threads", HasSubstr("inlined"))));
}

TEST(Unknown, ABarrierThatIsInlinedInPlacesIsNoZero) {
  for (const int waits : {0, 1}) {  // behind each operator, or from the one function that calls it
    RecordingForTest recording;
    recording.window({0, 100'000}, "thread");
    recording.reach(kAll, "thread");
    recording.node(1, 0, {"ADD", "sum", "F32 4x1x1x1 16"});
    recording.decode({5, 90'000}, 1);
    recording.micro_batch({6, 80'000}, 1, 1, "0:4");
    recording.graph({10, 70'000}, 1);
    for (int i = 0; i < 100; ++i) {
      const std::int64_t at = 100 + 100 * i;
      for (const std::uint16_t ith : std::initializer_list<std::uint16_t>{0, 1}) {
        recording.op({at, at + 50}, {1, 0, "ADD", ith});
        if (waits == 1 || i % 20 == 0) recording.wait({at + 50, at + 60}, ith);
      }
    }
    const auto unknown = unknown_of(recording);
    if (waits == 1)
      EXPECT_THAT(unknown, Not(Contains(Key("threads"))));
    else
      EXPECT_THAT(unknown, Contains(Pair("threads", HasSubstr("seen 10 times for 200"))));
  }
}

TEST(Unknown, ALowerLevelSaysSo) {
  RecordingForTest recording;
  recording.window({0, 100}, "token");
  recording.reach(kAll, "thread");
  recording.decode({10, 90}, 1);
  recording.micro_batch({20, 80}, 1, 1, "0:4");
  const auto unknown = unknown_of(recording);
  EXPECT_THAT(unknown, Contains(Pair("graphs", "recorded at the token level")));
  EXPECT_THAT(unknown, Not(Contains(Key("micro_batches"))));
  RecordingForTest limited;
  limited.window({0, 100}, "operator");
  limited.reach("decode micro_batch", "token", "ggml 0.9.4 is older than those");
  limited.decode({10, 90}, 1);
  limited.micro_batch({20, 80}, 1, 1, "0:4");
  EXPECT_THAT(unknown_of(limited), AllOf(Contains(Pair("graphs", HasSubstr("0.9.4"))),
                                         Contains(Pair("operators", HasSubstr("0.9.4"))),
                                         Contains(Pair("threads", HasSubstr("0.9.4")))));
}

TEST(Unknown, LevelsThatContradictEachOtherAre) {
  RecordingForTest recording;
  recording.reach(kAll, "thread");
  recording.decode({10, 90}, 4);
  recording.micro_batch({20, 40}, 3, 1, "0:4");
  recording.micro_batch({50, 80}, 2, 1, "0:4");
  EXPECT_THAT(unknown_of(recording),
              Contains(Pair("micro_batches", HasSubstr("of 5 tokens lie in a call of 4"))));
  RecordingForTest unread;
  unread.reach(kAll, "thread");
  unread.decode({10, 90}, 4);
  unread.micro_batch({20, 40}, 0, 0, "");
  EXPECT_THAT(unknown_of(unread), Contains(Pair("micro_batches", HasSubstr("could not be read"))));
  RecordingForTest cut;
  cut.reach(kAll, "thread");
  cut.micro_batch({2, 4}, 0, 0, "");  // of a call that began before
  cut.decode({10, 90}, 4);
  cut.micro_batch({20, 40}, 4, 1, "0:4");
  const auto figures = make_report(cut.run()).processes.at(0);
  EXPECT_THAT(figures.unknown, Not(Contains(Key("micro_batches"))));
  EXPECT_EQ(figures.micro_batch_tokens, 4);
}

TEST(Unknown, IsSaidInWords) {
  RecordingForTest recording;
  recording.window({0, 100}, "token");
  recording.reach("decode", "token", "no symbols");
  recording.decode({10, 90}, 1);
  const std::string text = to_text(make_report(recording.run()), {}, {});
  EXPECT_THAT(text, HasSubstr("1 decode calls of 1 tokens\n"));
  EXPECT_THAT(text, HasSubstr("  micro-batches: unknown: its libraries have no function"));
  EXPECT_THAT(text, Not(HasSubstr("0 graphs")));
}

}  // namespace
}  // namespace kansoku::infer
