// SPDX-License-Identifier: Apache-2.0
#include "infer/graph_view.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "common/parse.h"

namespace kansoku::infer {
namespace {

constexpr std::size_t kLayersMax = 1024;               // that are told apart
constexpr std::int64_t kBeforeLayers = -1;             // of what comes before the first layer
constexpr std::int64_t kBehindLayers = 1'000'000'000;  // and behind the last
constexpr std::size_t kSourceTextsMax = 4;             // of a node's sources that are no nodes

Json whole_ns(double ns) {
  return static_cast<std::int64_t>(std::llround(std::clamp(ns, 0.0, 1e18)));
}

/// "Qcur-12": 12.
std::optional<std::int64_t> layer_of_name(std::string_view name) {
  name = name.substr(0, name.find(' '));
  const std::size_t dash = name.rfind('-');
  if (dash == std::string_view::npos || dash == 0) return std::nullopt;
  return parse_int<std::int64_t>(name.substr(dash + 1));
}
/// "blk.12.attn_q.weight": 12.
std::optional<std::int64_t> layer_of_weight(std::string_view leaf) {
  constexpr std::string_view kBlock = "blk.";
  if (!leaf.starts_with(kBlock)) return std::nullopt;
  leaf.remove_prefix(kBlock.size());
  return parse_int<std::int64_t>(leaf.substr(0, leaf.find('.')));
}

std::optional<std::int64_t> layer_told(const Node& node) {
  auto layer = layer_of_name(node.name);
  for (const trace::TensorSource& source : node.sources)
    if (!layer && !source.node) layer = layer_of_weight(source.leaf);
  if (!layer || *layer < 0 || *layer >= static_cast<std::int64_t>(kLayersMax)) return std::nullopt;
  return layer;
}

/// A node that is drawn: one of the graph, or all of the layers between.
struct Drawn {
  std::string name{}, op{}, sources{};
  std::int64_t layer{0}, last_layer{0};
  double ns{0};
  std::size_t nodes{1};
  bool is_layers{false}, is_critical{false};
};

class GraphCutter {
 public:
  GraphCutter(const Process& process, const GraphRow& row, const trace::Trace& trace)
      : row_(row), nodes_(process.definitions.at(row.definition).nodes) {
    find_fused(process, trace);
    find_stands();
    find_layers();
    choose_layers();
    draw_nodes();
    find_edges();
    mark_path();
  }

  [[nodiscard]] Json json() const {
    Json nodes = Json::array(), edges = Json::array(), layers = Json::array();
    for (const Drawn& one : drawn_) {
      Json json = Json::object();
      json.set("name", one.name).set("op", one.op).set("sources", one.sources);
      json.set("part", part_name(one)).set("layer", layer_json(one.layer));
      if (one.is_layers)
        json.set("last_layer", one.last_layer).set("nodes", std::uint64_t{one.nodes});
      json.set("time_ns", whole_ns(one.ns)).set("is_critical", one.is_critical);
      nodes.push(std::move(json));
    }
    for (const auto& [edge, is_critical] : edges_)
      edges.push(Json::array()
                     .push(std::uint64_t{edge.first})
                     .push(std::uint64_t{edge.second})
                     .push(is_critical));
    for (const auto& [layer, ns] : layer_ns_)
      layers.push(Json::array().push(layer).push(whole_ns(ns)));
    return Json::object()
        .set("phase", phase_name(row_.phase))
        .set("runs", row_.runs)
        .set("computed", std::uint64_t{row_.computed})
        .set("time_ns", whole_ns(row_.ns))
        .set("critical_ns", whole_ns(row_.critical_ns))
        .set("not_drawn", std::uint64_t{not_drawn_})
        .set("layers", std::move(layers))
        .set("nodes", std::move(nodes))
        .set("edges", std::move(edges));
  }

 private:
  static std::string_view part_name(const Drawn& one) {
    if (one.is_layers) return "layers";
    if (one.layer == kBeforeLayers) return "input";
    return one.layer == kBehindLayers ? "output" : "layer";
  }
  static Json layer_json(std::int64_t layer) {
    return layer == kBeforeLayers || layer == kBehindLayers ? Json() : Json(layer);
  }

  // Operators that took the next node along, "RMS_NORM+MUL".
  void find_fused(const Process& process, const trace::Trace& trace) {
    fused_.assign(nodes_.size(), {});
    for (const Operator& one : process.operators) {
      if (one.definition != row_.definition || one.ith != 0 || one.node >= nodes_.size()) continue;
      const std::string_view name = trace.str(one.name);
      if (name.find('+') != std::string_view::npos) fused_[one.node] = name;
    }
  }

  // Which node stands for another: what a view looks at, the first one of a fused pair.
  void find_stands() {
    stands_.assign(nodes_.size(), kNone);
    for (std::size_t i = 0; i < nodes_.size(); ++i) {
      if (i > 0 && !fused_[i - 1].empty() && !nodes_[i].is_view) {
        stands_[i] = stands_[i - 1];
      } else if (!nodes_[i].is_view) {
        stands_[i] = i;
      } else if (!nodes_[i].sources.empty() && nodes_[i].sources[0].node &&
                 *nodes_[i].sources[0].node < i) {
        stands_[i] = stands_[*nodes_[i].sources[0].node];
      }
    }
  }

