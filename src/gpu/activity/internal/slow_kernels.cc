// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <compare>
#include <map>
#include <numeric>
#include <set>
#include <utility>

#include "gpu/activity/internal/findings.h"
#include "gpu/activity/internal/spread.h"
#include "gpu/activity/thresholds.h"
#include "stats/peers.h"

namespace kansoku::gpu::activity {
namespace {

constexpr std::size_t kRanksNotedMax = 16;  // by number

/// A kernel at one size of work, the same on every rank of a job.
struct KernelKey {
  std::int64_t job{0};
  std::string_view full_name, dims, grid, block, name;
  std::array<std::uint64_t, 4>
      product{};  // m, n, k and batch, where a call of a library names them
  auto operator<=>(const KernelKey&) const = default;
};
/// Ranks of a job.
using JobRank = std::pair<std::int64_t, std::int32_t>;
using TimesOfRanks = std::map<std::int32_t, std::vector<double>>;  // us of each launch

/// A kernel of one rank beside the same kernel of its peers.
struct Compared {
  std::string_view name;
  double ratio{1};     // of its times to the peers'
  double total_us{0};  // on this rank
  double median_us{0};
  [[nodiscard]] double excess_us() const { return total_us * (1 - 1 / ratio); }
};

struct OfRank {
  std::vector<Compared> kernels;
  double kernels_us{0};  // of all its kernels, compared or not
  double own_us{0};      // of kernels and sizes that few of its peers run
};

/// The size that the call around a launch tells: a grid alone does not, where each block does more.
void add_size(const Input& in, const Op& op, KernelKey& key) {
  if (op.call == kNoIndex) return;
  for (std::uint32_t at = in.work.calls[op.call].slice; at != kNoIndex; at = in.host.parent(at)) {
    key.dims = in.args.text(at, ArgName::kInputDims);
    key.product = {
        in.args.count(at, ArgName::kM).value_or(0), in.args.count(at, ArgName::kN).value_or(0),
        in.args.count(at, ArgName::kK).value_or(0), in.args.count(at, ArgName::kBatch).value_or(0)};
    if (!key.dims.empty() || key.product[0] > 0) return;
  }
}

std::map<KernelKey, TimesOfRanks> times_of(const Input& in) {
  std::map<KernelKey, TimesOfRanks> out;
  std::vector<std::int64_t> jobs;  // by device
  for (const Device& device : in.work.devices)
    jobs.push_back(job_of(in.options, device.pid, device.rank));
  for (const Op& op : in.work.ops) {
    // A kernel beside other work is slower for that; a collective waits for the others.
    if (op.what != OpClass::kKernel || op.is_shared) continue;
    const std::uint32_t device = in.work.streams[op.stream].device;
    const std::int32_t rank = in.work.devices[device].rank;
    if (rank == trace::kNoRank) continue;
    KernelKey key{.job = jobs[device],
                  .full_name = in.args.text(op.slice, ArgName::kFullName),
                  .dims = {},
                  .grid = in.args.text(op.slice, ArgName::kGrid),
                  .block = in.args.text(op.slice, ArgName::kBlock),
                  .name = in.args.string(in.trace.slices.name[op.slice])};
    add_size(in, op, key);
    out[key][rank].push_back(us_of(op.time.end_ns - op.time.begin_ns));
  }
  return out;
}

struct Weighed {
  double ratio{1}, us{0};
};

/// The ratio that half of the time lies below.
double median_ratio(std::vector<Weighed> ratios) {
  std::sort(ratios.begin(), ratios.end(),
            [](const Weighed& a, const Weighed& b) { return a.ratio < b.ratio; });
  double all_us = 0;
  for (const Weighed& one : ratios)
    all_us += one.us;
  double below_us = 0;
  for (const Weighed& one : ratios) {
    below_us += one.us;
    if (below_us >= all_us / 2) return one.ratio;
  }
  return 1;
}

/// How much longer a kernel takes on each of at least two ranks than on the median of the others:
/// the ratio of equal quantiles, 0.05 to 0.95, that half of its time lies below. One name may do
/// work of several sizes, which nothing tells apart: the medians of such times jump from one size
/// to the other, these ratios do not. [rank]: as in `us`.
std::vector<double> ratios_of(const std::vector<const std::vector<double>*>& us) {
  constexpr int kParts = 20;
  std::vector<std::vector<Weighed>> at_quantiles(us.size());
  for (int i = 1; i < kParts; ++i) {
    std::vector<double> of_ranks;
    for (const std::vector<double>* const of_rank : us)
      of_ranks.push_back(stats::quantile(*of_rank, static_cast<double>(i) / kParts));
    const std::vector<double> of_peers = stats::centres_of_others(of_ranks);
    for (std::size_t r = 0; r < us.size(); ++r) {
      if (of_peers[r] > 0 && of_ranks[r] > 0)
        at_quantiles[r].push_back({of_ranks[r] / of_peers[r], of_ranks[r]});
    }
  }
  std::vector<double> out;
  for (std::vector<Weighed>& of_rank : at_quantiles)
    out.push_back(median_ratio(std::move(of_rank)));
  return out;
}

void compare_one(const KernelKey& key, const TimesOfRanks& of_ranks, std::size_t rank_count,
                 std::map<JobRank, OfRank>& out) {
  std::vector<std::int32_t> known;
  std::vector<const std::vector<double>*> us_of_known;
  for (const auto& [rank, us] : of_ranks) {
    OfRank& of = out[{key.job, rank}];
    const double total_us = std::accumulate(us.begin(), us.end(), 0.0);
    of.kernels_us += total_us;
    if (of_ranks.size() * 2 < rank_count) of.own_us += total_us;
    if (us.size() < kKernelCountMin) continue;
    known.push_back(rank);
    us_of_known.push_back(&us);
  }
  if (known.size() < kPeersMin) return;
  const std::vector<double> ratios = ratios_of(us_of_known);
  for (std::size_t r = 0; r < known.size(); ++r) {
    const std::vector<double>& us = *us_of_known[r];
    out[{key.job, known[r]}].kernels.push_back(
        {key.name, ratios[r], std::accumulate(us.begin(), us.end(), 0.0), stats::median(us)});
  }
}

std::map<JobRank, OfRank> compare(const Input& in) {
  const std::map<KernelKey, TimesOfRanks> times = times_of(in);
  std::map<std::int64_t, std::set<std::int32_t>> ranks_of_jobs;
  for (const auto& [key, of_ranks] : times) {
    for (const auto& [rank, us] : of_ranks)
      ranks_of_jobs[key.job].insert(rank);
  }
  std::map<JobRank, OfRank> out;
  for (const auto& [key, of_ranks] : times)
    compare_one(key, of_ranks, ranks_of_jobs[key.job].size(), out);
  return out;
}

void judge(const JobRank& who, std::int32_t pid, double window_us, const OfRank& of,
           std::vector<SlowKernel>& out) {
  const auto add = [&](std::string_view detail, double share, std::string evidence) {
    out.push_back({pid, who.second, std::string(detail), share, std::move(evidence)});
  };
  const std::vector<Compared>& kernels = of.kernels;
  std::vector<Weighed> ratios;
  for (const Compared& kernel : kernels)
    ratios.push_back({kernel.ratio, kernel.total_us});
  const double ratio = median_ratio(std::move(ratios));
  double compared_us = 0, like_us = 0, excess_us = 0;
  for (const Compared& kernel : kernels) {
    compared_us += kernel.total_us;
    if (std::abs(kernel.ratio - ratio) <= kClockedRatioSpread) like_us += kernel.total_us;
    excess_us += kernel.excess_us();
  }
  const bool is_clocked =
      ratio >= kSlowRatioMin && like_us >= kClockedTimeShareMin * compared_us && kernels.size() > 1;
  // The few kernels that a rank with other work shares with its peers do not speak for its device.
  if (is_clocked && compared_us >= kComparedShareMin * of.kernels_us) {
    if (excess_us / window_us >= kLossShareMin)
      add(kClockedLower, excess_us / window_us,
          fmt::format("rank {}: {} kernels take {:.3f} times as long as on the median peer",
                      who.second, kernels.size(), ratio));
    return;
  }
  std::map<std::string_view, std::pair<double, const Compared*>> by_name;  // all its sizes
  for (const Compared& kernel : kernels) {
    if (kernel.ratio < kSlowRatioMin) continue;
    auto& [name_us, most] = by_name[kernel.name];
    name_us += kernel.excess_us();
    if (most == nullptr || kernel.excess_us() > most->excess_us()) most = &kernel;
  }
  for (const auto& [name, slow] : by_name) {
    if (slow.first / window_us < kLossShareMin) continue;
    add(name, slow.first / window_us,
        fmt::format("rank {}: {}: {:.1f} us, {:.3f} times the peers'", who.second, name,
                    slow.second->median_us, slow.second->ratio));
  }
}

/// Ranks that do other work than most are held against few or none.
void add_notes_of_own_work(const Input& in, const std::map<JobRank, OfRank>& compared,
                           WorkReport& report) {
  std::map<std::int64_t, std::vector<std::string>> of_jobs;
  for (const auto& [who, of] : compared) {
    if (of.kernels_us > 0 && of.own_us >= kOwnWorkShareMin * of.kernels_us)
      of_jobs[who.first].push_back(
          fmt::format("{} ({:.0f} %)", who.second, of.own_us / of.kernels_us * 100));
  }
  std::map<std::int64_t, std::int32_t> pids;
  for (const DeviceFigures& device : report.devices)
    pids.try_emplace(job_of(in.options, device.pid, device.rank), device.pid);
  for (auto& [job, ranks] : of_jobs) {
    const std::size_t more = ranks.size() - std::min(ranks.size(), kRanksNotedMax);
    ranks.resize(ranks.size() - more);
    if (more > 0) ranks.push_back(fmt::format("{} more", more));
    add_note(pids[job],
             fmt::format("rank {}: so much of the kernels' time is in kernels or sizes that most "
                         "ranks of the job do not run: other work, not compared",
                         fmt::join(ranks, ", ")),
             report);
  }
}

}  // namespace

std::vector<SlowKernel> slow_kernels(const Input& in, WorkReport& report) {
  if (!is_allowed(Figure::kKernelTotals, in.recorded)) return {};
  struct Judged {
    double us{0};
    std::int32_t pid{0};
  };
  std::map<JobRank, Judged> of_ranks;
  for (const DeviceFigures& device : report.devices) {
    Judged& of = of_ranks[{job_of(in.options, device.pid, device.rank), device.rank}];
    of.us += device.judged_us.value_or(0);
    of.pid = device.pid;
  }
  if (of_ranks.size() < kPeersMin) return {};  // large recordings of one process are common
  const std::map<JobRank, OfRank> compared = compare(in);
  std::vector<SlowKernel> out;
  for (const auto& [who, of] : compared) {
    const Judged& judged = of_ranks[who];
    if (judged.us > 0) judge(who, judged.pid, judged.us, of, out);
  }
  add_notes_of_own_work(in, compared, report);
  return out;
}

}  // namespace kansoku::gpu::activity
