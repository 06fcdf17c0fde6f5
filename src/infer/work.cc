// SPDX-License-Identifier: Apache-2.0
#include "infer/work.h"

#include <algorithm>

#include "common/parse.h"

namespace kansoku::infer {
namespace {

double elements(const trace::TensorShape& shape) {
  double out = 1;
  for (const std::int64_t size : shape.ne)
    out *= static_cast<double>(size);
  return out;
}

double bytes(const trace::TensorShape& shape) {
  return static_cast<double>(shape.bytes);
}

// All that it reads and writes.
double all_bytes(const Node& node) {
  double out = bytes(node.shape);
  for (const trace::TensorSource& source : node.sources)
    out += bytes(source.shape);
  return out;
}

bool has_sources(const Node& node, std::size_t count) {
  return node.sources.size() >= count;
}

// Product of src0 (K x M, weights), src1 (K x N): M x N.
void of_product(Node& node) {
  node.flops = 2 * static_cast<double>(node.sources[0].shape.ne[0]) * elements(node.shape);
  node.bytes = all_bytes(node);
}

// Product with experts of src0 (K x M x experts), src1, src2 (ids: used x tokens): only experts
// that some id can name.
void of_experts(Node& node) {
  node.flops = 2 * static_cast<double>(node.sources[0].shape.ne[0]) * elements(node.shape);
  const trace::TensorShape& weights = node.sources[0].shape;
  const double experts = static_cast<double>(std::max<std::int64_t>(weights.ne[2], 1));
  const double used = std::min(experts, elements(node.sources[2].shape));
  node.bytes = bytes(weights) * used / experts + bytes(node.sources[1].shape) + bytes(node.shape);
}

// Attention of q (D x tokens x heads), k (D x cells x heads), v (D' x cells x heads), mask.
void of_attention(Node& node) {
  const trace::TensorShape &q = node.sources[0].shape, &k = node.sources[1].shape,
                           &v = node.sources[2].shape;
  const double pairs = static_cast<double>(q.ne[1]) * static_cast<double>(q.ne[2]) *
                       static_cast<double>(q.ne[3]) * static_cast<double>(k.ne[1]);
  node.flops = 2 * pairs * static_cast<double>(q.ne[0] + v.ne[0]);
  node.bytes = all_bytes(node);
}

// Rows of src0 (K x rows), chosen by src1 (ids).
void of_rows(Node& node) {
  const trace::TensorShape& table = node.sources[0].shape;
  const double rows = static_cast<double>(std::max<std::int64_t>(table.ne[1], 1)) *
                      static_cast<double>(std::max<std::int64_t>(table.ne[2], 1));
  const double read = std::min(rows, elements(node.sources[1].shape));
  node.flops = 0;
  node.bytes = bytes(table) * read / rows + bytes(node.sources[1].shape) + bytes(node.shape);
}

// Writes rows into src2's or its own memory: the result is the whole cache, of which it writes as
// many bytes as src0 has elements of that type.
void of_set_rows(Node& node) {
  const double cache = std::max(elements(node.shape), 1.0);
  const double written = elements(node.sources[0].shape);
  node.flops = 0;
  node.bytes = bytes(node.sources[0].shape) + bytes(node.sources[1].shape) +
               bytes(node.shape) * std::min(1.0, written / cache);
}

}  // namespace

void estimate_work(Node& node) {
  node.flops = 0;
  node.bytes = 0;
  if (node.is_view) return;
  if (node.op == "MUL_MAT" && has_sources(node, 2)) return of_product(node);
  if (node.op == "MUL_MAT_ID" && has_sources(node, 3)) return of_experts(node);
  if (node.op == "FLASH_ATTN_EXT" && has_sources(node, 3)) return of_attention(node);
  if (node.op == "GET_ROWS" && has_sources(node, 2)) return of_rows(node);
  if (node.op == "SET_ROWS" && has_sources(node, 2)) return of_set_rows(node);
  node.flops = elements(node.shape);
  node.bytes = all_bytes(node);
}

std::optional<ExpertsUsed> parse_experts(std::string_view untrusted) {
  constexpr std::size_t kIdsMax = 4096;
  const auto word = [&] {
    const std::size_t at = untrusted.find(' ');
    const std::string_view out = untrusted.substr(0, at);
    untrusted.remove_prefix(at == std::string_view::npos ? untrusted.size() : at + 1);
    return out;
  };
  const std::string_view sizes = word();
  const std::size_t cross = sizes.find('x');
  if (cross == std::string_view::npos) return std::nullopt;
  const auto used = parse_int<std::uint32_t>(sizes.substr(0, cross));
  const auto tokens = parse_int<std::uint32_t>(sizes.substr(cross + 1));
  if (!used || !tokens || *used == 0) return std::nullopt;
  ExpertsUsed out{*used, *tokens, {}};
  while (!untrusted.empty() && out.ids.size() < kIdsMax) {
    const auto id = parse_int<std::int32_t>(word());
    if (!id || *id < 0) return std::nullopt;
    out.ids.push_back(*id);
  }
  return out;
}

}  // namespace kansoku::infer
