// SPDX-License-Identifier: Apache-2.0
#include "diagnose/internal/steps/limits.h"

#include <string_view>

#include "diagnose/internal/steps/names.h"

namespace kansoku::diagnose {

std::map<std::int32_t, Limits> read_limits(const trace::Trace& trace, const JobData& job) {
  std::map<std::int32_t, Limits> out;
  const trace::StringId name = trace.strings.find("limits");
  const auto ranks = ranks_by_pid(job);
  const auto& instants = trace.instants;
  for (std::size_t i = 0; name != trace::StringId{} && i < instants.size(); ++i) {
    if (instants.name[i] != name || instants.track[i].raw >= trace.tracks.size()) continue;
    const auto rank = ranks.find(trace.tracks[instants.track[i].raw].pid);
    const auto args = args_of(trace, instants.arg_begin[i], instants.arg_count[i]);
    if (rank == ranks.end() || args.empty()) continue;
    Limits limits;
    for (const trace::ArgValue& arg : args) {
      const std::string_view key = text_of(trace, arg.key);
      const bool is_text = arg.kind == trace::ArgValue::Kind::kString;
      const bool is_count = arg.kind == trace::ArgValue::Kind::kUint;
      if (is_text && key == "cpus") limits.cpus = text_of(trace, arg.text);
      if (is_text && key == "quota_group") limits.quota_group = text_of(trace, arg.text);
      if (is_text && key == "memory_group") limits.memory_group = text_of(trace, arg.text);
      if (is_count && key == "memory_limit") limits.memory_limit = arg.u64;
      if (is_count && key == "cpu_count") limits.cpu_count = arg.u64;
      if (is_count && key == "host_count") limits.host_count = arg.u64;
      if (is_count && key == "quota_milli") limits.quota_cpus = static_cast<double>(arg.u64) / 1e3;
    }
    out[rank->second] = std::move(limits);
  }
  return out;
}

}  // namespace kansoku::diagnose
