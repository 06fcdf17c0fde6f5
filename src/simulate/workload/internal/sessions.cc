// SPDX-License-Identifier: Apache-2.0
#include "simulate/workload/internal/sessions.h"

#include <map>

#include "simulate/workload/internal/week.h"

namespace kansoku::simulate::internal {

std::vector<std::vector<std::uint32_t>> cut_sessions(std::span<const Job> jobs, double gap_s) {
  struct Open {
    std::size_t session{0};
    Nanos last{0};
  };
  const Nanos gap = nanos_of(gap_s);
  std::map<std::uint32_t, Open> open;
  std::vector<std::vector<std::uint32_t>> sessions;
  for (std::size_t i = 0; i < jobs.size(); ++i) {
    const auto [place, first_of_group] = open.try_emplace(jobs[i].group);
    Open& state = place->second;
    if (first_of_group || jobs[i].submit - state.last > gap) {
      state.session = sessions.size();
      sessions.emplace_back();
    }
    state.last = jobs[i].submit;
    sessions[state.session].push_back(static_cast<std::uint32_t>(i));
  }
  return sessions;
}

}  // namespace kansoku::simulate::internal
