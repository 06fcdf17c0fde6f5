// SPDX-License-Identifier: Apache-2.0
#include "cli/diagnose/flight_look.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstddef>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "capture/hang/flight_memory.h"
#include "diagnose/flight_calls.h"
#include "sys/process_counters.h"
#include "trace/import/flight_recorder.h"

namespace kansoku::cli {
namespace {

/// "[[2048, 5120], [8]]", as dumps write the sizes of tensors; takes them from the front of
/// `sizes`.
std::string sizes_text(const std::vector<std::int64_t>& dims,
                       std::span<const std::int64_t>& sizes) {
  std::vector<std::string> tensors;
  for (const std::int64_t dim : dims) {
    const auto count = static_cast<std::size_t>(std::max<std::int64_t>(dim, 0));
    if (count > sizes.size()) return "";
    tensors.push_back(fmt::format("[{}]", fmt::join(sizes.first(count), ", ")));
    sizes = sizes.subspan(count);
  }
  return fmt::format("[{}]", fmt::join(tensors, ", "));
}

trace::import::FlightDump dump_of(const capture::hang::FlightMemory& memory, std::int32_t rank) {
  trace::import::FlightDump out;
  out.rank = rank;
  out.bad_entries = memory.bad_calls;
  for (const capture::hang::FlightGroup& group : memory.groups)
    out.groups.push_back({group.name, group.description, group.ranks});
  for (const capture::hang::FlightCall& call : memory.calls) {
    trace::import::DumpEntry& entry = out.entries.emplace_back();
    std::span<const std::int64_t> sizes = call.sizes;
    entry.local_id = static_cast<std::int64_t>(call.group_id);
    entry.group_name = call.group;
    entry.group_description = call.description;
    entry.name = call.name;
    entry.state = call.is_retired ? "completed" : "scheduled";
    entry.collective_seq = static_cast<std::int64_t>(call.collective_seq);
    entry.p2p_seq = static_cast<std::int64_t>(call.p2p_seq);
    entry.op_id = static_cast<std::int64_t>(call.op_id);
    entry.is_p2p = call.is_p2p;
    entry.is_retired = call.is_retired;
    entry.created_ns = call.created_ns;
    entry.timeout_ms = call.timeout_ms;
    entry.input_sizes = sizes_text(call.input_dims, sizes);
    entry.output_sizes = sizes_text(call.output_dims, sizes);
  }
  return out;
}

/// Bytes that a process has read from and written to storage; nothing: that may not be known.
std::optional<std::uint64_t> storage_bytes(const sys::Procfs& procfs, std::int32_t pid) {
  const auto sampler = sys::ProcessSampler::open(pid, {.proc_root = procfs.root()});
  if (!sampler) return std::nullopt;
  const auto counters = sampler->sample();
  if (!counters || !counters->read_bytes || !counters->written_bytes) return std::nullopt;
  return *counters->read_bytes + *counters->written_bytes;
}

}  // namespace

FlightLook::FlightLook(const sys::Procfs& procfs, std::span<const std::int32_t> pids)
    : procfs_(procfs) {
  for (const std::int32_t pid : pids)
    if (const auto bytes = storage_bytes(procfs, pid)) storage_[pid] = *bytes;
}

void FlightLook::join(Analysis& analysis) const {
  join_job(analysis.diagnosis);
  for (diagnose::Diagnosis& other : analysis.diagnosis.other_jobs)
    join_job(other);
  analysis.json = diagnose::to_json(analysis.diagnosis);
}

void FlightLook::join_job(diagnose::Diagnosis& job) const {
  if (job.moves) return;
  std::vector<trace::import::FlightDump> dumps;
  diagnose::FlightCalls calls;
  for (std::size_t r = 0; r < job.rank_numbers.size(); ++r) {
    for (const std::int32_t pid : job.rank_pids[r]) {
      const auto before = storage_.find(pid);
      const auto after = storage_bytes(procfs_, pid);
      if (before != storage_.end() && after && *after != before->second)
        calls.with_storage.insert(job.rank_numbers[r]);
      const auto memory = capture::hang::read_flight_memory(procfs_, pid);
      if (!memory) continue;
      calls.read_ns = std::max(calls.read_ns, memory->read_ns);
      dumps.push_back(dump_of(*memory, job.rank_numbers[r]));
      break;
    }
  }
  calls.dumps = dumps;
  diagnose::join_flight_calls(calls, job);
}

}  // namespace kansoku::cli
