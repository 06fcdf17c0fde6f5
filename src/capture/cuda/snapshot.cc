// SPDX-License-Identifier: Apache-2.0
#include "capture/cuda/snapshot.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <optional>
#include <set>

#include "sys/clock.h"
#include "sys/kernel_name.h"

namespace kansoku::capture::cuda {
namespace {

/// By enum wire_cuda_class.
constexpr std::array<const char*, WIRE_CUDA_CLASSES> kClassNames{
    "?",    "kernel",      "graph", "copy",  "set",    "host function", "value", "allocation",
    "free", "synchronise", "query", "event", "module", "look-up",       "object"};

constexpr std::size_t kGraphKernelsShown = 6;

}  // namespace

const char* class_name(std::uint32_t what) {
  return what < kClassNames.size() ? kClassNames[what] : "?";
}

bool is_stream_operation(std::uint32_t what) {
  return what >= WIRE_CUDA_LAUNCH && what <= WIRE_CUDA_VALUE;
}

std::string short_name(const KernelInfo& kernel) {
  return kernel.name.empty() ? fmt::format("function@{:#x}", kernel.handle)
                             : sys::short_kernel_name(kernel.name);
}

Snapshot snapshot_of(const Channel& channel) {
  Snapshot out;
  out.at_ns = static_cast<std::uint64_t>(sys::RealClock().now().time_since_epoch().count());
  out.state = channel.state();
  out.entries = channel.entries();
  out.streams = channel.streams();
  out.waiters = channel.waiters();
  for (const StreamInfo& stream : out.streams)
    if (!out.contexts.contains(stream.context))
      out.contexts[stream.context] = channel.context(stream.context);
  const std::uint32_t count = channel.kernel_count();
  for (std::uint32_t i = 0; i < count; ++i) {
    auto info = channel.kernel(i);
    Durations durations = channel.kernel_durations(i);
    if (info && (info->launches + info->captured > 0 || durations.count > 0))
      out.kernels[i] = {std::move(*info), std::move(durations)};
  }
  for (std::uint32_t what = WIRE_CUDA_GRAPH_LAUNCH; what <= WIRE_CUDA_VALUE; ++what)
    out.classes[what] = channel.class_durations(what);
  std::uint32_t number = 0;
  for (GraphInfo& graph : channel.graphs())
    out.graphs.push_back({std::move(graph), channel.graph_durations(number++)});
  for (const Snapshot::Graph& graph : out.graphs)
    for (const std::uint16_t node : graph.info.nodes)  // launched by graphs alone
      if (!out.kernels.contains(node))
        if (auto info = channel.kernel(node))
          out.kernels[node] = {std::move(*info), channel.kernel_durations(node)};
  return out;
}

bool is_silent(const Snapshot& snapshot) {
  const wire_cuda_state& state = snapshot.state;
  return state.mode != WIRE_CUDA_DORMANT && state.poller_ns < snapshot.at_ns &&
         snapshot.at_ns - state.poller_ns >= kSilentNs;
}

std::optional<std::string> unseen_before(const Snapshot& snapshot) {
  const wire_cuda_state& state = snapshot.state;
  if (state.mode == WIRE_CUDA_DORMANT || state.awake_ns == 0) return std::nullopt;
  std::set<std::uint32_t> contexts, idle;  // idle: those whose default stream is done
  std::uint64_t made = 0, any = 0;         // that finished something since
  for (const StreamInfo& stream : snapshot.streams) {
    contexts.insert(stream.context);
    if (stream.done_ns < state.awake_ns) continue;
    ++any;
    if ((stream.kind & (WIRE_CUDA_LEGACY | WIRE_CUDA_PER_THREAD)) == 0) ++made;
  }
  for (const auto& [number, context] : snapshot.contexts)
    if (context.default_done_ns >= state.awake_ns) idle.insert(number);
  // A device that was not used since may still be at work.
  const bool are_all_seen = contexts.size() >= state.devices_used;
  const bool has_waited = contexts.size() <= 1 && state.whole_done_ns >= state.awake_ns;
  const bool are_all_done =
      any > 0 && made >= state.streams_live &&
      std::includes(idle.begin(), idle.end(), contexts.begin(), contexts.end());
  if (are_all_seen && (has_waited || are_all_done)) return std::nullopt;
  const double seconds =
      1e-9 *
      static_cast<double>(snapshot.at_ns - std::min<std::uint64_t>(snapshot.at_ns, state.awake_ns));
  return fmt::format(
      "the library awoke {:.1f} s ago, and what was handed over before may still run: {} of {} "
      "streams have finished something since{}",
      seconds, any, std::max<std::uint64_t>(state.streams_live, snapshot.streams.size()),
      idle.size() < contexts.size() ? ", and the default stream is not known to be done" : "");
}

std::map<std::uint32_t, ClassTotals> totals_of(const Snapshot& snapshot) {
  std::map<std::uint32_t, ClassTotals> out;
  for (const EntryTotals& entry : snapshot.entries) {
    ClassTotals& to = out[entry.what];
    to.calls += entry.calls - std::min(entry.calls, entry.failed + entry.captured);
    to.failed += entry.failed;
    to.bytes += entry.bytes;
  }
  return out;
}

std::vector<std::string> graph_kernels(const Snapshot& snapshot, const Suspect& operation) {
  std::vector<std::string> out;
  if (operation.what != WIRE_CUDA_GRAPH_LAUNCH || operation.kernel >= snapshot.graphs.size())
    return out;
  for (const std::uint16_t node : snapshot.graphs[operation.kernel].info.nodes) {
    const auto kernel = snapshot.kernels.find(node);
    std::string name = kernel == snapshot.kernels.end() ? "?" : short_name(kernel->second.info);
    if (std::find(out.begin(), out.end(), name) == out.end()) out.push_back(std::move(name));
  }
  return out;
}

std::string operation_name(const Snapshot& snapshot, const Suspect& operation) {
  if (operation.what == WIRE_CUDA_EVENT) return "wait for an event";
  if (const std::vector<std::string> kernels = graph_kernels(snapshot, operation);
      !kernels.empty()) {
    const GraphInfo& graph = snapshot.graphs[operation.kernel].info;
    const std::size_t shown = std::min<std::size_t>(kernels.size(), kGraphKernelsShown);
    return fmt::format("graph of {} kernel{} ({}{})", graph.kernels, graph.kernels == 1 ? "" : "s",
                       fmt::join(kernels.begin(), kernels.begin() + static_cast<long>(shown), ", "),
                       shown < kernels.size() ? ", ..." : "");
  }
  if (operation.what != WIRE_CUDA_LAUNCH) return class_name(operation.what);
  const auto found = snapshot.kernels.find(operation.kernel);
  return found == snapshot.kernels.end() ? std::string("kernel ?")
                                         : "kernel " + short_name(found->second.info);
}

std::string suspects_text(const Snapshot& snapshot, const Stuck& stuck) {
  if (stuck.suspects.size() == 1 && stuck.forgotten == 0) {
    std::string out = operation_name(snapshot, stuck.suspects[0]);
    const auto at = snapshot.kernels.find(stuck.stream.at_kernel);
    const bool is_graph = stuck.suspects[0].what == WIRE_CUDA_GRAPH_LAUNCH;
    return is_graph && at != snapshot.kernels.end()
               ? fmt::format("{}, at its kernel {}", out, short_name(at->second.info))
               : out;
  }
  std::vector<std::string> names;
  for (const Suspect& one : stuck.suspects) {
    std::string name = operation_name(snapshot, one);
    if (std::find(names.begin(), names.end(), name) == names.end())
      names.push_back(std::move(name));
  }
  constexpr std::size_t kNamesShown = 6;
  const std::size_t more = names.size() > kNamesShown ? names.size() - kNamesShown : 0;
  names.resize(names.size() - more);
  return fmt::format("one of {} operations ({}{})", stuck.suspects.size() + stuck.forgotten,
                     fmt::join(names, ", "), more > 0 ? fmt::format(" and {} more", more) : "");
}

namespace {

History history_from(const Durations& durations) {
  return {durations.count, durations.at_most_ns(kStuckQuantile),
          static_cast<std::uint32_t>(std::min<std::uint64_t>(durations.largest, UINT32_MAX))};
}

/// The longest of all operations that may still run: not of those that were all timed and ended.
std::optional<History> longest_history(const Snapshot& snapshot) {
  History out{UINT64_MAX, 0};
  const auto add = [&](const Durations& durations, std::uint64_t launches) {
    if (launches <= durations.count) return;
    out.count = std::min(out.count, durations.count);
    out.p99_ns = std::max(out.p99_ns, durations.at_most_ns(kStuckQuantile));
  };
  for (const auto& [index, kernel] : snapshot.kernels)
    add(kernel.durations, kernel.info.launches);
  for (const Snapshot::Graph& graph : snapshot.graphs)
    add(graph.durations, graph.info.launches);
  for (const auto& [what, totals] : totals_of(snapshot))
    if (const auto found = snapshot.classes.find(what);
        found != snapshot.classes.end() && what != WIRE_CUDA_GRAPH_LAUNCH)
      add(found->second, totals.calls);
  return out.count == UINT64_MAX ? std::nullopt : std::optional(out);
}

}  // namespace

std::optional<History> history_in(const Snapshot& snapshot, std::uint32_t what,
                                  std::uint32_t index) {
  if (what == kAnyOperation) return longest_history(snapshot);
  if (what == WIRE_CUDA_LAUNCH) {
    const auto found = snapshot.kernels.find(index);
    if (found == snapshot.kernels.end()) return std::nullopt;
    return history_from(found->second.durations);
  }
  if (what == WIRE_CUDA_GRAPH_LAUNCH && index < snapshot.graphs.size())
    return history_from(snapshot.graphs[index].durations);
  const auto found = snapshot.classes.find(what);
  if (found == snapshot.classes.end()) return std::nullopt;
  return history_from(found->second);
}

std::uint64_t waiting_since_in(const Snapshot& snapshot) {
  std::uint64_t out = 0;
  for (const Waiter& waiter : snapshot.waiters)
    if (out == 0 || waiter.since_ns < out) out = waiter.since_ns;
  return out;
}

std::vector<Stuck> stuck_in(const Snapshot& snapshot) {
  const auto history = [&](std::uint32_t what, std::uint32_t index) {
    return history_in(snapshot, what, index);
  };
  std::vector<Stuck> out =
      find_stuck(snapshot.streams, snapshot.at_ns, history, waiting_since_in(snapshot));
  // One that has not begun may wait for what was handed over before the library awoke.
  if (snapshot.state.awake_ns != 0 && unseen_before(snapshot))
    for (Stuck& one : out)
      if (one.kind == StuckKind::kStuck && !one.stream.is_begun &&
          one.stream.done_ns < snapshot.state.awake_ns)
        one.kind = StuckKind::kUnknown;
  return out;
}

}  // namespace kansoku::capture::cuda
