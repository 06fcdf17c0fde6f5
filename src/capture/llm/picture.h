// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "capture/llm/layout.h"
#include "common/result.h"
#include "wire/model.h"

namespace kansoku::capture::llm {

/// One node of a graph, in the words of recordings.
struct NodeText {
  std::string op, name, shape;
  std::vector<std::string> sources;  // trace::source_text, at most kSourcesKept
  std::uint32_t variant{0};
};
inline constexpr std::size_t kSourcesKept = 5;

/// The nodes of one graph as they were when it ran first, by their addresses.
struct Picture {
  std::uint64_t content{0};  // equal for graphs of equal nodes
  std::vector<NodeText> nodes;
  std::unordered_map<std::uint64_t, std::uint32_t> by_address;
};

/// Collects the tensors of one graph, which come record by record before the graph's own.
class PictureMaker {
 public:
  /// Takes one tensor in. The bytes are the observed process's.
  void add(const wire_model_tensor& record);
  /// How many there are, of graph `graph`; those of another one are dropped by the first of a new
  /// one.
  [[nodiscard]] std::size_t count(std::uint64_t graph) const;
  /// Makes the picture of `node_count` nodes and begins anew. kCorrupt if the tensors do not fit
  /// the layout or each other, with the first that does not.
  [[nodiscard]] Result<std::shared_ptr<const Picture>> take(std::int32_t node_count,
                                                            const Layout& layout,
                                                            const EngineNames& names);

 private:
  struct Raw {
    std::uint64_t address{0};
    std::uint32_t node{0};
    bool is_leaf{false};
    std::vector<std::byte> bytes;
  };
  std::uint64_t graph_{0};
  std::vector<Raw> raw_;
};

}  // namespace kansoku::capture::llm
