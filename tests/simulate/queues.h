// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cmath>
#include <cstdint>
#include <functional>
#include <numbers>
#include <string>
#include <vector>

#include "common/rng.h"
#include "simulate/des/engine.h"
#include "simulate/des/resource.h"

// Queues with a closed form, written on the engine as a user would.

namespace kansoku::exactness {

using simulate::des::Environment;
using simulate::des::Held;
using simulate::des::PreemptiveResource;
using simulate::des::Process;
using simulate::des::Resource;

constexpr double kSecond = 1e9;  // nanoseconds; a mean service takes about one second

inline Nanos seconds(double value) {
  return Nanos{static_cast<std::int64_t>(std::llround(value * kSecond))};
}
inline double exponential(RandomStream& random, double mean) {
  return -mean * std::log(random.uniform());
}

/// A service time in seconds.
using Service = std::function<double(RandomStream&)>;
inline Service exponential_service(double mean) {
  return [mean](RandomStream& random) { return exponential(random, mean); };
}
inline Service constant_service(double mean) {
  return [mean](RandomStream&) { return mean; };
}
/// exp(N(-sigma^2/2, sigma)): mean 1.
inline Service lognormal_service(double sigma) {
  return [sigma](RandomStream& random) {
    const double radius = std::sqrt(-2 * std::log(random.uniform()));
    const double normal = radius * std::cos(2 * std::numbers::pi * random.uniform());
    return std::exp(sigma * normal - sigma * sigma / 2);
  };
}
/// Exponential times of mean `a` with probability `p`, else of mean `b`.
inline Service hyperexponential_service(double p, double a, double b) {
  return [=](RandomStream& random) {
    const double mean = random.uniform() < p ? a : b;
    return exponential(random, mean);
  };
}

/// One figure of one replication.
struct Figure {
  double mean{0};
  double half_width{0};  // of its 95 % interval by batch means
};

/// The mean of a quantity over arrivals, in batches of consecutive arrivals. Sums are integers, so
/// they do not depend on the order in which customers leave.
class BatchMeans {
 public:
  static constexpr int kBatches = 10;
  static constexpr double kStudent = 2.262157;  // 97.5 % of Student's t, 9 degrees of freedom

  void add(std::int64_t arrival, std::int64_t counted, std::int64_t value) {
    if (arrival < 0 || arrival >= counted) return;  // warm-up, or the tail
    Batch& batch = batches_[static_cast<std::size_t>(arrival * kBatches / counted)];
    batch.sum += value;
    ++batch.count;
  }
  [[nodiscard]] Figure figure() const {
    std::int64_t count = 0;
    simulate::des::Wide sum = 0;
    double squares = 0;
    for (const Batch& batch : batches_) {
      sum += batch.sum;
      count += batch.count;
    }
    const double mean = static_cast<double>(sum) / static_cast<double>(count) / kSecond;
    for (const Batch& batch : batches_) {
      const double of_batch =
          static_cast<double>(batch.sum) / static_cast<double>(batch.count) / kSecond;
      squares += (of_batch - mean) * (of_batch - mean);
    }
    return {mean, kStudent * std::sqrt(squares / (kBatches * (kBatches - 1)))};
  }

 private:
  struct Batch {
    std::int64_t sum{0}, count{0};
  };
  std::array<Batch, kBatches> batches_{};
};

/// How long a replication is, in arrivals: before and after those that are counted come `aside`.
struct Length {
  std::int64_t counted{0}, aside{0};
};

/// Record of one replication, filled by its customers.
struct Record {
  Length length;
  std::vector<BatchMeans> figures;
  void add(std::size_t figure, std::int64_t arrival, Nanos value) {
    figures[figure].add(arrival - length.aside, length.counted, value.count());
  }
};

/// Poisson arrivals; `customer(arrival)` gives the process of each.
template <class Customer>
Process arrive(Environment& env, RandomStream random, double rate, const Length& length,
               Customer customer) {
  const std::int64_t count = length.counted + 2 * length.aside;
  for (std::int64_t i = 0; i < count; ++i) {
    co_await env.timeout(seconds(exponential(random, 1 / rate)));
    env.start(customer(i));
  }
}

}  // namespace kansoku::exactness
