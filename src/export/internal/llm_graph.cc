// SPDX-License-Identifier: Apache-2.0
#include "export/internal/llm_graph.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <map>
#include <set>
#include <string_view>
#include <utility>
#include <vector>

#include "export/internal/figure.h"
#include "export/internal/page.h"
#include "export/internal/svg.h"

namespace kansoku::exporter {
namespace {

constexpr std::size_t kDagNodesShown = 200;
constexpr std::size_t kDagEdgesShown = 2000;
constexpr std::size_t kDagRanksMax = 40;  // of a column; a longer one goes on in the next
constexpr std::size_t kLanesMax = 8;      // beside a column

constexpr double kNodeWidth = 128, kNodeHeight = 34, kSlot = 136, kRank = 54;
constexpr double kBlockWidth = 132, kBlockHeight = 132;  // of the layers between
constexpr double kHead = 42;                             // above the first rank
constexpr double kLane = 9, kGutter = 16;
constexpr double kTurn = 9;  // an edge's way down before it turns

struct DagNode {
  std::string name{}, op{}, part{}, tip{};
  double s{0}, share{0};
  bool is_critical{false}, is_layers{false};
  std::int64_t layer{0}, last_layer{0}, nodes{0};
  std::size_t column{0}, rank{0};
  double x{0}, y{0};  // its middle, its top
  [[nodiscard]] double height() const { return is_layers ? kBlockHeight : kNodeHeight; }
};
struct DagEdge {
  std::size_t from, to;
  bool is_critical;
};
struct DagColumn {
  std::string title{};
  std::size_t ranks{1}, slots{1}, left_lanes{0}, right_lanes{0};
  bool is_layers{false};
  double left{0}, right{0};  // of its nodes
};

std::string part_title(const DagNode& node) {
  if (node.part == "input") return "input";
  if (node.part == "output") return "output";
  if (node.is_layers) return fmt::format("layers {}\u2013{}", node.layer, node.last_layer);
  return fmt::format("layer {}", node.layer);
}

/// Places of nodes and ways of edges. The order of the nodes is one in which they can run; edges
/// that lead back are not followed.
class DagDrawing {
 public:
  explicit DagDrawing(const Json& graph) {
    read_nodes(graph);
    read_edges(graph.at("edges"));
    set_columns();
    set_ranks();
    fold_columns();
    find_lanes();
    set_places();
  }

  [[nodiscard]] bool empty() const { return nodes_.empty(); }

  [[nodiscard]] std::string html() const {
    std::string edges, critical, nodes, heads;
    for (const DagEdge& edge : edges_)
      (edge.is_critical ? critical : edges) += edge_svg(edge);
    for (const DagNode& node : nodes_)
      nodes += node.is_layers ? block_svg(node) : node_svg(node);
    for (const DagColumn& column : columns_)
      heads += svg::text((column.left + column.right) / 2, 18, "middle", column.title, "head");
    return fmt::format(
        "<div class=\"scroll\" tabindex=\"0\"><svg class=\"dag\" viewBox=\"0 0 {0} {1}\" "
        "style=\"min-width:{2}px;max-width:{3}px\" role=\"img\" aria-label=\"graph of "
        "operators\">{4}{5}{6}{7}</svg></div>",
        svg::number(width_), svg::number(height_), svg::number(width_ * 0.85),
        svg::number(width_ * 1.15), edges, critical, nodes, heads);
  }

 private:
  void read_nodes(const Json& graph) {
    const Json list = graph.at("nodes");
    const double all = std::max(number_in(graph.at("time_ns")).value_or(0), 1.0);
    for (std::size_t i = 0; i < std::min(list.size(), kDagNodesShown); ++i) {
      const Json row = list.at(i);
      DagNode node{.name = shortened(row.at("name").as_string(), 60),
                   .op = shortened(row.at("op").as_string(), 40),
                   .part = row.at("part").as_string()};
      const double ns = std::max(number_in(row.at("time_ns")).value_or(0), 0.0);
      node.s = ns * 1e-9;
      node.share = std::min(ns / all, 1.0);
      node.is_critical = row.at("is_critical").as_bool();
      node.is_layers = node.part == "layers";
      node.layer = row.at("layer").as_int();
      node.last_layer = row.at("last_layer").as_int();
      node.nodes = row.at("nodes").as_int();
      node.tip = fmt::format("{} {}\n{}, {} of the graph{}", node.op, node.name,
                             shown_short_time(node.s), shown(node.share, Unit::kShare),
                             node.is_critical ? ", on the critical path" : "");
      const std::string sources = shortened(row.at("sources").as_string(), 400);
      if (!sources.empty()) node.tip += "\nreads " + sources;
      if (!node.is_layers) share_most_ = std::max(share_most_, node.share);
      nodes_.push_back(std::move(node));
    }
  }

