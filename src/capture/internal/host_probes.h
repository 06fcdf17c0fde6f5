// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "capture/bpf/engine.h"
#include "capture/pack.h"
#include "capture/probe_table.h"

namespace kansoku::capture {

/// Attaches the kernel's probes of packs: tracepoints, system calls, scheduler, CPU sampler.
/// Single-threaded.
class HostProbes {
 public:
  /// Borrows engine and table. Attaches nothing yet. `is_window`: as of ProbeInfo.
  HostProbes(bpf::Engine& engine, const std::vector<Pack>& packs, ProbeTable& probes,
             bool is_window);

  /// Attaches everything, or takes it off. Each problem goes to `log`, if there is one.
  void set_enabled(bool enabled, const std::function<void(const std::string&)>& log);

  [[nodiscard]] const std::vector<std::string>& problems() const { return problems_; }
  struct Counters {
    std::uint64_t missing{0}, failed{0};
    bool scheduler_failed{false};
  };
  [[nodiscard]] const Counters& counters() const { return counters_; }

 private:
  [[nodiscard]] std::uint64_t add_probe(ProbeInfo info, std::uint8_t flags);
  void attach(const std::function<void(const std::string&)>& log);

  bpf::Engine& engine_;
  ProbeTable& probes_;
  bool is_window_;
  bool wants_scheduler_{false};
  std::vector<std::uint32_t> cpu_rates_;
  std::map<std::string, std::uint64_t> cookies_;  // by "group:name", or "syscall name"
  std::vector<bpf::Engine::Handle> handles_;
  std::vector<std::string> problems_;
  Counters counters_;
};

}  // namespace kansoku::capture
