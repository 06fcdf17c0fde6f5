// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "common/result.h"
#include "trace/inference.h"
#include "wire/model.h"

namespace kansoku::capture::llm {

inline constexpr std::size_t kSources = 10;  // of a tensor

/// Offsets of members in ggml's and llama.cpp's structures, for some of their versions.
struct Layout {
  std::string_view name;                // "ggml since 0.17"
  std::array<std::uint32_t, 2> oldest;  // major and minor version
  struct Tensor {
    std::uint16_t type, ne, nb, op, op_params, flags, src, view_src, data, name, name_bytes;
  } tensor;
  wire_model_layout wire;
};
/// The known ones, newest first. Source: offsetof in those versions' headers on x86-64.
[[nodiscard]] std::span<const Layout> layouts();

/// Index of the layout for a ggml of that version: the newest that is not newer than it. A library
/// that tells none is old.
[[nodiscard]] std::size_t layout_for(std::string_view version);
/// A graph's number counts up from the start of the library. One above is an address: the layout is
/// another one.
inline constexpr std::uint64_t kGraphUidMax = std::uint64_t{1} << 40;

/// Names that the library in the process uses, read there.
struct EngineNames {
  std::string version;           // of ggml; "" if it does not tell
  std::vector<std::string> ops;  // by number; never empty
  /// The number of an operator; nothing if it has no such one.
  [[nodiscard]] std::optional<std::uint32_t> op(std::string_view name) const;
};

/// A tensor as it lay in the process.
struct Tensor {
  std::uint64_t address{0};
  std::uint32_t type{0}, op{0};
  std::int32_t flags{0};
  std::array<std::int64_t, 4> ne{};
  std::array<std::uint64_t, 4> nb{};
  std::array<std::uint64_t, kSources> src{};
  std::uint64_t view_src{0};
  std::uint32_t variant{0};  // its first parameter: which one of the functions of UNARY and GLU
  std::string name;
};

/// Takes a tensor out of its bytes. kCorrupt, with the member and its value, where they are none of
/// a tensor of that layout: a type that does not exist, sizes that are negative, strides that do
/// not fit the type, a name that is no text.
[[nodiscard]] Result<Tensor> read_tensor(std::uint64_t address,
                                         std::span<const std::byte> untrusted, const Layout& layout,
                                         const EngineNames& names);

/// "F32" and the like; types have fixed numbers, those of GGUF files.
[[nodiscard]] std::string_view type_name(std::uint32_t type);
/// The shape of a tensor; its bytes by ggml_nbytes.
[[nodiscard]] trace::TensorShape shape_of(const Tensor& tensor);

}  // namespace kansoku::capture::llm
