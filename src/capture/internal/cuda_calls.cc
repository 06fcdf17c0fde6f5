// SPDX-License-Identifier: Apache-2.0
#include "capture/internal/cuda_calls.h"

#include <algorithm>
#include <iterator>
#include <utility>

namespace kansoku::capture {
namespace {

constexpr std::size_t kTalliesMax = 4'096;  // processes, ended ones too
constexpr std::string_view kCategory = "cuda";

std::uint64_t thread_key(const wire_event& head) {
  return std::uint64_t{head.tgid} << 32 | head.tid;
}

BootTime time_of(const wire_event& head) {
  return boot_time(static_cast<std::int64_t>(head.t_boot_ns));
}

}  // namespace

const CudaCalls::Probe& CudaCalls::probe_of(std::uint32_t number) {
  while (known_.size() <= number) {
    const ProbeInfo& info = probes_[known_.size()];
    Probe probe;
    if (info.category == kCategory && !info.is_free) {
      probe.entry = &outside::entry_of(info.title);
      probe.per_thread = outside::is_per_thread(info.title);
      for (const CaptureDef& capture : info.captures)
        probe.keys.push_back(outside::key_of(capture.name));
    }
    known_.push_back(std::move(probe));
  }
  return known_[number];
}

outside::Tally& CudaCalls::tally_of(const wire_event& head) {
  const std::int32_t pid = as_pid(head.tgid);
  const auto found = tallies_.find(pid);
  if (found != tallies_.end()) return *found->second;
  if (tallies_.size() >= kTalliesMax) tallies_.erase(tallies_.begin());
  // Nothing was missed if the probe was there before the process was.
  const auto start = probes_at_start_.find(pid);
  const bool is_whole = start != probes_at_start_.end() && head.probe < start->second;
  return *tallies_
              .emplace(pid, std::make_unique<outside::Tally>(time_of(head), is_whole,
                                                             [this, pid](std::uint64_t stub) {
                                                               return stub_names_.name_at(pid,
                                                                                          stub);
                                                             }))
              .first->second;
}

void CudaCalls::read(const wire_event& head, const Probe& probe, const __u64* args,
                     std::optional<std::string_view> text, bool at_end, outside::Call& call) const {
  const std::vector<CaptureDef>& captures = probes_[head.probe].captures;
  if (args == nullptr) return;
  for (std::size_t i = 0; i < captures.size() && i < WIRE_ARGS_MAX; ++i) {
    const CaptureDef& capture = captures[i];
    if (is_read_at_end(capture) != at_end || (head.failed_args >> i & 1) != 0) continue;
    if (capture.how.is_text != WIRE_TEXT_NONE) {
      if (!text) continue;
      call.name = *text;
      call.is_name_cut = capture.is_long && text->size() + 1 >= WIRE_LONG_TEXT_BYTES;
    } else if (probe.keys[i]) {
      std::uint64_t value = args[i];
      if (capture.how.size == 4) value &= 0xffffffffU;
      call.set(*probe.keys[i], value);
    }
  }
}

void CudaCalls::on_record(const wire_event& head, const __u64* args,
                          std::optional<std::string_view> text) {
  has_shown_ = false;
  const Probe& probe = probe_of(head.probe);
  if (probe.entry == nullptr) return;
  if (head.kind == WIRE_END) {
    on_end(head, probe, args, text);
    return;
  }
  shown_.call = outside::Call{.entry = probe.entry,
                              .per_thread = probe.per_thread,
                              .tid = as_pid(head.tid),
                              .begin = time_of(head)};
  read(head, probe, args, text, false, shown_.call);
  if (probes_[head.probe].is_sampled) ++launch_hits_;
  if (probe.entry->action == outside::Action::kRuntimeLaunch) ++naming_hits_;
  outside::Tally& tally = tally_of(head);
  const auto launch = tally.on_begin(probes_[head.probe].title, shown_.call);
  shown_.kernel = launch ? &tally.names().kernel(launch->kernel) : nullptr;
  shown_.is_captured = launch && launch->is_captured;
  if (shown_.kernel != nullptr && !shown_.kernel->is_named()) ++unnamed_;
  has_shown_ = true;
  if (head.kind != WIRE_BEGIN) return;
  std::vector<Open>& open = open_[thread_key(head)];
  if (open.size() >= kOpenMax) {
    unseen_ends_ += open.size();
    open.clear();
  }
  open.push_back({head.probe, shown_.call});
  open.back().call.name = {};
}

void CudaCalls::on_end(const wire_event& head, const Probe& probe, const __u64* args,
                       std::optional<std::string_view> text) {
  const auto thread = open_.find(thread_key(head));
  if (thread == open_.end()) return;
  std::vector<Open>& open = thread->second;
  const auto found = std::find_if(open.rbegin(), open.rend(),
                                  [&](const Open& one) { return one.probe == head.probe; });
  if (found == open.rend()) return;
  outside::Call call = found->call;
  const auto inside = static_cast<std::size_t>(found - open.rbegin());
  unseen_ends_ += inside;
  open.resize(open.size() - inside - 1);
  if (open.empty()) open_.erase(thread);
  read(head, probe, args, text, true, call);
  tally_of(head).on_end(probes_[head.probe].title, call, time_of(head));
}

void CudaCalls::note_probes(BootTime now) {
  if (noted_.empty() || noted_.back().second < probes_.size())
    noted_.emplace_back(now, probes_.size());
}

void CudaCalls::on_lifecycle(const LifecycleEvent& event) {
  const std::uint64_t first = std::uint64_t{static_cast<std::uint32_t>(event.pid)} << 32;
  const auto begin = open_.lower_bound(first), end = open_.upper_bound(first | UINT32_MAX);
  for (auto thread = begin; thread != end; ++thread)
    unseen_ends_ += thread->second.size();
  open_.erase(begin, end);
  if (event.kind == LifecycleEvent::Kind::kExit) {
    probes_at_start_.erase(event.pid);
    const auto ended = tallies_.find(event.pid);
    if (ended != tallies_.end()) ended->second->on_exit(event.time);
    return;
  }
  const auto after = std::find_if(noted_.begin(), noted_.end(),
                                  [&](const auto& one) { return one.first > event.time; });
  probes_at_start_[event.pid] = after == noted_.begin() ? 0 : std::prev(after)->second;
  const auto tally = tallies_.find(event.pid);
  if (tally == tallies_.end()) return;
  if (event.kind == LifecycleEvent::Kind::kExec) {
    tally->second->forget();
  } else {
    tallies_.erase(tally);  // the number is another process's now
  }
}

void CudaCalls::settle() {
  for (const auto& [pid, tally] : tallies_)
    tally->settle();
}

void CudaCalls::on_loss() {
  open_.clear();
  for (const auto& [pid, tally] : tallies_)
    tally->on_loss(true);
}

void CudaCalls::on_gap() {
  for (const auto& [pid, tally] : tallies_)
    tally->on_gap();
}

}  // namespace kansoku::capture
