// SPDX-License-Identifier: Apache-2.0
#include "gpu/ptx/suffix.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <utility>

namespace kansoku::gpu::ptx {
namespace {

constexpr std::size_t kSuffixCount = static_cast<std::size_t>(Suffix::kCount);
constexpr std::size_t kTypeCount = static_cast<std::size_t>(Type::kCount);

constexpr std::array<std::string_view, kSuffixCount> kNames{
#define KANSOKU_PTX_X(id, text, bits) text,
    KANSOKU_PTX_TYPES(KANSOKU_PTX_X)
#undef KANSOKU_PTX_X
#define KANSOKU_PTX_X(id, text) text,
        KANSOKU_PTX_WORDS(KANSOKU_PTX_X)
#undef KANSOKU_PTX_X
};

constexpr std::array<std::uint32_t, kTypeCount> kBits{
#define KANSOKU_PTX_X(id, text, bits) bits,
    KANSOKU_PTX_TYPES(KANSOKU_PTX_X)
#undef KANSOKU_PTX_X
};

using Row = std::pair<std::string_view, Suffix>;

constexpr std::array<Row, kSuffixCount> sorted_suffixes() {
  std::array<Row, kSuffixCount> rows{};
  for (std::size_t i = 0; i < kSuffixCount; ++i)
    rows[i] = {kNames[i], static_cast<Suffix>(i)};
  std::sort(rows.begin(), rows.end());
  return rows;
}

constexpr std::array<Row, kSuffixCount> kByName = sorted_suffixes();

}  // namespace

std::string_view suffix_name(Suffix suffix) {
  return kNames[static_cast<std::size_t>(suffix)];
}

std::optional<Suffix> suffix_from_name(std::string_view word) {
  const auto found =
      std::lower_bound(kByName.begin(), kByName.end(), word,
                       [](const Row& row, std::string_view name) { return row.first < name; });
  if (found == kByName.end() || found->first != word) return std::nullopt;
  return found->second;
}

std::uint32_t bits_of(Type type) {
  return type == Type::kCount ? 0 : kBits[static_cast<std::size_t>(type)];
}

}  // namespace kansoku::gpu::ptx
