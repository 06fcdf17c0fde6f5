// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "diagnose/internal/steps/job.h"
#include "trace/model.h"

namespace kansoku::diagnose {

/// Text of an id from a trace; empty for an id that the trace does not have.
[[nodiscard]] std::string_view text_of(const trace::Trace& trace, trace::StringId id);

/// The arguments of a row; empty for a range that the trace does not have. Borrowed from it.
[[nodiscard]] std::span<const trace::ArgValue> args_of(const trace::Trace& trace,
                                                       std::uint32_t begin, std::uint32_t count);

/// Kind of a slice of a known category with this name.
[[nodiscard]] EventKind classify_name(std::string_view name);
/// Kind of a slice of the category "message" with this name.
[[nodiscard]] std::optional<MessageEvent::Kind> classify_message(std::string_view name);
/// The operation of a collective: "allreduce" for "c10d::ProcessGroupGloo::allreduce",
/// "gloo::allreduce", "ncclAllReduce".
[[nodiscard]] std::string op_name(std::string_view name);

/// Part of a step that a Python frame belongs to.
enum class FrameRole : std::uint8_t { kNone, kInput, kForward, kBackward, kOptimizer };
[[nodiscard]] FrameRole classify_frame(std::string_view function, std::string_view file);
/// True for a frame of the data loader's main process that waits for a worker process.
[[nodiscard]] bool is_worker_wait(std::string_view function, std::string_view file);
/// True for a frame of a worker process that waits for its next order.
[[nodiscard]] bool is_worker_idle(std::string_view function, std::string_view file);

/// True for the calls of torch.distributed that send, receive and wait: whoever sleeps there waits
/// for another rank. Its checkpoints and servers are no such calls.
[[nodiscard]] bool is_communication(std::string_view file);

/// True for the frames of torch.distributed and of its wrappers of models: whoever sleeps with one
/// of them innermost waits for another rank.
[[nodiscard]] bool is_distributed(std::string_view file);

/// Names and categories of one trace, each classified once.
class NameTable {
 public:
  explicit NameTable(const trace::Trace& trace);

  [[nodiscard]] bool is_known_category(trace::StringId category) const;
  [[nodiscard]] bool is_message(trace::StringId category) const {
    return category == message_ && message_ != trace::StringId{};
  }
  [[nodiscard]] EventKind kind_of(trace::StringId name) const;
  /// Index into `ops()`; 0 for a name that is no collective.
  [[nodiscard]] std::uint32_t op_of(trace::StringId name) const;
  [[nodiscard]] const std::vector<std::string>& ops() const { return ops_; }

 private:
  void add_op(std::uint32_t id, std::string_view name);

  std::vector<EventKind> kinds_;     // by string id
  std::vector<std::uint32_t> op_;    // by string id
  std::vector<std::uint8_t> known_;  // by string id: 1 for a category we read
  std::vector<std::string> ops_;
  trace::StringId message_{};
};

}  // namespace kansoku::diagnose
