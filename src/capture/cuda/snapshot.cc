// SPDX-License-Identifier: Apache-2.0
#include "capture/cuda/snapshot.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <optional>

#include "sys/clock.h"
#include "sys/kernel_name.h"

namespace kansoku::capture::cuda {
namespace {

/// By enum wire_cuda_class.
constexpr std::array<const char*, WIRE_CUDA_CLASSES> kClassNames{
    "?",    "kernel",      "graph", "copy",  "set",    "host function", "value", "allocation",
    "free", "synchronise", "query", "event", "module", "look-up",       "object"};

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
  const std::uint32_t count = channel.kernel_count();
  for (std::uint32_t i = 0; i < count; ++i) {
    auto info = channel.kernel(i);
    Durations durations = channel.kernel_durations(i);
    if (info && (info->launches + info->captured > 0 || durations.count > 0))
      out.kernels[i] = {std::move(*info), std::move(durations)};
  }
  for (std::uint32_t what = WIRE_CUDA_GRAPH_LAUNCH; what <= WIRE_CUDA_VALUE; ++what)
    out.classes[what] = channel.class_durations(what);
  return out;
}

bool is_silent(const Snapshot& snapshot) {
  constexpr std::uint64_t kSilentNs = 1'000'000'000;
  const wire_cuda_state& state = snapshot.state;
  return state.mode != WIRE_CUDA_DORMANT && state.poller_ns < snapshot.at_ns &&
         snapshot.at_ns - state.poller_ns >= kSilentNs;
}

std::string operation_name(const Snapshot& snapshot, const Suspect& operation) {
  if (operation.what == WIRE_CUDA_EVENT) return "wait for an event";
  const bool is_graph = operation.what == WIRE_CUDA_GRAPH_LAUNCH;
  if (operation.what != WIRE_CUDA_LAUNCH && !is_graph) return class_name(operation.what);
  const auto found = snapshot.kernels.find(operation.kernel);
  if (found != snapshot.kernels.end())
    return (is_graph ? "graph, at its kernel " : "kernel ") + short_name(found->second.info);
  return is_graph ? "graph" : "kernel ?";
}

std::string suspects_text(const Snapshot& snapshot, const Stuck& stuck) {
  if (stuck.suspects.size() == 1 && stuck.forgotten == 0)
    return operation_name(snapshot, stuck.suspects[0]);
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

std::vector<Stuck> stuck_in(const Snapshot& snapshot) {
  const auto history = [&](std::uint32_t what, std::uint32_t kernel) -> std::optional<History> {
    const Durations* durations = nullptr;
    if (what == WIRE_CUDA_LAUNCH) {
      const auto found = snapshot.kernels.find(kernel);
      if (found != snapshot.kernels.end()) durations = &found->second.durations;
    } else if (const auto found = snapshot.classes.find(what); found != snapshot.classes.end()) {
      durations = &found->second;
    }
    if (durations == nullptr) return std::nullopt;
    return History{durations->count, durations->at_most_ns(0.99)};
  };
  std::uint64_t waiting_since_ns = 0;
  for (const Waiter& waiter : snapshot.waiters)
    if (waiting_since_ns == 0 || waiter.since_ns < waiting_since_ns)
      waiting_since_ns = waiter.since_ns;
  return find_stuck(snapshot.streams, snapshot.at_ns, history, waiting_since_ns);
}

std::uint64_t collectives_of(const Snapshot& snapshot) {
  std::uint64_t out = 0;
  for (const EntryTotals& entry : snapshot.entries)
    if (entry.what == WIRE_CUDA_HOST_FUNCTION)
      out += entry.calls - std::min(entry.calls, entry.failed + entry.captured);
  for (const auto& [index, kernel] : snapshot.kernels)
    if (kernel.info.name.find("nccl") != std::string::npos) out += kernel.info.launches;
  return out;
}

std::vector<std::size_t> missing_of(const std::vector<RankLook>& ranks) {
  std::vector<std::size_t> out;
  std::uint64_t most = 0;
  for (const RankLook& rank : ranks)
    most = std::max(most, rank.collectives);
  const bool is_any_stuck =
      std::any_of(ranks.begin(), ranks.end(), [](const RankLook& rank) { return rank.is_stuck; });
  for (std::size_t i = 0; i < ranks.size(); ++i)
    if (is_any_stuck && (ranks[i].is_stopped || ranks[i].collectives < most)) out.push_back(i);
  return out;
}

}  // namespace kansoku::capture::cuda
