// SPDX-License-Identifier: Apache-2.0
#include "capture/llm/decoder.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>

#include "capture/llm/graph_for_test.h"
#include "trace/reader.h"

namespace kansoku::capture::llm {
namespace {

using ::testing::AllOf;
using ::testing::Contains;
using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::StartsWith;
using ::testing::UnorderedElementsAre;

constexpr std::uint32_t kPid = 100, kCaller = 101;
constexpr std::uint64_t kGraph = 0x9000;

/// Times are a few nanoseconds; nothing else has any.
class ModelDecoder : public testing::Test {
 protected:
  ModelDecoder() : writer_(trace::Writer::create(sink_, boot_time(0)).value()) {
    decoder_.begin_trace(boot_time(1));
    add_process(kPid);
  }
  void add_process(std::uint32_t pid, const Layout* layout = &layout_for_test()) {
    trace::ProcessInfo info;
    info.pid = static_cast<std::int32_t>(pid);
    info.name = "llama-server";
    const auto track = writer_->process_track(info);
    decoder_.add_process(static_cast<std::int32_t>(pid), track, layout, names_for_test(),
                         boot_time(1));
  }

  static wire_model_event head(int role, int kind, std::uint64_t time,
                               std::uint32_t tid = kCaller) {
    wire_model_event out{};
    out.t_boot_ns = time;
    out.tgid = kPid;
    out.tid = tid;
    out.role = static_cast<std::uint8_t>(role);
    out.kind = static_cast<std::uint8_t>(kind);
    return out;
  }
  template <class T>
  void feed(const T& record, std::size_t bytes = sizeof(T)) {
    decoder_.on_record(std::as_bytes(std::span(&record, 1)).first(bytes));
  }
  void decode(std::uint64_t time, std::int32_t tokens, std::uint64_t context = 0x10,
              std::uint32_t tid = kCaller) {
    wire_model_batch record{};
    record.head = head(WIRE_MODEL_DECODE, WIRE_MODEL_BEGIN, time, tid);
    record.head.a = context;
    record.token_count = tokens;
    feed(record);
  }
  void micro_batch(std::uint64_t time, const std::vector<std::pair<int, int>>& rows) {
    wire_model_micro_batch record{};
    record.head = head(WIRE_MODEL_MICRO_BATCH, WIRE_MODEL_BEGIN, time);
    record.token_count = static_cast<std::uint32_t>(rows.size());
    record.sequence_tokens = 1;
    record.sequence_count = record.token_count;
    record.unique_count = 1;
    record.has_outputs = 1;
    record.outputs = 1U << (std::min<std::size_t>(rows.size(), WIRE_MODEL_TOKENS) - 1);
    for (std::size_t i = 0; i < std::min<std::size_t>(rows.size(), WIRE_MODEL_TOKENS); ++i) {
      record.sequence[i] = rows[i].first;
      record.position[i] = rows[i].second;
    }
    feed(record);
  }
  void begin(int role, std::uint64_t time, std::uint32_t tid = kCaller) {
    feed(head(role, WIRE_MODEL_BEGIN, time, tid));
  }
  void end(int role, std::uint64_t time, std::uint64_t returned = 0, int flags = 0,
           std::uint32_t tid = kCaller) {
    wire_model_event record = head(role, WIRE_MODEL_END, time, tid);
    record.a = returned;
    record.flags = static_cast<std::uint16_t>(flags);
    feed(record);
  }

