// SPDX-License-Identifier: Apache-2.0
#include "fleet/internal/arrivals.h"

#include <algorithm>

namespace kansoku::fleet::internal {
namespace {

constexpr std::uint64_t kWindow = 64;  // bits of Epoch::seen

}  // namespace

Arrivals::Verdict Arrivals::add_to(Epoch& epoch, std::uint64_t sequence) {
  if (sequence > epoch.highest) {
    const std::uint64_t ahead = sequence - epoch.highest;
    epoch.seen = ahead >= kWindow ? 0 : epoch.seen << ahead;
    epoch.highest = sequence;
  }
  const std::uint64_t behind = epoch.highest - sequence;
  if (behind >= kWindow) return Verdict::kStale;
  const std::uint64_t bit = std::uint64_t{1} << behind;
  if ((epoch.seen & bit) != 0) {
    ++duplicates_;
    return Verdict::kDuplicate;
  }
  epoch.seen |= bit;
  epoch.lowest = std::min(epoch.lowest, sequence);
  ++epoch.count;
  ++messages_;
  return Verdict::kNew;
}

Arrivals::Verdict Arrivals::add(Position position) {
  if (newer_ && newer_->epoch_ns == position.epoch_ns) return add_to(*newer_, position.sequence);
  if (older_ && older_->epoch_ns == position.epoch_ns) return add_to(*older_, position.sequence);
  if (older_ && position.epoch_ns < older_->epoch_ns) return Verdict::kStale;
  Epoch fresh{position.epoch_ns, position.sequence, position.sequence, 0, 0};
  if (newer_) ++restarts_;
  if (older_) missing_before_ += older_->missing();
  if (newer_ && position.epoch_ns < newer_->epoch_ns) {
    older_ = fresh;
    return add_to(*older_, position.sequence);
  }
  older_ = newer_;
  newer_ = fresh;
  return add_to(*newer_, position.sequence);
}

std::uint64_t Arrivals::missing() const {
  return missing_before_ + (newer_ ? newer_->missing() : 0) + (older_ ? older_->missing() : 0);
}

}  // namespace kansoku::fleet::internal
