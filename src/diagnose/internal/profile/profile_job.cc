// SPDX-License-Identifier: Apache-2.0
#include "diagnose/internal/profile/profile_job.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <map>
#include <set>
#include <unordered_map>
#include <utility>

#include "diagnose/internal/steps/job.h"
#include "diagnose/internal/words.h"
#include "trace/collective_kernels.h"

namespace kansoku::diagnose {
namespace {

constexpr std::int64_t kLongCallNs = 5'000'000;
constexpr std::size_t kLongCallsMax = 100'000;  // of one rank

enum class Role : std::uint8_t { kNothing, kExecution, kStep };

struct CategoryRow {
  std::string_view name;
  Activity activity;
  bool is_gpu;
};
// Old names (Kernel, Operator, ...) until PyTorch 1.11, new ones since.
constexpr std::array<CategoryRow, 12> kProfileCategories{{
    {"kernel", Activity::kGpuCompute, true},
    {"Kernel", Activity::kGpuCompute, true},
    {"gpu_memcpy", Activity::kGpuMemory, true},
    {"Memcpy", Activity::kGpuMemory, true},
    {"gpu_memset", Activity::kGpuMemory, true},
    {"Memset", Activity::kGpuMemory, true},
    {"cpu_op", Activity::kCpuOp, false},
    {"Operator", Activity::kCpuOp, false},
    {"cuda_runtime", Activity::kCpuOp, false},
    {"cuda_driver", Activity::kCpuOp, false},
    {"Runtime", Activity::kCpuOp, false},
    {"python_function", Activity::kPython, false},
}};

bool is_of_device(std::string_view category) {
  return std::any_of(kProfileCategories.begin(), kProfileCategories.end(),
                     [&](const CategoryRow& row) { return row.is_gpu && row.name == category; });
}

bool contains(std::string_view text, std::string_view part) {
  return text.find(part) != std::string_view::npos;
}

bool is_input(std::string_view name) {
  return name.starts_with("enumerate(DataLoader)") || name.starts_with("DataLoader") ||
         contains(name, "DataLoaderIter.__next__") || contains(name, "DataLoaderIter: __next__") ||
         contains(name, "dataloader.next") || contains(name, "DataLoader.__next__");
}

bool is_step(std::string_view name) {
  return name.starts_with("ProfilerStep#");
}

/// "ncclDevKernel_AllReduce_Sum_f32_RING_LL(...)" -> "AllReduce": the same on every rank.
std::string collective_name(std::string_view name) {
  for (const std::string_view prefix : {"ncclDevKernel_", "ncclKernel_"}) {
    const std::size_t at = name.find(prefix);
    if (at == std::string_view::npos) continue;
    const std::string_view rest = name.substr(at + prefix.size());
    return std::string(rest.substr(0, rest.find_first_of("_(")));
  }
  return std::string(name);
}

class Reader {
 public:
  Reader(const trace::Trace& trace, std::optional<std::int32_t> pid)
      : trace_(trace), collective_kernels_(trace), pid_(pid) {}
  ProfileJob read();

 private:
  struct NameInfo {
    Role role{Role::kNothing};
    Activity activity{Activity::kPython};
    bool is_gpu{false};
    std::uint32_t function{0};
    std::uint32_t collective{0};  // equal over ranks; 0: none
  };
  std::uint32_t function_of(const std::string& name);
  const NameInfo& info_of(std::size_t slice);
  [[nodiscard]] float use_of(std::size_t slice) const;
  void take(std::size_t slice, ProfiledRank& rank);
  void note_span(std::size_t slice, std::int64_t begin_ns, std::int64_t end_ns,
                 const NameInfo& info, ProfiledRank& rank);

