// SPDX-License-Identifier: Apache-2.0
#include "capture/bpf/model_engine.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstring>
#include <map>
#include <thread>
#include <vector>

#include "capture/bpf/calls_for_test.h"
#include "capture/bpf/model_targets_for_test.h"
#include "capture/bpf/sites.h"
#include "sys/elf.h"

namespace kansoku::capture::bpf {
namespace {

using ::testing::Each;
using ::testing::ElementsAre;

constexpr std::uint32_t kExpertsOp = 29, kSomeOp = 3;

wire_model_layout layout_for_test() {
  wire_model_layout out{};
  out.tensor_op = offsetof(FakeTensor, op);
  out.tensor_src = offsetof(FakeTensor, src);
  out.tensor_ne = offsetof(FakeTensor, ne);
  out.tensor_nb = offsetof(FakeTensor, nb);
  out.tensor_data = offsetof(FakeTensor, data);
  out.graph_node_count = offsetof(FakeGraph, node_count);
  out.graph_nodes = offsetof(FakeGraph, nodes);
  out.graph_uid = offsetof(FakeGraph, uid);
  out.backend_graph_compute = offsetof(FakeBackend, graph_compute);
  out.batch_token_count = 8;  // behind the return address
  out.micro_tokens = offsetof(FakeMicroBatch, tokens);
  out.micro_pos = offsetof(FakeMicroBatch, positions);
  out.micro_seq_id = offsetof(FakeMicroBatch, sequence_ids);
  out.micro_old_pos = offsetof(FakeOldMicroBatch, positions);
  out.micro_old_seq_id = offsetof(FakeOldMicroBatch, sequence_ids);
  out.op_mul_mat_id = kExpertsOp;
  return out;
}

std::uint64_t address_of(const void* at) {
  return reinterpret_cast<std::uint64_t>(at);
}

/// An address where nothing is: pages of the kernel's choice that are gone again would be used by
/// the next one.
template <class T>
const T* nowhere() {
  static void* const page = ::mmap(nullptr, 4096, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  return static_cast<const T*>(page);
}

/// Pointers that lead nowhere.
template <class T>
std::array<const T*, 2> astray() {
  return {nowhere<T>(), nullptr};
}

using Record = std::vector<std::byte>;

template <class T>
T as(const Record& record) {
  T out{};
  EXPECT_EQ(record.size(), sizeof(T));
  std::memcpy(&out, record.data(), std::min(record.size(), sizeof(T)));
  return out;
}
wire_model_event head_of(const Record& record) {
  wire_model_event out{};
  EXPECT_GE(record.size(), sizeof(out));
  std::memcpy(&out, record.data(), std::min(record.size(), sizeof(out)));
  return out;
}
std::vector<Record> drain_records(ModelEngine& engine) {
  std::vector<Record> out;
  const std::size_t count = engine.drain(
      [&](std::span<const std::byte> record) { out.emplace_back(record.begin(), record.end()); });
  EXPECT_EQ(count, out.size());
  return out;
}
/// "begin 1" of a decode, and so on.
std::vector<std::string> kinds_of(const std::vector<Record>& records) {
  std::vector<std::string> out;
  const std::array<std::string, 5> names{"?", "begin", "end", "tensor", "experts"};
  for (const Record& record : records) {
    const wire_model_event head = head_of(record);
    out.push_back(names.at(head.kind < names.size() ? head.kind : 0) + " " +
                  std::to_string(head.role));
  }
  return out;
}

using Bytes = std::array<unsigned char, 8>;
Bytes code_of(long (*function)(const void*)) {
  std::array<unsigned char, 8> out{};
  std::memcpy(out.data(), reinterpret_cast<const void*>(function), out.size());
  return out;
}

/// A graph of three nodes, two leaves and a source that cannot be read.
struct SmallGraph {
  SmallGraph() {
    weights.before = 1, input.before = 2;
    first.op = second.op = third.op = kSomeOp;
    first.src = {&weights, &input};
    second.src = {&first, &weights};
    third.src = {&second, &first};
    graph.nodes = nodes.data();
    graph.node_count = 3;
    graph.uid = 5;
  }
  SmallGraph(const SmallGraph&) = delete;
  SmallGraph& operator=(const SmallGraph&) = delete;
  FakeTensor weights, input, first, second, third;
  std::array<const FakeTensor*, 3> nodes{&first, &second, &third};
  FakeGraph graph;
};

/// The parameter: one perf event a place.
// Perf probes are in every process that maps the file: those of another run of this test are off
// after a moment, those of this run that were left would stay.
bool becomes(long (*function)(const void*), const Bytes& code) {
  constexpr int kTries = 60'000;
  for (int i = 0; i < kTries && code_of(function) != code; ++i)
    ::usleep(1000);  // allowed: the pause of a poll loop
  return code_of(function) == code;
}

class ModelEngineModes : public testing::TestWithParam<bool> {
 protected:
  void SetUp() override {
    auto engine = ModelEngine::create({.ring_bytes = 16U << 20, .is_perf = GetParam()});
    if (!engine) GTEST_SKIP() << "needs root and bpf: " << engine.error().what;
    engine_ = std::move(engine).value();
    ASSERT_TRUE(engine_->set_target(::getpid(), layout_for_test()).has_value());
    auto file = sys::ElfFile::open("/proc/self/exe");
    ASSERT_TRUE(file.has_value());
    file_ = std::move(file).value();
  }
  [[nodiscard]] Bytes code_in_file(const std::string& name) const {
    Bytes out{};
    const auto bytes = file_->bytes_at(file_->find_symbol(name)->address, out.size());
    EXPECT_EQ(bytes.size(), out.size());
    std::memcpy(out.data(), bytes.data(), std::min(bytes.size(), out.size()));
    return out;
  }
  [[nodiscard]] std::vector<UprobeSpec> begin_of(const std::string& name,
                                                 wire_model_role role) const {
    const sys::Symbol* const symbol = file_->find_symbol(name);
    EXPECT_NE(symbol, nullptr) << name;
    if (symbol == nullptr) return {};
    const Site site = pick_site(*file_, *symbol, {.arguments = true, .stack = true});
    EXPECT_EQ(site.site_class, SiteClass::kPush);
    return {{*file_->file_offset(site.address), 0, static_cast<std::uint64_t>(role)}};
  }
  ModelEngine::Handle attach(const std::vector<UprobeSpec>& specs) {
    const auto handle = engine_->attach("/proc/self/exe", ::getpid(), specs);
    EXPECT_TRUE(handle.has_value()) << handle.error().what;
    return handle.value_or(0);
  }
  ModelEngine::Handle attach_begin(const std::string& name, wire_model_role role) {
    return attach(begin_of(name, role));
  }
  ModelEngine::Handle attach_call(const std::string& name, wire_model_role role) {
    return attach(call_specs_for_test(*file_, name, static_cast<std::uint64_t>(role), true));
  }
  /// This thread is in a decode of that context from here on.
  void enter_decode(const void* context) {
    const auto handle = attach_begin("model_decode", WIRE_MODEL_DECODE);
    model_decode(context, {});
    engine_->detach(handle);
    EXPECT_EQ(drain_records(*engine_).size(), 1U);
  }
  /// Threads may have other numbers in each graph. `uses_experts`: it has a node that does.
  void begin_graph(bool uses_experts = false) {
    const auto handle = attach_begin("model_graph", WIRE_MODEL_GRAPH);
    FakeTensor node;
    node.op = uses_experts ? kExpertsOp : kSomeOp;
    const FakeTensor* const nodes = &node;
    const FakeGraph graph{0, &nodes, 0, 1};
    model_graph(&graph, nullptr);
    engine_->detach(handle);
    EXPECT_EQ(drain_records(*engine_).size(), 2U);
  }
  [[nodiscard]] std::uint64_t hits(wire_model_role role) const {
    return engine_->counters().hits.at(static_cast<std::size_t>(role));
  }

  std::unique_ptr<ModelEngine> engine_;
  std::unique_ptr<sys::ElfFile> file_;
};

TEST_P(ModelEngineModes, BeginsWithNothingCounted) {
  const auto counters = engine_->counters();
  EXPECT_THAT(counters.hits, Each(0U)) << "what the price was measured with is no hit";
  EXPECT_EQ(counters.ring_full, 0U);
  EXPECT_EQ(counters.cut_graphs, 0U);
  EXPECT_EQ(engine_->link_count(), 0U);
  EXPECT_TRUE(drain_records(*engine_).empty());
}

TEST_P(ModelEngineModes, KnowsThePriceOfAHit) {
  for (const double seconds :
       {engine_->price().emulated, engine_->price().bare, engine_->price().stepped}) {
    EXPECT_GT(seconds, 0.1e-6);
    EXPECT_LT(seconds, 50e-6);
  }
}

TEST_P(ModelEngineModes, CountsEveryBeginAndEndExactly) {
  constexpr std::uint64_t kCalls = 200;
  attach_call("model_decode", WIRE_MODEL_DECODE);
  attach_begin("model_operator", WIRE_MODEL_OPERATOR);
  attach_begin("model_fused", WIRE_MODEL_FUSED_OPERATOR);
  attach_begin("model_barrier", WIRE_MODEL_BARRIER);
  const FakeTensor tensor;
  const FakeParams params;
  for (std::uint64_t i = 0; i < kCalls; ++i) {
    EXPECT_EQ(model_decode(&tensor, {}), 7);
    EXPECT_EQ(model_operator(&params, &tensor), 7);
    EXPECT_EQ(model_operator(&params, &tensor), 7);
    EXPECT_EQ(model_fused(&params, &tensor, &tensor), 7);
    EXPECT_EQ(model_barrier(nullptr), 7);
  }
  std::map<std::string, std::uint64_t> counts;
  for (const std::string& kind : kinds_of(drain_records(*engine_)))
    ++counts[kind];
  const std::map<std::string, std::uint64_t> expected{{"begin 1", kCalls},
                                                      {"end 1", kCalls},
                                                      {"begin 6", 2 * kCalls},
                                                      {"begin 7", kCalls},
                                                      {"begin 8", kCalls}};
  EXPECT_EQ(counts, expected);
  EXPECT_EQ(hits(WIRE_MODEL_DECODE), 2 * kCalls) << "begins and ends";
  EXPECT_EQ(hits(WIRE_MODEL_OPERATOR), 2 * kCalls);
  EXPECT_EQ(hits(WIRE_MODEL_FUSED_OPERATOR), kCalls);
  EXPECT_EQ(hits(WIRE_MODEL_BARRIER), kCalls);
  EXPECT_EQ(engine_->counters().ring_full, 0U);
}

TEST_P(ModelEngineModes, TellsWhoWasHitInOrderOfTime) {
  attach_call("model_schedule", WIRE_MODEL_SCHEDULE);
  attach_begin("model_barrier", WIRE_MODEL_BARRIER);
  const int marker = 0;
  model_schedule(&marker, nullptr);
  std::uint32_t tid = 0;
  std::thread([&] {
    tid = static_cast<std::uint32_t>(::gettid());
    model_barrier(&marker);
  }).join();
  const auto records = drain_records(*engine_);
  ASSERT_THAT(kinds_of(records), ElementsAre("begin 3", "end 3", "begin 8"));
  const auto begin = head_of(records[0]), end = head_of(records[1]), barrier = head_of(records[2]);
  const auto self = static_cast<std::uint32_t>(::getpid());
  EXPECT_EQ(begin.tgid, self);
  EXPECT_EQ(begin.tid, static_cast<std::uint32_t>(::gettid()));
  EXPECT_EQ(begin.a, address_of(&marker));
  EXPECT_EQ(begin.flags, 0);
  EXPECT_EQ(end.tid, begin.tid);
  EXPECT_EQ(end.a, 7U);
  EXPECT_EQ(barrier.tgid, self);
  EXPECT_EQ(barrier.tid, tid);
  EXPECT_EQ(barrier.a, address_of(&marker));
  EXPECT_LE(begin.t_boot_ns, end.t_boot_ns);
  EXPECT_LE(end.t_boot_ns, barrier.t_boot_ns);
}

TEST_P(ModelEngineModes, ReadsABatchOnTheStackAndWhatIsReturned) {
  attach_call("model_decode", WIRE_MODEL_DECODE);
  const int context = 0;
  for (const std::int32_t tokens : {1, 512, -3})
    model_decode(&context, {tokens, {}});
  const auto records = drain_records(*engine_);
  ASSERT_EQ(records.size(), 6U);
  std::vector<std::int32_t> counts;
  for (std::size_t i = 0; i < records.size(); i += 2) {
    const auto batch = as<wire_model_batch>(records[i]);
    EXPECT_EQ(batch.head.a, address_of(&context));
    EXPECT_EQ(batch.head.flags, 0);
    counts.push_back(batch.token_count);
    EXPECT_EQ(as<wire_model_event>(records[i + 1]).a, 7U);
  }
  EXPECT_THAT(counts, ElementsAre(1, 512, -3));
}

TEST_P(ModelEngineModes, ReadsWhatIsReturnedFromTheRegisterThatHoldsIt) {
  const std::vector<std::pair<std::string, long (*)(long)>> functions{
      {"model_keeps_rbx", model_keeps_rbx}, {"model_keeps_rbp", model_keeps_rbp},
      {"model_keeps_r12", model_keeps_r12}, {"model_keeps_r13", model_keeps_r13},
      {"model_keeps_r14", model_keeps_r14}, {"model_keeps_r15", model_keeps_r15}};
  for (const auto& [name, function] : functions) {
    const auto specs = call_specs_for_test(*file_, name, WIRE_MODEL_SCHEDULE, true, true);
    ASSERT_EQ(specs.size(), 2U) << name << " has one exit";
    const auto handle = attach(specs);
    for (const long argument : {0, 1, 6, -9}) {
      EXPECT_EQ(function(argument), argument + 7) << name;
      const auto records = drain_records(*engine_);
      ASSERT_EQ(records.size(), 2U) << name;
      EXPECT_EQ(static_cast<long>(as<wire_model_event>(records[1]).a), argument + 7) << name;
    }
    engine_->detach(handle);
  }
}

TEST_P(ModelEngineModes, CountsApartWhatIsSingleStepped) {
  const auto stepped = static_cast<std::uint64_t>(WIRE_MODEL_DECODE) | WIRE_MODEL_STEPPED;
  auto specs = call_specs_for_test(*file_, "model_decode", WIRE_MODEL_DECODE, true);
  for (UprobeSpec& spec : specs)
    if ((spec.cookie & WIRE_COOKIE_EXIT) != 0) spec.cookie |= stepped;
  attach(specs);
  const int context = 0;
  for (int i = 0; i < 5; ++i)
    model_decode(&context, {1, {}});
  EXPECT_EQ(engine_->counters().hits[WIRE_MODEL_DECODE], 5U);
  EXPECT_EQ(engine_->counters().stepped_hits[WIRE_MODEL_DECODE], 5U);
  EXPECT_EQ(engine_->counters().ring_full, 0U);
}

TEST_P(ModelEngineModes, AJumpToAnotherFunctionReturnsNothingYet) {
  const sys::Symbol* const symbol = file_->find_symbol("model_wrapper");
  ASSERT_NE(symbol, nullptr);
  auto specs = begin_of("model_wrapper", WIRE_MODEL_DECODE);
  const auto found = find_exits(*file_, *symbol, {symbol->address, true, true});
  ASSERT_EQ(found.exits.size(), 1U) << found.problem;
  ASSERT_TRUE(found.exits[0].is_jump);
  specs.push_back(
      {*file_->file_offset(found.exits[0].address), 0, found.exits[0].cookie(WIRE_MODEL_DECODE)});
  attach(specs);
  EXPECT_EQ(model_wrapper(nullptr, {}), 7);
  const auto records = drain_records(*engine_);
  ASSERT_THAT(kinds_of(records), ElementsAre("begin 1", "end 1"));
  EXPECT_EQ(head_of(records[1]).flags, WIRE_MODEL_JUMP);
}

TEST_P(ModelEngineModes, ReadsTheRowsOfAMicroBatch) {
  attach_begin("model_micro_batch", WIRE_MODEL_MICRO_BATCH);
  const std::array<std::int32_t, 3> positions{7, 8, 4}, sequences{0, 0, 2};
  const std::array<const std::int32_t*, 3> ids{&sequences[0], &sequences[1], &sequences[2]};
  const FakeMicroBatch batch{ids.data(), positions.data(), 0, 3, 1, 3, 2};
  enter_decode(&batch);
  model_micro_batch(&batch, &batch, 1, 0);
  const auto records = drain_records(*engine_);
  ASSERT_EQ(records.size(), 1U);
  const auto told = as<wire_model_micro_batch>(records[0]);
  EXPECT_EQ(told.head.a, address_of(&batch));
  EXPECT_EQ(told.head.b, 1U);
  EXPECT_EQ(told.head.flags, 0);
  EXPECT_EQ(told.token_count, 3U);
  EXPECT_EQ(told.sequence_tokens, 1U);
  EXPECT_EQ(told.sequence_count, 3U);
  EXPECT_EQ(told.unique_count, 2U);
  EXPECT_TRUE(std::equal(positions.begin(), positions.end(), told.position));
  EXPECT_TRUE(std::equal(sequences.begin(), sequences.end(), told.sequence));
  EXPECT_EQ(told.position[3], 0);
}

TEST_P(ModelEngineModes, TheDecodeAroundAMicroBatchTellsItsArguments) {
  attach_begin("model_micro_batch", WIRE_MODEL_MICRO_BATCH);
  const int context = 0, result = 0, other = 0;
  const FakeMicroBatch batch{nullptr, nullptr, 0, 3, 1, 3, 2};
  const auto told = [&] {
    const auto records = drain_records(*engine_);
    EXPECT_EQ(records.size(), 1U);
    return records.empty() ? wire_model_micro_batch{} : as<wire_model_micro_batch>(records[0]);
  };
  model_micro_batch(&context, &batch, 5, 6);
  EXPECT_EQ(told().head.flags, WIRE_MODEL_NO_FORM) << "outside of a decode, the first one";
  enter_decode(&context);
  model_micro_batch(&other, &batch, 5, 6);
  wire_model_micro_batch record = told();
  EXPECT_EQ(record.head.flags, WIRE_MODEL_NO_FORM) << "another context";
  EXPECT_EQ(record.token_count, 0U);
  model_micro_batch(&result, &context, address_of(&batch), 6);
  record = told();
  EXPECT_EQ(record.head.flags, 0);
  EXPECT_EQ(record.head.a, address_of(&context));
  EXPECT_EQ(record.head.b, 6U);
  EXPECT_EQ(record.token_count, 3U);
  std::thread([&] { model_micro_batch(&result, &other, address_of(&batch), 6); }).join();
  EXPECT_EQ(told().token_count, 3U) << "outside of a decode: as it was before";
  model_micro_batch(&context, &batch, 5, 6);
  record = told();
  EXPECT_EQ(record.head.b, 5U);
  EXPECT_EQ(record.token_count, 3U);
}

TEST_P(ModelEngineModes, ADecodeThatHasEndedTellsNothing) {
  attach_call("model_decode", WIRE_MODEL_DECODE);
  attach_begin("model_micro_batch", WIRE_MODEL_MICRO_BATCH);
  const int context = 0;
  const FakeMicroBatch batch{nullptr, nullptr, 0, 3, 1, 3, 2};
  model_decode(&context, {});
  model_micro_batch(&context, &batch, 0, 0);
  const auto records = drain_records(*engine_);
  ASSERT_EQ(records.size(), 3U);
  EXPECT_EQ(head_of(records[2]).flags, WIRE_MODEL_NO_FORM);
}

TEST_P(ModelEngineModes, ReadsTheTokensOfEachKindOfDecode) {
  const std::int32_t count = 7;
  const auto told = [&](wire_model_role role, const void* second, std::uint64_t third) {
    const auto handle = attach_begin("model_micro_batch", role);
    model_micro_batch(&count, second, third, 0);
    engine_->detach(handle);
    const auto records = drain_records(*engine_);
    EXPECT_EQ(records.size(), 1U);
    return records.empty() ? wire_model_batch{} : as<wire_model_batch>(records[0]);
  };
  const wire_model_batch inner = told(WIRE_MODEL_CONTEXT_DECODE, &count, 3);
  EXPECT_EQ(inner.token_count, 7);
  EXPECT_EQ(inner.head.a, address_of(&count));
  EXPECT_EQ(inner.head.flags, 0);
  EXPECT_EQ(told(WIRE_MODEL_EVAL, nullptr, 3).token_count, 3);
  EXPECT_EQ(told(WIRE_MODEL_CONTEXT_DECODE, nowhere<int>(), 3).head.flags, WIRE_MODEL_UNREADABLE);
}

TEST_P(ModelEngineModes, ReadsTheRowsOfAnOlderMicroBatch) {
  attach_begin("model_micro_batch", WIRE_MODEL_MICRO_BATCH);
  const std::array<std::int32_t, 4> positions{7, 8, 4, 5}, tokens{};
  const std::array<std::int32_t, 2> sequences{3, 1};
  const std::array<const std::int32_t*, 2> ids{&sequences[0], &sequences[1]};
  const FakeOldMicroBatch batch{ids.data(), positions.data(), 0, 4, 2, 2, tokens.data()};
  enter_decode(&batch);
  model_micro_batch(&batch, &batch, 0, 0);
  const auto records = drain_records(*engine_);
  ASSERT_EQ(records.size(), 1U);
  const auto told = as<wire_model_micro_batch>(records[0]);
  EXPECT_EQ(told.head.flags, 0);
  EXPECT_EQ(told.token_count, 4U);
  EXPECT_EQ(told.unique_count, 0U) << "it does not tell";
  EXPECT_TRUE(std::equal(positions.begin(), positions.end(), told.position));
  EXPECT_THAT(std::vector<std::int32_t>(told.sequence, told.sequence + 4), ElementsAre(3, 3, 1, 1));
}

TEST_P(ModelEngineModes, KeepsTheLastRowsOfALongMicroBatch) {
  attach_begin("model_micro_batch", WIRE_MODEL_MICRO_BATCH);
  constexpr std::uint32_t kMost = WIRE_MODEL_TOKENS;
  std::array<std::int32_t, kMost + 1> positions{};
  std::array<const std::int32_t*, kMost + 1> ids{};
  for (std::size_t i = 0; i < positions.size(); ++i) {
    positions.at(i) = static_cast<std::int32_t>(i);
    ids.at(i) = &positions.at(i);
  }
  for (const std::uint32_t count : {kMost - 1, kMost, kMost + 1}) {
    const FakeMicroBatch batch{ids.data(), positions.data(), 0, count, count, 1, 1};
    enter_decode(&batch);
    model_micro_batch(&batch, &batch, 0, 0);
    const auto records = drain_records(*engine_);
    ASSERT_EQ(records.size(), 1U);
    const auto told = as<wire_model_micro_batch>(records[0]);
    EXPECT_EQ(told.token_count, count);
    EXPECT_EQ(told.head.flags, count > kMost ? WIRE_MODEL_CUT : 0);
    const std::uint32_t shown = std::min(count, kMost);
    EXPECT_EQ(told.position[0], static_cast<std::int32_t>(count - shown));
    EXPECT_EQ(told.position[shown - 1], static_cast<std::int32_t>(count - 1));
    EXPECT_EQ(told.sequence[shown - 1], static_cast<std::int32_t>(count - 1));
  }
}

TEST_P(ModelEngineModes, FlagsMicroBatchesThatCannotBeRead) {
  attach_begin("model_micro_batch", WIRE_MODEL_MICRO_BATCH);
  const std::int32_t position = 9;
  const std::array<const std::int32_t*, 2> ids{&position, nowhere<std::int32_t>()};
  const std::array<std::int32_t, 2> positions{4, 5};
  const FakeMicroBatch without{nullptr, nullptr, 0, 2, 1, 1, 1};
  const FakeMicroBatch bad_positions{ids.data(), nowhere<std::int32_t>(), 0, 1, 1, 1, 1};
  const FakeMicroBatch bad_id{ids.data(), positions.data(), 0, 2, 1, 1, 1};
  enter_decode(&ids);
  for (const FakeMicroBatch* batch : {&without, &bad_positions, &bad_id})
    EXPECT_EQ(model_micro_batch(&ids, batch, 0, 0), 7);
  for (const FakeMicroBatch* batch : astray<FakeMicroBatch>())
    EXPECT_EQ(model_micro_batch(&ids, batch, 0, 0), 7);
  std::vector<int> flags;
  std::vector<std::uint32_t> tokens;
  for (const Record& record : drain_records(*engine_)) {
    flags.push_back(head_of(record).flags);
    tokens.push_back(as<wire_model_micro_batch>(record).token_count);
  }
  constexpr int kBad = WIRE_MODEL_UNREADABLE;
  EXPECT_THAT(flags, ElementsAre(0, kBad, kBad, kBad, kBad));
  EXPECT_THAT(tokens, ElementsAre(2U, 1U, 2U, 0U, 0U));
}

TEST_P(ModelEngineModes, TellsAGraphWithAllItsTensorsOnce) {
  attach_call("model_graph", WIRE_MODEL_GRAPH);
  const SmallGraph small;
  model_graph(&small.graph, nullptr);
  const auto records = drain_records(*engine_);
  ASSERT_THAT(kinds_of(records), ElementsAre("tensor 5", "tensor 5", "tensor 5", "tensor 5",
                                             "tensor 5", "tensor 5", "begin 5", "end 5"));
  struct Expected {
    const FakeTensor* tensor;
    std::uint32_t node;
    int flags;
  };
  const std::array<Expected, 6> expected{{{&small.first, 0, 0},
                                          {&small.weights, 0, WIRE_MODEL_IS_LEAF},
                                          {&small.input, 0, WIRE_MODEL_IS_LEAF},
                                          {&small.second, 1, 0},
                                          {&small.weights, 1, WIRE_MODEL_IS_LEAF},
                                          {&small.third, 2, 0}}};
  for (std::size_t i = 0; i < expected.size(); ++i) {
    const auto told = as<wire_model_tensor>(records[i]);
    EXPECT_EQ(told.address, address_of(expected.at(i).tensor)) << i;
    EXPECT_EQ(told.node, expected.at(i).node) << i;
    EXPECT_EQ(told.flags, expected.at(i).flags) << i;
    EXPECT_EQ(told.graph, address_of(&small.graph)) << i;
    EXPECT_EQ(told.tgid, static_cast<std::uint32_t>(::getpid())) << i;
    EXPECT_EQ(std::memcmp(told.bytes, expected.at(i).tensor, sizeof(told.bytes)), 0) << i;
  }
  const auto told = as<wire_model_graph>(records[6]);
  EXPECT_EQ(told.head.a, address_of(&small.graph));
  EXPECT_EQ(told.head.b, 0U);
  EXPECT_EQ(told.head.flags, WIRE_MODEL_PICTURED);
  EXPECT_EQ(told.uid, 5U);
  EXPECT_EQ(told.node_count, 3);
  EXPECT_EQ(told.pictured, 6U);
  model_graph(&small.graph, nullptr);
  const auto again = drain_records(*engine_);
  ASSERT_THAT(kinds_of(again), ElementsAre("begin 5", "end 5"));
  EXPECT_EQ(as<wire_model_graph>(again[0]).head.flags, 0);
  EXPECT_EQ(as<wire_model_graph>(again[0]).uid, 5U);
  EXPECT_EQ(as<wire_model_graph>(again[0]).pictured, 0U);
}

TEST_P(ModelEngineModes, TellsAGraphAgainWhenItIsForgottenOrAnother) {
  attach_begin("model_graph", WIRE_MODEL_GRAPH);
  SmallGraph small;
  const auto records_of_a_call = [&] {
    model_graph(&small.graph, nullptr);
    return drain_records(*engine_).size();
  };
  EXPECT_EQ(records_of_a_call(), 7U);
  EXPECT_EQ(records_of_a_call(), 1U);
  engine_->forget_graphs();
  EXPECT_EQ(records_of_a_call(), 7U);
  EXPECT_EQ(records_of_a_call(), 1U);
  small.graph.uid = 6;
  EXPECT_EQ(records_of_a_call(), 7U);
  small.graph.uid = 5;
  EXPECT_EQ(records_of_a_call(), 1U);
  small.graph.uid = 0;  // it may be another one each time
  EXPECT_EQ(records_of_a_call(), 7U);
  EXPECT_EQ(records_of_a_call(), 7U);
}

TEST_P(ModelEngineModes, TellsAGraphAtItsSplitOrAtItself) {
  attach_begin("model_split", WIRE_MODEL_SPLIT);
  attach_begin("model_graph", WIRE_MODEL_GRAPH);
  const SmallGraph small;
  FakeBackend backend;
  backend.graph_compute = 0x1234;
  model_split(&backend, &small.graph);
  model_graph(&small.graph, nullptr);
  const auto records = drain_records(*engine_);
  ASSERT_EQ(records.size(), 8U);
  const auto split = as<wire_model_graph>(records[6]), graph = as<wire_model_graph>(records[7]);
  EXPECT_EQ(split.head.role, WIRE_MODEL_SPLIT);
  EXPECT_EQ(split.head.a, address_of(&small.graph));
  EXPECT_EQ(split.head.b, 0x1234U);
  EXPECT_EQ(split.head.flags, WIRE_MODEL_PICTURED);
  EXPECT_EQ(graph.head.role, WIRE_MODEL_GRAPH);
  EXPECT_EQ(graph.head.flags, 0);
  EXPECT_EQ(hits(WIRE_MODEL_SPLIT), 1U);
}

TEST_P(ModelEngineModes, GraphsThatCannotBeReadAreHarmless) {
  attach_begin("model_split", WIRE_MODEL_SPLIT);
  attach_begin("model_graph", WIRE_MODEL_GRAPH);
  const SmallGraph small;
  for (const FakeGraph* graph : astray<FakeGraph>()) {
    EXPECT_EQ(model_graph(graph, nullptr), 7);
    const auto records = drain_records(*engine_);
    ASSERT_EQ(records.size(), 1U);
    EXPECT_EQ(as<wire_model_graph>(records[0]).head.flags, WIRE_MODEL_UNREADABLE);
  }
  EXPECT_EQ(model_split(nowhere<FakeBackend>(), &small.graph), 7);
  auto records = drain_records(*engine_);
  ASSERT_EQ(records.size(), 1U);
  EXPECT_EQ(as<wire_model_graph>(records[0]).head.flags, WIRE_MODEL_UNREADABLE);
  FakeGraph without_nodes = small.graph;
  for (const auto* nodes : astray<const FakeTensor*>()) {
    without_nodes.nodes = nodes;
    EXPECT_EQ(model_graph(&without_nodes, nullptr), 7);
    records = drain_records(*engine_);
    ASSERT_EQ(records.size(), 1U);
    EXPECT_EQ(as<wire_model_graph>(records[0]).pictured, 0U);
    EXPECT_EQ(as<wire_model_graph>(records[0]).head.flags & WIRE_MODEL_PICTURED, 0);
  }
}

TEST_P(ModelEngineModes, ATensorThatCannotBeReadIsNoPicture) {
  attach_begin("model_graph", WIRE_MODEL_GRAPH);
  SmallGraph small;
  for (const FakeTensor* bad : astray<FakeTensor>()) {
    small.nodes[1] = bad;
    for (int i = 0; i < 2; ++i) {  // it is not taken as told
      EXPECT_EQ(model_graph(&small.graph, nullptr), 7);
      const auto records = drain_records(*engine_);
      EXPECT_EQ(as<wire_model_graph>(records.back()).head.flags & WIRE_MODEL_PICTURED, 0);
      const auto flagged = std::count_if(records.begin(), records.end(), [](const Record& record) {
        return head_of(record).kind == WIRE_MODEL_TENSOR &&
               as<wire_model_tensor>(record).flags == WIRE_MODEL_UNREADABLE;
      });
      EXPECT_EQ(flagged, 1);
    }
  }
  // A source that is not there is left out: a picture is whole without it.
  small.nodes[1] = &small.second;
  small.second.src[3] = nowhere<FakeTensor>();
  model_graph(&small.graph, nullptr);
  EXPECT_EQ(as<wire_model_graph>(drain_records(*engine_).back()).pictured, 6U);
}

TEST_P(ModelEngineModes, TellsGraphsUpToALimit) {
  attach_begin("model_graph", WIRE_MODEL_GRAPH);
  FakeTensor tensor;
  tensor.op = kSomeOp;
  const std::vector<const FakeTensor*> nodes(WIRE_MODEL_NODES_MAX + 1, &tensor);
  FakeGraph graph{1, nodes.data(), 0, WIRE_MODEL_NODES_MAX};
  model_graph(&graph, nullptr);
  EXPECT_EQ(drain_records(*engine_).size(), WIRE_MODEL_NODES_MAX + 1U);
  EXPECT_EQ(engine_->counters().cut_graphs, 0U);
  graph = {2, nodes.data(), 0, WIRE_MODEL_NODES_MAX + 1};
  model_graph(&graph, nullptr);
  EXPECT_EQ(drain_records(*engine_).size(), 1U);
  EXPECT_EQ(engine_->counters().cut_graphs, 1U);
  for (const std::int32_t none : {0, -1}) {
    graph = {3, nodes.data(), 0, none};
    model_graph(&graph, nullptr);
    EXPECT_EQ(drain_records(*engine_).size(), 1U);
  }
  EXPECT_EQ(engine_->counters().cut_graphs, 1U);
  EXPECT_EQ(engine_->counters().ring_full, 0U);
}

TEST_P(ModelEngineModes, ReadsWhichThreadRunsAnOperatorOnceAGraph) {
  attach_begin("model_operator", WIRE_MODEL_OPERATOR);
  const FakeTensor tensor;
  FakeParams params{2, 4};
  const auto place = [&](const FakeParams* of) {
    EXPECT_EQ(model_operator(of, &tensor), 7);
    const auto records = drain_records(*engine_);
    EXPECT_EQ(records.size(), 1U);
    const wire_model_event told = head_of(records.at(0));
    EXPECT_EQ(told.a, address_of(&tensor));
    return std::array<int, 3>{told.ith, told.nth, told.flags};
  };
  EXPECT_THAT(place(&params), ElementsAre(2, 4, 0));
  params = {3, 5};
  EXPECT_THAT(place(&params), ElementsAre(2, 4, 0)) << "of the same graph";
  begin_graph();
  EXPECT_THAT(place(&params), ElementsAre(3, 5, 0));
  for (const FakeParams* bad : astray<FakeParams>()) {
    begin_graph();
    EXPECT_THAT(place(bad), ElementsAre(0, 0, WIRE_MODEL_UNREADABLE));
  }
  EXPECT_THAT(place(&params), ElementsAre(3, 5, 0)) << "what could not be read is tried again";
  params = {1, 2};
  std::thread([&] { EXPECT_THAT(place(&params), ElementsAre(1, 2, 0)); }).join();
  ASSERT_TRUE(engine_->set_target(::getpid(), layout_for_test()).has_value());
  EXPECT_THAT(place(&params), ElementsAre(1, 2, 0)) << "a target anew";
}

TEST_P(ModelEngineModes, AnOperatorOfATensorThatCannotBeReadIsHarmless) {
  attach_begin("model_operator", WIRE_MODEL_OPERATOR);
  begin_graph(true);
  const FakeParams params;
  for (const FakeTensor* bad : astray<FakeTensor>())
    EXPECT_EQ(model_operator(&params, bad), 7);
  EXPECT_THAT(kinds_of(drain_records(*engine_)), ElementsAre("begin 6", "begin 6"));
}

TEST_P(ModelEngineModes, SaysWhenItLetAThreadGoOn) {
  attach_begin("model_operator", WIRE_MODEL_OPERATOR);
  attach_begin("model_barrier", WIRE_MODEL_BARRIER);
  const FakeTensor tensor;
  const FakeParams params;
  model_operator(&params, &tensor);
  model_barrier(&params);
  const auto records = drain_records(*engine_);
  ASSERT_EQ(records.size(), 2U);
  const auto first = head_of(records[0]), second = head_of(records[1]);
  EXPECT_GE(first.b, first.t_boot_ns);
  EXPECT_LE(first.b, second.t_boot_ns);
  EXPECT_GE(second.b, second.t_boot_ns);
}

TEST_P(ModelEngineModes, ReadsTheExpertsThatAreUsed) {
  attach_begin("model_operator", WIRE_MODEL_OPERATOR);
  const std::array<std::int32_t, 12> rows{3, 7, -9, -9, 7, 0, -9, -9, 5, 1, -9, -9};
  FakeTensor ids, product;
  ids.data = rows.data();
  ids.ne = {2, 3, 1, 1};
  ids.nb = {4, 16, 48, 48};
  product.op = kExpertsOp;
  product.src[2] = &ids;
  FakeParams params{0, 2};
  model_operator(&params, &product);
  auto records = drain_records(*engine_);
  EXPECT_THAT(kinds_of(records), ElementsAre("begin 6")) << "no graph has any";
  begin_graph(true);
  model_operator(&params, &product);
  records = drain_records(*engine_);
  ASSERT_THAT(kinds_of(records), ElementsAre("begin 6", "experts 6"));
  auto told = as<wire_model_experts>(records[1]);
  EXPECT_EQ(told.head.a, address_of(&product));
  EXPECT_EQ(told.head.tid, static_cast<std::uint32_t>(::gettid()));
  EXPECT_EQ(told.head.flags, 0);
  EXPECT_EQ(told.used, 2U);
  EXPECT_EQ(told.tokens, 3U);
  EXPECT_THAT(std::vector(told.id, told.id + 7), ElementsAre(3, 7, 7, 0, 5, 1, -1));
  params.ith = 1;  // the others of the graph do the same
  std::thread([&] { model_operator(&params, &product); }).join();
  params.ith = 0;
  product.op = kSomeOp;
  model_operator(&params, &product);
  product.op = kExpertsOp;
  for (const FakeTensor* bad : astray<FakeTensor>()) {
    product.src[2] = bad;
    EXPECT_EQ(model_operator(&params, &product), 7);
  }
  EXPECT_THAT(kinds_of(drain_records(*engine_)), Each("begin 6"));
  product.src[2] = &ids;
  ids.data = nullptr;  // in a device's memory
  EXPECT_EQ(model_operator(&params, &product), 7);
  records = drain_records(*engine_);
  ASSERT_EQ(records.size(), 2U);
  EXPECT_EQ(as<wire_model_experts>(records[1]).head.flags, WIRE_MODEL_UNREADABLE);
}

TEST_P(ModelEngineModes, CutsExpertsAtALimit) {
  attach_begin("model_operator", WIRE_MODEL_OPERATOR);
  constexpr std::int64_t kMost = WIRE_MODEL_EXPERTS_MAX;
  std::array<std::int32_t, kMost + 1> rows{};
  for (std::size_t i = 0; i < rows.size(); ++i)
    rows.at(i) = static_cast<std::int32_t>(i);
  FakeTensor ids, product;
  ids.data = rows.data();
  ids.nb = {4, 4, 4, 4};
  product.op = kExpertsOp;
  product.src[2] = &ids;
  const FakeParams params;
  begin_graph(true);
  for (const std::int64_t tokens : {kMost - 1, kMost, kMost + 1}) {
    ids.ne = {1, tokens, 1, 1};
    model_operator(&params, &product);
    const auto records = drain_records(*engine_);
    ASSERT_EQ(records.size(), 2U);
    const auto told = as<wire_model_experts>(records[1]);
    EXPECT_EQ(told.tokens, static_cast<std::uint32_t>(tokens));
    EXPECT_EQ(told.head.flags, tokens > kMost ? WIRE_MODEL_CUT : 0);
    EXPECT_EQ(told.id[kMost - 2], kMost - 2);
    EXPECT_EQ(told.id[kMost - 1], tokens < kMost ? -1 : kMost - 1);
  }
}

TEST_P(ModelEngineModes, ExpertsAreReadWhereTheyAreWanted) {
  wire_model_layout layout = layout_for_test();
  layout.op_mul_mat_id = 0;
  ASSERT_TRUE(engine_->set_target(::getpid(), layout).has_value());
  attach_begin("model_operator", WIRE_MODEL_OPERATOR);
  begin_graph(true);
  FakeTensor product;
  product.src[2] = &product;
  const FakeParams params;
  for (const std::uint32_t op : {0U, kExpertsOp}) {
    product.op = op;
    model_operator(&params, &product);
  }
  EXPECT_THAT(kinds_of(drain_records(*engine_)), ElementsAre("begin 6", "begin 6"));
}

TEST_P(ModelEngineModes, ObservesProcessesUpToALimit) {
  constexpr std::int32_t kFirst = 1 << 30;  // no process has such a number
  for (std::int32_t i = 0; i < WIRE_MODEL_TARGETS_MAX - 1; ++i)
    ASSERT_TRUE(engine_->set_target(kFirst + i, layout_for_test()).has_value()) << i;
  const std::int32_t another = kFirst + WIRE_MODEL_TARGETS_MAX;
  const auto more = engine_->set_target(another, layout_for_test());
  ASSERT_FALSE(more.has_value());
  EXPECT_EQ(more.error().code, Code::kLimit);
  EXPECT_TRUE(engine_->set_target(kFirst, layout_for_test()).has_value()) << "it is one already";
  engine_->forget_target(kFirst);
  engine_->forget_target(kFirst);
  EXPECT_TRUE(engine_->set_target(another, layout_for_test()).has_value());
  attach_begin("model_barrier", WIRE_MODEL_BARRIER);
  model_barrier(nullptr);
  EXPECT_EQ(drain_records(*engine_).size(), 1U);
}

TEST_P(ModelEngineModes, AttachesToTargetsAlone) {
  const auto specs = begin_of("model_barrier", WIRE_MODEL_BARRIER);
  engine_->forget_target(::getpid());
  EXPECT_FALSE(engine_->attach("/proc/self/exe", ::getpid(), specs).has_value());
  EXPECT_EQ(engine_->link_count(), 0U);
}

TEST_P(ModelEngineModes, DoesNotSeeAnotherProcess) {
  attach_call("model_schedule", WIRE_MODEL_SCHEDULE);
  const pid_t child = ::fork();
  if (child == 0) {
    long sum = 0;
    for (int i = 0; i < 10; ++i)
      sum += model_schedule(nullptr, nullptr);
    ::_exit(sum == 70 ? 0 : 1);
  }
  int status = -1;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  EXPECT_TRUE(drain_records(*engine_).empty());
  EXPECT_EQ(hits(WIRE_MODEL_SCHEDULE), 0U);
  model_schedule(nullptr, nullptr);
  EXPECT_EQ(drain_records(*engine_).size(), 2U);
}

TEST_P(ModelEngineModes, ForgetsAProcess) {
  attach_begin("model_barrier", WIRE_MODEL_BARRIER);
  engine_->forget_target(::getpid());
  model_barrier(nullptr);
  EXPECT_TRUE(drain_records(*engine_).empty());
  EXPECT_EQ(hits(WIRE_MODEL_BARRIER), 0U);
  ASSERT_TRUE(engine_->set_target(::getpid(), layout_for_test()).has_value());
  model_barrier(nullptr);
  EXPECT_EQ(drain_records(*engine_).size(), 1U);
}

TEST_P(ModelEngineModes, DetachLeavesTheCodeAsItWas) {
  const auto before = code_in_file("model_barrier");
  const auto handle = attach_begin("model_barrier", WIRE_MODEL_BARRIER);
  const auto others = attach_call("model_decode", WIRE_MODEL_DECODE);
  EXPECT_NE(handle, 0U);
  EXPECT_NE(handle, others);
  EXPECT_NE(code_of(model_barrier), before);
  EXPECT_GE(engine_->link_count(), 2U);
  model_barrier(nullptr);
  engine_->detach(handle);
  EXPECT_TRUE(becomes(model_barrier, before));
  model_barrier(nullptr);
  EXPECT_THAT(kinds_of(drain_records(*engine_)), ElementsAre("begin 8"));
  model_decode(nullptr, {});
  EXPECT_EQ(drain_records(*engine_).size(), 2U) << "the others are still on";
  engine_->detach(others);
  EXPECT_EQ(engine_->link_count(), 0U);
  engine_->detach(others);  // once more, or one that never was
  engine_->detach(77);
  const auto again = attach_begin("model_barrier", WIRE_MODEL_BARRIER);
  EXPECT_NE(again, 0U);
  engine_.reset();
  EXPECT_TRUE(becomes(model_barrier, before));
}

TEST_P(ModelEngineModes, AttachesAllOrNothing) {
  const auto before = code_in_file("model_barrier");
  auto specs = begin_of("model_barrier", WIRE_MODEL_BARRIER);
  specs.push_back({std::uint64_t{1} << 40, 0, WIRE_MODEL_OPERATOR});
  EXPECT_FALSE(engine_->attach("/proc/self/exe", ::getpid(), specs).has_value());
  EXPECT_TRUE(becomes(model_barrier, before));
  EXPECT_EQ(engine_->link_count(), 0U);
  specs.pop_back();
  EXPECT_FALSE(engine_->attach("/no/such/file", ::getpid(), specs).has_value());
  const auto none = engine_->attach("/proc/self/exe", ::getpid(), {});
  ASSERT_TRUE(none.has_value());
  EXPECT_EQ(*none, 0U);
}

INSTANTIATE_TEST_SUITE_P(BothModes, ModelEngineModes, testing::Bool(),
                         [](const auto& is_perf) { return is_perf.param ? "perf" : "multi"; });

TEST(ModelEngine, CountsWhatAFullRingDrops) {
  auto made = ModelEngine::create({.ring_bytes = 4096});
  if (!made) GTEST_SKIP() << "needs root and bpf: " << made.error().what;
  ModelEngine& engine = **made;
  EXPECT_EQ(engine.counters().ring_full, 0U) << "the price was measured on the same ring";
  ASSERT_TRUE(engine.set_target(::getpid(), layout_for_test()).has_value());
  auto file = sys::ElfFile::open("/proc/self/exe");
  ASSERT_TRUE(file.has_value());
  const UprobeSpec spec{*(*file)->file_offset((*file)->find_symbol("model_barrier")->address), 0,
                        WIRE_MODEL_BARRIER};
  const auto attached = engine.attach("/proc/self/exe", ::getpid(), {&spec, 1});
  ASSERT_TRUE(attached.has_value()) << attached.error().what;
  constexpr std::uint64_t kCalls = 1000;
  for (std::uint64_t i = 0; i < kCalls; ++i)
    model_barrier(nullptr);
  const std::uint64_t received = drain_records(engine).size();
  EXPECT_GT(received, 0U);
  EXPECT_LT(received, kCalls);
  EXPECT_EQ(received + engine.counters().ring_full, kCalls);
  EXPECT_EQ(engine.counters().hits[WIRE_MODEL_BARRIER], kCalls);
}

TEST(ModelEngine, AGraphOfWhichPartWasLostIsToldAgain) {
  auto made = ModelEngine::create({.ring_bytes = 4096});
  if (!made) GTEST_SKIP() << "needs root and bpf: " << made.error().what;
  ModelEngine& engine = **made;
  ASSERT_TRUE(engine.set_target(::getpid(), layout_for_test()).has_value());
  auto file = sys::ElfFile::open("/proc/self/exe");
  ASSERT_TRUE(file.has_value());
  const UprobeSpec spec{*(*file)->file_offset((*file)->find_symbol("model_graph")->address), 0,
                        WIRE_MODEL_GRAPH};
  const auto attached = engine.attach("/proc/self/exe", ::getpid(), {&spec, 1});
  ASSERT_TRUE(attached.has_value()) << attached.error().what;
  const SmallGraph small;
  model_graph(&small.graph, nullptr);
  model_graph(&small.graph, nullptr);  // six tensors are 2,160 bytes
  EXPECT_EQ(drain_records(engine).size(), 8U);
  engine.forget_graphs();
  SmallGraph second;
  second.graph.uid = 9;
  model_graph(&small.graph, nullptr);
  model_graph(&second.graph, nullptr);  // it has no room
  const auto lost = drain_records(engine);
  EXPECT_GT(engine.counters().ring_full, 0U);
  for (const Record& record : lost) {
    if (head_of(record).kind != WIRE_MODEL_BEGIN) continue;
    const auto graph = as<wire_model_graph>(record);
    EXPECT_EQ(graph.pictured, graph.uid == 5 ? 6U : 0U);
  }
  model_graph(&second.graph, nullptr);
  const auto told = drain_records(engine);
  ASSERT_EQ(told.size(), 7U);
  EXPECT_EQ(as<wire_model_graph>(told.back()).pictured, 6U);
}

}  // namespace
}  // namespace kansoku::capture::bpf
