// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <bit>
#include <cstdint>

namespace kansoku::softcuda::nccl {

// Conversions of the 16-bit types by their bits. Each 16-bit value is a float exactly; the way back
// rounds to the nearest, ties to even, and gives the one NaN that a GPU gives, 0x7fff.

[[nodiscard]] inline float float_from_half(std::uint16_t half) {
  const std::uint32_t magnitude = half & 0x7fffU;
  // Bits moved into place stand for a value 2^112 too small (bias 15 instead of 127); subnormals
  // are float subnormals there, so the product is exact for them, too.
  const float scaled = std::bit_cast<float>(magnitude << 13) * 0x1p112F;
  const std::uint32_t finite = std::bit_cast<std::uint32_t>(scaled);
  const std::uint32_t bits = magnitude >= 0x7c00U ? (magnitude << 13) | 0x7f800000U : finite;
  return std::bit_cast<float>(bits | (std::uint32_t{half} & 0x8000U) << 16);
}

[[nodiscard]] inline std::uint16_t half_from_float(float value) {
  const auto all = std::bit_cast<std::uint32_t>(value);
  const std::uint32_t sign = (all >> 16) & 0x8000U;
  const std::uint32_t bits = all & 0x7fffffffU;
  if (bits > 0x7f800000U) return 0x7fff;
  if (bits >= 0x477ff000U) return static_cast<std::uint16_t>(sign | 0x7c00U);  // from 65520 on
  if (bits < 0x38800000U) {
    // Below 2^-14: a multiple of 2^-24, which is the last place of numbers from 0.5 to 1.
    const float placed = std::bit_cast<float>(bits) + 0.5F;
    return static_cast<std::uint16_t>(sign | (std::bit_cast<std::uint32_t>(placed) - 0x3f000000U));
  }
  const std::uint32_t rounded = bits + 0xfffU + ((bits >> 13) & 1U);
  return static_cast<std::uint16_t>(sign | ((rounded - 0x38000000U) >> 13));
}

[[nodiscard]] inline float float_from_bfloat(std::uint16_t value) {
  return std::bit_cast<float>(std::uint32_t{value} << 16);
}

[[nodiscard]] inline std::uint16_t bfloat_from_float(float value) {
  const auto bits = std::bit_cast<std::uint32_t>(value);
  if ((bits & 0x7fffffffU) > 0x7f800000U) return 0x7fff;
  return static_cast<std::uint16_t>((bits + 0x7fffU + ((bits >> 16) & 1U)) >> 16);
}

}  // namespace kansoku::softcuda::nccl
