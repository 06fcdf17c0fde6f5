// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "common/result.h"

namespace kansoku::sys {

/// Microseconds so far in which tasks were held up for want of a resource.
struct PressureTotals {
  std::optional<std::uint64_t> some_us;  // at least one of them
  std::optional<std::uint64_t> full_us;  // all that were not idle; not for processors of a host
};
/// Parses the text of a pressure file. Lines that make no sense are skipped.
[[nodiscard]] PressureTotals parse_pressure(std::string_view untrusted);

struct Pressure {
  PressureTotals cpu, io, memory;  // without values: the kernel does not tell
};

/// Pressure stall information (PSI), three small reads a sample. Not shared between threads.
class PressureSampler {
 public:
  /// Pressure of the host. kUnavailable if the kernel does not keep it.
  [[nodiscard]] static Result<PressureSampler> open_host(
      const std::string& folder = "/proc/pressure");
  /// Pressure of a control group; `folder` is that of version 2, since version 1 has none:
  /// kUnavailable.
  [[nodiscard]] static Result<PressureSampler> open_cgroup(const std::string& folder);
  PressureSampler(PressureSampler&&) noexcept;
  PressureSampler& operator=(PressureSampler&&) noexcept;
  ~PressureSampler();

  /// kNotFound if the control group is gone.
  [[nodiscard]] Result<Pressure> sample() const;

 private:
  struct Files;
  explicit PressureSampler(std::unique_ptr<Files> files);
  [[nodiscard]] static Result<PressureSampler> open(const std::string& folder,
                                                    std::string_view suffix);
  std::unique_ptr<Files> files_;
};

}  // namespace kansoku::sys
