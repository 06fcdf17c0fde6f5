// SPDX-License-Identifier: Apache-2.0
// A car wash with two machines. A washed car is dried by hand, by its driver and the attendant at
// once; the driver goes when both are done.
#include <fmt/format.h>

#include <chrono>

#include "common/rng.h"
#include "simulate/des/engine.h"
#include "simulate/des/group.h"
#include "simulate/des/resource.h"

using namespace kansoku;
namespace des = simulate::des;

namespace {

constexpr Nanos kMinute = std::chrono::minutes(1);

struct Wash {
  explicit Wash(des::Environment& env) : machines(env, 2), attendant(env, 1) {}
  des::Resource machines, attendant;
  RandomStream random{3, "wash"};
  Nanos some_minutes(std::uint64_t from, std::uint64_t to) {
    return kMinute * static_cast<std::int64_t>(from + random.below(to - from + 1));
  }
};

void say(const des::Environment& env, int car, const char* what) {
  fmt::print("{:3} min  car {} {}\n", env.now() / kMinute, car, what);
}

des::Process dry_left_side(des::Environment& env, Wash& wash) {
  const des::Held attendant = co_await wash.attendant.request();
  co_await env.timeout(wash.some_minutes(1, 2));
}

des::Process dry_right_side(des::Environment& env, Wash& wash) {
  co_await env.timeout(wash.some_minutes(2, 4));
}

des::Process car(des::Environment& env, Wash& wash, int number) {
  say(env, number, "arrives");
  {
    const des::Held machine = co_await wash.machines.request();
    say(env, number, "drives in");
    co_await env.timeout(5 * kMinute);
    say(env, number, "is washed");
  }
  auto left = env.joined(env.start(dry_left_side(env, wash)));
  auto right = env.joined(env.start(dry_right_side(env, wash)));
  co_await des::all_of(env, left, right);
  say(env, number, "leaves");
}

des::Process arrivals(des::Environment& env, Wash& wash) {
  for (int number = 1; number <= 8; ++number) {
    env.start(car(env, wash, number));
    co_await env.timeout(wash.some_minutes(1, 3));
  }
}

}  // namespace

int main() {
  des::Environment env;
  Wash wash(env);
  env.start(arrivals(env, wash));
  env.run();
}
