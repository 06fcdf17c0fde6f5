// SPDX-License-Identifier: Apache-2.0
#include "capture/outside/graphs.h"

#include <utility>

namespace kansoku::capture::outside {
namespace {

void add_kernel(GraphContents& contents, KernelId id, std::uint64_t count = 1) {
  if (contents.kernels.size() >= Graphs::kKernelsMax && !contents.kernels.contains(id)) {
    contents.is_known = false;
    return;
  }
  contents.kernels[id] += count;
}

void add_all(GraphContents& contents, const GraphContents& more) {
  for (const auto& [id, count] : more.kernels)
    add_kernel(contents, id, count);
  contents.other_nodes += more.other_nodes;
  contents.is_known = contents.is_known && more.is_known;
  contents.is_work = contents.is_work && more.is_work;
}

}  // namespace

Graphs::Capture* Graphs::capture_of(const StreamId& stream) {
  const auto origin = captured_.find(stream);
  if (origin == captured_.end()) return nullptr;
  const auto capture = captures_.find(origin->second);
  return capture == captures_.end() ? nullptr : &capture->second;
}

void Graphs::add_captured(const Call& call, Capture& capture, Names& names) {
  GraphContents& contents = capture.contents;
  switch (call.entry->kind) {
    case Kind::kLaunch:
      if (call.has(Key::kFunction))
        add_kernel(contents, names.id_of(call.number(Key::kFunction)));
      else
        contents.is_known = false;
      return;
    case Kind::kCopy:
    case Kind::kSet:
      ++contents.other_nodes;
      return;
    case Kind::kGraphLaunch: {
      const GraphContents* child = launched(call.number(Key::kExec));
      add_all(contents, child == nullptr ? GraphContents{.is_known = false} : *child);
      return;
    }
    case Kind::kEventRecord:
      if (captured_events_.size() >= kStreamsMax) return;
      capture.events.insert(call.number(Key::kEvent));
      captured_events_[call.number(Key::kEvent)] = captured_.at(stream_of(call));
      return;
    case Kind::kStreamWait:
      return;
    default:
      contents.is_work = false;
      ++contents.other_nodes;
  }
}

bool Graphs::on_begin(const Call& call, Names& names) {
  const Kind kind = call.entry->kind;
  // As it begins: when it ends, another thread's graph may have the handle.
  if (call.entry->action == Action::kGraphEnd) graphs_.erase(call.number(Key::kGraph));
  if (call.entry->action == Action::kExecEnd) execs_.erase(call.number(Key::kExec));
  if (captured_.empty() && captured_events_.empty()) return false;
  if (kind == Kind::kStreamWait) {  // by an event of a capture a stream joins it
    const auto event = captured_events_.find(call.number(Key::kEvent));
    const StreamId stream = stream_of(call);
    if (event == captured_events_.end()) return captured_.contains(stream);
    if (!captured_.contains(stream) && captured_.size() < kStreamsMax) {
      captured_.emplace(stream, event->second);
      captures_[event->second].streams.insert(stream);
    }
    return true;
  }
  const bool is_of_stream =
      kind == Kind::kLaunch || kind == Kind::kGraphLaunch || kind == Kind::kHostFunction ||
      kind == Kind::kStreamMemory || kind == Kind::kEventRecord ||
      ((kind == Kind::kCopy || kind == Kind::kSet || kind == Kind::kAlloc || kind == Kind::kFree) &&
       call.has(Key::kStream));
  if (!is_of_stream) return false;
  if (kind == Kind::kEventRecord && !captured_.contains(stream_of(call))) {
    captured_events_.erase(call.number(Key::kEvent));  // recorded anew
    return false;
  }
  Capture* capture = capture_of(stream_of(call));
  if (capture == nullptr) return false;
  add_captured(call, *capture, names);
  return true;
}

void Graphs::put(std::unordered_map<std::uint64_t, GraphContents>& where, std::uint64_t handle,
                 GraphContents contents) {
  if (handle == 0) return;
  if (where.size() >= kGraphsMax && !where.contains(handle)) return;  // not known then
  where[handle] = std::move(contents);
}

void Graphs::end_capture(const Call& call) {
  const StreamId stream = stream_of(call);
  const auto found = captures_.find(stream);
  if (found == captures_.end()) return;
  Capture capture = std::move(found->second);
  captures_.erase(found);
  for (const StreamId& one : capture.streams)
    captured_.erase(one);
  for (const std::uint64_t event : capture.events)
    captured_events_.erase(event);
  // One that began before is not whole; the graph of a failed one is 0.
  if (call.has(Key::kGraph)) put(graphs_, call.number(Key::kGraph), std::move(capture.contents));
}

void Graphs::on_change(const Call& call, Names& names) {
  const std::uint64_t graph = call.number(Key::kGraph), exec = call.number(Key::kExec);
  const auto of = [](const auto& where, std::uint64_t handle) {
    const auto found = where.find(handle);
    return found == where.end() ? GraphContents{.is_known = false} : found->second;
  };
  switch (call.entry->action) {
    case Action::kGraphCreate:
      return put(graphs_, graph, {});
    case Action::kAddKernelNode:
      if (graphs_.contains(graph) && call.has(Key::kFunction))
        return add_kernel(graphs_[graph], names.id_of(call.number(Key::kFunction)));
      [[fallthrough]];
    case Action::kAddAnyNode:
      if (graphs_.contains(graph)) graphs_[graph].is_known = graphs_[graph].is_work = false;
      return;
    case Action::kAddChildGraph:
      if (graphs_.contains(graph)) add_all(graphs_[graph], of(graphs_, call.number(Key::kChild)));
      return;
    case Action::kCloneGraph:
      return put(graphs_, graph, of(graphs_, call.number(Key::kChild)));
    case Action::kChangeNode:  // the node does not tell its graph
      for (auto& [handle, contents] : graphs_)
        contents.is_known = contents.is_work = false;
      return;
    case Action::kChangeExec:
      if (execs_.contains(exec)) execs_[exec].is_known = execs_[exec].is_work = false;
      return;
    case Action::kInstantiate:
    case Action::kUpdateExec:
      return put(execs_, exec, of(graphs_, graph));
    default:
      return;
  }
}

void Graphs::on_end(const Call& call, Names& names) {
  switch (call.entry->action) {
    case Action::kBeginCapture: {
      const StreamId stream = stream_of(call);
      if (captured_.size() >= kStreamsMax) return;
      captured_[stream] = stream;
      captures_[stream] = {};
      captures_[stream].streams.insert(stream);
      if (call.has(Key::kGraph)) {  // it goes on with a graph that there is
        const auto graph = graphs_.find(call.number(Key::kGraph));
        captures_[stream].contents =
            graph == graphs_.end() ? GraphContents{.is_known = false} : graph->second;
      }
      return;
    }
    case Action::kEndCapture:
      return end_capture(call);
    default:
      return on_change(call, names);
  }
}

void Graphs::forget() {
  captured_.clear();
  captures_.clear();
  captured_events_.clear();
  graphs_.clear();
  execs_.clear();
}

const GraphContents* Graphs::launched(std::uint64_t exec) const {
  const auto found = execs_.find(exec);
  return found == execs_.end() || !found->second.is_known ? nullptr : &found->second;
}

}  // namespace kansoku::capture::outside
