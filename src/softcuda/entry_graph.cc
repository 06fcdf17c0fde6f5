// SPDX-License-Identifier: Apache-2.0
// Graphs, and streams that capture one.
#include <algorithm>
#include <cstring>
#include <functional>
#include <mutex>
#include <optional>
#include <set>

#include "softcuda/internal/runtime.h"

namespace kansoku::softcuda {
namespace {

/// Changes of graphs go through here, one at a time. A node's handle is its address.
class Editor {
 public:
  Editor() : lock_(runtime()->graph_mutex) {}

  CUresult find(CUgraph handle, std::shared_ptr<Graph>& graph) const {
    graph = runtime()->graphs.find(handle);
    return graph == nullptr ? CUDA_ERROR_INVALID_HANDLE : CUDA_SUCCESS;
  }
  CUresult find(CUgraphNode handle, GraphNode*& node) const {
    auto* const candidate = reinterpret_cast<GraphNode*>(handle);
    const std::scoped_lock lock(runtime()->nodes_mutex);
    if (runtime()->nodes.count(candidate) == 0) return CUDA_ERROR_INVALID_HANDLE;
    node = candidate;
    return CUDA_SUCCESS;
  }
  CUresult find_all(const CUgraphNode* handles, std::size_t count, const Graph& graph,
                    std::vector<GraphNode*>& nodes) const {
    constexpr std::size_t kCountMax = std::size_t{1} << 20;
    if (count > kCountMax || (count != 0 && handles == nullptr)) return CUDA_ERROR_INVALID_VALUE;
    for (std::size_t i = 0; i < count; ++i) {
      GraphNode* node = nullptr;
      KANSOKU_CU_TRY(find(handles[i], node));
      if (node->graph != &graph) return CUDA_ERROR_INVALID_VALUE;
      nodes.push_back(node);
    }
    return CUDA_SUCCESS;
  }
  static CUgraphNode handle(GraphNode* node) { return reinterpret_cast<CUgraphNode>(node); }
  static void forget(GraphNode& node) {
    {
      const std::scoped_lock lock(runtime()->nodes_mutex);
      runtime()->nodes.erase(&node);
    }
    auto* const child = std::get_if<ChildGraph>(&node.operation);
    if (child == nullptr) return;
    runtime()->graphs.remove(child->handle);
    forget(*child->graph);
  }
  static void forget(const Graph& graph) {
    for (const auto& node : graph.nodes)
      forget(*node);
  }

