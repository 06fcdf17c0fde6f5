// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <string>

#include "common/bytes.h"
#include "trace/model.h"
#include "trace/writer.h"

namespace kansoku::trace {

inline constexpr BootTime kBaseForTest = boot_time(1'000'000'000'000);

/// The base plus `ns`.
[[nodiscard]] constexpr BootTime at_for_test(std::int64_t ns) {
  return kBaseForTest + Nanos{ns};
}

/// Writes one of everything a Writer knows: processes, threads, slices with arguments and flows,
/// instants, counters, samples, scheduler rows, losses and metadata.
void write_everything(Writer& writer);

/// The file that a Writer with base kBaseForTest makes of `fill` and one flush().
[[nodiscard]] std::string bytes_of(const std::function<void(Writer&)>& fill,
                                   WriterOptions options = {});

/// Every table of a trace as text, a row a line: two traces are equal if their dumps are.
[[nodiscard]] std::string dump(const Trace& trace);

/// The first fault in the columns, indices and bounds of a trace, or "".
[[nodiscard]] std::string problem_of(const Trace& trace);

}  // namespace kansoku::trace
