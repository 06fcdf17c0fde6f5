// SPDX-License-Identifier: Apache-2.0
// A bank with two counters. Whoever has waited longer than their patience leaves.
#include <fmt/format.h>

#include <cmath>
#include <cstdint>

#include "common/rng.h"
#include "simulate/des/engine.h"
#include "simulate/des/group.h"
#include "simulate/des/resource.h"

using namespace kansoku;
namespace des = simulate::des;

namespace {

constexpr Nanos kMinute = std::chrono::minutes(1);

double minutes(Nanos time) {
  return static_cast<double>(time.count()) / static_cast<double>(kMinute.count());
}

Nanos exponential(RandomStream& random, double mean_minutes) {
  const double drawn = -mean_minutes * std::log(random.uniform());
  return Nanos{std::llround(drawn * static_cast<double>(kMinute.count()))};
}

struct Bank {
  explicit Bank(des::Environment& env) : counters(env, 2, "counters") {}
  des::Resource counters;
  RandomStream arrivals{42, "arrivals"}, services{42, "services"}, patience{42, "patience"};
  int served{0}, left{0};
  Nanos waited{0};
};

des::Process customer(des::Environment& env, Bank& bank, int number) {
  const Nanos came = env.now();
  auto request = bank.counters.request();
  auto patience = env.timeout(exponential(bank.patience, 8));
  const des::First first = co_await des::any_of(env, request, patience);
  const Nanos waited = env.now() - came;
  if (first.index != 0) {
    ++bank.left;
    fmt::print("{:6.2f} customer {:2} leaves after {:.2f} min\n", minutes(env.now()), number,
               minutes(waited));
    co_return;  // the request left the queue
  }
  const des::Held counter = request.take();  // given back at the end
  bank.waited += waited;
  co_await env.timeout(exponential(bank.services, 6));
  ++bank.served;
  fmt::print("{:6.2f} customer {:2} is done, had waited {:.2f} min\n", minutes(env.now()), number,
             minutes(waited));
}

des::Process arrivals(des::Environment& env, Bank& bank) {
  for (int number = 1; number <= 25; ++number) {
    co_await env.timeout(exponential(bank.arrivals, 2.5));
    env.start(customer(env, bank, number));
  }
}

}  // namespace

int main() {
  des::Environment env;
  Bank bank(env);
  env.start(arrivals(env, bank));
  env.run();
  fmt::print("{} served after {:.2f} min on average, {} left; counters busy {:.0f} % of the time\n",
             bank.served, minutes(bank.waited) / bank.served, bank.left,
             100 * bank.counters.busy_integral().mean(env.now()) / 2);
}
