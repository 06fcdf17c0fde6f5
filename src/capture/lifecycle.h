// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

#include "common/time.h"

namespace kansoku::capture {

/// A process or thread number of a ring record.
[[nodiscard]] constexpr std::int32_t as_pid(std::uint32_t raw) {
  return static_cast<std::int32_t>(raw);
}

/// A process that appeared, changed or went, as the ring tells it.
struct LifecycleEvent {
  enum class Kind : std::uint8_t { kFork, kExec, kExit };
  Kind kind{Kind::kFork};
  std::int32_t pid{0};         // the child for kFork
  std::int32_t parent_pid{0};  // kFork only
  BootTime time{};
  std::uint32_t exit_code{0};  // kExit only: as wait() gives it
};

/// The event that a record of the ring tells; nothing if it tells of something else.
[[nodiscard]] std::optional<LifecycleEvent> lifecycle_event(std::span<const std::byte> record);

}  // namespace kansoku::capture
