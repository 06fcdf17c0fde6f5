// SPDX-License-Identifier: Apache-2.0
#include "capture/lifecycle.h"

#include <cstring>

#include "wire/ring.h"

namespace kansoku::capture {
namespace {

template <class T>
std::optional<T> copy_of(std::span<const std::byte> record) {
  if (record.size() < sizeof(T)) return std::nullopt;
  T out{};
  std::memcpy(&out, record.data(), sizeof(out));
  return out;
}

}  // namespace

std::optional<LifecycleEvent> lifecycle_event(std::span<const std::byte> record) {
  const auto head = copy_of<wire_event>(record);
  if (!head) return std::nullopt;
  LifecycleEvent out{.pid = as_pid(head->tgid),
                     .time = boot_time(static_cast<std::int64_t>(head->t_boot_ns))};
  if (head->kind == WIRE_FORK) {
    const auto change = copy_of<wire_switch>(record);
    if (!change) return std::nullopt;
    out.parent_pid = out.pid;
    out.pid = as_pid(change->next_tgid);
    return out;
  }
  if (head->kind == WIRE_EXEC) {
    out.kind = LifecycleEvent::Kind::kExec;
    return out;
  }
  if (head->kind != WIRE_EXIT) return std::nullopt;
  out.kind = LifecycleEvent::Kind::kExit;
  out.exit_code = head->probe;
  return out;
}

}  // namespace kansoku::capture
