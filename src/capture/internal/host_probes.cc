// SPDX-License-Identifier: Apache-2.0
#include "capture/internal/host_probes.h"

#include <algorithm>
#include <utility>

namespace kansoku::capture {

HostProbes::HostProbes(bpf::Engine& engine, const std::vector<Pack>& packs, ProbeTable& probes,
                       bool is_window)
    : engine_(engine), probes_(probes), is_window_(is_window) {
  for (const Pack& pack : packs) {
    for (const SyscallProbes& syscalls : pack.syscalls) {
      for (const std::string& name : syscalls.names) {
        ProbeInfo info{.title = name, .category = syscalls.category, .is_syscall = true};
        cookies_.emplace("syscall " + name, add_probe(std::move(info), 0));
      }
    }
    for (const TracepointProbes& tracepoints : pack.tracepoints) {
      for (const std::string& name : tracepoints.names) {
        ProbeInfo info{.title = name.substr(name.find(':') + 1),
                       .category = tracepoints.category,
                       .kind = ProbeKind::kInstant,
                       .is_host = tracepoints.host};
        const std::uint8_t flags = tracepoints.host ? WIRE_PROBE_HOST : 0;
        cookies_.emplace(name, add_probe(std::move(info), flags));
      }
    }
    wants_scheduler_ = wants_scheduler_ || pack.scheduler;
    if (pack.cpu_hz != 0) cpu_rates_.push_back(pack.cpu_hz);
  }
}

std::uint64_t HostProbes::add_probe(ProbeInfo info, std::uint8_t flags) {
  info.is_window = is_window_;
  wire_probe description{};
  description.sinks = WIRE_SINK_RING;
  description.flags = flags;
  std::vector<ProbeInfo> one;
  one.push_back(std::move(info));
  const auto number = add_probes(probes_, std::move(one), bpf::Engine::kProbesMax);
  const auto described =
      number ? engine_.describe_probe(*number, description)
             : Result<void>(Error{Code::kLimit, "attach to tracepoints: too many probes"});
  if (!described) {
    ++counters_.failed;
    problems_.push_back(described.error().what);
  }
  return number.value_or(0);
}

void HostProbes::set_enabled(bool enabled, const std::function<void(const std::string&)>& log) {
  for (const bpf::Engine::Handle handle : std::exchange(handles_, {}))
    engine_.detach(handle);
  if (enabled) attach(log);
}

void HostProbes::attach(const std::function<void(const std::string&)>& log) {
  const auto keep = [&](const Result<bpf::Engine::Handle>& attached, std::uint64_t& counter) {
    if (attached) {
      handles_.push_back(*attached);
      return true;
    }
    // Windows attach again and again: each is told and counted once.
    const std::string& what = attached.error().what;
    if (std::find(problems_.begin(), problems_.end(), what) != problems_.end()) return false;
    ++counter;
    if (log) log(what);
    problems_.push_back(what);
    return false;
  };
  for (const auto& [name, cookie] : cookies_) {
    const auto colon = name.find(':');
    keep(colon == std::string::npos
             ? engine_.attach_syscall(name.substr(name.find(' ') + 1), cookie)
             : engine_.attach_tracepoint(name.substr(0, colon), name.substr(colon + 1), cookie),
         counters_.missing);
  }
  if (wants_scheduler_ && !keep(engine_.attach_scheduler(), counters_.failed))
    counters_.scheduler_failed = true;
  for (const std::uint32_t hz : cpu_rates_)
    keep(engine_.attach_cpu_sampler(hz), counters_.failed);
}

}  // namespace kansoku::capture