  void read_edges(const Json& list) {
    for (std::size_t i = 0; i < std::min(list.size(), kDagEdgesShown); ++i) {
      const Json row = list.at(i);
      const std::int64_t from = row.at(std::size_t{0}).as_int(-1);
      const std::int64_t to = row.at(std::size_t{1}).as_int(-1);
      if (from < 0 || to < 0 || from >= to || to >= static_cast<std::int64_t>(nodes_.size()))
        continue;
      edges_.push_back({static_cast<std::size_t>(from), static_cast<std::size_t>(to),
                        row.at(std::size_t{2}).as_bool()});
    }
  }

  // Nodes before the first layer stand on top of it, nodes behind the last one below.
  void set_columns() {
    std::map<std::string, std::size_t> by_title;
    const DagNode* before = nullptr;
    for (DagNode& node : nodes_) {
      const std::string title = part_title(node);
      const auto found = by_title.find(title);
      if (found != by_title.end()) {
        node.column = found->second;
      } else {
        const bool joins = before != nullptr && !node.is_layers && !before->is_layers &&
                           (node.part == "output" ||
                            (before->part == "input" && columns_[before->column].title == "input"));
        if (!joins) columns_.push_back({.is_layers = node.is_layers});
        node.column = joins ? before->column : columns_.size() - 1;
        DagColumn& column = columns_[node.column];
        column.title += (column.title.empty() ? "" : ", ") + title;
        by_title[title] = node.column;
      }
      before = &node;
    }
  }

  void set_ranks() {
    std::vector<bool> has_source(nodes_.size(), false);
    // Sorted by where they lead, a node's rank is known before it is used.
    std::stable_sort(edges_.begin(), edges_.end(),
                     [](const DagEdge& a, const DagEdge& b) { return a.to < b.to; });
    for (const DagEdge& edge : edges_) {
      if (nodes_[edge.from].column != nodes_[edge.to].column) continue;
      has_source[edge.to] = true;
      nodes_[edge.to].rank = std::max(nodes_[edge.to].rank, nodes_[edge.from].rank + 1);
    }
    // A node that has no source within its column stands just above its first user.
    std::vector<std::size_t> needed(nodes_.size(), SIZE_MAX);
    for (const DagEdge& edge : edges_)
      if (nodes_[edge.from].column == nodes_[edge.to].column)
        needed[edge.from] = std::min(needed[edge.from], nodes_[edge.to].rank);
    for (std::size_t i = 0; i < nodes_.size(); ++i)
      if (!has_source[i] && needed[i] != SIZE_MAX && needed[i] > 0) nodes_[i].rank = needed[i] - 1;
  }

  // A column that is too long goes on beside itself.
  void fold_columns() {
    std::vector<std::size_t> ranks(columns_.size(), 1);
    for (const DagNode& node : nodes_)
      ranks[node.column] = std::max(ranks[node.column], node.rank + 1);
    std::vector<DagColumn> folded;
    std::vector<std::size_t> first, each;
    for (std::size_t i = 0; i < columns_.size(); ++i) {
      const std::size_t parts = (ranks[i] + kDagRanksMax - 1) / kDagRanksMax;
      first.push_back(folded.size());
      each.push_back((ranks[i] + parts - 1) / parts);
      for (std::size_t k = 0; k < parts; ++k) {
        folded.push_back(columns_[i]);
        folded.back().title += k > 0 ? ", further" : "";
        folded.back().ranks = each.back();
      }
    }
    for (DagNode& node : nodes_) {
      const std::size_t column = node.column;
      node.column = first[column] + node.rank / each[column];
      node.rank %= each[column];
    }
    columns_ = std::move(folded);
  }

  [[nodiscard]] bool is_straight(const DagEdge& edge) const {
    return nodes_[edge.from].column == nodes_[edge.to].column &&
           nodes_[edge.to].rank == nodes_[edge.from].rank + 1;
  }

  // Edges past other nodes go down a lane left of the column, one for each node that they are from.
  void find_lanes() {
    lanes_.assign(nodes_.size(), 0);
    std::vector<std::size_t> until(nodes_.size(), 0);  // the lowest rank that an edge leads to
    for (const DagEdge& edge : edges_)
      if (!is_straight(edge) && nodes_[edge.from].column == nodes_[edge.to].column)
        until[edge.from] = std::max(until[edge.from], nodes_[edge.to].rank);
    std::vector<std::vector<std::size_t>> free_from(columns_.size());  // by lane: the rank
    // Short ways first: they come to lie within the long ones.
    std::vector<std::size_t> order;
    for (std::size_t i = 0; i < nodes_.size(); ++i)
      if (until[i] > 0) order.push_back(i);
    std::stable_sort(order.begin(), order.end(),
                     [&](std::size_t a, std::size_t b) { return nodes_[a].rank < nodes_[b].rank; });
    for (const std::size_t i : order) {
      std::vector<std::size_t>& lanes = free_from[nodes_[i].column];
      std::size_t lane = 0;
      while (lane < lanes.size() && lanes[lane] > nodes_[i].rank)
        ++lane;
      if (lane == lanes.size()) lanes.push_back(0);
      lanes[lane] = until[i];
      lanes_[i] = std::min(lane, kLanesMax - 1);
    }
    for (std::size_t i = 0; i < columns_.size(); ++i)
      columns_[i].left_lanes = std::min(free_from[i].size(), kLanesMax);
  }

