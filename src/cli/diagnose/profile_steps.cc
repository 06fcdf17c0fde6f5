// SPDX-License-Identifier: Apache-2.0
#include "cli/diagnose/profile_steps.h"

#include <algorithm>

namespace kansoku::cli {
namespace {

/// From a mark to the open window: light probes are read every 200 ms, then the others are put on,
/// which takes longer than half a second beside another job (4 of 5 windows came late).
constexpr Nanos kLead = std::chrono::milliseconds{1500};
/// As long as nobody knows how long a step is, so many may pass meanwhile.
constexpr std::uint64_t kLeadSteps = 10;

}  // namespace

void StepWindow::on_call(const capture::CallMark& mark, std::string_view name, Sureness sureness) {
  if (processes_.size() >= kProcessesMax && !processes_.contains(mark.pid)) return;
  Counted& counted = processes_[mark.pid][static_cast<std::size_t>(sureness)];
  counted.name = name;
  ++counted.calls;
  if ((counted.calls - 1) % options_.calls_per_step != 0) return;
  const std::uint64_t step = steps_of(counted);
  if (step > 1) counted.step = mark.time - counted.last;
  counted.last = mark.time;
  if (step == options_.first) counted.begin = mark.time;
  if (step == options_.first + options_.count) counted.end = mark.time;
}

const StepWindow::Counted* StepWindow::counted(std::int32_t pid) const {
  const auto process = processes_.find(pid);
  if (process == processes_.end()) return nullptr;
  for (const Counted& counted : process->second) {
    if (counted.calls > 0) return &counted;
  }
  return nullptr;
}

bool StepWindow::is_due(const std::set<std::int32_t>& ranks) const {
  const auto is_near = [&](std::int32_t pid) {
    const Counted* const of = counted(pid);
    // One step early for ranks that are ahead, and as many as pass meanwhile.
    const bool is_known = of != nullptr && of->step > Nanos{};
    const std::uint64_t passing =
        is_known
            ? static_cast<std::uint64_t>((kLead.count() + of->step.count() - 1) / of->step.count())
            : kLeadSteps;
    return (of == nullptr ? 0 : steps_of(*of)) + 1 + passing >= options_.first;
  };
  // Before the program begins there is no rank.
  return ranks.empty() ? is_near(0) : std::any_of(ranks.begin(), ranks.end(), is_near);
}

bool StepWindow::is_complete(const std::set<std::int32_t>& ranks) const {
  return !ranks.empty() && std::all_of(ranks.begin(), ranks.end(), [&](std::int32_t pid) {
    const Counted* const of = counted(pid);
    return of != nullptr && steps_of(*of) >= options_.first + options_.count;
  });
}

std::set<std::int32_t> StepWindow::processes() const {
  std::set<std::int32_t> out;
  for (const auto& [pid, process] : processes_)
    out.insert(pid);
  return out;
}

StepWindow::Row StepWindow::row(std::int32_t pid) const {
  const Counted* const of = counted(pid);
  if (of == nullptr) return {};
  return {.seen = steps_of(*of), .mark = of->name, .begin = of->begin, .end = of->end};
}

}  // namespace kansoku::cli
