// SPDX-License-Identifier: Apache-2.0
#include "diagnose/internal/steps/sleeps.h"

#include <fmt/format.h>

#include "diagnose/internal/steps/names.h"
#include "diagnose/internal/words.h"

namespace kansoku::diagnose {

namespace {

/// Calls `take(tid, sample)` for those of the threads that are wanted.
template <class IsWanted, class Take>
void for_each_sleep(const trace::Trace& trace, const stats::IntervalSet& region, IsWanted is_wanted,
                    Take take) {
  const trace::StringId name = trace.strings.find("wait"), call = trace.strings.find("call"),
                        on = trace.strings.find("on");
  const auto& instants = trace.instants;
  for (std::size_t i = 0; name != trace::StringId{} && i < instants.size(); ++i) {
    if (instants.name[i] != name || instants.track[i].raw >= trace.tracks.size()) continue;
    const std::int32_t tid = trace.tracks[instants.track[i].raw].tid;
    if (!is_wanted(tid) || !region.contains(instants.time_ns[i])) continue;
    SleepSample seen{.time_ns = instants.time_ns[i], .call = {}, .on = {}};
    for (const trace::ArgValue& arg :
         args_of(trace, instants.arg_begin[i], instants.arg_count[i])) {
      if (arg.kind != trace::ArgValue::Kind::kString) continue;
      if (arg.key == call) seen.call = text_of(trace, arg.text);
      if (arg.key == on) seen.on = text_of(trace, arg.text);
    }
    take(tid, seen);
  }
}

}  // namespace

std::map<std::int32_t, std::vector<SleepSample>> sleep_samples(const trace::Trace& trace,
                                                               const stats::IntervalSet& region) {
  std::map<std::int32_t, std::vector<SleepSample>> out;
  for_each_sleep(
      trace, region, [](std::int32_t) { return true; },
      [&](std::int32_t tid, const SleepSample& seen) { out[tid].push_back(seen); });
  return out;
}

std::vector<SleepSample> sleep_samples(const trace::Trace& trace, std::int32_t tid,
                                       const stats::IntervalSet& region) {
  std::vector<SleepSample> out;
  for_each_sleep(
      trace, region, [tid](std::int32_t one) { return one == tid; },
      [&](std::int32_t, const SleepSample& seen) { out.push_back(seen); });
  return out;
}

std::string wait_text(std::string_view call, std::string_view on) {
  if (on == kInterpreterLock) return words::kForInterpreterLock;
  if (call == "futex") return words::kForLock;
  return on.empty() ? fmt::format(words::kInCall, call) : fmt::format(words::kInCallOn, call, on);
}

}  // namespace kansoku::diagnose