  // Within a rank by the middle of their sources.
  void set_places() {
    std::map<std::pair<std::size_t, std::size_t>, std::vector<std::size_t>> rows;
    for (std::size_t i = 0; i < nodes_.size(); ++i)
      rows[{nodes_[i].column, nodes_[i].rank}].push_back(i);
    for (const auto& [place, row] : rows)
      columns_[place.first].slots = std::max(columns_[place.first].slots, row.size());
    double x = 4;
    for (DagColumn& column : columns_) {
      column.left = x + kGutter + kLane * static_cast<double>(column.left_lanes);
      column.right = column.left +
                     (column.is_layers ? kBlockWidth : kSlot * static_cast<double>(column.slots));
      x = column.right + kGutter;
      height_ = std::max(height_, kHead + kRank * static_cast<double>(column.ranks));
    }
    width_ = x + 4;
    for (auto& [place, row] : rows)
      set_row(columns_[place.first], row);
    for (const DagColumn& column : columns_)
      if (column.is_layers) height_ = std::max(height_, kHead + kBlockHeight + kTurn);
  }

  void set_row(const DagColumn& column, std::vector<std::size_t>& row) {
    const double middle = (column.left + column.right) / 2;
    std::map<std::size_t, std::pair<double, double>> sums;
    for (const DagEdge& edge : edges_)
      if (is_straight(edge) && nodes_[edge.from].column == nodes_[row[0]].column) {
        sums[edge.to].first += nodes_[edge.from].x;
        sums[edge.to].second += 1;
      }
    const auto wish = [&](std::size_t node) {
      const auto found = sums.find(node);
      return found == sums.end() ? middle : found->second.first / found->second.second;
    };
    std::stable_sort(row.begin(), row.end(),
                     [&](std::size_t a, std::size_t b) { return wish(a) < wish(b); });
    const double left = middle - kSlot * static_cast<double>(row.size() - 1) / 2;
    for (std::size_t i = 0; i < row.size(); ++i) {
      nodes_[row[i]].x = left + kSlot * static_cast<double>(i);
      nodes_[row[i]].y = kHead + kRank * static_cast<double>(nodes_[row[i]].rank);
    }
  }

  [[nodiscard]] std::string edge_svg(const DagEdge& edge) const {
    const DagNode &from = nodes_[edge.from], &to = nodes_[edge.to];
    const double bottom = from.y + from.height(), top = to.y - 1;
    std::string way = fmt::format("M{} {}", svg::number(from.x), svg::number(bottom));
    if (is_straight(edge)) {
      const double bend = (top - bottom) / 2;
      way += fmt::format("C{0} {1} {2} {1} {2} {3}", svg::number(from.x),
                         svg::number(bottom + bend), svg::number(to.x), svg::number(top));
    } else {
      const double in = std::max(top - kTurn, 2.0);
      way += fmt::format("V{}", svg::number(bottom + kTurn - 2));
      for (const auto& [x, y] : corners(edge, in))
        way += fmt::format("H{}V{}", svg::number(x), svg::number(y));
      way += fmt::format("H{}V{}", svg::number(to.x), svg::number(top));
    }
    const std::string_view css = edge.is_critical ? "edge critical" : "edge";
    return fmt::format(
        "<path class=\"{}\" d=\"{}\"/><path class=\"{} tip-of\" d=\"M{} {}l3.5 6 "
        "3.5-6z\"/>",
        css, way, css, svg::number(to.x - 3.5), svg::number(top - 6));
  }

  // Corners of an edge; `in` is the height at which it comes in.
  [[nodiscard]] std::vector<std::pair<double, double>> corners(const DagEdge& edge,
                                                               double in) const {
    const DagNode &from = nodes_[edge.from], &to = nodes_[edge.to];
    const DagColumn &own = columns_[from.column], &other = columns_[to.column];
    if (from.column == to.column)
      return {{own.left - kLane * (1 + static_cast<double>(lanes_[edge.from])), in}};
    if (to.column == from.column + 1) return {{own.right + kGutter / 2, in}};
    return {{own.right + kGutter / 2, 26},
            {other.left - kLane * static_cast<double>(other.left_lanes) - kGutter / 2, in}};
  }

