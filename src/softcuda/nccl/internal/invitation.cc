// SPDX-License-Identifier: Apache-2.0
#include "softcuda/nccl/internal/invitation.h"

#include <bit>
#include <cstring>

namespace kansoku::softcuda::nccl {
namespace {

constexpr std::uint64_t kMagic = 0x4c43434e554b534bULL;  // "KSKUNCCL"
constexpr std::uint32_t kFormat = 1;

struct Layout {
  std::uint64_t magic;
  std::uint32_t format;
  std::uint16_t family;  // 4 or 6
  std::uint16_t port;
  std::uint64_t secret;
  std::uint8_t address[16];
  std::uint8_t rest[88];  // zeros
};
static_assert(sizeof(Layout) == sizeof(ncclUniqueId));

}  // namespace

ncclUniqueId to_unique_id(const Invitation& invitation) {
  Layout layout{};
  layout.magic = kMagic;
  layout.format = kFormat;
  layout.family = invitation.host.is_v6 ? 6 : 4;
  layout.port = invitation.port;
  layout.secret = invitation.secret;
  std::memcpy(layout.address, invitation.host.bytes.data(), sizeof(layout.address));
  return std::bit_cast<ncclUniqueId>(layout);
}

Result<Invitation> to_invitation(const ncclUniqueId& untrusted) {
  const auto layout = std::bit_cast<Layout>(untrusted);
  if (layout.magic != kMagic)
    return Error{Code::kCorrupt, "read unique id: this library's ncclGetUniqueId did not make it"};
  if (layout.format != kFormat)
    return Error{Code::kUnsupported, "read unique id: another version of this library made it"};
  if ((layout.family != 4 && layout.family != 6) || layout.port == 0)
    return Error{Code::kCorrupt, "read unique id: it is damaged"};
  Invitation invitation;
  invitation.host.is_v6 = layout.family == 6;
  std::memcpy(invitation.host.bytes.data(), layout.address, invitation.host.is_v6 ? 16 : 4);
  invitation.port = layout.port;
  invitation.secret = layout.secret;
  return invitation;
}

}  // namespace kansoku::softcuda::nccl
