// SPDX-License-Identifier: Apache-2.0
#include "gpu/activity/internal/findings.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <initializer_list>
#include <map>
#include <tuple>
#include <utility>

#include "gpu/activity/thresholds.h"

namespace kansoku::gpu::activity {
namespace {

constexpr std::size_t kDeviceNotesMax = 64;

double mib(double bytes) {
  return bytes / (1 << 20);
}

/// `pids`: named where there is no rank, and the recording has several processes.
std::string who_text(const std::vector<std::int32_t>& ranks,
                     const std::vector<std::int32_t>& pids) {
  if (ranks.empty())
    return pids.empty() ? "the process" : fmt::format("process {}", fmt::join(pids, ", "));
  return fmt::format("rank {}", fmt::join(ranks, ", "));
}

void sort_unique(std::vector<std::int32_t>& numbers) {
  std::sort(numbers.begin(), numbers.end());
  numbers.erase(std::unique(numbers.begin(), numbers.end()), numbers.end());
}

/// Findings of a kind and detail in a job: one of the devices that lose alike, however many. A
/// device that loses much has a finding of its own beside peers that lose little.
class Grouped {
 public:
  explicit Grouped(const Options& options) : options_(options) {}

  void add(std::string_view kind, std::string_view detail, const DeviceFigures& device,
           double share, std::string evidence) {
    add(kind, detail, device.pid, device.rank, share, std::move(evidence));
  }
  void add(std::string_view kind, std::string_view detail, std::int32_t pid, std::int32_t rank,
           double share, std::string evidence) {
    const std::int64_t job = job_of(options_, pid, rank);
    found_[{std::string(kind), std::string(detail), job}].push_back(
        {pid, rank, share, std::move(evidence)});
  }
  std::vector<Finding> take() {
    std::vector<Finding> out;
    for (auto& [key, losses] : found_)
      take_group(std::get<0>(key), std::get<1>(key), std::move(losses), out);
    return out;
  }

 private:
  struct Loss {
    std::int32_t pid, rank;
    double share;
    std::string evidence;
  };
  static void take_group(const std::string& kind, const std::string& detail,
                         std::vector<Loss> losses, std::vector<Finding>& out) {
    while (!losses.empty()) {
      const double greatest =
          std::max_element(losses.begin(), losses.end(), [](const Loss& a, const Loss& b) {
            return a.share < b.share;
          })->share;
      Finding finding;
      finding.kind = kind;
      finding.detail = detail;
      finding.share = greatest;
      const auto is_alike = [&](const Loss& one) { return one.share >= kAlikeShareMin * greatest; };
      for (Loss& one : losses) {
        if (!is_alike(one)) continue;
        if (one.rank != trace::kNoRank) finding.ranks.push_back(one.rank);
        finding.pids.push_back(one.pid);
        finding.evidence.push_back(std::move(one.evidence));
      }
      std::erase_if(losses, is_alike);
      sort_unique(finding.ranks);
      sort_unique(finding.pids);
      out.push_back(std::move(finding));
    }
  }

