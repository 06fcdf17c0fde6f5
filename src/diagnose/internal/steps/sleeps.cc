// SPDX-License-Identifier: Apache-2.0
#include "diagnose/internal/steps/sleeps.h"

#include <fmt/format.h>

#include "diagnose/internal/steps/names.h"
#include "diagnose/internal/words.h"

namespace kansoku::diagnose {

std::vector<SleepSample> sleep_samples(const trace::Trace& trace, std::int32_t tid,
                                       const stats::IntervalSet& region) {
  const trace::StringId name = trace.strings.find("wait"), call = trace.strings.find("call"),
                        on = trace.strings.find("on");
  std::vector<SleepSample> out;
  const auto& instants = trace.instants;
  for (std::size_t i = 0; name != trace::StringId{} && i < instants.size(); ++i) {
    if (instants.name[i] != name || instants.track[i].raw >= trace.tracks.size()) continue;
    if (trace.tracks[instants.track[i].raw].tid != tid) continue;
    if (!region.contains(instants.time_ns[i])) continue;
    SleepSample seen{.time_ns = instants.time_ns[i], .call = {}, .on = {}};
    for (const trace::ArgValue& arg :
         args_of(trace, instants.arg_begin[i], instants.arg_count[i])) {
      if (arg.kind != trace::ArgValue::Kind::kString) continue;
      if (arg.key == call) seen.call = text_of(trace, arg.text);
      if (arg.key == on) seen.on = text_of(trace, arg.text);
    }
    out.push_back(seen);
  }
  return out;
}

std::string wait_text(std::string_view call, std::string_view on) {
  if (on == kInterpreterLock) return words::kForInterpreterLock;
  if (call == "futex") return words::kForLock;
  return on.empty() ? fmt::format(words::kInCall, call) : fmt::format(words::kInCallOn, call, on);
}

}  // namespace kansoku::diagnose
