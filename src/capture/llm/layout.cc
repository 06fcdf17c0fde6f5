// SPDX-License-Identifier: Apache-2.0
#include "capture/llm/layout.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "common/parse.h"

namespace kansoku::capture::llm {
namespace {

constexpr Layout::Tensor kTensor{.type = 0,
                                 .ne = 16,
                                 .nb = 48,
                                 .op = 80,
                                 .op_params = 84,
                                 .flags = 148,
                                 .src = 152,
                                 .view_src = 232,
                                 .data = 248,
                                 .name = 256,
                                 .name_bytes = 64};
constexpr wire_model_layout wire_layout(std::uint16_t graph_uid) {
  return {.tensor_op = kTensor.op,
          .tensor_src = kTensor.src,
          .tensor_ne = kTensor.ne,
          .tensor_nb = kTensor.nb,
          .tensor_data = kTensor.data,
          .graph_node_count = 4,
          .graph_nodes = 16,
          .graph_uid = graph_uid,
          .backend_graph_compute = 104,
          .batch_token_count = 8,
          .micro_tokens = 4,
          .micro_pos = 40,
          .micro_seq_id = 56,
          .micro_old_pos = 32,
          .micro_old_seq_id = 48,
          .micro_output = 80,
          .micro_old_output = 56,
          .reserved = 0,
          .op_mul_mat_id = 0};
}
// Read in the headers of ggml 0.21.0 and 0.25.1 (llama_batch and llama_ubatch: of llama.cpp of the
// same days), and by the compiler's offsetof. Graphs of 0.9.7 have no number, those of 0.17.0 have:
// without one, each is another one. Tried on the releases of tests/llm/releases.py.
constexpr std::array<Layout, 2> kLayouts{{
    {"ggml since 0.17", {0, 17}, kTensor, wire_layout(88)},
    {"ggml before 0.17", {0, 0}, kTensor, wire_layout(WIRE_MODEL_NOWHERE)},
}};

struct Type {
  std::string_view name;  // "": there is none of this number
  std::uint32_t block, bytes;
};
// By number, elements and bytes of a block: those of GGUF files, whose numbers never change.
constexpr std::array<Type, 43> kTypes{{
    {"F32", 1, 4},        {"F16", 1, 2},       {"Q4_0", 32, 18},     {"Q4_1", 32, 20},
    {"", 0, 0},           {"", 0, 0},          {"Q5_0", 32, 22},     {"Q5_1", 32, 24},
    {"Q8_0", 32, 34},     {"Q8_1", 32, 36},    {"Q2_K", 256, 84},    {"Q3_K", 256, 110},
    {"Q4_K", 256, 144},   {"Q5_K", 256, 176},  {"Q6_K", 256, 210},   {"Q8_K", 256, 292},
    {"IQ2_XXS", 256, 66}, {"IQ2_XS", 256, 74}, {"IQ3_XXS", 256, 98}, {"IQ1_S", 256, 50},
    {"IQ4_NL", 32, 18},   {"IQ3_S", 256, 110}, {"IQ2_S", 256, 82},   {"IQ4_XS", 256, 136},
    {"I8", 1, 1},         {"I16", 1, 2},       {"I32", 1, 4},        {"I64", 1, 8},
    {"F64", 1, 8},        {"IQ1_M", 256, 56},  {"BF16", 1, 2},       {"", 0, 0},
    {"", 0, 0},           {"", 0, 0},          {"TQ1_0", 256, 54},   {"TQ2_0", 256, 66},
    {"", 0, 0},           {"", 0, 0},          {"", 0, 0},           {"MXFP4", 32, 17},
    {"NVFP4", 64, 36},    {"Q1_0", 128, 18},   {"Q2_0", 64, 18},
}};
constexpr std::int64_t kSizeMax = std::int64_t{1} << 40;

template <class T>
void take(std::span<const std::byte> bytes, std::size_t offset, T& out) {
  if (offset + sizeof(T) <= bytes.size()) std::memcpy(&out, bytes.data() + offset, sizeof(T));
}

bool is_printable(std::string_view text) {
  return std::none_of(text.begin(), text.end(),
                      [](char c) { return static_cast<unsigned char>(c) < 0x20 || c == 0x7f; });
}

Error misfit(std::string_view what, std::int64_t value) {
  return {Code::kCorrupt, fmt::format("read a tensor: {} {}", what, value)};
}

// Properties of every tensor that bytes of something else rarely have.
Result<void> check(const Tensor& tensor, const EngineNames& names) {
  if (type_name(tensor.type).empty()) return misfit("type", tensor.type);
  if (tensor.op >= names.ops.size()) return misfit("operator", tensor.op);
  for (const std::int64_t size : tensor.ne)
    if (size < 0 || size > kSizeMax) return misfit("size", size);
  // One of the first two strides is the type's size but for tensors that were permuted.
  const Type& type = kTypes.at(tensor.type);
  if (std::none_of(tensor.nb.begin(), tensor.nb.end(),
                   [&](std::uint64_t stride) { return stride == type.bytes; }))
    return misfit("strides without the size of the type:", static_cast<std::int64_t>(tensor.nb[0]));
  return {};
}

}  // namespace

std::span<const Layout> layouts() {
  return kLayouts;
}

std::size_t layout_for(std::string_view version) {
  const std::size_t dot = version.find('.');
  const std::string_view behind = dot == std::string_view::npos ? "" : version.substr(dot + 1);
  const auto major = parse_int<std::uint32_t>(version.substr(0, dot));
  const auto minor = parse_int<std::uint32_t>(behind.substr(0, behind.find('.')));
  const bool is_known = major && minor;
  const std::array is{is_known ? *major : 0, is_known ? *minor : 0};
  const auto* const found = std::find_if(kLayouts.begin(), kLayouts.end(),
                                         [&](const Layout& one) { return one.oldest <= is; });
  return static_cast<std::size_t>(found - kLayouts.begin());
}

std::optional<std::uint32_t> EngineNames::op(std::string_view name) const {
  const auto found = std::find(ops.begin(), ops.end(), name);
  if (found == ops.end()) return std::nullopt;
  return static_cast<std::uint32_t>(found - ops.begin());
}

std::string_view type_name(std::uint32_t type) {
  return type < kTypes.size() ? kTypes.at(type).name : std::string_view{};
}

Result<Tensor> read_tensor(std::uint64_t address, std::span<const std::byte> untrusted,
                           const Layout& layout, const EngineNames& names) {
  Tensor out;
  out.address = address;
  const Layout::Tensor& at = layout.tensor;
  take(untrusted, at.type, out.type);
  take(untrusted, at.op, out.op);
  take(untrusted, at.flags, out.flags);
  take(untrusted, at.ne, out.ne);
  take(untrusted, at.nb, out.nb);
  take(untrusted, at.src, out.src);
  take(untrusted, at.view_src, out.view_src);
  take(untrusted, at.op_params, out.variant);
  std::array<char, 64> name{};
  take(untrusted, at.name, name);
  const std::string_view text(name.data(), name.size());
  const std::size_t end = text.find('\0');
  if (end == std::string_view::npos || !is_printable(text.substr(0, end)))
    return misfit("a name that is no text at", at.name);
  out.name = text.substr(0, end);
  TRY_VOID(check(out, names));
  return out;
}

trace::TensorShape shape_of(const Tensor& tensor) {
  const Type& type = kTypes.at(tensor.type);
  trace::TensorShape out{std::string(type.name), tensor.ne};
  if (std::any_of(tensor.ne.begin(), tensor.ne.end(), [](std::int64_t n) { return n <= 0; }))
    return out;
  std::uint64_t bytes = type.bytes;
  if (type.block == 1) {
    bytes += static_cast<std::uint64_t>(tensor.ne[0] - 1) * tensor.nb[0];
  } else {
    bytes = static_cast<std::uint64_t>(tensor.ne[0]) * tensor.nb[0] / type.block;
  }
  for (std::size_t i = 1; i < tensor.ne.size(); ++i)
    bytes += static_cast<std::uint64_t>(tensor.ne.at(i) - 1) * tensor.nb.at(i);
  constexpr std::uint64_t kBytesMax = std::uint64_t{1} << 48;
  out.bytes = std::min(bytes, kBytesMax);
  return out;
}

}  // namespace kansoku::capture::llm
