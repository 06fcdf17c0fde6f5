// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "stats/intervals.h"
#include "trace/inference.h"
#include "trace/model.h"

namespace kansoku::infer {

inline constexpr std::size_t kNone = SIZE_MAX;  // of indices

/// A node of a graph's definition, and the cost of computing it once.
struct Node {
  std::string op, name;
  trace::TensorShape shape;
  std::vector<trace::TensorSource> sources;
  std::uint32_t variant{0};
  double flops{0}, bytes{0};  // infer/work.h
  bool is_view{false};
};
struct Definition {
  std::vector<Node> nodes;  // by index; those that the recording lacks have no operator
};

using Span = stats::Interval;

/// A call of llama_decode. Spans without an end were cut off by the end of the recording, and are
/// left out everywhere.
struct Decode {
  Span span;
  std::int64_t tokens{0};
  std::optional<std::int64_t> result{};  // return value
  std::uint32_t context{0}, caller{0};   // caller: the thread
};
/// The last tokens of a micro-batch: whose they are, and where in the sequence.
struct Row {
  std::int32_t sequence{0}, position{0};
};
struct MicroBatch {
  Span span;
  std::int64_t tokens{0}, sequences{0};
  std::vector<Row> rows;
  std::size_t decode{kNone};
  std::uint32_t caller{0};
  /// A bit for each of `rows` that asks for an output.
  std::optional<std::uint32_t> outputs{};
  /// More tokens than sequences, and no drafts of tokens: a prompt is read.
  bool is_prefill{false};
  /// Drafts of speculative decoding, and tokens that it generated: of drafts at least those that
  /// the next micro-batch of the sequence goes on behind.
  std::int64_t drafts{0}, generated{0};
  bool has_tokens{true};  // else its arguments were not understood, and all above is empty
};
/// A part of a graph that was handed to one backend; it ends where the next one begins.
struct Split {
  Span span;
  std::optional<std::uint32_t> definition{};
  std::uint32_t caller{0};
  std::size_t micro_batch{kNone};
  bool is_on_cpu{false};
};
struct Graph {
  Span span;
  std::optional<std::uint32_t> definition{};
  std::int64_t uid{0};  // equal for a graph that runs again
  std::size_t micro_batch{kNone};
  std::uint32_t caller{0};
  bool is_whole{false};  // all of it lies in one window at operator level or above
};
struct Operator {
  Span span;
  std::uint32_t definition{0}, node{0};
  std::uint16_t ith{0};
  std::int32_t tid{0};  // of the kernel
  std::size_t graph{kNone};
  trace::StringId name{};     // "RMS_NORM+MUL" of a fused one
  trace::StringId experts{};  // "2x1 3 7": a row's length, rows, ids
};
struct Wait {
  Span span;
  std::uint16_t ith{0};
  std::size_t graph{kNone};
};
/// While the probes of some level were attached.
struct Window {
  Span span;
  trace::ModelLevel level{trace::ModelLevel::kNone};
  std::uint64_t hits{0};
  double cost_ns{0}, switching_ns{0};  // of hits; of attaching and taking off
};

/// Records of the models of one process; all lists in order of time.
struct Process {
  std::int32_t pid{0};
  std::string name, ggml;
  std::optional<trace::ModelReach> reach;  // older recordings do not say
  std::map<std::uint32_t, Definition> definitions;
  std::vector<Decode> decodes;
  std::vector<MicroBatch> micro_batches;
  std::vector<Graph> graphs;
  std::vector<Operator> operators;
  std::vector<Wait> waits;
  std::vector<Split> splits;
};
struct Run {
  std::vector<Process> processes;  // by pid
  std::vector<Window> windows;
  std::uint64_t unreadable{0};         // events whose arguments made no sense
  const trace::Trace* trace{nullptr};  // borrowed: names and scheduler
};

/// Reads the records of capture/llm. The trace is borrowed and may be anybody's: a record that
/// makes no sense is counted and left out.
[[nodiscard]] Run read_run(const trace::Trace& untrusted);

}  // namespace kansoku::infer
