// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace kansoku::trace {

// The words of recordings of models in inference: who writes them is capture/llm, who reads them
// infer. docs/formats/llm.md says which arguments each has.

// Categories of slices on the track of a thread that calls the model; each lies within the one
// before.
inline constexpr std::string_view kModelDecode = "llm.decode";
inline constexpr std::string_view kModelMicroBatch = "llm.micro_batch";
inline constexpr std::string_view kModelSchedule = "llm.schedule";
inline constexpr std::string_view kModelSplit = "llm.split";
inline constexpr std::string_view kModelGraph = "llm.graph";
// Categories of slices on the tracks of a graph's threads.
inline constexpr std::string_view kModelOperator = "llm.operator";
inline constexpr std::string_view kModelWait = "llm.wait";
// Category of slices on a track of their own: the time attached at a level; the slice is named
// after the level.
inline constexpr std::string_view kModelWindow = "llm.window";
// Category of instants: a node of a graph's definition.
inline constexpr std::string_view kModelNode = "llm.node";
// Category of instants: the program that is observed.
inline constexpr std::string_view kModelEngine = "llm.engine";

/// Names of the tracks below a process's own.
[[nodiscard]] std::string model_calls_track(std::uint32_t tid);
[[nodiscard]] std::string graph_thread_track(std::uint32_t ith, std::uint32_t caller_tid);
/// The thread of such a track; of a graph's thread its number and the thread that called for the
/// graph.
[[nodiscard]] std::optional<std::uint32_t> parse_model_calls_track(std::string_view name);
struct GraphThread {
  std::uint32_t ith{0}, caller{0};
};
[[nodiscard]] std::optional<GraphThread> parse_graph_thread_track(std::string_view name);

/// How closely a model is looked at; each level holds those before it.
enum class ModelLevel : std::uint8_t { kNone, kToken, kGraph, kOperator, kThread };
/// "none", "token", "graph", "operator", "thread".
[[nodiscard]] std::string_view model_level_name(ModelLevel level);
[[nodiscard]] std::optional<ModelLevel> model_level_from_name(std::string_view name);

/// How far a process can be seen; said by the newest kModelEngine of it.
struct ModelReach {
  std::string functions;  // the roles of those that are probed, as packs call them: "decode graph"
  ModelLevel level{ModelLevel::kThread};  // the highest one
  std::string why;                        // no higher one
  friend bool operator==(const ModelReach&, const ModelReach&) = default;
};

/// An operator of ggml that computes nothing: its result is a view of its source.
[[nodiscard]] bool is_view_operator(std::string_view op);

/// Shape of a tensor that an operator reads or writes.
struct TensorShape {
  std::string type;                  // "F32", "Q4_0"; at most 15 characters
  std::array<std::int64_t, 4> ne{};  // elements by dimension, the fastest first
  std::uint64_t bytes{0};            // from its first to its last byte, as strides say
  friend bool operator==(const TensorShape&, const TensorShape&) = default;
};
/// "F32 512x354x1x1 724992".
[[nodiscard]] std::string shape_text(const TensorShape& shape);
/// Nothing if it is none; sizes are 0 to 2^48.
[[nodiscard]] std::optional<TensorShape> parse_shape(std::string_view untrusted);

/// One source of a node: its shape, and where it comes from.
struct TensorSource {
  TensorShape shape;
  std::optional<std::uint32_t> node{};  // of the same graph
  std::string leaf{};                   // otherwise: the name of a weight, an input, a cache
  friend bool operator==(const TensorSource&, const TensorSource&) = default;
};
/// "F32 512x1x1x1 2048 #12" or "F32 512x512x1x1 1048576 =blk.0.attn_q.weight".
[[nodiscard]] std::string source_text(const TensorSource& source);
[[nodiscard]] std::optional<TensorSource> parse_source(std::string_view untrusted);

}  // namespace kansoku::trace
