// SPDX-License-Identifier: Apache-2.0
#include "cli/cuda/device_looks.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "cli/commands.h"
#include "cli/diagnose/thread_text.h"
#include "cli/wiring.h"
#include "common/json.h"
#include "common/text.h"
#include "sys/clock.h"

namespace kansoku::cli {
namespace {

using capture::cuda::Stuck;
using capture::cuda::StuckKind;
using capture::hang::HangLook;
using capture::hang::HangVerdict;
using capture::hang::LaunchSite;

/// Between two looks at the streams: whether others make progress.
constexpr Nanos kBetweenLooks = std::chrono::seconds{1};
constexpr std::size_t kKernelsShown = 16;

std::int32_t device_of(const HangLook& look, const Stuck& one) {
  return one.stream.context < look.devices.size() ? look.devices[one.stream.context] : -1;
}

/// Work submitted to the stream behind it, by name and count.
std::map<std::string, std::size_t> behind_of(const HangLook& look, const Stuck& one) {
  std::map<std::string, std::size_t> out;
  for (const std::uint32_t word : one.stream.behind)
    ++out[operation_name(look.snapshot, capture::cuda::suspect_of(word))];
  return out;
}

void print_stuck(const HangLook& look, const Stuck& one) {
  const std::string name = suspects_text(look.snapshot, one);
  const std::int32_t device = device_of(look, one);
  const std::string where =
      fmt::format("stream {}{}", one.stream.index,
                  device < 0 ? std::string() : fmt::format(" of GPU {}", device));
  if (one.kind == StuckKind::kBehind)
    say(stdout, fmt::format("  behind it: {} on {} waits for {:.1f} s", name, where, one.seconds));
  else
    say(stdout, fmt::format("  {} on {} runs for {:.1f} s (deadline {:.1f} s)", name, where,
                            one.seconds, one.deadline_s));
  if (one.suspects.size() == 1)
    if (const auto kernels = graph_kernels(look.snapshot, one.suspects[0]); kernels.size() > 1)
      say(stdout, fmt::format("    one of its kernels: {}{}",
                              fmt::join(kernels.begin(),
                                        kernels.begin() + static_cast<long>(std::min(
                                                              kernels.size(), kKernelsShown)),
                                        ", "),
                              kernels.size() > kKernelsShown ? ", ..." : ""));
  if (const std::size_t count = one.stream.behind.size() + one.stream.behind_unknown; count > 0)
    say(stdout,
        fmt::format("    behind it on this stream: {} operation{}", count, count == 1 ? "" : "s"));
}

void print_look(const HangLook& look) {
  say(stdout, fmt::format("{}: {}{}{}", process_text(look.rank, look.pid),
                          hang_verdict_name(look.verdict), look.why.empty() ? "" : ": ", look.why));
  for (const Stuck& one : look.stuck)
    print_stuck(look, one);
  if (!look.stuck.empty())
    say(stdout, look.moving.empty() ? std::string("  no stream makes progress")
                                    : fmt::format("  other streams make progress: {}",
                                                  fmt::join(look.moving, " ")));
  for (const LaunchSite& site : look.launch_sites) {
    say(stdout, fmt::format("  {} is launched here:", site.operation));
    print_frames(site.native);
  }
  print_threads(look.threads);
}

/// Place of a process that others wait for.
std::string place_text(const HangLook& look) {
  if (look.verdict == HangVerdict::kGone) return "it has ended";
  if (look.is_stopped) return "it is stopped";
  if (look.is_at_work) return "it is at work";
  if (look.at == capture::cuda::RankAt::kOperation && !look.stuck.empty())
    return "it runs " + suspects_text(look.snapshot, look.stuck.front());
  if (look.at == capture::cuda::RankAt::kNoWork) return "its device has no work";
  return fmt::format("it is in its collective {}",
                     look.collectives - std::min(look.collectives, look.collectives_pending) + 1);
}

void print_job(const std::vector<HangLook>& looks) {
  std::vector<std::string> waiting;
  std::vector<std::int32_t> missing;
  for (const HangLook& look : looks)
    if (!look.waits_for.empty()) {
      waiting.push_back(process_text(look.rank, look.pid));
      missing = look.waits_for;
    }
  if (missing.empty()) return;
  for (const HangLook& look : looks)
    if (!look.waits_for.empty()) {
      say(stdout,
          fmt::format("{} is in its collective {} of {}", process_text(look.rank, look.pid),
                      look.collectives - std::min(look.collectives, look.collectives_pending) + 1,
                      look.collectives));
    }
  for (const HangLook& look : looks) {
    if (std::find(missing.begin(), missing.end(), look.pid) == missing.end()) continue;
    const std::uint64_t done =
        look.collectives - std::min(look.collectives, look.collectives_pending);
    say(stdout,
        fmt::format("the others wait for {}: {}, after {} collectives of {} that it "
                    "handed over",
                    process_text(look.rank, look.pid), place_text(look), done, look.collectives));
  }
}

Json stuck_json(const HangLook& look, const Stuck& one) {
  Json operations = Json::array(), behind = Json::array();
  for (const capture::cuda::Suspect& suspect : one.suspects)
    operations.push(operation_name(look.snapshot, suspect));
  for (const auto& [name, count] : behind_of(look, one))
    behind.push(Json::object().set("operation", name).set("count", count));
  const std::int32_t device = device_of(look, one);
  return Json::object()
      .set("kind", capture::cuda::stuck_kind_name(one.kind))
      .set("operations", std::move(operations))
      .set("operations_forgotten", one.forgotten)
      .set("graph_kernels", one.suspects.size() == 1
                                ? Json::array_of(graph_kernels(look.snapshot, one.suspects[0]))
                                : Json::array())
      .set("behind", std::move(behind))
      .set("behind_forgotten", one.stream.behind_unknown)
      .set("stream", one.stream.index)
      .set("device", device < 0 ? Json() : Json(device))
      .set("thread", one.stream.is_mark ? Json() : Json(one.stream.tid))
      .set("seconds", one.seconds)
      .set("deadline_s", one.deadline_s);
}

Json look_json(const HangLook& look) {
  Json stuck = Json::array();
  for (const Stuck& one : look.stuck)
    stuck.push(stuck_json(look, one));
  Json sites = Json::array();
  for (const LaunchSite& site : look.launch_sites)
    sites.push(Json::object()
                   .set("operation", site.operation)
                   .set("native", frames_json(site.native, true)));
  const bool is_known =
      look.verdict != HangVerdict::kNoLibrary && look.verdict != HangVerdict::kGone;
  return Json::object()
      .set("pid", look.pid)
      .set("rank", look.rank < 0 ? Json() : Json(look.rank))
      .set("verdict", hang_verdict_name(look.verdict))
      .set("why", look.why)
      .set("every_n", look.snapshot.state.mode == WIRE_CUDA_SAMPLED
                          ? Json(look.snapshot.state.every_n)
                          : Json(1))
      .set("collectives", look.collectives)
      .set("collectives_pending", look.collectives_pending)
      .set("at", is_known ? Json(capture::cuda::rank_at_name(look.at)) : Json())
      .set("at_work", is_known ? Json(look.is_at_work) : Json())
      .set("waits_for", Json::array_of(look.waits_for))
      .set("stuck", std::move(stuck))
      .set("moving_streams", Json::array_of(look.moving))
      .set("launched_by", std::move(sites))
      .set("threads", threads_json(look.threads));
}

}  // namespace

std::vector<HangLook> look_at_devices(const sys::Procfs& procfs,
                                      const std::vector<std::int32_t>& pids) {
  if (pids.empty()) return {};
  std::vector<std::unique_ptr<capture::cuda::Channel>> channels;
  std::vector<capture::hang::FirstLook> firsts;
  for (const std::int32_t pid : pids) {
    auto channel = capture::cuda::Channel::open(procfs, pid, capture::cuda::Channel::Access::kLook);
    const std::string why_not = channel ? std::string() : channel.error().what;
    channels.push_back(channel ? std::move(*channel) : nullptr);
    firsts.push_back(capture::hang::first_look(procfs, pid, channels.back().get(), why_not));
  }
  const sys::RealClock clock;
  sys::sleep_until(clock.now() + kBetweenLooks);
  sys::NativeStacks stacks(procfs);
  std::vector<HangLook> looks;
  looks.reserve(firsts.size());
  for (const capture::hang::FirstLook& first : firsts)
    looks.push_back(capture::hang::second_look(procfs, first, stacks));
  judge_job(procfs, looks, stacks);
  return looks;
}

void print_device_looks(const std::vector<HangLook>& looks) {
  for (const HangLook& look : looks)
    print_look(look);
  print_job(looks);
}

void add_device_looks(const std::vector<HangLook>& looks, Json& out) {
  Json processes = Json::array(), missing = Json::array();
  for (const HangLook& look : looks)
    processes.push(look_json(look));
  for (const HangLook& look : looks)
    if (std::any_of(looks.begin(), looks.end(), [&](const HangLook& other) {
          return std::count(other.waits_for.begin(), other.waits_for.end(), look.pid) > 0;
        }))
      missing.push(look.pid);
  out.set("processes", std::move(processes)).set("missing", std::move(missing));
}

int status_of_looks(const std::vector<HangLook>& looks) {
  const auto has = [&](HangVerdict verdict) {
    return std::any_of(looks.begin(), looks.end(),
                       [&](const HangLook& look) { return look.verdict == verdict; });
  };
  if (has(HangVerdict::kStuck)) return kExitFindings;
  return has(HangVerdict::kUnknown) || has(HangVerdict::kNoLibrary) || has(HangVerdict::kGone)
             ? kExitNotEnoughData
             : kExitOk;
}

}  // namespace kansoku::cli
