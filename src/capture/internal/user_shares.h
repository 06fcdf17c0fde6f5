// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>

namespace kansoku::capture {

/// How much of a limit of the host each user has in use: at most half of it, so that no user alone
/// takes it away from all others. Single-threaded.
class UserShares {
 public:
  explicit UserShares(std::size_t host_max) : user_max_(host_max / 2) {}

  /// False: the user would have more than one may have, and gets nothing.
  [[nodiscard]] bool take(std::uint32_t uid, std::size_t count = 1) {
    std::size_t& used = used_[uid];
    if (used + count > user_max_) return false;
    used += count;
    return true;
  }
  /// Gives back units that were taken.
  void give(std::uint32_t uid, std::size_t count = 1) {
    const auto found = used_.find(uid);
    if (found == used_.end()) return;
    found->second -= std::min(found->second, count);
    if (found->second == 0) used_.erase(found);
  }
  [[nodiscard]] std::size_t user_max() const { return user_max_; }

 private:
  std::size_t user_max_;
  std::map<std::uint32_t, std::size_t> used_;
};

}  // namespace kansoku::capture
