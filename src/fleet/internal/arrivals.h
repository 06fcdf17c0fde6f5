// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>

namespace kansoku::fleet::internal {

/// Which messages of a host came: the last 64 sequence numbers of each of its last two epochs.
class Arrivals {
 public:
  enum class Verdict : std::uint8_t { kNew, kDuplicate, kStale };
  struct Position {
    std::int64_t epoch_ns{0};
    std::uint64_t sequence{0};
    friend auto operator<=>(const Position&, const Position&) = default;
  };

  Verdict add(Position position);
  [[nodiscard]] std::uint64_t messages() const { return messages_; }
  [[nodiscard]] std::uint64_t duplicates() const { return duplicates_; }
  /// Numbers between the first and the last of each epoch that did not come (yet).
  [[nodiscard]] std::uint64_t missing() const;
  /// Epochs after the first.
  [[nodiscard]] std::uint32_t restarts() const { return restarts_; }

 private:
  struct Epoch {
    std::int64_t epoch_ns{0};
    std::uint64_t lowest{0}, highest{0}, count{0};
    std::uint64_t seen{0};  // bit i: highest - i came
    [[nodiscard]] std::uint64_t missing() const { return highest - lowest + 1 - count; }
  };
  Verdict add_to(Epoch& epoch, std::uint64_t sequence);

  std::optional<Epoch> newer_, older_;
  std::uint64_t messages_{0}, duplicates_{0}, missing_before_{0};
  std::uint32_t restarts_{0};
};

}  // namespace kansoku::fleet::internal