  const trace::Trace& trace_;
  trace::CollectiveKernels collective_kernels_;
  std::optional<std::int32_t> pid_;
  ProfileJob out_;
  std::unordered_map<std::string, std::uint32_t> functions_;
  std::unordered_map<std::uint64_t, NameInfo> infos_;  // by category and name
  std::set<std::int32_t> seen_ranks_;                  // with a window
  trace::StringId bandwidth_key_{}, occupancy_key_{};
};

std::uint32_t Reader::function_of(const std::string& name) {
  const auto [known, is_new] =
      functions_.try_emplace(name, static_cast<std::uint32_t>(out_.names.size()));
  if (is_new) out_.names.push_back(name);
  return known->second;
}

const Reader::NameInfo& Reader::info_of(std::size_t slice) {
  const trace::StringId category = trace_.slices.category[slice], name = trace_.slices.name[slice];
  const std::uint64_t key = (std::uint64_t{category.raw} << 32) | name.raw;
  const auto [known, is_new] = infos_.try_emplace(key);
  if (!is_new) return known->second;
  NameInfo info;
  const std::string_view text = trace_.str(name);
  if (is_step(text)) {
    info.role = Role::kStep;
  } else if (const auto activity = activity_of(trace_.str(category), text)) {
    info.role = Role::kExecution;
    const bool is_kernel = *activity == Activity::kGpuCompute;
    info.activity =
        is_kernel && collective_kernels_.contains(slice) ? Activity::kCollective : *activity;
    info.is_gpu = is_of_device(trace_.str(category));
    info.function = function_of(std::string(text));
    if (info.activity == Activity::kCollective)
      info.collective = function_of(collective_name(text)) + 1;
  }
  return infos_[key] = info;
}

/// GB/s of copies, achieved occupancy (0..1) of kernels, where the profiler says it.
float Reader::use_of(std::size_t slice) const {
  const trace::ArgValue* arg = trace_.slice_arg(slice, bandwidth_key_);
  float scale = 1;
  if (arg == nullptr && occupancy_key_ != trace::StringId{}) {
    arg = trace_.slice_arg(slice, occupancy_key_);
    scale = 0.01F;
  }
  if (arg == nullptr) return 0;
  if (arg->kind == trace::ArgValue::Kind::kDouble) return static_cast<float>(arg->f64) * scale;
  if (arg->kind == trace::ArgValue::Kind::kInt) return static_cast<float>(arg->i64) * scale;
  return 0;
}

/// When the rank was seen at all, and what its host did for long.
void Reader::note_span(std::size_t slice, std::int64_t begin_ns, std::int64_t end_ns,
                       const NameInfo& info, ProfiledRank& rank) {
  const std::string_view category = trace_.str(trace_.slices.category[slice]);
  const std::string_view name = trace_.str(trace_.slices.name[slice]);
  if (category == "Trace" || category == "overhead") return;  // the profiler itself
  const bool is_first = rank.seen_end_ns == 0;
  rank.seen_begin_ns = is_first ? begin_ns : std::min(rank.seen_begin_ns, begin_ns);
  rank.seen_end_ns = is_first ? end_ns : std::max(rank.seen_end_ns, end_ns);
  const bool is_host = !info.is_gpu && info.role != Role::kStep && category.find("gpu") != 0;
  if (!is_host || end_ns - begin_ns < kLongCallNs || rank.long_calls.size() >= kLongCallsMax)
    return;
  rank.long_calls.push_back({begin_ns, end_ns, function_of(std::string(name))});
}

void Reader::take(std::size_t slice, ProfiledRank& rank) {
  const NameInfo& info = info_of(slice);
  const auto time = slice_time(trace_.slices, slice);
  if (!time) return;
  const auto [begin_ns, end_ns] = *time;
  note_span(slice, begin_ns, end_ns, info, rank);
  if (info.role == Role::kNothing) return;
  const bool is_first = seen_ranks_.insert(rank.rank).second;
  rank.begin_ns = is_first ? begin_ns : std::min(rank.begin_ns, begin_ns);
  rank.end_ns = is_first ? end_ns : std::max(rank.end_ns, end_ns);
  if (info.role == Role::kStep) {
    // A device repeats the host's annotation: the host's, longer, comes in its own category.
    if (trace_.str(trace_.slices.category[slice]) != "gpu_user_annotation")
      rank.steps.emplace_back(begin_ns, end_ns);
    return;
  }
  rank.has_gpu = rank.has_gpu || info.is_gpu;
  rank.executions.push_back({.begin_ns = begin_ns,
                             .end_ns = end_ns,
                             .function = info.function,
                             .activity = info.activity,
                             .use = info.is_gpu ? use_of(slice) : 0});
  if (info.collective > 0) rank.collectives.push_back({begin_ns, end_ns, info.collective - 1});
}

ProfileJob Reader::read() {
  bandwidth_key_ = trace_.strings.find("memory bandwidth (GB/s)");
  occupancy_key_ = trace_.strings.find("est. achieved occupancy %");
  std::map<std::int32_t, std::int32_t> rank_of_pid;
  std::map<std::int32_t, double> unreadable;
  bool lacks_rank = false;
  for (const trace::Process& process : trace_.processes) {
    if (pid_ && process.pid != *pid_) continue;
    rank_of_pid[process.pid] = process.rank == trace::kNoRank ? 0 : process.rank;
    double& share = unreadable[rank_of_pid[process.pid]];
    share = std::max(share, process.unreadable_share);
    lacks_rank = lacks_rank || process.rank == trace::kNoRank;
  }
  std::map<std::int32_t, ProfiledRank> ranks;
  std::map<std::int32_t, std::set<std::int32_t>> stepping;  // processes with steps, by rank
  for (std::size_t i = 0; i < trace_.slices.size(); ++i) {
    const std::int32_t pid = trace_.tracks[trace_.slices.track[i].raw].pid;
    const auto rank = rank_of_pid.find(pid);
    if (rank == rank_of_pid.end()) continue;
    ProfiledRank& profiled = ranks[rank->second];
    profiled.rank = rank->second;
    const std::size_t steps = profiled.steps.size();
    take(i, profiled);
    if (profiled.steps.size() > steps) stepping[rank->second].insert(pid);
  }
  for (const auto& [rank, pids] : stepping) {
    if (pids.size() < 2) continue;
    out_.notes.push_back(fmt::format(words::kSeveralPrograms, pids.size(), fmt::join(pids, ", ")));
    return std::move(out_);
  }
  for (auto& [number, rank] : ranks) {
    if (rank.executions.empty()) continue;
    rank.unreadable_share = unreadable[number];
    for (const auto& [pid, of_pid] : rank_of_pid)
      if (of_pid == number) rank.pids.push_back(pid);
    std::stable_sort(
        rank.executions.begin(), rank.executions.end(),
        [](const Execution& a, const Execution& b) { return a.begin_ns < b.begin_ns; });
    std::stable_sort(rank.collectives.begin(), rank.collectives.end(),
                     [](const ProfiledCollective& a, const ProfiledCollective& b) {
                       return a.begin_ns < b.begin_ns;
                     });
    std::sort(rank.steps.begin(), rank.steps.end());
    rank.is_of_steps = rank.steps.size() >= 2;
    if (rank.is_of_steps) {
      rank.begin_ns = rank.steps.front().first;
      rank.end_ns = std::max_element(rank.steps.begin(), rank.steps.end(), [](auto& a, auto& b) {
                      return a.second < b.second;
                    })->second;
    }
    std::stable_sort(rank.long_calls.begin(), rank.long_calls.end(),
                     [](const HostCall& a, const HostCall& b) {
                       return std::pair(a.begin_ns, -a.end_ns) < std::pair(b.begin_ns, -b.end_ns);
                     });
    out_.ranks.push_back(std::move(rank));
  }
  if (lacks_rank && !pid_ && !out_.ranks.empty()) out_.notes.emplace_back(words::kTraceHasNoRank);
  if (out_.ranks.empty()) {
    out_.notes.emplace_back(words::kTraceHasNothing);
  }
  return std::move(out_);
}

}  // namespace

std::optional<Activity> activity_of(std::string_view category, std::string_view name) {
  if (is_step(name)) return std::nullopt;
  const bool is_host = category == "cpu_op" || category == "Operator" ||
                       category == "user_annotation" || category == "python_function";
  if (is_host && is_input(name)) return Activity::kInput;
  if (is_host && (name.starts_with("gloo:") || name.starts_with("mpi:")))
    return Activity::kCollective;
  for (const CategoryRow& row : kProfileCategories) {
    if (row.name != category) continue;
    // Frames that the profiler puts around a whole phase are no operators.
    if (!row.is_gpu && (name.starts_with("Optimizer.") || name.starts_with("## "))) return {};
    return row.activity;
  }
  // "xpu_runtime", "mtia_runtime": calls of a device's runtime, whatever the device.
  if (category.ends_with("_runtime") || category.ends_with("_driver")) return Activity::kCpuOp;
  return std::nullopt;
}

ProfileJob read_profile_job(const trace::Trace& trace, std::optional<std::int32_t> pid) {
  return Reader(trace, pid).read();
}

std::vector<std::int32_t> programs_of(const trace::Trace& trace) {
  std::set<std::int32_t> with_device, with_host;
  std::map<trace::StringId, bool> is_gpu;
  for (std::size_t i = 0; i < trace.slices.size(); ++i) {
    const auto [known, is_new] = is_gpu.try_emplace(trace.slices.category[i]);
    if (is_new) known->second = is_of_device(trace.str(trace.slices.category[i]));
    const std::int32_t pid = trace.tracks[trace.slices.track[i].raw].pid;
    (known->second ? with_device : with_host).insert(pid);
  }
  std::vector<std::int32_t> out;
  for (const trace::Process& process : trace.processes) {
    const bool is_program = process.rank == trace::kNoRank && trace.str(process.role) != "device";
    // A device alone is no program: PyTorch's profiler gives it a number of its own.
    if (is_program && with_device.contains(process.pid) && with_host.contains(process.pid))
      out.push_back(process.pid);
  }
  std::sort(out.begin(), out.end());
  return out;
}

}  // namespace kansoku::diagnose
