// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "infer/run.h"

namespace kansoku::infer {

/// kOther: graphs that no micro-batch of llama.cpp asked for.
enum class Phase : std::uint8_t { kDecode, kPrefill, kOther };
/// "decode", "prefill", "other".
[[nodiscard]] std::string_view phase_name(Phase phase);

[[nodiscard]] Phase phase_of(const MicroBatch& micro_batch);

/// Work and time of a set of computations. Time is that of the thread which called for the graph,
/// from one operator's begin to the next one's, barriers included; where barriers were recorded it
/// is the longest thread's until its last barrier.
struct Work {
  std::uint64_t count{0};
  double ns{0}, flops{0}, bytes{0};
  double runnable_ns{0},
      blocked_ns{0};  // parts of it: without a processor; in the kernel, uninterruptible
};
struct OperatorRow {
  std::string op;
  Phase phase{};
  Work work;
  double share{0};      // of the time of all operators of the phase
  double median_ns{0};  // of one, by the first kTimesKept
};
/// A node by its name, over all graphs that have it.
struct NodeRow {
  std::string name, op, weights;  // weights: "F16 512x512x1x1 524288 =blk.0.attn_q.weight", or ""
  Phase phase{};
  Work work;
  double share{0};
};
/// One of a graph's threads, over the graphs that were seen whole with their barriers.
struct ThreadRow {
  std::uint16_t ith{0};
  double busy_ns{0}, wait_ns{0}, outside_ns{0};  // outside: before its first node, behind its last
  double unexplained_ns{0};
  double runnable_ns{0}, blocked_ns{0};  // while it was busy
  std::uint64_t operators{0};
};
struct ExpertRow {
  std::string name;                   // of the first node of the layer that uses them
  std::vector<std::uint64_t> counts;  // by expert
  double repeated{0};                 // share of a token's experts that the token before used, too
  std::uint64_t tokens{0};
};
struct CacheRow {            // of keys and values
  std::int64_t cells{0};     // that there are
  std::int64_t used_max{0};  // by positions of the sequences that were seen
  std::int64_t attended{0};  // by the last attention
};
struct TokenRow {  // one micro-batch or decode call, for the timeline
  std::int64_t begin_ns{0};
  double ms{0};
  std::int64_t tokens{0};
  Phase phase{};
};
/// A kind of graph: how often it ran, and the share that could run side by side.
struct GraphRow {
  std::uint32_t definition{0};
  std::uint64_t runs{0};
  std::size_t nodes{0}, computed{0};  // computed: no views
  Phase phase{};
  double ns{0};                     // of a run, on average; by its operators
  double critical_ns{0};            // of the longest path through it
  std::vector<std::uint32_t> path;  // nodes of that path
  std::vector<double> node_ns;      // by node, on average
};

struct ProcessFigures {
  std::int32_t pid{0};
  std::string name, ggml;
  std::uint64_t decodes{0}, unanswered{0};  // unanswered: without a result
  std::map<std::int64_t, std::uint64_t> results;
  std::int64_t decode_tokens{0};
  std::uint64_t micro_batches{0}, graphs{0}, graphs_whole{0}, splits{0};
  std::optional<std::uint64_t> uids;  // graphs that were built: the others ran again
  std::int64_t micro_batch_tokens{0}, generated{0}, prompt{0};  // of micro-batches
  /// Speculative decoding: of the last verification of a sequence more may be accepted.
  struct Drafts {
    std::int64_t micro_batches{0}, tokens{0}, accepted{0};
  } drafts;
  std::optional<double> ms_p50, ms_p99;     // of a micro-batch that decodes
  std::optional<double> tokens_per_second;  // of decodes, per time in calls
  std::optional<double> prefill_per_second;
  std::vector<OperatorRow> operators;  // by time
  std::vector<NodeRow> nodes;          // by time
  std::vector<ThreadRow> threads;      // by number; empty without barriers
  double graph_ns{0};                  // of the graphs that `threads` is about
  std::optional<double> imbalance;     // sum of longest minus mean busy time, to the longest's
  std::vector<ExpertRow> experts;
  std::optional<CacheRow> cache;
  std::vector<TokenRow> timeline;  // at most kTimelineMax, evenly chosen
  std::vector<GraphRow> definitions;
  double runnable_ns{0}, blocked_ns{0};  // of all threads while they were busy
  bool has_scheduler{false};
  std::map<std::string, std::string> unknown;  // infer/unknown.h: these figures are not 0
};
inline constexpr std::size_t kTimelineMax = 2000;

struct Coverage {
  trace::ModelLevel level{};
  double seconds{0};
  std::uint64_t hits{0};
  double cost_seconds{0}, switching_seconds{0};  // of hits; of attaching and taking off
};
struct Report {
  std::vector<ProcessFigures> processes;
  std::vector<Coverage> coverage;               // by level
  double seconds{0};                            // of all windows
  double cost_share{0};                         // all cost to seconds
  std::map<std::string, std::uint64_t> losses;  // of severity data loss, above 0
  std::uint64_t unreadable{0};
};

/// Adds everything up. Deterministic; the run and its trace are borrowed for the call.
[[nodiscard]] Report make_report(const Run& run);

}  // namespace kansoku::infer
