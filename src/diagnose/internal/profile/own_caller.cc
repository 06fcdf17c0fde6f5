// SPDX-License-Identifier: Apache-2.0
#include "diagnose/internal/profile/own_caller.h"

#include <algorithm>
#include <map>
#include <utility>
#include <vector>

#include "common/python_code.h"
#include "diagnose/internal/steps/job.h"
#include "diagnose/internal/steps/names.h"

namespace kansoku::diagnose {
namespace {

struct Call {
  Interval time;
  trace::StringId name{};
  bool is_wanted{false};
};

}  // namespace

std::optional<PythonName> own_caller(const trace::Trace& trace, std::span<const std::int32_t> pids,
                                     std::string_view name) {
  const trace::StringId wanted = trace.strings.find(name);
  const trace::StringId python = trace.strings.find("python_function");
  if (wanted == trace::StringId{} || python == trace::StringId{}) return std::nullopt;
  std::map<std::uint32_t, std::vector<Call>> threads;  // by track
  for (std::size_t i = 0; i < trace.slices.size(); ++i) {
    const trace::SliceTable& slices = trace.slices;
    const bool is_wanted = slices.name[i] == wanted;
    if ((!is_wanted && slices.category[i] != python) || slices.track[i].raw >= trace.tracks.size())
      continue;
    const std::int32_t pid = trace.tracks[slices.track[i].raw].pid;
    const auto time = slice_time(slices, i);
    if (!time || std::find(pids.begin(), pids.end(), pid) == pids.end()) continue;
    threads[slices.track[i].raw].push_back({*time, slices.name[i], is_wanted});
  }
  std::map<trace::StringId, bool> is_own;
  const auto owns = [&](trace::StringId id) {
    const auto [known, is_new] = is_own.try_emplace(id);
    if (is_new) {
      const auto parsed = parse_python_name(text_of(trace, id));
      known->second = parsed && is_own_python_file(parsed->file);
    }
    return known->second;
  };
  std::map<trace::StringId, std::int64_t> time_ns;
  for (auto& [track, calls] : threads) {
    std::stable_sort(calls.begin(), calls.end(), [](const Call& a, const Call& b) {
      return std::pair(a.time.begin_ns, -a.time.end_ns) <
             std::pair(b.time.begin_ns, -b.time.end_ns);
    });
    std::vector<const Call*> open;
    for (const Call& call : calls) {
      while (!open.empty() && open.back()->time.end_ns <= call.time.begin_ns)
        open.pop_back();
      if (call.is_wanted) {
        const auto own = std::find_if(open.rbegin(), open.rend(),
                                      [&](const Call* one) { return owns(one->name); });
        if (own != open.rend()) time_ns[(*own)->name] += call.time.ns();
      }
      open.push_back(&call);
    }
  }
  const auto most =
      std::max_element(time_ns.begin(), time_ns.end(),
                       [](const auto& a, const auto& b) { return a.second < b.second; });
  if (most == time_ns.end() || owns(wanted)) return std::nullopt;
  return parse_python_name(text_of(trace, most->first));
}

}  // namespace kansoku::diagnose