  const Options& options_;
  std::map<std::tuple<std::string, std::string, std::int64_t>, std::vector<Loss>> found_;
};

std::string device_text(const DeviceFigures& device) {
  const std::string which =
      device.ordinal < 0 ? std::string("device") : fmt::format("device {}", device.ordinal);
  return device.rank == trace::kNoRank ? fmt::format("{} of process {}", which, device.pid)
                                       : fmt::format("{} of rank {}", which, device.rank);
}

struct StarvedWords {
  IdleCause cause;
  const char* verdict;
};
constexpr std::array kStarved{
    StarvedWords{IdleCause::kSynchronisation,
                 "the device runs dry because the program waits for it in between"},
    StarvedWords{IdleCause::kAllocation, "the device runs dry while memory is allocated or freed"},
    StarvedWords{IdleCause::kModuleLoad, "the device runs dry while code is loaded or compiled"},
    StarvedWords{IdleCause::kLock,
                 "the device runs dry while the launching thread waits for a lock"},
    StarvedWords{IdleCause::kLoader, "the device runs dry while the program waits for its data"},
    StarvedWords{IdleCause::kCollective,
                 "the device runs dry while the launching thread waits for other ranks"},
    StarvedWords{IdleCause::kProcessor,
                 "the device runs dry while the launching thread waits for a processor"},
    StarvedWords{
        IdleCause::kBlocked,
        "the device runs dry while the launching thread waits for something outside of its "
        "process: a disk, the network, a timer"},
    StarvedWords{
        IdleCause::kOperator,
        "the device runs dry for long while an operator of the framework runs on the host"},
    StarvedWords{IdleCause::kFunction, "the device runs dry while the program's own code runs"},
    StarvedWords{IdleCause::kUnknown,
                 "the device runs dry, and nothing in the recording tells what the program did"},
};

const char* starved_words(std::string_view cause) {
  for (const StarvedWords& row : kStarved) {
    if (idle_cause_name(row.cause) == cause) return row.verdict;
  }
  return "the device runs dry";
}

/// Enough idle time even without its longest gaps: a single stall is no pattern, and without steps
/// the start of a program is none.
bool is_pattern(const DeviceFigures& device, double us, const IdleRow& row, double judged_us) {
  return us - (device.has_steps ? row.longest_us : row.few_us) >= kLossShareMin * judged_us;
}

/// True if idle time of a cause starves the device; launches and copies have findings of their own.
bool starves(IdleCause cause) {
  return std::any_of(kStarved.begin(), kStarved.end(),
                     [&](const auto& row) { return row.cause == cause; });
}

/// Idle time of a row that is told as a finding, if it is enough.
bool is_starved(const DeviceFigures& device, const IdleRow& row, double judged_us) {
  // In brief gaps an operator is on its way to its launch.
  const double us = row.cause == IdleCause::kOperator ? row.us - row.brief_us : row.us;
  // Outside of steps code is loaded once.
  const bool is_once = row.cause == IdleCause::kModuleLoad && !device.has_steps;
  return starves(row.cause) && !is_once && is_pattern(device, us, row, judged_us);
}

void add_starved(const DeviceFigures& device, double judged_us, Grouped& out) {
  if (!device.idle) return;
  for (const IdleRow& row : *device.idle) {
    if (!is_starved(device, row, judged_us)) continue;
    out.add("gpu_starved", idle_cause_name(row.cause), device, row.share,
            fmt::format("{}: idle for {:.1f} of {:.1f} ms by {}{}", device_text(device),
                        row.us / 1e3, judged_us / 1e3, idle_cause_name(row.cause),
                        row.function.empty() ? "" : ", most of it in " + row.function));
  }
}

/// Idle time of these causes together.
IdleRow row_of(const DeviceFigures& device, std::initializer_list<IdleCause> causes) {
  IdleRow out;
  for (const IdleRow& row : device.idle.value_or(std::vector<IdleRow>{})) {
    if (std::find(causes.begin(), causes.end(), row.cause) == causes.end()) continue;
    out.us += row.us;
    out.longest_us += row.longest_us;
    out.few_us += row.few_us;
    out.brief_us += row.brief_us;
  }
  return out;
}

void add_copies(const DeviceFigures& device, double judged_us, Grouped& out) {
  const ExposedCopies& copies = *device.copies;
  // A copy from pageable memory costs twice: its call takes the bytes along, then the device does.
  const double staging_us = row_of(device, {IdleCause::kStaging}).us;
  const double lost_us = copies.could_overlap_us + staging_us;
  if (lost_us < kLossShareMin * judged_us) return;
  const auto is_most = [&](double us) { return us * 2 >= lost_us; };
  const char* const why = is_most(copies.pageable_us + staging_us) ? "pageable"
                          : is_most(copies.blocking_us)            ? "blocking"
                                                                   : "same_stream";
  std::string evidence = fmt::format(
      "{}: copies run {:.1f} ms without a kernel beside them, {:.1f} ms of that from or "
      "to pageable memory",
      device_text(device), copies.exposed_us / 1e3, copies.pageable_us / 1e3);
  if (staging_us > 0)
    evidence += fmt::format("; the device waits {:.1f} ms for their calls", staging_us / 1e3);
  out.add("copy_bound", why, device, lost_us / judged_us, std::move(evidence));
}

void add_bound(const DeviceFigures& device, double judged_us, Grouped& out) {
  if (judged_us <= 0) return;
  // On its way to the next launch: a longer gap is none between launches.
  IdleRow launching = row_of(device, {IdleCause::kLaunching});
  launching.us += row_of(device, {IdleCause::kOperator}).brief_us;
  const double early_us = device.launch_bound ? device.launch_bound->early_us : 0;
  const double lost_us = launching.us + early_us;
  if (is_pattern(device, lost_us, launching, judged_us)) {
    std::string evidence = fmt::format("{}: it waits {:.1f} of {:.1f} ms for the next launch",
                                       device_text(device), launching.us / 1e3, judged_us / 1e3);
    if (early_us > 0)
      evidence += fmt::format(", and {:.1f} ms for launch calls that had begun", early_us / 1e3);
    if (device.launch_bound && device.launch_bound->stretch_count > 0) {
      evidence += fmt::format("; {} stretches of launches with an empty queue, {} operations",
                              device.launch_bound->stretch_count, device.launch_bound->op_count);
    }
    out.add("launch_bound", "launches", device, lost_us / judged_us, std::move(evidence));
  }
  if (device.copies) add_copies(device, judged_us, out);
}

/// Idle time that is no pattern, if it is much: the start of a program, a checkpoint.
void add_stalls(const DeviceFigures& device, double judged_us, WorkReport& report) {
  if (!device.longest_idle || device.longest_idle->us < kStallShareMin * judged_us) return;
  const LongestIdle& longest = *device.longest_idle;
  std::vector<std::string> causes;
  for (const IdleRow& row : *device.idle) {
    if (starves(row.cause) && row.us >= kLossShareMin * judged_us &&
        !is_starved(device, row, judged_us))
      causes.push_back(fmt::format("{} {:.1f} ms", idle_cause_name(row.cause), row.us / 1e3));
  }
  std::string text = fmt::format(
      "{}: its longest time without work takes {:.1f} ms{}: the launching thread {}{}",
      device_text(device), longest.us / 1e3,
      longest.is_first ? ", in front of its first operation" : "", idle_cause_text(longest.cause),
      longest.function.empty() ? "" : ", most of it in " + longest.function);
  if (!causes.empty())
    text += fmt::format("; single stalls, no pattern: {} of {:.1f} ms", fmt::join(causes, ", "),
                        judged_us / 1e3);
  add_note(device.pid, std::move(text), report);
}

/// Communication with nothing beside it.
void add_exposed(const DeviceFigures& device, double judged_us, bool is_alone, WorkReport& report) {
  if (!device.overlap) return;
  const double exposed_us = device.overlap->communication_us - device.overlap->both_us;
  if (exposed_us < kLossShareMin * judged_us) return;
  add_note(device.pid,
           fmt::format(
               "{}: communication runs for {:.1f} of {:.1f} ms ({:.0f} %) with no kernel beside "
               "it{}",
               device_text(device), exposed_us / 1e3, judged_us / 1e3, exposed_us / judged_us * 100,
               is_alone ? "; one rank cannot tell who is waited for" : ""),
           report);
}

std::string verdict_of(const Finding& finding, bool has_several) {
  const std::string who =
      who_text(finding.ranks, has_several ? finding.pids : std::vector<std::int32_t>{});
  if (finding.kind == "gpu_starved")
    return fmt::format("{}: {}", who, starved_words(finding.detail));
  if (finding.kind == "launch_bound")
    return fmt::format("{}: kernels end before the next one is launched", who);
  if (finding.kind == "slow_kernel" && finding.detail == kClockedLower)
    return fmt::format("{}: all kernels take longer than on the peers: {} slower", who,
                       finding.ranks.size() == 1 ? "its device is" : "their devices are");
  if (finding.kind == "slow_kernel")
    return fmt::format("{}: a kernel takes longer than on the peers", who);
  return fmt::format("{}: the device copies instead of computing ({})", who,
                     finding.detail == "pageable"   ? "pageable memory: copies cannot overlap"
                     : finding.detail == "blocking" ? "the program waits for each copy"
                                                    : "in the stream of the kernels");
}

std::vector<std::string> holder_lines(const std::vector<MemoryHolder>& holders) {
  std::vector<std::string> lines;
  lines.reserve(holders.size());
  for (const MemoryHolder& holder : holders) {
    lines.push_back(fmt::format("{:.1f} MiB in {} allocations: {}",
                                mib(static_cast<double>(holder.bytes)), holder.count,
                                holder.stack.empty() ? "(no stack)" : holder.stack));
  }
  return lines;
}

std::string failure_text(const MemoryFigures& memory, const FailedAllocation& failure) {
  const auto text = [](const std::optional<std::uint64_t>& bytes) {
    return bytes ? fmt::format("{:.1f} MiB", mib(static_cast<double>(*bytes)))
                 : std::string("an unknown number of bytes");
  };
  return fmt::format("process {} asked for {} with {} live, and got none", memory.pid,
                     text(failure.requested_bytes), text(failure.live_bytes));
}

std::string leak_text(const Leak& leak) {
  if (leak.per == "step")
    return fmt::format("{:.2f} MiB a step over {} steps", mib(leak.bytes_per_step),
                       leak.step_count);
  return fmt::format("{:.2f} MiB from launch to launch of {}, over {} launches",
                     mib(leak.bytes_per_step), leak.per, leak.step_count);
}

void add_memory(const MemoryFigures& memory, std::vector<Finding>& out,
                std::vector<std::string>& notes) {
  std::vector<std::int32_t> ranks;
  if (memory.rank != trace::kNoRank) ranks.push_back(memory.rank);
  for (const FailedAllocation& failure : memory.failures) {
    if (failure.is_survived) {
      notes.push_back(failure_text(memory, failure) + "; it went on");
      continue;
    }
    Finding finding;
    finding.kind = "memory_pressure";
    finding.detail = "out_of_memory";
    finding.ranks = ranks;
    finding.pids = {memory.pid};
    finding.verdict = fmt::format("{}: out of device memory", who_text(ranks, {}));
    finding.evidence = holder_lines(failure.holders);
    finding.evidence.insert(finding.evidence.begin(), failure_text(memory, failure));
    out.push_back(std::move(finding));
  }
  if (!memory.leak) return;
  Finding finding;
  finding.kind = "memory_pressure";
  finding.detail = "leak";
  finding.ranks = ranks;
  finding.pids = {memory.pid};
  finding.verdict =
      fmt::format("{}: live device memory rises without a plateau", who_text(ranks, {}));
  finding.evidence = holder_lines(memory.leak->growers);
  finding.evidence.insert(finding.evidence.begin(), leak_text(*memory.leak));
  out.push_back(std::move(finding));
}

}  // namespace

void add_note(std::int32_t pid, std::string text, WorkReport& report) {
  if (report.device_notes.size() < kDeviceNotesMax)
    report.device_notes.push_back({pid, std::move(text)});
}

std::int64_t job_of(const Options& options, std::int32_t pid, std::int32_t rank) {
  constexpr std::int64_t kOfRanks = -1;  // others are pids, and jobs of the caller's from here down
  for (std::size_t i = 0; i < options.jobs.size(); ++i) {
    if (std::find(options.jobs[i].begin(), options.jobs[i].end(), pid) != options.jobs[i].end())
      return kOfRanks - 1 - static_cast<std::int64_t>(i);
  }
  return rank != trace::kNoRank ? kOfRanks : pid;
}

std::vector<Finding> findings_of(const Input& in, WorkReport& report) {
  std::vector<Finding> out;
  for (const MemoryFigures& memory : report.memory)
    add_memory(memory, out, report.notes);
  Grouped grouped(in.options);
  bool is_short = false;
  for (DeviceFigures& device : report.devices) {
    const double judged_us = device.judged_us.value_or(0);
    if (!device.has_steps && judged_us < kWindowMinUs) {
      is_short = is_short || device.judged_us.has_value();
      continue;
    }
    device.is_judged = device.idle.has_value();
    add_starved(device, judged_us, grouped);
    add_bound(device, judged_us, grouped);
    add_stalls(device, judged_us, report);
    add_exposed(device, judged_us, report.devices.size() == 1, report);
  }
  if (is_short) {
    report.notes.push_back(
        fmt::format("devices without steps that were at work for less than {:.1f} s are not judged",
                    kWindowMinUs / 1e6));
  }
  const bool has_several = std::any_of(
      report.devices.begin(), report.devices.end(),
      [&](const DeviceFigures& device) { return device.pid != report.devices.front().pid; });
  for (SlowKernel& slow : slow_kernels(in, report))
    grouped.add("slow_kernel", slow.detail, slow.pid, slow.rank, slow.share,
                std::move(slow.evidence));
  std::vector<Finding> costs = grouped.take();
  for (Finding& finding : costs)
    finding.verdict = verdict_of(finding, has_several);
  std::stable_sort(costs.begin(), costs.end(), [](const Finding& a, const Finding& b) {
    return a.share.value_or(0) > b.share.value_or(0);
  });
  out.insert(out.end(), std::make_move_iterator(costs.begin()),
             std::make_move_iterator(costs.end()));
  return out;
}

}  // namespace kansoku::gpu::activity
