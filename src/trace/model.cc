// SPDX-License-Identifier: Apache-2.0
#include "trace/model.h"

#include "common/check.h"

namespace kansoku::trace {

StringPool::StringPool() {
  intern("");
}

StringId StringPool::intern(std::string_view text) {
  if (const auto found = ids_.find(text); found != ids_.end()) return found->second;
  const StringId id{static_cast<std::uint32_t>(strings_.size())};
  strings_.emplace_back(text);
  ids_.emplace(strings_.back(), id);
  return id;
}

StringId StringPool::find(std::string_view text) const {
  const auto found = ids_.find(text);
  return found == ids_.end() ? StringId{} : found->second;
}

std::string_view StringPool::view(StringId id) const {
  CHECK(id.raw < strings_.size());
  return strings_[id.raw];
}

std::span<const FrameId> StackTable::at(StackId id) const {
  CHECK(id.raw < size());
  return std::span(frames).subspan(begin[id.raw], begin[id.raw + 1] - begin[id.raw]);
}

const ArgValue* Trace::slice_arg(std::size_t slice, StringId key) const {
  CHECK(slice < slices.size());
  for (std::uint32_t i = 0; i < slices.arg_count[slice]; ++i) {
    const ArgValue& arg = args[slices.arg_begin[slice] + i];
    if (arg.key == key) return &arg;
  }
  return nullptr;
}

bool Trace::is_lossy() const {
  for (const auto& [name, loss] : losses) {
    if (loss.severity >= Severity::kDataLoss && loss.count > 0) return true;
  }
  return false;
}

std::int32_t process_of_track(const Trace& trace, TrackId id) {
  constexpr int kDepthMax = 8;
  for (int depth = 0; depth < kDepthMax && id.raw < trace.tracks.size(); ++depth) {
    const Track& track = trace.tracks[id.raw];
    const bool says =
        track.pid != 0 || track.kind == TrackKind::kProcess || track.kind == TrackKind::kThread;
    if (says) return track.pid;
    id = track.parent;
  }
  return 0;
}

void measure_window(Trace& trace) {
  std::int64_t first = std::numeric_limits<std::int64_t>::max();
  std::int64_t last = std::numeric_limits<std::int64_t>::min();
  const auto see = [&](const std::vector<std::int64_t>& times) {
    for (const std::int64_t time : times) {
      first = std::min(first, time);
      last = std::max(last, time);
    }
  };
  see(trace.slices.start_ns);
  see(trace.samples.time_ns);
  see(trace.switches.time_ns);
  see(trace.wakes.time_ns);
  see(trace.counters.time_ns);
  see(trace.instants.time_ns);
  for (std::size_t i = 0; i < trace.slices.size(); ++i) {
    const auto end =
        static_cast<std::uint64_t>(trace.slices.start_ns[i]) +
        static_cast<std::uint64_t>(std::max<std::int64_t>(trace.slices.duration_ns[i], 0));
    last = std::max(last, static_cast<std::int64_t>(end));
  }
  if (first <= last) {
    trace.begin_ns = first;
    trace.end_ns = last;
  }
}

}  // namespace kansoku::trace
