// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <set>
#include <unordered_map>

#include "capture/outside/call.h"
#include "capture/outside/names.h"

namespace kansoku::capture::outside {

/// Contents of a graph.
struct GraphContents {
  std::map<KernelId, std::uint64_t> kernels{};  // and how often each
  std::uint64_t other_nodes{0};
  bool is_known{true};  // false: made before, or in ways that do not tell
  bool is_work{true};   // nothing but kernels, copies and sets
};

/// The graphs of one process, and its streams that are being captured: launches there do not run.
/// Bounded: kGraphsMax of each; those over it are not known. Not shared between threads.
class Graphs {
 public:
  static constexpr std::size_t kGraphsMax = 16'384;
  static constexpr std::size_t kKernelsMax = 4'096;  // of one graph, distinct
  static constexpr std::size_t kStreamsMax = 16'384;

  /// A call of any kind, as it begins; true: it is taken into a graph, and does not run.
  bool on_begin(const Call& call, Names& names);
  /// The end of one that returned 0.
  void on_end(const Call& call, Names& names);
  void forget();

  /// Contents of a launch of `exec`; null or !is_known: they were not seen.
  [[nodiscard]] const GraphContents* launched(std::uint64_t exec) const;
  [[nodiscard]] bool is_capturing(const StreamId& stream) const {
    return captured_.contains(stream);
  }

 private:
  struct Capture {
    GraphContents contents;
    std::set<StreamId> streams;
    std::set<std::uint64_t> events;
  };
  Capture* capture_of(const StreamId& stream);
  void add_captured(const Call& call, Capture& capture, Names& names);
  void end_capture(const Call& call);
  void on_change(const Call& call, Names& names);
  void put(std::unordered_map<std::uint64_t, GraphContents>& where, std::uint64_t handle,
           GraphContents contents);

  std::map<StreamId, StreamId> captured_;  // the stream where the capture began, by stream
  std::map<StreamId, Capture> captures_;   // by that
  std::map<std::uint64_t, StreamId> captured_events_;
  std::unordered_map<std::uint64_t, GraphContents> graphs_, execs_;
};

}  // namespace kansoku::capture::outside
