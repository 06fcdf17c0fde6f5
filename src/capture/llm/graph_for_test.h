// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "capture/llm/layout.h"
#include "wire/model.h"

namespace kansoku::capture::llm {

inline const Layout& layout_for_test() {
  return layouts().front();
}

enum OpForTest : std::uint32_t { kNone, kAdd, kMulMat, kMulMatId, kNorm, kMul, kView };
inline EngineNames names_for_test() {
  return {"0.25.1", {"NONE", "ADD", "MUL_MAT", "MUL_MAT_ID", "RMS_NORM", "MUL", "VIEW"}};
}

inline constexpr std::uint32_t kF32 = 0, kF16 = 1, kQ4 = 2, kI32 = 26;

/// A tensor to be laid out; without strides it is contiguous, of a type with blocks of one.
struct TensorForTest {
  std::uint64_t address{0};
  std::string_view name;
  std::uint32_t op{kNone};
  std::array<std::int64_t, 4> ne{1, 1, 1, 1};
  std::vector<std::uint64_t> src{};
  std::uint32_t type{kF32};
  std::array<std::uint64_t, 4> nb{};
  std::uint32_t variant{0};
};

template <class T>
void put_for_test(std::span<std::byte> bytes, std::size_t offset, const T& value) {
  if (offset + sizeof(T) <= bytes.size()) std::memcpy(bytes.data() + offset, &value, sizeof(T));
}

/// Its bytes as they lie in a process with that layout.
inline std::array<std::byte, WIRE_MODEL_TENSOR_BYTES> bytes_for_test(const TensorForTest& tensor,
                                                                     const Layout& layout) {
  std::array<std::byte, WIRE_MODEL_TENSOR_BYTES> out{};
  std::array<std::uint64_t, 4> nb = tensor.nb;
  if (nb[0] == 0) {
    nb[0] = tensor.type == kF16 ? 2 : 4;
    for (std::size_t i = 1; i < nb.size(); ++i)
      nb.at(i) = nb.at(i - 1) * static_cast<std::uint64_t>(tensor.ne.at(i - 1));
  }
  std::array<std::uint64_t, kSources> src{};
  std::copy(tensor.src.begin(), tensor.src.end(), src.begin());
  std::array<char, 64> name{};
  std::memcpy(name.data(), tensor.name.data(), std::min(tensor.name.size(), name.size()));
  const Layout::Tensor& at = layout.tensor;
  put_for_test(out, at.type, tensor.type);
  put_for_test(out, at.ne, tensor.ne);
  put_for_test(out, at.nb, nb);
  put_for_test(out, at.op, tensor.op);
  put_for_test(out, at.op_params, tensor.variant);
  put_for_test(out, at.src, src);
  put_for_test(out, at.name, name);
  return out;
}

/// The record of it as the node `node` of a graph, or as a leaf that this node reads.
inline wire_model_tensor record_for_test(const TensorForTest& tensor, const Layout& layout,
                                         std::uint64_t graph, std::uint32_t node,
                                         bool is_leaf = false) {
  wire_model_tensor out{};
  out.address = tensor.address;
  out.graph = graph;
  out.node = node;
  out.role = WIRE_MODEL_GRAPH;
  out.kind = WIRE_MODEL_TENSOR;
  out.flags = is_leaf ? WIRE_MODEL_IS_LEAF : 0;
  const auto bytes = bytes_for_test(tensor, layout);
  std::memcpy(out.bytes, bytes.data(), bytes.size());
  return out;
}

}  // namespace kansoku::capture::llm
