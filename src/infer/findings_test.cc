// SPDX-License-Identifier: Apache-2.0
#include "infer/findings.h"

#include <gtest/gtest.h>

#include "infer/run_for_test.h"

namespace kansoku::infer {
namespace {

constexpr std::int64_t kPeriod = 2'000'000, kProduct = 1'000'000, kSmall = 10'000;

/// A token of one product and one addition, every 2 ms; both as long as they are told.
class Tokens {
 public:
  Tokens() {
    recording.node(1, 0,
                   {"MUL_MAT",
                    "out",
                    "F32 512x1x1x1 2048",
                    {"F32 4096x512x1x1 8388608 =w.weight", "F32 4096x1x1x1 16384 =x"}});
    recording.node(
        1, 1,
        {"ADD", "sum", "F32 512x1x1x1 2048", {"F32 512x1x1x1 2048 #0", "F32 512x1x1x1 2048 =y"}});
  }
  void token(double product = 1, double small = 1) {
    const std::int64_t begin = (count_ + 1) * kPeriod;
    const auto middle = begin + static_cast<std::int64_t>(kProduct * product);
    const auto end = middle + static_cast<std::int64_t>(kSmall * small);
    recording.decode({begin - 3000, end + 3000}, 1);
    recording.micro_batch({begin - 2000, end + 2000}, 1, 1, "0:1");
    recording.graph({begin - 1000, end + 1000}, graph, graph);
    recording.op({begin, middle}, {graph, 0, "MUL_MAT"});
    recording.op({middle, end}, {graph, 1, "ADD"});
    ++count_;
  }
  void tokens(int count, double product = 1, double small = 1) {
    for (int i = 0; i < count; ++i)
      token(product, small);
  }
  std::vector<Finding> found() {
    recording.window({1, (count_ + 2) * kPeriod}, "operator");
    const Run run = recording.run();
    return find_causes(run, make_report(run), {});
  }
  std::int64_t begin() const { return (count_ + 1) * kPeriod; }  // of the next one
  RecordingForTest recording;
  std::uint32_t graph{1};

