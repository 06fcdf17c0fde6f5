// SPDX-License-Identifier: Apache-2.0
#include "capture/internal/kernel/kernel_times.h"

#include <algorithm>
#include <fstream>
#include <utility>

#include "wire/samples.h"

namespace kansoku::capture {
namespace {

constexpr Nanos kTimesEvery = std::chrono::seconds{1};
constexpr std::uint32_t kFaultsEvery = 2;  // looks at the mappings, in polls
constexpr std::array<std::string_view, kKernelPartCount> kPartNames{
    "time in page faults", "time in reclaim", "time in interrupts",
    "time in probes",      "time in call ",   "time in other kernel code"};

}  // namespace

/// Takes some fifty milliseconds: the kernel has a quarter of a million functions.
Result<void> KernelTimes::prepare() {
  if (sampler_) return {};
  TRY(auto made, bpf::ThreadSampler::create());
  if (!code_.is_known()) {
    std::ifstream symbols("/proc/kallsyms");
    code_ = KernelCode::read(symbols);
  }
  if (!code_.is_known())
    return Error{Code::kPermission,
                 "the kernel hides its functions' addresses (/proc/sys/kernel/kptr_restrict)"};
  sampler_ = std::move(made);
  return {};
}

bool KernelTimes::is_ready() {
  if (sampler_ || has_failed_) return !has_failed_;
  const auto prepared = prepare();
  if (!prepared) fail(prepared.error().what);
  return prepared.has_value();
}

/// Nothing is sampled that nobody reads.
void KernelTimes::stop() {
  if (sampler_) {
    lost_ += sampler_->lost() + unplaced_;
    faults_lost_ += sampler_->faults_lost();
  }
  unplaced_ = 0;
  sampler_.reset();
  threads_.clear();
  uses_.clear();
}

void KernelTimes::fail(const std::string& problem) {
  has_failed_ = true;
  ++failures_;
  stop();
  // Windows try again and again.
  if (log_) std::exchange(log_, nullptr)("times in the kernel are not sampled: " + problem);
}

std::string KernelTimes::name_of(const bpf::ThreadSampler::Count& count, Tracks& tracks) {
  if (count.stack == WIRE_IN_USER) return "time in user code";
  if (count.stack < 0) return "time unknown";
  const auto [known, is_new] = uses_.try_emplace(count.stack);
  if (is_new) known->second = code_.use_of(sampler_->frames(count.stack));
  const KernelUse& use = known->second;
  const std::string part(kPartNames[static_cast<std::size_t>(use.part)]);
  std::string name = part + std::string(use.call);
  if (use.part != KernelPart::kCall || tracks.contains(name)) return name;
  const auto calls = std::count_if(tracks.begin(), tracks.end(), [&](const auto& track) {
    return track.first.starts_with(part);
  });
  if (calls >= static_cast<std::ptrdiff_t>(kCallsMax)) name = part + "(others)";
  tracks.try_emplace(name);
  return name;
}

void KernelTimes::put(std::int32_t pid, const std::string& name, std::string_view unit,
                      double value, BootTime now) {
  auto& track = threads_.at(pid).tracks[name];
  if (!track) track = writer_.counter_track(writer_.thread_track(pid, pid, ""), name, unit);
  writer_.counter(*track, now, value);
}

Result<void> KernelTimes::read_faults() {
  TRY(const auto faults, sampler_->take_faults());
  for (const bpf::ThreadSampler::Fault& fault : faults) {
    const auto thread = threads_.find(fault.tid);
    if (thread != threads_.end()) thread->second.addresses.push_back(fault.address);
  }
  return {};
}

/// Mappings are read behind the faults: one that is gone by then came and went meanwhile.
void KernelTimes::place_faults(std::int32_t pid, Thread& thread, BootTime now) {
  if (thread.addresses.size() < kFaultsMin) return;
  const auto mappings = procfs_.maps(pid);
  const std::vector<std::uint64_t> addresses = std::exchange(thread.addresses, {});
  if (!mappings) return;  // it has ended
  for (const std::uint64_t address : addresses)
    ++thread.faults[static_cast<std::size_t>(fault_place(address, *mappings))];
  for (std::size_t i = 0; i < kFaultPlaceCount; ++i) {
    if (thread.faults[i] == 0) continue;
    put(pid, std::string(fault_place_name(static_cast<FaultPlace>(i))), "",
        static_cast<double>(thread.faults[i] * bpf::ThreadSampler::kFaultsPerSample), now);
  }
}

void KernelTimes::poll(const Processes& processes, BootTime now) {
  next_ = now + kTimesEvery;
  for (const auto& [pid, process] : processes) {
    if (!is_counted(process) || threads_.contains(pid)) continue;
    if (!is_ready()) return;
    // One that has just ended is no problem.
    const auto watched = sampler_->watch(pid);
    if (!watched && watched.error().code != Code::kNotFound) return fail(watched.error().what);
    if (watched) threads_.try_emplace(pid);
  }
  if (threads_.empty()) return;
  const auto counts = sampler_->read();
  if (!counts) return fail(counts.error().what);
  std::map<std::int32_t, std::map<std::string, std::uint64_t>> sums;
  unplaced_ = 0;
  for (const bpf::ThreadSampler::Count& count : *counts) {
    if (count.stack == WIRE_STACK_UNKNOWN) unplaced_ += count.samples;
    const auto thread = threads_.find(count.tid);
    if (thread != threads_.end())
      sums[count.tid][name_of(count, thread->second.tracks)] += count.samples;
  }
  constexpr auto kPeriodNs = static_cast<double>(bpf::ThreadSampler::kPeriod.count());
  for (const auto& [pid, samples] : sums) {
    for (const auto& [name, samples_so_far] : samples)
      put(pid, name, "ns", static_cast<double>(samples_so_far) * kPeriodNs, now);
  }
  if (const auto faults = read_faults(); !faults) return fail(faults.error().what);
  if (++polls_ % kFaultsEvery != 0) return;
  for (auto& [pid, thread] : threads_)
    place_faults(pid, thread, now);
}

void KernelTimes::begin_trace(BootTime now) {
  is_open_ = true;
  has_failed_ = false;
  next_ = now;
  // Before there is anything to miss. What fails is told where it is needed.
  if (is_enabled_) static_cast<void>(prepare());
}

void KernelTimes::end_trace(BootTime /*now*/) {
  is_open_ = false;
  stop();
}

void KernelTimes::set_enabled(bool enabled) {
  is_enabled_ = enabled;
  if (!enabled) stop();
}

void KernelTimes::forget(std::int32_t pid) {
  if (threads_.erase(pid) != 0 && sampler_) sampler_->forget(pid);
}

void KernelTimes::add_losses(Losses& out) const {
  out.add(capture_without_kernel_times, failures_);
  out.add(capture_fault_samples_lost, faults_lost_ + (sampler_ ? sampler_->faults_lost() : 0));
  out.add(capture_kernel_samples_lost, lost_ + unplaced_ + (sampler_ ? sampler_->lost() : 0));
}

}  // namespace kansoku::capture
