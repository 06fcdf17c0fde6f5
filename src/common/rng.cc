// SPDX-License-Identifier: Apache-2.0
#include "common/rng.h"

#include <Random123/philox.h>

#include "common/check.h"

namespace kansoku {

std::uint64_t Rng::next_u64() {
  const r123::Philox4x32::key_type key{
      {static_cast<std::uint32_t>(seed_), static_cast<std::uint32_t>(seed_ >> 32)}};
  const r123::Philox4x32::ctr_type counter{
      {static_cast<std::uint32_t>(counter_), static_cast<std::uint32_t>(counter_ >> 32),
       static_cast<std::uint32_t>(stream_), static_cast<std::uint32_t>(stream_ >> 32)}};
  ++counter_;
  const auto block = r123::Philox4x32{}(counter, key);
  return (std::uint64_t{block[1]} << 32) | block[0];
}

namespace {

/// Rejects the numbers that would make some remainders likelier.
template <class Next>
std::uint64_t below_of(std::uint64_t bound, Next next) {
  CHECK(bound >= 1);
  const std::uint64_t reject_below = (0 - bound) % bound;
  for (;;) {
    const std::uint64_t value = next();
    if (value >= reject_below) return value % bound;
  }
}

}  // namespace

std::uint64_t Rng::below(std::uint64_t bound) {
  return below_of(bound, [this] { return next_u64(); });
}

double Rng::uniform() {
  return static_cast<double>(next_u64() >> 11) * 0x1.0p-53;
}

void RandomStream::refill() {
  const auto block = r123::Philox4x64{}({{counter_++, 0, 0, 0}}, {{key_[0], key_[1]}});
  block_ = {block[3], block[2], block[1], block[0]};
  left_ = 4;
}

std::uint64_t RandomStream::below(std::uint64_t bound) {
  return below_of(bound, [this] { return next_u64(); });
}

RandomBlocks::Block RandomBlocks::at(std::uint64_t index) const {
  const auto block = r123::Philox4x64{}({{index, 0, 0, 0}}, {{key_[0], key_[1]}});
  return {block[0], block[1], block[2], block[3]};
}

}  // namespace kansoku