 private:
  std::int64_t count_{0};
};

TEST(Findings, OfSteadyTokensThereAreNone) {
  Tokens tokens;
  tokens.tokens(100);
  EXPECT_TRUE(tokens.found().empty());
}

TEST(Findings, ProductsAloneThatSlowDownWantMemory) {
  Tokens tokens;
  tokens.tokens(50);
  tokens.tokens(50, 1.3, 1.02);
  const auto found = tokens.found();
  ASSERT_EQ(found.size(), 1U);
  EXPECT_EQ(found[0].cause, Cause::kMemoryBusy);
  EXPECT_NEAR(found[0].share, 1 - 1 / 1.3, 0.01);
  EXPECT_EQ(found[0].since_ns, 51 * kPeriod - 1000);
}

TEST(Findings, AllOperatorsThatSlowDownWantAProcessor) {
  Tokens tokens;
  tokens.tokens(50);
  tokens.tokens(50, 1.3, 1.3);
  const auto found = tokens.found();
  ASSERT_EQ(found.size(), 1U);
  EXPECT_EQ(found[0].cause, Cause::kProcessorSlower);
}

// Four sequences in place of one, and a longer context: more work, and nothing is slower.
TEST(Findings, MoreWorkIsNoSlowerMemory) {
  Tokens tokens;
  tokens.recording.node(2, 0,
                        {"MUL_MAT",
                         "out",
                         "F32 512x4x1x1 8192",
                         {"F32 4096x512x1x1 8388608 =w.weight", "F32 4096x4x1x1 65536 =x"}});
  tokens.recording.node(
      2, 1,
      {"ADD", "sum", "F32 512x4x1x1 8192", {"F32 512x4x1x1 8192 #0", "F32 512x4x1x1 8192 =y"}});
  tokens.tokens(50);
  tokens.graph = 2;
  tokens.tokens(50, 1.6, 3);
  EXPECT_TRUE(tokens.found().empty());
}

TEST(Findings, SayWhoRanWhileThreadsHadNoProcessor) {
  for (const bool is_quota : {false, true}) {
    Tokens tokens;
    for (int i = 0; i < 60; ++i) {
      const std::int64_t begin = tokens.begin();
      tokens.token();
      tokens.recording.change(begin + 100'000, 101, 0, is_quota ? 0 : 999);  // ready, and put off
      tokens.recording.change(begin + 500'000, is_quota ? 0 : 999, 0, 101);
    }
    const auto found = tokens.found();
    ASSERT_FALSE(found.empty());
    EXPECT_EQ(found[0].cause, Cause::kNoProcessor);
    EXPECT_NE(found[0].text.find(is_quota ? "were idle meanwhile" : "others ran on"),
              std::string::npos)
        << found[0].text;
  }
}

TEST(Findings, ALittleAndAFewAreNone) {
  Tokens little;
  little.tokens(50);
  little.tokens(50, 1.05);
  EXPECT_TRUE(little.found().empty());
  Tokens few;
  few.tokens(90);
  few.tokens(10, 3);
  EXPECT_TRUE(few.found().empty());
}

TEST(Findings, AThreadThatIsBlockedReadsWeights) {
  Tokens tokens;
  for (int i = 0; i < 60; ++i) {
    const std::int64_t begin = tokens.begin();
    tokens.token();
    tokens.recording.change(begin + 100'000, 101, 2, 0);  // uninterruptible
    tokens.recording.wake(begin + 400'000, 101);
    tokens.recording.change(begin + 400'001, 0, 0, 101);
  }
  const auto found = tokens.found();
  ASSERT_FALSE(found.empty());
  EXPECT_EQ(found[0].cause, Cause::kWeightsRead);
  EXPECT_EQ(found[0].what, "out");
  EXPECT_NEAR(found[0].share, 0.3, 0.02);
}

Report report_of_operators(double add_ns, double mul_ns) {
  Report out;
  ProcessFigures process;
  OperatorRow mul{"MUL_MAT", Phase::kDecode, {}, 0.9, mul_ns};
  OperatorRow add{"ADD", Phase::kDecode, {}, 0.1, add_ns};
  OperatorRow rope{"ROPE", Phase::kDecode, {}, 0.05, 100};
  for (OperatorRow* row : {&mul, &add, &rope}) {
    row->work.count = 10;
    process.operators.push_back(*row);
  }
  out.processes.push_back(process);
  return out;
}

TEST(Comparison, NamesTheOperatorThatIsSlowItself) {
  const Comparison made = compare(report_of_operators(100, 1000), report_of_operators(200, 1050));
  ASSERT_EQ(made.findings.size(), 1U);
  EXPECT_EQ(made.findings[0].cause, Cause::kSlowOperator);
  EXPECT_EQ(made.findings[0].what, "ADD");
  EXPECT_EQ(made.operators.front().op, "ADD") << "by what the change costs: 5 % against 4.3 %";
  EXPECT_DOUBLE_EQ(made.operators.front().ratio, 2);
}

TEST(Comparison, AnOperatorWithMoreWorkIsNotSlowItself) {
  const Report before = report_of_operators(100, 1000);
  Report after = report_of_operators(200, 1050);
  EXPECT_EQ(compare(before, after).findings.size(), 1U);
  Report base = before;
  for (Report* report : {&base, &after})
    for (OperatorRow& row : report->processes[0].operators)
      row.work.bytes = row.op == "ADD" && report == &after ? 2e6 : 1e6;
  const Comparison made = compare(base, after);
  EXPECT_TRUE(made.findings.empty());
  for (const OperatorChange& one : made.operators)
    EXPECT_DOUBLE_EQ(one.work_ratio, one.op == "ADD" ? 2 : 1);
}

TEST(Comparison, OfEqualsNothing) {
  const Comparison made = compare(report_of_operators(100, 1000), report_of_operators(100, 1000));
  EXPECT_TRUE(made.findings.empty());
  EXPECT_TRUE(compare({}, report_of_operators(1, 1)).operators.empty());
}

TEST(DeviceFinding, KernelsThatTakeLongerSinceAMoment) {
  Tokens tokens;
  tokens.tokens(1);
  DeviceFigures device;
  for (int i = 0; i < 60; ++i)
    device.decoding.push_back({i * kPeriod, i < 30 ? 1e6 : 2e6});
  const auto run = tokens.recording.run();
  const auto found = find_causes(run, make_report(run), {device});
  ASSERT_EQ(found.size(), 1U);
  EXPECT_EQ(found[0].cause, Cause::kDeviceSlower);
  EXPECT_DOUBLE_EQ(found[0].share, 0.5);
  EXPECT_EQ(found[0].since_ns, 30 * kPeriod);
}

}  // namespace
}  // namespace kansoku::infer
