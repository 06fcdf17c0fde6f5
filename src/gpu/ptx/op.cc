// SPDX-License-Identifier: Apache-2.0
#include "gpu/ptx/op.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <utility>

namespace kansoku::gpu::ptx {
namespace {

struct OpRow {
  std::string_view name, roles;
};

constexpr std::array<OpRow, static_cast<std::size_t>(Op::kUnknown)> kOps{{
#define KANSOKU_PTX_X(id, text, roles) {text, roles},
    KANSOKU_PTX_OPS(KANSOKU_PTX_X)
#undef KANSOKU_PTX_X
}};

struct SpecialRow {
  std::string_view name;
  std::uint32_t bits;
};

constexpr std::array<SpecialRow, static_cast<std::size_t>(Special::kCount)> kSpecials{{
#define KANSOKU_PTX_X(id, text, bits) {text, bits},
    KANSOKU_PTX_SPECIALS(KANSOKU_PTX_X)
#undef KANSOKU_PTX_X
}};

using Name = std::pair<std::string_view, std::uint8_t>;

template <class Rows>
constexpr auto sorted_names(const Rows& rows) {
  std::array<Name, std::tuple_size_v<Rows>> names{};
  for (std::size_t i = 0; i < names.size(); ++i)
    names[i] = {rows[i].name, static_cast<std::uint8_t>(i)};
  std::sort(names.begin(), names.end());
  return names;
}

constexpr auto kOpNames = sorted_names(kOps);
constexpr auto kSpecialNames = sorted_names(kSpecials);

template <class Names>
std::optional<std::uint8_t> look_up(const Names& names, std::string_view name) {
  const auto found =
      std::lower_bound(names.begin(), names.end(), name,
                       [](const Name& row, std::string_view wanted) { return row.first < wanted; });
  if (found == names.end() || found->first != name) return std::nullopt;
  return found->second;
}

}  // namespace

std::string_view op_name(Op op) {
  return op == Op::kUnknown ? "" : kOps[static_cast<std::size_t>(op)].name;
}

Op op_from_name(std::string_view name) {
  const auto found = look_up(kOpNames, name);
  return found ? static_cast<Op>(*found) : Op::kUnknown;
}

std::string_view operand_roles(Op op) {
  return op == Op::kUnknown ? "" : kOps[static_cast<std::size_t>(op)].roles;
}

std::string_view special_name(Special special) {
  return kSpecials[static_cast<std::size_t>(special)].name;
}

std::uint32_t special_bits(Special special) {
  return kSpecials[static_cast<std::size_t>(special)].bits;
}

std::optional<Special> special_from_name(std::string_view name) {
  const auto found = look_up(kSpecialNames, name);
  if (!found) return std::nullopt;
  return static_cast<Special>(*found);
}

}  // namespace kansoku::gpu::ptx
