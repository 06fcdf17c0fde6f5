// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "trace/model.h"

namespace kansoku::trace {

/// One value that was written for a key of the metadata, and when.
struct MetadataFact {
  std::int64_t time_ns{0};
  std::string_view value;  // borrowed from the trace
};

/// All values of `key` in order of rows; Trace::metadata has the last one alone, without its time.
[[nodiscard]] std::vector<MetadataFact> metadata_facts(const Trace& trace, std::string_view key);

}  // namespace kansoku::trace