  void tensor(const TensorForTest& tensor, std::uint32_t node, bool is_leaf = false,
              std::uint64_t graph = kGraph) {
    wire_model_tensor record = record_for_test(tensor, layout_for_test(), graph, node, is_leaf);
    record.tgid = kPid;
    feed(record);
    ++told_;
  }
  void begin_graph(std::uint64_t time, std::uint64_t uid, std::int32_t nodes,
                   std::uint32_t pictured, std::uint64_t graph = kGraph,
                   std::uint32_t tid = kCaller, int role = WIRE_MODEL_GRAPH) {
    wire_model_graph record{};
    record.head = head(role, WIRE_MODEL_BEGIN, time, tid);
    record.head.a = graph;
    record.head.flags = pictured != 0 ? WIRE_MODEL_PICTURED : 0;
    record.uid = uid;
    record.node_count = nodes;
    record.pictured = pictured;
    feed(record);
  }
  // norm, a product and a sum, at base + 0 to 2.
  void tell_small(std::uint64_t base = 0x1000, std::uint64_t graph = kGraph,
                  std::int64_t tokens = 1) {
    tensor({base, "norm-0", kNorm, {4, tokens, 1, 1}, {base + 8}}, 0, false, graph);
    tensor({base + 8, "inp", kNone, {4, tokens, 1, 1}}, 0, true, graph);
    tensor({base + 1, "out-0", kMulMat, {6, tokens, 1, 1}, {base + 9, base}}, 1, false, graph);
    tensor({base + 9, "blk.0.w", kNone, {4, 6, 1, 1}}, 1, true, graph);
    tensor({base + 2, "sum-0", kAdd, {6, tokens, 1, 1}, {base + 1}}, 2, false, graph);
  }
  void op(std::uint64_t time, std::uint64_t address, int ith = 0, std::uint32_t tid = kCaller,
          int role = WIRE_MODEL_OPERATOR, std::uint64_t let_go = 0) {
    wire_model_event record = head(role, WIRE_MODEL_BEGIN, time, tid);
    record.a = address;
    record.b = let_go;
    record.ith = static_cast<std::uint16_t>(ith);
    record.nth = 2;
    feed(record);
  }
  void barrier(std::uint64_t time, std::uint32_t tid = kCaller, std::uint64_t let_go = 0) {
    wire_model_event record = head(WIRE_MODEL_BARRIER, WIRE_MODEL_BEGIN, time, tid);
    record.b = let_go;
    feed(record);
  }
  void experts(std::uint64_t time, std::uint32_t used, std::uint32_t tokens,
               const std::vector<std::int32_t>& ids, int flags = 0) {
    wire_model_experts record{};
    record.head = head(WIRE_MODEL_OPERATOR, WIRE_MODEL_EXPERTS, time);
    record.head.flags = static_cast<std::uint16_t>(flags);
    record.used = used;
    record.tokens = tokens;
    std::fill(std::begin(record.id), std::end(record.id), -1);
    std::copy(ids.begin(), ids.end(), record.id);
    feed(record);
  }

  const trace::Trace& trace() {
    EXPECT_TRUE(writer_->flush());
    auto read = trace::read_trace(as_bytes(sink_.data()));
    EXPECT_TRUE(read) << read.error().what;
    trace_ = std::move(read).value();
    return trace_;
  }
  [[nodiscard]] std::string args(std::uint32_t first, std::uint32_t count) const {
    std::string out;
    for (std::uint32_t i = first; i < first + count; ++i) {
      const trace::ArgValue& arg = trace_.args[i];
      out += fmt::format(" {}=", trace_.str(arg.key));
      if (arg.kind == trace::ArgValue::Kind::kString)
        out += fmt::format("\"{}\"", trace_.str(arg.text));
      if (arg.kind == trace::ArgValue::Kind::kInt) out += fmt::format("{}", arg.i64);
      if (arg.kind == trace::ArgValue::Kind::kUint) out += fmt::format("{}", arg.u64);
    }
    return out;
  }
  // "category name begin+duration arguments" of the slices whose track's name begins so; "+?" if
  // one has no end.
  std::vector<std::string> slices(std::string_view track = "model calls") {
    const trace::Trace& t = trace();
    std::vector<std::string> out;
    for (std::size_t i = 0; i < t.slices.size(); ++i) {
      if (!t.str(t.tracks[t.slices.track[i].raw].name).starts_with(track)) continue;
      const std::int64_t duration = t.slices.duration_ns[i];
      out.push_back(fmt::format("{} {} {}+{}{}", t.str(t.slices.category[i]),
                                t.str(t.slices.name[i]), t.slices.start_ns[i],
                                duration == trace::kOpenDuration ? "?" : std::to_string(duration),
                                args(t.slices.arg_begin[i], t.slices.arg_count[i])));
    }
    return out;
  }
  std::vector<std::string> instants(std::string_view category) {
    const trace::Trace& t = trace();
    std::vector<std::string> out;
    for (std::size_t i = 0; i < t.instants.size(); ++i) {
      if (t.str(t.instants.category[i]) == category)
        out.push_back(fmt::format("{}{}", t.str(t.instants.name[i]),
                                  args(t.instants.arg_begin[i], t.instants.arg_count[i])));
    }
    return out;
  }
  [[nodiscard]] const Decoder::Counters& counters() const { return decoder_.counters(); }