 private:
  std::scoped_lock<std::mutex> lock_;
};

struct Addition {
  CUgraphNode* node{nullptr};
  CUgraph graph{nullptr};
  const CUgraphNode* after{nullptr};
  std::size_t count{0};
};

CUresult add_node(const Addition& addition, CUgraphNodeType type, Operation operation) {
  std::shared_ptr<Context> context;
  KANSOKU_CU_TRY(enter(context));
  if (addition.node == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const Editor editor;
  std::shared_ptr<Graph> graph;
  KANSOKU_CU_TRY(editor.find(addition.graph, graph));
  std::vector<GraphNode*> after;
  KANSOKU_CU_TRY(editor.find_all(addition.after, addition.count, *graph, after));
  if (std::set<GraphNode*>(after.begin(), after.end()).size() != after.size())
    return CUDA_ERROR_INVALID_VALUE;
  GraphNode* const node = graph->add(type, std::move(operation), std::move(after));
  publish(*node);
  *addition.node = Editor::handle(node);
  return CUDA_SUCCESS;
}

CUresult launch_of(const CUDA_KERNEL_NODE_PARAMS& params, KernelLaunch& launch) {
  const CUfunction handle =
      params.func != nullptr ? params.func : reinterpret_cast<CUfunction>(params.kern);
  std::shared_ptr<Context> context;
  if (params.ctx != nullptr) {
    context = runtime()->contexts.find(params.ctx);
    if (context == nullptr) return CUDA_ERROR_INVALID_CONTEXT;
  }
  std::shared_ptr<Function> function;
  KANSOKU_CU_TRY(find_function(handle, std::move(context), function));
  launch.handle = handle;
  launch.grid = {params.gridDimX, params.gridDimY, params.gridDimZ};
  launch.block = {params.blockDimX, params.blockDimY, params.blockDimZ};
  launch.shared_bytes = params.sharedMemBytes;
  return make_launch(function, launch, params.kernelParams, params.extra);
}

CUresult copy_of(const CUDA_MEMCPY3D& shape, Copy& copy) {
  bool is_from_pageable = false, is_to_pageable = false;
  return make_copy(shape, copy, is_from_pageable, is_to_pageable);
}

CUresult fill_of(const CUDA_MEMSET_NODE_PARAMS& shape, Fill& fill) {
  const bool is_element =
      shape.elementSize == 1 || shape.elementSize == 2 || shape.elementSize == 4;
  constexpr std::size_t kExtentMax = std::size_t{1} << 31;
  if (!is_element || shape.width == 0 || shape.height == 0 || shape.width > kExtentMax ||
      shape.height > kExtentMax || shape.pitch > kExtentMax || shape.dst % shape.elementSize != 0)
    return CUDA_ERROR_INVALID_VALUE;
  if (shape.height > 1 &&
      (shape.pitch < shape.width * shape.elementSize || shape.pitch % shape.elementSize != 0))
    return CUDA_ERROR_INVALID_VALUE;
  const std::size_t bytes = (shape.height - 1) * shape.pitch + shape.width * shape.elementSize;
  if (!runtime()->is_known(shape.dst, bytes)) return CUDA_ERROR_INVALID_VALUE;
  fill.shape = shape;
  return CUDA_SUCCESS;
}

/// One reader or writer of an instance. A launch holds the instance, then asks for its context, and
/// that, while it captures, for the graphs: so does this, in the same order.
class InstanceEditor {
 public:
  explicit InstanceEditor(CUgraphExec handle) : exec_(runtime()->graph_execs.find(handle)) {
    if (exec_ != nullptr) lock_ = std::unique_lock(exec_->mutex);
    graphs_.emplace();
  }
  [[nodiscard]] bool is_known() const { return exec_ != nullptr; }
  [[nodiscard]] Graph& graph() const { return *exec_->graph; }
  [[nodiscard]] const Editor& graphs() const { return *graphs_; }
  /// The node that was made of one of the graph's, which must still be there.
  CUresult find_twin(CUgraphNode handle, GraphNode*& twin) const {
    if (exec_ == nullptr) return CUDA_ERROR_INVALID_HANDLE;
    GraphNode* node = nullptr;
    if (graphs_->find(handle, node) != CUDA_SUCCESS) return CUDA_ERROR_INVALID_VALUE;
    twin = exec_->graph->find_copy_of(*node);
    return twin == nullptr ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
  }

 private:
  std::shared_ptr<GraphExec> exec_;
  std::unique_lock<std::mutex> lock_;
  std::optional<Editor> graphs_;
};

/// Changes a node of a graph that is already instantiated: by the node it was made from.
template <class Kind>
CUresult change_instance(CUgraphExec handle, CUgraphNode node_handle, Kind operation) {
  const InstanceEditor instance(handle);
  GraphNode* twin = nullptr;
  KANSOKU_CU_TRY(instance.find_twin(node_handle, twin));
  if (!std::holds_alternative<Kind>(twin->operation)) return CUDA_ERROR_INVALID_VALUE;
  twin->operation = std::move(operation);
  return CUDA_SUCCESS;
}

template <class Kind>
CUresult change_node(CUgraphNode handle, Kind operation) {
  const Editor editor;
  GraphNode* node = nullptr;
  KANSOKU_CU_TRY(editor.find(handle, node));
  if (!std::holds_alternative<Kind>(node->operation)) return CUDA_ERROR_INVALID_VALUE;
  node->operation = std::move(operation);
  return CUDA_SUCCESS;
}

template <class Kind>
CUresult read_node(CUgraphNode handle, const std::function<void(const Kind&)>& take) {
  if (runtime() == nullptr) return CUDA_ERROR_NOT_INITIALIZED;
  const Editor editor;
  GraphNode* node = nullptr;
  KANSOKU_CU_TRY(editor.find(handle, node));
  const auto* const kind = std::get_if<Kind>(&node->operation);
  if (kind == nullptr) return CUDA_ERROR_INVALID_VALUE;
  take(*kind);
  return CUDA_SUCCESS;
}

/// Writes up to *count handles and says how many there are.
CUresult give(const std::vector<GraphNode*>& nodes, CUgraphNode* out, std::size_t* count) {
  if (count == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (out != nullptr) {
    for (std::size_t i = 0; i < *count; ++i)
      out[i] = i < nodes.size() ? Editor::handle(nodes[i]) : nullptr;
  }
  *count = out == nullptr ? nodes.size() : std::min(*count, nodes.size());
  return CUDA_SUCCESS;
}

CUresult change_edges(CUgraph handle, const CUgraphNode* from, const CUgraphNode* to,
                      std::size_t count, bool is_added) {
  if (runtime() == nullptr) return CUDA_ERROR_NOT_INITIALIZED;
  const Editor editor;
  std::shared_ptr<Graph> graph;
  KANSOKU_CU_TRY(editor.find(handle, graph));
  std::vector<GraphNode*> begins, ends;
  KANSOKU_CU_TRY(editor.find_all(from, count, *graph, begins));
  KANSOKU_CU_TRY(editor.find_all(to, count, *graph, ends));
  // All of them or none.
  std::set<std::pair<GraphNode*, GraphNode*>> edges;
  for (std::size_t i = 0; i < count; ++i) {
    const auto& after = ends[i]->after;
    const bool is_there = std::find(after.begin(), after.end(), begins[i]) != after.end();
    if (is_there == is_added || begins[i] == ends[i] || !edges.emplace(begins[i], ends[i]).second)
      return CUDA_ERROR_INVALID_VALUE;
  }
  for (std::size_t i = 0; i < count; ++i) {
    if (is_added) {
      ends[i]->after.push_back(begins[i]);
    } else {
      std::erase(ends[i]->after, begins[i]);
    }
  }
  return CUDA_SUCCESS;
}

CUresult edges_of(CUgraph handle, CUgraphNode* from, CUgraphNode* to, CUgraphEdgeData* data,
                  std::size_t* count) {
  if (runtime() == nullptr) return CUDA_ERROR_NOT_INITIALIZED;
  const Editor editor;
  std::shared_ptr<Graph> graph;
  KANSOKU_CU_TRY(editor.find(handle, graph));
  std::vector<GraphNode*> begins, ends;
  for (const auto& node : graph->nodes) {
    for (GraphNode* const before : node->after) {
      begins.push_back(before);
      ends.push_back(node.get());
    }
  }
  if (count == nullptr || (from == nullptr) != (to == nullptr)) return CUDA_ERROR_INVALID_VALUE;
  std::size_t copy = *count;
  KANSOKU_CU_TRY(give(begins, from, &copy));
  if (data != nullptr) std::memset(data, 0, copy * sizeof *data);
  return give(ends, to, count);
}

CUresult instantiate(CUgraphExec* handle, CUgraph graph_handle, unsigned long long flags) {
  std::shared_ptr<Context> context;
  KANSOKU_CU_TRY(enter(context));
  constexpr unsigned long long kFromDevice = 4, kFlagsMask = 15;
  if (handle == nullptr || (flags & ~kFlagsMask) != 0) return CUDA_ERROR_INVALID_VALUE;
  if ((flags & kFromDevice) != 0) return CUDA_ERROR_NOT_SUPPORTED;
  const Editor editor;
  std::shared_ptr<Graph> graph;
  KANSOKU_CU_TRY(editor.find(graph_handle, graph));
  if (!graph->nodes.empty() && graph->sorted().empty()) return CUDA_ERROR_INVALID_VALUE;
  auto exec = std::make_shared<GraphExec>();
  exec->graph = graph->clone();
  exec->flags = flags;
  *handle = runtime()->graph_execs.add<CUgraphExec>(std::move(exec));
  return CUDA_SUCCESS;
}

using Records = std::vector<std::pair<std::shared_ptr<Event>, std::shared_ptr<Record>>>;

/// Binds events for a launch of the graph: waits are for records made before it, and records of the
/// graph are reached when the launch is done.
void bind_waits(Graph& graph) {
  for (const auto& node : graph.nodes) {
    if (auto* const child = std::get_if<ChildGraph>(&node->operation)) bind_waits(*child->graph);
    auto* const wait = std::get_if<EventWait>(&node->operation);
    if (wait == nullptr) continue;
    const std::scoped_lock lock(wait->event->mutex);
    wait->record = wait->event->record;
  }
}
void bind_records(Graph& graph, Records& records) {
  for (const auto& node : graph.nodes) {
    if (auto* const child = std::get_if<ChildGraph>(&node->operation))
      bind_records(*child->graph, records);
    auto* const record = std::get_if<EventRecord>(&node->operation);
    if (record == nullptr) continue;
    record->record = std::make_shared<Record>();
    if (node->is_enabled) records.emplace_back(record->event, record->record);
  }
}

CUresult launch_graph(CUgraphExec handle, CUstream stream_handle, bool is_per_thread) {
  std::shared_ptr<Context> context;
  KANSOKU_CU_TRY(enter(context));
  const auto exec = runtime()->graph_execs.find(handle);
  const auto stream = context->find_stream(stream_handle, is_per_thread);
  if (exec == nullptr || stream == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  const auto& home = stream->context();
  const std::scoped_lock lock(exec->mutex);
  // As it is now: later changes concern later launches. One launch of it runs at a time.
  ChildGraph operation;
  operation.graph = exec->graph->clone();
  Records records;
  bind_waits(*operation.graph);
  bind_records(*operation.graph, records);
  Point point;
  KANSOKU_CU_TRY(
      home->enqueue(stream, std::move(operation), CU_GRAPH_NODE_TYPE_GRAPH, {exec->last}, &point));
  if (point.progress == nullptr) return CUDA_SUCCESS;  // captured
  exec->last = point;
  for (const auto& [event, record] : records) {
    record->point = point;
    const std::scoped_lock mine(event->mutex);
    event->record = record;
    event->capture = nullptr;
  }
  return CUDA_SUCCESS;
}

enum UpdateResult : int { kUpdated = 0, kTopologyChanged = 2, kTypeChanged = 3 };

/// If both have the same nodes and edges the second's operations replace the first's.
UpdateResult update(Graph& exec, const Graph& graph, const GraphNode*& at) {
  if (exec.nodes.size() != graph.nodes.size()) return kTopologyChanged;
  std::map<const GraphNode*, std::size_t> index;
  for (std::size_t i = 0; i < graph.nodes.size(); ++i) {
    index[graph.nodes[i].get()] = i;
    index[exec.nodes[i].get()] = i;
  }
  for (std::size_t i = 0; i < graph.nodes.size(); ++i) {
    const GraphNode &mine = *exec.nodes[i], &theirs = *graph.nodes[i];
    at = &theirs;
    if (mine.after.size() != theirs.after.size()) return kTopologyChanged;
    for (std::size_t j = 0; j < mine.after.size(); ++j) {
      if (index[mine.after[j]] != index[theirs.after[j]]) return kTopologyChanged;
    }
    if (mine.type != theirs.type) return kTypeChanged;
  }
  at = nullptr;
  const auto fresh = graph.clone();
  for (std::size_t i = 0; i < graph.nodes.size(); ++i)
    exec.nodes[i]->operation = std::move(fresh->nodes[i]->operation);
  return kUpdated;
}

CUresult begin_capture(CUstream handle, CUstreamCaptureMode mode, CUgraph into,
                       const CUgraphNode* after, std::size_t after_count, bool is_per_thread) {
  std::shared_ptr<Context> context;
  KANSOKU_CU_TRY(enter(context));
  const auto stream = context->find_stream(handle, is_per_thread);
  if (stream == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  if (mode < CU_STREAM_CAPTURE_MODE_GLOBAL || mode > CU_STREAM_CAPTURE_MODE_RELAXED)
    return CUDA_ERROR_INVALID_VALUE;
  if (stream->kind() == Stream::Kind::kLegacy) return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
  auto capture = std::make_shared<Capture>();
  std::vector<GraphNode*> first;
  if (into != nullptr) {
    const Editor editor;
    std::shared_ptr<Graph> graph;
    KANSOKU_CU_TRY(editor.find(into, graph));
    KANSOKU_CU_TRY(editor.find_all(after, after_count, *graph, first));
    capture->graph = std::move(graph);
  } else {
    capture->graph = std::make_shared<Graph>();
    capture->graph->context = context;
  }
  ++capture->graph->captures;
  capture->id = runtime()->next_id++;
  capture->mode = mode;
  capture->origin = stream.get();
  capture->thread = thread_number();
  const std::scoped_lock lock(stream->context()->order_mutex);
  if (stream->capture != nullptr) return CUDA_ERROR_ILLEGAL_STATE;
  capture->streams.push_back(stream);
  {
    const std::scoped_lock all(runtime()->captures_mutex);
    runtime()->captures.push_back(capture);
  }
  stream->capture = std::move(capture);
  stream->capture_after = std::move(first);
  return CUDA_SUCCESS;
}

CUresult end_capture(CUstream handle, CUgraph* graph, bool is_per_thread) {
  std::shared_ptr<Context> context;
  KANSOKU_CU_TRY(enter(context));
  const auto stream = context->find_stream(handle, is_per_thread);
  if (stream == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  if (graph == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const std::scoped_lock lock(stream->context()->order_mutex);
  const auto capture = stream->capture;
  if (capture == nullptr) return CUDA_ERROR_ILLEGAL_STATE;
  if (capture->origin != stream.get()) return CUDA_ERROR_STREAM_CAPTURE_UNMATCHED;
  if (capture->mode != CU_STREAM_CAPTURE_MODE_RELAXED && capture->thread != thread_number())
    return CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD;
  // The last work of other streams must lie before the last work of this one.
  std::vector<const GraphNode*> reached(stream->capture_after.begin(), stream->capture_after.end());
  for (std::size_t i = 0; i < reached.size(); ++i) {
    for (const GraphNode* const before : reached[i]->after) {
      if (std::find(reached.begin(), reached.end(), before) == reached.end())
        reached.push_back(before);
    }
  }
  bool is_joined = true;
  for (const auto& weak : capture->streams) {
    const auto other = weak.lock();
    if (other == nullptr || other->capture != capture) continue;
    for (const GraphNode* const last : other->capture_after)
      is_joined = is_joined && std::find(reached.begin(), reached.end(), last) != reached.end();
    other->capture = nullptr;
    other->capture_after.clear();
  }
  capture->end();
  *graph = nullptr;
  if (capture->is_invalid) return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
  if (!is_joined) return CUDA_ERROR_STREAM_CAPTURE_UNJOINED;
  *graph = reinterpret_cast<CUgraph>(capture->graph.get());
  if (runtime()->graphs.find(*graph) == nullptr)
    *graph = runtime()->graphs.add<CUgraph>(capture->graph);
  return CUDA_SUCCESS;
}

CUresult capture_info(CUstream handle, bool is_per_thread, CUstreamCaptureStatus* status,
                      std::uint64_t* id, CUgraph* graph, const CUgraphNode** after,
                      std::size_t* count) {
  std::shared_ptr<Context> context;
  KANSOKU_CU_TRY(enter(context));
  const auto stream = context->find_stream(handle, is_per_thread);
  if (stream == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  if (status == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const std::scoped_lock lock(stream->context()->order_mutex);
  if (stream->kind() == Stream::Kind::kLegacy &&
      stream->context()->capture_of_blocking() != nullptr)
    return CUDA_ERROR_STREAM_CAPTURE_IMPLICIT;
  const auto& capture = stream->capture;
  *status = capture == nullptr    ? CU_STREAM_CAPTURE_STATUS_NONE
            : capture->is_invalid ? CU_STREAM_CAPTURE_STATUS_INVALIDATED
                                  : CU_STREAM_CAPTURE_STATUS_ACTIVE;
  if (*status != CU_STREAM_CAPTURE_STATUS_ACTIVE) return CUDA_SUCCESS;
  if (id != nullptr) *id = capture->id;
  if (graph != nullptr) {
    *graph = reinterpret_cast<CUgraph>(capture->graph.get());
    if (runtime()->graphs.find(*graph) == nullptr)
      *graph = runtime()->graphs.add<CUgraph>(capture->graph);
  }
  if (after != nullptr) *after = reinterpret_cast<const CUgraphNode*>(stream->capture_after.data());
  if (count != nullptr) *count = stream->capture_after.size();
  return CUDA_SUCCESS;
}

}  // namespace

KANSOKU_ENTRY cuGraphCreate(CUgraph* handle, unsigned flags) {
  std::shared_ptr<Context> context;
  KANSOKU_CU_TRY(enter(context));
  if (handle == nullptr || flags != 0) return CUDA_ERROR_INVALID_VALUE;
  auto graph = std::make_shared<Graph>();
  graph->context = context;
  *handle = runtime()->graphs.add<CUgraph>(std::move(graph));
  return CUDA_SUCCESS;
}
KANSOKU_ENTRY cuGraphDestroy(CUgraph handle) {
  if (runtime() == nullptr) return CUDA_ERROR_NOT_INITIALIZED;
  const Editor editor;
  std::shared_ptr<Graph> graph;
  KANSOKU_CU_TRY(editor.find(handle, graph));
  if (graph->is_child) return CUDA_ERROR_INVALID_VALUE;
  Editor::forget(*graph);
  runtime()->graphs.remove(handle);
  return CUDA_SUCCESS;
}
KANSOKU_ENTRY cuGraphClone(CUgraph* clone, CUgraph handle) {
  std::shared_ptr<Context> context;
  KANSOKU_CU_TRY(enter(context));
  if (clone == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const Editor editor;
  std::shared_ptr<Graph> graph;
  KANSOKU_CU_TRY(editor.find(handle, graph));
  auto copy = graph->clone();
  publish(*copy);
  *clone = runtime()->graphs.add<CUgraph>(std::move(copy));
  return CUDA_SUCCESS;
}
KANSOKU_ENTRY cuGraphNodeFindInClone(CUgraphNode* node, CUgraphNode original, CUgraph clone) {
  if (runtime() == nullptr) return CUDA_ERROR_NOT_INITIALIZED;
  const Editor editor;
  std::shared_ptr<Graph> graph;
  KANSOKU_CU_TRY(editor.find(clone, graph));
  GraphNode* known = nullptr;
  KANSOKU_CU_TRY(editor.find(original, known));
  GraphNode* const twin = graph->find_copy_of(*known);
  if (twin == nullptr || node == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *node = Editor::handle(twin);
  return CUDA_SUCCESS;
}

KANSOKU_ENTRY cuGraphAddKernelNode_v2(CUgraphNode* node, CUgraph graph, const CUgraphNode* after,
                                      std::size_t count, const CUDA_KERNEL_NODE_PARAMS* params) {
  if (runtime() == nullptr) return CUDA_ERROR_NOT_INITIALIZED;
  if (params == nullptr) return CUDA_ERROR_INVALID_VALUE;
  KernelLaunch launch;
  KANSOKU_CU_TRY(launch_of(*params, launch));
  return add_node({node, graph, after, count}, CU_GRAPH_NODE_TYPE_KERNEL, std::move(launch));
}
KANSOKU_ENTRY cuGraphAddMemcpyNode(CUgraphNode* node, CUgraph graph, const CUgraphNode* after,
                                   std::size_t count, const CUDA_MEMCPY3D* params, CUcontext) {
  if (runtime() == nullptr) return CUDA_ERROR_NOT_INITIALIZED;
  if (params == nullptr) return CUDA_ERROR_INVALID_VALUE;
  Copy copy;
  KANSOKU_CU_TRY(copy_of(*params, copy));
  return add_node({node, graph, after, count}, CU_GRAPH_NODE_TYPE_MEMCPY, std::move(copy));
}
KANSOKU_ENTRY cuGraphAddMemsetNode(CUgraphNode* node, CUgraph graph, const CUgraphNode* after,
                                   std::size_t count, const CUDA_MEMSET_NODE_PARAMS* params,
                                   CUcontext) {
  if (runtime() == nullptr) return CUDA_ERROR_NOT_INITIALIZED;
  if (params == nullptr) return CUDA_ERROR_INVALID_VALUE;
  Fill fill;
  KANSOKU_CU_TRY(fill_of(*params, fill));
  return add_node({node, graph, after, count}, CU_GRAPH_NODE_TYPE_MEMSET, fill);
}
KANSOKU_ENTRY cuGraphAddHostNode(CUgraphNode* node, CUgraph graph, const CUgraphNode* after,
                                 std::size_t count, const CUDA_HOST_NODE_PARAMS* params) {
  if (runtime() == nullptr) return CUDA_ERROR_NOT_INITIALIZED;
  if (params == nullptr || params->fn == nullptr) return CUDA_ERROR_INVALID_VALUE;
  return add_node({node, graph, after, count}, CU_GRAPH_NODE_TYPE_HOST,
                  HostCall{params->fn, params->userData});
}
KANSOKU_ENTRY cuGraphAddEmptyNode(CUgraphNode* node, CUgraph graph, const CUgraphNode* after,
                                  std::size_t count) {
  return add_node({node, graph, after, count}, CU_GRAPH_NODE_TYPE_EMPTY, Nothing{});
}
KANSOKU_ENTRY cuGraphAddChildGraphNode(CUgraphNode* node, CUgraph graph, const CUgraphNode* after,
                                       std::size_t count, CUgraph child_handle) {
  if (runtime() == nullptr) return CUDA_ERROR_NOT_INITIALIZED;
  ChildGraph child;
  {
    const Editor editor;
    std::shared_ptr<Graph> original;
    KANSOKU_CU_TRY(editor.find(child_handle, original));
    if (child_handle == graph) return CUDA_ERROR_INVALID_VALUE;
    child.graph = original->clone();
    child.graph->is_child = true;
  }
  return add_node({node, graph, after, count}, CU_GRAPH_NODE_TYPE_GRAPH, std::move(child));
}
KANSOKU_ENTRY cuGraphAddEventRecordNode(CUgraphNode* node, CUgraph graph, const CUgraphNode* after,
                                        std::size_t count, CUevent handle) {
  if (runtime() == nullptr) return CUDA_ERROR_NOT_INITIALIZED;
  EventRecord record;
  record.event = runtime()->events.find(handle);
  record.handle = handle;
  if (record.event == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  return add_node({node, graph, after, count}, CU_GRAPH_NODE_TYPE_EVENT_RECORD, record);
}
KANSOKU_ENTRY cuGraphAddEventWaitNode(CUgraphNode* node, CUgraph graph, const CUgraphNode* after,
                                      std::size_t count, CUevent handle) {
  if (runtime() == nullptr) return CUDA_ERROR_NOT_INITIALIZED;
  EventWait wait;
  wait.event = runtime()->events.find(handle);
  wait.handle = handle;
  if (wait.event == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  return add_node({node, graph, after, count}, CU_GRAPH_NODE_TYPE_WAIT_EVENT, wait);
}

KANSOKU_ENTRY cuGraphKernelNodeGetParams_v2(CUgraphNode handle, CUDA_KERNEL_NODE_PARAMS* params) {
  if (params == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (runtime() == nullptr) return CUDA_ERROR_NOT_INITIALIZED;
  const Editor editor;
  GraphNode* node = nullptr;
  KANSOKU_CU_TRY(editor.find(handle, node));
  auto* const launch = std::get_if<KernelLaunch>(&node->operation);
  if (launch == nullptr) return CUDA_ERROR_INVALID_VALUE;
  // The arguments are the node's, until it is changed or destroyed.
  launch->param_places.clear();
  for (const std::uint32_t offset : launch->function->info.param_offsets)
    launch->param_places.push_back(launch->params.data() + offset);
  *params = {launch->handle,
             launch->grid[0],
             launch->grid[1],
             launch->grid[2],
             launch->block[0],
             launch->block[1],
             launch->block[2],
             launch->shared_bytes,
             launch->param_places.data(),
             nullptr,
             nullptr,
             nullptr};
  return CUDA_SUCCESS;
}
KANSOKU_ENTRY cuGraphKernelNodeSetParams_v2(CUgraphNode node,
                                            const CUDA_KERNEL_NODE_PARAMS* params) {
  if (runtime() == nullptr) return CUDA_ERROR_NOT_INITIALIZED;
  if (params == nullptr) return CUDA_ERROR_INVALID_VALUE;
  KernelLaunch launch;
  KANSOKU_CU_TRY(launch_of(*params, launch));
  return change_node(node, std::move(launch));
}
KANSOKU_ENTRY cuGraphMemcpyNodeGetParams(CUgraphNode node, CUDA_MEMCPY3D* params) {
  if (params == nullptr) return CUDA_ERROR_INVALID_VALUE;
  return read_node<Copy>(node, [&](const Copy& copy) { *params = copy.shape; });
}
KANSOKU_ENTRY cuGraphMemcpyNodeSetParams(CUgraphNode node, const CUDA_MEMCPY3D* params) {
  if (runtime() == nullptr) return CUDA_ERROR_NOT_INITIALIZED;
  if (params == nullptr) return CUDA_ERROR_INVALID_VALUE;
  Copy copy;
  KANSOKU_CU_TRY(copy_of(*params, copy));
  return change_node(node, std::move(copy));
}
KANSOKU_ENTRY cuGraphMemsetNodeGetParams(CUgraphNode node, CUDA_MEMSET_NODE_PARAMS* params) {
  if (params == nullptr) return CUDA_ERROR_INVALID_VALUE;
  return read_node<Fill>(node, [&](const Fill& fill) { *params = fill.shape; });
}
KANSOKU_ENTRY cuGraphMemsetNodeSetParams(CUgraphNode node, const CUDA_MEMSET_NODE_PARAMS* params) {
  if (runtime() == nullptr) return CUDA_ERROR_NOT_INITIALIZED;
  if (params == nullptr) return CUDA_ERROR_INVALID_VALUE;
  Fill fill;
  KANSOKU_CU_TRY(fill_of(*params, fill));
  return change_node(node, fill);
}
KANSOKU_ENTRY cuGraphHostNodeGetParams(CUgraphNode node, CUDA_HOST_NODE_PARAMS* params) {
  if (params == nullptr) return CUDA_ERROR_INVALID_VALUE;
  return read_node<HostCall>(node, [&](const HostCall& call) {
    *params = {call.function, call.user_data};
  });
}
KANSOKU_ENTRY cuGraphHostNodeSetParams(CUgraphNode node, const CUDA_HOST_NODE_PARAMS* params) {
  if (runtime() == nullptr) return CUDA_ERROR_NOT_INITIALIZED;
  if (params == nullptr || params->fn == nullptr) return CUDA_ERROR_INVALID_VALUE;
  return change_node(node, HostCall{params->fn, params->userData});
}
KANSOKU_ENTRY cuGraphEventRecordNodeGetEvent(CUgraphNode node, CUevent* event) {
  if (event == nullptr) return CUDA_ERROR_INVALID_VALUE;
  return read_node<EventRecord>(node, [&](const EventRecord& record) { *event = record.handle; });
}
KANSOKU_ENTRY cuGraphEventWaitNodeGetEvent(CUgraphNode node, CUevent* event) {
  if (event == nullptr) return CUDA_ERROR_INVALID_VALUE;
  return read_node<EventWait>(node, [&](const EventWait& wait) { *event = wait.handle; });
}
KANSOKU_ENTRY cuGraphChildGraphNodeGetGraph(CUgraphNode node, CUgraph* graph) {
  if (graph == nullptr) return CUDA_ERROR_INVALID_VALUE;
  return read_node<ChildGraph>(node, [&](const ChildGraph& child) { *graph = child.handle; });
}

KANSOKU_ENTRY cuGraphNodeGetType(CUgraphNode handle, CUgraphNodeType* type) {
  if (runtime() == nullptr) return CUDA_ERROR_NOT_INITIALIZED;
  const Editor editor;
  GraphNode* node = nullptr;
  KANSOKU_CU_TRY(editor.find(handle, node));
  if (type == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *type = node->type;
  return CUDA_SUCCESS;
}
KANSOKU_ENTRY cuGraphGetNodes(CUgraph handle, CUgraphNode* nodes, std::size_t* count) {
  if (runtime() == nullptr) return CUDA_ERROR_NOT_INITIALIZED;
  const Editor editor;
  std::shared_ptr<Graph> graph;
  KANSOKU_CU_TRY(editor.find(handle, graph));
  std::vector<GraphNode*> all;
  for (const auto& node : graph->nodes)
    all.push_back(node.get());
  return give(all, nodes, count);
}
KANSOKU_ENTRY cuGraphGetRootNodes(CUgraph handle, CUgraphNode* nodes, std::size_t* count) {
  if (runtime() == nullptr) return CUDA_ERROR_NOT_INITIALIZED;
  const Editor editor;
  std::shared_ptr<Graph> graph;
  KANSOKU_CU_TRY(editor.find(handle, graph));
  std::vector<GraphNode*> roots;
  for (const auto& node : graph->nodes) {
    if (node->after.empty()) roots.push_back(node.get());
  }
  return give(roots, nodes, count);
}
KANSOKU_ENTRY cuGraphGetEdges(CUgraph graph, CUgraphNode* from, CUgraphNode* to,
                              std::size_t* count) {
  return edges_of(graph, from, to, nullptr, count);
}
KANSOKU_ENTRY cuGraphGetEdges_v2(CUgraph graph, CUgraphNode* from, CUgraphNode* to,
                                 CUgraphEdgeData* data, std::size_t* count) {
  return edges_of(graph, from, to, data, count);
}
KANSOKU_ENTRY cuGraphAddDependencies(CUgraph graph, const CUgraphNode* from, const CUgraphNode* to,
                                     std::size_t count) {
  return change_edges(graph, from, to, count, true);
}
KANSOKU_ENTRY cuGraphAddDependencies_v2(CUgraph graph, const CUgraphNode* from,
                                        const CUgraphNode* to, const CUgraphEdgeData*,
                                        std::size_t count) {
  return change_edges(graph, from, to, count, true);
}
KANSOKU_ENTRY cuGraphRemoveDependencies(CUgraph graph, const CUgraphNode* from,
                                        const CUgraphNode* to, std::size_t count) {
  return change_edges(graph, from, to, count, false);
}
KANSOKU_ENTRY cuGraphNodeGetDependencies(CUgraphNode handle, CUgraphNode* nodes,
                                         std::size_t* count) {
  if (runtime() == nullptr) return CUDA_ERROR_NOT_INITIALIZED;
  const Editor editor;
  GraphNode* node = nullptr;
  KANSOKU_CU_TRY(editor.find(handle, node));
  return give(node->after, nodes, count);
}
KANSOKU_ENTRY cuGraphNodeGetDependentNodes(CUgraphNode handle, CUgraphNode* nodes,
                                           std::size_t* count) {
  if (runtime() == nullptr) return CUDA_ERROR_NOT_INITIALIZED;
  const Editor editor;
  GraphNode* node = nullptr;
  KANSOKU_CU_TRY(editor.find(handle, node));
  std::vector<GraphNode*> then;
  for (const auto& other : node->graph->nodes) {
    if (std::find(other->after.begin(), other->after.end(), node) != other->after.end())
      then.push_back(other.get());
  }
  return give(then, nodes, count);
}
KANSOKU_ENTRY cuGraphDestroyNode(CUgraphNode handle) {
  if (runtime() == nullptr) return CUDA_ERROR_NOT_INITIALIZED;
  const Editor editor;
  GraphNode* node = nullptr;
  KANSOKU_CU_TRY(editor.find(handle, node));
  Graph& graph = *node->graph;
  if (graph.captures != 0) return CUDA_ERROR_INVALID_VALUE;  // captures may depend on it
  for (const auto& other : graph.nodes)
    std::erase(other->after, node);
  Editor::forget(*node);
  std::erase_if(graph.nodes, [&](const auto& mine) { return mine.get() == node; });
  return CUDA_SUCCESS;
}

KANSOKU_ENTRY cuGraphInstantiateWithFlags(CUgraphExec* exec, CUgraph graph,
                                          unsigned long long flags) {
  return instantiate(exec, graph, flags);
}
/// The form before flags: error node and log buffer are for errors that do not occur here.
KANSOKU_ENTRY cuGraphInstantiate_v2(CUgraphExec* exec, CUgraph graph, CUgraphNode* error_node,
                                    char* log, std::size_t log_bytes) {
  if (error_node != nullptr) *error_node = nullptr;
  if (log != nullptr && log_bytes > 0) *log = '\0';
  return instantiate(exec, graph, 0);
}
KANSOKU_ENTRY cuGraphExecDestroy(CUgraphExec handle) {
  if (runtime() == nullptr) return CUDA_ERROR_NOT_INITIALIZED;
  return runtime()->graph_execs.remove(handle) == nullptr ? CUDA_ERROR_INVALID_HANDLE
                                                          : CUDA_SUCCESS;
}
KANSOKU_ENTRY cuGraphExecGetFlags(CUgraphExec handle, std::uint64_t* flags) {
  if (runtime() == nullptr) return CUDA_ERROR_NOT_INITIALIZED;
  const auto exec = runtime()->graph_execs.find(handle);
  if (exec == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  if (flags == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *flags = exec->flags;
  return CUDA_SUCCESS;
}
KANSOKU_STREAM_ENTRY(cuGraphLaunch, _ptsz, (CUgraphExec exec, CUstream stream),
                     return launch_graph(exec, stream, is_per_thread);)
KANSOKU_STREAM_ENTRY(cuGraphUpload, _ptsz, (CUgraphExec handle, CUstream stream),
                     std::shared_ptr<Context> context;
                     KANSOKU_CU_TRY(enter(context));
                     const bool is_known = runtime()->graph_execs.find(handle) != nullptr &&
                                           context->find_stream(stream, is_per_thread) != nullptr;
                     return is_known ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;)

KANSOKU_ENTRY cuGraphExecKernelNodeSetParams_v2(CUgraphExec exec, CUgraphNode node,
                                                const CUDA_KERNEL_NODE_PARAMS* params) {
  if (runtime() == nullptr) return CUDA_ERROR_NOT_INITIALIZED;
  if (params == nullptr) return CUDA_ERROR_INVALID_VALUE;
  KernelLaunch launch;
  KANSOKU_CU_TRY(launch_of(*params, launch));
  return change_instance(exec, node, std::move(launch));
}
KANSOKU_ENTRY cuGraphExecMemcpyNodeSetParams(CUgraphExec exec, CUgraphNode node,
                                             const CUDA_MEMCPY3D* params, CUcontext) {
  if (runtime() == nullptr) return CUDA_ERROR_NOT_INITIALIZED;
  if (params == nullptr) return CUDA_ERROR_INVALID_VALUE;
  Copy copy;
  KANSOKU_CU_TRY(copy_of(*params, copy));
  return change_instance(exec, node, std::move(copy));
}
KANSOKU_ENTRY cuGraphExecMemsetNodeSetParams(CUgraphExec exec, CUgraphNode node,
                                             const CUDA_MEMSET_NODE_PARAMS* params, CUcontext) {
  if (runtime() == nullptr) return CUDA_ERROR_NOT_INITIALIZED;
  if (params == nullptr) return CUDA_ERROR_INVALID_VALUE;
  Fill fill;
  KANSOKU_CU_TRY(fill_of(*params, fill));
  return change_instance(exec, node, fill);
}
KANSOKU_ENTRY cuGraphExecHostNodeSetParams(CUgraphExec exec, CUgraphNode node,
                                           const CUDA_HOST_NODE_PARAMS* params) {
  if (runtime() == nullptr) return CUDA_ERROR_NOT_INITIALIZED;
  if (params == nullptr || params->fn == nullptr) return CUDA_ERROR_INVALID_VALUE;
  return change_instance(exec, node, HostCall{params->fn, params->userData});
}
KANSOKU_ENTRY cuGraphNodeSetEnabled(CUgraphExec handle, CUgraphNode node_handle,
                                    unsigned is_enabled) {
  if (runtime() == nullptr) return CUDA_ERROR_NOT_INITIALIZED;
  const InstanceEditor instance(handle);
  GraphNode* twin = nullptr;
  KANSOKU_CU_TRY(instance.find_twin(node_handle, twin));
  twin->is_enabled = is_enabled != 0;
  return CUDA_SUCCESS;
}
KANSOKU_ENTRY cuGraphNodeGetEnabled(CUgraphExec handle, CUgraphNode node_handle,
                                    unsigned* is_enabled) {
  if (runtime() == nullptr) return CUDA_ERROR_NOT_INITIALIZED;
  const InstanceEditor instance(handle);
  GraphNode* twin = nullptr;
  KANSOKU_CU_TRY(instance.find_twin(node_handle, twin));
  if (is_enabled == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *is_enabled = twin->is_enabled ? 1 : 0;
  return CUDA_SUCCESS;
}
KANSOKU_ENTRY cuGraphExecUpdate_v2(CUgraphExec exec_handle, CUgraph graph_handle,
                                   CUgraphExecUpdateResultInfo* result) {
  if (runtime() == nullptr) return CUDA_ERROR_NOT_INITIALIZED;
  const InstanceEditor instance(exec_handle);
  if (!instance.is_known()) return CUDA_ERROR_INVALID_HANDLE;
  std::shared_ptr<Graph> graph;
  KANSOKU_CU_TRY(instance.graphs().find(graph_handle, graph));
  const GraphNode* at = nullptr;
  const UpdateResult done = update(instance.graph(), *graph, at);
  if (result != nullptr) *result = {done, Editor::handle(const_cast<GraphNode*>(at)), nullptr};
  return done == kUpdated ? CUDA_SUCCESS : CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE;
}

KANSOKU_STREAM_ENTRY(cuStreamBeginCapture_v2, _ptsz, (CUstream stream, CUstreamCaptureMode mode),
                     return begin_capture(stream, mode, nullptr, nullptr, 0, is_per_thread);)
KANSOKU_STREAM_ENTRY(cuStreamBeginCaptureToGraph, _ptsz,
                     (CUstream stream, CUgraph graph, const CUgraphNode* after,
                      const CUgraphEdgeData*, std::size_t count, CUstreamCaptureMode mode),
                     if (graph == nullptr) return CUDA_ERROR_INVALID_VALUE;
                     return begin_capture(stream, mode, graph, after, count, is_per_thread);)
KANSOKU_STREAM_ENTRY(cuStreamEndCapture, _ptsz, (CUstream stream, CUgraph* graph),
                     return end_capture(stream, graph, is_per_thread);)
KANSOKU_STREAM_ENTRY(cuStreamIsCapturing, _ptsz, (CUstream stream, CUstreamCaptureStatus* status),
                     return capture_info(stream, is_per_thread, status, nullptr, nullptr, nullptr,
                                         nullptr);)
KANSOKU_STREAM_ENTRY(cuStreamGetCaptureInfo_v2, _ptsz,
                     (CUstream stream, CUstreamCaptureStatus* status, std::uint64_t* id,
                      CUgraph* graph, const CUgraphNode** after, std::size_t* count),
                     return capture_info(stream, is_per_thread, status, id, graph, after, count);)
KANSOKU_ENTRY cuThreadExchangeStreamCaptureMode(CUstreamCaptureMode* mode) {
  if (mode == nullptr || *mode < CU_STREAM_CAPTURE_MODE_GLOBAL ||
      *mode > CU_STREAM_CAPTURE_MODE_RELAXED)
    return CUDA_ERROR_INVALID_VALUE;
  std::swap(*mode, thread_capture_mode());
  return CUDA_SUCCESS;
}

}  // namespace kansoku::softcuda