  // By name, or by a weight; what tells nothing belongs to the node before it.
  void find_layers() {
    layers_.assign(nodes_.size(), kBeforeLayers);
    std::size_t last_told = kNone;
    std::int64_t current = kBeforeLayers;
    for (std::size_t i = 0; i < nodes_.size(); ++i) {
      if (stands_[i] != i) continue;
      if (const auto told = layer_told(nodes_[i])) {
        current = *told;
        last_told = i;
      }
      layers_[i] = current;
    }
    if (last_told == kNone) return;
    for (std::size_t i = last_told + 1; i < nodes_.size(); ++i)
      layers_[i] = kBehindLayers;
  }

  void choose_layers() {
    for (std::size_t i = 0; i < nodes_.size(); ++i) {
      if (stands_[i] != i || layers_[i] == kBeforeLayers || layers_[i] == kBehindLayers) continue;
      layer_ns_[layers_[i]] += ns_of(i);
    }
    if (layer_ns_.size() <= 2) return;
    first_left_out_ = std::next(layer_ns_.begin())->first;
    last_left_out_ = std::prev(layer_ns_.end(), 2)->first;
  }
  [[nodiscard]] bool is_left_out(std::size_t i) const {
    return first_left_out_ && layers_[i] >= *first_left_out_ && layers_[i] <= last_left_out_;
  }
  [[nodiscard]] double ns_of(std::size_t i) const {
    return i < row_.node_ns.size() ? row_.node_ns[i] : 0;
  }

  void draw_nodes() {
    places_.assign(nodes_.size(), kNone);
    std::size_t between = kNone;
    for (std::size_t i = 0; i < nodes_.size(); ++i) {
      if (stands_[i] != i) continue;
      if (is_left_out(i) && between != kNone) {
        places_[i] = between;
        drawn_[between].ns += ns_of(i);
        ++drawn_[between].nodes;
        continue;
      }
      if (drawn_.size() >= kGraphNodesMax) {
        ++not_drawn_;
        continue;
      }
      places_[i] = drawn_.size();
      if (is_left_out(i)) {
        between = drawn_.size();
        drawn_.push_back({.layer = *first_left_out_,
                          .last_layer = last_left_out_,
                          .ns = ns_of(i),
                          .is_layers = true});
      } else {
        drawn_.push_back({.name = name_of(i),
                          .op = fused_[i].empty() ? nodes_[i].op : std::string(fused_[i]),
                          .sources = sources_of(i),
                          .layer = layers_[i],
                          .ns = ns_of(i)});
      }
    }
  }

  // A fused pair has both names: the second one's tells more.
  [[nodiscard]] std::string name_of(std::size_t i) const {
    if (fused_[i].empty() || i + 1 == nodes_.size()) return nodes_[i].name;
    return nodes_[i].name + "+" + nodes_[i + 1].name;
  }

  // Weights and inputs.
  [[nodiscard]] std::string sources_of(std::size_t i) const {
    std::string out;
    std::size_t count = 0;
    for (const trace::TensorSource& source : nodes_[i].sources) {
      if (source.node || source.leaf.empty() || ++count > kSourceTextsMax) continue;
      out += (out.empty() ? "" : "\n") + trace::source_text(source);
    }
    return out;
  }

  [[nodiscard]] std::size_t place_of(std::size_t node) const {
    return stands_[node] == kNone ? kNone : places_[stands_[node]];
  }

  void find_edges() {
    for (std::size_t i = 0; i < nodes_.size(); ++i) {
      const std::size_t to = place_of(i);
      if (to == kNone || nodes_[i].is_view) continue;
      for (const trace::TensorSource& source : nodes_[i].sources) {
        if (!source.node || *source.node >= i) continue;
        const std::size_t from = place_of(*source.node);
        if (from != kNone && from != to) edges_.emplace(std::pair(from, to), false);
      }
    }
  }

  void mark_path() {
    std::size_t before = kNone;
    for (const std::uint32_t node : row_.path) {
      const std::size_t place = node < nodes_.size() ? place_of(node) : kNone;
      if (place == kNone || place == before) continue;
      drawn_[place].is_critical = true;
      const auto edge = edges_.find({before, place});
      if (edge != edges_.end()) edge->second = true;
      before = place;
    }
  }

  const GraphRow& row_;
  const std::vector<Node>& nodes_;
  std::vector<std::string_view> fused_;  // by node; empty: it is not
  std::vector<std::size_t> stands_, places_;
  std::vector<std::int64_t> layers_;
  std::map<std::int64_t, double> layer_ns_;
  std::optional<std::int64_t> first_left_out_;
  std::int64_t last_left_out_{0};
  std::vector<Drawn> drawn_;
  std::map<std::pair<std::size_t, std::size_t>, bool> edges_;  // true: of the longest path
  std::size_t not_drawn_{0};
};

}  // namespace

Json graph_view_json(const Process& process, const ProcessFigures& figures,
                     const trace::Trace& trace) {
  const GraphRow* best = nullptr;
  const auto rank = [](const GraphRow& row) {
    return std::pair(row.phase == Phase::kDecode, row.runs);
  };
  for (const GraphRow& row : figures.definitions) {
    if (row.ns <= 0 || !process.definitions.contains(row.definition)) continue;
    if (best == nullptr || rank(row) > rank(*best)) best = &row;
  }
  return best == nullptr ? Json() : GraphCutter(process, *best, trace).json();
}

}  // namespace kansoku::infer
