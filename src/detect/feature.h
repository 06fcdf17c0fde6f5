// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "common/result.h"

namespace kansoku::detect {

enum class Layer : std::uint8_t { kPython, kTorch, kCuda, kCollective, kInference, kGpu, kHost };
/// "python", "torch", "cuda", "collective", "inference", "gpu", "host".
[[nodiscard]] std::string_view layer_name(Layer layer);
[[nodiscard]] std::optional<Layer> layer_from_name(std::string_view name);

/// How a value becomes a coordinate, before robust scaling.
enum class Scale : std::uint8_t {
  kLog,     // ln(value + floor): durations, rates, bytes
  kLinear,  // shares, temperatures, clocks
};

/// Use of a feature in detection.
enum class Use : std::uint8_t {
  kModelled,  // a coordinate of the mixture
  kEvent,     // the same; and where health has none, a single one is told at once
  kGrowth,    // looked at for steady growth only: resident memory, memory on the device
  kShown,     // shown and kept, in no test
};

/// One number per window, process and rank.
struct Feature {
  std::string_view name;  // snake_case; the column of tables, the name of metrics
  std::string_view
      unit;  // "s", "1/s", "bytes", "bytes/s", "ratio", "celsius", "watts", "hertz", ""
  Layer layer{Layer::kHost};
  Scale scale{Scale::kLog};
  Use use{Use::kModelled};
  double floor{0};  // in the unit: differences below it mean nothing. Also the floor of its scale
  int worse{0};     // +1: more is worse; -1: less is; 0: it follows from the job's work
  std::string_view meaning;
};

/// True if it is a coordinate of the mixture.
[[nodiscard]] constexpr bool is_modelled(Use use) {
  return use == Use::kModelled || use == Use::kEvent;
}

/// All features that watching makes, the one table of them. Order is the order of columns. Spans
/// end with the next add_feature().
[[nodiscard]] std::span<const Feature> known_features();
/// Adds a feature to the table, of which the texts are copied; one that is there already as it is
/// is left. kCorrupt if one of that name is there and is another; kLimit beyond kFeaturesMax. For
/// the whole process, before anything else has asked for the table: not to be called beside other
/// threads.
inline constexpr std::size_t kFeaturesMax = 200;
[[nodiscard]] Result<void> add_feature(const Feature& feature);
/// Index in known_features(), or -1.
[[nodiscard]] int feature_index(std::string_view name);

/// "4.1 ms", "1.2 GB/s", "38 %", "1.41 GHz": a value in a unit of this table, for people.
[[nodiscard]] std::string format_value(double value, std::string_view unit);

}  // namespace kansoku::detect
