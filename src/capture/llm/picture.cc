// SPDX-License-Identifier: Apache-2.0
#include "capture/llm/picture.h"

#include <fmt/format.h>

#include <utility>

#include "common/hash.h"

namespace kansoku::capture::llm {
namespace {

constexpr std::size_t kRawMax = std::size_t{WIRE_MODEL_NODES_MAX} * (1 + WIRE_MODEL_SOURCES_MAX);

std::uint64_t hash_of(const std::vector<NodeText>& nodes) {
  Fnv hash;
  for (const NodeText& node : nodes) {
    hash.add(node.op).end().add(node.name).end().add(node.shape).end();
    hash.add(std::to_string(node.variant)).end();
    for (const std::string& source : node.sources)
      hash.add(source).end();
  }
  return hash.value();
}

trace::TensorSource source_of(std::uint64_t address, const Picture& picture,
                              const std::vector<Tensor>& nodes,
                              const std::unordered_map<std::uint64_t, Tensor>& leaves) {
  if (const auto node = picture.by_address.find(address); node != picture.by_address.end())
    return {shape_of(nodes.at(node->second)), node->second};
  if (const auto leaf = leaves.find(address); leaf != leaves.end())
    return {shape_of(leaf->second), std::nullopt, leaf->second.name};
  return {{"?"}, std::nullopt, "?"};
}

// A product of two matrices tells if the members were read at the right places at all.
Result<void> check_product(const Tensor& node, const trace::TensorSource& weights,
                           const trace::TensorSource& input) {
  const bool fits = weights.shape.ne[0] == input.shape.ne[0] && node.ne[0] == weights.shape.ne[1] &&
                    node.ne[1] == input.shape.ne[1];
  if (fits || weights.shape.type == "?" || input.shape.type == "?") return {};
  return Error{Code::kCorrupt,
               fmt::format("read a graph: {} does not have the sizes of a product", node.name)};
}

}  // namespace

void PictureMaker::add(const wire_model_tensor& record) {
  if (record.graph != graph_ || (record.node == 0 && (record.flags & WIRE_MODEL_IS_LEAF) == 0))
    raw_.clear();
  graph_ = record.graph;
  if (raw_.size() >= kRawMax) return;
  const auto bytes = std::as_bytes(std::span(record.bytes));
  raw_.push_back({record.address,
                  record.node,
                  (record.flags & WIRE_MODEL_IS_LEAF) != 0,
                  {bytes.begin(), bytes.end()}});
}

std::size_t PictureMaker::count(std::uint64_t graph) const {
  return graph == graph_ ? raw_.size() : 0;
}

Result<std::shared_ptr<const Picture>> PictureMaker::take(std::int32_t node_count,
                                                          const Layout& layout,
                                                          const EngineNames& names) {
  const std::vector<Raw> raw = std::exchange(raw_, {});
  auto out = std::make_shared<Picture>();
  std::vector<Tensor> nodes;
  std::unordered_map<std::uint64_t, Tensor> leaves;
  for (const Raw& one : raw) {
    TRY(auto tensor, read_tensor(one.address, one.bytes, layout, names));
    if (one.is_leaf) {
      leaves.emplace(one.address, std::move(tensor));
    } else {
      out->by_address.emplace(one.address, static_cast<std::uint32_t>(nodes.size()));
      nodes.push_back(std::move(tensor));
    }
  }
  if (nodes.size() != static_cast<std::size_t>(std::max(node_count, 0)))
    return Error{Code::kCorrupt,
                 fmt::format("read a graph: {} of {} nodes", nodes.size(), node_count)};
  for (const Tensor& node : nodes) {
    NodeText text{
        names.ops.at(node.op), node.name, trace::shape_text(shape_of(node)), {}, node.variant};
    std::vector<trace::TensorSource> sources;
    for (const std::uint64_t source : node.src) {
      if (source == 0 || sources.size() == kSourcesKept) break;
      sources.push_back(source_of(source, *out, nodes, leaves));
      text.sources.push_back(trace::source_text(sources.back()));
    }
    if (text.op == "MUL_MAT" && sources.size() >= 2)
      TRY_VOID(check_product(node, sources[0], sources[1]));
    out->nodes.push_back(std::move(text));
  }
  out->content = hash_of(out->nodes);
  return std::shared_ptr<const Picture>(std::move(out));
}

}  // namespace kansoku::capture::llm
