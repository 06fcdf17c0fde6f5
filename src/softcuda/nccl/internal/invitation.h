// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "common/result.h"
#include "softcuda/nccl/abi.h"
#include "softcuda/nccl/internal/net.h"

namespace kansoku::softcuda::nccl {

/// Contents of a unique id: the meeting place of a communicator's ranks, and the secret that admits
/// them.
struct Invitation {
  HostAddress host;
  std::uint16_t port{0};
  std::uint64_t secret{0};
  friend bool operator==(const Invitation&, const Invitation&) = default;
};

[[nodiscard]] ncclUniqueId to_unique_id(const Invitation& invitation);
/// kCorrupt if it is none of ours, kUnsupported if another version made it.
[[nodiscard]] Result<Invitation> to_invitation(const ncclUniqueId& untrusted);

}  // namespace kansoku::softcuda::nccl
