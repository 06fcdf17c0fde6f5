// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <set>
#include <tuple>
#include <utility>

#include "gpu/activity/internal/findings.h"
#include "gpu/activity/internal/spread.h"
#include "gpu/activity/thresholds.h"

namespace kansoku::gpu::activity {
namespace {

/// A kernel in one shape, the same on every rank of a job: the job, its full name, its shape, the
/// name to show.
using KernelKey = std::tuple<std::int64_t, std::string_view, std::string_view, std::string_view,
                             std::string_view>;
/// Ranks of a job.
using JobRank = std::pair<std::int64_t, std::int32_t>;

/// A kernel of one rank beside the same kernel of its peers.
struct Compared {
  std::string_view name;
  double ratio{1};     // of the median time to the peers' median
  double total_us{0};  // on this rank
  double median_us{0};
  [[nodiscard]] double excess_us() const { return total_us * (1 - 1 / ratio); }
};

std::map<KernelKey, std::map<std::int32_t, std::vector<double>>> times_of(const Input& in) {
  std::map<KernelKey, std::map<std::int32_t, std::vector<double>>> out;
  std::vector<std::int64_t> jobs;  // by device
  for (const Device& device : in.work.devices)
    jobs.push_back(job_of(in.options, device.pid, device.rank));
  for (const Op& op : in.work.ops) {
    // A kernel beside other work is slower for that; a collective waits for the others.
    if (op.what != OpClass::kKernel || op.is_shared) continue;
    const std::uint32_t device = in.work.streams[op.stream].device;
    const std::int32_t rank = in.work.devices[device].rank;
    if (rank == trace::kNoRank) continue;
    const std::string_view full = in.args.text(op.slice, ArgName::kFullName);
    const KernelKey key{jobs[device], full, in.args.text(op.slice, ArgName::kGrid),
                        in.args.text(op.slice, ArgName::kBlock),
                        in.args.string(in.trace.slices.name[op.slice])};
    out[key][rank].push_back(us_of(op.time.end_ns - op.time.begin_ns));
  }
  return out;
}

std::map<JobRank, std::vector<Compared>> compare(const Input& in) {
  std::map<JobRank, std::vector<Compared>> out;
  for (auto& [key, of_ranks] : times_of(in)) {
    std::map<std::int32_t, double> medians;
    for (auto& [rank, us] : of_ranks) {
      if (us.size() >= kKernelCountMin) medians[rank] = stats::median(us);
    }
    if (medians.size() < kPeersMin) continue;
    for (const auto& [rank, median_us] : medians) {
      std::vector<double> peers;
      for (const auto& [other, of_other] : medians) {
        if (other != rank) peers.push_back(of_other);
      }
      const double of_peers = stats::median(peers);
      if (of_peers <= 0 || median_us <= 0) continue;
      double total_us = 0;
      for (const double us : of_ranks[rank])
        total_us += us;
      out[{std::get<0>(key), rank}].push_back(
          {std::get<4>(key), median_us / of_peers, total_us, median_us});
    }
  }
  return out;
}

/// The ratio that half of the kernels' time lies below.
double median_ratio(std::vector<Compared> kernels) {
  std::sort(kernels.begin(), kernels.end(),
            [](const Compared& a, const Compared& b) { return a.ratio < b.ratio; });
  double all_us = 0;
  for (const Compared& kernel : kernels)
    all_us += kernel.total_us;
  double below_us = 0;
  for (const Compared& kernel : kernels) {
    below_us += kernel.total_us;
    if (below_us >= all_us / 2) return kernel.ratio;
  }
  return 1;
}

Finding clocked_lower(std::int32_t rank, const std::vector<std::int32_t>& pids, double ratio,
                      double share, std::size_t count) {
  Finding finding;
  finding.kind = "slow_kernel";
  finding.detail = "clocked_lower";
  finding.ranks = {rank};
  finding.pids = pids;
  finding.share = share;
  finding.verdict =
      fmt::format("rank {}: all kernels take longer than on its peers: its device is slower", rank);
  finding.evidence.push_back(
      fmt::format("{} kernels take {:.3f} times as long as on the median peer", count, ratio));
  return finding;
}

Finding slow_kernel(std::int32_t rank, const std::vector<std::int32_t>& pids,
                    const Compared& kernel, double share) {
  Finding finding;
  finding.kind = "slow_kernel";
  finding.detail = std::string(kernel.name);
  finding.ranks = {rank};
  finding.pids = pids;
  finding.share = share;
  finding.verdict = fmt::format("rank {}: a kernel takes longer than on its peers", rank);
  finding.evidence.push_back(fmt::format("{}: {:.1f} us, {:.3f} times the peers' median",
                                         kernel.name, kernel.median_us, kernel.ratio));
  return finding;
}

}  // namespace

std::vector<Finding> slow_kernels(const Input& in, const WorkReport& report) {
  std::vector<Finding> out;
  if (!is_allowed(Figure::kKernelTotals, in.recorded)) return out;
  struct OfRank {
    double judged_us{0};
    std::vector<std::int32_t> pids;
  };
  std::map<JobRank, OfRank> of_ranks;
  for (const DeviceFigures& device : report.devices) {
    OfRank& of = of_ranks[{job_of(in.options, device.pid, device.rank), device.rank}];
    of.judged_us += device.judged_us.value_or(0);
    if (std::find(of.pids.begin(), of.pids.end(), device.pid) == of.pids.end())
      of.pids.push_back(device.pid);
  }
  for (const auto& [job_rank, kernels] : compare(in)) {
    const std::int32_t rank = job_rank.second;
    const double window_us = of_ranks[job_rank].judged_us;
    const std::vector<std::int32_t>& pids = of_ranks[job_rank].pids;
    if (window_us <= 0) continue;
    const double ratio = median_ratio(kernels);
    double all_us = 0, like_us = 0, excess_us = 0;
    for (const Compared& kernel : kernels) {
      all_us += kernel.total_us;
      if (std::abs(kernel.ratio - ratio) <= kClockedRatioSpread) like_us += kernel.total_us;
      excess_us += kernel.excess_us();
    }
    const bool is_clocked =
        ratio >= kSlowRatioMin && like_us >= kClockedTimeShareMin * all_us && kernels.size() > 1;
    if (is_clocked) {
      if (excess_us / window_us >= kLossShareMin)
        out.push_back(clocked_lower(rank, pids, ratio, excess_us / window_us, kernels.size()));
      continue;
    }
    for (const Compared& kernel : kernels) {
      const double share = kernel.excess_us() / window_us;
      if (kernel.ratio >= kSlowRatioMin && share >= kLossShareMin)
        out.push_back(slow_kernel(rank, pids, kernel, share));
    }
  }
  return out;
}

}  // namespace kansoku::gpu::activity
