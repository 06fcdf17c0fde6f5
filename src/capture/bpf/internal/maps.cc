// SPDX-License-Identifier: Apache-2.0
#include "capture/bpf/internal/maps.h"

#include <fmt/format.h>

#include <numeric>
#include <string>
#include <vector>

namespace kansoku::capture::bpf {

Result<void> describe_probe(bpf_map* probes, std::uint32_t index, std::uint32_t index_end,
                            ByteSpan description) {
  if (index >= index_end) {
    return Error{Code::kLimit,
                 fmt::format("describe probe {}: at most {} probes", index, index_end)};
  }
  const int failed = bpf_map__update_elem(probes, &index, sizeof(index), description.data(),
                                          description.size(), BPF_ANY);
  if (failed != 0) return errno_error(-failed, "describe", "probe");
  return {};
}

Result<void> observe_process(bpf_map* processes, std::int32_t pid) {
  const auto key = static_cast<std::uint32_t>(pid);
  const std::uint8_t one = 1;
  const int failed = bpf_map__update_elem(processes, &key, sizeof(key), &one, sizeof(one), BPF_ANY);
  if (failed != 0) return errno_error(-failed, "observe process", std::to_string(pid));
  return {};
}

void forget_process(bpf_map* processes, std::int32_t pid) {
  const auto key = static_cast<std::uint32_t>(pid);
  bpf_map__delete_elem(processes, &key, sizeof(key), 0);
}

void read_losses(bpf_map* losses, std::span<std::uint64_t> totals) {
  std::vector<std::uint64_t> per_cpu(static_cast<std::size_t>(libbpf_num_possible_cpus()));
  for (std::uint32_t which = 0; which < totals.size(); ++which) {
    totals[which] = 0;
    if (bpf_map__lookup_elem(losses, &which, sizeof(which), per_cpu.data(),
                             per_cpu.size() * sizeof(std::uint64_t), 0) != 0) {
      continue;
    }
    totals[which] = std::accumulate(per_cpu.begin(), per_cpu.end(), std::uint64_t{0});
  }
}

}  // namespace kansoku::capture::bpf
