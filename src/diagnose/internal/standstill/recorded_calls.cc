// SPDX-License-Identifier: Apache-2.0
#include "diagnose/internal/standstill/recorded_calls.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "diagnose/flight_calls.h"

namespace kansoku::diagnose {

using trace::import::RecordedFlight;

void join_recorded_calls(std::span<const RecordedFlight> recorded, Diagnosis& job) {
  std::vector<trace::import::FlightDump> dumps;
  FlightCalls calls;
  for (std::size_t r = 0; r < job.rank_numbers.size(); ++r) {
    const auto& pids = job.rank_pids[r];
    const auto flight = std::find_if(recorded.begin(), recorded.end(), [&](const auto& one) {
      return std::count(pids.begin(), pids.end(), one.pid) > 0;
    });
    if (flight == recorded.end()) continue;
    dumps.push_back(flight->dump);
    dumps.back().rank = job.rank_numbers[r];
    if (flight->storage == RecordedFlight::Storage::kMoves)
      calls.with_storage.insert(job.rank_numbers[r]);
    calls.read_ns = std::max(calls.read_ns, flight->read_ns);
    calls.first_read_ns =
        calls.first_read_ns == 0 ? flight->read_ns : std::min(calls.first_read_ns, flight->read_ns);
  }
  calls.dumps = dumps;
  if (!dumps.empty()) join_flight_calls(calls, job);
}

}  // namespace kansoku::diagnose
