// SPDX-License-Identifier: Apache-2.0
// A filling station: two pumps over one tank of 40 units of ten litres. A unit is an item of a
// store, which is what an engine without continuous levels makes of a tank. When the tank runs low
// a lorry is called; cars at the pumps wait for it.
#include <fmt/format.h>

#include <chrono>

#include "common/rng.h"
#include "simulate/des/engine.h"
#include "simulate/des/resource.h"
#include "simulate/des/store.h"

using namespace kansoku;
namespace des = simulate::des;

namespace {

constexpr Nanos kSecond = std::chrono::seconds(1), kMinute = std::chrono::minutes(1);
constexpr std::size_t kTankUnits = 40, kLowUnits = 8;

struct Unit {};  // ten litres

struct Station {
  explicit Station(des::Environment& env)
      : pumps(env, 2, "pumps"), tank(env, kTankUnits, "tank"), calls(env, 1, "calls") {}
  des::Resource pumps;
  des::Store<Unit> tank;
  des::Store<Unit> calls;  // for the lorry
  bool called{false};      // until it has filled the tank
  RandomStream random{7, "cars"};
};

void say(const des::Environment& env, const std::string& what) {
  fmt::print("{:5} s  {}\n", env.now() / kSecond, what);
}

des::Process car(des::Environment& env, Station& station, int number) {
  const Nanos came = env.now();
  const auto wanted = static_cast<int>(3 + station.random.below(4));
  const des::Held pump = co_await station.pumps.request();
  for (int i = 0; i < wanted; ++i) {
    static_cast<void>(co_await station.tank.get());  // waits if the tank is empty
    co_await env.timeout(5 * kSecond);
    if (station.tank.size() < kLowUnits && !station.called) {
      station.called = true;
      co_await station.calls.put({});
    }
  }
  say(env, fmt::format("car {:2} drives off with {} litres after {} s", number, 10 * wanted,
                       (env.now() - came) / kSecond));
}

des::Process lorry(des::Environment& env, Station& station) {
  for (;;) {
    static_cast<void>(co_await station.calls.get());
    say(env, fmt::format("lorry called, {} litres left", 10 * station.tank.size()));
    co_await env.timeout(5 * kMinute);
    const std::size_t missing = kTankUnits - station.tank.size();
    say(env, fmt::format("lorry is there, pumps {} litres", 10 * missing));
    for (std::size_t i = 0; i < missing; ++i) {
      co_await env.timeout(kSecond);
      co_await station.tank.put({});
    }
    station.called = false;
  }
}

des::Process cars(des::Environment& env, Station& station) {
  for (int number = 1; number <= 20; ++number) {
    env.start(car(env, station, number));
    co_await env.timeout(kSecond * static_cast<std::int64_t>(30 + station.random.below(90)));
  }
}

des::Process fill(des::Environment&, Station& station) {
  for (std::size_t i = 0; i < kTankUnits; ++i)
    co_await station.tank.put({});
}

}  // namespace

int main() {
  des::Environment env;
  Station station(env);
  env.start(fill(env, station));
  env.start(lorry(env, station));
  env.start(cars(env, station));
  env.run();
  fmt::print("{} litres left in the tank\n", 10 * station.tank.size());
}
