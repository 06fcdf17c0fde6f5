// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <optional>
#include <string>
#include <vector>

#include "capture/pack.h"
#include "wire/ring.h"

namespace kansoku::capture {

/// Meaning of an attached probe, for the decoder of records and for the reader of totals.
struct ProbeInfo {
  std::string title{}, category{};
  ProbeKind kind{ProbeKind::kCall};
  bool is_syscall{false};
  bool is_host{false};     // belongs to no observed process
  bool is_sampled{false};  // as of FunctionProbes
  bool is_window{false};   // attached during windows only
  std::optional<std::string> ordinal_by{};
  std::vector<CaptureDef> captures{};
  std::vector<std::string> group{};      // as of FunctionProbes
  std::vector<std::string> bytes{};      // as of FunctionProbes
  std::string type{};                    // as of FunctionProbes
  std::vector<TypeValue> type_values{};  // as of FunctionProbes
  std::string metric{};                  // metric of its totals
  std::size_t entry{0};                  // of Attacher
  bool is_free{false};                   // the number may be given again
};

/// Probes by number, that of ring records and of totals. A deque: references stay valid while
/// probes are added.
using ProbeTable = std::deque<ProbeInfo>;

/// Adds probes with numbers that follow each other and gives the first; nothing if there are no
/// more than `numbers_max`.
[[nodiscard]] std::optional<std::uint32_t> add_probes(ProbeTable& table,
                                                      std::vector<ProbeInfo> probes,
                                                      std::size_t numbers_max);

/// Description, for the BPF programs, of a function's probe whose calls go to `sinks`.
/// `at_end`: one record a call.
[[nodiscard]] wire_probe describe(const FunctionProbes& probes,
                                  const std::vector<CaptureDef>& captures, std::uint8_t sinks,
                                  bool at_end);

}  // namespace kansoku::capture
