// SPDX-License-Identifier: Apache-2.0
#include "published_random.h"

namespace kansoku::simulate {
namespace {

constexpr std::size_t kLag = 607, kShortLag = 273;
constexpr std::size_t kFeed = kLag - kShortLag;
constexpr std::uint64_t kFixedSteps = 7'800'000'000'000;

using Words = std::vector<std::uint64_t>;

// x * 48271 mod (2^31 - 1), and from 20 of its numbers on three for a word of the state.
Words lehmer_words(std::uint64_t x, int high_shift, int middle_shift) {
  const auto next = [&x] { return x = x * 48271 % 0x7fffffff; };
  for (int i = 0; i < 20; ++i)
    next();
  Words words(kLag);
  for (std::uint64_t& word : words) {
    word = next() << high_shift;
    word ^= next() << middle_shift;
    word ^= next();
  }
  return words;
}

// Polynomials modulo x^607 = x^334 + 1, the recurrence's; coefficients modulo 2^64.
Words product(const Words& a, const Words& b) {
  Words wide(2 * kLag - 1);
  for (std::size_t i = 0; i < kLag; ++i) {
    for (std::size_t j = 0; j < kLag; ++j)
      wide[i + j] += a[i] * b[j];
  }
  for (std::size_t i = wide.size(); i-- > kLag;) {
    wide[i - kLag + kFeed] += wide[i];
    wide[i - kLag] += wide[i];
  }
  wide.resize(kLag);
  return wide;
}

Words power_of_x(std::uint64_t exponent) {
  Words result(kLag), base(kLag);
  result[0] = base[1] = 1;
  for (; exponent > 0; exponent /= 2) {
    if (exponent % 2 == 1) result = product(result, base);
    base = product(base, base);
  }
  return result;
}

// Number n of the sequence is written to this word of the state; the first state is numbers
// -606..0.
std::size_t word_of(std::uint64_t n_plus_606) {
  return static_cast<std::size_t>((kFeed + 606 + kLag - n_plus_606 % kLag) % kLag);
}

Words fixed_state() {
  const Words start = lehmer_words(1, 20, 10);
  Words sequence(2 * kLag);
  for (std::size_t k = 0; k < sequence.size(); ++k)
    sequence[k] = k < kLag ? start[word_of(k)] : sequence[k - kLag] + sequence[k - kShortLag];
  const Words jump = power_of_x(kFixedSteps);
  Words state(kLag);
  for (std::size_t j = 0; j < kLag; ++j) {
    std::uint64_t number = 0;
    for (std::size_t i = 0; i < kLag; ++i)
      number += jump[i] * sequence[i + j];
    state[word_of(kFixedSteps + j)] = number;
  }
  return state;
}

}  // namespace

PublishedRandom::PublishedRandom(std::uint32_t seed)
    : state_(lehmer_words(seed, 40, 20)), tap_(0), feed_(kFeed) {
  static const Words fixed = fixed_state();
  for (std::size_t i = 0; i < kLag; ++i)
    state_[i] ^= fixed[i];
}

std::uint64_t PublishedRandom::next_63_bits() {
  tap_ = (tap_ + kLag - 1) % kLag;
  feed_ = (feed_ + kLag - 1) % kLag;
  state_[feed_] += state_[tap_];
  return state_[feed_] & ~(std::uint64_t{1} << 63);
}

std::uint32_t PublishedRandom::below(std::uint32_t bound) {
  const auto next = [this] { return static_cast<std::uint32_t>(next_63_bits() >> 32); };
  if ((bound & (bound - 1)) == 0) return next() & (bound - 1);
  const std::uint32_t last = 0x7fffffff - 0x80000000U % bound;
  std::uint32_t value = next();
  while (value > last)
    value = next();
  return value % bound;
}

std::uint32_t PublishedRandom::below_by_product(std::uint32_t bound) {
  const std::uint32_t reject_below = (0 - bound) % bound;
  for (;;) {
    const auto wide = std::uint64_t{static_cast<std::uint32_t>(next_63_bits() >> 31)} * bound;
    if (static_cast<std::uint32_t>(wide) >= reject_below)
      return static_cast<std::uint32_t>(wide >> 32);
  }
}

void PublishedRandom::shuffle(std::vector<std::uint32_t>& items) {
  for (std::size_t i = items.size(); i > 1; --i)
    std::swap(items[i - 1], items[below_by_product(static_cast<std::uint32_t>(i))]);
}

std::vector<std::uint32_t> PublishedRandom::permutation(std::uint32_t size) {
  std::vector<std::uint32_t> items(size);
  for (std::uint32_t i = 0; i < size; ++i) {
    const std::uint32_t j = below(i + 1);
    items[i] = items[j];
    items[j] = i;
  }
  return items;
}

}  // namespace kansoku::simulate
