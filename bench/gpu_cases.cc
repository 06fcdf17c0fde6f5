// SPDX-License-Identifier: Apache-2.0
#include "gpu_cases.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "common/check.h"

namespace kansoku::bench {
namespace {

using gpu::exec::Memory;

constexpr std::uint32_t kMatrixSide = 512, kTile = 16;
constexpr std::uint32_t kElements = 1U << 24;
constexpr std::uint32_t kThreads = 256;          // of a block
constexpr std::uint32_t kStridingBlocks = 1024;  // of a kernel that walks through its input
constexpr std::uint32_t kRowCount = 4096, kColumnCount = 1024, kLanes = 32;

/// The same numbers every time, spread over [0, 1).
float number_at(std::size_t i) {
  const auto mixed = static_cast<std::uint32_t>(i) * 2654435761U;
  return static_cast<float>(mixed >> 8) * 0x1p-24F;
}

template <class T>
KernelArgument value(T number) {
  static_assert(sizeof(T) == 4);
  KernelArgument argument;
  std::memcpy(argument.value.data(), &number, sizeof number);
  return argument;
}

Result<KernelArgument> zeros(Memory& memory, std::size_t bytes) {
  TRY(const auto buffer, make_buffer(memory, bytes));
  return KernelArgument{buffer, {}};
}

/// `skip`: so that two inputs differ.
Result<KernelArgument> numbers(Memory& memory, std::size_t count, std::size_t skip = 0) {
  TRY(const KernelArgument argument, zeros(memory, count * sizeof(float)));
  for (std::size_t i = 0; i < count; ++i) {
    const float number = number_at(i + skip);
    std::memcpy(argument.buffer.data() + i * sizeof number, &number, sizeof number);
  }
  return argument;
}

Result<KernelCase> sgemm(Memory& memory) {
  constexpr std::size_t kCount = std::size_t{kMatrixSide} * kMatrixSide;
  TRY(const auto a, numbers(memory, kCount));
  TRY(const auto b, numbers(memory, kCount, kCount));
  TRY(const auto c, zeros(memory, kCount * sizeof(float)));
  return KernelCase{"sgemm",
                    fmt::format("n={}", kMatrixSide),
                    "gflop",
                    2e-9 * kMatrixSide * kMatrixSide * kMatrixSide,
                    {{kMatrixSide / kTile, kMatrixSide / kTile, 1},
                     {kTile, kTile, 1},
                     {a, b, c, value(std::int32_t{kMatrixSide})}},
                    2,
                    1e-5};
}

Result<KernelCase> vector_add(Memory& memory) {
  TRY(const auto a, numbers(memory, kElements));
  TRY(const auto b, numbers(memory, kElements, kElements));
  TRY(const auto c, zeros(memory, kElements * sizeof(float)));
  return KernelCase{
      "vector_add",
      fmt::format("n={}", kElements),
      "gb",
      12e-9 * kElements,
      {{kElements / kThreads, 1, 1}, {kThreads, 1, 1}, {a, b, c, value(std::int32_t{kElements})}},
      2,
      1e-6};
}

Result<KernelCase> reduction(Memory& memory) {
  TRY(const auto values, numbers(memory, kElements));
  TRY(const auto sum, zeros(memory, sizeof(float)));
  // the order of 1,024 additions to one sum is open
  return KernelCase{
      "reduction",
      fmt::format("n={}", kElements),
      "gb",
      4e-9 * kElements,
      {{kStridingBlocks, 1, 1}, {kThreads, 1, 1}, {values, sum, value(std::int32_t{kElements})}},
      1,
      1e-4};
}

Result<KernelCase> softmax(Memory& memory) {
  constexpr std::size_t kCount = std::size_t{kRowCount} * kColumnCount;
  TRY(const auto in, numbers(memory, kCount));
  TRY(const auto out, zeros(memory, kCount * sizeof(float)));
  return KernelCase{
      "softmax",
      fmt::format("rows={} columns={}", kRowCount, kColumnCount),
      "gelement",
      1e-9 * kCount,
      {{kRowCount, 1, 1}, {kLanes, 1, 1}, {in, out, value(std::int32_t{kColumnCount})}},
      1,
      1e-5};
}

Result<KernelCase> layer_norm(Memory& memory) {
  constexpr std::size_t kCount = std::size_t{kRowCount} * kColumnCount;
  TRY(const auto in, numbers(memory, kCount));
  TRY(const auto scale, numbers(memory, kColumnCount, kCount));
  TRY(const auto shift, numbers(memory, kColumnCount, 2 * kCount));
  TRY(const auto out, zeros(memory, kCount * sizeof(float)));
  return KernelCase{"layer_norm",
                    fmt::format("rows={} columns={}", kRowCount, kColumnCount),
                    "gelement",
                    1e-9 * kCount,
                    {{kRowCount, 1, 1},
                     {kLanes, 1, 1},
                     {in, scale, shift, out, value(std::int32_t{kColumnCount}), value(1e-5F)}},
                    3,
                    1e-5};
}

Result<KernelCase> histogram(Memory& memory) {
  TRY(const auto bytes, zeros(memory, kElements));
  for (std::size_t i = 0; i < kElements; ++i)
    bytes.buffer[i] = static_cast<std::byte>(static_cast<std::uint32_t>(number_at(i) * 256));
  TRY(const auto counts, zeros(memory, kThreads * sizeof(std::uint32_t)));
  return KernelCase{
      "histogram",
      fmt::format("n={}", kElements),
      "gb",
      1e-9 * kElements,
      {{kStridingBlocks, 1, 1}, {kThreads, 1, 1}, {bytes, counts, value(std::int32_t{kElements})}},
      1,
      0};
}

constexpr std::array<CaseMaker, 6> kMakers{{{"sgemm", sgemm},
                                            {"vector_add", vector_add},
                                            {"reduction", reduction},
                                            {"softmax", softmax},
                                            {"layer_norm", layer_norm},
                                            {"histogram", histogram}}};

template <class T>
std::vector<T> values_of(std::span<const std::byte> bytes) {
  std::vector<T> values(bytes.size() / sizeof(T));
  std::memcpy(values.data(), bytes.data(), values.size() * sizeof(T));
  return values;
}

}  // namespace

KernelLaunch KernelCase::with_output(std::span<std::byte> other) const {
  KernelLaunch changed = launch;
  CHECK(other.size() == changed.arguments[output].buffer.size());
  changed.arguments[output].buffer = other;
  return changed;
}

std::span<const CaseMaker> case_makers() {
  return kMakers;
}

Result<std::span<std::byte>> make_buffer(Memory& memory, std::size_t bytes) {
  TRY(const std::uint64_t address, memory.allocate(bytes));
  return std::span(reinterpret_cast<std::byte*>(static_cast<std::uintptr_t>(address)), bytes);
}

double difference(const KernelCase& kernel, std::span<const std::byte> a,
                  std::span<const std::byte> b) {
  CHECK(a.size() == b.size());
  if (kernel.tolerance == 0) {
    const auto left = values_of<std::uint32_t>(a), right = values_of<std::uint32_t>(b);
    std::size_t differ = 0;
    for (std::size_t i = 0; i < left.size(); ++i)
      differ += static_cast<std::size_t>(left[i] != right[i]);
    if (std::count(left.begin(), left.end(), 0U) == std::ssize(left)) differ = left.size();
    return static_cast<double>(differ) / static_cast<double>(left.size());
  }
  const auto left = values_of<float>(a), right = values_of<float>(b);
  double apart = 0, greatest = 0;
  for (std::size_t i = 0; i < left.size(); ++i) {
    const double gap = std::abs(double{left[i]} - double{right[i]});
    // Not a number is as far apart as can be.
    apart = std::isnan(gap) ? std::numeric_limits<double>::infinity() : std::max(apart, gap);
    greatest = std::max(greatest, std::abs(double{left[i]}));
  }
  return greatest == 0 ? std::numeric_limits<double>::infinity() : apart / greatest;
}

}  // namespace kansoku::bench
