// SPDX-License-Identifier: Apache-2.0
#include "capture/internal/discovery.h"

#include <fmt/format.h>

#include <algorithm>

#include "capture/watcher.h"
#include "common/parse.h"
#include "common/text.h"
#include "sys/fd.h"

namespace kansoku::capture {
namespace {

constexpr Nanos kFirstLook = std::chrono::milliseconds{200};
constexpr Nanos kLastLook = std::chrono::seconds{60};

}  // namespace

std::uint64_t address_space_pages(const sys::Procfs& procfs, std::int32_t pid) {
  const auto text = sys::read_file(fmt::format("{}/{}/statm", procfs.root(), pid), 4096);
  if (!text) return 0;
  return parse_int<std::uint64_t>(std::string_view(*text).substr(0, text->find(' '))).value_or(0);
}

void Discovery::add(std::int32_t pid, BootTime now) {
  if (candidates_.size() >= candidates_max_ && !candidates_.contains(pid)) {
    ++over_limit_;
    return;
  }
  candidates_[pid] = {now, now + kFirstLook, 0};
  due_.emplace(now + kFirstLook, pid);
}

bool Discovery::inspect(std::int32_t pid, Candidate& candidate, BootTime now,
                        const OnFound& on_found, std::size_t& looks) {
  const std::uint64_t pages = address_space_pages(procfs_, pid);
  if (pages == 0) return false;  // gone, or a kernel thread
  candidate.next_look = now + std::clamp(now - candidate.seen_at, kFirstLook, kLastLook);
  due_.emplace(candidate.next_look, pid);
  if (pages == candidate.pages) return true;
  candidate.pages = pages;
  ++looks;
  const auto mappings = procfs_.maps(pid);
  if (!mappings) return mappings.error().code != Code::kNotFound;
  const bool is_ai =
      std::any_of(mappings->begin(), mappings->end(), [](const sys::Mapping& mapping) {
        return mapping.executable && is_ai_library(base_name(mapping.path));
      });
  if (!is_ai) return true;
  on_found(pid, *mappings);
  return false;
}

void Discovery::poll(BootTime now, const OnFound& on_found) {
  // Those that are gone and kernel threads cost a glance only: on large hosts, or where processes
  // come and go by the hundred, they are most.
  std::size_t looks = 0, glances = 0;
  while (!due_.empty() && due_.begin()->first <= now && looks < kLooksPerPoll &&
         glances < kGlancesPerPoll) {
    const auto [time, pid] = *due_.begin();
    due_.erase(due_.begin());
    const auto candidate = candidates_.find(pid);
    if (candidate == candidates_.end() || candidate->second.next_look != time) continue;
    ++glances;
    if (!inspect(pid, candidate->second, now, on_found, looks)) candidates_.erase(pid);
  }
}

}  // namespace kansoku::capture
