// SPDX-License-Identifier: Apache-2.0
// Small files in the formats that the importers read, and a trace as text.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "trace/model.h"

namespace kansoku::trace::import {

/// One gzip member; `level` 0 only stores.
[[nodiscard]] std::string gzip(std::string_view text, int level = 6);
/// The bytes that the hexadecimal digits of `hex` name.
[[nodiscard]] std::string from_hex(std::string_view hex);

/// Values of a pickle of protocol 2; `finish_pickle` makes a file of one.
namespace pickled {
[[nodiscard]] std::string none();
[[nodiscard]] std::string number(std::int64_t value);
[[nodiscard]] std::string text(std::string_view value);
[[nodiscard]] std::string list(const std::vector<std::string>& items);
[[nodiscard]] std::string dict(const std::vector<std::pair<std::string, std::string>>& items);
[[nodiscard]] std::string file(std::string_view value);
}  // namespace pickled

/// Every table, line by line, with names instead of ids: equal texts mean equal traces.
[[nodiscard]] std::string text_of(const Trace& trace);
/// Why the tables contradict themselves or each other; empty if they do not.
[[nodiscard]] std::string import_problem_of(const Trace& trace);

}  // namespace kansoku::trace::import