  MemorySink sink_;
  std::unique_ptr<trace::Writer> writer_;
  Decoder decoder_{*writer_};
  trace::Trace trace_;
  std::uint32_t told_{0};  // tensors
};

TEST_F(ModelDecoder, DeclaresTheProgram) {
  EXPECT_THAT(instants("llm.engine"), ElementsAre("engine ggml=\"0.25.1\" pid=100"));
  EXPECT_TRUE(decoder_.knows(100));
  EXPECT_FALSE(decoder_.knows(101));
  EXPECT_EQ(trace_.tracks[trace_.instants.track[0].raw].kind, trace::TrackKind::kCustom);
}

TEST_F(ModelDecoder, NestsCalls) {
  decode(10, 3);
  micro_batch(11, {{0, 5}, {0, 6}, {2, 1}});
  begin(WIRE_MODEL_SCHEDULE, 12);
  begin_graph(13, 0, 2, 0, kGraph, kCaller, WIRE_MODEL_SPLIT);
  begin_graph(14, 0, 2, 0);
  end(WIRE_MODEL_GRAPH, 20);
  end(WIRE_MODEL_SCHEDULE, 21);
  end(WIRE_MODEL_MICRO_BATCH, 22);
  end(WIRE_MODEL_DECODE, 23, 0xffffffff);
  EXPECT_THAT(slices(), UnorderedElementsAre(
                            "llm.decode decode 10+13 tokens=3 context=0 result=-1",
                            "llm.micro_batch micro-batch 11+11 tokens=3 seq_tokens=1 "
                            "sequences=3 unique=1 outputs=4 rows=\"0:5 0:6 2:1\"",
                            "llm.schedule schedule 12+9", "llm.split split 13+8 uid=0 nodes=2",
                            "llm.graph graph 14+6 uid=0 nodes=2"));
  EXPECT_EQ(trace_.str(trace_.tracks[trace_.slices.track[0].raw].name),
            "model calls of thread 101");
  EXPECT_EQ(counters().unended, 0U) << "splits have no end of their own";
  EXPECT_EQ(counters().decodes, 1U);
  EXPECT_EQ(counters().micro_batches, 1U);
  EXPECT_EQ(counters().graphs, 1U);
  EXPECT_TRUE(trace_.losses.empty());
}

TEST_F(ModelDecoder, KeepsCallsOfThreadsApart) {
  decode(10, 1, 0x10, 1);
  decode(11, 2, 0x20, 2);
  end(WIRE_MODEL_DECODE, 12, 0, 0, 1);
  end(WIRE_MODEL_DECODE, 13, 0, 0, 2);
  decode(14, 1, 0x10, 2);
  end(WIRE_MODEL_DECODE, 15, 0, 0, 2);
  EXPECT_THAT(slices("model calls of thread 1"),
              ElementsAre("llm.decode decode 10+2 tokens=1 context=0 result=0"));
  EXPECT_THAT(slices("model calls of thread 2"),
              ElementsAre("llm.decode decode 11+2 tokens=2 context=1 result=0",
                          "llm.decode decode 14+1 tokens=1 context=0 result=0"));
}

TEST_F(ModelDecoder, ACallWhoseEndWasLostEndsWithTheNext) {
  decode(10, 1);
  micro_batch(11, {{0, 0}});
  begin(WIRE_MODEL_SCHEDULE, 12);
  micro_batch(20, {{0, 1}});  // an exception ended the one before
  end(WIRE_MODEL_DECODE, 30);
  decode(40, 1);
  decode(50, 1);
  end(WIRE_MODEL_DECODE, 60);
  EXPECT_EQ(counters().unended, 4U) << "schedule, two micro-batches and a decode";
  EXPECT_THAT(slices(),
              UnorderedElementsAre("llm.decode decode 10+20 tokens=1 context=0 result=0",
                                   StartsWith("llm.micro_batch micro-batch 11+9 "),
                                   "llm.schedule schedule 12+8",
                                   StartsWith("llm.micro_batch micro-batch 20+10 "),
                                   "llm.decode decode 40+10 tokens=1 context=0",
                                   "llm.decode decode 50+10 tokens=1 context=0 result=0"));
}

TEST_F(ModelDecoder, EndsWithoutABeginAreNone) {
  end(WIRE_MODEL_DECODE, 5);
  decode(10, 1);
  end(WIRE_MODEL_GRAPH, 11);
  end(WIRE_MODEL_DECODE, 12);
  end(WIRE_MODEL_DECODE, 13);
  EXPECT_THAT(slices(), ElementsAre("llm.decode decode 10+2 tokens=1 context=0 result=0"));
  EXPECT_EQ(counters().unended, 0U);
}

TEST_F(ModelDecoder, AJumpReturnsNothing) {
  decode(10, 1);
  end(WIRE_MODEL_DECODE, 12, 77, WIRE_MODEL_JUMP);
  EXPECT_THAT(slices(), ElementsAre("llm.decode decode 10+2 tokens=1 context=0"));
}

TEST_F(ModelDecoder, KeepsWhatIsOpenAtTheEndWithoutAnEnd) {
  decode(10, 1);
  tell_small();
  begin_graph(11, 5, 3, told_);
  op(12, 0x1000);
  decoder_.end_trace();
  EXPECT_THAT(slices(), UnorderedElementsAre(StartsWith("llm.decode decode 10+?"),
                                             StartsWith("llm.graph graph 11+?")));
  EXPECT_THAT(slices("graph thread"), IsEmpty()) << "nobody knows how long it took";
  decode(20, 1);  // nobody writes it
  EXPECT_EQ(slices().size(), 2U);
}

TEST_F(ModelDecoder, LeavesWhatAProcessWasAtWhenItDied) {
  decode(10, 1);
  micro_batch(11, {{0, 0}});
  decoder_.remove_process(100);
  EXPECT_FALSE(decoder_.knows(100));
  decoder_.remove_process(100);
  end(WIRE_MODEL_DECODE, 20);
  EXPECT_THAT(slices(), UnorderedElementsAre(StartsWith("llm.decode decode 10+?"),
                                             StartsWith("llm.micro_batch micro-batch 11+?")));
}

TEST_F(ModelDecoder, DefinesAGraphByItsNodes) {
  tell_small();
  begin_graph(10, 5, 3, told_);
  end(WIRE_MODEL_GRAPH, 20);
  EXPECT_THAT(
      instants("llm.node"),
      ElementsAre("norm-0 graph=1 node=0 op=\"RMS_NORM\" shape=\"F32 4x1x1x1 16\" variant=0 "
                  "source0=\"F32 4x1x1x1 16 =inp\"",
                  "out-0 graph=1 node=1 op=\"MUL_MAT\" shape=\"F32 6x1x1x1 24\" variant=0 "
                  "source0=\"F32 4x6x1x1 96 =blk.0.w\" source1=\"F32 4x1x1x1 16 #0\"",
                  "sum-0 graph=1 node=2 op=\"ADD\" shape=\"F32 6x1x1x1 24\" variant=0 "
                  "source0=\"F32 6x1x1x1 24 #1\""));
  EXPECT_THAT(slices(), ElementsAre("llm.graph graph 10+10 uid=5 nodes=3 graph=1"));
  EXPECT_EQ(counters().pictures, 1U);
  EXPECT_EQ(counters().graphs_unread, 0U);
}

TEST_F(ModelDecoder, KnowsAGraphAgainByItsUid) {
  tell_small();
  begin_graph(10, 5, 3, told_);
  end(WIRE_MODEL_GRAPH, 20);
  begin_graph(30, 5, 3, 0);
  op(31, 0x1001);
  end(WIRE_MODEL_GRAPH, 40);
  EXPECT_THAT(slices(), ElementsAre("llm.graph graph 10+10 uid=5 nodes=3 graph=1",
                                    "llm.graph graph 30+10 uid=5 nodes=3 graph=1"));
  EXPECT_THAT(slices("graph thread"), ElementsAre("llm.operator MUL_MAT 31+9 graph=1 node=1"));
  EXPECT_EQ(instants("llm.node").size(), 3U);
  EXPECT_FALSE(decoder_.wants_pictures());
}

TEST_F(ModelDecoder, DefinesEqualGraphsOnce) {
  const auto run = [&](std::uint64_t time, std::uint64_t uid, std::uint64_t base,
                       std::int64_t tokens) {
    const std::uint32_t before = told_;
    tell_small(base, kGraph + base, tokens);
    begin_graph(time, uid, 3, told_ - before, kGraph + base);
    op(time + 1, base + 2);
    end(WIRE_MODEL_GRAPH, time + 2);
  };
  run(10, 5, 0x1000, 1);
  run(20, 6, 0x2000, 1);  // built again elsewhere
  run(30, 7, 0x3000, 2);  // of two tokens
  run(40, 0, 0x1000, 1);  // without a uid it is told each time
  EXPECT_THAT(slices(), ElementsAre("llm.graph graph 10+2 uid=5 nodes=3 graph=1",
                                    "llm.graph graph 20+2 uid=6 nodes=3 graph=1",
                                    "llm.graph graph 30+2 uid=7 nodes=3 graph=3",
                                    "llm.graph graph 40+2 uid=0 nodes=3 graph=1"));
  EXPECT_EQ(instants("llm.node").size(), 6U);
  EXPECT_EQ(counters().pictures, 4U);
  EXPECT_EQ(counters().unplaced, 0U);
}

TEST_F(ModelDecoder, TellsTwoGraphsApartThatAreToldAtOnce) {
  // Two threads compute their own graphs, and their tensors come in between each other.
  tensor({0x10, "a-0", kNorm}, 0, false, 0x9000);
  tensor({0x20, "b-0", kAdd}, 0, false, 0xa000);
  tensor({0x11, "a-1", kMul}, 1, false, 0x9000);
  tensor({0x21, "b-1", kNorm}, 1, false, 0xa000);
  begin_graph(10, 5, 2, 2, 0x9000, 1);
  tensor({0x22, "b-2", kMul}, 2, false, 0xa000);
  op(11, 0x10, 0, 1);
  begin_graph(12, 6, 3, 3, 0xa000, 2);
  op(13, 0x22, 0, 2);
  op(14, 0x11, 0, 1);
  op(15, 0x20, 1, 7);  // a thread of the second one
  end(WIRE_MODEL_GRAPH, 20, 0, 0, 1);
  end(WIRE_MODEL_GRAPH, 21, 0, 0, 2);
  EXPECT_THAT(slices("graph thread 0 of 1"),
              ElementsAre("llm.operator RMS_NORM 11+3 graph=1 node=0",
                          "llm.operator MUL 14+6 graph=1 node=1"));
  EXPECT_THAT(slices("graph thread 0 of 2"), ElementsAre("llm.operator MUL 13+8 graph=2 node=2"));
  EXPECT_THAT(slices("graph thread 1 of 2"),
              ElementsAre("llm.operator ADD 15+6 graph=2 node=0 tid=7"));
  EXPECT_EQ(counters().operators, 4U);
  EXPECT_EQ(counters().graphs_unread, 0U);
}

TEST_F(ModelDecoder, NamesFusedOperators) {
  tell_small();
  begin_graph(10, 5, 3, told_);
  op(11, 0x1000, 0, kCaller, WIRE_MODEL_FUSED_OPERATOR);
  op(12, 0x1002, 0, kCaller, WIRE_MODEL_FUSED_OPERATOR);  // there is none behind it
  end(WIRE_MODEL_GRAPH, 20);
  EXPECT_THAT(slices("graph thread"),
              ElementsAre("llm.operator RMS_NORM+MUL_MAT 11+1 graph=1 node=0",
                          "llm.operator ADD 12+8 graph=1 node=2"));
}

TEST_F(ModelDecoder, KnowsThreadsByTheirNumber) {
  tell_small();
  for (std::uint32_t round = 0; round < 3; ++round) {  // each graph starts its own threads
    const std::uint64_t time = 10 + 10 * round;
    begin_graph(time, 5, 3, round == 0 ? told_ : 0);
    op(time + 1, 0x1000, 1, 200 + round);
    op(time + 2, 0x1000, 0);
    end(WIRE_MODEL_GRAPH, time + 5);
  }
  EXPECT_THAT(slices("graph thread 1 of 101"),
              ElementsAre("llm.operator RMS_NORM 11+4 graph=1 node=0 tid=200",
                          "llm.operator RMS_NORM 21+4 graph=1 node=0 tid=201",
                          "llm.operator RMS_NORM 31+4 graph=1 node=0 tid=202"));
  EXPECT_EQ(slices("graph thread 0 of 101").size(), 3U);
  EXPECT_EQ(counters().threads, 2U);
}

TEST_F(ModelDecoder, BarriersEndOperatorsAndAreWaitedAt) {
  tell_small();
  begin_graph(10, 5, 3, told_);
  barrier(10);  // before any operator
  op(11, 0x1000);
  op(11, 0x1000, 1, 200);
  barrier(13, 200);
  barrier(15);
  op(16, 0x1001, 1, 200);
  op(16, 0x1001);
  barrier(18);
  barrier(19);  // of two in a row the last one
  end(WIRE_MODEL_GRAPH, 20);
  EXPECT_THAT(slices("graph thread 0"),
              ElementsAre("llm.operator RMS_NORM 11+4 graph=1 node=0", "llm.wait wait 15+1",
                          "llm.operator MUL_MAT 16+3 graph=1 node=1", "llm.wait wait 19+1"));
  EXPECT_THAT(slices("graph thread 1"),
              ElementsAre("llm.operator RMS_NORM 11+2 graph=1 node=0 tid=200", "llm.wait wait 13+3",
                          "llm.operator MUL_MAT 16+4 graph=1 node=1 tid=200"));
}

TEST_F(ModelDecoder, WhatTheProbesTookBelongsToNobody) {
  tell_small();
  begin_graph(10, 5, 3, told_);
  op(20, 0x1000, 0, kCaller, WIRE_MODEL_OPERATOR, 22);
  barrier(30, kCaller, 31);
  op(40, 0x1001, 0, kCaller, WIRE_MODEL_OPERATOR, 43);
  barrier(42, kCaller, 60);  // time runs backwards, and beyond the next one
  op(50, 0x1002);
  end(WIRE_MODEL_GRAPH, 70);
  EXPECT_THAT(slices("graph thread 0"),
              ElementsAre("llm.operator RMS_NORM 22+8 graph=1 node=0", "llm.wait wait 31+9",
                          "llm.operator MUL_MAT 43+0 graph=1 node=1",
                          "llm.operator ADD 50+20 graph=1 node=2"));
}

TEST_F(ModelDecoder, KeepsTheExpertsOfAnOperator) {
  tell_small();
  begin_graph(10, 5, 3, told_);
  experts(10, 1, 1, {9});  // before any operator
  op(11, 0x1001);
  experts(11, 2, 2, {3, 7, 0, 1});
  op(15, 0x1001);
  experts(15, 1, 100, {4}, WIRE_MODEL_CUT);
  end(WIRE_MODEL_GRAPH, 20);
  EXPECT_THAT(slices("graph thread"),
              ElementsAre("llm.operator MUL_MAT 11+4 graph=1 node=1 experts=\"2x2 3 7 0 1\"",
                          "llm.operator MUL_MAT 15+5 graph=1 node=1 experts=\"1x100 4\""));
  EXPECT_EQ(counters().experts_cut, 1U);
}

TEST_F(ModelDecoder, CountsOperatorsThatBelongToNoGraph) {
  op(5, 0x1000);
  EXPECT_EQ(counters().before, 1U) << "its graph began before the probes were attached";
  tell_small();
  begin_graph(10, 5, 3, told_);
  op(11, 0x7777);
  op(12, 0x1000, 0, 300);  // a first thread is the one that called
  EXPECT_EQ(counters().unplaced, 2U);
  end(WIRE_MODEL_GRAPH, 20);
  op(25, 0x1000);
  EXPECT_EQ(counters().before, 2U);
  begin_graph(30, 6, 3, 0);  // its nodes are not known
  op(31, 0x1000);
  end(WIRE_MODEL_GRAPH, 40);
  EXPECT_EQ(counters().unplaced, 3U);
  EXPECT_EQ(counters().graphs_unread, 1U);
  EXPECT_EQ(counters().operators, 0U);
  EXPECT_THAT(slices("graph thread"), IsEmpty());
  EXPECT_TRUE(decoder_.wants_pictures());
  EXPECT_FALSE(decoder_.wants_pictures()) << "it was told";
}

TEST_F(ModelDecoder, WantsAPictureAgainOfWhichPartWasLost) {
  tell_small();
  begin_graph(10, 5, 3, told_ + 1);
  end(WIRE_MODEL_GRAPH, 20);
  EXPECT_EQ(counters().graphs_unread, 1U);
  EXPECT_TRUE(decoder_.wants_pictures());
  EXPECT_EQ(decoder_.misfit(100), std::nullopt);
  const std::uint32_t before = told_;
  tell_small();
  begin_graph(30, 5, 3, told_ - before);
  end(WIRE_MODEL_GRAPH, 40);
  EXPECT_THAT(slices(), ElementsAre("llm.graph graph 10+10 uid=5 nodes=3",
                                    "llm.graph graph 30+10 uid=5 nodes=3 graph=1"));
}

TEST_F(ModelDecoder, RefusesALibraryOfAnotherLayoutAndSaysWhy) {
  Layout shifted = layout_for_test();
  shifted.tensor.ne += 8, shifted.tensor.nb += 8, shifted.tensor.op += 8, shifted.tensor.src += 8;
  for (std::uint32_t node = 0; node < 2; ++node) {
    wire_model_tensor record =
        record_for_test({0x1000 + node, "n", kAdd, {8, 2, 1, 1}}, shifted, kGraph, node);
    record.tgid = kPid;
    feed(record);
  }
  begin_graph(10, 5, 2, 2);
  op(11, 0x1000);
  end(WIRE_MODEL_GRAPH, 20);
  ASSERT_TRUE(decoder_.misfit(100).has_value());
  EXPECT_THAT(*decoder_.misfit(100), StartsWith("ggml since 0.17: read a tensor: "));
  EXPECT_EQ(decoder_.misfit(7), std::nullopt);
  EXPECT_EQ(counters().graphs_unread, 1U);
  tell_small();  // nothing of it is believed any more
  begin_graph(30, 6, 3, told_);
  end(WIRE_MODEL_GRAPH, 40);
  EXPECT_EQ(counters().graphs_unread, 2U);
  EXPECT_THAT(slices(), ElementsAre("llm.graph graph 10+10 uid=5 nodes=2",
                                    "llm.graph graph 30+10 uid=6 nodes=3"));
  EXPECT_THAT(instants("llm.node"), IsEmpty());
}

TEST_F(ModelDecoder, AGraphThatChangedLaterIsNoMisfit) {
  tell_small();
  begin_graph(10, 5, 3, told_);
  end(WIRE_MODEL_GRAPH, 20);
  tensor({0x1000, "n", 99}, 0);
  begin_graph(30, 6, 1, 1);
  end(WIRE_MODEL_GRAPH, 40);
  EXPECT_EQ(decoder_.misfit(100), std::nullopt);
  EXPECT_EQ(counters().graphs_unread, 1U);
}

TEST_F(ModelDecoder, WithoutALayoutThereAreCallsAlone) {
  add_process(kPid, nullptr);
  tell_small();
  decode(5, 1);
  begin_graph(10, 5, 3, told_);
  op(11, 0x1000);
  end(WIRE_MODEL_GRAPH, 20);
  end(WIRE_MODEL_DECODE, 30);
  EXPECT_THAT(slices(), UnorderedElementsAre("llm.decode decode 5+25 tokens=1 context=0 result=0",
                                             "llm.graph graph 10+10 uid=5 nodes=3"));
  EXPECT_EQ(counters().operators, 0U);
}

TEST_F(ModelDecoder, BeginsEachTraceAnew) {
  tell_small();
  begin_graph(10, 5, 3, told_);
  end(WIRE_MODEL_GRAPH, 20);
  decoder_.end_trace();
  decoder_.begin_trace(boot_time(25));
  begin_graph(30, 5, 3, 0);
  end(WIRE_MODEL_GRAPH, 40);
  EXPECT_TRUE(decoder_.wants_pictures()) << "the definitions are those of the trace before";
  EXPECT_EQ(instants("llm.engine").size(), 2U);
  const std::uint32_t before = told_;
  tell_small();
  begin_graph(50, 5, 3, told_ - before);
  end(WIRE_MODEL_GRAPH, 60);
  EXPECT_EQ(instants("llm.node").size(), 6U);
}

TEST_F(ModelDecoder, DropsOperatorsWhenTheirProbesComeOrGo) {
  tell_small();
  begin_graph(10, 5, 3, told_);
  op(11, 0x1000);
  decoder_.drop_operators();
  end(WIRE_MODEL_GRAPH, 20);
  EXPECT_THAT(slices("graph thread"), IsEmpty());
  EXPECT_EQ(slices().size(), 1U);
}

TEST_F(ModelDecoder, ADecodeHasOneSlice) {
  wire_model_batch inner{};
  inner.head = head(WIRE_MODEL_CONTEXT_DECODE, WIRE_MODEL_BEGIN, 12);
  inner.token_count = 3;
  decode(10, 3);
  feed(inner);
  end(WIRE_MODEL_CONTEXT_DECODE, 18);
  end(WIRE_MODEL_DECODE, 20);
  EXPECT_THAT(slices(), ElementsAre("llm.decode decode 10+10 tokens=3 context=0 result=0"));
  EXPECT_EQ(counters().decodes, 1U);
}

TEST_F(ModelDecoder, AnInlinedDecodeIsSeenByTheOneWithinIt) {
  wire_model_batch inner{};
  for (const int role : {WIRE_MODEL_CONTEXT_DECODE, WIRE_MODEL_EVAL}) {
    inner.head = head(role, WIRE_MODEL_BEGIN, 12);
    inner.head.a = 0x10;
    inner.token_count = 3;
    feed(inner);
    micro_batch(13, {{0, 1}});
    end(WIRE_MODEL_MICRO_BATCH, 14);
    end(role, 18, 1);
  }
  EXPECT_THAT(slices(), Contains("llm.decode decode 12+6 tokens=3 context=0 result=1").Times(2));
  EXPECT_EQ(counters().unended, 0U);
}

TEST_F(ModelDecoder, CountsDifferentSequencesWhereTheBuildDoesNotTell) {
  wire_model_micro_batch record{};
  record.head = head(WIRE_MODEL_MICRO_BATCH, WIRE_MODEL_BEGIN, 10);
  record.token_count = 4;
  record.sequence_tokens = record.sequence_count = 2;
  record.sequence[0] = record.sequence[1] = 3;
  record.sequence[2] = record.sequence[3] = 1;
  feed(record);
  end(WIRE_MODEL_MICRO_BATCH, 20);
  EXPECT_THAT(slices(), ElementsAre(HasSubstr("unique=2")));
}

TEST_F(ModelDecoder, SaysNothingOfAMicroBatchThatWasNotUnderstood) {
  wire_model_micro_batch record{};
  record.head = head(WIRE_MODEL_MICRO_BATCH, WIRE_MODEL_BEGIN, 10);
  record.head.flags = WIRE_MODEL_NO_FORM;
  feed(record);
  end(WIRE_MODEL_MICRO_BATCH, 20);
  EXPECT_THAT(slices(), ElementsAre("llm.micro_batch micro-batch 10+10"));
  EXPECT_EQ(counters().unreadable, 1U);
}

TEST_F(ModelDecoder, AGraphsNumberThatIsAnAddressIsAMisfit) {
  tell_small();
  begin_graph(10, kGraphUidMax + 1, 3, told_);
  end(WIRE_MODEL_GRAPH, 20);
  ASSERT_TRUE(decoder_.misfit(100).has_value());
  EXPECT_THAT(*decoder_.misfit(100), HasSubstr("is an address"));
}

TEST_F(ModelDecoder, TellsHowFarAProcessIsSeenOnceAChange) {
  const trace::ModelReach reach{"decode graph", trace::ModelLevel::kGraph, "no symbols"};
  decoder_.set_reach(100, reach, boot_time(5));
  decoder_.set_reach(100, reach, boot_time(6));
  decoder_.set_reach(7, reach, boot_time(6));
  EXPECT_THAT(instants("llm.engine"),
              ElementsAre(Not(HasSubstr("level=")),
                          AllOf(HasSubstr("functions=\"decode graph\""),
                                HasSubstr("level=\"graph\""), HasSubstr("why=\"no symbols\""))));
}

TEST_F(ModelDecoder, CutsLongMicroBatches) {
  micro_batch(10, std::vector<std::pair<int, int>>(WIRE_MODEL_TOKENS + 5, {3, 4}));
  end(WIRE_MODEL_MICRO_BATCH, 20);
  const auto all = slices();
  ASSERT_EQ(all.size(), 1U);
  EXPECT_THAT(all[0], HasSubstr("tokens=37 "));
  EXPECT_EQ(std::count(all[0].begin(), all[0].end(), ':'), WIRE_MODEL_TOKENS);
}

TEST_F(ModelDecoder, CountsRecordsThatAreNone) {
  wire_model_event record = head(WIRE_MODEL_DECODE, WIRE_MODEL_BEGIN, 10);
  feed(record, sizeof(record) - 1);
  record.role = 0;
  feed(record);
  record.role = WIRE_MODEL_ROLES;
  feed(record);
  EXPECT_EQ(counters().bad_records, 3U);
  wire_model_tensor tensor{};
  tensor.tgid = kPid;
  tensor.kind = WIRE_MODEL_TENSOR;
  feed(tensor, sizeof(tensor) - 1);
  EXPECT_EQ(counters().bad_records, 4U);
  record = head(WIRE_MODEL_DECODE, 9, 10);
  feed(record);
  EXPECT_EQ(counters().bad_records, 5U);
  record = head(WIRE_MODEL_DECODE, WIRE_MODEL_BEGIN, 10);
  record.tgid = 7;  // nobody asked for it
  feed(record);
  EXPECT_EQ(counters().bad_records, 5U);
  EXPECT_THAT(slices(), IsEmpty());
}

TEST_F(ModelDecoder, CountsWhatCouldNotBeRead) {
  wire_model_batch record{};
  record.head = head(WIRE_MODEL_DECODE, WIRE_MODEL_BEGIN, 10);
  record.head.flags = WIRE_MODEL_UNREADABLE;
  feed(record);
  EXPECT_EQ(counters().unreadable, 1U);
}

TEST_F(ModelDecoder, HoldsThreadsUpToALimit) {
  for (std::uint32_t tid = 1; tid <= 3000; ++tid) {
    decode(tid * 10, 1, 0x10, tid);
    end(WIRE_MODEL_DECODE, tid * 10 + 5, 0, 0, tid);
  }
  decode(50'000, 1, 0x10, 1);  // its place was given away meanwhile
  end(WIRE_MODEL_DECODE, 50'001, 0, 0, 1);
  EXPECT_EQ(slices().size(), 3001U);
}

}  // namespace
}  // namespace kansoku::capture::llm
