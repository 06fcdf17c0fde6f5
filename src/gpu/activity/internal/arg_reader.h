// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "trace/model.h"

namespace kansoku::gpu::activity {

/// An argument that figures are made of; each has one or more names, by who recorded it.
enum class ArgName : std::uint8_t {
  kNone,
  kCorrelation,
  kStream,
  kDevice,
  kContext,
  kFullName,
  kGrid,
  kBlock,
  kRegisters,
  kSharedBytes,
  kBytes,
  kKind,
  kPageable,
  kShared,
  kReturn,
  kAddress,
  kStack,
  kOccupancyPercent,
  kCollective,
  kInCount,
  kOutCount,
  kGroupSize,
  kDataType,
  kInputDims,
  kM,
  kN,
  kK,
  kBatch,
  kRequested,
  kDomain,
};

/// Reads arguments of slices by meaning. Borrows the trace. Tolerates ids and ranges that the trace
/// does not have.
class ArgReader {
 public:
  explicit ArgReader(const trace::Trace& trace);

  /// A whole number, also where it is written as text or as a double without a fraction.
  [[nodiscard]] std::optional<std::int64_t> number(std::uint32_t slice, ArgName name) const;
  /// A number that is not negative.
  [[nodiscard]] std::optional<std::uint64_t> count(std::uint32_t slice, ArgName name) const;
  [[nodiscard]] std::string_view text(std::uint32_t slice, ArgName name) const;  // "" if absent
  [[nodiscard]] std::span<const trace::ArgValue> all(std::uint32_t slice) const;
  [[nodiscard]] ArgName meaning(trace::StringId key) const;
  [[nodiscard]] std::string_view string(trace::StringId id) const;

 private:
  [[nodiscard]] const trace::ArgValue* find(std::uint32_t slice, ArgName name) const;
  const trace::Trace& trace_;
  std::vector<ArgName> meanings_;  // by string id
};

}  // namespace kansoku::gpu::activity
