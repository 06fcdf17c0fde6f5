// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <map>

#include "softcuda/internal/runtime.h"

namespace kansoku::softcuda {

GraphNode::GraphNode() : id(runtime()->next_id++) {}

GraphNode::~GraphNode() {
  if (runtime() == nullptr) return;  // in a child of fork
  const std::scoped_lock lock(runtime()->nodes_mutex);
  runtime()->nodes.erase(this);
}

void publish(GraphNode& node) {
  {
    const std::scoped_lock lock(runtime()->nodes_mutex);
    runtime()->nodes.insert(&node);
  }
  auto* const child = std::get_if<ChildGraph>(&node.operation);
  if (child == nullptr) return;
  child->graph->is_child = true;
  publish(*child->graph);
  child->handle = runtime()->graphs.add<CUgraph>(child->graph);
}

void publish(const Graph& graph) {
  for (const auto& node : graph.nodes)
    publish(*node);
}

GraphNode* Graph::add(CUgraphNodeType type, Operation operation, std::vector<GraphNode*> after) {
  auto node = std::make_unique<GraphNode>();
  node->graph = this;
  node->type = type;
  node->operation = std::move(operation);
  node->after = std::move(after);
  nodes.push_back(std::move(node));
  return nodes.back().get();
}

bool Graph::holds(const GraphNode* node) const {
  return std::any_of(nodes.begin(), nodes.end(),
                     [&](const std::unique_ptr<GraphNode>& mine) { return mine.get() == node; });
}

GraphNode* Graph::find_copy_of(const GraphNode& node) const {
  const auto found = std::find_if(nodes.begin(), nodes.end(),
                                  [&](const auto& mine) { return mine->cloned_from == node.id; });
  return found == nodes.end() ? nullptr : found->get();
}

std::vector<GraphNode*> Graph::sorted() const {
  std::map<const GraphNode*, std::size_t> waits_for;
  std::map<const GraphNode*, std::vector<GraphNode*>> then;
  for (const auto& node : nodes) {
    waits_for[node.get()] = node->after.size();
    for (const GraphNode* const before : node->after)
      then[before].push_back(node.get());
  }
  std::vector<GraphNode*> order;
  for (const auto& node : nodes) {
    if (node->after.empty()) order.push_back(node.get());
  }
  for (std::size_t i = 0; i < order.size(); ++i) {
    for (GraphNode* const next : then[order[i]]) {
      if (--waits_for[next] == 0) order.push_back(next);
    }
  }
  if (order.size() != nodes.size()) order.clear();
  return order;
}

std::shared_ptr<Graph> Graph::clone() const {
  auto copy = std::make_shared<Graph>();
  copy->context = context;
  std::map<const GraphNode*, GraphNode*> twins;
  for (const auto& node : nodes) {
    GraphNode* const twin = copy->add(node->type, node->operation, {});
    twin->is_enabled = node->is_enabled;
    twin->cloned_from = node->id;
    twins[node.get()] = twin;
    // Children are part of the copy, too.
    if (auto* const child = std::get_if<ChildGraph>(&twin->operation)) {
      child->graph = child->graph->clone();
      child->graph->is_child = true;
      child->handle = nullptr;
    }
  }
  for (std::size_t i = 0; i < nodes.size(); ++i) {
    for (const GraphNode* const before : nodes[i]->after)
      copy->nodes[i]->after.push_back(twins[before]);
  }
  return copy;
}

}  // namespace kansoku::softcuda