  [[nodiscard]] std::string node_svg(const DagNode& node) const {
    const double left = node.x - kNodeWidth / 2;
    const double heat = share_most_ > 0 ? node.share / share_most_ : 0;
    const auto box = [&](std::string_view css, const std::string& more) {
      return fmt::format(
          "<rect class=\"{}\" x=\"{}\" y=\"{}\" width=\"{}\" height=\"{}\" rx=\"6\"{}/>", css,
          svg::number(left), svg::number(node.y), svg::number(kNodeWidth), svg::number(kNodeHeight),
          more);
    };
    // "Qcur-0" stands in the column of layer 0; of a fused pair the second name tells more.
    const std::size_t second = node.name.find('+') + 1;  // 0 without one
    std::string name = node.name.substr(second, node.name.find_first_of("- ", second) - second);
    if (name.starts_with("ffn_moe_")) name.erase(0, 4);
    const std::string time = node.s > 0 ? " \u00b7 " + shown_short_time(node.s) : "";
    const std::size_t room = 23 - std::min<std::size_t>(columns_of(time), 15);
    return box("under", "") + box("heat", fmt::format(" fill-opacity=\"{:.3f}\"", 0.75 * heat)) +
           svg::text(node.x, node.y + 14, "middle", shortened(node.op, 17), "op") +
           svg::text(node.x, node.y + 27, "middle", shortened(name, room) + time, "tiny") +
           box(node.is_critical ? "frame critical" : "frame",
               " data-tip=\"" + escape(node.tip) + "\"");
  }

  [[nodiscard]] std::string block_svg(const DagNode& node) const {
    const double left = node.x - kBlockWidth / 2;
    std::string out = fmt::format(
        "<rect class=\"block{}\" x=\"{}\" y=\"{}\" width=\"{}\" height=\"{}\" rx=\"8\"/>",
        node.is_critical ? " critical" : "", svg::number(left), svg::number(node.y),
        svg::number(kBlockWidth), svg::number(kBlockHeight));
    double y = node.y + 34;
    const auto say = [&](const std::string& text, std::string_view css) {
      out += svg::text(node.x, y, "middle", text, css);
      y += 21;
    };
    say("\u22ef", "head");
    say(fmt::format("{} layers more", shown(double(node.last_layer) - double(node.layer) + 1)),
        "op");
    say(fmt::format("{} nodes", shown(double(node.nodes))), "tiny");
    say(shown_short_time(node.s), "tiny");
    say(shown(node.share, Unit::kShare) + " of the graph", "tiny");
    return out;
  }

  std::vector<DagNode> nodes_;
  std::vector<DagEdge> edges_;
  std::vector<DagColumn> columns_;
  std::vector<std::size_t> lanes_;  // by node that edges are from
  double share_most_{0}, width_{0}, height_{0};
};

struct OperatorWords {
  std::string_view op, words;
};
constexpr std::array kOperatorWords{
    OperatorWords{"GET_ROWS", "looks up rows: a token's vector, or those that are wanted further"},
    OperatorWords{"RMS_NORM", "brings a vector to one size; +MUL: times weights, in one go"},
    OperatorWords{"MUL_MAT", "multiplies by a matrix of weights: most of the work"},
    OperatorWords{"MUL_MAT_ID", "the same with the weights of the experts that were chosen"},
    OperatorWords{"ROPE", "turns queries and keys by their place in the text"},
    OperatorWords{"SET_ROWS", "writes keys and values into the KV cache"},
    OperatorWords{"FLASH_ATTN_EXT", "attention: compares the query with all keys of the cache"},
    OperatorWords{"SOFT_MAX", "makes shares of numbers"},
    OperatorWords{"ARGSORT", "sorts: which experts come first"},
    OperatorWords{"GLU", "the gate of the feed-forward part"},
    OperatorWords{"ADD", "adds, often what went round a block"},
    OperatorWords{"MUL", "multiplies number by number"}};

}  // namespace

std::string operator_glossary(const Json& graph) {
  const Json nodes = graph.at("nodes");
  std::set<std::string> seen;
  for (std::size_t i = 0; i < std::min(nodes.size(), kDagNodesShown); ++i) {
    const std::string op = nodes.at(i).at("op").as_string();
    seen.insert(op.substr(0, op.find('+')));
  }
  std::string rows;
  for (const OperatorWords& row : kOperatorWords)
    if (seen.contains(std::string(row.op)))
      rows += fmt::format("<dt>{}</dt><dd>{}</dd>", row.op, row.words);
  if (rows.empty()) return {};
  return "<div><h3 class=\"first\">What the operators do</h3><dl>" + rows + "</dl></div>";
}

std::string graph_svg(const Json& graph) {
  const DagDrawing drawing(graph);
  return drawing.empty() ? std::string() : drawing.html();
}

}  // namespace kansoku::exporter
