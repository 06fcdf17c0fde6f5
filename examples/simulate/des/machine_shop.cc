// SPDX-License-Identifier: Apache-2.0
// Machines make parts and break down now and then: the break interrupts the part in work, which
// goes on after the repair. The only repairer has paper work as well, which a broken machine
// preempts.
#include <fmt/format.h>

#include <cmath>
#include <string>
#include <vector>

#include "common/rng.h"
#include "simulate/des/engine.h"
#include "simulate/des/resource.h"

using namespace kansoku;
namespace des = simulate::des;

namespace {

constexpr Nanos kHour = std::chrono::hours(1), kMinute = std::chrono::minutes(1);
constexpr std::int64_t kRepair = 1, kPaperWork = 2;  // smaller goes first

struct Machine {
  explicit Machine(const std::string& called)
      : name(called), parts(42, called + " parts"), breaks(42, called + " breaks") {}
  std::string name;
  RandomStream parts, breaks;
  des::ProcessId worker{};
  bool working{true};
  int made{0}, broke{0};
};

Nanos scaled(Nanos time, double factor) {
  return Nanos{std::llround(static_cast<double>(time.count()) * factor)};
}

des::Process work(des::Environment& env, Machine& machine, des::PreemptiveResource& repairer) {
  for (;;) {
    Nanos left = scaled(10 * kMinute, 0.8 + 0.4 * machine.parts.uniform());
    while (left > Nanos{0}) {
      const Nanos begun = env.now();
      const des::Wake wake = co_await env.timeout(left);
      left -= env.now() - begun;
      if (wake == des::Wake::kDone) continue;
      ++machine.broke;
      machine.working = false;
      const des::Held repair = co_await repairer.request(kRepair);
      co_await env.timeout(30 * kMinute);
      machine.working = true;
    }
    ++machine.made;
  }
}

des::Process break_down(des::Environment& env, Machine& machine) {
  for (;;) {
    co_await env.timeout(scaled(6 * kHour, -std::log(machine.breaks.uniform())));
    if (machine.working) env.interrupt(machine.worker);
  }
}

des::Process paper_work(des::Environment& env, des::PreemptiveResource& repairer, int& papers) {
  for (;;) {
    Nanos left = 20 * kMinute;
    while (left > Nanos{0}) {
      const des::Held desk = co_await repairer.request(kPaperWork);
      const Nanos begun = env.now();
      co_await env.timeout(left);  // ends early if a machine breaks
      left -= env.now() - begun;
    }
    ++papers;
  }
}

}  // namespace

int main() {
  des::Environment env;
  des::PreemptiveResource repairer(env, 1, des::PreemptiveResource::Mode::kPreemptive, "repairer");
  std::vector<Machine> machines;
  for (int i = 1; i <= 4; ++i)
    machines.emplace_back(fmt::format("machine {}", i));
  int papers = 0;
  for (Machine& machine : machines) {
    machine.worker = env.start(work(env, machine, repairer));
    env.start(break_down(env, machine));
  }
  env.start(paper_work(env, repairer, papers));
  env.run_until(7 * 24 * kHour);
  for (const Machine& machine : machines)
    fmt::print("{} made {} parts and broke down {} times\n", machine.name, machine.made,
               machine.broke);
  fmt::print("the repairer did {} papers and was called away {} times, busy {:.0f} % of the week\n",
             papers, repairer.preemption_count(), 100 * repairer.busy_integral().mean(env.now()));
}
